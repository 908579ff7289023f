//! Schedules: tasks at times.

mod catch_up;
mod run;

pub use catch_up::CatchUp;
pub use run::{RunCause, RunOutcome, RunView};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::object::object;
use crate::words::words;
use crate::{Id, Json, TaskRequest, Timestamp};

/// A schedule to be made: when, what, and what becomes of runs that are late or meet each other.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct ScheduleRequest {
    /// Its name; no two have the same.
    pub name: String,
    /// When it runs.
    pub schedule: ScheduleTiming,
    /// What it runs: a task as in `POST /v1/tasks`, without runAt, delayMs, deadline, dependsOn, idempotencyKey and sentAt.
    /// In its texts `{{scheduledFor}}`, `{{fireTime}}` and `{{run}}` are filled in for each run. It runs in lane `cron`
    /// unless it says otherwise.
    pub task: TaskRequest,
    /// What becomes of a run that is due while an earlier one is still at work (default `skip`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
    /// What becomes of runs that were due while the server was down (default `skip`). One that is late by less than a
    /// minute always runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<CatchUp>,
    /// Each run comes up to so many milliseconds later, another number for each (default 0).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_ms: Option<u64>,
    /// True: a cron expression that fires on the hour does so to the second, and is not spread over five minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact: Option<bool>,
    /// No run before this moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_at: Option<Timestamp>,
    /// No run at or after this moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_at: Option<Timestamp>,
    /// It is done after so many runs, skipped and missed ones included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_runs: Option<u64>,
    /// It is deleted after its last run (default: true for `at`, else false). Its runs stay readable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_after_run: Option<bool>,
    /// After so many failed runs in a row `schedule.failing` is told, and `schedule.recovered` after the next that
    /// completes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alert_after: Option<u32>,
    /// After so many failed runs in a row it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_after: Option<u32>,
    /// False: it is made, but paused (default true).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

object!(ScheduleRequest);

/// When a schedule runs. Each kind has its own fields.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct ScheduleTiming {
    /// `cron`, `every` or `at`.
    pub kind: ScheduleKind,
    /// cron: five fields (minute, hour, day of month, month, day of week), six with the second first, or `@hourly` and its
    /// like.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expr: Option<String>,
    /// cron: the IANA name of the time zone (default: `[schedules] defaultTz`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tz: Option<String>,
    /// every: milliseconds between two runs, at least 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
    /// every: the moment that runs are counted from (default: now). A late run does not shift the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor: Option<Timestamp>,
    /// at: the moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

object!(ScheduleTiming);

/// How a schedule says when it runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleKind {
    /// By an expression.
    #[default]
    Cron,
    /// Each so many milliseconds.
    Every,
    /// Once.
    At,
}

words!(ScheduleKind { Cron = "cron", Every = "every", At = "at" });

/// What becomes of a run that is due while an earlier one is still at work.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// It does not take place; that is recorded.
    #[default]
    Skip,
    /// It waits for the earlier one.
    Queue,
    /// The earlier one is stopped, and it starts when that has stopped.
    Replace,
    /// Both run.
    Allow,
}

words!(Overlap { Skip = "skip", Queue = "queue", Replace = "replace", Allow = "allow" });

/// Where a schedule stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleState {
    Enabled,
    /// Nothing of it is due until it is resumed.
    Paused,
    /// Nothing of it will be due any more.
    Done,
}

words!(ScheduleState { Enabled = "enabled", Paused = "paused", Done = "done" });

/// Changes to a schedule: the fields of a `ScheduleRequest`, each of them optional. `schedule` and `task` are changed field
/// by field too; a `schedule` of another kind replaces the earlier one. null takes a field back to its default.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = Object)]
pub struct SchedulePatch(pub std::collections::BTreeMap<String, Json>);

/// Why a schedule is paused; the whole body may be left out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct PauseRequest {
    /// For people; shown with the schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

object!(PauseRequest);

/// When would it run?
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct PreviewRequest {
    /// What a schedule would say.
    pub schedule: ScheduleTiming,
    /// How many moments, 1 to 100 (default 5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
}

object!(PreviewRequest);

/// When it would run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreviewView {
    /// In English.
    pub description: String,
    /// The next moments, as the timing gives them: without stagger and jitter.
    pub next_runs: Vec<Timestamp>,
}

