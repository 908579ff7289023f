//! `[workers]`.

use runyard_core::config::{Config as CoreConfig, Packing, PlacementConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Workers {
    /// How often a worker is to be heard.
    pub heartbeat_ms: u64,
    /// A worker that has been silent for so long is offline, and what it held is lost. At least twice the heartbeat.
    pub offline_after_ms: u64,
    /// A worker that broke gets no task for so long.
    pub cooldown_ms: u64,
    /// A task that was handed to a worker and has not begun by then is taken back.
    pub assign_timeout_ms: u64,
    /// A worker that has been offline for so long is forgotten, with its key. 7 days.
    pub forget_after_ms: u64,
    /// How many workers may be registered.
    pub max: u32,
    /// `spread`: the least loaded worker that fits; `binpack`: the most loaded one that has room.
    pub placement: Placement,
    /// How much counts what, when the load of workers is compared.
    pub weights: Weights,
    /// A machine whose processors are busier than so many percent gets no task that reserves some of it. The server's own
    /// worker is not asked.
    pub max_cpu_usage: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Placement {
    Spread,
    Binpack,
}

/// Each is a factor of a percentage. The sum is a worker's load.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Weights {
    /// Of the processors' use, as the worker reports it.
    pub cpu_usage: f64,
    /// Of the part of its cores that is reserved.
    pub reserved_cpu: f64,
    /// Of the part of its memory that is reserved.
    pub reserved_ram: f64,
}

impl Default for Workers {
    fn default() -> Self {
        let core = CoreConfig::default();
        Workers {
            heartbeat_ms: 10_000,
            offline_after_ms: core.worker_offline_ms,
            cooldown_ms: core.worker_cooldown_ms,
            assign_timeout_ms: core.assign_timeout_ms,
            forget_after_ms: core.worker_forget_ms,
            max: core.workers_max,
            placement: Placement::Spread,
            weights: Weights::default(),
            max_cpu_usage: f64::from(core.placement.cpu_usage_milli_max) / 1000.0,
        }
    }
}

impl Default for Weights {
    fn default() -> Self {
        let core = PlacementConfig::default();
        let factor = |milli: u32| f64::from(milli) / 1000.0;
        Weights {
            cpu_usage: factor(core.cpu_usage_weight),
            reserved_cpu: factor(core.reserved_cpu_weight),
            reserved_ram: factor(core.reserved_ram_weight),
        }
    }
}

impl Workers {
    pub fn to_core(&self) -> PlacementConfig {
        let milli = |factor: f64| (factor * 1000.0).round() as u32;
        PlacementConfig {
            packing: match self.placement {
                Placement::Spread => Packing::Spread,
                Placement::Binpack => Packing::Binpack,
            },
            cpu_usage_weight: milli(self.weights.cpu_usage),
            reserved_cpu_weight: milli(self.weights.reserved_cpu),
            reserved_ram_weight: milli(self.weights.reserved_ram),
            cpu_usage_milli_max: milli(self.max_cpu_usage),
        }
    }
}
