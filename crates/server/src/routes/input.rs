//! Text for a running task, and the messages that a task carries.
//!
//! The text becomes a task of its own, built from the one it is meant for, so that it is stored before it is answered:
//! handed over while that one runs, it completes; not taken, it runs as a follow-up.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::{Extension, Json};
use runyard_core::event::Asked;
use runyard_core::ids::TaskId;
use runyard_core::name::Blob;
use runyard_core::session::{Message, Mode};
use runyard_store::store::TaskDoc;
use runyard_wire::{
    Id, InputAnswer, InputRequest, ListPage, MessageView, OnDependencyFailure, TaskRequest, TaskView, Timestamp,
};

use super::extract::{Body, TaskPath};
use super::tasks::{Submitted, copy_of, key_header, own_doc, submit, whole_payload};
use crate::access::Caller;
use crate::app::App;
use crate::edge::traceparent;
use crate::intake::{self, Intake, Prepared, Resolved};
use crate::nodes::Forwarded;
use crate::problem::Error;
use crate::uploads::KnownUploads;
use crate::view;

/// Hand text to a running task. A process that was started with `input: true` reads it as a line on stdin; for a task
/// that takes no input it becomes a follow-up.
#[utoipa::path(post, path = "/v1/tasks/{id}/input", tag = "tasks", params(("id" = Id, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "A repeat with the same key and text gets the first answer again")),
    request_body = InputRequest,
    responses((status = 202, description = "The task that carries the text", body = InputAnswer,
        headers(("Location" = String, description = "Where that task is")))))]
pub async fn input(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(forwarded): Extension<Forwarded>,
    TaskPath(id): TaskPath,
    headers: HeaderMap,
    body: Body<InputRequest>,
) -> Result<Response, Error> {
    let key = intake::key_of(key_header(&headers)?, None)?;
    let doc = own_doc(&app, &caller, id).await?;
    if doc.task.phase().is_terminal() && !was_taken(&app, &forwarded).await? {
        return Err(Error::Terminal(doc.task.phase()));
    }
    let key = key.map(|key| intake::idempotency(&doc.agent, &key, &hashed(id, &body.bytes)));
    let prepared = follow_up(&app, &caller, &doc, &body.value.text, &forwarded, traceparent(&headers)).await?;
    Ok(accepted(submit(&app, prepared, key, forwarded.asked).await?))
}

/// The messages that were merged into a task, beyond its own.
#[utoipa::path(get, path = "/v1/tasks/{id}/messages", tag = "tasks", params(("id" = Id, Path)),
    responses((status = 200, description = "All of them, in the order they came", body = ListPage<MessageView>)))]
pub async fn messages(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    TaskPath(id): TaskPath,
) -> Result<Json<ListPage<MessageView>>, Error> {
    own_doc(&app, &caller, id).await?;
    let messages = app.read(move |reader| reader.messages(id)).await?;
    let items = messages.into_iter().map(message_view).collect::<Result<_, _>>()?;
    Ok(Json(ListPage { items, next_cursor: None }))
}

/// The target was there when this was first asked, and nobody heard the answer.
async fn was_taken(app: &App, forwarded: &Forwarded) -> Result<bool, Error> {
    let id = TaskId(forwarded.ids);
    Ok(forwarded.asked == Asked::Again && app.read(move |reader| reader.task(id)).await?.is_some())
}

/// What the target was asked for, asked for again with this text. In its session it is the next in line; without one it
/// waits for the target's end, however that comes.
async fn follow_up(
    app: &App,
    caller: &Caller,
    doc: &TaskDoc,
    text: &str,
    forwarded: &Forwarded,
    traceparent: Option<&str>,
) -> Result<Prepared, Error> {
    let (target, now_ms) = (doc.task.id, forwarded.asked_at_ms());
    let stored = view::stored_spec(doc)?;
    let payload = whole_payload(app, doc, stored.payload.clone()).await?;
    let payload = runyard_exec::follow_up_payload(&doc.kind, payload.as_ref().map(|json| &*json.0), text);
    let depends_on = if doc.session.is_some() { Vec::new() } else { vec![target] };
    let request = TaskRequest {
        payload: Some(runyard_wire::Json(payload)),
        on_dependency_failure: Some(OnDependencyFailure::Run),
        dependency_timeout_ms: None,
        ..copy_of(doc, stored, now_ms)
    };
    let config = app.config.current();
    let uploads = &KnownUploads::of(app);
    let intake = Intake { config: &config.config, caller, uploads, now_ms, vault: Some(&*app.vault), traceparent };
    let resolved = Resolved { id: TaskId(forwarded.ids), depends_on, retry_of: None };
    let mut prepared = intake::prepare(&intake, request, resolved)?;
    if let Some(member) = &mut prepared.new.session {
        // It is meant for this one task: whatever the session does with other messages, this one must not stop it.
        member.as_mode = Some(Mode::Followup);
    }
    prepared.new.steers = doc.task.policy.takes_input.then_some(target);
    Ok(prepared)
}

/// The same text for another task is another request.
fn hashed(id: TaskId, body: &[u8]) -> Vec<u8> {
    [&id.0.to_be_bytes(), body].concat()
}

fn accepted(submitted: Submitted) -> Response {
    submitted.respond(StatusCode::ACCEPTED, |TaskView { status, .. }| InputAnswer {
        id: status.id,
        state: status.state,
        steers: status.steered_into,
    })
}

fn message_view((message, spec): (Message, Blob)) -> Result<MessageView, Error> {
    let stored = view::read_spec(&spec)?;
    Ok(MessageView {
        n: message.n,
        at: Timestamp(message.at_ms),
        sent_at: message.sent_at.map(Timestamp),
        idempotency_key: stored.idempotency_key,
        payload: stored.payload,
    })
}
