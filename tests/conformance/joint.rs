//! Joint decisions: granted by all limiters, or charged to none.

use std::sync::Arc;

use redisson_rate_limiter::{
    Charge, Decision, Denied, Error, FixedWindow, Granted, JointDecision, PolicyLimiter, Rate,
    RateLimiter, RedissonClient, SlidingWindowCounter, SlidingWindowLog, TokenBucket,
};

use crate::fixture::{Fixture, HOUR, SECOND, fields, ms};

/// A user's bucket of 10 tokens, an address's window of 3, an application's rate of 5.
struct Three {
    client: RedissonClient,
    user: PolicyLimiter<TokenBucket>,
    address: PolicyLimiter<FixedWindow>,
    application: RateLimiter,
    /// What all keys have in common, so that a cluster keeps them in one slot.
    tag: String,
}

impl Three {
    async fn on(fixture: &Fixture) -> Self {
        let client = fixture.client("client").await;
        let tag = format!("{{{}}}", fixture.name());
        let application = client.rate_limiter(&format!("{tag}:application"));
        application
            .try_set_rate(Rate::overall(5, HOUR))
            .await
            .unwrap();
        Self {
            user: client
                .policy_limiter(TokenBucket::per_second(1).with_capacity(10))
                .unwrap(),
            address: client.policy_limiter(FixedWindow::new(3, HOUR)).unwrap(),
            application,
            client,
            tag,
        }
    }

    fn user_key(&self) -> String {
        format!("{}:user", self.tag)
    }

    fn address_key(&self) -> String {
        format!("{}:address", self.tag)
    }

    async fn ask(&self, costs: [u32; 3]) -> Result<Vec<Decision>, Error> {
        let charges = [
            self.user.charge(&self.user_key(), costs[0])?,
            self.address.charge(&self.address_key(), costs[1])?,
            self.application.charge(costs[2])?,
        ];
        Ok(self.client.check_all(charges).await?.into_decisions())
    }

    /// What each has left, asked with a cost of 1.
    async fn left(&self) -> [u64; 3] {
        let remaining = |decision| match decision {
            Decision::Granted(Granted { remaining, .. }) => remaining + 1,
            Decision::Denied(Denied { remaining, .. }) => remaining,
        };
        [
            remaining(self.user.check(&self.user_key(), 1).await.unwrap()),
            remaining(self.address.check(&self.address_key(), 1).await.unwrap()),
            self.application.available_permits().await.unwrap(),
        ]
    }
}

pub async fn what_all_grant_is_charged_to_each(fixture: Fixture) {
    let three = Three::on(&fixture).await;
    let decisions = three.ask([4, 1, 2]).await.unwrap();
    assert_eq!(
        decisions.iter().map(|d| fields(d).1).collect::<Vec<_>>(),
        [6, 2, 3]
    );
    assert!(decisions.iter().all(Decision::is_granted));
    assert_eq!(three.left().await, [6, 2, 3]);
}

pub async fn what_one_denies_is_charged_to_none(fixture: Fixture) {
    let three = Three::on(&fixture).await;
    three.ask([4, 1, 2]).await.unwrap();
    for (costs, denied) in [([7, 1, 1], 0), ([1, 3, 1], 1), ([1, 1, 4], 2)] {
        let decisions = three.ask(costs).await.unwrap();
        for (place, decision) in decisions.iter().enumerate() {
            let (granted, remaining, retry_after, _) = fields(decision);
            assert!(!granted);
            assert_eq!(remaining, [6, 2, 3][place]);
            assert_eq!(retry_after == Some(0), place != denied, "{costs:?} {place}");
        }
    }
    assert_eq!(three.left().await, [6, 2, 3]);
}

pub async fn the_deciding_limiter_has_the_longest_wait_or_the_least_left(fixture: Fixture) {
    let client = fixture.client("client").await;
    let (slow, fast) = (
        format!("{{{}}}:slow", fixture.name()),
        format!("{{{}}}:fast", fixture.name()),
    );
    let limiter = client
        .policy_limiter(TokenBucket::per_second(1).with_capacity(10))
        .unwrap();
    let other = client
        .policy_limiter(TokenBucket::per_second(10).with_capacity(20))
        .unwrap();
    let charges = |cost| {
        [
            limiter.charge(&slow, cost).unwrap(),
            other.charge(&fast, 2 * cost).unwrap(),
        ]
    };
    let granted = client.check_all(charges(9)).await.unwrap().into_decision();
    assert!(matches!(
        granted,
        Decision::Granted(Granted {
            limit: 10,
            remaining: 1,
            ..
        })
    ));
    let denied = client.check_all(charges(3)).await.unwrap();
    assert!(!denied.is_granted());
    assert_eq!(denied.decisions().len(), 2);
    let denied = denied.into_decision();
    assert!(
        matches!(denied, Decision::Denied(Denied { limit: 10, retry_after, .. }) if retry_after == 2 * SECOND)
    );
}

