//! One schedule: when it runs, what it runs, and what the scheduler gets of both.

use std::sync::Arc;

use runyard_core::event::NewMember;
use runyard_core::hash::mix;
use runyard_core::ids::{ScheduleId, TaskId};
use runyard_core::name::Name;
use runyard_core::schedule::{
    CatchUp, NewSchedule, Overlap, Rules, ScheduleBody, Standing, TAIL_BYTES_MAX, Template, Timing,
};
use runyard_core::session::Settings as SessionSettings;
use runyard_cron::{Calendar, NoCalendar};
use runyard_wire as wire;
use runyard_wire::{Id, RetryRequest, ScheduleKind, ScheduleRequest, ScheduleTiming, TaskRequest, Timestamp};

use super::fields::{self, Checked};
use super::task::{AGENT_DEFAULT, Resolved, prepare};
use super::{Intake, MS_MAX};
use crate::config;
use crate::problem::{Error, Invalid};

pub const LANE_CRON: &str = "cron";
/// More often than this is the work of a loop, not of a schedule.
const EVERY_MS_MIN: u64 = 1000;
const JITTER_MS_MAX: u64 = 24 * 3_600_000;
/// As many as one tick fires.
const CATCH_UP_MAX: u32 = 100;
/// Schedules of an hour are spread over five minutes.
const STAGGER_MS: u64 = 300_000;
/// A session whose schedule lets its runs overlap is no line any more.
const CONCURRENT_MAX: u32 = 1000;
const RETRY_MAX: u32 = 3;
const RETRY_BACKOFF_MS: u64 = 2000;
const RETRY_BACKOFF_MS_MAX: u64 = 30_000;
const RETRY_JITTER: f64 = 0.25;
/// What the API itself is called by.
const NAMES_TAKEN: [&str; 1] = ["preview"];

/// A schedule that may be made, or take the place of an earlier one.
pub fn prepare_schedule(
    intake: &Intake,
    id: ScheduleId,
    request: ScheduleRequest,
    standing: Standing,
) -> Result<NewSchedule, Error> {
    let name = schedule_name(&request.name)?;
    let (timing, shown) = timing(intake, &request.schedule)?;
    let rules = rules(id, &request, timing)?;
    let template = template(intake, id, &request.task, rules.overlap)?;
    // Whether it is enabled, its row says.
    let task = TaskRequest {
        agent: Some(template.flow.agent.to_string()),
        lane: Some(template.flow.lane.to_string()),
        ..request.task
    };
    let kept = ScheduleRequest { schedule: shown, task, enabled: None, ..request };
    let spec = serde_json::to_vec(&kept).expect("a schedule is plain data").into();
    Ok(NewSchedule { name, rules, standing, body: ScheduleBody { template, spec } })
}

pub fn check_future(rules: &Rules, after: u64) -> Checked<()> {
    if rules.next_after(after).is_some() { Ok(()) } else { Err(no_future(rules)) }
}

/// With the field that is to blame.
pub fn no_future(rules: &Rules) -> Invalid {
    let (field, message) = match &rules.timing {
        Timing::At(at) => {
            ("schedule.at", format!("{} is already past, or outside of startAt and endAt", Timestamp(*at)))
        }
        _ if rules.until.is_some() => ("endAt", "no run lies before it".to_owned()),
        _ => ("schedule", "it would never run".to_owned()),
    };
    Invalid { code: "no_future_run", ..Invalid::new(field, message) }
}

/// An id is no name: it would be taken for the id of another.
fn schedule_name(text: &str) -> Checked<Name> {
    if text.parse::<Id>().is_ok() {
        return Err(Invalid::new("name", "looks like an id"));
    }
    if NAMES_TAKEN.contains(&text) {
        return Err(Invalid::new("name", format!("`{text}` is not free for a schedule")));
    }
    fields::name("name", text)
}

/// With the timing as it is kept: what depends on the configuration or on now is written into it.
pub fn timing(intake: &Intake, asked: &ScheduleTiming) -> Checked<(Timing, ScheduleTiming)> {
    check_kind(asked)?;
    let mut kept = asked.clone();
    let timing = match asked.kind {
        ScheduleKind::At => Timing::At(required("schedule.at", asked.at)?.as_ms()),
        ScheduleKind::Every => {
            let every_ms = required("schedule.everyMs", asked.every_ms)?;
            if !(EVERY_MS_MIN..=MS_MAX).contains(&every_ms) {
                let message = format!("must be from {EVERY_MS_MIN} to {MS_MAX} milliseconds");
                return Err(Invalid::new("schedule.everyMs", message));
            }
            let anchor = asked.anchor.unwrap_or(Timestamp(intake.now_ms));
            kept.anchor = Some(anchor);
            Timing::Every { every_ms, anchor: anchor.as_ms() }
        }
        ScheduleKind::Cron => {
            let expr = required("schedule.expr", asked.expr.as_deref())?;
            let zone = asked.tz.as_deref().unwrap_or(&intake.config.schedules.default_tz);
            kept.tz = Some(zone.to_owned());
            Timing::Cron(Arc::new(Calendar::new(expr, zone).map_err(|error| no_calendar(&error))?))
        }
    };
    Ok((timing, kept))
}

