//! A plain request that leaves while a call that would carry it is composed.

use super::*;

#[test]
fn a_request_that_leaves_as_its_call_is_composed_ends_no_other() {
    explore(|seed| {
        let scene = Scene::new(3);
        scene.store.free();
        let participant = Participant::new();
        // One request makes a direct call. The others are pending, in this order.
        let leaves_later = Some(2 + seed as u32 % 10);
        let mut asking = [None, None, None, leaves_later].map(|it| scene.checking(1, it));
        let handle = participant.handle();
        {
            let _entered = handle.enter();
            let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
            for asking in &mut asking {
                assert!(asking.as_mut().poll(context).is_pending());
            }
        }
        let [direct, stays, leaves, last] = asking;
        run(
            seed,
            vec![
                Box::new(|| {
                    for task in [direct, stays, last].map(|it| participant.spawn(it)) {
                        participant.join(task);
                    }
                    scene.see_it_out(&participant);
                }),
                Box::new(|| {
                    let _entered = handle.enter();
                    drop(leaves);
                    scene.busy.fetch_sub(1, Ordering::Relaxed);
                }),
                Box::new(|| {
                    scene.busy.fetch_sub(1, Ordering::Relaxed);
                    scene.work_in_background();
                }),
            ],
        );
        assert!(scene.held.load(Ordering::Relaxed) >= 2);
        scene.end();
    });
}
