//! The work says that it is alive, and how far it is, past its worker: a program that neither writes nor reports keeps
//! itself from being taken for stalled.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use runyard_core::event::{Answer, Event, HeartbeatAnswer};
use runyard_core::ids::TaskId;
use runyard_wire::{HeartbeatRequest, Id};
use runyard_worker::Progress;

use super::extract::{OptionalBody, TaskPath};
use super::tasks::{not_found, own_doc, unexpected};
use crate::access::Caller;
use crate::app::App;
use crate::problem::{Error, Invalid};

/// Tell that a running task is alive, which counts for its `stallMs`, and how far it is.
#[utoipa::path(post, path = "/v1/tasks/{id}/heartbeat", tag = "tasks", params(("id" = Id, Path)),
    request_body = Option<HeartbeatRequest>,
    responses((status = 204, description = "Noted"),
              (status = 409, description = "It does not run, or is being stopped", content_type = "application/problem+json",
               body = runyard_wire::Problem)))]
pub async fn heartbeat(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    TaskPath(id): TaskPath,
    OptionalBody(request): OptionalBody<HeartbeatRequest>,
) -> Result<StatusCode, Error> {
    let progress = progress_of(request)?;
    if caller.agents.is_bound() {
        own_doc(&app, &caller, id).await?;
    }
    note(&app, id).await?;
    if let Some(progress) = progress {
        app.note_progress(id, progress);
    }
    Ok(StatusCode::NO_CONTENT)
}

async fn note(app: &App, task: TaskId) -> Result<(), Error> {
    match app.handle.ask(|ticket| Event::Heartbeat { ticket, task }).await? {
        Answer::Heartbeat(HeartbeatAnswer::Noted) => Ok(()),
        Answer::Heartbeat(HeartbeatAnswer::Stopping) => Err(Error::Stopping),
        Answer::Heartbeat(HeartbeatAnswer::NotRunning(phase)) if phase.is_terminal() => Err(Error::Terminal(phase)),
        Answer::Heartbeat(HeartbeatAnswer::NotRunning(phase)) => Err(Error::NotRunning(phase)),
        Answer::Heartbeat(HeartbeatAnswer::NotFound) => Err(not_found(task)),
        _ => Err(unexpected()),
    }
}

fn progress_of(request: HeartbeatRequest) -> Result<Option<Progress>, Invalid> {
    if request.progress.is_some_and(|fraction| !(0.0..=1.0).contains(&fraction)) {
        return Err(Invalid::new("progress", "must be from 0.0 to 1.0"));
    }
    let is_said = request.progress.is_some() || request.message.is_some();
    Ok(is_said.then(|| Progress::said(request.progress, request.message)))
}
