//! Limiters on both sides, script and model, and the calls that both get.

use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, iter};

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Value};

use super::Compared;
use super::keyspace::{Content, Keyspace, START, as_set, read_all, show_key};
use crate::grant::Grant;
use crate::keys::sibling;
use crate::link::Connection;
use crate::link::failure::Failure;
use crate::link::limits::Limits;
use crate::permit::CallId;
use crate::policies::algorithm::{Algorithm, Paired};
use crate::policies::answer::{Answer, Outcome};
use crate::policies::call::{self, Call, Opened, Purpose, Target, check_jointly, check_requests};
use crate::policies::model::{Charge, Model};
use crate::policies::reply;
use crate::policies::reply::TargetReply;
use crate::policies::shared_rate::SharedRate;
use crate::policies::state::State;
use crate::store::redis::check::{CheckReply, Progress, joint_args, read_reply, script_and_args};
use crate::store::redis::multi_check::CheckPart;
use crate::store::redis::script;
use crate::store::redis::shared_calls::Part as _;
use crate::window::{At, NotInitialized, Timed, Window};

/// An algorithm with a known type of state.
pub(in super::super) trait OfState: Into<Algorithm> {
    type State: fmt::Debug + Clone + Default + 'static;

    fn paired<'a>(algorithm: &'a Algorithm, state: &'a mut Self::State) -> Paired<'a>;

    fn drop_expired(state: &mut Self::State, server: i64);
}

macro_rules! of_state {
    ([] $($name:ident: $Policy:ident,)*) => {
        $(impl OfState for crate::policies::$Policy {
            type State = <Self as Model>::State;

            fn paired<'a>(algorithm: &'a Algorithm, state: &'a mut Self::State) -> Paired<'a> {
                match algorithm {
                    Algorithm::$Policy(policy) => Paired::$Policy(policy, state),
                    other => panic!("{other:?}"),
                }
            }

            fn drop_expired(state: &mut Self::State, server: i64) {
                State::drop_expired(state, server);
            }
        })*
    };
}
policies!(of_state! {});

impl OfState for SharedRate {
    type State = Window;

    fn paired<'a>(algorithm: &'a Algorithm, state: &'a mut Window) -> Paired<'a> {
        match algorithm {
            Algorithm::SharedRate(rate) => Paired::SharedRate(rate, state),
            other => panic!("{other:?}"),
        }
    }

    fn drop_expired(state: &mut Window, server: i64) {
        state.is_gone(server);
    }
}

/// The state of a target, for any algorithm.
pub(in super::super) trait TestState: fmt::Debug {
    fn show(&self, target: &str) -> Keyspace;
    fn cloned(&self) -> Box<dyn TestState>;
    fn paired<'a>(&'a mut self, algorithm: &'a Algorithm) -> Paired<'a>;
    fn drop_expired(&mut self, server: i64);
}

#[derive(Debug)]
pub(in super::super) struct StateOf<M: Compared>(pub(in super::super) M::State);

impl<M: Compared> TestState for StateOf<M> {
    fn show(&self, target: &str) -> Keyspace {
        M::show(&self.0, target)
    }

    fn cloned(&self) -> Box<dyn TestState> {
        Box::new(Self(self.0.clone()))
    }

    fn paired<'a>(&'a mut self, algorithm: &'a Algorithm) -> Paired<'a> {
        M::paired(algorithm, &mut self.0)
    }

    fn drop_expired(&mut self, server: i64) {
        M::drop_expired(&mut self.0, server);
    }
}

/// A target on both sides.
pub(in super::super) struct Sides {
    pub(in super::super) target: Target,
    pub(in super::super) state: Box<dyn TestState>,
    pub(in super::super) lock: Timed<()>,
    rounds: bool,
    /// The members of the zset, if the model keeps only their scores.
    members: Vec<(i64, Vec<u8>)>,
    /// The grants that were not given back.
    grants: Vec<Grant>,
}

impl Sides {
    pub(in super::super) fn new<M: Compared>(policy: &M, key: &str, penalty: Option<i64>) -> Self {
        Self {
            target: Target {
                model: Arc::new(policy.clone().into()),
                key: key.into(),
                penalty,
            },
            state: Box::new(StateOf::<M>(M::State::default())),
            lock: Timed::default(),
            rounds: M::ANSWERS_BY_TIMES_TO_LIVE,
            members: Vec::new(),
            grants: Vec::new(),
        }
    }

