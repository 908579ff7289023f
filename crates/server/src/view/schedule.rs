//! How a schedule and its runs are shown.

use runyard_core::ids::ScheduleId;
use runyard_core::now::WallMs;
use runyard_core::schedule::{Cause, Outcome, Rules, Run, Schedule, ScheduleFacts, Standing, Timing};
use runyard_wire::{
    EventView, Id, RunCause, RunOutcome, RunView, ScheduleRequest, ScheduleState, ScheduleView, Timestamp, UsageView,
};
use serde_json::json;

use super::session::usage_view;

/// Moments that are shown in advance.
const NEXT_RUNS: usize = 5;

/// The row, what was submitted, and its latest run.
pub fn schedule_view(row: &Schedule, asked: ScheduleRequest, last: Option<&Run>, is_all_paused: bool) -> ScheduleView {
    let (state, reason) = match &row.standing {
        Standing::Enabled if is_all_paused => (ScheduleState::Enabled, "all schedules are paused".to_owned()),
        Standing::Enabled => (ScheduleState::Enabled, String::new()),
        Standing::Paused { reason } => (ScheduleState::Paused, reason.to_string()),
        Standing::Done { why } => (ScheduleState::Done, why.to_string()),
    };
    let next_runs = row.next_for.filter(|_| row.is_enabled()).map(|first| next_of(row, first)).unwrap_or_default();
    ScheduleView {
        id: Id(row.id.0),
        name: row.name.to_string(),
        state,
        reason,
        description: described(&row.rules.timing),
        schedule: asked.schedule,
        task: asked.task,
        overlap: asked.overlap.unwrap_or_default(),
        catch_up: asked.catch_up.unwrap_or_default(),
        jitter_ms: row.rules.jitter_ms,
        exact: asked.exact.unwrap_or(false),
        stagger_ms: row.rules.stagger_ms,
        start_at: row.rules.from.map(Timestamp),
        end_at: row.rules.until.map(Timestamp),
        max_runs: row.rules.runs_max,
        delete_after_run: row.rules.delete_after_run,
        alert_after: row.rules.alert_after,
        disable_after: row.rules.pause_after,
        enabled: row.is_enabled(),
        next_run_at: row.due_at().map(Timestamp),
        next_runs,
        runs: row.n_runs,
        running: row.n_live,
        consecutive_failures: row.n_failed_in_row,
        last_run: last.map(|run| RunView { tail: None, ..run_view(run) }),
        revision: row.revision,
        created_at: Timestamp(row.created_at),
        updated_at: Timestamp(row.changed_at),
    }
}

fn next_of(row: &Schedule, first: WallMs) -> Vec<Timestamp> {
    let n_left = row.rules.runs_max.map_or(u64::MAX, |max| max.saturating_sub(row.n_runs));
    let n_max = NEXT_RUNS.min(usize::try_from(n_left).unwrap_or(usize::MAX));
    moments(&row.rules, Some(first)).take(n_max).map(|at| Timestamp(row.rules.fires_at(row.id, at))).collect()
}

/// The next moments after this one, as the timing gives them.
pub fn next_runs(rules: &Rules, after: WallMs, n: usize) -> Vec<Timestamp> {
    moments(rules, rules.next_after(after)).take(n).map(Timestamp).collect()
}

fn moments(rules: &Rules, first: Option<WallMs>) -> impl Iterator<Item = WallMs> {
    std::iter::successors(first, |at| rules.next_after(*at))
}

/// When it runs, in English.
pub fn described(timing: &Timing) -> String {
    match timing {
        Timing::At(at) => format!("once, at {}", Timestamp(*at)),
        Timing::Every { every_ms, .. } => format!("every {}", span(*every_ms)),
        Timing::Cron(calendar) => format!("{}, in {}", calendar.expr().describe(), calendar.zone_name()),
        Timing::Unreadable { why, .. } => format!("never: {why}"),
    }
}

/// `1 hour 30 minutes`; a single unit goes without its number.
fn span(ms: u64) -> String {
    const UNITS: [(&str, u64); 5] =
        [("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000), ("millisecond", 1)];
    let mut rest = ms;
    let mut parts = Vec::new();
    for (unit, unit_ms) in UNITS {
        let n = rest / unit_ms;
        rest %= unit_ms;
        match n {
            0 => {}
            1 => parts.push(format!("1 {unit}")),
            n => parts.push(format!("{n} {unit}s")),
        }
    }
    match parts.as_slice() {
        [one] => one.strip_prefix("1 ").map_or_else(|| one.clone(), str::to_owned),
        parts => parts.join(" "),
    }
}

pub fn run_view(run: &Run) -> RunView {
    let (outcome, missed) = match run.outcome {
        Outcome::Live => (RunOutcome::Running, None),
        Outcome::Completed => (RunOutcome::Completed, None),
        Outcome::Failed => (RunOutcome::Failed, None),
        Outcome::Cancelled => (RunOutcome::Cancelled, None),
        Outcome::Skipped => (RunOutcome::Skipped, None),
        Outcome::Missed { n } => (RunOutcome::Missed, Some(n)),
    };
    RunView {
        run: run.n,
        scheduled_for: Timestamp(run.scheduled_for),
        cause: match run.cause {
            Cause::Time => RunCause::Time,
            Cause::CatchUp => RunCause::CatchUp,
            Cause::Hand => RunCause::Hand,
        },
        task_id: run.task.map(|task| Id(task.0)),
        outcome,
        missed,
        created_at: Timestamp(run.created_at),
        started_at: run.started_at.map(Timestamp),
        ended_at: run.ended_at.map(Timestamp),
        duration_ms: run.ended_at.zip(run.started_at).map(|(end, start)| end.saturating_sub(start)),
        attempts: run.attempts,
        class: run.class.map(super::class),
        reason: run.reason.to_string(),
        usage: run.usage.as_ref().map_or_else(UsageView::default, usage_view),
        // It may begin in the middle of a character.
        tail: run.tail.as_deref().map(|tail| String::from_utf8_lossy(tail).into_owned()),
    }
}

pub(super) fn add_schedule_facts(view: &mut EventView, facts: &ScheduleFacts) {
    view.schedule = Some(Id(facts.schedule.0));
    view.task = facts.task.map(|task| Id(task.0));
    view.agent = facts.agent.as_deref().map(str::to_owned);
    view.reason = Some(facts.reason.to_string()).filter(|reason| !reason.is_empty());
    let mut data = json!({ "name": facts.name.as_str(), "consecutiveFailures": facts.n_failed });
    if let Some(run) = facts.run {
        data["run"] = json!(run);
    }
    if let Some(at) = facts.scheduled_for {
        data["scheduledFor"] = json!(Timestamp(at));
    }
    view.data = Some(data.into());
}

/// Where a list goes on.
pub fn schedule_cursor(id: ScheduleId) -> String {
    Id(id.0).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_told_in_the_units_people_use() {
        for (ms, text) in [
            (1000, "second"),
            (60_000, "minute"),
            (300_000, "5 minutes"),
            (5_400_000, "1 hour 30 minutes"),
            (86_400_000, "day"),
            (90_061_500, "1 day 1 hour 1 minute 1 second 500 milliseconds"),
        ] {
            assert_eq!(span(ms), text);
        }
    }
}
