//! Attempts whose bytes reach the server twice, as where a proxy sends them again by itself.

use redis::AsyncCommands;

use super::*;
use crate::grant::Grant;
use crate::store::LimiterStore;
use crate::store::redis::acquire_args::{acquire_args, call_key};

impl OnServer {
    /// The permits and the score of each grant.
    async fn grants(&mut self) -> Vec<(u32, i64)> {
        let members = self.raw.zrange_withscores("{l}:permits", 0, -1);
        let members: Vec<(Vec<u8>, i64)> = members.await.unwrap();
        let permits = |member: &[u8]| permit::decode(member).unwrap().1;
        let grants = members.iter();
        grants
            .map(|(member, score)| (permits(member), *score))
            .collect()
    }

    /// Delivers an attempt as it was sent, now or again.
    async fn deliver(&self, call: &Acquire, retry: Option<Retry>, deadline: i64) -> Acquired {
        let limiter = &self.limiter;
        let rate_type = RateType::Overall;
        let of_call = call_key(&limiter.keys, call);
        let keys = limiter
            .keys
            .of_acquire(rate_type, false, of_call.as_deref());
        let args = acquire_args(call, retry.as_ref(), rate_type, None, Some(deadline));
        let connection = &limiter.store.connection;
        let sending = script::ACQUIRE.run(connection, &keys, &args, Limits::for_test());
        let reply = sending.await.unwrap();
        let answer = AcquireAnswer::read("l", reply, None, call.audited_rate, RateType::Overall);
        let answer = answer.unwrap();
        match answer.meaning {
            Meaning::Decided(answer) => answer,
            _ => panic!("it is not decided"),
        }
    }
}

#[tokio::test]
async fn a_copy_of_a_call_finds_what_the_first_took_whatever_is_free_by_then() {
    for (requests, free_at_first, taken, free_then) in [
        (&[3, 2][..], 4, 3, 10_000),
        (&[3, 2], 4, 3, 1),
        (&[3, 2], 4, 3, 0),
        (&[3, 2], 5, 5, 0),
        (&[3], 3, 3, 10_000),
        (&[3], 3, 3, 0),
        (&[3], 4, 3, 1),
    ] {
        for is_retry in [false, true] {
            let mut on_server = OnServer::start().await;
            let in_use = 10_000 - free_at_first;
            on_server.limiter.acquire_permits(in_use).await;
            // A release takes these permits first, as they are older than those of the call.
            let filled = on_server.now().await;
            while on_server.now().await == filled {}
            let call = Acquire::first(Requests::plain(requests.iter().copied()));
            let now = on_server.now().await;
            let deadline = now + 10_000;
            let retry = is_retry.then_some(Retry {
                previous_deadline: now - 1,
                from: now - 2_000,
                to: now - 1,
            });
            let first = on_server.deliver(&call, retry, deadline).await;
            assert!(!first.found);
            assert_eq!(call.requests.taken(&first), taken);

            let free = free_at_first - taken;
            if free_then > free {
                let back = u32::try_from((free_then - free).min(in_use)).unwrap();
                on_server.limiter.set_audited_rate(None);
                on_server.limiter.release(back).await.unwrap();
            } else {
                on_server.limiter.acquire_permits(free - free_then).await;
            }
            let before = on_server.number(&["GET", "{l}:value"]).await;
            let copy = on_server.deliver(&call, retry, deadline).await;
            assert!(copy.found, "{requests:?} {free_then} {is_retry}");
            assert_eq!((copy.available, copy.score), (taken, first.score));
            assert_eq!(copy.left_now(), Some(before));
            assert_eq!(call.requests.taken(&copy), taken);
            assert_eq!(on_server.number(&["GET", "{l}:value"]).await, before);
        }
    }
}

#[tokio::test]
async fn a_copy_of_a_call_finds_what_the_first_took_even_above_a_lowered_rate() {
    let mut on_server = OnServer::start().await;
    let call = Acquire::first(Requests::one(3));
    let deadline = on_server.now().await + 10_000;
    let first = on_server.deliver(&call, None, deadline).await;
    on_server.run(&["HSET", "l", "rate", "2"]).await;
    on_server.run(&["SET", "{l}:value", "-1"]).await;
    // A client that knows the new rate sums nothing, one that does not sums the grants.
    for audited_rate in [Some(2), None] {
        let call = Acquire {
            audited_rate,
            ..call.clone()
        };
        let copy = on_server.deliver(&call, None, deadline).await;
        assert!(copy.found, "{audited_rate:?}");
        assert_eq!((copy.available, copy.score), (3, first.score));
        assert_eq!(call.requests.taken(&copy), 3);
    }
}

