//! A process group with its leader: asked, killed, and confirmed dead.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, test_kill_process_group, waitid,
};
use tokio::io::unix::AsyncFd;

use super::{proc_table, system};

/// How often something that cannot be waited for is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// A killed process that is still there after this is stuck in the kernel; somebody should know.
const STUCK_LOOKS: u32 = 500;

pub(super) struct Group {
    /// Gone once it is reaped.
    leader: Option<Child>,
    pgid: Pid,
}

impl Group {
    /// The child must have been started as the leader of a group of its own.
    pub(super) fn new(leader: Child) -> Group {
        let pgid = Pid::from_child(&leader);
        Group { leader: Some(leader), pgid }
    }

    pub(super) fn pid(&self) -> i32 {
        self.pgid.as_raw_nonzero().get()
    }

    /// The request to stop goes to all of them: a shell does not pass it on to its children.
    pub(super) fn ask(&self) {
        let _ = kill_process_group(self.pgid, Signal::TERM);
    }

    pub(super) fn kill(&self) {
        let _ = kill_process_group(self.pgid, Signal::KILL);
    }

    /// Kills the whole group while the leader, dead or alive, still holds its id; then takes the leader's status.
    pub(super) fn kill_and_reap(&mut self) -> io::Result<ExitStatus> {
        self.kill();
        let mut leader = self.leader.take().expect("a group is reaped once");
        leader.wait()
    }

    /// Until nobody but the leader is alive in the group.
    pub(super) async fn emptied(&self) {
        while proc_table::alive_in_group(self.pid()).iter().any(|pid| *pid != self.pid()) {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Until no process of the group is alive. There is no bound: the lease is held as long as something runs.
    pub(super) async fn confirm_dead(&self) {
        let mut n_looks: u32 = 0;
        while self.is_alive() {
            n_looks += 1;
            if n_looks == STUCK_LOOKS {
                tracing::warn!(pgid = self.pid(), "a killed process group does not die");
            }
            self.kill();
            tokio::time::sleep(LOOK).await;
        }
    }

    /// One system call in the usual case. A group of zombies that their parent never reaps is still a group to the
    /// kernel, so when it says that there is one, the table decides.
    fn is_alive(&self) -> bool {
        test_kill_process_group(self.pgid).is_ok() && !proc_table::alive_in_group(self.pid()).is_empty()
    }
}

/// A run that is given up (the runtime goes down, a panic) must not leave its processes behind.
impl Drop for Group {
    fn drop(&mut self) {
        if let Some(mut leader) = self.leader.take() {
            self.kill();
            // Reaping may have to wait, and a destructor must not.
            let _ = std::thread::Builder::new().name("runyard-reap".to_owned()).spawn(move || leader.wait());
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
        Group::new(command.spawn().expect("sh can be started"))
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
