//! A server that is slow to answer a new connection, or a network that loses what is sent over
//! some.

use redisson_rate_limiter::RedissonClient;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use crate::load::{PATIENT, ample, at_last};
use crate::support::Server;

#[tokio::test]
async fn an_attempt_to_connect_goes_on_while_later_ones_are_made_beside_it() {
    let server = Server::start();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let builder = RedissonClient::builder().response_timeout(PATIENT);
    let connecting = tokio::spawn(async move { builder.connect(&url).await });
    let mut attempts = Vec::new();
    for _ in 0..4 {
        let accepted = at_last("an attempt", listener.accept()).await;
        attempts.push(accepted.unwrap().0);
    }
    // Only the third has an answer, and not before the fourth is made.
    let mut answered = attempts.remove(2);
    let mut to_server = TcpStream::connect(("127.0.0.1", server.port()))
        .await
        .unwrap();
    let passing_on = async { copy_bidirectional(&mut answered, &mut to_server).await };
    let used = async { ample(&connecting.await.unwrap().unwrap(), "limiter").await };
    tokio::select! {
        _ = passing_on => panic!("the connection was given up"),
        _ = used => {}
    }
}
