//! Schedules: make, list, show, change, pause, run now, their runs.

mod found;

pub use found::may_see;

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use runyard_core::event::{Answer, Event, Receipt, Refusal};
use runyard_core::ids::ScheduleId;
use runyard_core::name::Name;
use runyard_core::schedule::{
    NewSchedule, Rules, Run, Schedule, ScheduleAct, ScheduleAnswer, ScheduleRefusal, Standing,
};
use runyard_store::store::ScheduleFilter;
use runyard_wire::{
    Id, ListPage, PauseRequest, PreviewRequest, PreviewView, RunView, SchedulePatch, ScheduleRequest, ScheduleView,
};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use self::found::{Found, agent_of, deleted, not_found, own, page, read_spec};
use super::extract::{Body, OptionalBody, Params, SchedulePath, cursor, page_limit};
use super::tasks::unexpected;
use crate::access::{Caller, Scope};
use crate::app::App;
use crate::audit::Entry;
use crate::clock;
use crate::handle::Handle;
use crate::intake::{self, Intake, runs_a_program};
use crate::nodes::{Forwarded, Once};
use crate::problem::{Error, Invalid};
use crate::uploads::KnownUploads;
use crate::view;

const PREVIEW_DEFAULT: usize = 5;
const PREVIEW_MAX: usize = 100;
const REASON_BYTES_MAX: usize = 256;

/// Make a schedule.
#[utoipa::path(post, path = "/v1/schedules", tag = "schedules", request_body = ScheduleRequest,
    responses((status = 201, description = "It is stored, and its next runs are known", body = ScheduleView,
        headers(("Location" = String, description = "Where the schedule is")))))]
pub async fn create(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(forwarded): Extension<Forwarded>,
    body: Body<ScheduleRequest>,
) -> Result<Response, Error> {
    let id = ScheduleId(forwarded.ids);
    let standing = standing(body.value.enabled.unwrap_or(true));
    let new = prepared(&app, &caller, id, body.value, standing, forwarded.asked_at_ms())?;
    let view = put(&app, &app.handle, &caller, id, new, "schedule.created").await?;
    let location = format!("/v1/schedules/{}", view.id);
    let mut response = (StatusCode::CREATED, Json(view)).into_response();
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

#[derive(Deserialize, IntoParams, Default)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub struct ScheduleParams {
    /// True: only those that are enabled. False: only those that are paused or done.
    enabled: Option<bool>,
    /// Schedules whose tasks are of this agent.
    agent: Option<String>,
    /// 1 to 1000; default 100.
    limit: Option<usize>,
    /// `nextCursor` of the page before.
    cursor: Option<String>,
}

/// List schedules, the latest made first.
#[utoipa::path(get, path = "/v1/schedules", tag = "schedules", params(ScheduleParams),
    responses((status = 200, description = "One page", body = ListPage<ScheduleView>)))]
pub async fn list(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<ScheduleParams>,
) -> Result<Json<ListPage<ScheduleView>>, Error> {
    if let Some(agent) = params.agent.as_deref().filter(|agent| !caller.may_act_for(agent)) {
        return Err(Error::ForeignAgent(agent.to_owned()));
    }
    let limit = page_limit(params.limit)?;
    let after = params.cursor.as_deref().map(str::parse::<Id>).transpose();
    let after = after.map_err(|_| Invalid::new("cursor", "is not one that this server gave"))?;
    let agent = params.agent.as_deref().or(caller.agents.only()).map(Name::new);
    let filter = ScheduleFilter { enabled: params.enabled, agent };
    let (found, next) = app.read(move |reader| page(reader, &filter, after, limit)).await?;
    let mut items = Vec::with_capacity(found.len());
    for (row, spec, last) in found {
        let asked = read_spec(&spec)?;
        if caller.may_act_for(agent_of(&asked)) {
            items.push(shown(&app, &row, asked, last.as_ref()));
        }
    }
    Ok(Json(ListPage { items, next_cursor: next.map(view::schedule_cursor) }))
}

/// Show a schedule.
#[utoipa::path(get, path = "/v1/schedules/{id}", tag = "schedules", params(("id" = String, Path, description = "Its id or its name")),
    responses((status = 200, description = "The schedule", body = ScheduleView)))]
pub async fn show(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    SchedulePath(text): SchedulePath,
) -> Result<Json<ScheduleView>, Error> {
    let Found { row, asked, last } = own(&app, &caller, &text).await?;
    Ok(Json(shown(&app, &row, asked, last.as_ref())))
}

