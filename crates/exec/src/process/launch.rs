//! Starts processes, on a thread of its own where there are others.
//!
//! The thread is there because the kernel binds "die with your parent" to the *thread* that forked, and a runtime's
//! threads come and go. It also keeps the fork, and the few file operations around it, away from the runtime. A
//! supervisor has one thread and one process to start, and needs neither.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;

use tokio::sync::oneshot;

use super::confine::{Confinement, SpawnError};
use super::group::{Group, Role};
use super::sandbox::Sandbox;
use super::{environment, system};
use crate::job::Job;
use crate::outcome::{Class, Failure};
use crate::payload::{self, PayloadError, ProcessPayload, Stdin};
use crate::places::Places;

pub(super) enum Launcher {
    Thread(mpsc::Sender<Request>),
    Here,
}

pub(super) struct Request {
    plan: Plan,
    reply: oneshot::Sender<Result<Launched, Failure>>,
}

/// A process that runs, with our ends of its pipes.
pub(super) struct Launched {
    pub group: Group,
    pub stdin: Option<OwnedFd>,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    /// Limits that this machine does not keep, as sentences.
    pub not_enforced: Vec<String>,
}

impl Launcher {
    pub(super) fn with_thread() -> io::Result<Launcher> {
        let (requests, inbox) = mpsc::channel::<Request>();
        std::thread::Builder::new().name("runyard-launch".to_owned()).spawn(move || {
            for Request { plan, reply } in inbox {
                // Whoever asked may have gone; dropping what was launched kills it.
                let _ = reply.send(plan.launch());
            }
        })?;
        Ok(Launcher::Thread(requests))
    }

    pub(super) async fn launch(&self, plan: Plan) -> Result<Launched, Failure> {
        let Launcher::Thread(requests) = self else { return plan.launch() };
        let (reply, answer) = oneshot::channel();
        let gone = || Failure::worker("the thread that starts processes is gone");
        requests.send(Request { plan, reply }).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

/// All that is needed to start one process.
pub(super) struct Plan {
    data_dir: PathBuf,
    work_dir: PathBuf,
    cwd: PathBuf,
    payload: ProcessPayload,
    sandbox: payload::Sandbox,
    confinement: Confinement,
    own_env: Vec<(&'static str, std::ffi::OsString)>,
}

impl Plan {
    pub(super) fn new(places: &Places, job: &Job, payload: ProcessPayload) -> Result<Plan, PayloadError> {
        let work_dir = places.work_dir(job.task);
        Ok(Plan {
            data_dir: places.data_dir().to_owned(),
            cwd: payload.cwd.clone().unwrap_or_else(|| work_dir.clone()),
            work_dir,
            sandbox: payload.sandbox(job.sandbox)?,
            payload,
            confinement: Confinement::new(places, job),
            own_env: environment::own(job, places.work_dir(job.task).into(), places.report_file(job.task).into()),
        })
    }

    fn launch(self) -> Result<Launched, Failure> {
        check_cwd(&self.cwd)?;
        let mut confined = self.confinement.spawn(&mut self.command()?).map_err(|error| match error {
            SpawnError::Spawn(error) => spawn_failure(&self.payload.argv[0], &error),
            SpawnError::Caught(_) => Failure::worker(error.to_string()),
        })?;
        let child = &mut confined.child;
        let stdin = child.stdin.take().map(OwnedFd::from);
        let stdout = OwnedFd::from(child.stdout.take().expect("standard output is piped"));
        let stderr = OwnedFd::from(child.stderr.take().expect("standard error is piped"));
        let group = Group::new(confined.child, self.role(), confined.control);
        Ok(Launched { group, stdin, stdout, stderr, not_enforced: confined.not_enforced })
    }

    fn role(&self) -> Role {
        match self.sandbox {
            payload::Sandbox::None => Role::Command,
            payload::Sandbox::Bubblewrap => Role::Sandbox,
        }
    }

    fn argv(&self) -> Result<Vec<std::ffi::OsString>, Failure> {
        let argv = &self.payload.argv;
        if self.sandbox == payload::Sandbox::None {
            return Ok(argv.iter().map(Into::into).collect());
        }
        let network = self.payload.has_network();
        Sandbox { data_dir: &self.data_dir, work_dir: &self.work_dir, cwd: &self.cwd, network }
            .argv(argv, &environment::path())
    }

    fn command(&self) -> Result<Command, Failure> {
        let argv = self.argv()?;
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).current_dir(&self.cwd).process_group(0);
        command.env_clear().envs(environment::inherited()).envs(&self.payload.env);
        command.envs(self.own_env.iter().map(|(name, value)| (name, value)));
        command.stdin(if self.payload.stdin == Stdin::Nothing { Stdio::null() } else { Stdio::piped() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        system::die_with_parent(&mut command);
        Ok(command)
    }
}

/// Asked before the start, because the system gives the same error for a missing program.
fn check_cwd(cwd: &Path) -> Result<(), Failure> {
    let message = match fs::metadata(cwd) {
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(_) => format!("cwd {} is not a directory", cwd.display()),
        Err(error) => format!("cwd {} cannot be used: {error}", cwd.display()),
    };
    Err(Failure::work(Class::Permanent, message))
}

fn spawn_failure(program: &str, error: &io::Error) -> Failure {
    use rustix::io::Errno;
    let permanent = |message: String| Failure::work(Class::Permanent, message);
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => permanent(format!("program `{program}` was not found, or its interpreter was not")),
        Some(Errno::ACCESS | Errno::NOEXEC | Errno::ISDIR | Errno::NOTDIR) => {
            permanent(format!("program `{program}` cannot be executed: {error}"))
        }
        Some(Errno::TOOBIG) => permanent("arguments and environment are too long for the system".to_owned()),
        // No memory, no process ids, no file descriptors left: this machine's fault.
        _ => Failure::worker(format!("program `{program}` cannot be started: {error}")),
    }
}
