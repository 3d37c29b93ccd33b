//! Whether one server has all the keys that a connection leads to.
//!
//! A call on several keys is run by one server. A proxy with several servers sends it to the one
//! that has the first key. There the others would be missing, and the call would create them: a
//! second state that grants again. So calls on different keys go one by one until keys that
//! resemble those in use have all led to the server with the same id. The question is asked in the
//! background, once for each connection: the next one may lead elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use redis::{RedisResult, Value, cmd};
use tokio::task::JoinSet;

use super::failure::{Failure, extract_error};
use super::supplied::SendsCommands;
use crate::keys;
use crate::lock::Lock;

/// How many keys are asked for, which takes a server 2 ms. One that has a tenth of all keys is
/// missed once in 700,000 times.
const KEYS: usize = 128;
/// How many are asked for at the same time: other calls wait a quarter of a millisecond for them.
const AT_ONCE: usize = 16;

/// Returns the id that a server has from its start to its end.
const SERVER_ID: &str = "return string.match(redis.call('info', 'server'), 'run_id:(%w+)')";

const UNKNOWN: u8 = 0;
const ASKING: u8 = 1;
const ONE: u8 = 2;
const SEVERAL: u8 = 3;

#[derive(Debug, Default)]
pub(super) struct OneServer {
    known: AtomicU8,
    /// The keys to ask for.
    keys: Lock<Vec<String>>,
}

impl OneServer {
    pub(super) fn is_known(&self) -> bool {
        self.known.load(Ordering::Acquire) == ONE
    }

    /// Whether one server is known to have all keys. While it is unknown, `key` is one of those to
    /// ask for.
    pub(super) fn has_all_keys(
        self: &Arc<Self>,
        key: &str,
        connection: impl FnOnce() -> Arc<dyn SendsCommands>,
    ) -> bool {
        let known = self.known.load(Ordering::Acquire);
        if known == UNKNOWN
            && let Some(keys) = self.note(key)
        {
            let asking = Asking(Arc::clone(self));
            tokio::spawn(asking.ask(connection(), keys));
        }
        known == ONE
    }

    /// Returns the keys to ask for once there are enough.
    fn note(&self, key: &str) -> Option<Vec<String>> {
        let mut keys = self.keys.lock();
        if self.known.load(Ordering::Acquire) != UNKNOWN {
            return None; // another thread was faster
        }
        let random = uuid::Uuid::new_v4().simple().to_string();
        keys.push(keys::in_another_slot(key, &random));
        if keys.len() < KEYS {
            return None;
        }
        self.known.store(ASKING, Ordering::Release);
        Some(std::mem::take(&mut *keys))
    }

    /// Notes that a server has refused a call on several keys because of their slots.
    pub(super) fn note_refusal(&self) {
        self.known.store(SEVERAL, Ordering::Release);
    }

    fn learn(&self, answer: u8) {
        // A refusal that was noted in the meantime stays.
        let _ = self
            .known
            .compare_exchange(ASKING, answer, Ordering::Release, Ordering::Relaxed);
    }
}

/// The task that asks. If it is dropped before all answers are there, other keys are asked for.
struct Asking(Arc<OneServer>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.learn(UNKNOWN);
    }
}

impl Asking {
    async fn ask(self, connection: Arc<dyn SendsCommands>, keys: Vec<String>) {
        let mut first = None;
        for keys in keys.chunks(AT_ONCE) {
            let mut asking = JoinSet::new();
            for key in keys {
                let ask = cmd("EVAL").arg(SERVER_ID).arg(1).arg(key).take();
                let connection = Arc::clone(&connection);
                asking.spawn(async move { connection.send(&ask).await });
            }
            while let Some(answer) = asking.join_next().await {
                let Ok(answer) = answer else {
                    return; // the runtime is shutting down
                };
                match server_id(answer) {
                    Ok(id) if id.is_some() && (first.is_none() || first == id) => first = id,
                    Ok(_) => return self.0.learn(SEVERAL),
                    Err(_) => return,
                }
            }
        }
        self.0.learn(ONE);
    }
}

/// Reads a server's id; `None` if the server does not say it, and an error if another attempt may
/// have another answer.
fn server_id(answer: RedisResult<Value>) -> Result<Option<Vec<u8>>, Failure> {
    match answer.and_then(extract_error).map_err(Failure::from) {
        Ok(Value::BulkString(id)) => Ok(Some(id)),
        Ok(_) | Err(Failure::Refused(_)) => Ok(None),
        Err(failure) => Err(failure),
    }
}

