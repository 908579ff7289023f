//! What the scheduler thread tells of each commit, handed to whoever counts, waits or cleans up.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use runyard_core::event::Happening;
use runyard_core::ids::TaskId;
use runyard_exec::{Places, workspace};

use crate::metrics::Metrics;
use crate::nodes::Keeper;
use crate::scheduler::Observer;
use crate::waiters::Waiters;
use crate::workers::Roster;

/// An attempt without output has no log, so a gap does not yet mean the end. Nine attempts in a row that said nothing
/// between two that did are given up for lost.
const MISSES_MAX: u32 = 8;

pub struct Observers {
    metrics: Arc<Metrics>,
    waiters: Arc<Waiters>,
    roster: Arc<Roster>,
    /// Where other nodes are to have the files too.
    keeper: Option<Arc<Keeper>>,
    gone: mpsc::Sender<Vec<TaskId>>,
}

impl Observers {
    /// Files are deleted on a thread of their own, which ends with this observer.
    pub fn new(
        metrics: Arc<Metrics>,
        waiters: Arc<Waiters>,
        roster: Arc<Roster>,
        keeper: Option<Arc<Keeper>>,
        data_dir: &Path,
    ) -> std::io::Result<Observers> {
        let places = Places::new(data_dir)?;
        let (gone, tasks) = mpsc::channel::<Vec<TaskId>>();
        let clean = move || {
            for task in tasks.iter().flatten() {
                remove_files(&places, task);
            }
        };
        std::thread::Builder::new().name("file-cleaner".into()).spawn(clean)?;
        Ok(Observers { metrics, waiters, roster, keeper, gone })
    }
}

impl Observer for Observers {
    fn committed(&self, happenings: &[Happening], n_events: usize, took: Duration) {
        self.metrics.observe_commit(n_events, took);
        self.metrics.observe(happenings);
        self.waiters.observe(happenings);
        self.roster.observe(happenings);
        if let Some(keeper) = &self.keeper {
            keeper.observe(happenings);
        }
    }

    fn recovered(&self) {
        self.waiters.observe_all();
    }

    fn purged(&self, tasks: &[TaskId]) {
        if !tasks.is_empty() {
            // The cleaner lives as long as this sender.
            let _ = self.gone.send(tasks.to_vec());
        }
    }
}

/// Everything on disk that a task leaves behind it: what it printed, what was collected of it, what was kept.
pub(crate) fn remove_files(places: &Places, task: TaskId) {
    if let Err(error) = workspace::remove_files(places, task.0) {
        tracing::warn!(task = runyard_exec::job::task_text(task.0), %error, "files of a deleted task cannot be removed");
    }
    remove_logs(places, task);
}

fn remove_logs(places: &Places, task: TaskId) {
    let (mut attempt, mut misses) = (1, 0);
    while misses <= MISSES_MAX {
        match places.remove_attempt(task.0, attempt) {
            true => misses = 0,
            false => misses += 1,
        }
        attempt += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logs_and_exit_records_of_all_attempts_go() {
        let dir = tempfile::tempdir().expect("a directory");
        let places = Places::new(dir.path()).expect("places");
        let path = |attempt| match attempt {
            4 => places.exit_file(7, attempt),
            attempt => places.log_file(7, attempt),
        };
        for attempt in [1, 4, 12] {
            std::fs::create_dir_all(path(attempt).parent().expect("a folder")).expect("made");
            std::fs::write(path(attempt), "x").expect("written");
        }
        remove_logs(&places, TaskId(7));
        assert!([1, 4, 12].into_iter().all(|attempt| !path(attempt).exists()));
    }
}
