//! The health service of gRPC, which states whether requests are decided.

use std::sync::atomic::{AtomicBool, Ordering};

use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

pub(super) const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";

/// The health service. It reports the same status for the server (the empty name) and for the rate
/// limit service.
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

    /// Reports to watching clients that requests are no longer decided, and ends their streams.
    pub(super) async fn end(&self) {
        self.set(false).await;
        let mut reporter = self.reporter.clone();
        for service in ["", SERVICE] {
            reporter.clear_service_status(service).await;
        }
    }

    /// Sets the status. Watching clients get a message only if it changes.
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
