//! Each command by the URL of a cluster, of Sentinels and with TLS.

use std::fs;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};

use crate::sentinel::sentinel_of;
use crate::support::servers::cluster::Cluster;
use crate::support::servers::{Server, ports};
use crate::support::{Cli, Ran, program};
use crate::watchdog::output;

fn run(url: &str, arguments: &str) -> Ran {
    Ran::from(output(program(arguments).env("REDIS_URL", url)))
}

/// The commands, which run one after another, each with its exit code.
const COMMANDS: [(&str, i32); 17] = [
    ("set orders 3/1h", 0),
    ("update orders 4/1h", 0),
    ("try orders", 0),
    ("acquire orders --timeout 1s", 0),
    ("release orders", 0),
    ("available orders", 0),
    ("peek orders 4", 1),
    ("config orders", 0),
    ("expire orders 1h", 0),
    ("run orders -- true", 0),
    ("list orders", 0),
    ("show orders", 0),
    ("watch orders --once", 0),
    ("try a --policy token-bucket --rate 1/s --capacity 1", 0),
    (
        "delete a --policy token-bucket --rate 1/s --capacity 1 --yes",
        0,
    ),
    ("delete orders --yes", 0),
    ("show orders", 2),
];

fn assert_each_command_works(url: &str, more: &str) {
    for (arguments, code) in COMMANDS {
        let ran = run(url, &format!("{more}{arguments}"));
        assert_eq!(ran.code, code, "{arguments}: {ran:?}");
    }
    let doctor = run(url, &format!("{more}doctor orders"));
    assert!(doctor.out.contains("0 limiters looked at"), "{doctor:?}");
}

#[test]
fn commands_work_on_a_cluster_by_one_node_or_by_all() {
    let cluster = Cluster::start();
    assert_each_command_works(&cluster.urls().join(","), "");
    assert_each_command_works(&cluster.urls()[0], "");
    let refused = run(&cluster.urls()[0], "set a{b 5/s");
    assert_eq!(refused.code, 2, "{refused:?}");
}

#[test]
fn commands_work_behind_a_sentinel() {
    let primary = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let (_sentinel, url) = sentinel_of(&primary, folder.path(), "");
    assert_each_command_works(&url, "");
    let unknown = run(
        &url.replace("orders", "mails"),
        "--response-timeout 1s list",
    );
    assert_eq!(unknown.code, 3, "{unknown:?}");
}

#[test]
fn a_sentinel_may_have_a_password_of_its_own() {
    let primary = Server::start_with(&["--requirepass", "hunter2"]);
    let folder = tempfile::tempdir().unwrap();
    let lines = "sentinel auth-pass orders hunter2\nrequirepass watcher\n";
    let (_sentinel, url) = sentinel_of(&primary, folder.path(), lines);
    let file = |name: &str, password: &str| {
        let path = folder.path().join(name);
        fs::write(&path, password).unwrap();
        path.display().to_string()
    };
    let of_server = format!("--password-file {}", file("server", "hunter2\n"));
    let of_sentinel = format!("--sentinel-password-file {}", file("sentinel", "watcher\n"));
    let set = "set orders 5/s";
    let ran = run(&url, &format!("{of_server} {of_sentinel} {set}"));
    assert_eq!(ran.code, 0, "{ran:?}");
    let as_default = format!("{of_sentinel} --sentinel-user default");
    let ran = run(&url, &format!("{of_server} {as_default} {set}"));
    assert_eq!(ran.code, 0, "{ran:?}");
    for arguments in [
        of_server.clone(),
        format!("{of_server} {}", of_server.replace("--", "--sentinel-")),
    ] {
        let ran = run(&url, &format!("{arguments} {set}"));
        assert_eq!(ran.code, 3, "{ran:?}");
        assert!(!ran.err.contains("hunter2"), "{ran:?}");
    }
    let missing = "--sentinel-password-file /no/such/file available orders";
    assert_eq!(run(&url, missing).code, 2);
}

/// An authority of the test's own, and certificates of it, as files.
struct Certificates(tempfile::TempDir);

impl Certificates {
    fn new() -> Self {
        let it = Self(tempfile::tempdir().unwrap());
        let authority_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&authority_key).unwrap();
        fs::write(it.path("ca.pem"), authority.pem()).unwrap();
        let issuer = Issuer::new(params, authority_key);
        for name in ["localhost", "client"] {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            // With the authority's name, the certificate would look self-signed.
            params.distinguished_name = DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, name);
            let certificate = params.signed_by(&key, &issuer).unwrap();
            fs::write(it.path(&format!("{name}.pem")), certificate.pem()).unwrap();
            fs::write(it.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        it
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// A server with the first of them, and its URL.
    fn server(&self, arguments: &[&str]) -> (Server, String) {
        let port = ports::reserve().to_string();
        let files = ["ca.pem", "localhost.pem", "localhost.key"].map(|it| self.path(it));
        let [ca, certificate, key] = &files;
        let tls = [
            "--tls-port",
            &port,
            "--tls-ca-cert-file",
            ca,
            "--tls-cert-file",
            certificate,
            "--tls-key-file",
            key,
        ];
        let server = Server::start_with(&[&tls[..], arguments].concat());
        (server, format!("rediss://localhost:{port}"))
    }
}

#[test]
fn commands_work_with_tls_and_a_certificate_authority_of_ones_own() {
    let certificates = Certificates::new();
    let (_server, url) = certificates.server(&["--tls-auth-clients", "no"]);
    let with_ca = format!("--ca-file {} ", certificates.path("ca.pem"));
    assert_each_command_works(&url, &with_ca);
    let untrusted = run(&url, "--response-timeout 1s try orders");
    assert_eq!(untrusted.code, 3, "{untrusted:?}");
    assert!(untrusted.err.contains("ertificate"), "{untrusted:?}");
}

/// Redis asks for a certificate unless its configuration says otherwise.
#[test]
fn a_server_may_ask_for_a_certificate_of_the_client() {
    let certificates = Certificates::new();
    let (_server, url) = certificates.server(&[]);
    let with_ca = format!("--ca-file {}", certificates.path("ca.pem"));
    let certificate = certificates.path("client.pem");
    let key = certificates.path("client.key");
    let own = format!("--cert-file {certificate} --key-file {key}");
    let set = "--response-timeout 1s set orders 5/s";
    for (own, code) in [
        (own.as_str(), 0),
        ("", 3),
        (&format!("--cert-file {certificate}"), 2),
        (&format!("--cert-file {certificate} --key-file /no/such"), 2),
        (&format!("--cert-file {key} --key-file {certificate}"), 2),
    ] {
        let ran = run(&url, &format!("{with_ca} {own} {set}"));
        assert_eq!(ran.code, code, "{own}: {ran:?}");
    }
}

#[test]
fn a_server_is_found_by_its_name() {
    let cli = Cli::start();
    let url = format!("redis://localhost:{}", cli.server.port());
    let ran = Ran::from(output(program("set orders 5/s").env("REDIS_URL", url)));
    assert_eq!((ran.code, &*ran.out), (0, "orders: 5 per 1s"), "{ran:?}");
}
