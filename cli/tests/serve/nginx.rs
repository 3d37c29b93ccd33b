//! A real nginx, with the configuration that SERVE.md has.

use std::fs;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use reqwest::StatusCode;

use crate::http::RULES;
use crate::support::Serve;
use crate::support::servers::ports::reserve;

struct Nginx(Child);

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The part of the page that is nginx's.
fn documented() -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/SERVE.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("```nginx\n").unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

#[tokio::test]
async fn nginx_limits_requests_with_the_documented_configuration() {
    let serve = Serve::start(RULES);
    let (port, backend) = (reserve(), reserve());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    let locations = documented()
        .replace("127.0.0.1:8080", &serve.http)
        .replace("http://backend", &format!("http://127.0.0.1:{backend}"))
        // There is nobody to log in to.
        .replace("$remote_user", "$http_x_name");
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary
        .map(|it| format!("{it}_temp_path {path}/{it};"))
        .concat();
    let config = format!(
        "daemon off; master_process off; pid {path}/pid; error_log stderr; events {{}}
         http {{ access_log off; {temporary}
           server {{ listen 127.0.0.1:{port}; {locations} }}
           server {{ listen 127.0.0.1:{backend}; return 200; }}
         }}"
    );
    let file = folder.path().join("nginx.conf");
    fs::write(&file, config).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-p").arg(folder.path()).arg("-c").arg(&file);
    let mut nginx = Nginx(
        command
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx is installed: see scripts/tools"),
    );
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(nginx.0.try_wait().unwrap().is_none(), "nginx has ended");
    }
    let ask = async |user: &str| {
        let url = format!("http://127.0.0.1:{port}/");
        // The value that the client gives to this field does not count.
        let request = serve
            .client
            .post(url)
            .header("x-limit-user", "mallory")
            .header("x-name", user)
            .body("text");
        request.send().await.unwrap()
    };
    for status in [
        StatusCode::OK,
        StatusCode::OK,
        StatusCode::TOO_MANY_REQUESTS,
    ] {
        let answer = ask("alice").await;
        assert_eq!(answer.status(), status);
        if status == StatusCode::TOO_MANY_REQUESTS {
            let wait = answer.headers()["retry-after"].to_str().unwrap();
            assert!((1..=3_600).contains(&wait.parse().unwrap()), "{wait}");
        }
    }
    let blocked = ask("mallory").await;
    assert_eq!(blocked.status(), StatusCode::FORBIDDEN);
    assert!(blocked.headers().get("retry-after").is_none());
    // A head that serve would not read is decided as any other.
    let large = |user: &'static str| {
        let mut request = serve.client.get(format!("http://127.0.0.1:{port}/"));
        for field in 0..120 {
            request = request.header(format!("x-field-{field}"), "a".repeat(160));
        }
        request.header("x-name", user).send()
    };
    for (user, status) in [
        ("bob", StatusCode::OK),
        ("bob", StatusCode::TOO_MANY_REQUESTS),
        ("mallory", StatusCode::FORBIDDEN),
    ] {
        assert_eq!(large(user).await.unwrap().status(), status, "{user}");
    }
}
