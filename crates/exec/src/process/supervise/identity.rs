//! Which process is meant. A pid alone proves nothing: it is believed only with the same host, boot and start time.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;

use crate::process::{proc_table, system, tree};

/// How often a process that cannot be waited for is looked at.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Identity {
    pub pid: i32,
    pub host: String,
    pub boot_id: String,
    /// Clock ticks since boot, field 22 of `/proc/<pid>/stat`.
    pub process_start: u64,
}

impl Identity {
    pub(crate) fn of(pid: i32) -> Identity {
        let process_start = proc_table::stat(pid).map_or(0, |stat| stat.start);
        Identity { pid, host: proc_table::host(), boot_id: proc_table::boot_id(), process_start }
    }

    pub(crate) fn own() -> Identity {
        Identity::of(rustix::process::getpid().as_raw_nonzero().get())
    }

    /// Of this boot of this machine. What is not is dead, or out of reach.
    pub(crate) fn is_of_this_boot(&self) -> bool {
        self.host == proc_table::host() && self.boot_id == proc_table::boot_id()
    }

    /// By its name only: the same machine may have got another one.
    pub(crate) fn is_of_other_host(&self) -> bool {
        self.host != proc_table::host()
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.is_of_this_boot()
            && proc_table::stat(self.pid).is_some_and(|stat| stat.start == self.process_start && stat.is_alive)
    }

    /// None for a number that is nobody's: it came from a file, where anything may stand.
    fn raw(&self) -> Option<Pid> {
        Pid::from_raw(self.pid.max(0))
    }

    /// Sent to this very process or to nobody.
    pub(crate) fn signal(&self, signal: Signal) {
        let Some(pid) = self.raw() else { return };
        let pidfd = pidfd_open(pid, PidfdFlags::empty());
        // Looked at behind an open descriptor: whoever gets the pid afterwards is not behind it.
        if !self.is_alive() {
            return;
        }
        // An error says that it has died meanwhile.
        let _ = match pidfd {
            Ok(pidfd) => pidfd_send_signal(pidfd, signal),
            Err(_) => kill_process(pid, signal),
        };
    }

    /// Kills a supervisor with everything below it. It is stopped first, and still there while the rest is killed: so what
    /// loses its parent comes to it, and is found.
    pub(crate) fn kill_tree(&self) {
        self.signal(Signal::STOP);
        if let Some(root) = self.raw().filter(|_| self.is_alive()) {
            tree::strike_below(root);
        }
        self.signal(Signal::KILL);
    }

    /// Sees its end. It has ended already when it is not there.
    pub(crate) fn watch(&self) -> Watched {
        let pid = self.raw().filter(|_| self.is_of_this_boot());
        let pidfd = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty()).map_err(io::Error::from));
        let watched = match pidfd {
            Some(pidfd) if self.is_alive() => pidfd.and_then(system::watch_readable).ok(),
            _ => None,
        };
        Watched { identity: self.clone(), pidfd: watched }
    }
}

/// A process whose end is waited for, also one that is not our child.
pub(crate) struct Watched {
    identity: Identity,
    /// `None` on an old kernel, or when it is gone.
    pidfd: Option<AsyncFd<OwnedFd>>,
}

impl Watched {
    /// May be called again after it has returned.
    pub(crate) async fn ended(&self) {
        match &self.pidfd {
            // The readiness is not cleared: it stays true.
            Some(pidfd) => drop(pidfd.readable().await),
            None => {
                while self.identity.is_alive() {
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.identity.pid
    }

    pub(crate) fn kill_tree(&self) {
        self.identity.kill_tree();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        match &self.pidfd {
            // An error says that it has ended.
            Some(pidfd) => drop(pidfd_send_signal(pidfd.get_ref(), signal)),
            None => self.identity.signal(signal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_process_is_alive() {
        let own = Identity::own();
        assert!(own.is_alive());
        assert!(!Identity { process_start: own.process_start + 1, ..own.clone() }.is_alive());
        assert!(!Identity { boot_id: "another".to_owned(), ..own.clone() }.is_alive());
        assert!(!Identity { host: "another".to_owned(), ..own }.is_alive());
    }

    #[tokio::test]
    async fn the_end_of_a_process_is_seen_and_stays_seen() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("sleep can be started");
        let watched = Identity::of(child.id() as i32).watch();
        watched.signal(Signal::KILL);
        watched.ended().await;
        watched.ended().await;
        child.wait().expect("it has ended");
        Identity::of(1 << 30).watch().ended().await;
    }
}
