//! Logs of ended attempts, kept in the database: the files are on the disk of the node that was the holder then.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};

use runyard_core::event::{Happening, HappeningKind, Subject};
use runyard_core::ids::TaskId;
use runyard_exec::Places;
use runyard_store::nodes::Nodes;

/// Ends that wait for their logs to be read. Beyond it the oldest are left where they are: only this node can show them.
const WAITING_MAX: usize = 100_000;
/// As much of a log as is kept of it anywhere.
const LOG_BYTES_MAX: u64 = 10 * 1024 * 1024 + 64 * 1024;

/// Hands ended attempts to a thread of its own, which ends with it.
pub struct LogKeeper {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    news: Condvar,
}

#[derive(Default)]
struct Queue {
    ended: VecDeque<(TaskId, u32)>,
    closed: bool,
}

impl LogKeeper {
    pub fn start(nodes: Arc<dyn Nodes>, places: Places) -> LogKeeper {
        let shared = Arc::new(Shared::default());
        let working = shared.clone();
        std::thread::Builder::new()
            .name("log-keeper".into())
            .spawn(move || working.run(&*nodes, &places))
            .expect("the operating system gives one more thread");
        LogKeeper { shared }
    }

    /// Called with each commit; what did not end an attempt is passed over.
    pub fn observe(&self, happenings: &[Happening]) {
        let ended = happenings.iter().filter_map(ended_attempt);
        let mut queue = self.shared.queue.lock().expect(UNPOISONED);
        let n_before = queue.ended.len();
        queue.ended.extend(ended);
        let n_over = queue.ended.len().saturating_sub(WAITING_MAX);
        queue.ended.drain(..n_over);
        let has_more = queue.ended.len() > n_before;
        drop(queue);
        if has_more {
            self.shared.news.notify_one();
        }
    }
}

impl Drop for LogKeeper {
    fn drop(&mut self) {
        self.shared.queue.lock().expect(UNPOISONED).closed = true;
        self.shared.news.notify_one();
    }
}

impl Shared {
    fn run(&self, nodes: &dyn Nodes, places: &Places) {
        while let Some((task, attempt)) = self.next() {
            let path = places.log_file(task.0, attempt);
            // Most work prints nothing, and has no file.
            let Ok(about) = std::fs::metadata(&path) else { continue };
            if about.len() == 0 || about.len() > LOG_BYTES_MAX {
                continue;
            }
            let kept = std::fs::read(&path).map(|log| nodes.keep_log(task, attempt, &log));
            if let Ok(Err(error)) = kept {
                tracing::warn!(target: "runyard::nodes", ?task, attempt, error = &error as &dyn std::error::Error,
                    "a log is on this node only");
            }
        }
    }

    fn next(&self) -> Option<(TaskId, u32)> {
        let queue = self.queue.lock().expect(UNPOISONED);
        let waits = |queue: &mut Queue| queue.ended.is_empty() && !queue.closed;
        let mut queue = self.news.wait_while(queue, waits).expect(UNPOISONED);
        queue.ended.pop_front()
    }
}

const UNPOISONED: &str = "no thread panics while it holds the queue";

fn ended_attempt(happening: &Happening) -> Option<(TaskId, u32)> {
    use HappeningKind::{TaskCancelled, TaskCompleted, TaskFailed, TaskPreempted, TaskRetrying};
    let ends = matches!(happening.kind, TaskCompleted | TaskFailed | TaskCancelled | TaskRetrying | TaskPreempted);
    match &happening.subject {
        Subject::Task(facts) if ends && facts.attempt > 0 => Some((facts.task, facts.attempt)),
        _ => None,
    }
}
