//! The Prometheus text: the fixed handles, and gauges by agent and lane from the store's kept counts.

use std::collections::{BTreeMap, BTreeSet};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use runyard_core::config::LANE_MAIN;
use runyard_core::worker::WorkerView;
use runyard_core::write::{CountDelta, CountKey};

use super::{Metrics, gauge, workers};
use crate::config::Config;

/// Agents with a label of their own; the rest is summed as `other`, so that a million agents do not make a million series.
pub const AGENTS_MAX: usize = 100;
const OTHER: &str = "other";
/// An agent that is really called so. No name has a space in it, so this is nobody else's.
const OTHER_AGENT: &str = "other (agent)";

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Where {
    agent: String,
    lane: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Whose {
    agent: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Limited {
    scope: &'static str,
    name: String,
}

/// Whose metrics they are.
#[derive(Clone, Copy)]
pub enum Seat<'a> {
    /// A server with a store of its own has no other.
    Holder {
        workers: &'a [WorkerView],
    },
    Follower,
}

impl Metrics {
    pub fn scrape(&self, counts: &[(CountKey, CountDelta)], config: &Config, seat: Seat<'_>) -> String {
        let mut registry = Registry::with_prefix("runyard");
        let named = busiest(counts);
        register_gauges(&mut registry, counts, &named, config);
        register_counters(&mut registry, counts, &named);
        register_limits(&mut registry, config);
        let is_holder = gauge(&mut registry, "holder", "Whether this node has the scheduler");
        let mut registries = vec![&self.registry];
        if let Seat::Holder { workers } = seat {
            is_holder.set(1);
            workers::register(&mut registry, workers);
            registries.push(&self.scheduler);
        }
        registries.push(&registry);
        let mut text = String::new();
        let encoded = registries.into_iter().try_for_each(|registry| encode_registry(&mut text, registry));
        encoded.and_then(|()| encode_eof(&mut text)).expect("writing to a string does not fail");
        text
    }
}

fn register_gauges(
    registry: &mut Registry,
    counts: &[(CountKey, CountDelta)],
    named: &BTreeSet<&str>,
    config: &Config,
) {
    let gauges = ["waiting", "scheduled", "queued", "running"].map(|name| {
        let family = Family::<Where, Gauge>::default();
        registry.register(format!("tasks_{name}"), "Tasks now, by agent and lane", family.clone());
        family
    });
    for (key, count) in counts {
        let labels = Where { agent: label(&key.agent, named), lane: lane_in_force(&key.lane, config) };
        let values = [count.waiting, count.scheduled, count.queued, count.assigned + count.running];
        for (gauge, value) in gauges.iter().zip(values) {
            gauge.get_or_create(&labels).inc_by(value);
        }
    }
}

fn register_counters(registry: &mut Registry, counts: &[(CountKey, CountDelta)], named: &BTreeSet<&str>) {
    let counters = COUNTERS.map(|(name, help, _)| {
        let family = Family::<Whose, Counter>::default();
        registry.register(format!("tasks_{name}"), help, family.clone());
        family
    });
    for (key, count) in counts {
        let labels = Whose { agent: label(&key.agent, named) };
        for (family, (_, _, value)) in counters.iter().zip(COUNTERS) {
            family.get_or_create(&labels).inc_by(u64::try_from(value(count)).unwrap_or(0));
        }
    }
}

type Count = fn(&CountDelta) -> i64;

const COUNTERS: [(&str, &str, Count); 8] = [
    ("submitted", "Tasks accepted", |count| count.submitted),
    ("started", "Attempts begun", |count| count.started),
    ("completed", "Tasks ended well", |count| count.completed),
    ("failed", "Tasks ended badly, expired ones included", |count| count.failed),
    ("cancelled", "Tasks cancelled", |count| count.cancelled),
    ("rejected", "Submits refused by a limit", |count| count.rejected),
    ("expired", "Tasks ended by their deadline", |count| count.expired),
    ("retried", "Attempts that were repeated", |count| count.retried),
];

fn label(agent: &str, named: &BTreeSet<&str>) -> String {
    match agent {
        OTHER if named.contains(agent) => OTHER_AGENT.to_owned(),
        _ if named.contains(agent) => agent.to_owned(),
        _ => OTHER.to_owned(),
    }
}

/// A task of an unknown lane counts where it runs: in main. Else everyone could make series by making lanes up.
fn lane_in_force(lane: &str, config: &Config) -> String {
    if config.lanes.contains_key(lane) { lane.to_owned() } else { LANE_MAIN.to_owned() }
}

/// Busy is what is live now, then what there ever was.
fn busiest(counts: &[(CountKey, CountDelta)]) -> BTreeSet<&str> {
    let mut by_agent: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for (key, count) in counts {
        let sums = by_agent.entry(&key.agent).or_default();
        sums.0 += count.unstarted() + count.assigned + count.running;
        sums.1 += count.submitted;
    }
    let mut agents: Vec<_> = by_agent.into_iter().collect();
    agents.sort_by_key(|(_, sums)| std::cmp::Reverse(*sums));
    agents.into_iter().take(AGENTS_MAX).map(|(agent, _)| agent).collect()
}

fn register_limits(registry: &mut Registry, config: &Config) {
    let family = Family::<Limited, Gauge>::default();
    registry.register("limit", "Limits in force", family.clone());
    let set = |scope, name: &str, limit: u64| {
        family.get_or_create(&Limited { scope, name: name.to_owned() }).set(limit as i64);
    };
    set("queued", "all", config.limits.max_queued);
    set("queued_per_agent", "each", config.limits.max_queued_per_agent);
    set("inflight", "all", u64::from(config.limits.max_inflight));
    config.limits.max_inflight_per_agent.into_iter().for_each(|n| set("inflight_per_agent", "each", u64::from(n)));
    config.lanes.iter().for_each(|(name, lane)| set("lane", name, u64::from(lane.limit)));
    let kinds = config.kinds.iter().filter_map(|(name, kind)| Some((name, kind.max_inflight?)));
    kinds.for_each(|(name, limit)| set("kind", name, u64::from(limit)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_beyond_the_busiest_are_other() {
        let count = |n: usize| {
            let key = CountKey { agent: format!("a{n:03}").as_str().into(), lane: "main".into() };
            (key, CountDelta { queued: n as i64 + 1, submitted: 7, ..CountDelta::default() })
        };
        let counts: Vec<_> = (0..AGENTS_MAX + 2).map(count).collect();
        let text = Metrics::default().scrape(&counts, &Config::default(), Seat::Holder { workers: &[] });
        assert!(text.contains("runyard_tasks_queued{agent=\"other\",lane=\"main\"} 3"), "{text}");
        assert!(text.contains("runyard_tasks_submitted_total{agent=\"other\"} 14"), "{text}");
        assert!(!text.contains("agent=\"a000\"") && text.contains("agent=\"a002\""));
        assert!(text.contains("runyard_limit{scope=\"lane\",name=\"main\"} 30"));
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn an_unknown_lane_is_counted_in_main_and_an_agent_called_other_apart() {
        let count = |agent: &str, lane: &str, queued| {
            let key = CountKey { agent: agent.into(), lane: lane.into() };
            (key, CountDelta { queued, submitted: queued, ..CountDelta::default() })
        };
        let mut counts = vec![count("other", "main", 1000), count("other", "made.up", 500), count("other", "cron", 7)];
        counts.extend((0..AGENTS_MAX).map(|n| count(&format!("a{n:03}"), "main", n as i64 + 1)));
        let text = Metrics::default().scrape(&counts, &Config::default(), Seat::Holder { workers: &[] });
        assert!(text.contains("runyard_tasks_queued{agent=\"other (agent)\",lane=\"main\"} 1500"), "{text}");
        assert!(text.contains("runyard_tasks_queued{agent=\"other (agent)\",lane=\"cron\"} 7"), "{text}");
        assert!(text.contains("runyard_tasks_queued{agent=\"other\",lane=\"main\"} 1\n"), "{text}");
        assert!(text.contains("runyard_tasks_submitted_total{agent=\"other (agent)\"} 1507"), "{text}");
        assert!(!text.contains("made.up"), "{text}");
    }
}
