//! Parses the replies of the acquire and reclaim scripts. Reading never panics, whatever the bytes
//! are.

use std::time::Duration;

use redis::Value;
use smallvec::SmallVec;

use super::client::read;
use crate::error::{Error, Result};
use crate::rate::RateType;
use crate::window::{Acquired, Details, Settings};

/// A script's reply, and the time at which the server sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AcquireAnswer<T = Acquired> {
    pub(super) server_millis: i64,
    pub(super) meaning: Meaning<T>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning<T> {
    Decided(T),
    /// The call arrived after its deadline, and did nothing.
    DeadlineExceeded,
    /// The limiter has this type, not the one that the call was for. The call did nothing.
    OtherType(RateType),
    /// An earlier attempt may still arrive, so the call did nothing: send it again after this time.
    Early(Duration),
    /// The call did not find the grant of an earlier attempt, and decided nothing: search on from
    /// this score.
    More(i64),
    /// So many grants have expired that counting their permits takes several calls. Nothing was
    /// decided: send the call again.
    Again,
}

/// Doubles are exact integers up to here.
const LARGEST: f64 = (1_u64 << 54) as f64;

type Numbers = SmallVec<[i64; 13]>;
type Word = SmallVec<[u8; 8]>;

/// The doubles at the front, and the word behind them.
fn split(name: &str, value: Value) -> Result<(Numbers, Word)> {
    let bytes: Vec<u8> = read(name, value)?;
    let (doubles, word) = bytes.as_chunks();
    let doubles = doubles.iter().map(|&double| f64::from_le_bytes(double));
    if !doubles.clone().all(|double| double.abs() <= LARGEST) {
        return Err(Error::bad_state(name));
    }
    Ok((doubles.map(|double| double as i64).collect(), word.into()))
}

/// The meaning of a reply that is no decision.
fn undecided<T>(numbers: &[i64], word: &[u8]) -> Option<AcquireAnswer<T>> {
    let (server_millis, meaning) = match (numbers, word) {
        (&[millis], b"") => (millis, Meaning::DeadlineExceeded),
        (&[millis, 0], b"type") => (millis, Meaning::OtherType(RateType::Overall)),
        (&[millis, 1], b"type") => (millis, Meaning::OtherType(RateType::PerClient)),
        (&[millis, wait], b"early") => {
            let wait = Duration::from_millis(wait.max(1).unsigned_abs());
            (millis, Meaning::Early(wait))
        }
        (&[millis, from], b"more") => (millis, Meaning::More(from)),
        (&[millis, 0], b"again") => (millis, Meaning::Again),
        _ => return None,
    };
    Some(AcquireAnswer {
        server_millis,
        meaning,
    })
}

impl AcquireAnswer {
    /// `passed` is the time in ms that was sent with the call; without one the server's clock
    /// scored the grants. A reply without a rate means that the rate is still `audited_rate`. The
    /// call was for a limiter of this type.
    pub(super) fn read(
        name: &str,
        value: Value,
        passed: Option<i64>,
        audited_rate: Option<i64>,
        rate_type: RateType,
    ) -> Result<Self> {
        let (numbers, word) = split(name, value)?;
        if let Some(answer) = undecided(&numbers, &word) {
            return Ok(answer);
        }
        let [
            server_millis,
            available,
            until_first,
            interval,
            ref more @ ..,
        ] = numbers[..]
        else {
            return Err(Error::bad_state(name));
        };
        let Some(rate) = more.get(1).copied().or(audited_rate) else {
            return Err(Error::bad_state(name));
        };
        if !word.is_empty() || rate < 0 || interval < 0 {
            return Err(Error::bad_state(name));
        }
        let now = passed.unwrap_or(server_millis);
        let mut answer = Acquired::new(now, rate, available, until_first, interval);
        answer.until_all = more.first().copied().unwrap_or(interval);
        let mut details = Details::default();
        match *more {
            [] | [_] | [_, _] => {}
            [_, _, ahead, counted] => {
                details.clock_ahead = ahead.max(0);
                note_counted(&mut answer, counted);
            }
            [
                _,
                _,
                ahead,
                counted,
                found,
                score,
                newer,
                lives,
                ref last @ ..,
            ] if last.len() != 2 && (found != 1 || last.len() == 1) => {
                details.clock_ahead = ahead.max(0);
                note_counted(&mut answer, counted);
                answer.found = found == 1;
                details.left_now = last.first().copied().filter(|_| answer.found);
                answer.score = score;
                answer.until_score = (score - now).max(0);
                details.newer = (newer >= 0).then_some(newer);
                answer.lives = (lives >= 0).then_some(lives);
                let keep_alive = last.first().filter(|&&it| it >= 0 && !answer.found);
                details.until_back = last.get(1..).unwrap_or_default().into();
                details.other_settings = keep_alive.map(|&keep_alive| Settings {
                    rate,
                    interval,
                    rate_type,
                    keep_alive,
                });
            }
            _ => return Err(Error::bad_state(name)),
        }
        Ok(Self {
            server_millis,
            meaning: Meaning::Decided(answer.with_details(details)),
        })
    }
}

/// How many grants were summed, as `lua/acquire.lua` returns it.
fn note_counted(answer: &mut Acquired, counted: i64) {
    answer.counted = counted.max(0).unsigned_abs();
    answer.audit_due = matches!(counted, -1 | -3);
    answer.has_more = matches!(counted, -2 | -3);
}