pub async fn an_error_names_the_first_limiter_that_cannot_decide(fixture: Fixture) {
    let client = fixture.client("client").await;
    let key = |suffix| format!("{{{}}}:{suffix}", fixture.name());
    let window = client.policy_limiter(FixedWindow::new(5, HOUR)).unwrap();
    let bucket = client.policy_limiter(TokenBucket::per_second(5)).unwrap();
    // A string, which is no bucket.
    assert!(window.check(&key("bad"), 1).await.unwrap().is_granted());
    let good = || window.charge(&key("good"), 1).unwrap();
    let bad = || bucket.charge(&key("bad"), 1).unwrap();
    let missing = |suffix| client.rate_limiter(&key(suffix)).charge(1).unwrap();
    for (charges, expected) in [
        (vec![missing("m"), good()], ("missing", "m")),
        (vec![good(), missing("m"), missing("n")], ("missing", "m")),
        (vec![good(), bad()], ("bad", "bad")),
        (vec![good(), bad(), missing("m")], ("bad", "bad")),
        (vec![missing("m"), good(), bad()], ("missing", "m")),
    ] {
        let error = client.check_all(charges).await.unwrap_err();
        let found = match &error {
            Error::NotInitialized { name } => ("missing", name),
            Error::BadState { name, .. } => ("bad", name),
            other => panic!("{other:?}"),
        };
        assert_eq!(found, (expected.0, &key(expected.1)), "{error:?}");
    }
    let left = window.check(&key("good"), 5).await.unwrap();
    assert!(left.is_granted(), "none was charged");
}

pub async fn an_rratelimiter_in_a_joint_decision_has_its_sliding_window(fixture: Fixture) {
    let client = fixture.client("client").await;
    let limiter = client.rate_limiter(fixture.name());
    let rate = Rate::overall(5, SECOND).keep_alive(HOUR);
    limiter.try_set_rate(rate).await.unwrap();
    let ask = async |permits| {
        let charge = limiter.charge(permits).unwrap();
        let decided = client.check_all([charge]).await.unwrap();
        fields(&decided.into_decision())
    };
    assert_eq!(ask(1).await, (true, 4, None, 1_000));
    fixture.pass(ms(100));
    assert_eq!(ask(2).await, (true, 2, None, 1_000));
    fixture.pass(ms(100));
    assert_eq!(ask(3).await, (false, 2, Some(800), 900));
    fixture.pass(ms(900));
    assert_eq!(ask(1).await, (true, 4, None, 1_000));
    assert_eq!(limiter.available_permits().await.unwrap(), 4);
}

pub async fn a_grant_of_an_rratelimiter_in_a_joint_decision_can_be_refunded(fixture: Fixture) {
    let three = Three::on(&fixture).await;
    let mut decisions = three.ask([1, 1, 2]).await.unwrap();
    let Some(Decision::Granted(Granted { grant, .. })) = decisions.pop() else {
        panic!("it was denied");
    };
    assert_eq!(three.application.refund(grant).await.unwrap(), 2);
    assert_eq!(three.application.available_permits().await.unwrap(), 5);
    // The other limiters do not keep track of single grants.
    let Some(Decision::Granted(Granted { grant, .. })) = decisions.pop() else {
        panic!("it was denied");
    };
    assert_eq!(three.application.refund(grant).await.unwrap(), 0);
}

pub async fn a_limiter_without_a_rate_or_a_cost_above_the_limit_charges_nobody(fixture: Fixture) {
    let three = Three::on(&fixture).await;
    let refused = three.ask([1, 1, 6]).await;
    assert!(matches!(
        refused,
        Err(Error::ExceedsLimit {
            requested: 6,
            limit: 5,
            ..
        })
    ));
    let refused = three.ask([11, 1, 1]).await;
    assert!(matches!(
        refused,
        Err(Error::ExceedsLimit {
            requested: 11,
            limit: 10,
            ..
        })
    ));
    three.application.delete().await.unwrap();
    let refused = three.ask([1, 1, 1]).await;
    assert!(matches!(refused, Err(Error::NotInitialized { .. })));
    three
        .application
        .try_set_rate(Rate::overall(5, HOUR))
        .await
        .unwrap();
    assert_eq!(three.left().await, [10, 3, 5]);
}