    /// Sets the state as if a peer had written it.
    pub(super) fn put(&mut self, state: Box<dyn TestState>) {
        self.state = state;
        self.grants.clear();
        let scores = self.scores().into_iter().zip(0..);
        self.members = scores
            .map(|(score, place)| (score, peers_member(place)))
            .collect();
        self.members.sort_unstable();
    }

    /// Notes the members that a call wrote, and those that it removed.
    fn note_members(&mut self, now: i64, call_id: &CallId) {
        let scores = self.scores();
        let of_now = |score: &i64| *score == now;
        let before = self.members.iter().map(|(score, _)| *score).filter(of_now);
        let written = scores.iter().copied().filter(of_now).count() - before.count();
        // The oldest members are removed first, and of equal scores those with the lowest bytes. In
        // addition, members that are too far ahead are removed.
        let newest = scores
            .iter()
            .max()
            .map_or(i64::MIN, |&newest| newest.max(now));
        let left = self.members.len() + written - scores.len();
        let stay = self.members.partition_point(|(score, _)| *score <= newest);
        let far = (self.members.len() - stay).min(left);
        self.members.truncate(self.members.len() - far);
        self.members.drain(..left - far);
        let units = 1..=u32::try_from(written).unwrap();
        let names = units.map(|unit| [&call_id[..], &unit.to_be_bytes()].concat());
        self.members.extend(names.map(|name| (now, name)));
        self.members.sort_unstable();
    }

    /// Notes that members of a grant were removed, those with the highest numbers first.
    fn note_given_back(&mut self, grant: &Grant, mut members: i64) {
        for place in (0..self.members.len()).rev() {
            let (score, name) = &self.members[place];
            if members > 0 && *score == grant.score && name.starts_with(&grant.call_id) {
                self.members.remove(place);
                members -= 1;
            }
        }
    }

    /// How many members of a log's grant are left.
    fn members_of(&self, grant: &Grant) -> usize {
        let members = self.members.iter();
        let own = members
            .filter(|(score, name)| *score == grant.score && name.starts_with(&grant.call_id));
        own.count()
    }

    fn scores(&self) -> Vec<i64> {
        let keyspace = self.state.show(&self.target.key);
        match keyspace.get(&*self.target.key) {
            Some((Content::Scores(scores), _)) => scores.clone(),
            _ => Vec::new(),
        }
    }

    fn lock_key(&self) -> String {
        sibling(&self.target.key, "-lock")
    }

    pub(super) fn shown(&self) -> Keyspace {
        let mut keyspace = self.state.show(&self.target.key);
        show_key(&mut keyspace, self.lock_key(), &self.lock, |()| {
            Content::Text("1".to_owned())
        });
        for (content, _) in keyspace.values_mut() {
            if let Content::Scores(scores) = content {
                let of_members = self.members.iter().map(|(score, _)| score);
                assert!(of_members.eq(&*scores), "{:?} {scores:?}", self.members);
                *content = Content::Zset(self.members.clone());
            }
        }
        keyspace
    }

    /// Rounds up the times that a script computes from times to live to what was set.
    fn rounded(&self, mut answer: Answer, server: i64) -> Answer {
        if self.rounds || answer.outcome == Outcome::LockedOut {
            let Answer {
                retry_after,
                available_in,
                reset,
                mark,
                ..
            } = &mut answer;
            *mark = 0;
            for time in [retry_after, available_in, reset] {
                if server > 0 {
                    *time = 0; // what is left is no multiple any more
                }
                *time = as_set(*time).unwrap_or(*time);
            }
        }
        answer
    }
}

/// Whether a key is the counter of a period.
fn is_of_a_period(key: &str) -> bool {
    key.ends_with(|c: char| c.is_ascii_digit())
}

/// The name of a member that a peer wrote. Every third looks like one of ours, and every third is a
/// little longer.
fn peers_member(place: u8) -> Vec<u8> {
    match place % 3 {
        0 => place.to_string().into_bytes(),
        1 => vec![place; 20],
        _ => [&[place; 20][..], b"x"].concat(),
    }
}

/// The model's answers.
fn check<'a>(
    form: Form,
    targets: &'a [Target],
    states: impl Iterator<Item = (&'a mut Box<dyn TestState>, &'a mut Timed<()>)>,
    at: At,
    call_id: &CallId,
    costs: &[u32],
) -> Result<Vec<Answer>, (usize, NotInitialized)> {
    let mut opened = opened(targets, states);
    let answers = match form {
        Form::Alone | Form::Shared => check_requests(&mut opened, at, call_id, costs),
        Form::Joint => check_jointly(&mut opened, at, call_id, costs),
        Form::Peek => call::peek(&opened, at, costs),
    };
    answers.map(|answers| answers.answers.into_vec())
}