impl AcquireAnswer<u32> {
    pub(super) fn read_reclaim(name: &str, value: Value) -> Result<Self> {
        let (numbers, word) = split(name, value)?;
        if let Some(answer) = undecided(&numbers, &word) {
            return Ok(answer);
        }
        match (&numbers[..], &word[..]) {
            (&[server_millis, permits], b"done") => Ok(Self {
                server_millis,
                meaning: Meaning::Decided(u32::try_from(permits).unwrap_or(0)),
            }),
            _ => Err(Error::bad_state(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value as Json, json};

    use super::super::audit::pause_after;
    use super::*;
    use crate::client_vectors::{hold, list, number, numbers};
    use crate::decision::{check_fits, decision_alone};
    use crate::window::{Requests, Run, Share};

    fn answer(doubles: &[f64], word: &str) -> Value {
        let bytes = doubles.iter().flat_map(|double| double.to_le_bytes());
        Value::BulkString(bytes.chain(word.bytes()).collect())
    }

    fn meaning(value: Value) -> Option<Meaning<Acquired>> {
        let answer = AcquireAnswer::read("limiter", value, None, Some(5), RateType::Overall);
        answer.ok().map(|answer| answer.meaning)
    }

    #[test]
    fn a_client_concludes_from_a_reply_what_the_specification_says() {
        hold("acquire", |given| {
            let reply = &given["reply"];
            let doubles = numbers(&reply["doubles"]).into_iter();
            let doubles: Vec<f64> = doubles.map(|number| number as f64).collect();
            let value = answer(&doubles, reply["word"].as_str().unwrap_or_default());
            let audited_rate = given["audited_rate"].as_i64();
            let now = given["now"].as_i64();
            let read = AcquireAnswer::read("n", value, now, audited_rate, RateType::Overall);
            let Meaning::Decided(answer) = read.unwrap().meaning else {
                panic!("it is not decided: {reply}");
            };
            let requests = requests(&given["requests"], given);
            let each = requests.served(&answer).flat_map(|(run, granted)| {
                let fits = check_fits("n", run.permits, answer.rate).is_ok();
                let rest = if fits { "denied" } else { "error" };
                (0..run.count).map(move |place| if place < granted { "granted" } else { rest })
            });
            let each: Vec<_> = each.collect();
            let is_denied = each.contains(&"denied");
            json!({
                "requests": each,
                "score": each.contains(&"granted").then_some(answer.score),
                "wait": is_denied.then(|| answer.wait().as_millis() as u64),
                "sum_after": pause_after(audited_rate, &answer).map(|pause| pause.as_millis() as u64),
            })
        });
    }

    /// The list of a case.
    fn requests(runs: &Json, options: &Json) -> Requests {
        let number_of = |value: &Json| u32::try_from(number(value)).unwrap();
        let runs = list(runs).map(|run| Run {
            permits: number_of(&run[0]),
            count: number_of(&run[1]),
        });
        let share = options.get("share").map(|share| Share {
            permille: number(&share[0]),
            credit: number(&share[1]),
        });
        Requests {
            runs: runs.collect(),
            fifo: options.get("fifo").is_some(),
            share,
            debt: options.get("debt").is_some(),
        }
    }

    #[test]
    fn a_reply_without_a_decision_is_recognized_by_its_word() {
        let early = Meaning::Early(Duration::from_millis(40));
        assert_eq!(meaning(answer(&[9.0, 40.0], "early")), Some(early));
        assert_eq!(meaning(answer(&[9.0, 7.0], "more")), Some(Meaning::More(7)));
        let other = Meaning::OtherType(RateType::PerClient);
        assert_eq!(meaning(answer(&[9.0, 1.0], "type")), Some(other));
        assert_eq!(meaning(answer(&[9.0], "")), Some(Meaning::DeadlineExceeded));
        for bad in [
            answer(&[9.0, 2.0], "type"),
            answer(&[9.0, 2.0], ""),
            answer(&[], ""),
        ] {
            assert_eq!(meaning(bad), None);
        }
    }

    #[test]
    fn a_number_that_is_no_exact_integer_is_refused() {
        for bad in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e17] {
            assert_eq!(meaning(answer(&[9.0, 1.0, bad], "")), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_doubles_and_any_word_are_read_without_a_panic(
            doubles in prop::collection::vec(any::<f64>(), 0..15),
            small in prop::collection::vec(-20_i32..20, 0..15),
            word in prop_oneof![Just(""), Just("early"), Just("more"), Just("type"), Just("done"), Just("x")],
            permits in 1_u32..30,
            wild in any::<bool>(),
        ) {
            let doubles = if wild { doubles } else { small.into_iter().map(f64::from).collect() };
            let value = answer(&doubles, word);
            let _ = AcquireAnswer::read_reclaim("limiter", value.clone());
            if let Some(Meaning::Decided(answer)) = meaning(value) {
                let _ = (answer.wait(), answer.until_first(), answer.until_all());
                let _ = decision_alone("limiter", [0; 16], permits, &answer);
            }
        }

        #[test]
        fn any_value_is_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..90), number: i64) {
            for value in [Value::BulkString(bytes), Value::Int(number), Value::Nil, Value::Array(vec![Value::Nil])] {
                let _ = AcquireAnswer::read("limiter", value.clone(), Some(number), None, RateType::Overall);
                let _ = AcquireAnswer::read_reclaim("limiter", value);
            }
        }
    }
}
