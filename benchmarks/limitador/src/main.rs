//! The crate `limitador`, asked as its own server asks it, behind the same gRPC libraries as
//! `serve`. `REDIS_URL` has the server, the argument the number of rules.

#[path = "../../../serve/src/grpc/messages.rs"]
#[allow(dead_code, unused_imports, reason = "the client has the rest")]
mod messages;

use std::collections::HashMap;
use std::convert::Infallible;
use std::env;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use limitador::AsyncRateLimiter;
use limitador::limit::Limit;
use limitador::storage::redis::AsyncRedisStorage;
use tokio::net::TcpListener;
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use messages::{Code, RateLimitRequest, RateLimitResponse};

/// A limit that nobody reaches.
const LIMIT: i64 = 1_000_000_000;

#[tokio::main]
async fn main() {
    let rules: u32 = env::args()
        .nth(1)
        .expect("a number")
        .parse()
        .expect("a number");
    let url = env::var("REDIS_URL").expect("a URL");
    let storage = AsyncRedisStorage::new(&url).await.expect("a server");
    let limiter = AsyncRateLimiter::new_with_storage(Box::new(storage));
    for rule in 0..rules {
        // It applies to requests with this entry.
        let no_conditions: [&str; 0] = [];
        let limit = Limit::new(
            "bench",
            LIMIT.into(),
            60,
            no_conditions,
            [format!("key{rule}")],
        );
        limiter.add_limit(limit);
    }
    let limiter = Arc::new(limiter);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    eprintln!("gRPC at {address}\nready");
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        let limiter = Arc::clone(&limiter);
        let answer = service_fn(move |request| {
            let asked = Asked(Arc::clone(&limiter));
            async move {
                let mut grpc = Grpc::new(ProstCodec::default());
                Ok::<_, Infallible>(grpc.unary(asked, request).await)
            }
        });
        let builder = http2::Builder::new(TokioExecutor::new());
        tokio::spawn(builder.serve_connection(TokioIo::new(stream), answer));
    }
}

struct Asked(Arc<AsyncRateLimiter>);

impl UnaryService<RateLimitRequest> for Asked {
    type Response = RateLimitResponse;
    type Future = Pin<Box<dyn Future<Output = Result<Response<RateLimitResponse>, Status>> + Send>>;

    fn call(&mut self, request: Request<RateLimitRequest>) -> Self::Future {
        let limiter = Arc::clone(&self.0);
        Box::pin(async move {
            let request = request.into_inner();
            let entries = request.descriptors.into_iter().flat_map(|it| it.entries);
            let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
            let values: HashMap<_, _> = entries.map(|it| (text(it.key), text(it.value))).collect();
            let delta = request.hits_addend.into();
            let namespace = text(request.domain).into();
            let checked = limiter.check_rate_limited_and_update(&namespace, &values, delta, false);
            let checked = checked
                .await
                .map_err(|it| Status::unavailable(it.to_string()))?;
            let code = if checked.limited {
                Code::OverLimit
            } else {
                Code::Ok
            };
            Ok(Response::new(RateLimitResponse {
                overall_code: code.into(),
                ..RateLimitResponse::default()
            }))
        })
    }
}