fn opened<'a>(
    targets: &'a [Target],
    states: impl Iterator<Item = (&'a mut Box<dyn TestState>, &'a mut Timed<()>)>,
) -> Vec<Opened<'a>> {
    let opened = targets.iter().zip(states);
    opened
        .map(|(target, (state, lock))| Opened {
            target: target.by_ref(),
            paired: state.paired(&target.model),
            lock,
        })
        .collect()
}

/// The script by which a call is made.
#[derive(Clone, Copy)]
pub(in super::super) enum Form {
    Alone,
    Joint,
    /// What the decision on one request would be. Writes nothing.
    Peek,
    /// By the script of shared calls, if the policy has one.
    Shared,
}

/// The keys of one case, and the time.
pub(in super::super) struct Fixture {
    pub(super) connection: MultiplexedConnection,
    now: i64,
    /// The clock that keys expire by.
    server: i64,
    /// Whether the time that the case has taken makes a difference, so that it cannot be continued.
    pub(in super::super) is_ambiguous: bool,
    calls: u64,
    started: Instant,
}

impl Fixture {
    pub(in super::super) fn new(connection: MultiplexedConnection) -> Self {
        Self {
            connection,
            now: START,
            server: 0,
            is_ambiguous: false,
            calls: 0,
            started: Instant::now(),
        }
    }

    pub(in super::super) fn at(&self) -> At {
        At {
            now: self.now,
            server: self.server,
        }
    }

    /// Lets time pass for the grants, but not for the keys.
    pub(super) fn pass_for_grants(&mut self, millis: i64) {
        self.now += millis;
    }

    pub(in super::super) fn pass(&mut self, millis: i64) {
        self.now += millis;
        self.server += millis;
    }

    /// Real ms since the case began, and what the two clocks may be apart.
    fn taken(&self) -> i64 {
        self.started.elapsed().as_millis() as i64 + 2
    }

    /// Makes one call on both sides: both give the same answers, which are returned, or refuse it.
    pub(in super::super) async fn ask(
        &mut self,
        sides: &mut [Sides],
        form: Form,
        costs: &[u32],
    ) -> Vec<Answer> {
        self.calls += 1;
        let mut call_id: CallId = [0xa5; 16];
        call_id[..8].copy_from_slice(&self.calls.to_be_bytes());
        let limiters = sides.iter().map(|side| side.target.clone());
        let purpose = match form {
            Form::Alone | Form::Shared | Form::Joint => Purpose::Decide,
            Form::Peek => Purpose::Peek,
        };
        let mut call = Call::with_purpose(purpose, limiters, costs.iter().copied());
        call.call_id = call_id;
        let call = Arc::new(call);
        let at = self.at();
        let mut late: Vec<_> = sides.iter().map(|side| side.state.cloned()).collect();
        let mut late_locks: Vec<_> = sides.iter().map(|side| side.lock.clone()).collect();
        let targets: Vec<_> = sides.iter().map(|side| side.target.clone()).collect();
        let states = sides
            .iter_mut()
            .map(|side| (&mut side.state, &mut side.lock));
        let model = check(form, &targets, states, at, &call_id, costs);
        for side in &mut *sides {
            side.note_members(self.now, &call_id);
        }

        let redis = self.run(&call, form).await;
        let redis =
            redis.map(|replies| reply::answers(&call, &replies).unwrap().answers.into_vec());
        let taken = self.taken();
        let at = At {
            server: at.server + taken,
            ..at
        };
        let states = late.iter_mut().zip(&mut late_locks);
        let _ = check(form, &targets, states, at, &call_id, costs);
        for (side, late) in sides.iter().zip(&late) {
            let key = &side.target.key;
            let (shown, late) = (side.state.show(key), late.show(key));
            self.is_ambiguous |= !shown.keys().eq(late.keys());
            for ((_, left), (_, late)) in shown.values().zip(late.values()) {
                let less = left
                    .zip(*late)
                    .map_or(0, |(left, late)| left - (late - taken));
                self.is_ambiguous |=
                    left.is_some() != late.is_some() || !(0..=taken).contains(&less);
            }
        }
        if self.is_ambiguous {
            return Vec::new();
        }
        match (redis, model) {
            (Ok(redis), Ok(model)) => {
                let answers = model.clone();
                let rounded = |answers: Vec<Answer>| -> Vec<Answer> {
                    let sides = sides.iter().cycle();
                    answers
                        .into_iter()
                        .zip(sides)
                        .map(|(answer, side)| side.rounded(answer, at.server))
                        .collect()
                };
                assert_eq!(rounded(redis), rounded(model));
                if let [only] = &mut *sides
                    && purpose == Purpose::Decide
                {
                    let granted = answers.iter().zip(costs).filter(|(it, _)| it.is_granted());
                    let grants = granted.map(|(it, cost)| Grant::new(it.mark, call_id, *cost));
                    only.grants.extend(grants);
                }
                answers
            }
            (Err(Failure::Refused(error)), Err(_)) if error.code() == Some("UNINITIALIZED") => {
                Vec::new()
            }
            (redis, model) => panic!("{redis:?} {model:?}"),
        }
    }