/// Change a schedule, field by field; null takes one back to its default. Moments that have had their run do not come again.
#[utoipa::path(patch, path = "/v1/schedules/{id}", tag = "schedules", params(("id" = String, Path, description = "Its id or its name")),
    request_body = SchedulePatch, responses((status = 200, description = "The schedule as changed", body = ScheduleView)))]
pub async fn change(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(once): Extension<Once>,
    SchedulePath(text): SchedulePath,
    body: Body<SchedulePatch>,
) -> Result<Json<ScheduleView>, Error> {
    if once.first.is_some() {
        // It may have another name since.
        let renamed = body.value.0.get("name").and_then(|name| serde_json::from_str::<String>(name.0.get()).ok());
        let name = renamed.filter(|_| text.parse::<Id>().is_err()).unwrap_or(text);
        app.audit.record(&caller.actor, Entry::new("schedule.changed").of(&*name)).await;
        return show(State(app), Extension(caller), SchedulePath(name)).await;
    }
    let Found { row, asked, .. } = own(&app, &caller, &text).await?;
    let is_renewed = intake::touches_times(&body.value);
    let request = intake::patched(&asked, body.value)?;
    let standing = match (request.enabled, &row.standing) {
        (Some(true), _) => Standing::Enabled,
        (Some(false), Standing::Enabled | Standing::Done { .. }) => standing(false),
        (None, Standing::Done { .. }) if is_renewed => Standing::Enabled,
        (_, before) => before.clone(),
    };
    let new = prepared(&app, &caller, row.id, request, standing, clock::wall_ms())?;
    put(&app, &once.handle(&app), &caller, row.id, new, "schedule.changed").await.map(Json)
}

/// Delete a schedule. What it has started goes on, and its runs stay readable by its id.
#[utoipa::path(delete, path = "/v1/schedules/{id}", tag = "schedules", params(("id" = String, Path, description = "Its id or its name")),
    responses((status = 204, description = "It is gone")))]
pub async fn remove(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(once): Extension<Once>,
    SchedulePath(text): SchedulePath,
) -> Result<StatusCode, Error> {
    if once.first.is_some() {
        app.audit.record(&caller.actor, Entry::new("schedule.deleted").of(text)).await;
        return Ok(StatusCode::NO_CONTENT);
    }
    let found = own(&app, &caller, &text).await?;
    let entry = Entry::new("schedule.deleted").of(&*found.row.name).before(told(&found.asked));
    match act(&app, &once.handle(&app), &caller, &found.row, ScheduleAct::Delete, entry).await? {
        ScheduleAnswer::Deleted => Ok(StatusCode::NO_CONTENT),
        _ => Err(unexpected()),
    }
}

/// Pause a schedule: nothing of it is due until it is resumed. What it has started goes on.
#[utoipa::path(post, path = "/v1/schedules/{id}/pause", tag = "schedules", params(("id" = String, Path, description = "Its id or its name")),
    request_body = PauseRequest, responses((status = 200, description = "The schedule as it is now", body = ScheduleView)))]
pub async fn pause(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    SchedulePath(text): SchedulePath,
    OptionalBody(body): OptionalBody<PauseRequest>,
) -> Result<Json<ScheduleView>, Error> {
    let reason = body.reason.unwrap_or_default();
    if reason.len() > REASON_BYTES_MAX {
        return Err(Invalid::new("reason", format!("must be at most {REASON_BYTES_MAX} bytes")).into());
    }
    let found = own(&app, &caller, &text).await?;
    let entry = Entry::new("schedule.paused").after(Value::from(reason.as_str()));
    stand(&app, &caller, found, ScheduleAct::Pause { reason: reason.into() }, entry).await
}

/// Resume a schedule. What would have run meanwhile is not made up for.
#[utoipa::path(post, path = "/v1/schedules/{id}/resume", tag = "schedules", params(("id" = String, Path, description = "Its id or its name")),
    responses((status = 200, description = "The schedule as it is now", body = ScheduleView)))]
pub async fn resume(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    SchedulePath(text): SchedulePath,
) -> Result<Json<ScheduleView>, Error> {
    let found = own(&app, &caller, &text).await?;
    may_start(&caller, &found)?;
    stand(&app, &caller, found, ScheduleAct::Resume, Entry::new("schedule.resumed")).await
}

/// One run now, whatever its timing says, and whether it is paused or not. It counts as a run, and shifts no other.
#[utoipa::path(post, path = "/v1/schedules/{id}/run", tag = "schedules", params(("id" = String, Path, description = "Its id or its name")),
    responses((status = 200, description = "The run; `skipped` when an earlier one is at work and overlap says so", body = RunView)))]
