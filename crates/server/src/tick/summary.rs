//! What one pass did, for a person, a log and a script.

use runyard_worker::Found;
use serde::Serialize;

use super::Mode;

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Nothing of this was done.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Tasks of which there was a run or a lease file.
    pub leases_scanned: usize,
    /// Of them, those that go on.
    pub adopted: usize,
    /// Those that have ended since the last pass; how, stands on the task.
    pub finished: usize,
    /// Those that were lost, or stopped because their time was over: they run again, or have failed.
    pub reclaimed: usize,
    /// Commands that were started.
    pub started: usize,
    /// Tasks that wait for others: dependencies, their session, their batch.
    pub blocked: u64,
    /// Tasks that could run and have no room, or no worker of their kind here.
    pub queued: u64,
    /// Tasks that wait for a time.
    pub scheduled: u64,
    /// What could not be read, started, stopped or written.
    pub errors: usize,
    /// A sentence for each error and each task that was reclaimed.
    pub messages: Vec<String>,
}

impl Summary {
    pub(super) fn of(found: &Found, mode: Mode) -> Summary {
        let mut summary = Summary {
            dry_run: mode == Mode::Rehearse,
            leases_scanned: found.n_scanned,
            adopted: found.n_adopted,
            finished: found.n_finished,
            ..Summary::default()
        };
        found.unreadable.iter().for_each(|unreadable| summary.error(unreadable.to_string()));
        summary
    }

    pub(super) fn error(&mut self, message: String) {
        self.errors += 1;
        self.messages.push(message);
    }
}