/// A schedule as it is, defaults filled in.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleView {
    /// Its id.
    pub id: Id,
    /// Its name; wherever an id is asked for, the name will do.
    pub name: String,
    /// Where it stands.
    pub state: ScheduleState,
    /// Why it stands there; absent when there is nothing to add.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// When it runs, in English.
    pub description: String,
    /// When it runs.
    pub schedule: ScheduleTiming,
    /// What it runs, as it was asked for.
    pub task: TaskRequest,
    /// What becomes of a run that is due while an earlier one is still at work.
    pub overlap: Overlap,
    /// What becomes of runs that were due while the server was down.
    pub catch_up: CatchUp,
    /// Each run comes up to so many milliseconds later.
    pub jitter_ms: u64,
    /// It is not spread.
    pub exact: bool,
    /// All its runs come so many milliseconds later, so that not all schedules of an hour run in one second.
    pub stagger_ms: u64,
    /// No run before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_at: Option<Timestamp>,
    /// No run at or after this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_at: Option<Timestamp>,
    /// It is done after so many runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runs: Option<u64>,
    /// It is deleted after its last run.
    pub delete_after_run: bool,
    /// After so many failed runs in a row its owner is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alert_after: Option<u32>,
    /// After so many failed runs in a row it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_after: Option<u32>,
    /// It is neither paused nor done.
    pub enabled: bool,
    /// When it runs next, stagger and jitter included; absent while nothing of it is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_run_at: Option<Timestamp>,
    /// The next five, the first being `nextRunAt`.
    pub next_runs: Vec<Timestamp>,
    /// Runs so far, skipped and missed ones included.
    pub runs: u64,
    /// Those of them whose task has not ended.
    pub running: u32,
    /// Runs that failed since the last that completed.
    pub consecutive_failures: u32,
    /// The latest run, without its tail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<RunView>,
    /// Raised by every change of what it says.
    pub revision: u32,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed, paused or resumed.
    pub updated_at: Timestamp,
}

/// The run of a schedule that a task is the task of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskSchedule {
    /// The schedule.
    pub id: Id,
    /// The number of the run, from 1.
    pub run: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    #[test]
    fn a_request_survives_its_json_with_every_field() {
        let body = serde_json::json!({
            "name": "n", "schedule": {"kind": "cron", "expr": "@daily", "tz": "UTC"}, "task": {"kind": "noop"},
            "overlap": "queue", "catchUp": {"limit": 3, "expiryMs": 5000}, "jitterMs": 1, "exact": true,
            "startAt": "2026-01-01T00:00:00.000Z", "endAt": "2027-01-01T00:00:00.000Z", "maxRuns": 9,
            "deleteAfterRun": false, "alertAfter": 2, "disableAfter": 5, "enabled": false
        });
        let request: ScheduleRequest = parse(body.to_string().as_bytes()).unwrap();
        assert_eq!(serde_json::to_value(&request).unwrap(), body);
        let timing = serde_json::json!({"kind": "every", "everyMs": 5, "anchor": "2026-01-01T00:00:00.000Z"});
        let read: ScheduleTiming = parse(timing.to_string().as_bytes()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), timing);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (body, field) in [
            (r#"{"schedule":{"kind":"at"},"task":{}}"#, "name"),
            (r#"{"name":"n","task":{}}"#, "schedule"),
            (r#"{"name":"n","schedule":{"kind":"at"}}"#, "task"),
            (r#"{"name":"n","schedule":{},"task":{}}"#, "schedule.kind"),
            (r#"{"name":"n","schedule":{"kind":"hourly"},"task":{}}"#, "schedule.kind"),
            (r#"{"name":"n","schedule":{"kind":"cron","zone":"UTC"},"task":{}}"#, "schedule.zone"),
            (r#"{"name":"n","schedule":{"kind":"every","everyMs":-1},"task":{}}"#, "schedule.everyMs"),
            (r#"{"name":"n","schedule":{"kind":"at","at":"noon"},"task":{}}"#, "schedule.at"),
            (r#"{"name":"n","schedule":{"kind":"at"},"task":{"prio":1}}"#, "task.prio"),
            (r#"{"name":"n","schedule":{"kind":"at"},"task":{},"overlap":"both"}"#, "overlap"),
            (r#"{"name":"n","schedule":{"kind":"at"},"task":{},"catchUp":"all"}"#, "catchUp"),
            (r#"{"name":"n","schedule":{"kind":"at"},"task":{},"catchUp":{"limit":1}}"#, "catchUp.expiryMs"),
            (r#"{"name":"n","schedule":{"kind":"at"},"task":{},"often":true}"#, "often"),
        ] {
            let error = parse::<ScheduleRequest>(body.as_bytes()).unwrap_err();
            assert_eq!(error.field, field, "{body}: {error}");
        }
    }

    #[test]
    fn text_and_json_agree() {
        for overlap in Overlap::ALL {
            assert_eq!(serde_json::to_string(overlap).unwrap(), format!("\"{overlap}\""));
        }
        for state in ScheduleState::ALL {
            assert_eq!(serde_json::to_string(state).unwrap(), format!("\"{state}\""));
        }
        for kind in ScheduleKind::ALL {
            assert_eq!(serde_json::to_string(kind).unwrap(), format!("\"{kind}\""));
        }
    }
}
