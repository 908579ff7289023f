//! Processes of one data directory, as the kernel tells of them.

use std::path::PathBuf;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The descriptor of the lock that a task's program opens, and that everything below it inherits.
const LOCK_FD: u32 = 9;

/// Where everything of a run of the test lies.
#[derive(Clone)]
pub struct Grounds {
    pub home: PathBuf,
    pub data: PathBuf,
}

impl Grounds {
    pub fn script(&self) -> PathBuf {
        self.home.join("work.sh")
    }

    pub fn locks(&self) -> PathBuf {
        self.home.join("locks")
    }

    pub fn diaries(&self) -> PathBuf {
        self.home.join("diaries")
    }
}

#[derive(Clone, Debug)]
pub struct Process {
    pub pid: i32,
    /// With the pid it names one process for ever.
    start: u64,
    pub role: Role,
    /// From its environment, which some have thrown away.
    pub attempt: Option<u32>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Role {
    Supervisor,
    /// The program of a task itself.
    Command {
        task: String,
    },
    /// What that has started.
    Below {
        task: String,
    },
}

impl Process {
    pub fn task(&self) -> Option<&str> {
        match &self.role {
            Role::Command { task } | Role::Below { task } => Some(task),
            Role::Supervisor => None,
        }
    }

    /// More than a zombie, and still the same.
    pub fn is_alive(&self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.start == self.start)
    }

    /// To this very process or to nobody.
    pub fn signal(&self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        if self.is_alive() {
            // An error says that it has ended meanwhile.
            let _ = pidfd_send_signal(pidfd, signal);
        }
    }
}

/// Everything that belongs to these grounds and is alive, except for servers.
pub fn all(grounds: &Grounds) -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| look(grounds, pid)).collect()
}

/// Most processes are somebody else's, and this is done all the time: what is cheap comes first.
fn look(grounds: &Grounds, pid: i32) -> Option<Process> {
    let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let program = program_of(grounds, &arguments);
    let role = match (lock_of(grounds, pid), &program) {
        (None, None) if is_supervisor(grounds, &arguments) => Role::Supervisor,
        (None, None) => return None,
        (Some(task), None) => Role::Below { task },
        (_, Some(task)) => Role::Command { task: task.clone() },
    };
    let Stat { start, pgid } = stat(pid)?;
    let role = match role {
        // A shell that has forked, and whose child is about to become something else.
        Role::Command { task } if pgid != pid => Role::Below { task },
        role => role,
    };
    Some(Process { pid, start, role, attempt: attempt_of(pid) })
}

/// The number of the task whose lock it has open.
fn lock_of(grounds: &Grounds, pid: i32) -> Option<String> {
    let file = std::fs::read_link(format!("/proc/{pid}/fd/{LOCK_FD}")).ok()?;
    let name = file.strip_prefix(grounds.locks()).ok()?.to_str()?;
    name.strip_prefix("task-").map(str::to_owned)
}

/// The number of the task whose program it is, by its command line: `sh HOME/work.sh HOME NUMBER …`.
fn program_of(grounds: &Grounds, arguments: &[u8]) -> Option<String> {
    let rest = arguments.strip_prefix(b"sh\0")?;
    let rest = rest.strip_prefix(grounds.script().as_os_str().as_encoded_bytes())?;
    let number = rest.split(|byte| *byte == 0).nth(2)?;
    Some(String::from_utf8_lossy(number).into_owned())
}

fn is_supervisor(grounds: &Grounds, arguments: &[u8]) -> bool {
    let run = arguments.strip_prefix(b"runyard\0supervise\0--run\0");
    run.is_some_and(|run| run.starts_with(grounds.data.as_os_str().as_encoded_bytes()))
}

fn attempt_of(pid: i32) -> Option<u32> {
    let environ = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut values = environ.split(|byte| *byte == 0).filter_map(|variable| variable.strip_prefix(b"RUNYARD_ATTEMPT="));
    std::str::from_utf8(values.next()?).ok()?.parse().ok()
}

struct Stat {
    start: u64,
    pgid: i32,
}

/// `None` for a zombie too.
fn stat(pid: i32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let is_alive = !matches!(*fields.first()?, "Z" | "X" | "x");
    is_alive.then_some(())?;
    Some(Stat { pgid: fields.get(2)?.parse().ok()?, start: fields.get(19)?.parse().ok()? })
}
