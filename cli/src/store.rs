//! Where the limiters are, and the connection to it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use redisson_rate_limiter::{Credentials, RedissonClient, RedissonClientBuilder, TlsConfig};

use crate::failure::Failure;
use crate::rate::duration;

#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArguments {
    /// A server, the nodes of a cluster (separated by commas), or Sentinels: redis://…, rediss://…, redis-sentinel://…
    /// [default: redis://127.0.0.1:6379; of `serve`: in memory]
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
    /// The certificates that the server's must be signed by, as PEM, besides those of the system
    #[arg(long, global = true, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// The name under which limiters of a rate for each client know this one
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
        Ok(self.builder()?.connect(url).await?)
    }

    pub(crate) fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    /// A client with these settings, before it is connected.
    pub(crate) fn builder(&self) -> Result<RedissonClientBuilder, Failure> {
        let mut builder = RedissonClient::builder().response_timeout(self.response_timeout);
        if let Some(id) = &self.client_id {
            builder = builder.client_id(id);
        }
        if let Some(file) = &self.ca_file {
            let certificates = std::fs::read(file)
                .map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
            builder = builder.tls(TlsConfig::new().ca_pem(certificates));
        }
        if let Some(file) = self.password_file.clone() {
            // A mistake in the path is one of the command line.
            if let Err(error) = std::fs::metadata(&file) {
                return Err(Failure::usage(format!("{}: {error}", file.display())));
            }
            let user = self.user.clone();
            builder = builder.credentials(move || {
                let password = std::fs::read_to_string(&file);
                let user = user.clone();
                async move {
                    let password = password?;
                    let password = password.trim_end_matches(['\r', '\n']);
                    Ok::<_, std::io::Error>(match user {
                        Some(user) => Credentials::new(user, password),
                        None => Credentials::password(password),
                    })
                }
            });
        }
        Ok(builder)
    }

    pub(crate) fn full_name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}
