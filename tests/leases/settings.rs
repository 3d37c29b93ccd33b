//! The limiter changes under a lease.

use redisson_rate_limiter::{Error, PermitsInUse, Rate};

use crate::fixture::{Fixture, HOUR, all};
use crate::support::Server;

async fn with_lease(server: &Server) -> Fixture {
    let mut fixture = Fixture::new(&server.url(), &server.url(), 1_000).await;
    fixture.lease(20).await;
    fixture
}

#[tokio::test]
async fn a_rate_that_this_client_sets_ends_the_leases() {
    let server = Server::start();
    let fixture = with_lease(&server).await;
    let rate = Rate::overall(100, HOUR);
    fixture.leased.set_rate(rate).await.unwrap();
    assert_eq!(all(&fixture.leased).await, 100);
}

#[tokio::test]
async fn a_reset_ends_the_leases() {
    let server = Server::start();
    let fixture = with_lease(&server).await;
    assert!(fixture.leased.reset().await.unwrap());
    assert_eq!(all(&fixture.leased).await, 1_000);
}

#[tokio::test]
async fn a_limiter_that_this_client_deletes_grants_nothing() {
    let server = Server::start();
    let fixture = with_lease(&server).await;
    assert!(fixture.leased.delete().await.unwrap());
    let refused = fixture.leased.try_acquire(1).await;
    assert!(matches!(refused, Err(Error::NotInitialized { .. })));
}

#[tokio::test]
async fn after_another_client_changes_the_rate_all_that_was_granted_counts() {
    for permits in [500, 2_000] {
        let server = Server::start();
        let fixture = with_lease(&server).await;
        let rate = Rate::overall(permits, HOUR);
        let changing = fixture.plain.update_rate(rate, PermitsInUse::Keep);
        assert!(changing.await.unwrap());
        assert_eq!(all(&fixture.leased).await, permits - fixture.taken);
    }
}
