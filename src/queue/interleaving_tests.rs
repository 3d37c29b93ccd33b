//! Handovers between threads, in many interleavings of the unchanged code: waiters are served, in
//! order; a caller that left keeps nothing; no wake-up is lost. Time stands still, so that only
//! notifications make progress.

mod composing;
mod ledger_store;
mod scene;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use crate::interleaving::{Participant, explore, let_others_run, run};
use ledger_store::LedgerStore;
use scene::{Scene, participate};

#[test]
fn a_waiter_that_leaves_as_its_answer_is_delivered_keeps_nothing() {
    explore(|seed| {
        let scene = Scene::new(4);
        let polls = Some(1 + seed as u32 % 12);
        run(
            seed,
            vec![
                Box::new(|| participate(&scene, scene.waiting(2, None))),
                Box::new(|| participate(&scene, scene.waiting(2, polls))),
                Box::new(|| participate(&scene, scene.waiting(2, None))),
                Box::new(|| {
                    scene.free_all();
                    scene.busy.fetch_sub(1, Ordering::Relaxed);
                    scene.work_in_background();
                }),
            ],
        );
        let served = scene.held.load(Ordering::Relaxed);
        assert!(served >= 4, "the callers that stayed are served");
        scene.end();
    });
}

#[test]
fn the_grant_of_a_waiter_that_leaves_reaches_those_behind_it() {
    explore(|seed| {
        let scene = Scene::new(3);
        let polls = Some(1 + seed as u32 % 16);
        run(
            seed,
            vec![
                Box::new(|| {
                    let participant = Participant::new();
                    let leaves = participant.spawn(scene.waiting(4, polls));
                    let granted = participant.join(leaves);
                    if granted > 0 {
                        scene.give_back();
                    }
                    scene.see_it_out(&participant);
                }),
                Box::new(|| {
                    let participant = Participant::new();
                    let stays = scene.waiting(6, None);
                    participant.join(participant.spawn(stays));
                    scene.see_it_out(&participant);
                }),
                Box::new(|| {
                    scene.free_all();
                    scene.busy.fetch_sub(1, Ordering::Relaxed);
                    scene.work_in_background();
                }),
            ],
        );
        assert_eq!(scene.store.in_use(), 6);
    });
}

#[test]
fn the_first_of_two_waiters_is_served_first_by_its_try_or_by_the_queue() {
    explore(|seed| {
        let scene = Scene::new(3);
        let has_arrived = AtomicBool::new(false);
        let order = std::sync::Mutex::new(Vec::new());
        let wait = |number: u32, has_arrived: &AtomicBool| {
            let participant = Participant::new();
            let mut waiting = scene.waiting(6, None);
            let (polled, was_polled) = (Arc::new(AtomicBool::new(false)), has_arrived);
            let mark = Arc::clone(&polled);
            let task = participant.spawn(std::future::poll_fn(move |context| {
                let poll = waiting.as_mut().poll(context);
                mark.store(true, Ordering::Relaxed);
                poll
            }));
            participant.turn_until("it is polled", || polled.load(Ordering::Relaxed));
            was_polled.store(true, Ordering::Relaxed);
            participant.join(task);
            order.lock().unwrap().push(number);
            scene.give_back();
            scene.see_it_out(&participant);
        };
        run(
            seed,
            vec![
                Box::new(|| wait(1, &has_arrived)),
                Box::new(|| {
                    while !has_arrived.load(Ordering::Relaxed) {
                        let_others_run();
                    }
                    wait(2, &AtomicBool::new(false));
                }),
                Box::new(|| {
                    scene.free_all();
                    scene.busy.fetch_sub(1, Ordering::Relaxed);
                    scene.work_in_background();
                }),
            ],
        );
        assert_eq!(*order.lock().unwrap(), [1, 2]);
        scene.end();
    });
}

#[test]
fn a_call_by_drivers_of_two_runtimes_is_granted_once_and_notifies_all() {
    explore(|seed| {
        let scene = Scene::new(3);
        let polls = (!seed.is_multiple_of(3)).then_some(2 + seed as u32 % 14);
        run(
            seed,
            vec![
                Box::new(|| participate(&scene, scene.waiting(2, None))),
                Box::new(|| {
                    // By the clock of this runtime, the calls of the other one are overdue.
                    let participant = Participant::new();
                    participant.advance(Duration::from_millis(600));
                    let first = participant.spawn(scene.waiting(1, polls));
                    let second = participant.spawn(scene.waiting(2, None));
                    participant.join(first);
                    participant.join(second);
                    scene.see_it_out(&participant);
                }),
                Box::new(|| {
                    scene.free_all();
                    scene.busy.fetch_sub(1, Ordering::Relaxed);
                    scene.work_in_background();
                }),
            ],
        );
        scene.end();
    });
}

