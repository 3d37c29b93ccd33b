//! The keys, their names and contents.

use super::*;

#[tokio::test]
async fn try_set_rate_writes_the_hash_alone() {
    each(Version::ALL, async |mut on| {
        let limiter = on.java.limiter("n");
        assert!(limiter.try_set_rate(Rate::overall(5, 1000)).await.unwrap());
        let mut fields = vec![("rate", "5"), ("interval", "1000"), ("type", "0")];
        if on.version.has_keep_alive() {
            fields.push(("keepAliveTime", "0"));
        }
        let fields: BTreeMap<_, _> = fields
            .into_iter()
            .map(|(k, v)| (k.into(), v.into()))
            .collect();
        let made = on.dump("n").await;
        assert_eq!(made.config.as_ref().unwrap().data, fields);
        assert_eq!(ttls(&made), [None; 3]);
        assert_eq!(on.redis.keys("*").await.unwrap(), ["n"]);

        assert!(
            !limiter
                .try_set_rate(Rate::per_client(7, 2000))
                .await
                .unwrap()
        );
        assert_eq!(on.dump("n").await, made);
        let config = Config {
            rate_type: RateType::Overall,
            rate: 5,
            interval: 1000,
        };
        assert_eq!(limiter.config().await.unwrap(), config);
    })
    .await;
}

#[tokio::test]
async fn per_client_keys_end_in_the_clients_id() {
    for version in Version::ALL {
        let server = Server::start();
        let [one, other] = redisson::clients(version, &server.url()).await;
        one.limiter("n")
            .try_set_rate(Rate::per_client(5, MINUTE))
            .await
            .unwrap();
        assert!(one.limiter("n").try_acquire(4).await.unwrap());
        assert!(other.limiter("n").try_acquire(5).await.unwrap());

        let mut redis = server.connection().await;
        let mut keys = redis.keys("*").await.unwrap();
        keys.sort();
        let mut expected = vec!["n".to_string()];
        for id in [&one.id, &other.id] {
            expected.extend([format!("{{n}}:value:{id}"), format!("{{n}}:permits:{id}")]);
        }
        expected.sort();
        assert_eq!(keys, expected, "{version}");
        let clients = dump::read(&mut redis, "n", &[&one.id, &other.id])
            .await
            .clients;
        let values: Vec<_> = clients
            .into_iter()
            .map(|client| client.value.unwrap().data)
            .collect();
        assert_eq!(values, ["1", "0"], "{version}");
    }
}

#[tokio::test]
async fn a_name_with_a_brace_gets_none_around_it() {
    const PREFIXES: [(&str, &str); 7] = [
        ("x y", "{x y}"),
        ("ü%+", "{ü%+}"),
        ("a{b", "a{b"),
        ("a}b", "{a}b}"),
        ("a{t}b", "a{t}b"),
        ("{}", "{}"),
        ("", "{}"),
    ];
    each(Version::ALL, async |mut on| {
        for (name, prefix) in PREFIXES {
            let limiter = on.java.limiter(name);
            limiter
                .try_set_rate(Rate::overall(5, MINUTE))
                .await
                .unwrap();
            assert!(limiter.try_acquire(1).await.unwrap());
            let mut expected = [
                name.to_string(),
                format!("{prefix}:permits"),
                format!("{prefix}:value"),
            ];
            expected.sort();
            let mut keys = on.redis.keys("*").await.unwrap();
            keys.sort();
            assert_eq!(keys, expected, "{name:?}");
            assert_eq!(value(&on.dump(name).await), Some("4"), "{name:?}");
            // `{}` and the empty name share their keys.
            assert!(limiter.delete().await.unwrap());
        }
    })
    .await;
}

#[tokio::test]
async fn old_and_new_clients_share_one_state() {
    let server = Server::start();
    let mut redis = server.connection().await;
    let mut taken = 0;
    for version in Version::ALL {
        let [java] = redisson::clients(version, &server.url()).await;
        let limiter = java.limiter("n");
        limiter
            .try_set_rate(Rate::overall(20, MINUTE))
            .await
            .unwrap();
        assert_eq!(
            limiter.available_permits().await.unwrap(),
            20 - taken,
            "{version}"
        );
        assert!(limiter.try_acquire(3).await.unwrap());
        taken += 3;
    }
    assert_eq!(
        permits(&dump::read(&mut redis, "n", &[]).await),
        [3; Version::ALL.len()]
    );
}

#[tokio::test]
async fn what_a_version_lacks_is_unsupported() {
    each(Version::ALL, async |on| {
        let limiter = on.java.limiter("n");
        limiter
            .try_set_rate(Rate::overall(5, MINUTE))
            .await
            .unwrap();
        let rate = Rate::overall(5, MINUTE);
        let calls = [
            (on.version.has_release(), limiter.release(1).await),
            (
                on.version.has_keep_alive(),
                limiter.set_rate(rate.keep_alive(MINUTE)).await,
            ),
            (
                on.version.has_update_rate(),
                limiter.set_rate_args(rate, None).await,
            ),
            (
                on.version.has_update_rate(),
                limiter.update_rate(rate, None).await.map(drop),
            ),
        ];
        for (has, result) in calls {
            match result {
                Ok(()) => assert!(has),
                Err(error) => assert!(!has && error.is_unsupported(), "{error}"),
            }
        }
    })
    .await;
}

#[tokio::test]
async fn available_permits_creates_the_value_key() {
    each(Version::ALL, async |mut on| {
        let limiter = on.java.limiter("n");
        limiter
            .try_set_rate(Rate::overall(5, MINUTE))
            .await
            .unwrap();
        limiter.expire(MINUTE).await.unwrap();
        assert_eq!(limiter.available_permits().await.unwrap(), 5);
        let created = on.dump("n").await;
        assert_eq!(value(&created), Some("5"));
        assert_eq!(ttls(&created)[1], None, "and lets it outlive the limiter");
    })
    .await;
}
