//! Each command by the URL of a cluster, of Sentinels and with TLS.

use std::fs;
use std::process::{Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::support::servers::cluster::Cluster;
use crate::support::servers::{Process, Server, ports, server_program};
use crate::support::{Cli, Ran, program};

fn run(url: &str, arguments: &str) -> Ran {
    Ran::from(program(arguments).env("REDIS_URL", url).output().unwrap())
}

/// One after another, with the exit code of each.
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
    ("try a --policy token-bucket --per-second 1 --capacity 1", 0),
    (
        "delete a --policy token-bucket --per-second 1 --capacity 1 --yes",
        0,
    ),
    ("bench load --duration 50ms --yes", 0),
    ("delete orders --yes", 0),
    ("show orders", 1),
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
    let (file, port) = (folder.path().join("sentinel.conf"), ports::reserve());
    let config = format!(
        "port {port}\nsentinel monitor orders 127.0.0.1 {} 1\n",
        primary.port()
    );
    fs::write(&file, config).unwrap();
    let mut command = Command::new(server_program());
    command
        .arg(&file)
        .arg("--sentinel")
        .current_dir(folder.path());
    let _sentinel = Process::start(&command, Stdio::null());
    while redis::Client::open(format!("redis://127.0.0.1:{port}"))
        .unwrap()
        .get_connection()
        .is_err()
    {
        std::thread::yield_now();
    }
    assert_each_command_works(&format!("redis-sentinel://127.0.0.1:{port}/orders"), "");
    let unknown = run(
        &format!("redis-sentinel://127.0.0.1:{port}/mails"),
        "--response-timeout 1s list",
    );
    assert_eq!(unknown.code, 3, "{unknown:?}");
}

#[test]
fn commands_work_with_tls_and_a_certificate_authority_of_ones_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    fs::write(
        path("ca.pem"),
        params.self_signed(&authority_key).unwrap().pem(),
    )
    .unwrap();
    let issuer = Issuer::new(params, authority_key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    fs::write(
        path("cert.pem"),
        params.signed_by(&key, &issuer).unwrap().pem(),
    )
    .unwrap();
    fs::write(path("key.pem"), key.serialize_pem()).unwrap();
    let port = ports::reserve().to_string();
    let _server = Server::start_with(&[
        "--tls-port",
        &port,
        "--tls-auth-clients",
        "no",
        "--tls-ca-cert-file",
        &path("ca.pem"),
        "--tls-cert-file",
        &path("cert.pem"),
        "--tls-key-file",
        &path("key.pem"),
    ]);
    let url = format!("rediss://localhost:{port}");
    assert_each_command_works(&url, &format!("--ca-file {} ", path("ca.pem")));
    let untrusted = run(&url, "--response-timeout 1s try orders");
    assert_eq!(untrusted.code, 3, "{untrusted:?}");
    assert!(untrusted.err.contains("ertificate"), "{untrusted:?}");
}

#[test]
fn a_server_is_found_by_its_name() {
    let cli = Cli::start();
    let url = format!("redis://localhost:{}", cli.server.port());
    let ran = Ran::from(
        program("set orders 5/s")
            .env("REDIS_URL", url)
            .output()
            .unwrap(),
    );
    assert_eq!((ran.code, &*ran.out), (0, "orders: 5 per 1s"), "{ran:?}");
}
