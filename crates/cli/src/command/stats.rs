//! `runyard stats`: counts, waits and limits.

use std::collections::BTreeMap;

use runyard_wire::{Counts, LimitsView, MetricsView, ScheduleStats, StatsView};

use crate::cli::Shared;
use crate::error::Result;
use crate::exit::Exit;
use crate::out;

/// An eye cannot take in more agents than this; `--json` has them all.
const AGENTS_SHOWN_MAX: usize = 30;

pub async fn run(shared: &Shared) -> Result<Exit> {
    let answer = shared.client()?.stats().await?;
    if shared.json {
        out::line(&answer.text)?;
        return Ok(Exit::Done);
    }
    let StatsView { queue, metrics, limits, schedules } = answer.read()?;
    let max = &limits.max_queued;
    out::line(format!(
        "queued {} of {max}, running {} of {}",
        queue.total_queued, queue.total_running, limits.max_inflight
    ))?;
    print_metrics(&metrics)?;
    if schedules.total > 0 {
        let ScheduleStats { total, enabled, fired, skipped, missed } = schedules;
        out::line(format!(
            "schedules: {enabled} of {total} enabled; since start {fired} runs fired, {skipped} skipped, {missed} missed"
        ))?;
    }
    print_counts("AGENT", &queue.agents)?;
    print_counts("LANE", &queue.lanes)?;
    print_limits(&limits)?;
    Ok(Exit::Done)
}

fn print_metrics(metrics: &MetricsView) -> Result<()> {
    let MetricsView { submitted, started, completed, failed, cancelled, rejected, expired, retried, .. } = metrics;
    out::line(format!(
        "since start: {submitted} submitted, {started} started, {completed} completed, {failed} failed ({expired} \
         expired), {cancelled} cancelled, {rejected} rejected, {retried} retried"
    ))?;
    let ms = |value: Option<f64>| value.map_or("–".to_owned(), |ms| format!("{ms:.1} ms"));
    out::line(format!("wait: average {}, p99 {}", ms(metrics.average_wait_ms), ms(metrics.p99_wait_ms)))?;
    out::line(format!("run:  average {}, p99 {}", ms(metrics.average_run_ms), ms(metrics.p99_run_ms)))
}

fn print_counts(title: &str, counts: &BTreeMap<String, Counts>) -> Result<()> {
    if counts.is_empty() {
        return Ok(());
    }
    let header = [title, "WAITING", "SCHEDULED", "QUEUED", "RUNNING", "COMPLETED", "FAILED", "CANCELLED", "REJECTED"];
    let mut table = out::table(&header);
    let mut rows: Vec<_> = counts.iter().collect();
    rows.sort_by_key(|(name, counts)| (std::cmp::Reverse(counts.running + counts.queued), (*name).clone()));
    for (name, n) in rows.iter().take(AGENTS_SHOWN_MAX) {
        let mut row = vec![comfy_table::Cell::new(name)];
        let numbers = [n.waiting, n.scheduled, n.queued, n.running, n.completed, n.failed, n.cancelled, n.rejected];
        row.extend(numbers.map(out::number));
        table.add_row(row);
    }
    out::line("")?;
    out::print(&table)?;
    if rows.len() > AGENTS_SHOWN_MAX {
        out::note(format!("and {} more; --json has all", rows.len() - AGENTS_SHOWN_MAX));
    }
    Ok(())
}

fn print_limits(limits: &LimitsView) -> Result<()> {
    let each = |map: &BTreeMap<String, u32>| {
        map.iter().map(|(name, limit)| format!("{name} {limit}")).collect::<Vec<_>>().join(", ")
    };
    out::line("")?;
    let per_agent = limits.max_inflight_per_agent.map_or("no limit".to_owned(), |limit| limit.to_string());
    out::line(format!("limits: queued per agent {}, running per agent {per_agent}", limits.max_queued_per_agent))?;
    for (title, map) in [("lanes", &limits.lanes), ("agents", &limits.agents), ("kinds", &limits.kinds)] {
        if !map.is_empty() {
            out::line(format!("{title}: {}", each(map)))?;
        }
    }
    Ok(())
}
