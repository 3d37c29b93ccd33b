//! The health service: whether requests are decided.

use std::sync::atomic::{AtomicBool, Ordering};

use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

pub(super) const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";

/// It knows the server as a whole, and the rate limit service.
pub(super) struct GrpcHealth {
    reporter: HealthReporter,
    pub(super) server: HealthServer<HealthService>,
    is_serving: AtomicBool,
}

impl GrpcHealth {
    pub(super) async fn new(is_serving: bool) -> Self {
        let reporter = HealthReporter::new();
        let service = HealthService::from_health_reporter(reporter.clone());
        let health = Self {
            reporter,
            server: HealthServer::new(service),
            is_serving: AtomicBool::new(!is_serving),
        };
        health.set(is_serving).await;
        health
    }

    /// Tells those who watch that nothing is decided any more, and ends their streams.
    pub(super) async fn end(&self) {
        self.set(false).await;
        let mut reporter = self.reporter.clone();
        for service in ["", SERVICE] {
            reporter.clear_service_status(service).await;
        }
    }

    /// Those who watch are told of changes only.
    pub(super) async fn set(&self, is_serving: bool) {
        if self.is_serving.swap(is_serving, Ordering::Relaxed) == is_serving {
            return;
        }
        let status = match is_serving {
            true => ServingStatus::Serving,
            false => ServingStatus::NotServing,
        };
        for service in ["", SERVICE] {
            self.reporter.set_service_status(service, status).await;
        }
    }
}