#[tokio::test]
async fn the_record_of_a_list_granted_in_part_expires_with_its_deadline() {
    let mut on_server = OnServer::start().await;
    on_server.limiter.acquire_permits(9_996).await;
    for (id, permits, taken) in [(1, &[3, 2][..], 3), (2, &[1], 1)] {
        let call = Acquire {
            id: [id; 16],
            ..Acquire::first(Requests::plain(permits.iter().copied()))
        };
        let deadline = on_server.now().await + HOUR;
        let sent = on_server.now().await;
        let answer = on_server.deliver(&call, None, deadline).await;
        let took = on_server.now().await - sent;
        assert_eq!(call.requests.taken(&answer), taken);
        let key = on_server.limiter.keys.of_call(&call.id);
        let before = on_server.now().await;
        let left = on_server.number(&["PTTL", &key]).await;
        let after = on_server.now().await;
        if taken == 1 {
            assert_eq!(left, -2, "nothing is kept of what was granted whole");
        } else {
            // It is set as a time to live.
            let (from, to) = (deadline + 1, deadline + 1 + took);
            assert!(from <= after + left && before + left <= to, "{left}");
        }
    }
}

/// A copy of a call after a release is granted again, so that two grants have its id.
#[tokio::test]
async fn no_permit_is_lost_if_two_grants_of_a_call_shrink_to_the_same_size() {
    // By the refund itself, and by a release after it.
    for (refunded, released, left) in [(1, 0, [2, 2]), (2, 1, [1, 1])] {
        let mut on_server = OnServer::start().await;
        let limiter = Arc::clone(&on_server.limiter);
        let call = Acquire::first(Requests::one(3));
        let deadline = on_server.now().await + 10_000;
        let first = on_server.deliver(&call, None, deadline).await;
        limiter.release(1).await.unwrap();
        while on_server.now().await == first.score {}
        let copy = on_server.deliver(&call, None, deadline).await;
        assert!(!copy.found);

        let grant = Grant::new(copy.score, call.id, refunded);
        let returned = limiter.refund(&grant).await;
        assert_eq!(returned.unwrap(), refunded);
        if released > 0 {
            limiter.release(released).await.unwrap();
        }
        let expected = [(left[0], first.score), (left[1], copy.score)];
        assert_eq!(on_server.grants().await, expected);
        let value = on_server.number(&["GET", "{l}:value"]).await;
        assert_eq!(value, 10_000 - i64::from(left[0] + left[1]));
    }
}

#[tokio::test]
async fn no_permit_is_lost_if_grants_of_one_id_shrink_to_the_same_size() {
    const GRANTS: i64 = 300;
    const RATE: i64 = 10_000;
    for length in [8, 16, 255] {
        let mut on_server = OnServer::start().await;
        let limiter = Arc::clone(&on_server.limiter);
        let id = vec![7; length];
        let member = permit::encode(&id, 2).to_vec();
        let now = on_server.now().await;
        on_server.limiter.acquire_permits(1).await;
        for score in now..now + GRANTS {
            let added = on_server.raw.zadd("{l}:permits", &member, score);
            let added: i64 = added.await.unwrap();
            assert_eq!(added, 1);
            on_server.run(&["DECRBY", "{l}:value", "2"]).await;
            let args = script::Args::new().optional(None);
            let args = args.number(score).bytes(&id).number(1_i64);
            let (args, keys) = (args.optional(Some(RATE)), limiter.keys.of_refund());
            let connection = &limiter.store.connection;
            let sending = script::REFUND.run(connection, &keys, &args, Limits::for_test());
            let returned: i64 = from_redis_value(sending.await.unwrap()).unwrap();
            assert_eq!(returned, 1);
        }
        let grants = on_server.grants().await;
        assert_eq!(grants.len() as i64, 1 + GRANTS, "{length}");
        assert!(grants.iter().all(|(permits, _)| *permits == 1), "{length}");
        let value = on_server.number(&["GET", "{l}:value"]).await;
        assert_eq!(value, RATE - 1 - GRANTS, "{length}");
    }
}
