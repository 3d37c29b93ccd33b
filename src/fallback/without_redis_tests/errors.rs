//! Mistakes of the caller, which are errors under every failure policy.

use super::*;

#[tokio::test(start_paused = true)]
async fn mistakes_are_errors_whatever_the_policy() {
    for policy in [FailurePolicy::Deny, FailurePolicy::Allow, one_of(2)] {
        let remote = Remote::new();
        let client = remote.client(policy);
        let missing = client.rate_limiter("missing").try_acquire(1).await;
        assert!(matches!(missing, Err(Error::NotInitialized { .. })));
        let limiter = with_rate(&client, 10).await;
        let keyed = client
            .keyed_rate_limiter("keyed:", Rate::overall(10, SECOND))
            .unwrap();
        let fixed = client.policy_limiter(FixedWindow::new(10, SECOND)).unwrap();
        remote.go_down();
        let above = [
            limiter.try_acquire(11).await,
            limiter.try_acquire_timeout(11, SECOND).await,
        ];
        for above in above {
            assert!(matches!(above, Err(Error::ExceedsLimit { limit: 10, .. })));
        }
        for above in [keyed.check("key", 11).await, fixed.check("key", 11).await] {
            assert!(matches!(above, Err(Error::ExceedsLimit { limit: 10, .. })));
        }
        let nothing = [
            limiter.try_acquire(0).await.map(drop),
            limiter.acquire(0).await,
        ];
        for nothing in nothing {
            assert!(matches!(nothing, Err(Error::InvalidArgument { .. })));
        }
        assert!(keyed.check("key", 0).await.is_err());
        assert!(client.check_all([]).await.is_err());
    }
}