pub async fn run(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(once): Extension<Once>,
    SchedulePath(text): SchedulePath,
) -> Result<Json<RunView>, Error> {
    if let Some(Receipt::Ran { schedule, run }) = once.first {
        app.audit.record(&caller.actor, Entry::new("schedule.run").of(&*text)).await;
        let runs = app.read(move |reader| reader.runs(schedule, Some(run + 1), 1)).await?;
        return runs.first().map(|run| Json(view::run_view(run))).ok_or_else(|| not_found(&text));
    }
    let found = own(&app, &caller, &text).await?;
    may_start(&caller, &found)?;
    let entry = Entry::new("schedule.run").of(&*found.row.name);
    match act(&app, &once.handle(&app), &caller, &found.row, ScheduleAct::Run, entry).await? {
        ScheduleAnswer::Ran(run) => Ok(Json(view::run_view(&run))),
        _ => Err(unexpected()),
    }
}

#[derive(Deserialize, IntoParams, Default)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub struct RunParams {
    /// 1 to 1000; default 100.
    limit: Option<usize>,
    /// `nextCursor` of the page before.
    cursor: Option<String>,
}

/// The runs of a schedule, the latest first; by its id also those of one that is deleted.
#[utoipa::path(get, path = "/v1/schedules/{id}/runs", tag = "schedules",
    params(("id" = String, Path, description = "Its id or its name"), RunParams),
    responses((status = 200, description = "One page", body = ListPage<RunView>)))]
pub async fn runs(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    SchedulePath(text): SchedulePath,
    Params(params): Params<RunParams>,
) -> Result<Json<ListPage<RunView>>, Error> {
    let limit = page_limit(params.limit)?;
    let before = cursor(params.cursor.as_deref())?;
    let (id, is_known) = match own(&app, &caller, &text).await {
        Ok(found) => (found.row.id, true),
        Err(Error::NotFound { .. }) => (deleted(&app, &caller, &text).await?, false),
        Err(error) => return Err(error),
    };
    let runs = app.read(move |reader| reader.runs(id, before, limit)).await?;
    if runs.is_empty() && !is_known && before.is_none() {
        return Err(not_found(&text));
    }
    let next = runs.last().filter(|_| runs.len() == limit).map(|run| run.n.to_string());
    Ok(Json(ListPage { items: runs.iter().map(view::run_view).collect(), next_cursor: next }))
}

/// When would a schedule run? Nothing is stored.
#[utoipa::path(post, path = "/v1/schedules/preview", tag = "schedules", request_body = PreviewRequest,
    responses((status = 200, description = "Its next moments", body = PreviewView)))]
pub async fn preview(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    body: Body<PreviewRequest>,
) -> Result<Json<PreviewView>, Error> {
    let count = body.value.count.unwrap_or(PREVIEW_DEFAULT);
    if !(1..=PREVIEW_MAX).contains(&count) {
        return Err(Invalid::new("count", format!("must be from 1 to {PREVIEW_MAX}")).into());
    }
    let config = app.config.current();
    let uploads = &KnownUploads::of(&app);
    let now_ms = clock::wall_ms();
    let intake = Intake { config: &config.config, caller: &caller, uploads, now_ms, vault: None, traceparent: None };
    let (timing, _) = intake::timing(&intake, &body.value.schedule)?;
    let rules = Rules::new(timing);
    intake::check_future(&rules, now_ms)?;
    let description = view::described(&rules.timing);
    Ok(Json(PreviewView { description, next_runs: view::next_runs(&rules, now_ms, count) }))
}

fn prepared(
    app: &App,
    caller: &Caller,
    id: ScheduleId,
    request: ScheduleRequest,
    standing: Standing,
    now_ms: u64,
) -> Result<NewSchedule, Error> {
    let config = app.config.current();
    let uploads = &KnownUploads::of(app);
    let vault = Some(&*app.vault);
    let intake = Intake { config: &config.config, caller, uploads, now_ms, vault, traceparent: None };
    intake::prepare_schedule(&intake, id, request, standing)
}

