//! Workers for whoever looks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::MachineMetrics;
use crate::words::words;
use crate::{Id, Timestamp};

/// A worker: what it offers, what it has, how it is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerView {
    /// Its id.
    pub id: Id,
    /// As it calls itself.
    pub name: String,
    /// Of its machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Of its machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
    /// Of its program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// A server's own: of the one that answers, or of another node.
    pub embedded: bool,
    /// Whether it gets work.
    pub status: WorkerStatus,
    /// Why it is unhealthy, draining or offline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Kinds of tasks it runs.
    pub kinds: Vec<String>,
    /// What tasks can ask for in `place`.
    pub labels: BTreeMap<String, String>,
    /// Cores it offers.
    pub cpus: f64,
    /// Memory it offers, in MiB.
    pub ram_mb: u32,
    /// Other resources it offers.
    pub resources: BTreeMap<String, u32>,
    /// It runs no more tasks than this at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<u32>,
    /// What its tasks have reserved.
    pub reserved: Amounts,
    /// What a task could still get here.
    pub free: Amounts,
    /// Tasks it holds, by id.
    pub running: Vec<Id>,
    /// As it last said; empty when it never did.
    pub metrics: MachineMetrics,
    /// It gets nothing before this moment, because it failed at something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cooldown_until: Option<Timestamp>,
    /// It gets nothing new.
    pub draining: bool,
    /// When it was last heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen_at: Option<Timestamp>,
    /// When it joined; absent for the server's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered_at: Option<Timestamp>,
}

/// Whether a worker gets work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorkerStatus {
    /// It has nothing to do.
    Idle,
    /// It has something to do, and may get more.
    Busy,
    /// It gets nothing for now, because something went wrong there.
    Unhealthy,
    /// It gets nothing new.
    Draining,
    /// It is not heard.
    Offline,
}

words!(WorkerStatus {
    Idle = "idle",
    Busy = "busy",
    Unhealthy = "unhealthy",
    Draining = "draining",
    Offline = "offline",
});

/// A page of workers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerPage {
    /// By id.
    pub items: Vec<WorkerView>,
    /// For `cursor` of the next page; null on the last.
    pub next_cursor: Option<String>,
    /// Of all workers, whatever the filters.
    pub counts: WorkerCounts,
}

/// How many workers there are of each status.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerCounts {
    pub idle: u64,
    pub busy: u64,
    pub unhealthy: u64,
    pub draining: u64,
    pub offline: u64,
}

/// How much of each resource, of which there may be none: cpu, ramMb, and others by their names.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Amounts {
    /// Cores, with fractions.
    pub cpu: f64,
    /// Memory in MiB.
    pub ram_mb: u32,
    /// gpu, and any other resource that the worker offers.
    #[serde(flatten)]
    pub named: BTreeMap<String, u32>,
}
