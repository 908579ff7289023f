//! Schedules and runs as tables and lines.

use runyard_wire::{CatchUp, RunView, ScheduleState, ScheduleView, Timestamp};

use crate::error::Result;
use crate::out;
use crate::span::{from_now, short};

pub fn schedules(schedules: &[ScheduleView]) -> Result<()> {
    if schedules.is_empty() {
        out::note("no schedules");
        return Ok(());
    }
    let mut table = out::table(&["NAME", "STATE", "WHEN", "NEXT", "LAST", "RUNS", "FAILED"]);
    for schedule in schedules {
        table.add_row(vec![
            schedule.name.as_str().into(),
            schedule.state.as_str().into(),
            schedule.description.as_str().into(),
            schedule.next_run_at.map(from_now).unwrap_or_default().into(),
            schedule.last_run.as_ref().map_or("", |run| run.outcome.as_str()).into(),
            out::number(schedule.runs),
            out::number(schedule.consecutive_failures),
        ]);
    }
    out::print(&table)
}

pub fn runs(runs: &[RunView]) -> Result<()> {
    if runs.is_empty() {
        out::note("no runs yet");
        return Ok(());
    }
    let mut table = out::table(&["RUN", "SCHEDULED FOR", "CAUSE", "OUTCOME", "ATTEMPTS", "TOOK", "TASK", "REASON"]);
    for run in runs {
        table.add_row(vec![
            out::number(run.run),
            run.scheduled_for.to_string().into(),
            run.cause.as_str().into(),
            run.outcome.as_str().into(),
            out::number(run.attempts),
            out::number(run.duration_ms.map(short).unwrap_or_default()),
            run.task_id.map(|id| id.to_string()).unwrap_or_default().into(),
            reason(run).into(),
        ]);
    }
    out::print(&table)
}

/// One line of it: a table is for the eye.
fn reason(run: &RunView) -> String {
    match run.missed {
        Some(n) => format!("{n} missed, this is the latest"),
        None => run.reason.lines().next().unwrap_or_default().to_owned(),
    }
}

pub fn one(schedule: &ScheduleView) -> Result<()> {
    described(schedule).into_iter().try_for_each(out::line)
}

/// Names on the left, values on the right.
fn described(schedule: &ScheduleView) -> Vec<String> {
    let line = |name: &str, value: String| format!("{name:<13}{value}");
    let moment = |at: Timestamp| format!("{at} ({})", from_now(at));
    let state = match (schedule.state, schedule.reason.as_str()) {
        (state, "") => state.to_string(),
        (state, reason) => format!("{state}: {reason}"),
    };
    let mut lines = vec![
        line("schedule", format!("{} ({})", schedule.name, schedule.id)),
        line("state", state),
        line("when", schedule.description.clone()),
        line("runs", format!("kind {}", schedule.task.kind.as_deref().unwrap_or("?"))),
        line("agent", schedule.task.agent.clone().unwrap_or_default()),
        line("lane", schedule.task.lane.clone().unwrap_or_default()),
        line("overlap", schedule.overlap.to_string()),
        line("catch up", catch_up(schedule.catch_up)),
    ];
    let spans = [("spread", schedule.jitter_ms), ("stagger", schedule.stagger_ms)];
    lines.extend(spans.into_iter().filter(|(_, ms)| *ms > 0).map(|(name, ms)| line(name, short(ms))));
    let times = [("start at", schedule.start_at), ("end at", schedule.end_at)];
    lines.extend(times.into_iter().filter_map(|(name, at)| Some(line(name, moment(at?)))));
    let counts = [
        ("max runs", schedule.max_runs),
        ("alert after", schedule.alert_after.map(u64::from)),
        ("pause after", schedule.disable_after.map(u64::from)),
    ];
    lines.extend(counts.into_iter().filter_map(|(name, n)| Some(line(name, n?.to_string()))));
    lines.push(line("so far", so_far(schedule)));
    lines.extend(schedule.last_run.iter().map(|run| line("last run", last_run(run))));
    if schedule.state == ScheduleState::Enabled {
        lines.extend(schedule.next_runs.iter().map(|at| line("next", moment(*at))));
    }
    lines
}

fn so_far(schedule: &ScheduleView) -> String {
    let mut text = format!("{} runs", schedule.runs);
    if schedule.running > 0 {
        text += &format!(", {} at work", schedule.running);
    }
    if schedule.consecutive_failures > 0 {
        text += &format!(", the last {} failed", schedule.consecutive_failures);
    }
    text
}

fn last_run(run: &RunView) -> String {
    let text = format!("{} {} (for {})", run.run, run.outcome, run.scheduled_for);
    if run.reason.is_empty() { text } else { format!("{text}: {}", run.reason) }
}

fn catch_up(catch_up: CatchUp) -> String {
    match catch_up {
        CatchUp::Skip => "skip".to_owned(),
        CatchUp::One => "one".to_owned(),
        CatchUp::All { limit, expiry_ms } => format!("{limit}, none older than {}", short(expiry_ms)),
    }
}
