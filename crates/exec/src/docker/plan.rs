//! From a job to the container that is asked for. Everything that keeps a container in its place is here.

use std::collections::HashMap;

use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigLogConfig, Mount, MountBindOptions, MountBindOptionsPropagationEnum,
    MountType, RestartPolicy, RestartPolicyNameEnum,
};

use super::LIMITS_DEFAULT;
use super::engine::EngineFacts;
use super::owner::Owner;
use crate::job::{Job, task_of_text};
use crate::limits::Limits;
use crate::payload::{DockerPayload, Root, Stdin, User};
use crate::places::{Places, REPORT_FILE};
use crate::process::environment;

/// Where a container finds its task's working directory.
pub(super) const WORK_DIR: &str = "/workspace";
const LABEL_TASK: &str = "runyard.task";
const LABEL_ATTEMPT: &str = "runyard.attempt";
const LABEL_OWNER: &str = "runyard.owner";
/// Beside the working directory, what can be written to when the root cannot. It is memory, and counts as such.
const TMPFS: [(&str, &str); 2] =
    [("/tmp", "rw,nosuid,nodev,exec,size=256m,mode=1777"), ("/run", "rw,nosuid,nodev,size=16m,mode=1777")];
const NANO: f64 = 1e9;

/// All that is needed to make one container.
pub(super) struct Plan<'a> {
    pub places: &'a Places,
    pub job: &'a Job,
    pub payload: &'a DockerPayload,
    pub owner: &'a Owner,
    pub user: User,
    pub engine: EngineFacts,
}

/// The name is the lock: an engine has one container of a name, so a task never has two, whichever attempt made them.
pub(super) fn name_of(owner: &Owner, task: &str) -> String {
    format!("runyard-{}-{task}", owner.as_str())
}

pub(super) fn owner_filter(owner: &Owner) -> String {
    format!("{LABEL_OWNER}={}", owner.as_str())
}

/// Which task and attempt a container is of.
pub(super) fn run_of(labels: &HashMap<String, String>) -> Option<(u128, u32)> {
    Some((task_of_text(labels.get(LABEL_TASK)?)?, labels.get(LABEL_ATTEMPT)?.parse().ok()?))
}

impl Plan<'_> {
    pub(super) fn limits(&self) -> Limits {
        self.job.limits.or(LIMITS_DEFAULT)
    }

    pub(super) fn takes_stdin(&self) -> bool {
        self.payload.stdin != Stdin::Nothing
    }

    pub(super) fn body(&self) -> ContainerCreateBody {
        let stdin = self.takes_stdin();
        ContainerCreateBody {
            image: Some(self.payload.image.clone()),
            entrypoint: self.payload.entrypoint.clone(),
            cmd: self.payload.command.clone(),
            env: Some(self.env()),
            user: Some(format!("{}:{}", self.user.uid, self.user.gid)),
            working_dir: Some(WORK_DIR.to_owned()),
            open_stdin: Some(stdin),
            stdin_once: Some(stdin),
            attach_stdin: Some(stdin),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            tty: Some(false),
            labels: Some(self.labels()),
            host_config: Some(self.host_config()),
            ..ContainerCreateBody::default()
        }
    }

    fn labels(&self) -> HashMap<String, String> {
        let labels = [
            (LABEL_TASK, self.job.task_text()),
            (LABEL_ATTEMPT, self.job.attempt.to_string()),
            (LABEL_OWNER, self.owner.as_str().to_owned()),
        ];
        labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The payload's own variables, and over them what tells the work who it is, with paths as they are inside.
    fn env(&self) -> Vec<String> {
        let mut variables = self.payload.env.clone();
        // The root is read-only as a rule, and the user has no home in the image.
        variables.entry("HOME".to_owned()).or_insert_with(|| "/tmp".to_owned());
        let (work_dir, report) = (WORK_DIR.into(), format!("{WORK_DIR}/{REPORT_FILE}").into());
        for (name, value) in environment::own(self.job, work_dir, report) {
            variables.insert(name.to_owned(), value.to_string_lossy().into_owned());
        }
        variables.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    fn host_config(&self) -> HostConfig {
        let limits = self.limits();
        let memory = limits.ram_bytes().and_then(|bytes| i64::try_from(bytes).ok());
        let User { uid, gid } = self.user;
        // The user's own: some engines give it the mode of the directory in the image, whatever is asked for.
        let tmpfs = TMPFS.map(|(path, options)| (path.to_owned(), format!("{options},uid={uid},gid={gid}")));
        HostConfig {
            nano_cpus: limits.cpu.map(|cpu| self.nano_cpus(cpu)),
            memory,
            // Of memory and swap together, so this is none.
            memory_swap: memory,
            pids_limit: limits.pids.map(i64::from),
            network_mode: Some(self.payload.network.clone()),
            readonly_rootfs: Some(self.payload.root == Root::ReadOnly),
            cap_drop: Some(vec!["ALL".to_owned()]),
            security_opt: Some(vec!["no-new-privileges".to_owned()]),
            tmpfs: Some(tmpfs.into()),
            mounts: Some(vec![self.workspace()]),
            // The output is read as it comes; the engine need not keep it as well.
            log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
            restart_policy: Some(RestartPolicy { name: Some(RestartPolicyNameEnum::NO), maximum_retry_count: None }),
            // Somebody has to reap orphans and to pass signals on, and a command as process 1 does neither.
            init: Some(true),
            userns_mode: self.engine.remaps_users.then(|| "host".to_owned()),
            ipc_mode: Some("private".to_owned()),
            auto_remove: Some(false),
            privileged: Some(false),
            ..HostConfig::default()
        }
    }

    /// An engine refuses more cores than there are; all there are is as good.
    fn nano_cpus(&self, cpu: f64) -> i64 {
        let most = self.engine.n_cpus.map_or(f64::INFINITY, f64::from);
        (cpu.min(most) * NANO).round() as i64
    }

    fn workspace(&self) -> Mount {
        Mount {
            typ: Some(MountType::BIND),
            source: Some(self.places.work_dir(self.job.task).to_string_lossy().into_owned()),
            target: Some(WORK_DIR.to_owned()),
            read_only: Some(false),
            bind_options: Some(MountBindOptions {
                propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
                ..MountBindOptions::default()
            }),
            ..Mount::default()
        }
    }
}