#[test]
fn calls_and_waiters_of_a_runtime_that_shuts_down_go_on_elsewhere() {
    explore(|seed| {
        let scene = Scene::new(3);
        run(
            seed,
            vec![
                Box::new(|| {
                    let mut first = Participant::new();
                    drop(first.spawn(scene.waiting(1, None)));
                    let mut moves = scene.waiting(2, None);
                    let is_done = first.poll_once(moves.as_mut());
                    for _ in 0..seed % 9 {
                        first.turn();
                    }
                    first.shut_down();
                    let second = Participant::new();
                    if !is_done {
                        second.join(second.spawn(moves));
                    }
                    scene.see_it_out(&second);
                }),
                Box::new(|| participate(&scene, scene.waiting(3, None))),
                Box::new(|| {
                    scene.free_all();
                    scene.busy.fetch_sub(1, Ordering::Relaxed);
                    scene.work_in_background();
                }),
            ],
        );
        assert!(scene.held.load(Ordering::Relaxed) >= 5);
        scene.end();
    });
}

#[test]
fn a_call_repeated_by_a_lost_runtime_after_its_refund_keeps_nothing() {
    explore(|seed| {
        let scene = Scene::new(2);
        let (others_wait, has_come_back) = (AtomicBool::new(false), AtomicBool::new(false));
        run(
            seed,
            vec![
                Box::new(|| {
                    let mut lost = Participant::new();
                    let mut waiting = scene.waiting(1, None);
                    let is_heard = Arc::new(AtomicBool::new(true));
                    let hears = Arc::clone(&is_heard);
                    drop(lost.spawn(std::future::poll_fn(move |context| {
                        if hears.load(Ordering::Relaxed) {
                            waiting.as_mut().poll(context)
                        } else {
                            Poll::Pending
                        }
                    })));
                    lost.turn_until("the other one waits", || {
                        others_wait.load(Ordering::Relaxed)
                    });
                    is_heard.store(false, Ordering::Relaxed);
                    scene.free_all();
                    for _ in 0..seed % 4 {
                        lost.turn();
                    }
                    while !has_come_back.load(Ordering::Relaxed) {
                        scene.store.run_a_job();
                        let_others_run();
                    }
                    for _ in 0..seed / 4 % 8 {
                        lost.turn();
                    }
                    lost.shut_down();
                    scene.see_it_out(&Participant::new());
                }),
                Box::new(|| {
                    // By the clock of this runtime, the calls of the other one are overdue.
                    let participant = Participant::new();
                    participant.advance(Duration::from_millis(600));
                    let stays = participant.spawn(scene.waiting(2, None));
                    for _ in 0..8 {
                        participant.turn();
                    }
                    others_wait.store(true, Ordering::Relaxed);
                    participant.join(stays);
                    scene.give_back();
                    has_come_back.store(true, Ordering::Relaxed);
                    scene.see_it_out(&participant);
                }),
            ],
        );
        scene.end();
    });
}

#[test]
fn a_direct_call_dropped_before_queued_ones_keeps_nothing_of_theirs() {
    explore(|seed| {
        let scene = Scene::new(3);
        scene.store.free();
        let polls = Some(1 + seed as u32 % 10);
        let participant = Participant::new();
        let handle = participant.handle();
        run(
            seed,
            vec![
                Box::new(|| {
                    let others = [
                        participant.spawn(scene.checking(1, None)),
                        participant.spawn(scene.checking(1, polls)),
                    ];
                    for other in others {
                        participant.join(other);
                    }
                    scene.see_it_out(&participant);
                }),
                Box::new(|| {
                    // Another thread of the same runtime.
                    let _entered = handle.enter();
                    let mut dropped = scene.checking(1, None);
                    let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
                    for _ in 0..1 + seed % 5 {
                        if dropped.as_mut().poll(context) != Poll::Pending {
                            break;
                        }
                        let_others_run();
                    }
                    drop(dropped);
                    let_others_run();
                    scene.busy.fetch_sub(1, Ordering::Relaxed);
                }),
                Box::new(|| {
                    scene.busy.fetch_sub(1, Ordering::Relaxed);
                    scene.work_in_background();
                }),
            ],
        );
        scene.end();
    });
}

#[test]
fn an_answer_is_claimed_once_by_its_caller_or_by_its_reclaim() {
    explore(|seed| {
        let store = LedgerStore::new();
        store.free();
        let call = Arc::new(crate::store::AcquireCall::new(
            crate::window::Requests::one(2),
        ));
        let held = AtomicU32::new(0);
        run(
            seed,
            vec![
                Box::new(|| {
                    let participant = Participant::new();
                    let (store, call) = (Arc::clone(&store), Arc::clone(&call));
                    let task = participant.spawn(async move {
                        use crate::store::LimiterStore;
                        let deadline = store.call_deadline();
                        let answer = store.acquire(&call, deadline).await;
                        answer.is_ok() && call.claim()
                    });
                    held.store(2 * u32::from(participant.join(task)), Ordering::Relaxed);
                }),
                Box::new(|| {
                    use crate::store::LimiterStore;
                    for _ in 0..seed % 6 {
                        let_others_run();
                    }
                    Arc::clone(&store).reclaim(Arc::clone(&call), Box::new(|| {}));
                    store.run_a_job();
                }),
            ],
        );
        assert_eq!(store.in_use(), held.load(Ordering::Relaxed));
    });
}
