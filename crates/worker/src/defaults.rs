//! What the configuration says of a task at its start: what it gets that says nothing of its own, and whether it may run.

use std::sync::Arc;

use runyard_exec::{Limits, Sandbox, WorkspaceRules};
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

/// Whether a payload of this kind may be run, asked anew for each start too. The error names the rule that is against it.
pub type MayRun = Arc<dyn Fn(&str, &RawValue) -> Result<(), String> + Send + Sync>;
