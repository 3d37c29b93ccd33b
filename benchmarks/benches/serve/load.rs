//! The client: requests of Envoy's protocol, on several connections with several in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tonic::Request;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

use crate::messages::{Code, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse};

pub const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

#[derive(Clone, Copy)]
pub struct Load {
    pub requests: u32,
    pub connections: u32,
    /// Of all connections together.
    pub in_flight: u32,
    pub keys: u32,
    pub descriptors: u32,
}

pub struct Measured {
    pub requests_per_second: f64,
    pub p99_micros: f64,
}

pub async fn run(address: &str, load: Load) -> Measured {
    let left = Arc::new(AtomicU32::new(load.requests));
    let mut callers = JoinSet::new();
    let mut channels = Vec::new();
    for _ in 0..load.connections {
        let channel = Channel::from_shared(address.to_owned()).expect("an address");
        channels.push(channel.connect().await.expect("a connection"));
    }
    let start = Instant::now();
    for caller in 0..load.in_flight.max(load.connections) {
        let channel = channels[(caller % load.connections) as usize].clone();
        callers.spawn(call(channel, load, Arc::clone(&left)));
    }
    let mut took: Vec<Duration> = callers.join_all().await.concat();
    let whole = start.elapsed();
    took.sort_unstable();
    Measured {
        requests_per_second: took.len() as f64 / whole.as_secs_f64(),
        p99_micros: took[took.len() * 99 / 100].as_secs_f64() * 1e6,
    }
}

async fn call(channel: Channel, load: Load, left: Arc<AtomicU32>) -> Vec<Duration> {
    let mut grpc = Grpc::new(channel);
    let mut took = Vec::new();
    while left
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| it.checked_sub(1))
        .is_ok()
    {
        let request = Request::new(request(load));
        let start = Instant::now();
        grpc.ready().await.expect("a connection");
        let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
        let answer = grpc.unary(request, PathAndQuery::from_static(PATH), codec);
        let answer = answer.await.expect("an answer").into_inner();
        took.push(start.elapsed());
        assert_eq!(answer.overall_code(), Code::Ok);
    }
    took
}

fn request(load: Load) -> RateLimitRequest {
    let descriptor = |it| {
        let entry = Entry {
            key: format!("key{it}").into_bytes(),
            value: fastrand::u32(0..load.keys).to_string().into_bytes(),
        };
        RateLimitDescriptor {
            entries: vec![entry],
            hits_addend: None,
            is_negative_hits: false,
        }
    };
    RateLimitRequest {
        domain: b"bench".to_vec(),
        descriptors: (0..load.descriptors).map(descriptor).collect(),
        hits_addend: 1,
    }
}
