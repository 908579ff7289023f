//! A process group with its leader, and everything else the run has started: asked, killed, and confirmed dead.
//!
//! How much of the rest can be found depends on where this runs. In a supervisor everything below it is the run's, see
//! [`tree`], and the proof of its death is that no child is left. Elsewhere there is the control group, if the machine
//! gives one, and whoever asks for a proof has to look for the mark in the environments.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, kill_process_group, pidfd_open, test_kill_process_group,
    waitid,
};
use tokio::io::unix::AsyncFd;

use super::cgroup::ControlGroup;
use super::tree::{self, Children};
use super::{proc_table, system};

/// How often something that cannot be waited for is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// A killed process that is still there after this is stuck in the kernel; somebody should know.
const STUCK_LOOKS: u32 = 500;

pub(super) struct Group {
    /// Gone once it is reaped.
    leader: Option<Child>,
    pgid: Pid,
    role: Role,
    control: ControlGroup,
    out_of_memory: Option<u64>,
}

/// What the leader is to the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Command,
    /// Only there to hold a sandbox, which dies with it at once. The command is below it, in a session of its own.
    Sandbox,
}

impl Group {
    /// The child must have been started as the leader of a process group of its own, and inside the control group.
    pub(super) fn new(leader: Child, role: Role, control: ControlGroup) -> Group {
        let pgid = Pid::from_child(&leader);
        Group { leader: Some(leader), pgid, role, control, out_of_memory: None }
    }

    pub(super) fn pid(&self) -> i32 {
        self.pgid.as_raw_nonzero().get()
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    /// The request to stop goes to all of them: a shell does not pass it on to its children.
    pub(super) fn ask(&self) {
        let root = if tree::owns_descendants() { getpid() } else { self.pgid };
        match self.role {
            Role::Command => {
                // First who is elsewhere: they are found below the leader only as long as it lives.
                tree::ask(root, |stat| stat.pgid != self.pid());
                let _ = kill_process_group(self.pgid, Signal::TERM);
            }
            Role::Sandbox => tree::ask(root, |stat| stat.pid != self.pid()),
        }
    }

    pub(super) fn kill(&self) {
        self.control.kill();
        let _ = kill_process_group(self.pgid, Signal::KILL);
    }

    /// Kills the whole group while the leader, dead or alive, still holds its id; then takes the leader's status.
    pub(super) fn kill_and_reap(&mut self) -> io::Result<ExitStatus> {
        self.kill();
        let mut leader = self.leader.take().expect("a group is reaped once");
        leader.wait()
    }

    /// To be called from time to time: the orphans that a supervisor inherits stay zombies until then.
    pub(super) fn reap_orphans(&self) {
        if tree::owns_descendants() {
            tree::reap_orphans(self.pgid);
        }
    }

    /// Until nobody but the leader is alive.
    pub(super) async fn emptied(&self) {
        while self.others_alive() {
            tokio::time::sleep(LOOK).await;
        }
    }

    fn others_alive(&self) -> bool {
        if tree::owns_descendants() {
            return tree::descendants_of(getpid()).iter().any(|pid| *pid != self.pgid);
        }
        proc_table::alive_in_group(self.pid()).iter().any(|pid| *pid != self.pid())
    }

    /// Until nothing that can be found is alive. There is no bound: the lease is held as long as something runs.
    pub(super) async fn confirm_dead(&mut self) {
        let mut n_looks: u32 = 0;
        while self.is_alive() {
            n_looks += 1;
            if n_looks.is_multiple_of(STUCK_LOOKS) {
                tracing::warn!(pgid = self.pid(), alive = ?self.alive(), "killed processes do not die");
            }
            self.kill();
            if tree::owns_descendants() {
                tree::strike();
            }
            // What is killed is mostly gone at once.
            tokio::time::sleep(LOOK.min(Duration::from_millis(u64::from(n_looks)))).await;
        }
        self.out_of_memory = self.control.out_of_memory();
        let mut control = std::mem::take(&mut self.control);
        if !control.try_remove() {
            // The kernel needs a moment, which is not the runtime's.
            let _ = tokio::task::spawn_blocking(move || control.remove()).await;
        }
    }

    /// Was it confirmed for everything the run has started, or only for what could be found?
    pub(super) fn is_proven_dead(&self) -> bool {
        self.leader.is_none() && tree::owns_descendants()
    }

    /// The limit in MiB, if the kernel has killed something to keep it. Known once everything is dead.
    pub(super) fn out_of_memory(&self) -> Option<u64> {
        self.out_of_memory
    }

    /// A few system calls in the usual case.
    fn is_alive(&self) -> bool {
        if tree::owns_descendants() {
            // Whoever cannot be waited for is not gone.
            return !matches!(tree::reap(), Ok(Children::None));
        }
        // A group of zombies that their parent never reaps is still a group to the kernel, so when it says that there is
        // one, the table decides.
        test_kill_process_group(self.pgid).is_ok() && !proc_table::alive_in_group(self.pid()).is_empty()
            || !self.control.alive().is_empty()
    }

    fn alive(&self) -> Vec<i32> {
        if tree::owns_descendants() {
            return tree::descendants_of(getpid()).iter().map(|pid| pid.as_raw_nonzero().get()).collect();
        }
        let mut alive = proc_table::alive_in_group(self.pid());
        alive.extend(self.control.alive());
        alive
    }
}

/// A run that is given up (the runtime goes down, a panic) must not leave its processes behind.
impl Drop for Group {
    fn drop(&mut self) {
        if let Some(mut leader) = self.leader.take() {
            self.kill();
            let mut control = std::mem::take(&mut self.control);
            // Reaping may have to wait, and a destructor must not.
            let reap = move || {
                let _ = leader.wait();
                control.remove();
            };
            let _ = std::thread::Builder::new().name("runyard-reap".to_owned()).spawn(reap);
        }
    }
}

/// Tells when the leader has exited, without reaping it.
pub(super) enum LeaderExit {
    Pidfd(AsyncFd<OwnedFd>),
    /// An old kernel: looked at from time to time.
    Polled(Pid),
}

impl LeaderExit {
    pub(super) fn of(group: &Group) -> LeaderExit {
        let pidfd = pidfd_open(group.pgid, PidfdFlags::empty()).map_err(io::Error::from);
        match pidfd.and_then(system::watch_readable) {
            Ok(fd) => LeaderExit::Pidfd(fd),
            Err(_) => LeaderExit::Polled(group.pgid),
        }
    }

