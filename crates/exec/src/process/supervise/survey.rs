//! What earlier servers on this data directory left: runs that go on, runs that have ended, and remains.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::identity::Identity;
use super::lease::{self, Found};
use super::run_dir::{Lock, RunDir};
use crate::job::Job;
use crate::outcome::Outcome;
use crate::places::Places;
use crate::process::kill_group;
use crate::process::leftovers::{self, LeftoversError};

/// Taken at start, before anything is started.
#[derive(Debug, Default)]
pub struct Survey {
    pub live: Vec<Survivor>,
    pub ended: Vec<EndedRun>,
    /// Processes of runs that nobody answers for any more.
    pub n_killed: usize,
}

/// A run with a supervisor that is alive.
#[derive(Debug)]
pub struct Survivor {
    pub job: Job,
    pub(super) dir: RunDir,
    pub(super) heartbeat_ms: u64,
}

/// A run that ended while no server was there to see it.
#[derive(Debug)]
pub struct EndedRun {
    pub job: Job,
    pub outcome: Outcome,
    /// Messages it took as input; the server may not have heard of them.
    pub taken: Vec<u128>,
}

/// What a directory of a run tells.
enum State {
    Live(Survivor),
    Ended(EndedRun),
    /// Its supervisor died in the middle. The lock is kept until it is dealt with.
    Dead(Job, Identity, Lock),
    /// Nothing ever began, or nobody can tell what.
    Nothing,
}

/// Finds out, and kills and removes what is of no use. It blocks: for a few milliseconds, when there is nothing to kill.
pub fn survey(places: &Places) -> Result<Survey, LeftoversError> {
    let mut survey = Survey::default();
    let mut dead = Vec::new();
    for path in entries(&places.runs_root())? {
        match look(&path) {
            State::Live(survivor) => survey.live.push(survivor),
            State::Ended(ended) => survey.ended.push(ended),
            State::Dead(job, identity, lock) => dead.push((job, identity, lock)),
            State::Nothing => remove(&path),
        }
    }
    for (job, ..) in &dead {
        survey.n_killed += kill_group(places, job.task, job.attempt)?;
    }
    let live: BTreeSet<u128> = survey.live.iter().map(|survivor| survivor.job.task).collect();
    survey.n_killed += leftovers::reap(places, &live)?;
    survey.ended.extend(dead.into_iter().map(|(job, identity, _lock)| lost(job, &identity)));
    Ok(survey)
}

fn look(path: &Path) -> State {
    let dir = RunDir::at(path);
    let orders = match dir.orders() {
        Ok(orders) => orders,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "the orders of a run cannot be read; it is given up");
            give_up(&dir);
            return State::Nothing;
        }
    };
    match dir.exit_record() {
        Ok(Some(record)) => {
            let taken = record.taken().collect();
            return State::Ended(EndedRun { job: orders.job, outcome: record.into_outcome(), taken });
        }
        Ok(None) => {}
        Err(error) => tracing::warn!(path = %path.display(), %error, "an exit record cannot be read"),
    }
    match dir.lock() {
        Ok(None) => State::Live(Survivor { job: orders.job, dir, heartbeat_ms: orders.heartbeat_ms }),
        Ok(Some(mut lock)) => match lock.signature() {
            Some(identity) => State::Dead(orders.job, identity, lock),
            // Started and not yet there, or never started. Once the directory is gone it cannot begin any more.
            None => {
                remove(path);
                State::Nothing
            }
        },
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "a run cannot be looked at; it is given up");
            give_up(&dir);
            State::Nothing
        }
    }
}

/// Without its orders nobody can tell whose it is: its supervisor is killed, and what it ran is found by its mark.
fn give_up(dir: &RunDir) {
    if let Some(supervisor) = dir.supervisor() {
        supervisor.signal(Signal::KILL);
    }
}

fn lost(job: Job, supervisor: &Identity) -> EndedRun {
    let reason = match supervisor.is_of_this_boot() {
        true => format!(
            "its supervisor (pid {}) was killed or crashed while no server ran: it left no exit record",
            supervisor.pid
        ),
        false => "the machine was restarted while it ran".to_owned(),
    };
    EndedRun { job, outcome: Outcome::Lost { reason }, taken: Vec::new() }
}

/// Lease files of everybody but these are read, acted on, and removed. Gives the processes they lead to.
pub(in crate::process) fn clear_leases(places: &Places, keep: &BTreeSet<u128>) -> io::Result<Vec<Identity>> {
    let kept: BTreeSet<PathBuf> = keep.iter().map(|task| places.running_file(*task)).collect();
    let mut commands = Vec::new();
    for path in entries(&places.running_root())?.into_iter().filter(|path| is_lease(path)) {
        match lease::read(&path) {
            Found::Unreadable(why) => lease::set_aside(&path, &why),
            Found::Lease(_) if kept.contains(&path) => {}
            Found::Lease(lease) => {
                let supervisor = lease.holder();
                // In a server's own process the lease names the server, and that was not this one.
                if supervisor != Identity::own() {
                    supervisor.signal(Signal::KILL);
                }
                commands.extend(lease.command());
                let _ = fs::remove_file(&path);
            }
            Found::Nothing => {}
        }
    }
    Ok(commands)
}

/// Neither a draft, nor one that was set aside, nor what somebody else has put there.
fn is_lease(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("task_") && name.ends_with(".json")
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    entries.map(|entry| entry.map(|entry| entry.path())).collect()
}

/// What cannot be removed is in nobody's way: each attempt makes its own places anew.
fn remove(path: &Path) {
    let removed = match path.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "what an earlier run left behind cannot be removed");
        }
        _ => {}
    }
}
