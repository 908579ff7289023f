//! Cancel: one task, those that match a filter, those of a batch.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use futures_util::future::join_all;
use runyard_core::event::{self, Answer, Asked, Event};
use runyard_core::ids::TaskId;
use runyard_core::name::Name;
use runyard_core::task::{Phase, Text};
use runyard_store::store::Filter;
use runyard_wire::{CancelAnswer, CancelFilter, CancelManyAnswer, CancelRequest, Id, TaskState};

use super::extract::{BatchPath, Body, OptionalBody, TaskPath};
use super::tasks::{not_found, own_doc, unexpected};
use crate::access::Caller;
use crate::app::App;
use crate::nodes::Forwarded;
use crate::problem::{Error, Invalid};
use crate::view;

/// Tasks cancelled in one go. Small enough that a tick with all of them stays short.
const CHUNK: usize = 500;
const REASON_BYTES_MAX: usize = 1024;

/// Cancel a task.
#[utoipa::path(post, path = "/v1/tasks/{id}/cancel", tag = "tasks", params(("id" = Id, Path)), request_body = Option<CancelRequest>,
    responses((status = 200, description = "It has ended", body = CancelAnswer),
              (status = 202, description = "It is being stopped; its end will be `cancelled`", body = CancelAnswer)))]
pub async fn by_post(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(forwarded): Extension<Forwarded>,
    TaskPath(id): TaskPath,
    OptionalBody(request): OptionalBody<CancelRequest>,
) -> Result<(StatusCode, Json<CancelAnswer>), Error> {
    cancel_one(&app, &caller, id, reason(request.reason)?, forwarded.asked).await
}

/// Cancel a task.
#[utoipa::path(delete, path = "/v1/tasks/{id}", tag = "tasks", params(("id" = Id, Path)),
    responses((status = 200, description = "It has ended", body = CancelAnswer),
              (status = 202, description = "It is being stopped; its end will be `cancelled`", body = CancelAnswer)))]
pub async fn by_delete(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(forwarded): Extension<Forwarded>,
    TaskPath(id): TaskPath,
) -> Result<(StatusCode, Json<CancelAnswer>), Error> {
    cancel_one(&app, &caller, id, Text::Borrowed(""), forwarded.asked).await
}

/// Cancel every live task that matches all the fields given.
#[utoipa::path(post, path = "/v1/tasks/cancel", tag = "tasks", request_body = CancelFilter,
    responses((status = 200, description = "How many", body = CancelManyAnswer)))]
pub async fn by_filter(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    body: Body<CancelFilter>,
) -> Result<Json<CancelManyAnswer>, Error> {
    let request = body.value;
    let is_empty = CancelFilter { reason: None, ..request.clone() } == CancelFilter::default();
    if is_empty {
        return Err(Invalid::new("", "give at least one of agent, state, lane, kind, batch, session").into());
    }
    let agent = request.agent.as_deref();
    if !agent.map_or(!caller.agents.is_bound(), |agent| caller.may_act_for(agent)) {
        return Err(Error::ForeignAgent(agent.unwrap_or("*").to_owned()));
    }
    let filter = Filter {
        phases: live_phases(&request.state)?,
        agent: agent.map(Name::new),
        lane: request.lane.as_deref().map(Name::new),
        kind: request.kind.as_deref().map(Name::new),
        batch: request.batch.map(|id| runyard_core::ids::BatchId(id.0)),
        session: request.session.as_deref().map(Name::new),
        ..Filter::default()
    };
    cancel_many(&app, filter, reason(request.reason)?).await.map(Json)
}

/// Cancel every live task of a batch.
#[utoipa::path(post, path = "/v1/batches/{id}/cancel", tag = "batches", params(("id" = Id, Path)), request_body = Option<CancelRequest>,
    responses((status = 200, description = "How many", body = CancelManyAnswer)))]
pub async fn of_batch(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    BatchPath(id): BatchPath,
    OptionalBody(request): OptionalBody<CancelRequest>,
) -> Result<Json<CancelManyAnswer>, Error> {
    if caller.agents.is_bound() {
        // A batch may hold tasks of several agents; a key that is bound to some cancels its own one by one, by filter.
        return Err(Error::ForeignAgent("*".to_owned()));
    }
    if app.read(move |reader| reader.batch(id)).await?.is_none() {
        return Err(Error::NotFound { what: "batch", id: Id(id.0).to_string() });
    }
    let filter = Filter { phases: live_phases(&[])?, batch: Some(id), ..Filter::default() };
    cancel_many(&app, filter, reason(request.reason)?).await.map(Json)
}

async fn cancel_one(
    app: &App,
    caller: &Caller,
    id: TaskId,
    reason: Text,
    asked: Asked,
) -> Result<(StatusCode, Json<CancelAnswer>), Error> {
    if caller.agents.is_bound() {
        own_doc(app, caller, id).await?;
    }
    let (status, state) = match ask(app, id, reason.clone()).await? {
        event::CancelAnswer::Ended => (StatusCode::OK, TaskState::Cancelled),
        event::CancelAnswer::Stopping => (StatusCode::ACCEPTED, TaskState::Running),
        // It was cancelled the first time this was asked, and nobody heard the answer.
        event::CancelAnswer::Terminal(Phase::Cancelled) if asked == Asked::Again => {
            (StatusCode::OK, TaskState::Cancelled)
        }
        event::CancelAnswer::Terminal(phase) => return Err(Error::Terminal(phase)),
        event::CancelAnswer::NotFound => return Err(not_found(id)),
    };
    Ok((status, Json(CancelAnswer { id: Id(id.0), state, reason: reason.into_owned() })))
}

async fn ask(app: &App, task: TaskId, reason: Text) -> Result<event::CancelAnswer, Error> {
    match app.handle.ask(|ticket| Event::Cancel { ticket, task, reason }).await? {
        Answer::Cancel(answer) => Ok(answer),
        _ => Err(unexpected()),
    }
}

/// Page by page, newest first: what is submitted meanwhile is not touched.
async fn cancel_many(app: &App, filter: Filter, reason: Text) -> Result<CancelManyAnswer, Error> {
    let mut answer = CancelManyAnswer::default();
    let mut after = None;
    loop {
        let page_filter = filter.clone();
        let page = app.read(move |reader| reader.task_ids(&page_filter, after, CHUNK)).await?;
        let asked = page.items.iter().map(|id| ask(app, *id, reason.clone()));
        for outcome in join_all(asked).await {
            match outcome? {
                event::CancelAnswer::Ended => answer.cancelled += 1,
                event::CancelAnswer::Stopping => answer.stopping += 1,
                // It ended between the page and the cancel, so it no longer matches.
                event::CancelAnswer::Terminal(_) | event::CancelAnswer::NotFound => continue,
            }
            answer.matched += 1;
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(answer),
        }
    }
}

fn live_phases(states: &[TaskState]) -> Result<Vec<Phase>, Invalid> {
    if let Some(ended) = states.iter().find(|state| state.is_terminal()) {
        return Err(Invalid::new("state", format!("`{ended}` is an end: only live tasks can be cancelled")));
    }
    let live = Phase::ALL.into_iter().filter(|phase| !phase.is_terminal());
    Ok(if states.is_empty() { live.collect() } else { states.iter().copied().map(view::phase).collect() })
}

fn reason(asked: Option<String>) -> Result<Text, Invalid> {
    let reason = asked.unwrap_or_default();
    if reason.len() > REASON_BYTES_MAX {
        return Err(Invalid::new("reason", format!("at most {REASON_BYTES_MAX} bytes")));
    }
    Ok(Text::Owned(reason))
}