fn no_calendar(error: &NoCalendar) -> Invalid {
    let (code, field) = match error {
        NoCalendar::Expr(_) => ("invalid_expression", "schedule.expr"),
        NoCalendar::Zone(_) => ("unknown_time_zone", "schedule.tz"),
    };
    Invalid { code, ..Invalid::new(field, error.to_string()) }
}

fn required<T>(field: &str, value: Option<T>) -> Checked<T> {
    value.ok_or_else(|| Invalid::new(field, "is required for this kind"))
}

/// A field of another kind is a mistake about the kind.
fn check_kind(asked: &ScheduleTiming) -> Checked<()> {
    let of = [
        (ScheduleKind::Cron, "expr", asked.expr.is_some()),
        (ScheduleKind::Cron, "tz", asked.tz.is_some()),
        (ScheduleKind::Every, "everyMs", asked.every_ms.is_some()),
        (ScheduleKind::Every, "anchor", asked.anchor.is_some()),
        (ScheduleKind::At, "at", asked.at.is_some()),
    ];
    match of.into_iter().find(|(kind, _, is_given)| *is_given && *kind != asked.kind) {
        Some((kind, field, _)) => {
            let message = format!("belongs to kind `{kind}`, and this is `{}`", asked.kind);
            Err(Invalid::new(format!("schedule.{field}"), message))
        }
        None => Ok(()),
    }
}

fn rules(id: ScheduleId, request: &ScheduleRequest, timing: Timing) -> Checked<Rules> {
    let jitter_ms = request.jitter_ms.unwrap_or(0);
    if jitter_ms > JITTER_MS_MAX {
        return Err(Invalid::new("jitterMs", format!("must be from 0 to {JITTER_MS_MAX} milliseconds")));
    }
    if let (Some(from), Some(until)) = (request.start_at, request.end_at)
        && from >= until
    {
        return Err(Invalid::new("endAt", "lies before startAt"));
    }
    at_least_one("maxRuns", request.max_runs)?;
    at_least_one("alertAfter", request.alert_after.map(u64::from))?;
    at_least_one("disableAfter", request.disable_after.map(u64::from))?;
    Ok(Rules {
        overlap: overlap(request.overlap.unwrap_or_default()),
        catch_up: catch_up(request.catch_up.unwrap_or_default())?,
        stagger_ms: stagger_ms(id, request, &timing),
        jitter_ms,
        from: request.start_at.map(Timestamp::as_ms),
        until: request.end_at.map(Timestamp::as_ms),
        runs_max: request.max_runs,
        delete_after_run: request.delete_after_run.unwrap_or(matches!(timing, Timing::At(_))),
        alert_after: request.alert_after,
        pause_after: request.disable_after,
        timing,
    })
}

/// The same for ever, and another for nearly every schedule.
fn stagger_ms(id: ScheduleId, request: &ScheduleRequest, timing: &Timing) -> u64 {
    match timing {
        Timing::Cron(calendar) if calendar.expr().is_on_the_hour() && request.exact != Some(true) => {
            mix(id.0 as u64 ^ (id.0 >> 64) as u64) % STAGGER_MS
        }
        _ => 0,
    }
}

fn at_least_one(field: &str, value: Option<u64>) -> Checked<()> {
    if value == Some(0) { Err(Invalid::new(field, "must be at least 1")) } else { Ok(()) }
}

fn overlap(asked: wire::Overlap) -> Overlap {
    match asked {
        wire::Overlap::Skip => Overlap::Skip,
        wire::Overlap::Queue => Overlap::Queue,
        wire::Overlap::Replace => Overlap::Replace,
        wire::Overlap::Allow => Overlap::Allow,
    }
}