/// Stores it as new, or in the place of the earlier one.
async fn put(
    app: &App,
    handle: &Handle,
    caller: &Caller,
    id: ScheduleId,
    new: NewSchedule,
    action: &'static str,
) -> Result<ScheduleView, Error> {
    let (name, spec, rules) = (new.name.clone(), new.body.spec.clone(), new.rules.clone());
    let asked = read_spec(&spec)?;
    let new = Box::new(new);
    let act = if action == "schedule.created" { ScheduleAct::Create(new) } else { ScheduleAct::Edit(new) };
    match ask(handle, id, act).await {
        Ok(ScheduleAnswer::Row(row)) => {
            app.audit.record(&caller.actor, Entry::new(action).of(&*name).after(told(&asked))).await;
            let last = app.read(move |reader| reader.runs(id, None, 1)).await?;
            Ok(shown(app, &row, asked, last.first()))
        }
        Ok(_) => Err(unexpected()),
        Err(ScheduleError::Refused(ScheduleRefusal::NoFuture)) => Err(intake::no_future(&rules).into()),
        // It was made the first time this was asked, and nobody heard the answer.
        Err(ScheduleError::Refused(ScheduleRefusal::NameTaken { by })) if by == id => {
            let found = app.read(move |reader| reader.schedule(id)).await?;
            let (row, _) = found.ok_or_else(|| not_found(&name))?;
            Ok(shown(app, &row, asked, None))
        }
        Err(error) => Err(error.into_error(&name)),
    }
}

async fn act(
    app: &App,
    handle: &Handle,
    caller: &Caller,
    row: &Schedule,
    act: ScheduleAct,
    entry: Entry,
) -> Result<ScheduleAnswer, Error> {
    let answer = ask(handle, row.id, act).await.map_err(|error| error.into_error(&row.name))?;
    app.audit.record(&caller.actor, entry).await;
    Ok(answer)
}

enum ScheduleError {
    Refused(ScheduleRefusal),
    Other(Error),
}

impl ScheduleError {
    fn into_error(self, name: &Name) -> Error {
        match self {
            ScheduleError::Refused(ScheduleRefusal::NotFound) => not_found(name),
            ScheduleError::Refused(ScheduleRefusal::NameTaken { by }) => {
                Error::NameTaken { name: name.to_string(), by: Id(by.0) }
            }
            ScheduleError::Refused(ScheduleRefusal::NoFuture) => Error::NoFutureRun(name.to_string()),
            ScheduleError::Refused(ScheduleRefusal::UsedUp { n_runs, runs_max }) => {
                let rule =
                    format!("it has had {n_runs} runs and may have {runs_max}: raise maxRuns to enable it again");
                Invalid::new("maxRuns", rule).into()
            }
            ScheduleError::Refused(ScheduleRefusal::TooMany { limit }) => Error::TooManySchedules(limit),
            ScheduleError::Refused(ScheduleRefusal::Draining) => Error::Refused(Refusal::Draining),
            ScheduleError::Other(error) => error,
        }
    }
}

async fn ask(handle: &Handle, id: ScheduleId, act: ScheduleAct) -> Result<ScheduleAnswer, ScheduleError> {
    match handle.ask(|ticket| Event::Schedule { ticket, id, act }).await {
        Ok(Answer::Schedule(answer)) => answer.map_err(ScheduleError::Refused),
        Ok(_) => Err(ScheduleError::Other(unexpected())),
        Err(error) => Err(ScheduleError::Other(error.into())),
    }
}

/// Whoever starts a program by hand needs the right to, also when another has written it down.
fn may_start(caller: &Caller, found: &Found) -> Result<(), Error> {
    let kind = found.asked.task.kind.as_deref().unwrap_or_default();
    if runs_a_program(kind) && !caller.scopes.allow(Scope::Exec) {
        return Err(Error::MissingScope(Scope::Exec));
    }
    Ok(())
}

/// Changes how it stands, and shows it as it is then.
async fn stand(
    app: &App,
    caller: &Caller,
    found: Found,
    change: ScheduleAct,
    entry: Entry,
) -> Result<Json<ScheduleView>, Error> {
    let entry = entry.of(&*found.row.name);
    match act(app, &app.handle, caller, &found.row, change, entry).await? {
        ScheduleAnswer::Row(row) => Ok(Json(shown(app, &row, found.asked, found.last.as_ref()))),
        _ => Err(unexpected()),
    }
}

fn shown(app: &App, row: &Schedule, asked: ScheduleRequest, last: Option<&Run>) -> ScheduleView {
    view::schedule_view(row, asked, last, app.config.current().config.schedules.paused)
}

fn standing(enabled: bool) -> Standing {
    if enabled { Standing::Enabled } else { Standing::Paused { reason: "".into() } }
}

/// Without what it runs: payloads hold what is nobody's business who reads the audit log.
fn told(asked: &ScheduleRequest) -> Value {
    let mut told = serde_json::to_value(asked).expect("a schedule is plain data");
    if let Some(task) = told["task"].as_object_mut() {
        task.remove("payload");
    }
    told
}
