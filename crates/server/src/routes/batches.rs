//! Tasks submitted together.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use runyard_core::batch::Batch;
use runyard_core::event::{Accepted, Answer, Event, FirstAnswer, Refusal, Submission, SubmitMode};
use runyard_core::ids::{BatchId, TaskId};
use runyard_core::name::Name;
use runyard_core::task::Phase;
use runyard_store::store::{Filter, Reader};
use runyard_wire::{
    BatchAnswer, BatchCounts, BatchItem, BatchRequest, BatchState, BatchView, Id, Problem, TaskRequest, Timestamp,
};

use super::extract::{BATCH_BODY_BYTES_MAX, BatchPath, Body};
use super::parents::may_wait_for;
use super::tasks::{key_header, replayed, unexpected};
use crate::access::Caller;
use crate::app::App;
use crate::edge::traceparent;
use crate::intake::{self, Intake, Prepared, PreparedBatch, StoredBatch};
use crate::nodes::Forwarded;
use crate::problem::{Error, refusal_problem};
use crate::uploads::KnownUploads;
use crate::view;

/// Submit tasks together.
#[utoipa::path(post, path = "/v1/batches", tag = "batches", request_body = BatchRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "A repeat with the same key and body gets the first answer again")),
    responses((status = 201, description = "What became of each task", body = BatchAnswer),
              (status = 200, description = "In mode `partial`: none was taken, and there is no such batch", body = BatchAnswer)))]
pub async fn create(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(forwarded): Extension<Forwarded>,
    headers: HeaderMap,
    body: Body<BatchRequest, BATCH_BODY_BYTES_MAX>,
) -> Result<Response, Error> {
    let key = intake::key_of(key_header(&headers)?, body.value.idempotency_key.as_deref())?;
    let config = app.config.current();
    let now_ms = forwarded.asked_at_ms();
    let uploads = &KnownUploads::of(&app);
    let (vault, traceparent) = (Some(&*app.vault), traceparent(&headers));
    let intake = Intake { config: &config.config, caller: &caller, uploads, now_ms, vault, traceparent };
    let (names, given, asked) = (item_names(&body.value), forwarded.ids(), forwarded.asked);
    let PreparedBatch { batch, mode, items, agent } = intake::prepare_batch(&intake, body.value, || given.next())?;
    drop(config);
    let ids: Vec<TaskId> = items.iter().map(|item| item.new.id).collect();
    may_wait_for(&app, &caller, parents_outside(&items, &ids)).await?;
    let idempotency = key.map(|key| intake::idempotency(&agent, &key, &body.bytes));
    // The same body is refused for the same reasons again; only a repeat asks for them.
    let refusals: Vec<Option<Refusal>> = items.iter().map(|item| item.new.refused.clone()).collect();
    let id = batch.id;
    let items = items.into_iter().map(|prepared| prepared.new).collect();
    let submit = |ticket| Event::Submit(Submission { ticket, batch: Some(batch), mode, items, idempotency, asked });
    match app.handle.ask(submit).await? {
        Answer::Submitted { items } => {
            let named = |id: TaskId| ids.iter().position(|own| *own == id).map(|at| names[at].as_str());
            let tasks = batch_items(items, mode, named)?;
            Ok(created(id, tasks))
        }
        Answer::Refused(refusal) => Err(Error::Refused(refusal)),
        Answer::Replayed(FirstAnswer::Batch { id, tasks }) => {
            let items = tasks.into_iter().zip(refusals).enumerate();
            let item = |(at, ((task, phase), refusal))| replayed_item(at, task, phase, refusal);
            Ok(replayed(created(id, items.map(item).collect())))
        }
        _ => Err(unexpected()),
    }
}

/// Show a batch and how far it is.
#[utoipa::path(get, path = "/v1/batches/{id}", tag = "batches", params(("id" = Id, Path)),
    responses((status = 200, description = "The batch", body = BatchView)))]
pub async fn show(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    BatchPath(id): BatchPath,
) -> Result<Json<BatchView>, Error> {
    may_see(&app, &caller, id).await?;
    let found = app.read(move |reader| reader.batch(id)).await?;
    let (batch, spec) = found.ok_or_else(|| Error::NotFound { what: "batch", id: Id(id.0).to_string() })?;
    let stored = serde_json::from_slice(&spec).map_err(|_| Error::Internal("a stored batch cannot be read".into()))?;
    Ok(Json(batch_view(&batch, stored)))
}

