//! What a process gets that says nothing of its own.

use std::sync::Arc;

use runyard_exec::{Limits, Sandbox, WorkspaceRules};

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ProcessDefaults {
    pub sandbox: Sandbox,
    pub limits: Limits,
    pub output_bytes: Option<u64>,
    pub workspace: WorkspaceRules,
}

/// Asked anew for each start, so that a change of the configuration counts from the next one on.
pub type ProcessDefaultsNow = Arc<dyn Fn() -> ProcessDefaults + Send + Sync>;
