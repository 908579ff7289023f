//! Finds and kills what a run left behind: all runs after a crash of the server, or one run that let a process escape
//! from its group.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open, pidfd_send_signal};

use super::environment::workdir_mark;
use super::proc_table::{self, Environ};
use super::supervise::{Unreadable, clear_leases};
use crate::places::{Places, is_kept};
use crate::workspace::tree;

const DEATH_MAX: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug, thiserror::Error)]
pub enum LeftoversError {
    #[error("what earlier runs left behind cannot be read")]
    Io(#[from] io::Error),
    #[error("processes of an earlier run do not die: {pids:?}")]
    StillAlive { pids: Vec<i32> },
}

/// Kills every process that an earlier server on this data directory left running, waits until they are dead, and
/// removes their lease files and working directories. Returns how many there were. To be called once, before anything is
/// started; it blocks, for a few milliseconds when there is nothing to do.
pub fn reap_leftovers(data_dir: &Path) -> Result<usize, LeftoversError> {
    Ok(reap(&Places::new(data_dir)?, &BTreeSet::new(), &BTreeSet::new())?.n_killed)
}

pub(super) struct Reaped {
    pub n_killed: usize,
    /// Lease files.
    pub unreadable: Vec<Unreadable>,
}

/// As [`reap_leftovers`], but those of the first of these tasks go on, and the directories of the others are still needed:
/// what their runs left has not been collected.
pub(super) fn reap(
    places: &Places,
    keep: &BTreeSet<u128>,
    unsettled: &BTreeSet<u128>,
) -> Result<Reaped, LeftoversError> {
    let leases = clear_leases(places, keep)?;
    for command in leases.commands {
        if let Some(pgid) = Pid::from_raw(command.pid.max(0)).filter(|_| command.is_alive()) {
            // Its members carry the mark as well; this takes them all at one blow.
            let _ = kill_process_group(pgid, Signal::KILL);
        }
    }
    let mut mark = workdir_mark(&places.work_root());
    mark.push(b'/');
    let kept: BTreeSet<Vec<u8>> = keep.iter().map(|task| workdir_mark(&places.work_dir(*task))).collect();
    let n_killed = sweep(&|variable| variable.starts_with(&mark) && !kept.contains(variable))?;
    remove_work_dirs(places, keep.union(unsettled));
    Ok(Reaped { n_killed, unreadable: leases.unreadable })
}

/// Kills what carries the mark of this task, also outside its group. It reads the environment of every process on the
/// machine, so it has a thread of its own.
pub(super) async fn sweep_task(places: &Places, task: u128) -> Result<usize, LeftoversError> {
    let mark = workdir_mark(&places.work_dir(task));
    let swept = tokio::task::spawn_blocking(move || sweep(&|variable| variable == mark));
    swept.await.map_err(io::Error::other)?
}

/// Until no process with the mark is alive. A process that forks while it is hunted is found on the next look, and so
/// is one that was in the middle of an `exec`, when it has no environment to show. One that has none on two looks was
/// started without.
fn sweep(is_marked: &dyn Fn(&[u8]) -> bool) -> Result<usize, LeftoversError> {
    let give_up_at = Instant::now() + DEATH_MAX;
    let (mut killed, mut blank) = (BTreeSet::new(), BTreeSet::new());
    loop {
        let found = look(is_marked);
        let newly_blank = found.blank.iter().filter(|pid| blank.insert(**pid)).count();
        if found.marked.is_empty() && newly_blank == 0 {
            return Ok(killed.len());
        }
        if Instant::now() >= give_up_at {
            return if found.marked.is_empty() {
                Ok(killed.len())
            } else {
                Err(LeftoversError::StillAlive { pids: found.marked })
            };
        }
        killed.extend(found.marked);
        std::thread::sleep(LOOK);
    }
}

/// One look at all processes.
#[derive(Default)]
struct Found {
    /// Carries the mark, and has been sent a kill.
    marked: Vec<i32>,
    /// Shows no environment.
    blank: Vec<i32>,
}

fn look(is_marked: &dyn Fn(&[u8]) -> bool) -> Found {
    let own = rustix::process::getpid();
    let mut found = Found::default();
    for pid in proc_table::pids().into_iter().filter_map(Pid::from_raw).filter(|pid| *pid != own) {
        let raw = pid.as_raw_nonzero().get();
        match proc_table::environ(raw) {
            Environ::Shown(variables) if variables.has(is_marked) => {
                if kill_if_marked(pid, is_marked) {
                    found.marked.push(raw);
                }
            }
            Environ::Blank => found.blank.push(raw),
            Environ::Shown(_) | Environ::Gone => {}
        }
    }
    found
}

/// The mark is read again behind an open descriptor, so the process that is killed is the one that was looked at.
fn kill_if_marked(pid: Pid, is_marked: &dyn Fn(&[u8]) -> bool) -> bool {
    let pidfd = pidfd_open(pid, PidfdFlags::empty());
    match proc_table::environ(pid.as_raw_nonzero().get()) {
        Environ::Shown(variables) if variables.has(is_marked) => {}
        // In the middle of an `exec`: it counts, so that there is another look.
        Environ::Blank => return true,
        Environ::Shown(_) | Environ::Gone => return false,
    }
    // An error says that it has died meanwhile, or is not ours to kill; the next look tells.
    let _ = match pidfd {
        Ok(pidfd) => pidfd_send_signal(pidfd, Signal::KILL),
        Err(_) => kill_process(pid, Signal::KILL),
    };
    true
}

/// Those of runs that nobody knows of. One that its task's policy keeps has a mark beside it.
fn remove_work_dirs<'a>(places: &Places, keep: impl Iterator<Item = &'a u128>) {
    let kept: BTreeSet<PathBuf> = keep.map(|task| places.work_dir(*task)).collect();
    let Ok(entries) = fs::read_dir(places.work_root()) else { return };
    let folders = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
    folders.filter(|path| !kept.contains(path) && !is_kept(path)).for_each(|path| remove_tree(&path));
}

/// What cannot be removed is in nobody's way: each attempt makes its own places anew.
fn remove_tree(path: &Path) {
    if let Err(error) = tree::remove(path) {
        tracing::warn!(path = %path.display(), %error, "what an earlier run left behind cannot be removed");
    }
}
