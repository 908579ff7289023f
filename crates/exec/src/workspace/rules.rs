//! What holds for the working directory of a process.

use serde::{Deserialize, Serialize};

/// What becomes of a working directory when the run is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WorkDir {
    #[default]
    Remove,
    /// It stays until the next attempt, or until the task is forgotten.
    Keep,
    /// As `Keep`, unless the run completed.
    KeepOnFailure,
}

impl WorkDir {
    pub const ALL: [WorkDir; 3] = [WorkDir::Remove, WorkDir::Keep, WorkDir::KeepOnFailure];

    pub fn as_str(self) -> &'static str {
        match self {
            WorkDir::Remove => "remove",
            WorkDir::Keep => "keep",
            WorkDir::KeepOnFailure => "keepOnFailure",
        }
    }

    pub fn parse(name: &str) -> Option<WorkDir> {
        WorkDir::ALL.into_iter().find(|policy| policy.as_str() == name)
    }
}

/// Read from the configuration at the start of an attempt, and carried with it: whoever ends the attempt goes by the
/// same rules as whoever began it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WorkspaceRules {
    /// For a task that says nothing of its own.
    pub work_dir: WorkDir,
    /// Of all files that are staged for one attempt, unpacked.
    pub files_bytes_max: u64,
    /// Files and directories that are staged for one attempt, unpacked.
    pub files_max: u64,
    /// Of all artifacts of a task.
    pub artifacts_bytes_max: u64,
    /// How many artifacts a task has at most.
    pub artifacts_max: u64,
}

impl Default for WorkspaceRules {
    fn default() -> WorkspaceRules {
        WorkspaceRules {
            work_dir: WorkDir::Remove,
            files_bytes_max: 1 << 30,
            files_max: 10_000,
            artifacts_bytes_max: 256 << 20,
            artifacts_max: 1000,
        }
    }
}
