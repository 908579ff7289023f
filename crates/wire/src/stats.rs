//! Counts and limits.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is there, what happened, and what is allowed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatsView {
    /// Live tasks now.
    pub queue: QueueView,
    /// What happened since the server started.
    pub metrics: MetricsView,
    /// Limits in force.
    pub limits: LimitsView,
    /// Schedules, and what became of their moments since the server started.
    #[serde(default)]
    pub schedules: ScheduleStats,
}

/// Schedules now, and runs since the server started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleStats {
    /// All there are.
    pub total: u64,
    /// Those that have a next run.
    pub enabled: u64,
    /// Runs that became tasks.
    pub fired: u64,
    /// Runs that found no place.
    pub skipped: u64,
    /// Times that moments were missed.
    pub missed: u64,
}

/// Live tasks by agent and lane.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueView {
    /// Tasks not started: waiting, scheduled and queued.
    pub total_queued: u64,
    /// Tasks that hold a slot: assigned and running.
    pub total_running: u64,
    /// By agent.
    pub agents: BTreeMap<String, Counts>,
    /// By lane.
    pub lanes: BTreeMap<String, Counts>,
}

/// Tasks of one agent or lane by state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// For dependencies, a turn in a session, or a place in a batch.
    pub waiting: u64,
    /// For a time.
    pub scheduled: u64,
    /// Ready.
    pub queued: u64,
    /// Assigned and running.
    pub running: u64,
    /// Ended well, of those still kept.
    pub completed: u64,
    /// Ended badly, of those still kept.
    pub failed: u64,
    /// Cancelled, of those still kept.
    pub cancelled: u64,
    /// Not admitted, of those still kept.
    pub rejected: u64,
}

/// What happened since the server started.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricsView {
    /// Tasks accepted.
    pub submitted: u64,
    /// Attempts begun.
    pub started: u64,
    /// Tasks ended well.
    pub completed: u64,
    /// Tasks ended badly, expired ones included.
    pub failed: u64,
    /// Tasks cancelled.
    pub cancelled: u64,
    /// Submits refused by a limit.
    pub rejected: u64,
    /// Tasks ended by their deadline.
    pub expired: u64,
    /// Attempts that will be repeated.
    pub retried: u64,
    /// From ready to start, in milliseconds; absent until something started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_wait_ms: Option<f64>,
    /// 99 of 100 waited no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_wait_ms: Option<f64>,
    /// From start to end, in milliseconds; absent until something ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_run_ms: Option<f64>,
    /// 99 of 100 ran no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_run_ms: Option<f64>,
    /// By agent; the busiest ones, and `other` for the rest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub agents: BTreeMap<String, AgentMetrics>,
}

/// What happened to one agent's tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentMetrics {
    /// Tasks accepted.
    pub submitted: u64,
    /// Tasks ended well.
    pub completed: u64,
    /// Tasks ended badly.
    pub failed: u64,
    /// Tasks cancelled.
    pub cancelled: u64,
    /// Submits refused by a limit.
    pub rejected: u64,
}

/// Limits in force.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitsView {
    /// Tasks not started, over all agents.
    pub max_queued: u64,
    /// Tasks not started, for one agent.
    pub max_queued_per_agent: u64,
    /// Tasks that hold a slot, over all agents.
    pub max_inflight: u32,
    /// Tasks that hold a slot, for one agent; absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_inflight_per_agent: Option<u32>,
    /// Agents with a limit of their own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub agents: BTreeMap<String, u32>,
    /// Lanes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lanes: BTreeMap<String, u32>,
    /// Kinds with a limit of their own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kinds: BTreeMap<String, u32>,
}
