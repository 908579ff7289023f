//! Finds and kills what a run left behind: all runs after a crash of the server, or one run that let a process escape
//! from its group.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open, pidfd_send_signal};

use super::environment::workdir_mark;
use super::proc_table;
use super::record::Record;
use crate::places::Places;

const DEATH_MAX: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug, thiserror::Error)]
pub enum LeftoversError {
    #[error("the records of earlier processes cannot be read")]
    Io(#[from] io::Error),
    #[error("processes of an earlier run do not die: {pids:?}")]
    StillAlive { pids: Vec<i32> },
}

/// Kills every process that an earlier server on this data directory left running, waits until they are dead, and
/// removes their records and working directories. Returns how many there were. To be called once, before anything is
/// started; it blocks, for a few milliseconds when there is nothing to do.
pub fn reap_leftovers(data_dir: &Path) -> Result<usize, LeftoversError> {
    let places = Places::new(data_dir)?;
    for record in read_records(&places)? {
        if let Some(pgid) = Pid::from_raw(record.pgid).filter(|_| record.is_alive()) {
            // Its members carry the mark as well; this takes them all at one blow.
            let _ = kill_process_group(pgid, Signal::KILL);
        }
    }
    let mut mark = workdir_mark(&places.work_root());
    mark.push(b'/');
    let n_killed = sweep(&|variable| variable.starts_with(&mark))?;
    remove_tree(&places.running_root())?;
    remove_tree(&places.work_root())?;
    Ok(n_killed)
}

/// Kills what carries the mark of this task, also outside its group.
pub(super) async fn sweep_task(places: &Places, task: u128) {
    let mark = workdir_mark(&places.work_dir(task));
    let swept = tokio::task::spawn_blocking(move || sweep(&|variable| variable == mark));
    match swept.await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::warn!(%error, "a stopped task left processes behind"),
        Err(error) => tracing::warn!(%error, "a stopped task could not be checked for processes left behind"),
    }
}

/// Until no process with the mark is alive. A process that forks while it is hunted is found on the next look.
fn sweep(is_marked: &dyn Fn(&[u8]) -> bool) -> Result<usize, LeftoversError> {
    let give_up_at = Instant::now() + DEATH_MAX;
    let mut seen = BTreeSet::new();
    loop {
        let alive = kill_marked(is_marked);
        if alive.is_empty() {
            return Ok(seen.len());
        }
        if Instant::now() >= give_up_at {
            return Err(LeftoversError::StillAlive { pids: alive });
        }
        seen.extend(alive);
        std::thread::sleep(LOOK);
    }
}

fn kill_marked(is_marked: &dyn Fn(&[u8]) -> bool) -> Vec<i32> {
    let own = rustix::process::getpid();
    let others = proc_table::pids().into_iter().filter_map(Pid::from_raw).filter(|pid| *pid != own);
    others.filter(|pid| kill_if_marked(*pid, is_marked)).map(|pid| pid.as_raw_nonzero().get()).collect()
}

/// The descriptor is opened before the mark is read, so the process that is killed is the one that was looked at.
fn kill_if_marked(pid: Pid, is_marked: &dyn Fn(&[u8]) -> bool) -> bool {
    let pidfd = pidfd_open(pid, PidfdFlags::empty());
    if !proc_table::environ_has(pid.as_raw_nonzero().get(), is_marked) {
        return false;
    }
    // An error says that it has died meanwhile, or is not ours to kill; the next look tells.
    let _ = match pidfd {
        Ok(pidfd) => pidfd_send_signal(pidfd, Signal::KILL),
        Err(_) => kill_process(pid, Signal::KILL),
    };
    true
}

fn read_records(places: &Places) -> io::Result<Vec<Record>> {
    let entries = match fs::read_dir(places.running_root()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut records = Vec::new();
    for entry in entries {
        // A draft that was never renamed, or a damaged file: the mark in the environment finds its process.
        if let Ok(record) = serde_json::from_slice(&fs::read(entry?.path())?) {
            records.push(record);
        }
    }
    Ok(records)
}

fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
