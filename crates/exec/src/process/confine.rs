//! A command starts inside its limits. What this machine cannot keep of them is told in sentences for people.

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::OnceLock;

use rustix::process::Pid;

use super::cgroup::{ControlGroup, Limit, Mover, Unmet, group_name};
use super::group::{Group, Role};
use super::rlimits;
use crate::job::Job;
use crate::limits::Limits;
use crate::outcome::{Class, Outcome};
use crate::places::Places;

pub(super) struct Confinement {
    name: String,
    run_dir: PathBuf,
    limits: Limits,
}

/// A command that runs, with what it is confined by.
pub(super) struct Confined {
    pub(super) child: Child,
    pub(super) control: ControlGroup,
    pub(super) not_enforced: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SpawnError {
    #[error(transparent)]
    Spawn(io::Error),
    #[error("the launcher is caught in a control group: {0}")]
    Caught(io::Error),
}

impl Confinement {
    pub(super) fn new(places: &Places, job: &Job) -> Confinement {
        Confinement {
            name: group_name(places, job.task, job.attempt),
            run_dir: places.run_dir(job.task, job.attempt),
            limits: job.limits,
        }
    }

    pub(super) fn spawn(&self, command: &mut Command) -> Result<Confined, SpawnError> {
        let (mut control, mut unmet) = ControlGroup::create(&self.name, &self.limits, Mover::here());
        let (inside, not_entered) = control.enter();
        unmet.extend(not_entered);
        let spawned = command.spawn();
        let left = inside.leave();
        let mut child = spawned.inspect_err(|_| control.remove()).map_err(SpawnError::Spawn)?;
        if let Err(error) = left {
            // What is inside together with the launcher must not be killed together with it.
            let _ = child.kill().and_then(|()| child.wait());
            return Err(SpawnError::Caught(error));
        }
        control.write_record(&self.run_dir);
        unmet.extend(control.arm());
        let not_enforced = unmet.iter().map(|unmet| make_up_for(unmet, &child)).collect();
        Ok(Confined { child, control, not_enforced })
    }
}

/// Does what can be done without a control group, and says what that is.
fn make_up_for(unmet: &Unmet, child: &Child) -> String {
    match unmet.limit {
        Limit::RamBytes(bytes) => match rlimits::limit_ram(Pid::from_child(child), bytes) {
            Ok(()) => sentence(unmet),
            Err(error) => format!("limits.ramMb is not enforced: {}; {error}", unmet.reason),
        },
        Limit::Cpu(_) | Limit::Pids(_) => sentence(unmet),
    }
}

fn sentence(unmet: &Unmet) -> String {
    let what = match unmet.limit {
        Limit::RamBytes(_) => "limits.ramMb is enforced for each process by itself, not for all together",
        Limit::Cpu(_) => "limits.cpu is not enforced",
        // The kernel alone counts only all processes of a user, not those of a run.
        Limit::Pids(_) => "limits.pids is not enforced",
    };
    format!("{what}: {}", unmet.reason)
}

/// What of these limits this machine does not keep for a supervised run, in sentences. The first call tries it.
pub fn not_enforced(limits: &Limits) -> Vec<String> {
    static UNMET: OnceLock<Vec<Unmet>> = OnceLock::new();
    let unmet = UNMET.get_or_init(try_all).iter().filter(|unmet| match unmet.limit {
        Limit::Cpu(_) => limits.cpu.is_some(),
        Limit::RamBytes(_) => limits.ram_mb.is_some(),
        Limit::Pids(_) => limits.pids.is_some(),
    });
    unmet.map(sentence).collect()
}

fn try_all() -> Vec<Unmet> {
    let name = format!("try-{}", uuid::Uuid::now_v7());
    let limits = Limits { cpu: Some(1.0), ram_mb: Some(64), pids: Some(64) };
    let (mut control, mut unmet) = ControlGroup::create(&name, &limits, Mover::Process);
    unmet.extend(control.arm());
    control.remove();
    unmet
}

/// A failure that the confinement brought about says so.
pub(super) fn explain(outcome: Outcome, group: &Group) -> Outcome {
    let Outcome::Failed(mut failure) = outcome else { return outcome };
    if let Some(mb) = group.out_of_memory() {
        failure.class = Class::Task;
        failure.message = format!("out of memory: limit {mb} MB");
    } else if group.role() == Role::Sandbox
        && let Some(reason) = failure.message.strip_prefix("exit code 1: bwrap: ")
    {
        // It speaks only before the command runs, and on the next attempt it would say the same.
        failure.message = format!("the sandbox cannot run the command: {reason}");
        failure.class = Class::Permanent;
    }
    Outcome::Failed(failure)
}