pub async fn charges_that_cannot_be_decided_together_are_refused(fixture: Fixture) {
    let three = Three::on(&fixture).await;
    let refused = async |charges| match three.client.check_all(charges).await {
        Err(Error::InvalidArgument {
            argument: "charges",
            reason,
        }) => reason,
        other => panic!("{other:?}"),
    };
    let charge = || three.user.charge(&three.user_key(), 1).unwrap();
    assert_eq!(refused(vec![]).await, "must be at least one");
    assert_eq!(
        refused(vec![charge(), charge()]).await,
        "must all have different names"
    );
    let other = fixture.client("other").await;
    let other = other
        .policy_limiter(TokenBucket::per_second(1).with_capacity(10))
        .unwrap();
    let other = other.charge(&three.address_key(), 1).unwrap();
    assert_eq!(
        refused(vec![charge(), other]).await,
        "must all be of this client"
    );
    let name = fixture.name();
    for one in [name.to_owned(), format!("{{{name}}}")] {
        // The value key of one limiter is the hash of the other.
        let names = [one.clone(), format!("{{{name}}}:value")];
        let charges = names.map(|it| three.client.rate_limiter(&it).charge(1).unwrap());
        let reason = refused(charges.to_vec()).await;
        assert_eq!(reason, "must all use different keys", "{one}");
    }
    assert!(three.user.charge(&three.user_key(), 0).is_err());
    assert!(three.application.charge(0).is_err());
    assert_eq!(three.left().await, [10, 3, 5]);
}

pub async fn more_limiters_or_members_than_a_call_may_touch_are_refused(fixture: Fixture) {
    let client = fixture.client("client").await;
    let key = |place: u32| format!("{{{}}}:{place}", fixture.name());
    let refused = async |charges: Vec<Charge>| match client.check_all(charges).await {
        Err(Error::InvalidArgument { argument, reason }) => (argument, reason),
        other => panic!("{other:?}"),
    };
    let tokens = client
        .policy_limiter(TokenBucket::per_second(1).with_capacity(10))
        .unwrap();
    let buckets = |count| (0..count).map(|place| tokens.charge(&key(place), 1).unwrap());
    let many = refused(buckets(33).collect()).await;
    assert_eq!(many, ("charges", "must be at most 32"));
    let endless = (0..).map(|place| tokens.charge(&key(place), 1).unwrap());
    assert!(client.check_all(endless).await.is_err());

    let log = client
        .policy_limiter(SlidingWindowLog::new(500, HOUR))
        .unwrap();
    let periods = SlidingWindowCounter::new(500, 500 * HOUR).with_period(HOUR);
    let counter = client.policy_limiter(periods).unwrap();
    let touching = |units: u32| {
        let mut charges = vec![log.charge(&key(100), units).unwrap()];
        charges.extend((101..104).map(|place| counter.charge(&key(place), 1).unwrap()));
        charges
    };
    let lower = "must be lower: limiters touch at most 2,000 members of logs and counters together";
    assert_eq!(refused(touching(126)).await, ("cost", lower)); // 4 × 126 + 3 × 500
    let counters = (101..106).map(|place| counter.charge(&key(place), 1).unwrap());
    let most = "must touch at most 2,000 members of logs and counters together";
    assert_eq!(refused(counters.collect()).await, ("charges", most)); // whatever they cost
    let decided = client.check_all(touching(125)).await.unwrap();
    assert!(decided.is_granted());
    let decided = client.check_all(buckets(32)).await.unwrap();
    assert!(decided.is_granted());
    assert_eq!(decided.decisions().len(), 32);
    for decision in decided.decisions() {
        assert_eq!(decision.remaining(), 9);
    }
}

pub async fn every_grant_of_a_joint_decision_is_given_back(fixture: Fixture) {
    let client = fixture.client("client").await;
    let limiter = client.rate_limiter(fixture.name());
    limiter.set_rate(Rate::overall(5, HOUR)).await.unwrap();
    let prefix = format!("{{{}}}:key:", fixture.name());
    let keyed = client.keyed_rate_limiter(&prefix, Rate::overall(5, HOUR));
    let keyed = keyed.unwrap().with_name("keys");
    let window = client.policy_limiter(FixedWindow::new(5, HOUR)).unwrap();
    let window = window.with_prefix(format!("{{{}}}:window:", fixture.name()));
    let charges = || {
        [
            limiter.charge(2).unwrap(),
            keyed.charge("a", 3).unwrap(),
            window.charge("a", 1).unwrap(),
            keyed
                .rate_limiter("b")
                .with_rate(Rate::overall(5, HOUR))
                .unwrap()
                .charge(4)
                .unwrap(),
        ]
    };
    let granted = client.check_all(charges()).await.unwrap();
    let names: Vec<_> = granted.by_limiter().map(|(name, _)| name).collect();
    assert_eq!(names, [fixture.name(), "keys", window.name(), "keys"]);
    let denied = client.check_all(charges()).await.unwrap();
    assert!(!denied.is_granted());
    assert_eq!(client.refund_all(denied).await.unwrap(), 0);
    assert_eq!(client.refund_all(granted).await.unwrap(), 2 + 3 + 1 + 4);
    assert_eq!(limiter.available_permits().await.unwrap(), 5);
    for key in ["a", "b"] {
        assert_eq!(
            keyed.rate_limiter(key).available_permits().await.unwrap(),
            5
        );
    }
    assert_eq!(window.peek("a", 1).await.unwrap().remaining(), 4); // the peek counts 1
    let peeked = client.peek_all(charges()).await.unwrap();
    assert!(peeked.is_granted());
    assert_eq!(client.refund_all(peeked).await.unwrap(), 0);
}