#[cfg(test)]
mod tests {

    use redis::{Arg, Cmd, make_extension_error};
    use tokio::task::yield_now;

    use super::*;
    use crate::box_future::BoxFuture;

    /// Answers for each key as the test says.
    struct Answering(fn(&str) -> RedisResult<Value>);

    impl SendsCommands for Answering {
        fn send<'a>(&'a self, command: &'a Cmd) -> BoxFuture<'a, RedisResult<Value>> {
            let key = command.args_iter().last();
            let Some(Arg::Simple(key)) = key else {
                panic!("{command:?} has no key")
            };
            let answer = self.0(std::str::from_utf8(key).unwrap());
            Box::pin(async { answer })
        }
    }

    /// Lets the task ask all its questions. Each is answered at once, some only after others are.
    async fn let_it_ask() {
        for _ in 0..4 * KEYS / AT_ONCE {
            yield_now().await;
        }
    }

    fn id(text: &str) -> RedisResult<Value> {
        Ok(Value::BulkString(text.into()))
    }

    fn error(code: &str) -> RedisResult<Value> {
        Err(make_extension_error(code.to_owned(), None))
    }

    /// Whether one server is known to have all keys after this many calls, and how often it was
    /// asked.
    async fn after(calls: usize, answer: fn(&str) -> RedisResult<Value>) -> (bool, usize) {
        let one_server = Arc::<OneServer>::default();
        let mut questions = 0;
        for call in 0..calls {
            one_server.has_all_keys(&format!("key:{}", call % 7), || {
                questions += 1;
                Arc::new(Answering(answer))
            });
            let_it_ask().await;
        }
        (one_server.is_known(), questions)
    }

    #[tokio::test]
    async fn one_server_is_known_once_all_keys_have_led_to_it() {
        assert_eq!(after(KEYS - 1, |_| id("a")).await, (false, 0));
        assert_eq!(after(KEYS, |_| id("a")).await, (true, 1));
        assert_eq!(after(3 * KEYS, |_| id("a")).await, (true, 1));
    }

    #[tokio::test]
    async fn several_servers_refusals_and_other_answers_are_final() {
        let of_two = |key: &str| id(if key.starts_with("key:6") { "b" } else { "a" });
        assert_eq!(after(3 * KEYS, of_two).await, (false, 1));
        assert_eq!(after(3 * KEYS, |_| error("NOPERM")).await, (false, 1));
        assert_eq!(after(3 * KEYS, |_| Ok(Value::Nil)).await, (false, 1));
    }

    #[tokio::test]
    async fn after_a_passing_failure_the_question_is_asked_again() {
        assert_eq!(after(3 * KEYS, |_| error("BUSY")).await, (false, 3));
        let lost = |_: &str| Err(crate::link::failure::closed());
        assert_eq!(after(3 * KEYS, lost).await, (false, 3));
    }

    #[tokio::test]
    async fn keys_that_are_asked_for_are_in_other_slots_than_those_in_use() {
        let one_server = OneServer::default();
        for key in ["limiter", "{tag}:name"] {
            for _ in 0..KEYS / 2 {
                if let Some(keys) = one_server.note(key) {
                    assert!(keys[0].starts_with("limiter"));
                    assert!(keys[KEYS - 1].starts_with("{tag"));
                    assert!(keys[KEYS - 1].ends_with("}:name"));
                    for pair in keys.windows(2) {
                        assert!(!keys::share_a_slot(pair));
                    }
                }
            }
        }
        assert_eq!(one_server.known.load(Ordering::Acquire), ASKING);
    }

    #[tokio::test]
    async fn a_refused_call_counts_more_than_the_answer() {
        let one_server = Arc::<OneServer>::default();
        for _ in 0..KEYS {
            one_server.has_all_keys("key", || Arc::new(Answering(|_| id("a"))));
        }
        one_server.note_refusal();
        let_it_ask().await;
        assert!(!one_server.is_known());
    }

    #[test]
    fn a_runtime_that_ends_leaves_the_question_to_the_next_one() {
        let one_server = Arc::<OneServer>::default();
        let runtime = || tokio::runtime::Builder::new_current_thread().build();
        let note_all = async || {
            for _ in 0..KEYS {
                one_server.has_all_keys("key", || Arc::new(Answering(|_| id("a"))));
            }
        };
        let (first, second) = (runtime().unwrap(), runtime().unwrap());
        first.block_on(note_all());
        drop(first);
        second.block_on(async {
            note_all().await;
            let_it_ask().await;
        });
        assert!(one_server.is_known());
    }
}
