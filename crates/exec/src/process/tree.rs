//! Everything below one process, whatever session, group or environment it has chosen.
//!
//! A supervisor is a *child subreaper*: a process whose parent has died becomes its child. So everything a run has
//! started is below the supervisor for as long as it lives, also after `setsid` and a double fork, with an empty
//! environment and all output closed; and when the supervisor has no child left, nothing of the run is alive. That is the
//! proof this module waits for.
//!
//! A process that forks while it is looked for could outrun the search. So everything is stopped first, from the top
//! down: what is stopped starts nothing.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process, pidfd_open, pidfd_send_signal,
    set_child_subreaper, wait, waitid,
};

use super::proc_table;

/// Looks at the tree until nothing new is found in it; what forks faster than that is met again on the next strike.
const FREEZE_LOOKS_MAX: u32 = 20;

/// The flag of the kernel is not asked instead: it survives an `exec`, so this program may have been started with it by
/// somebody who has children of his own here.
static OWNS_DESCENDANTS: AtomicBool = AtomicBool::new(false);

/// From now on everything below this process belongs to the one run that it supervises: it becomes the parent of its
/// orphans, and at the end no child of any kind is left. Nothing else in this process may start one.
pub fn own_descendants() -> io::Result<()> {
    set_child_subreaper(Some(getpid()))?;
    OWNS_DESCENDANTS.store(true, Ordering::Relaxed);
    Ok(())
}

pub(super) fn owns_descendants() -> bool {
    OWNS_DESCENDANTS.load(Ordering::Relaxed)
}

/// Is there any child left?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Children {
    Some,
    None,
}

/// Takes the status of every child that has ended.
pub(super) fn reap() -> io::Result<Children> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return Ok(Children::Some),
            Err(Errno::CHILD) => return Ok(Children::None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The same while the run goes on, so that the orphans of a long one do not stay zombies until its end. The status of
/// `leader` is the run's, and not taken.
pub(super) fn reap_orphans(leader: Pid) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    // One system call in the usual case, when nobody has ended.
    if !matches!(waitid(WaitId::All, options | WaitIdOptions::NOWAIT), Ok(Some(_))) {
        return;
    }
    let own = raw(getpid());
    let ended = proc_table::all().into_iter().filter(|stat| stat.ppid == own && !stat.is_alive);
    for pid in ended.filter_map(|stat| Pid::from_raw(stat.pid)).filter(|pid| *pid != leader) {
        let _ = waitid(WaitId::Pid(pid), options);
    }
}

/// A process, and whose child it was when it was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Member {
    pid: Pid,
    parent: Pid,
}

/// Kills everything below this process. What forked meanwhile is there on the next strike.
pub(super) fn strike() {
    strike_below(getpid());
}

/// Kills everything below a supervisor, which must be alive: then what loses its parent comes to it.
pub(super) fn strike_below(root: Pid) {
    let mut stopped = HashSet::new();
    for _ in 0..FREEZE_LOOKS_MAX {
        let fresh: Vec<Member> = members(root).into_iter().filter(|member| !stopped.contains(&member.pid)).collect();
        if fresh.is_empty() {
            break;
        }
        fresh.iter().for_each(|member| send(member, root, Signal::STOP));
        stopped.extend(fresh.iter().map(|member| member.pid));
    }
    members(root).iter().for_each(|member| send(member, root, Signal::KILL));
}

/// Asks everything below `root` to end, except for those that are told otherwise.
pub(super) fn ask(root: Pid, is_asked: impl Fn(&proc_table::Stat) -> bool) {
    for member in members(root) {
        if proc_table::stat(raw(member.pid)).is_some_and(|stat| is_asked(&stat)) {
            send(&member, root, Signal::TERM);
        }
    }
}

/// Everything below a process that is more than a zombie.
pub(super) fn descendants_of(root: Pid) -> Vec<Pid> {
    members(root).into_iter().map(|member| member.pid).collect()
}

/// Each after its parent.
fn members(root: Pid) -> Vec<Member> {
    let mut children: BTreeMap<i32, Vec<proc_table::Stat>> = BTreeMap::new();
    for stat in proc_table::all() {
        children.entry(stat.ppid).or_default().push(stat);
    }
    let mut members = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for stat in children.remove(&raw(parent)).unwrap_or_default() {
            let Some(pid) = Pid::from_raw(stat.pid) else { continue };
            // A dead one may still be the parent of what its other threads have started.
            parents.push(pid);
            if stat.is_alive {
                members.push(Member { pid, parent });
            }
        }
    }
    members
}

/// A process that has died meanwhile has given its id back, perhaps to somebody else. So its parent is looked at again
/// behind an open descriptor: it is the one that was seen, or `root`, to whom orphans come.
fn send(member: &Member, root: Pid, signal: Signal) {
    let pidfd = pidfd_open(member.pid, PidfdFlags::empty());
    let parent = proc_table::stat(raw(member.pid)).map(|stat| stat.ppid);
    if parent != Some(raw(member.parent)) && parent != Some(raw(root)) {
        return;
    }
    // An error says that it has died meanwhile, or is not ours to signal.
    let _ = match pidfd {
        Ok(pidfd) => pidfd_send_signal(pidfd, signal),
        Err(Errno::NOSYS) => kill_process(member.pid, signal),
        Err(_) => Ok(()),
    };
}

fn raw(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}
