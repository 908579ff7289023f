//! Requests that wait for a task's end. The scheduler thread tells them; one that nobody waits for costs it one load.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use runyard_core::event::{Happening, Subject};
use runyard_core::hash::DetMap;
use runyard_core::ids::TaskId;
use tokio::sync::watch;

#[derive(Default)]
pub struct Waiters {
    n: AtomicUsize,
    tasks: Mutex<DetMap<TaskId, Waiting>>,
}

struct Waiting {
    n: usize,
    changed: watch::Sender<u64>,
}

/// Woken by each happening of its task that moves it to another state; forgotten when dropped.
pub struct Waiter<'a> {
    all: &'a Waiters,
    task: TaskId,
    changed: watch::Receiver<u64>,
}

impl Waiters {
    /// From now on nothing of this task is missed: register first, then read the task.
    pub fn watch(&self, task: TaskId) -> Waiter<'_> {
        let mut tasks = self.lock();
        let waiting = tasks.entry(task).or_insert_with(|| Waiting { n: 0, changed: watch::Sender::new(0) });
        waiting.n += 1;
        self.n.fetch_add(1, Ordering::SeqCst);
        Waiter { all: self, task, changed: waiting.changed.subscribe() }
    }

    /// Called after the commit that made these visible.
    pub fn observe(&self, happenings: &[Happening]) {
        if self.n.load(Ordering::SeqCst) == 0 {
            return;
        }
        let tasks = self.lock();
        for happening in happenings {
            let Subject::Task(facts) = &happening.subject else { continue };
            if let Some(waiting) = tasks.get(&facts.task) {
                waiting.changed.send_modify(|n| *n += 1);
            }
        }
    }

    /// After a recovery: what a tick that failed behind its commit made visible was never told, so everyone looks again.
    pub fn observe_all(&self) {
        self.lock().values().for_each(|waiting| waiting.changed.send_modify(|n| *n += 1));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, DetMap<TaskId, Waiting>> {
        self.tasks.lock().expect("no thread panics while it holds the waiters")
    }
}

impl Waiter<'_> {
    /// Returns when something happened to the task since the last call.
    pub async fn changed(&mut self) {
        // The sender lives in the map for as long as this waiter is counted.
        let _ = self.changed.changed().await;
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut tasks = self.all.lock();
        self.all.n.fetch_sub(1, Ordering::SeqCst);
        if let Some(waiting) = tasks.get_mut(&self.task) {
            waiting.n -= 1;
            if waiting.n == 0 {
                tasks.remove(&self.task);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use runyard_core::event::{HappeningKind, TaskFacts};
    use runyard_core::task::Tier;

    use super::*;

    fn happening(task: u128) -> Happening {
        let facts = TaskFacts {
            task: TaskId(task),
            agent: "a".into(),
            lane: "main".into(),
            kind: "noop".into(),
            tier: Tier::Normal,
            batch: None,
            session: None,
            attempt: 1,
            class: None,
            reason: "".into(),
            elapsed_ms: None,
        };
        Happening { kind: HappeningKind::TaskCompleted, at_ms: 1, subject: Subject::Task(facts) }
    }

    #[tokio::test]
    async fn a_waiter_hears_of_its_task_only_and_is_forgotten() {
        let waiters = Waiters::default();
        let mut waiter = waiters.watch(TaskId(1));
        let second = waiters.watch(TaskId(1));
        waiters.observe(&[happening(2)]);
        assert!(!waiter.changed.has_changed().expect("open"));
        waiters.observe(&[happening(2), happening(1)]);
        waiter.changed().await;
        drop(waiter);
        assert_eq!(waiters.lock().len(), 1);
        drop(second);
        assert_eq!(waiters.lock().len(), 0);
        assert_eq!(waiters.n.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn all_look_again_after_a_recovery() {
        let waiters = Waiters::default();
        let (mut one, mut two) = (waiters.watch(TaskId(1)), waiters.watch(TaskId(2)));
        waiters.observe_all();
        one.changed().await;
        two.changed().await;
    }
}