/// A key that is bound to agents sees the batches that hold a task of theirs.
pub async fn may_see(app: &App, caller: &Caller, id: BatchId) -> Result<(), Error> {
    if !caller.agents.is_bound() {
        return Ok(());
    }
    let agents = caller.agents.clone();
    let holds_own = move |reader: &dyn Reader| {
        let of = |agent: &String| Filter { batch: Some(id), agent: Some(Name::new(agent)), ..Filter::default() };
        for agent in agents.names() {
            if !reader.task_ids(&of(agent), None, 1)?.items.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    };
    if app.read(holds_own).await? { Ok(()) } else { Err(Error::ForeignAgent("*".to_owned())) }
}

/// Each once.
fn parents_outside(items: &[Prepared], own: &[TaskId]) -> Vec<TaskId> {
    let own: BTreeSet<&TaskId> = own.iter().collect();
    let parents: BTreeSet<TaskId> = items.iter().flat_map(|item| item.new.depends_on.iter().copied()).collect();
    parents.into_iter().filter(|parent| !own.contains(parent)).collect()
}

/// How an item is called in the request: an item that was refused has no id that the client has ever seen.
fn item_names(request: &BatchRequest) -> Vec<String> {
    let name = |(at, task): (usize, &TaskRequest)| match &task.name {
        Some(name) => format!("#{name}"),
        None => format!("tasks[{at}]"),
    };
    request.tasks.iter().enumerate().map(name).collect()
}

fn batch_items<'a>(
    items: Vec<Result<Accepted, Refusal>>,
    mode: SubmitMode,
    named: impl Fn(TaskId) -> Option<&'a str>,
) -> Result<Vec<BatchItem>, Error> {
    let item = |(at, item): (usize, Result<Accepted, Refusal>)| match (item, mode) {
        (Ok(accepted), _) => Ok(BatchItem::Accepted { id: Id(accepted.id.0), state: view::state(accepted.phase) }),
        (Err(refusal), SubmitMode::Partial) => {
            let error = Box::new(item_problem(at, &refusal, &named));
            Ok(BatchItem::Refused { error })
        }
        (Err(refusal), SubmitMode::All) => Err(Error::Refused(refusal)),
    };
    items.into_iter().enumerate().map(item).collect()
}

/// What the first answer said of one item.
fn replayed_item(at: usize, task: TaskId, phase: Phase, refusal: Option<Refusal>) -> BatchItem {
    if phase != Phase::Rejected {
        return BatchItem::Accepted { id: Id(task.0), state: view::state(phase) };
    }
    let refusal = refusal.unwrap_or_else(|| Refusal::Invalid {
        code: "refused_before".into(),
        field: format!("tasks[{at}]").into(),
        message: "was refused when the batch was first submitted; submit it anew".into(),
    });
    BatchItem::Refused { error: Box::new(refusal_problem(&refusal)) }
}

/// The problem of one item, with its field and its parent as the request has them.
fn item_problem<'a>(at: usize, refusal: &Refusal, named: impl Fn(TaskId) -> Option<&'a str>) -> Problem {
    let mut problem = refusal_problem(refusal);
    // What the intake refused says already where it stands in the request; the scheduler does not know.
    if !matches!(refusal, Refusal::Invalid { .. }) {
        problem.field = problem.field.map(|field| format!("tasks[{at}].{field}"));
    }
    if let Refusal::ParentRefused { parent } = refusal
        && let Some(parent) = named(*parent)
    {
        problem.detail = format!("it depends on {parent}, which was refused");
        problem.extra.insert("parent".into(), parent.into());
    }
    problem
}

/// A batch of which nothing was taken does not exist, so nothing was created.
fn created(id: BatchId, tasks: Vec<BatchItem>) -> Response {
    let id = Id(id.0);
    if !tasks.iter().any(|item| matches!(item, BatchItem::Accepted { .. })) {
        return Json(BatchAnswer { id, tasks }).into_response();
    }
    let mut response = (StatusCode::CREATED, Json(BatchAnswer { id, tasks })).into_response();
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/batches/{id}")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

pub fn batch_view(batch: &Batch, stored: StoredBatch) -> BatchView {
    BatchView {
        id: Id(batch.id.0),
        state: if batch.finished_at.is_some() { BatchState::Finished } else { BatchState::Running },
        parallelism: batch.parallelism,
        counts: BatchCounts {
            total: batch.n_total,
            waiting: batch.n_waiting,
            active: batch.n_total.saturating_sub(batch.n_ended() + batch.n_waiting),
            completed: batch.n_completed,
            failed: batch.n_failed,
            cancelled: batch.n_cancelled,
        },
        name: stored.name,
        metadata: stored.metadata,
        created_at: Timestamp(batch.created_at),
        finished_at: batch.finished_at.map(Timestamp),
    }
}