fn catch_up(asked: wire::CatchUp) -> Checked<CatchUp> {
    match asked {
        wire::CatchUp::Skip => Ok(CatchUp::Skip),
        wire::CatchUp::One => Ok(CatchUp::One),
        wire::CatchUp::All { limit, .. } if !(1..=CATCH_UP_MAX).contains(&limit) => {
            Err(Invalid::new("catchUp.limit", format!("must be from 1 to {CATCH_UP_MAX}")))
        }
        wire::CatchUp::All { limit, expiry_ms } => {
            let expiry_ms = fields::ms("catchUp.expiryMs", 1, Some(expiry_ms))?.unwrap_or(MS_MAX);
            Ok(CatchUp::All { limit, expiry_ms })
        }
    }
}

/// The same intake as that of a submit, by the rights of whoever makes the schedule.
fn template(intake: &Intake, id: ScheduleId, task: &TaskRequest, overlap: Overlap) -> Result<Template, Error> {
    check_task(task).map_err(|invalid| invalid.inside("task"))?;
    let request = TaskRequest {
        lane: task.lane.clone().or_else(|| Some(LANE_CRON.to_owned())),
        retry: Some(retry(intake.config, task)),
        ..task.clone()
    };
    // Whoever asks for a schedule is not who its runs are traced to.
    let intake = Intake { traceparent: None, ..*intake };
    let resolved = Resolved { id: TaskId(0), depends_on: Vec::new(), retry_of: None };
    let new = prepare(&intake, request, resolved).map_err(inside_task)?.new;
    Ok(Template {
        flow: new.flow,
        rank: new.rank,
        policy: new.policy,
        session: Some(new.session.unwrap_or_else(|| own_session(id, overlap))),
        spec: new.spec,
    })
}

/// Every run of it goes through one line, so that none overtakes another and a stop reaches them all.
fn own_session(id: ScheduleId, overlap: Overlap) -> NewMember {
    let max_concurrent = if overlap == Overlap::Allow { CONCURRENT_MAX } else { 1 };
    let settings =
        SessionSettings { debounce_ms: Some(0), max_concurrent: Some(max_concurrent), ..SessionSettings::default() };
    NewMember { key: Name::new(&format!("{LANE_CRON}/{}", Id(id.0))), settings, as_mode: None, sent_at: None }
}

/// What makes sense for one task only.
fn check_task(task: &TaskRequest) -> Checked<()> {
    let given = [
        ("runAt", task.run_at.is_some()),
        ("delayMs", task.delay_ms.is_some()),
        ("deadline", task.deadline.is_some()),
        ("dependsOn", !task.depends_on.is_empty()),
        ("idempotencyKey", task.idempotency_key.is_some()),
        ("sentAt", task.sent_at.is_some()),
    ];
    if let Some((field, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
        return Err(Invalid::new(field, "a task of a schedule cannot have it: it is there for every run"));
    }
    let kind = task.kind.as_deref().unwrap_or_default();
    let payload = task.payload.as_ref().map(|payload| &*payload.0);
    match runyard_exec::uploads_named(kind, payload).into_iter().next() {
        Some((field, _)) => Err(Invalid::new(field, "uploads are kept for a time only; a schedule cannot use them")),
        None => Ok(()),
    }
}

/// A run that fails is worth a little more patience than a submit that somebody waits for. What its agent or its kind is
/// configured with goes before.
fn retry(config: &config::Config, task: &TaskRequest) -> RetryRequest {
    let agent =
        config.agents.get(task.agent.as_deref().unwrap_or(AGENT_DEFAULT)).and_then(|agent| agent.retry.as_ref());
    let kind = config.kinds.get(task.kind.as_deref().unwrap_or_default()).and_then(|kind| kind.retry.as_ref());
    let is_free = |is_set: fn(&config::Retry) -> bool| ![agent, kind].into_iter().flatten().any(is_set);
    let asked = task.retry.clone().unwrap_or_default();
    RetryRequest {
        max_retries: asked.max_retries.or(is_free(|retry| retry.max_retries.is_some()).then_some(RETRY_MAX)),
        backoff_ms: asked.backoff_ms.or(is_free(|retry| retry.backoff_ms.is_some()).then_some(RETRY_BACKOFF_MS)),
        max_backoff_ms: asked
            .max_backoff_ms
            .or(is_free(|retry| retry.max_backoff_ms.is_some()).then_some(RETRY_BACKOFF_MS_MAX)),
        jitter: asked.jitter.or(is_free(|retry| retry.jitter.is_some()).then_some(RETRY_JITTER)),
        ..asked
    }
}

fn inside_task(error: Error) -> Error {
    match error {
        Error::Invalid(invalid) => Error::Invalid(invalid.inside("task")),
        Error::NotAllowed { field, message } => Error::NotAllowed { field: format!("task.{field}"), message },
        other => other,
    }
}

const _: () = assert!(TAIL_BYTES_MAX == 16 * 1024, "the API's description says so");
