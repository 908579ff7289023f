//! Workers: they join and register, people look at them, drain and remove them. What they do all day is in `sync`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use runyard_core::event::{Answer, Event, Receipt};
use runyard_core::ids::WorkerId;
use runyard_core::worker::{
    WorkerAct, WorkerAnswer, WorkerRefusal, WorkerRow, WorkerStatus as CoreStatus, WorkerView as CoreView,
};
use runyard_wire::{Id, Token, WorkerPage, WorkerRegistered, WorkerRequest, WorkerStatus, WorkerView};
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;

use super::extract::{Body, Params, WorkerPath, page_limit, parsed, parsed_list};
use super::tasks::unexpected;
use crate::access::Caller;
use crate::app::{App, to_its_end};
use crate::audit::Entry;
use crate::handle::Handle;
use crate::nodes::{Forwarded, Once};
use crate::problem::{Error, Invalid};
use crate::workers::{Offer, counts, new_key, new_session, worker_view};

/// Join: a new worker says who it is, and gets its own id and key. For keys with scope `worker`.
#[utoipa::path(post, path = "/v1/workers", tag = "workers", request_body = WorkerRequest,
    responses((status = 201, description = "Who it is from now on, with its key", body = WorkerRegistered)))]
pub async fn join(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(forwarded): Extension<Forwarded>,
    body: Body<WorkerRequest>,
) -> Result<(StatusCode, Json<WorkerRegistered>), Error> {
    let (key, hash) = new_key()?;
    let id = caller.joins_as.unwrap_or(WorkerId(forwarded.ids));
    let mut offer = Offer::of(id, body.value, hash)?;
    // Only a node has proven that it is one, and so that this worker is a server's own.
    offer.spec.embedded = caller.joins_as.is_some();
    let registered = admit(&app, caller, offer, "worker.registered").await?;
    Ok((StatusCode::CREATED, Json(WorkerRegistered { key: Some(key), ..registered })))
}

/// A new process of a known worker says that it is there. The one before it is not heard any more.
#[utoipa::path(post, path = "/v1/workers/{id}/register", tag = "workers", params(("id" = Id, Path)),
    request_body = WorkerRequest,
    responses((status = 200, description = "Its session", body = WorkerRegistered),
              (status = 404, description = "It was removed, and has to join anew", content_type = "application/problem+json",
               body = runyard_wire::Problem)))]
pub async fn register(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    WorkerPath(id): WorkerPath,
    body: Body<WorkerRequest>,
) -> Result<Json<WorkerRegistered>, Error> {
    let about = app.roster.about(id).ok_or(Error::WorkerNotFound(id))?;
    let offer = Offer::of(id, body.value, about.key_hash)?;
    admit(&app, caller, offer, "worker.reregistered").await.map(Json)
}

async fn admit(app: &Arc<App>, caller: Caller, offer: Offer, action: &'static str) -> Result<WorkerRegistered, Error> {
    let Offer { spec, about } = offer;
    let id = spec.id;
    let told = json!({"name": &*spec.name, "kinds": spec.kinds.iter().map(|kind| &**kind).collect::<Vec<&str>>()});
    let session = new_session()?;
    let row = WorkerRow { spec, session, draining: false, registered_at: 0, about: about.to_blob() };
    let owned = app.clone();
    to_its_end(async move {
        let app = owned;
        match ask(&app.handle, id, WorkerAct::Register(Box::new(row))).await? {
            WorkerAnswer::Registered(row) => app.roster.put(&row),
            _ => return Err(unexpected()),
        }
        app.desk.clear(id);
        app.audit.record(&caller.actor, Entry::new(action).of(Id(id.0).to_string()).after(told)).await;
        Ok(())
    })
    .await?;
    let config = app.config.current();
    let workers = &config.config.workers;
    Ok(WorkerRegistered {
        id: Id(id.0),
        key: None,
        session: Token(session),
        heartbeat_ms: workers.heartbeat_ms,
        offline_after_ms: workers.offline_after_ms,
    })
}

