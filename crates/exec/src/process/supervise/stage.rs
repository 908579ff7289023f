//! How far a run has come, for whoever starts one and does not stay to see it end.

use super::lease::{self, Found, LeaseState};
use super::run_dir::RunDir;
use crate::places::Places;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Nobody would find it yet.
    Ahead,
    /// Its supervisor has said who it is: whatever becomes of it, it is found.
    Supervised,
    /// The command has been started, and its end will be on record, whoever is there then.
    Running,
    Ended(Command),
}

/// Was there ever a process of it?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    Ran,
    NeverStarted,
}

/// Of an attempt whose end is not acknowledged yet.
pub fn stage(places: &Places, task: u128, attempt: u32) -> Stage {
    let dir = RunDir::of(places, task, attempt);
    if let Ok(Some(record)) = dir.exit_record() {
        return Stage::Ended(if record.has_run() { Command::Ran } else { Command::NeverStarted });
    }
    match lease::read(&places.running_file(task)) {
        Found::Lease(lease) if lease.attempt == attempt && lease.state != LeaseState::Starting => Stage::Running,
        _ if dir.supervisor().is_some() => Stage::Supervised,
        _ => Stage::Ahead,
    }
}