    /// May be called again after it has returned.
    pub(super) async fn wait(&self) {
        match self {
            // The readiness is not cleared: it stays true.
            LeaderExit::Pidfd(fd) => drop(fd.readable().await),
            LeaderExit::Polled(pid) => {
                while !has_exited(*pid) {
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
    }
}

fn has_exited(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    // An error means that there is nothing to wait for any more.
    !matches!(waitid(WaitId::Pid(pid), options), Ok(None))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;

    fn spawn(line: &str) -> Group {
        let mut command = Command::new("sh");
        command.args(["-c", line]).stdin(Stdio::null()).process_group(0);
        Group::new(command.spawn().expect("sh can be started"), Role::Command, ControlGroup::default())
    }

    #[tokio::test]
    async fn an_exit_is_seen_with_and_without_a_pidfd_and_the_leader_is_not_reaped() {
        for polled in [false, true] {
            let mut group = spawn("exit 3");
            let exit = if polled { LeaderExit::Polled(group.pgid) } else { LeaderExit::of(&group) };
            exit.wait().await;
            exit.wait().await;
            assert_eq!(proc_table::stat(group.pid()).map(|stat| stat.is_alive), Some(false));
            assert_eq!(group.kill_and_reap().expect("a status").code(), Some(3));
            group.confirm_dead().await;
        }
    }

    #[tokio::test]
    async fn a_dropped_group_is_killed() {
        let group = spawn("sleep 1000 & sleep 1000");
        let pgid = group.pid();
        drop(group);
        while !proc_table::alive_in_group(pgid).is_empty() {
            tokio::time::sleep(LOOK).await;
        }
    }
}
