//! The limits in force, as the edge merged them from file, environment, flags and patches. Replaced whole by
//! `Event::Configure`; flows are rewired, no row is touched.

use std::collections::BTreeMap;

use crate::name::Name;
use crate::now::SteadyMs;
use crate::outbox::Hook;
use crate::session::SessionsConfig;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Admission: unstarted tasks.
    pub queued_max: u64,
    pub queued_per_agent_max: u64,
    pub inflight_max: u32,
    pub inflight_per_agent_max: Option<u32>,
    pub agents: BTreeMap<Name, AgentConfig>,
    pub lanes: BTreeMap<Name, LaneConfig>,
    pub kinds: BTreeMap<Name, u32>,
    pub gates: BTreeMap<Name, GateConfig>,
    pub sessions: SessionsConfig,
    pub flows_max: u32,
    pub flows_per_agent_max: u32,
    /// Window entries over all flows, beyond each flow's head.
    pub window_max: u32,
    /// Due moments held in memory, for each clock.
    pub dues_max: u32,
    pub aging_ms: SteadyMs,
    /// One start in so many may go to an aged task.
    pub aged_one_in: u32,
    pub preempted_max: u32,
    pub lost_max: u32,
    pub quota_max: u32,
    pub quota_wait_ms_max: u64,
    pub assign_timeout_ms: u64,
    pub worker_offline_ms: u64,
    pub worker_cooldown_ms: u64,
    /// A worker that has been away for so long is forgotten.
    pub worker_forget_ms: u64,
    pub workers_max: u32,
    pub placement: PlacementConfig,
    /// Rejections recorded for one agent in an hour.
    pub rejections_per_hour_max: u32,
    /// Finished tasks stay readable so long.
    pub retention_ms: u64,
    /// Who is told of what, beside those who asked with their task.
    pub hooks: Vec<Hook>,
    pub schedules_max: u64,
    /// Nothing of any schedule is due.
    pub schedules_paused: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentConfig {
    pub inflight_max: Option<u32>,
    pub weight: u32,
    pub paused: bool,
}

impl Default for AgentConfig {
    fn default() -> Self {
        AgentConfig { inflight_max: None, weight: 1, paused: false }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneConfig {
    pub limit: u32,
    pub paused: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GateConfig {
    pub inflight_max: Option<u32>,
    pub per_minute: Option<u32>,
    /// How many may start at once before the rate binds; 1 when not given.
    pub burst: u32,
}

/// How workers are compared. Weights in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlacementConfig {
    pub packing: Packing,
    pub cpu_usage_weight: u32,
    pub reserved_cpu_weight: u32,
    pub reserved_ram_weight: u32,
    /// A busier machine gets nothing that needs its processor or memory; thousandths of a percent.
    pub cpu_usage_milli_max: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packing {
    /// The least loaded worker.
    Spread,
    /// The most loaded one that has room.
    Binpack,
}

impl Default for PlacementConfig {
    fn default() -> Self {
        PlacementConfig {
            packing: Packing::Spread,
            cpu_usage_weight: 600,
            reserved_cpu_weight: 300,
            reserved_ram_weight: 100,
            cpu_usage_milli_max: 90_000,
        }
    }
}

/// The lane that a task of an unknown lane runs in.
pub const LANE_MAIN: &str = "main";

impl Default for Config {
    fn default() -> Self {
        let lanes = [(LANE_MAIN, 30), ("subagent", 50), ("team", 100), ("cron", 30)];
        Config {
            queued_max: 1_000_000,
            queued_per_agent_max: 100_000,
            inflight_max: 1000,
            inflight_per_agent_max: None,
            agents: BTreeMap::new(),
            lanes: lanes.into_iter().map(|(name, limit)| (name.into(), LaneConfig { limit, paused: false })).collect(),
            kinds: BTreeMap::new(),
            gates: BTreeMap::new(),
            sessions: SessionsConfig::default(),
            flows_max: 500_000,
            flows_per_agent_max: 1000,
            window_max: 100_000,
            dues_max: 10_000,
            aging_ms: 600_000,
            aged_one_in: 10,
            preempted_max: 3,
            lost_max: 3,
            quota_max: 100,
            quota_wait_ms_max: 3_600_000,
            assign_timeout_ms: 15_000,
            worker_offline_ms: 30_000,
            worker_cooldown_ms: 30_000,
            worker_forget_ms: 7 * 24 * 3_600_000,
            workers_max: 20_000,
            placement: PlacementConfig::default(),
            rejections_per_hour_max: 1000,
            retention_ms: 30 * 24 * 3_600_000,
            hooks: Vec::new(),
            schedules_max: 100_000,
            schedules_paused: false,
        }
    }
}
