//! The part of the configuration that the scheduler itself decides by.

use std::collections::BTreeMap;

use runyard_core::config::{AgentConfig, Config as CoreConfig, GateConfig, LaneConfig};
use runyard_core::name::Name;
use runyard_core::session::{self, Mode, Overflow, SessionsConfig};
use runyard_store::store::Purge;
use runyard_wire::{SessionDrop, SessionMode};

use super::types::{Agent, Config, Gate, Lane, SessionSettings, Sessions};

pub fn to_core(config: &Config) -> CoreConfig {
    let (limits, scheduling, workers) = (&config.limits, &config.scheduling, &config.workers);
    CoreConfig {
        queued_max: limits.max_queued,
        queued_per_agent_max: limits.max_queued_per_agent,
        inflight_max: limits.max_inflight,
        inflight_per_agent_max: limits.max_inflight_per_agent,
        agents: named(&config.agents, agent),
        lanes: named(&config.lanes, lane),
        kinds: config.kinds.iter().filter_map(|(name, kind)| Some((Name::new(name), kind.max_inflight?))).collect(),
        gates: named(&config.gates, gate),
        sessions: to_core_sessions(&config.sessions),
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
        assign_timeout_ms: workers.assign_timeout_ms,
        worker_offline_ms: workers.offline_after_ms,
        worker_cooldown_ms: workers.cooldown_ms,
        worker_forget_ms: workers.forget_after_ms,
        workers_max: workers.max,
        placement: workers.to_core(),
        rejections_per_hour_max: limits.max_rejections_per_hour,
        retention_ms: config.retention.tasks_ms,
        hooks: config.webhooks.iter().map(|(name, webhook)| webhook.hook(name)).collect(),
        schedules_max: config.schedules.max,
        schedules_paused: config.schedules.paused,
    }
}

/// What one chunk of retention is told.
pub fn to_purge(config: &Config) -> Purge {
    Purge {
        retention_ms: config.retention.tasks_ms,
        keys_ms_min: KEYS_MS_MIN,
        happenings_ms: config.retention.events_ms,
        happenings_bytes_max: config.retention.events_bytes_max,
        deliveries_ms: config.retention.deliveries_ms,
        runs_ms: config.schedules.keep_runs_ms,
        runs_max: config.schedules.keep_runs,
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

/// The part of it that decides about sessions.
pub fn to_core_sessions(sessions: &Sessions) -> SessionsConfig {
    let pattern = |pattern: &super::types::SessionPattern| (Name::new(&pattern.key), settings(&pattern.settings()));
    SessionsConfig {
        defaults: settings(&sessions.settings()),
        lanes: named(&sessions.lanes, settings),
        patterns: sessions.patterns.iter().map(pattern).collect(),
        context_milli: (sessions.context_threshold * 1000.0).round() as u32,
    }
}

fn settings(settings: &SessionSettings) -> session::Settings {
    session::Settings {
        mode: settings.mode.map(mode),
        cap: settings.cap,
        overflow: settings.drop.map(overflow),
        debounce_ms: settings.debounce_ms,
        wait_ms_max: settings.max_wait_ms,
        max_concurrent: settings.max_concurrent,
    }
}

pub fn mode(mode: SessionMode) -> Mode {
    match mode {
        SessionMode::Queue => Mode::Queue,
        SessionMode::Followup => Mode::Followup,
        SessionMode::Collect => Mode::Collect,
        SessionMode::Steer => Mode::Steer,
        SessionMode::Interrupt => Mode::Interrupt,
        SessionMode::Reject => Mode::Reject,
    }
}

pub fn overflow(drop: SessionDrop) -> Overflow {
    match drop {
        SessionDrop::Old => Overflow::Old,
        SessionDrop::New => Overflow::New,
        SessionDrop::Summarize => Overflow::Summarize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_both_sides_agree() {
        let (ours, core) = (to_core(&Config::default()), CoreConfig::default());
        // Ours says every default aloud, the core's leaves them out.
        assert_eq!(ours.sessions.defaults.rules(), core.sessions.defaults.rules());
        let defaults = core.sessions.defaults;
        assert_eq!(CoreConfig { sessions: SessionsConfig { defaults, ..ours.sessions.clone() }, ..ours }, core);
    }

    #[test]
    fn lanes_and_patterns_reach_the_scheduler() {
        let file = "[sessions]\ncap = 7\ncontextThreshold = 0.25\n[sessions.lanes.cron]\nmode = \"reject\"\n\
            [[sessions.patterns]]\nmatch = \"a:*\"\ndrop = \"summarize\"\ndebounceMs = 20\n\
            [[sessions.patterns]]\nmatch = \"*:g\"\nmaxConcurrent = 3\n";
        let file = super::super::file::parse(std::path::Path::new("f"), file).expect("valid");
        let merged = super::super::merge(&super::super::Layers { file, ..Default::default() }).expect("valid");
        let sessions = to_core(&merged.config).sessions;
        assert_eq!(sessions.context_milli, 250);
        let rules = sessions.rules("a:g", "cron", session::Settings::default());
        assert_eq!((rules.mode, rules.cap, rules.overflow), (Mode::Reject, 7, Overflow::Summarize));
        assert_eq!((rules.debounce_ms, rules.wait_ms_max, rules.max_concurrent), (20, 100, 3));
        assert_eq!(sessions.rules("b", "main", session::Settings::default()).mode, Mode::Queue);
    }
}