#[derive(Deserialize, IntoParams, Default)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub struct WorkersParams {
    /// One or more of idle, busy, unhealthy, draining, offline, with commas.
    status: Option<String>,
    /// `KEY=VALUE`: workers with this label.
    label: Option<String>,
    /// Workers that run this kind.
    kind: Option<String>,
    /// At most so many, 1 to 1000 (default 100).
    limit: Option<usize>,
    /// nextCursor of the page before.
    cursor: Option<String>,
}

/// The workers, the server's own included.
#[utoipa::path(get, path = "/v1/workers", tag = "workers", params(WorkersParams),
    responses((status = 200, description = "A page of them, by id, and how many there are of each status", body = WorkerPage)))]
pub async fn list(
    State(app): State<Arc<App>>,
    Params(params): Params<WorkersParams>,
) -> Result<Json<WorkerPage>, Error> {
    let limit = page_limit(params.limit)?;
    let wanted = Wanted::of(&params)?;
    let after = params.cursor.as_deref().map(|cursor| parsed::<Id>("cursor", cursor)).transpose()?;
    let mut views = views(&app, None).await?;
    views.sort_by_key(|view| view.spec.id);
    let counts = counts(&views);
    let mut rest = views.into_iter().filter(|view| wanted.has(view) && after.is_none_or(|at| view.spec.id.0 > at.0));
    let page: Vec<CoreView> = rest.by_ref().take(limit).collect();
    let next_cursor = rest.next().and_then(|_| page.last().map(|view| Id(view.spec.id.0).to_string()));
    let items = page.into_iter().map(|view| shown(&app, view)).collect();
    Ok(Json(WorkerPage { items, next_cursor, counts }))
}

/// One worker.
#[utoipa::path(get, path = "/v1/workers/{id}", tag = "workers", params(("id" = Id, Path)),
    responses((status = 200, description = "The worker", body = WorkerView)))]
pub async fn show(State(app): State<Arc<App>>, WorkerPath(id): WorkerPath) -> Result<Json<WorkerView>, Error> {
    let view = views(&app, Some(id)).await?.pop().ok_or(Error::WorkerNotFound(id))?;
    Ok(Json(shown(&app, view)))
}

/// Nothing new for this worker. What it runs goes on.
#[utoipa::path(post, path = "/v1/workers/{id}/drain", tag = "workers", params(("id" = Id, Path)),
    responses((status = 200, description = "The worker", body = WorkerView)))]
pub async fn drain(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    WorkerPath(id): WorkerPath,
) -> Result<Json<WorkerView>, Error> {
    let handle = app.handle.clone();
    change(app, handle, caller, id, WorkerAct::Drain, "worker.drained").await
}

/// A drained worker takes work again.
#[utoipa::path(post, path = "/v1/workers/{id}/resume", tag = "workers", params(("id" = Id, Path)),
    responses((status = 200, description = "The worker", body = WorkerView)))]
pub async fn resume(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    WorkerPath(id): WorkerPath,
) -> Result<Json<WorkerView>, Error> {
    let handle = app.handle.clone();
    change(app, handle, caller, id, WorkerAct::Resume, "worker.resumed").await
}

/// Remove a worker for good: its key opens nothing any more, and what it runs is lost and goes elsewhere.
#[utoipa::path(delete, path = "/v1/workers/{id}", tag = "workers", params(("id" = Id, Path)),
    responses((status = 200, description = "The worker, as it was", body = WorkerView)))]
pub async fn remove(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(once): Extension<Once>,
    WorkerPath(id): WorkerPath,
) -> Result<Json<WorkerView>, Error> {
    if let Some(Receipt::WorkerRemoved(row)) = once.first {
        let entry = Entry::new("worker.removed").of(Id(id.0).to_string()).after(json!({ "name": &*row.spec.name }));
        app.audit.record(&caller.actor, entry).await;
        return Ok(Json(shown(&app, gone(*row))));
    }
    let handle = once.handle(&app);
    change(app, handle, caller, id, WorkerAct::Remove, "worker.removed").await
}

