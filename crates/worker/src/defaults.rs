//! What the configuration says of a task at its start: what it gets that says nothing of its own, and whether it may run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use runyard_exec::docker::{self, LIMITS_DEFAULT};
use runyard_exec::{DockerRules, Kind, Limits, Sandbox, WorkspaceRules};
use serde_json::value::RawValue;

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ProcessDefaults {
    pub sandbox: Sandbox,
    pub limits: Limits,
    pub output_bytes: Option<u64>,
    pub workspace: WorkspaceRules,
}

/// Asked anew for each start, so that a change of the configuration counts from the next one on.
pub type ProcessDefaultsNow = Arc<dyn Fn() -> ProcessDefaults + Send + Sync>;

/// What containers get, and whether there are any.
#[derive(Clone, PartialEq, Debug)]
pub struct DockerDefaults {
    pub offer: DockerOffer,
    pub limits: Limits,
    pub output_bytes: Option<u64>,
    /// For their working directories.
    pub workspace: WorkspaceRules,
    pub rules: DockerRules,
}

/// Is the kind offered?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DockerOffer {
    /// When the engine answers as the worker starts.
    #[default]
    Auto,
    Always,
    Never,
}

impl Default for DockerDefaults {
    fn default() -> DockerDefaults {
        DockerDefaults {
            offer: DockerOffer::default(),
            limits: LIMITS_DEFAULT,
            output_bytes: None,
            workspace: WorkspaceRules::default(),
            rules: DockerRules::default(),
        }
    }
}

impl DockerDefaults {
    /// Of the kinds there are, those that a worker with this configuration can run now. The engine is asked: it blocks,
    /// for a few seconds at most.
    pub fn kinds_offered(&self) -> Vec<Kind> {
        let offers_docker = match self.offer {
            DockerOffer::Auto => docker::answers(&self.rules.socket),
            DockerOffer::Always => true,
            DockerOffer::Never => false,
        };
        Kind::ALL.into_iter().filter(|kind| *kind != Kind::Docker || offers_docker).collect()
    }
}

/// Asked anew for each start too.
pub type DockerDefaultsNow = Arc<dyn Fn() -> DockerDefaults + Send + Sync>;

/// Whether a payload of this kind may be run, asked anew for each start too. The error names the rule that is against it.
pub type MayRun = Arc<dyn Fn(&str, &RawValue) -> Result<(), String> + Send + Sync>;

/// All that is asked for at a start.
pub(crate) struct Defaults {
    pub process: ProcessDefaultsNow,
    pub docker: DockerDefaultsNow,
}

/// What a job of some kind gets.
pub(crate) struct Given {
    pub sandbox: Sandbox,
    pub limits: Limits,
    pub output_bytes: Option<u64>,
    pub workspace: WorkspaceRules,
    pub docker: Option<Box<DockerRules>>,
}

impl Defaults {
    pub(crate) fn of(&self, kind: Kind) -> Given {
        if kind == Kind::Docker {
            let DockerDefaults { offer: _, limits, output_bytes, workspace, rules } = (self.docker)();
            let docker = Some(Box::new(rules));
            return Given { sandbox: Sandbox::None, limits, output_bytes, workspace, docker };
        }
        let ProcessDefaults { sandbox, limits, output_bytes, workspace } = (self.process)();
        let output_bytes = output_bytes.filter(|_| kind == Kind::Process);
        Given { sandbox, limits, output_bytes, workspace, docker: None }
    }
}

/// Kinds of a worker's own, each with the program that runs them: it reads the payload as JSON, and what it prints is the
/// result.
pub type Programs = BTreeMap<String, PathBuf>;

/// All that is asked when a start becomes a job.
pub(crate) struct Rules {
    pub defaults: Defaults,
    pub may_run: MayRun,
    pub programs: Programs,
}
