//! `[docker]`: whether containers are run, on which engine, and how much they may have.

use std::path::PathBuf;

use runyard_exec::docker::{LIMITS_DEFAULT, SOCKET_DEFAULT};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Docker {
    /// Whether this machine runs tasks of kind `docker`: `auto` (when its engine answers as the server starts), `always`,
    /// or `never`.
    pub enabled: DockerEnabled,
    /// The socket of the engine.
    pub socket: PathBuf,
    /// What is enforced on each container. A task's own limits win, each by itself.
    pub limits: DockerLimits,
    /// The most cores a task may ask for; one that asks for more fails for good. Not set: no ceiling.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 4.0)]
    pub cpu_max: Option<f64>,
    /// The most memory a task may ask for, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 4096)]
    pub ram_mb_max: Option<u32>,
    /// The most processes and threads a task may ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 1024)]
    pub pids_max: Option<u32>,
    /// Networks that tasks may name: `none`, `host`, or names of the engine's own.
    pub networks: Vec<String>,
    /// May a task have an image fetched that is not there (`pull: true`)?
    pub pull: bool,
    /// May a task have a root file system that it can write to (`readOnly: false`)?
    pub writable_root: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum DockerEnabled {
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct DockerLimits {
    /// Cores, with fractions.
    pub cpu: f64,
    /// Memory in MiB. There is no swap beside it.
    pub ram_mb: u32,
    /// Processes and threads at once.
    pub pids: u32,
    /// Output that is kept; the rest is counted only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 1048576)]
    pub output_bytes: Option<u64>,
}

impl Default for Docker {
    fn default() -> Self {
        Docker {
            enabled: DockerEnabled::Auto,
            socket: SOCKET_DEFAULT.into(),
            limits: DockerLimits::default(),
            cpu_max: None,
            ram_mb_max: None,
            pids_max: None,
            networks: vec!["none".to_owned()],
            pull: false,
            writable_root: false,
        }
    }
}

impl Default for DockerLimits {
    fn default() -> Self {
        let all = "every limit of containers has a default";
        DockerLimits {
            cpu: LIMITS_DEFAULT.cpu.expect(all),
            ram_mb: LIMITS_DEFAULT.ram_mb.expect(all),
            pids: LIMITS_DEFAULT.pids.expect(all),
            output_bytes: None,
        }
    }
}