async fn change(
    app: Arc<App>,
    handle: Handle,
    caller: Caller,
    id: WorkerId,
    act: WorkerAct,
    action: &'static str,
) -> Result<Json<WorkerView>, Error> {
    to_its_end(async move {
        let is_removal = matches!(act, WorkerAct::Remove);
        let WorkerAnswer::Done(view) = ask(&handle, id, act).await? else { return Err(unexpected()) };
        if is_removal {
            app.desk.remove(id);
        }
        let entry = Entry::new(action).of(Id(id.0).to_string()).after(json!({ "name": &*view.spec.name }));
        app.audit.record(&caller.actor, entry).await;
        Ok(Json(shown(&app, *view)))
    })
    .await
}

pub async fn ask(handle: &Handle, worker: WorkerId, act: WorkerAct) -> Result<WorkerAnswer, Error> {
    match handle.ask(|ticket| Event::Worker { ticket, worker, act }).await? {
        Answer::Worker(answer) => answer.map_err(|refusal| refused(worker, refusal)),
        _ => Err(unexpected()),
    }
}

pub fn refused(worker: WorkerId, refusal: WorkerRefusal) -> Error {
    match refusal {
        WorkerRefusal::NotFound => Error::WorkerNotFound(worker),
        WorkerRefusal::Fenced => Error::Fenced,
        WorkerRefusal::TooMany { limit } => Error::TooManyWorkers(limit),
        WorkerRefusal::Embedded => Error::EmbeddedWorker,
        // Whoever asks as a worker is told to present itself before this is seen.
        WorkerRefusal::NotJoined => unexpected(),
    }
}

pub async fn views(app: &App, only: Option<WorkerId>) -> Result<Vec<CoreView>, Error> {
    match app.handle.ask(|ticket| Event::Workers { ticket, only }).await? {
        Answer::Workers(views) => Ok(views),
        _ => Err(unexpected()),
    }
}

/// One that was removed, by what was kept of it.
fn gone(row: WorkerRow) -> CoreView {
    CoreView {
        status: CoreStatus::Offline,
        reason: "it was removed".into(),
        draining: row.draining,
        reserved: Default::default(),
        free: row.spec.capacity.clone(),
        held: Vec::new(),
        vitals: Default::default(),
        seen_at: None,
        cooling_until: None,
        is_kept: false,
        registered_at: Some(row.registered_at),
        about: row.about,
        spec: row.spec,
    }
}

fn shown(app: &App, view: CoreView) -> WorkerView {
    let metrics = match view.spec.id == app.worker.id() {
        true => app.roster.metrics_here(),
        false => app.roster.metrics(view.spec.id),
    };
    worker_view(view, metrics)
}

/// What a list is narrowed to.
struct Wanted<'a> {
    status: Vec<WorkerStatus>,
    label: Option<(&'a str, &'a str)>,
    kind: Option<&'a str>,
}

impl Wanted<'_> {
    fn of(params: &WorkersParams) -> Result<Wanted<'_>, Invalid> {
        let label = params.label.as_deref().map(|label| label.split_once('='));
        let label = label.map(|label| label.ok_or_else(|| Invalid::new("label", "a label looks like KEY=VALUE")));
        Ok(Wanted {
            status: parsed_list("status", params.status.as_deref())?,
            label: label.transpose()?,
            kind: params.kind.as_deref(),
        })
    }

    fn has(&self, view: &CoreView) -> bool {
        let spec = &view.spec;
        let is_status = |status: &WorkerStatus| status.as_str() == view.status.as_str();
        let is_label = |(key, value): (&str, &str)| spec.labels.iter().any(|own| *own.0 == *key && *own.1 == *value);
        (self.status.is_empty() || self.status.iter().any(is_status))
            && self.label.is_none_or(is_label)
            && self.kind.is_none_or(|kind| spec.kinds.iter().any(|own| **own == *kind))
    }
}
