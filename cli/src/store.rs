//! The arguments for the store of the limiters, and the connection to it.

use std::future::{Ready, ready};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use redisson_rate_limiter::{Credentials, RedissonClient, RedissonClientBuilder, TlsConfig};
use rustix::process::getuid;

use crate::failure::Failure;
use crate::rate::duration;

#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArguments {
    /// A server, the nodes of a cluster (separated by commas), or Sentinels: redis://…, rediss://…,
    /// redis-sentinel://… [default: redis://127.0.0.1:6379; of `serve`: in memory]
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "REDIS_URL",
        hide_env_values = true
    )]
    url: Option<String>,
    /// The user that logs in with the password of --password-file
    #[arg(long, global = true, value_name = "NAME", requires = "password_file")]
    user: Option<String>,
    /// A file with the password, which is thus not in the list of processes
    #[arg(long, global = true, value_name = "FILE", env = "REDIS_PASSWORD_FILE")]
    password_file: Option<PathBuf>,
    /// The user that logs in to Sentinels with the password of --sentinel-password-file
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        requires = "sentinel_password_file"
    )]
    sentinel_user: Option<String>,
    /// A file with the password of the Sentinels, if it is another one than that of the server
    #[arg(long, global = true, value_name = "FILE")]
    sentinel_password_file: Option<PathBuf>,
    /// The certificates that the server's must be signed by, as PEM, besides those of the system
    #[arg(long, global = true, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// The certificate of this client and those that it was issued with, as PEM, for a server that
    /// asks for one
    #[arg(long, global = true, value_name = "FILE", requires = "key_file")]
    cert_file: Option<PathBuf>,
    /// The key of that certificate, as PEM
    #[arg(long, global = true, value_name = "FILE", requires = "cert_file")]
    key_file: Option<PathBuf>,
    /// The name under which limiters of a rate for each client know this one; by default the user's
    /// number and the host, such as `1000@build-7`, and for `serve` a new one
    #[arg(long, global = true, value_name = "ID")]
    client_id: Option<String>,
    /// What every NAME begins with
    #[arg(
        long,
        global = true,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    prefix: String,
    /// How long a call may take, besides the wait for permits
    #[arg(long, global = true, value_name = "TIME", value_parser = duration, default_value = "3s")]
    response_timeout: Duration,
}

impl StoreArguments {
    pub(crate) async fn connect(&self) -> Result<RedissonClient, Failure> {
        let url = self.url().unwrap_or("redis://127.0.0.1:6379");
        let mut builder = self.builder()?;
        if self.client_id.is_none() {
            builder = builder.client_id(own_client_id());
        }
        let connected = builder.connect(url).await.map_err(Failure::from);
        connected.map_err(|failure| match self.url {
            Some(_) if url.starts_with("rediss") && failure.is_silence() => {
                failure.then("its port may speak no TLS: then the URL begins with redis://")
            }
            Some(_) => failure,
            None => failure.then(
                "neither --url nor REDIS_URL says where the server is, so this one was tried",
            ),
        })
    }

    pub(crate) fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    /// The builder of a client with these settings.
    pub(crate) fn builder(&self) -> Result<RedissonClientBuilder, Failure> {
        let mut builder = RedissonClient::builder().response_timeout(self.response_timeout);
        if let Some(id) = &self.client_id {
            builder = builder.client_id(id);
        }
        if let Some(tls) = self.tls()? {
            builder = builder.tls(tls);
        }
        if let Some(file) = &self.password_file {
            builder = builder.credentials(credentials(self.user.clone(), file)?);
        }
        if let Some(file) = &self.sentinel_password_file {
            let user = self.sentinel_user.clone();
            builder = builder.sentinel_credentials(credentials(user, file)?);
        }
        Ok(builder)
    }

    /// The TLS settings; `None` if the arguments name no certificates.
    fn tls(&self) -> Result<Option<TlsConfig>, Failure> {
        let mut tls = None;
        if let Some(file) = &self.ca_file {
            tls = Some(TlsConfig::new().ca_pem(read(file)?));
        }
        if let (Some(certificate), Some(key)) = (&self.cert_file, &self.key_file) {
            let with = tls.unwrap_or_default();
            tls = Some(with.client_certificate_pem(read(certificate)?, read(key)?));
        }
        Ok(tls)
    }

    pub(crate) fn full_name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

/// A client id that is the same in all processes of this user on this host. If each process had a
/// new one, a rate for each client would limit nothing.
fn own_client_id() -> String {
    let host = rustix::system::uname();
    format!(
        "{}@{}",
        getuid().as_raw(),
        host.nodename().to_string_lossy()
    )
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(file).map_err(|error| Failure::usage(format!("{}: {error}", file.display())))
}

/// Makes a provider of credentials that reads the password again for each connection.
fn credentials(
    user: Option<String>,
    file: &Path,
) -> Result<impl Fn() -> Ready<io::Result<Credentials>> + Send + Sync + use<>, Failure> {
    // Checked here, so that a wrong path is reported as an error of the command line.
    if let Err(error) = std::fs::metadata(file) {
        return Err(Failure::usage(format!("{}: {error}", file.display())));
    }
    let file = file.to_owned();
    Ok(move || {
        let credentials = std::fs::read_to_string(&file).map(|password| {
            let password = password.trim_end_matches(['\r', '\n']);
            match &user {
                Some(user) => Credentials::new(user, password),
                None => Credentials::password(password),
            }
        });
        ready(credentials)
    })
}