/// On a cluster the keys are in several slots.
pub async fn limiters_without_a_common_hash_tag_all_grant_or_none_is_charged(fixture: Fixture) {
    let client = fixture.client("client").await;
    let name = fixture.name();
    let user = client.policy_limiter(FixedWindow::new(2, HOUR)).unwrap();
    let address = client.policy_limiter(TokenBucket::per_second(1).with_capacity(3));
    let address = address.unwrap().with_penalty(9 * SECOND).unwrap();
    let application =
        client.keyed_rate_limiter(&format!("{name}-application:"), Rate::overall(4, HOUR));
    let application = application.unwrap();
    let charges = |cost| {
        Ok::<_, Error>([
            user.charge(&format!("{name}-user"), 1)?,
            address.charge(&format!("{name}-address"), cost)?,
            application.charge("all", 2)?,
        ])
    };
    let each = |joint: &JointDecision| -> Vec<_> {
        let all = joint.decisions().iter();
        all.map(|it| (it.is_granted(), it.remaining())).collect()
    };
    let peeked = each(&client.peek_all(charges(1).unwrap()).await.unwrap());
    assert_eq!(peeked, [(true, 1), (true, 2), (true, 2)]);
    let ask = async |cost| Ok::<_, Error>(each(&client.check_all(charges(cost)?).await?));
    assert_eq!(ask(1).await.unwrap(), [(true, 1), (true, 2), (true, 2)]);
    assert_eq!(ask(3).await.unwrap(), [(false, 1), (false, 2), (false, 2)]);
    // The penalty is the same as that of a decision in one slot.
    assert_eq!(ask(1).await.unwrap(), [(false, 1), (false, 0), (false, 2)]);
    assert!(address.reset(&format!("{name}-address")).await.unwrap());
    assert_eq!(ask(1).await.unwrap(), [(true, 0), (true, 2), (true, 0)]);
    // What the address would grant is not charged.
    assert_eq!(ask(1).await.unwrap(), [(false, 0), (false, 2), (false, 0)]);
}

pub async fn each_limiter_that_denies_sets_its_penalty_wherever_its_keys_lie(fixture: Fixture) {
    let client = fixture.client("client").await;
    let limiter = |prefix: &str| {
        let bucket = client.policy_limiter(TokenBucket::per_second(1)).unwrap();
        let bucket = bucket.with_penalty(HOUR).unwrap();
        bucket.with_prefix(format!("{}-{prefix}:", fixture.name()))
    };
    let limiters = ["user", "address", "path"].map(limiter);
    let [user, address, path] = &limiters;
    assert!(user.check("a", 1).await.unwrap().is_granted());
    assert!(address.check("a", 1).await.unwrap().is_granted());
    let charges = limiters.iter().map(|it| it.charge("a", 1).unwrap());
    assert!(!client.check_all(charges).await.unwrap().is_granted());
    fixture.pass(2 * SECOND); // the buckets are full again
    for (limiter, expected) in [(user, false), (address, false), (path, true)] {
        let decision = limiter.check("a", 1).await.unwrap();
        assert_eq!(decision.is_granted(), expected, "{}", limiter.prefix());
    }
}

pub async fn decisions_of_the_same_time_are_made_in_the_order_of_their_requests(fixture: Fixture) {
    let three = Arc::new(Three::on(&fixture).await);
    let mut asked = Vec::new();
    for _ in 0..6 {
        let three = Arc::clone(&three);
        asked.push(tokio::spawn(async move { three.ask([1, 1, 1]).await }));
    }
    let mut granted = Vec::new();
    for asked in asked {
        let decisions = asked.await.unwrap().unwrap();
        granted.push(decisions.iter().all(Decision::is_granted));
    }
    assert_eq!(granted, [true, true, true, false, false, false]);
}
