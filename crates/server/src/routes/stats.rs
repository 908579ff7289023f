//! `GET /v1/stats`: kept counts, never counted ones. The cost is the number of agents and lanes, not of tasks.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use runyard_core::event::HappeningKind;
use runyard_core::write::{CountDelta, CountKey};
use runyard_wire::{AgentMetrics, Counts, LimitsView, MetricsView, QueueView, ScheduleStats, StatsView};

use super::settings::{by_lane_in_force, plus, shown, sums};
use crate::access::Caller;
use crate::app::App;
use crate::config::Config;
use crate::metrics::{AGENTS_MAX, Metrics};
use crate::problem::Error;

const OTHER: &str = "other";

/// What is there, what happened, and what is allowed.
#[utoipa::path(get, path = "/v1/stats", tag = "statistics",
    responses((status = 200, description = "Queue, metrics, limits", body = StatsView)))]
pub async fn stats(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<StatsView>, Error> {
    let (counts, schedules) = app.read(|reader| Ok((reader.counts()?, reader.schedule_counts()?))).await?;
    let config = app.config.current();
    let mut view = StatsView {
        queue: queue(&counts, &config.config),
        metrics: metrics(&counts, &app.metrics),
        limits: limits(&config.config),
        schedules: ScheduleStats {
            total: schedules.total,
            enabled: schedules.enabled,
            fired: app.metrics.n_happened(HappeningKind::ScheduleFired),
            skipped: app.metrics.n_happened(HappeningKind::ScheduleSkipped),
            missed: app.metrics.n_happened(HappeningKind::ScheduleMissed),
        },
    };
    // How busy the whole is concerns everyone; who the others are does not.
    view.queue.agents.retain(|agent, _| caller.may_act_for(agent));
    view.metrics.agents.retain(|agent, _| caller.may_act_for(agent));
    view.limits.agents.retain(|agent, _| caller.may_act_for(agent));
    Ok(Json(view))
}

fn queue(counts: &[(CountKey, CountDelta)], config: &Config) -> QueueView {
    let total = total(counts);
    let shown_total: Counts = shown(&total);
    let lanes = by_lane_in_force(counts, config);
    QueueView {
        total_queued: shown_total.waiting + shown_total.scheduled + shown_total.queued,
        total_running: shown_total.running,
        agents: busiest(counts).iter().map(|(name, count)| (name.clone(), shown(count))).collect(),
        lanes: lanes.into_iter().map(|(name, count)| (name.to_owned(), shown(&count))).collect(),
    }
}

fn metrics(counts: &[(CountKey, CountDelta)], metrics: &Metrics) -> MetricsView {
    let total = total(counts);
    let whole = |n: i64| u64::try_from(n).unwrap_or(0);
    let agent = |count: &CountDelta| AgentMetrics {
        submitted: whole(count.submitted),
        completed: whole(count.completed),
        failed: whole(count.failed),
        cancelled: whole(count.cancelled),
        rejected: whole(count.rejected),
    };
    MetricsView {
        submitted: whole(total.submitted),
        started: whole(total.started),
        completed: whole(total.completed),
        failed: whole(total.failed),
        cancelled: whole(total.cancelled),
        rejected: whole(total.rejected),
        expired: whole(total.expired),
        retried: whole(total.retried),
        average_wait_ms: metrics.wait_ms.average(),
        p99_wait_ms: metrics.wait_ms.percentile(0.99),
        average_run_ms: metrics.run_ms.average(),
        p99_run_ms: metrics.run_ms.percentile(0.99),
        agents: busiest(counts).iter().map(|(name, count)| (name.clone(), agent(count))).collect(),
    }
}

fn limits(config: &Config) -> LimitsView {
    let agents = config.agents.iter().filter_map(|(name, agent)| Some((name.clone(), agent.max_inflight?)));
    let kinds = config.kinds.iter().filter_map(|(name, kind)| Some((name.clone(), kind.max_inflight?)));
    LimitsView {
        max_queued: config.limits.max_queued,
        max_queued_per_agent: config.limits.max_queued_per_agent,
        max_inflight: config.limits.max_inflight,
        max_inflight_per_agent: config.limits.max_inflight_per_agent,
        agents: agents.collect(),
        lanes: config.lanes.iter().map(|(name, lane)| (name.clone(), lane.limit)).collect(),
        kinds: kinds.collect(),
    }
}

fn total(counts: &[(CountKey, CountDelta)]) -> CountDelta {
    counts.iter().fold(CountDelta::default(), |sum, (_, count)| plus(&sum, count))
}

/// The busiest agents by name, and `other` for the rest: live tasks decide, then all there ever were.
fn busiest(counts: &[(CountKey, CountDelta)]) -> BTreeMap<String, CountDelta> {
    let mut agents: Vec<(&str, CountDelta)> = sums(counts, |key| &key.agent).into_iter().collect();
    agents.sort_by_key(|(_, count)| Reverse((count.unstarted() + count.assigned + count.running, count.submitted)));
    let rest = agents.split_off(agents.len().min(AGENTS_MAX));
    let mut shown: BTreeMap<String, CountDelta> =
        agents.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    for (_, count) in rest {
        let other = shown.entry(OTHER.to_owned()).or_default();
        *other = plus(other, &count);
    }
    shown
}
