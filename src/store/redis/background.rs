//! A thread for work that must not depend on a caller's runtime, such as giving back the permits of
//! a cancelled call.
//!
//! The thread starts with the first task. It ends when the [`Background`] is dropped and its tasks
//! are done.

use std::future::Future;
use std::time::Duration;
use std::{io, thread};

use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::escaped::Escaped;
use crate::lock::Lock;
use crate::store::Task;
use crate::store::unsettled::Unsettled;

/// Runs tasks on a thread of its own.
#[derive(Debug, Default)]
pub(crate) struct Background {
    tasks: Lock<Option<mpsc::UnboundedSender<Task>>>,
    pub(super) unsettled: Unsettled,
}

impl Background {
    /// Runs a task that gives permits back, and counts it among those that are unsettled.
    pub(crate) fn give_back(&self, task: impl Future<Output = Duration> + Send + 'static) {
        self.spawn(self.unsettled.counted(task));
    }

    /// Runs `task` on the background thread. A task that panics ends alone.
    ///
    /// If the operating system refuses another thread, the task is dropped, and the next call tries
    /// again.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock();
        if tasks.is_none() {
            match start() {
                Ok(sender) => *tasks = Some(sender),
                Err(error) => {
                    tracing::error!(error = %Escaped(&error), "cannot start the background thread");
                }
            }
        }
        if let Some(sender) = &*tasks {
            // The receiver lives as long as the sender.
            let _ = sender.send(Box::pin(task));
        }
    }
}

fn start() -> io::Result<mpsc::UnboundedSender<Task>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (sender, tasks) = mpsc::unbounded_channel();
    thread::Builder::new()
        .name("rate-limiter".to_owned())
        .spawn(move || runtime.block_on(run(tasks)))?;
    Ok(sender)
}

/// Runs the tasks that arrive, until the sender is dropped and all tasks are done.
async fn run(mut tasks: mpsc::UnboundedReceiver<Task>) {
    let mut running = JoinSet::new();
    loop {
        tokio::select! {
            task = tasks.recv() => match task {
                Some(task) => {
                    running.spawn(task);
                }
                None => break,
            },
            Some(_finished) = running.join_next() => {}
        }
    }
    while running.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::mpsc::{RecvError, channel};

    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn tasks_run_on_one_thread_without_the_runtime_of_the_caller() {
        let background = Background::default();
        let (sender, threads) = channel();
        for _ in 0..2 {
            let sender = sender.clone();
            background.spawn(async move {
                tokio::task::yield_now().await;
                sender.send(thread::current().id()).unwrap();
            });
        }
        let first = threads.recv().unwrap();
        assert_ne!(first, thread::current().id());
        assert_eq!(threads.recv().unwrap(), first);
    }

    #[tokio::test]
    async fn each_refund_is_waited_for_if_its_task_ends_panics_or_never_runs() {
        let background = Background::default();
        assert!(background.unsettled.given_back().await);
        background.spawn(std::future::pending()); // it gives nothing back
        let (finish, may_finish) = oneshot::channel();
        background.give_back(async { may_finish.await.unwrap() });
        background.give_back(async { panic!("a task of the test panics") });
        let mut given_back = Box::pin(background.unsettled.given_back());
        let once = std::future::poll_fn(|context| {
            std::task::Poll::Ready(given_back.as_mut().poll(context))
        });
        assert!(once.await.is_pending());
        finish.send(Duration::ZERO).unwrap();
        assert!(!given_back.await, "the one that panicked gave nothing back");
    }

    #[tokio::test]
    async fn what_could_not_be_given_back_is_missing_until_it_comes_back() {
        let background = Background::default();
        background.give_back(async { Duration::ZERO });
        assert!(background.unsettled.given_back().await);
        background.give_back(async { Duration::MAX });
        background.give_back(async { Duration::ZERO });
        assert!(!background.unsettled.given_back().await);
    }

    #[test]
    fn a_task_that_panics_ends_alone() {
        let background = Background::default();
        background.spawn(async { panic!("a task of the test panics") });
        let (sender, done) = channel();
        background.spawn(async move { sender.send(()).unwrap() });
        assert_eq!(done.recv(), Ok(()));
    }

    #[test]
    fn the_thread_ends_when_the_owner_is_dropped_and_its_tasks_are_done() {
        thread_local! {
            static LIVES: RefCell<Option<std::sync::mpsc::Sender<&'static str>>> = const { RefCell::new(None) };
        }
        let background = Background::default();
        let (lives, thread) = channel();
        let (finish, may_finish) = oneshot::channel();
        background.spawn(async move {
            LIVES.set(Some(lives.clone()));
            may_finish.await.unwrap();
            lives.send("the task is done").unwrap();
        });
        drop(background);
        finish.send(()).unwrap();
        assert_eq!(thread.recv(), Ok("the task is done"));
        assert_eq!(thread.recv(), Err(RecvError)); // the thread's own sender is dropped with it
    }
}
