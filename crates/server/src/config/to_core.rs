//! The part of the configuration that the scheduler itself decides by.

use std::collections::BTreeMap;

use runyard_core::config::{AgentConfig, Config as CoreConfig, GateConfig, LaneConfig};
use runyard_core::name::Name;
use runyard_store::store::Purge;

use super::types::{Agent, Config, Gate, Lane};

pub fn to_core(config: &Config) -> CoreConfig {
    let (limits, scheduling) = (&config.limits, &config.scheduling);
    CoreConfig {
        queued_max: limits.max_queued,
        queued_per_agent_max: limits.max_queued_per_agent,
        inflight_max: limits.max_inflight,
        inflight_per_agent_max: limits.max_inflight_per_agent,
        agents: named(&config.agents, agent),
        lanes: named(&config.lanes, lane),
        kinds: config.kinds.iter().filter_map(|(name, kind)| Some((Name::new(name), kind.max_inflight?))).collect(),
        gates: named(&config.gates, gate),
        flows_max: limits.max_flows,
        flows_per_agent_max: limits.max_flows_per_agent,
        window_max: scheduling.window_max,
        dues_max: scheduling.dues_max,
        aging_ms: scheduling.aging_ms,
        aged_one_in: scheduling.aged_one_in,
        preempted_max: scheduling.max_preempted,
        lost_max: scheduling.max_lost,
        quota_max: scheduling.max_quota,
        quota_wait_ms_max: scheduling.quota_wait_ms_max,
        assign_timeout_ms: scheduling.assign_timeout_ms,
        worker_offline_ms: scheduling.worker_offline_ms,
        worker_cooldown_ms: scheduling.worker_cooldown_ms,
        rejections_per_hour_max: limits.max_rejections_per_hour,
        retention_ms: config.retention.tasks_ms,
    }
}

/// What one chunk of retention is told.
pub fn to_purge(config: &Config) -> Purge {
    Purge {
        retention_ms: config.retention.tasks_ms,
        keys_ms_min: KEYS_MS_MIN,
        happenings_ms: config.retention.events_ms,
        happenings_bytes_max: config.retention.events_bytes_max,
        limit: PURGE_ROWS_MAX,
    }
}

/// Idempotency keys work for at least a day, whatever the retention.
const KEYS_MS_MIN: u64 = 24 * 3_600_000;
/// Keeps one chunk well below the time a tick may take.
const PURGE_ROWS_MAX: usize = 1000;

fn named<T, U>(from: &BTreeMap<String, T>, convert: fn(&T) -> U) -> BTreeMap<Name, U> {
    from.iter().map(|(name, value)| (Name::new(name), convert(value))).collect()
}

fn agent(agent: &Agent) -> AgentConfig {
    AgentConfig {
        inflight_max: agent.max_inflight,
        weight: agent.weight.unwrap_or(1),
        paused: agent.paused.unwrap_or(false),
    }
}

fn lane(lane: &Lane) -> LaneConfig {
    LaneConfig { limit: lane.limit, paused: lane.paused }
}

fn gate(gate: &Gate) -> GateConfig {
    GateConfig { inflight_max: gate.max_inflight, per_minute: gate.per_minute, burst: gate.burst.unwrap_or(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_both_sides_agree() {
        assert_eq!(to_core(&Config::default()), CoreConfig::default());
    }
}
