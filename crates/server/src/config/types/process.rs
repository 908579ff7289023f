//! `[process]` and `[uploads]`: what programs get, and how much they may bring and leave.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DAY_MS;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Process {
    /// What a process is kept in that names no sandbox: `none`, or `bubblewrap` (the machine read-only, no network).
    pub sandbox: Sandbox,
    /// What becomes of a working directory at the end of its run: `remove`, `keep`, or `keepOnFailure`. One that is kept
    /// goes with the next attempt or with the task.
    pub work_dir: WorkDir,
    /// All files that are staged for one attempt, unpacked. 1 GiB.
    pub files_bytes_max: u64,
    /// Files and directories that are staged for one attempt, unpacked.
    pub files_max: u64,
    /// All artifacts of one task. What is over is left out, and listed. 256 MiB.
    pub artifacts_bytes_max: u64,
    /// Artifacts of one task.
    pub artifacts_max: u64,
    /// What is enforced on each process. A task's own limits win, each by itself. Not set: as much as the machine gives.
    pub limits: ProcessLimits,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Sandbox {
    #[default]
    None,
    Bubblewrap,
}

#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct ProcessLimits {
    /// Cores, with fractions.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 2.0)]
    pub cpu: Option<f64>,
    /// Memory in MiB, of all its processes together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 2048)]
    pub ram_mb: Option<u32>,
    /// Processes and threads at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 256)]
    pub pids: Option<u32>,
    /// Output that is kept; the rest is counted only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 1048576)]
    pub output_bytes: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum WorkDir {
    Remove,
    Keep,
    KeepOnFailure,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Uploads {
    /// The largest upload. 256 MiB.
    pub bytes_max: u64,
    /// How long an upload stays after it was last named by a submit or used by a start. 7 days.
    pub keep_ms: u64,
}

impl Default for Process {
    fn default() -> Self {
        let rules = runyard_exec::WorkspaceRules::default();
        Process {
            sandbox: Sandbox::None,
            work_dir: WorkDir::Remove,
            files_bytes_max: rules.files_bytes_max,
            files_max: rules.files_max,
            artifacts_bytes_max: rules.artifacts_bytes_max,
            artifacts_max: rules.artifacts_max,
            limits: ProcessLimits::default(),
        }
    }
}

impl Default for Uploads {
    fn default() -> Self {
        Uploads { bytes_max: 256 << 20, keep_ms: 7 * DAY_MS }
    }
}