    /// Runs the script until it answers.
    async fn run(&self, call: &Arc<Call>, form: Form) -> Result<Vec<TargetReply>, Failure> {
        let keys = call.limiters.iter().flat_map(Target::all_keys);
        let keys: Vec<String> = keys.collect();
        let (connection, timeout) = (self.connection.clone(), Duration::from_secs(60));
        let connection = Connection::over(connection, timeout, Arc::default());
        let mut progress = Progress::default();
        let part = CheckPart::new(call).filter(|_| matches!(form, Form::Shared));
        loop {
            let now = Some(self.now);
            let (script, args) = match (form, &part) {
                (_, Some(part)) => {
                    let (of_part, args) = CheckPart::keys_and_args(&[part], None, now);
                    assert!(of_part.into_iter().eq(keys.iter().map(String::as_bytes)));
                    (CheckPart::script(), args)
                }
                (Form::Joint, _) => (&*script::JOINT, joint_args(call, now, None, &progress.read)),
                _ => script_and_args(call, now, None, &progress.read),
            };
            let reply = script.run(&connection, &keys, &args, Limits::for_test());
            let reply = match reply.await? {
                Value::Array(mut each) if part.is_some() => {
                    let only = each.pop().expect("a reply for each part");
                    only.extract_error().map_err(Failure::Refused)?
                }
                reply => reply,
            };
            let (_server_millis, reply) = read_reply(&reply).unwrap();
            match reply {
                CheckReply::Unfinished(read) => progress = read,
                CheckReply::Answered(replies) => return Ok(replies.into_vec()),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Peeks on both sides, which changes no key and returns what the decision would be, if the two
    /// must be alike (`is_alike`): if an RRateLimiter's state breaks the invariant, a peek counts
    /// more permits than a decision.
    pub(super) async fn peek(&mut self, sides: &mut [Sides], costs: &[u32], is_alike: bool) {
        let targets: Vec<_> = sides.iter().map(|side| side.target.clone()).collect();
        let mut states: Vec<_> = sides.iter().map(|side| side.state.cloned()).collect();
        let mut locks: Vec<_> = sides.iter().map(|side| side.lock.clone()).collect();
        let states = states.iter_mut().zip(&mut locks);
        let decided = check(Form::Joint, &targets, states, self.at(), &[0; 16], costs);
        let peeked = self.ask(sides, Form::Peek, costs).await;
        if self.is_ambiguous {
            return;
        }
        for (peeked, decided) in peeked.iter().zip(decided.unwrap_or_default()) {
            // A decision counts no more expired grants than it needs.
            let decided = match peeked.remaining > decided.remaining {
                true => Answer {
                    remaining: peeked.remaining,
                    available_in: peeked.available_in,
                    ..decided
                },
                false => decided,
            };
            assert!(!is_alike || *peeked == decided, "{peeked:?} {decided:?}");
        }
        self.compare(sides).await;
    }

    /// Gives back a part of one of the grants on both sides.
    pub(super) async fn give_back(&mut self, side: &mut Sides, place: usize, permits: u32) {
        if side.grants.is_empty() || side.target.model.is_rate() {
            return;
        }
        let grant = side.grants.swap_remove(place % side.grants.len());
        let permits = permits.min(grant.permits());
        let grant = grant.with_permits(permits);
        let call = Arc::new(Call::give_back(side.target.clone(), &grant));
        // The script finds the members of a call by their names, the model those of a millisecond.
        // These are more if a shorter window has dropped some of the call's.
        let cost = match side.members.is_empty() {
            true => permits.into(),
            false => i64::from(permits).min(side.members_of(&grant) as i64),
        };
        let mark = grant.score;
        let charge = Charge { mark, cost };
        let given_back = |state: &mut Box<dyn TestState>, lock: &mut Timed<()>, at| {
            let states = iter::once((state, lock));
            let [opened] = &mut opened(&call.limiters, states)[..] else {
                unreachable!("there is one target")
            };
            opened.give_back(at, &charge)
        };
        let (mut late, mut late_lock) = (side.state.cloned(), side.lock.clone());
        let at = self.at();
        let back = given_back(&mut side.state, &mut side.lock, at);
        side.note_given_back(&grant, back);
        let replies = self.run(&call, Form::Alone).await.unwrap();
        let server = at.server + self.taken();
        // The rest of a grant may come back at any moment, and its key then expires.
        let ends_soon = |end: &i64| *end <= server + 1_000;
        let mut ends = side.shown().into_values().filter_map(|(_, end)| end);
        if given_back(&mut late, &mut late_lock, At { server, ..at }) != back
            || ends.any(|end| ends_soon(&end))
        {
            self.is_ambiguous = true;
            return;
        }
        assert_eq!(replies[0].state[0], back, "{grant:?}");
    }

    /// Resets a target on both sides, by a policy that names all its keys.
    pub(super) async fn reset(&mut self, policy: Algorithm, side: &mut Sides) {
        let call = Arc::new(Call::reset(Target {
            model: Arc::new(policy),
            ..side.target.clone()
        }));
        let before = side.shown();
        let states = iter::once((&mut side.state, &mut side.lock));
        let [opened] = &mut opened(&call.limiters, states)[..] else {
            unreachable!("there is one target")
        };
        let model = opened.reset(At {
            now: self.now,
            server: self.server,
        });
        side.put(side.state.cloned()); // and no grant is left
        match (self.run(&call, Form::Alone).await, model) {
            (Ok(replies), Ok(was_used)) => {
                // Of such counters alone the script deletes some.
                let are_counters =
                    !before.is_empty() && before.keys().all(|key| is_of_a_period(key));
                assert!(are_counters || was_used == (replies[0].state[0] > 0));
            }
            (Err(Failure::Refused(error)), Err(_)) if error.code() == Some("UNINITIALIZED") => {}
            (redis, model) => panic!("{redis:?} {model:?}"),
        }
        // Counters of periods that no request counts any more are left to expire.
        let periods = before.keys().filter(|key| is_of_a_period(key));
        for key in periods {
            let _: () = self.connection.del(key).await.unwrap();
        }
    }

    /// Checks that the keys of the server are those that the models show.
    pub(in super::super) async fn compare(&mut self, sides: &[Sides]) {
        let mut model = Keyspace::new();
        for side in sides {
            model.extend(side.shown());
        }
        let mut redis = read_all(&mut self.connection).await;
        let taken = self.taken();
        for (key, (_, left)) in &mut redis {
            let end = model.get(key).and_then(|(_, end)| *end);
            if let (Some(left), Some(end)) = (left, end)
                && (end - taken..=end).contains(&(*left + self.server))
            {
                *left = end;
            }
        }
        assert_eq!(redis, model);
    }

    /// Writes the keys of a target to the server as its model has them.
    pub(super) async fn put(&mut self, side: &Sides, before: Keyspace) {
        let mut pipe = redis::pipe();
        pipe.ping().ignore(); // the pipe may have no other command
        for key in before.keys() {
            pipe.del(key).ignore();
        }
        for (key, (content, time_to_live)) in side.shown() {
            match content {
                Content::Text(text) => {
                    let bytes: Vec<u8> = text.chars().map(|c| c as u8).collect();
                    pipe.set(&key, bytes).ignore()
                }
                Content::Hash(fields) => pipe
                    .hset_multiple(&key, &fields.into_iter().collect::<Vec<_>>())
                    .ignore(),
                Content::Zset(members) => pipe.zadd_multiple(&key, &members).ignore(),
                Content::Scores(_) => unreachable!("shown with its members"),
            };
            if let Some(millis) = time_to_live {
                pipe.pexpire(&key, millis).ignore();
            }
        }
        pipe.exec_async(&mut self.connection).await.unwrap();
    }
}
