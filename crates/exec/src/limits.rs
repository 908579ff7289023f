//! What is enforced while a process runs.

use serde::{Deserialize, Serialize};

/// Beside the size of its output and its time. `None`: as much as the machine gives.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Cores, with fractions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// MiB of memory, swap included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ram_mb: Option<u32>,
    /// Processes and threads at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
}

impl Limits {
    /// What is not said here comes from there.
    pub fn or(self, wider: Limits) -> Limits {
        Limits { cpu: self.cpu.or(wider.cpu), ram_mb: self.ram_mb.or(wider.ram_mb), pids: self.pids.or(wider.pids) }
    }

    pub fn ram_bytes(&self) -> Option<u64> {
        self.ram_mb.map(|mb| u64::from(mb) * 1024 * 1024)
    }
}
