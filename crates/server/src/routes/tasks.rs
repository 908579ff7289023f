//! One task: create, list, show, change, retry, explain, its history.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use runyard_core::event::{
    Accepted, Answer, Asked, Change, ChangeRefusal, Event, FirstAnswer, Idempotency, NewTask, Submission, SubmitMode,
};
use runyard_core::ids::{FlowId, TaskId};
use runyard_core::name::Name;
use runyard_core::task::{Task, Tier};
use runyard_store::store::{Filter, TaskDoc};
use runyard_wire as wire;
use runyard_wire::{
    ChangeRequest, Dependency, ExplainView, Id, ListPage, Priority, RetryRequest, SessionRequest, StepView, StoredSpec,
    TaskRequest, TaskState, TaskView, Timestamp,
};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::extract::{Body, Params, TaskPath, cursor, page_limit, parsed, parsed_list};
use super::parents::{may_wait_for, name_parents};
use crate::access::Caller;
use crate::app::App;
use crate::clock;
use crate::edge::traceparent;
use crate::intake::{self, Intake, Prepared, Resolved};
use crate::nodes::{Forwarded, Once};
use crate::problem::{Error, Invalid};
use crate::uploads::KnownUploads;
use crate::view::{self, Labels};

pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
const REPLAYED: &str = "idempotent-replayed";

/// Submit one task. A message that became a part of another task of its session is answered with that one, and `merged`.
#[utoipa::path(post, path = "/v1/tasks", tag = "tasks", request_body = TaskRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "A repeat with the same key and body gets the first answer again")),
    responses((status = 201, description = "Accepted and stored", body = TaskView,
        headers(("Location" = String, description = "Where the task is"),
                ("Idempotent-Replayed" = String, description = "`true` when this is the first answer again")))))]
pub async fn create(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(forwarded): Extension<Forwarded>,
    headers: HeaderMap,
    body: Body<TaskRequest>,
) -> Result<Response, Error> {
    let mut request = body.value;
    request.idempotency_key = intake::key_of(key_header(&headers)?, request.idempotency_key.as_deref())?;
    let key = request.idempotency_key.clone();
    let config = app.config.current();
    let now_ms = forwarded.asked_at_ms();
    let uploads = &KnownUploads::of(&app);
    let (vault, traceparent) = (Some(&*app.vault), traceparent(&headers));
    let intake = Intake { config: &config.config, caller: &caller, uploads, now_ms, vault, traceparent };
    let depends_on = intake::ids_only(&request.depends_on)?;
    let resolved = Resolved { id: TaskId(forwarded.ids), depends_on, retry_of: None };
    let prepared = intake::prepare(&intake, request, resolved)?;
    let key = key.map(|key| intake::idempotency(&prepared.new.flow.agent, &key, &body.bytes));
    drop(config);
    may_wait_for(&app, &caller, prepared.new.depends_on.clone()).await?;
    submit(&app, prepared, key, forwarded.asked).await.map(Submitted::created)
}

/// List tasks, newest first.
#[utoipa::path(get, path = "/v1/tasks", tag = "tasks", params(ListParams),
    responses((status = 200, description = "One page", body = ListPage<TaskView>)))]
pub async fn list(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<ListParams>,
) -> Result<Json<ListPage<TaskView>>, Error> {
    let filter = own_only(&caller, params.filter()?)?;
    let limit = page_limit(params.limit)?;
    let after = cursor(params.cursor.as_deref())?;
    let page = app.read(move |reader| reader.tasks(&filter, after, limit)).await?;
    let own = page.items.into_iter().filter(|doc| caller.may_act_for(&doc.agent));
    let items = own.map(|doc| view::doc_view(&app, doc)).collect::<Result<_, _>>()?;
    Ok(Json(ListPage { items, next_cursor: page.next.map(|seq| seq.to_string()) }))
}

/// A key that is bound to one agent looks for its tasks only. One with several gets pages that others' tasks are left out of.
fn own_only(caller: &Caller, filter: Filter) -> Result<Filter, Error> {
    match &filter.agent {
        Some(agent) if !caller.may_act_for(agent) => Err(Error::ForeignAgent(agent.to_string())),
        Some(_) => Ok(filter),
        None => Ok(Filter { agent: caller.agents.only().map(Name::new), ..filter }),
    }
}

#[derive(Deserialize, IntoParams, Default)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub struct ListParams {
    /// Tasks of this agent.
    agent: Option<String>,
    /// Tasks in any of these states, separated by commas.
    state: Option<String>,
    /// Tasks of this lane.
    lane: Option<String>,
    /// Tasks of this kind.
    kind: Option<String>,
    /// Tasks of this tier.
    #[param(value_type = Option<Priority>)]
    priority: Option<String>,
    /// Tasks of this batch.
    #[param(value_type = Option<Id>)]
    batch: Option<String>,
    /// Tasks of this session.
    session: Option<String>,
    /// Submitted after this moment.
    #[param(value_type = Option<Timestamp>)]
    created_after: Option<String>,
    /// Submitted before this moment.
    #[param(value_type = Option<Timestamp>)]
    created_before: Option<String>,
    /// 1 to 1000; default 100.
    limit: Option<usize>,
    /// `nextCursor` of the page before.
    cursor: Option<String>,
}

impl ListParams {
    fn filter(&self) -> Result<Filter, Invalid> {
        let states: Vec<TaskState> = parsed_list("state", self.state.as_deref())?;
        let priority: Option<Priority> = self.priority.as_deref().map(|text| parsed("priority", text)).transpose()?;
        let batch: Option<Id> = self.batch.as_deref().map(|text| parsed("batch", text)).transpose()?;
        let time = |field: &str, text: Option<&str>| text.map(|text| parsed::<Timestamp>(field, text)).transpose();
        Ok(Filter {
            phases: states.into_iter().map(view::phase).collect(),
            agent: self.agent.as_deref().map(Name::new),
            lane: self.lane.as_deref().map(Name::new),
            kind: self.kind.as_deref().map(Name::new),
            tier: priority.map(intake::tier),
            batch: batch.map(|id| runyard_core::ids::BatchId(id.0)),
            session: self.session.as_deref().map(Name::new),
            created_after: time("createdAfter", self.created_after.as_deref())?.map(Timestamp::as_ms),
            created_before: time("createdBefore", self.created_before.as_deref())?.map(Timestamp::as_ms),
        })
    }
}

/// Show one task.
#[utoipa::path(get, path = "/v1/tasks/{id}", tag = "tasks", params(("id" = Id, Path)),
    responses((status = 200, description = "The task", body = TaskView)))]
pub async fn show(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    TaskPath(id): TaskPath,
) -> Result<Json<TaskView>, Error> {
    let doc = own_doc(&app, &caller, id).await?;
    Ok(Json(view::whole_view(&app, doc).await?))
}

/// Change what may still be changed, until the task starts.
#[utoipa::path(patch, path = "/v1/tasks/{id}", tag = "tasks", params(("id" = Id, Path)), request_body = ChangeRequest,
    responses((status = 200, description = "The task as changed", body = TaskView)))]
pub async fn change(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(once): Extension<Once>,
    TaskPath(id): TaskPath,
    body: Body<ChangeRequest>,
) -> Result<Json<TaskView>, Error> {
    let doc = own_doc(&app, &caller, id).await?;
    if once.first.is_some() {
        return Ok(Json(view::doc_view(&app, doc)?));
    }
    let tier = body.value.priority.map(|asked| capped(&app, &doc.agent, intake::tier(asked)));
    let change = Change {
        tier,
        rank: body.value.rank,
        deadline: body.value.deadline.map(|deadline| deadline.map(Timestamp::as_ms)),
        run_at: body.value.run_at.map(Timestamp::as_ms),
    };
    match once.handle(&app).ask(|ticket| Event::Change { ticket, task: id, change }).await? {
        Answer::Change(Ok(task)) => {
            let doc = TaskDoc { task: *task, tier: tier.unwrap_or(doc.tier), ..doc };
            Ok(Json(view::doc_view(&app, doc)?))
        }
        Answer::Change(Err(ChangeRefusal::NotFound)) => Err(not_found(id)),
        Answer::Change(Err(refusal)) => Err(Error::Change(refusal)),
        _ => Err(unexpected()),
    }
}

/// Submit a copy of an ended task. It waits again only for those of its dependencies that are still live.
#[utoipa::path(post, path = "/v1/tasks/{id}/retry", tag = "tasks", params(("id" = Id, Path)),
    responses((status = 201, description = "The copy, with `retryOf`", body = TaskView)))]
pub async fn retry(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(forwarded): Extension<Forwarded>,
    TaskPath(id): TaskPath,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let doc = own_doc(&app, &caller, id).await?;
    if !doc.task.phase().is_terminal() {
        return Err(Error::StillLive(doc.task.phase()));
    }
    if doc.spec.is_none() {
        return Err(Error::NoPayload);
    }
    let stored = view::stored_spec(&doc)?;
    let now_ms = forwarded.asked_at_ms();
    let parents = stored.depends_on.clone();
    let depends_on = app.read(move |reader| live_of(reader, &parents)).await?;
    may_wait_for(&app, &caller, depends_on.clone()).await?;
    let payload = whole_payload(&app, &doc, stored.payload.clone()).await?;
    let request = TaskRequest { payload, ..copy_of(&doc, stored, now_ms) };
    let config = app.config.current();
    let uploads = &KnownUploads::of(&app);
    let (vault, traceparent) = (Some(&*app.vault), traceparent(&headers));
    let intake = Intake { config: &config.config, caller: &caller, uploads, now_ms, vault, traceparent };
    let resolved = Resolved { id: TaskId(forwarded.ids), depends_on, retry_of: Some(Id(id.0)) };
    let prepared = intake::prepare(&intake, request, resolved)?;
    drop(config);
    submit(&app, prepared, None, forwarded.asked).await.map(Submitted::created)
}

/// Why does it wait, and what for?
#[utoipa::path(get, path = "/v1/tasks/{id}/explain", tag = "tasks", params(("id" = Id, Path)),
    responses((status = 200, description = "Each gate, and its place in line", body = ExplainView)))]
pub async fn explain(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    TaskPath(id): TaskPath,
) -> Result<Json<ExplainView>, Error> {
    if caller.agents.is_bound() {
        own_doc(&app, &caller, id).await?;
    }
    match app.handle.ask(|ticket| Event::Explain { ticket, task: id }).await? {
        Answer::Explained(Some(mut explanation)) => {
            name_parents(&app, &mut explanation).await?;
            Ok(Json(view::explain_view(&explanation)))
        }
        Answer::Explained(None) => Err(not_found(id)),
        _ => Err(unexpected()),
    }
}

/// The task's own history, kept as long as the task.
#[utoipa::path(get, path = "/v1/tasks/{id}/events", tag = "tasks", params(("id" = Id, Path)),
    responses((status = 200, description = "Its steps, oldest first", body = ListPage<StepView>)))]
pub async fn history(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    TaskPath(id): TaskPath,
) -> Result<Json<ListPage<StepView>>, Error> {
    let doc = own_doc(&app, &caller, id).await?;
    let items = doc.task.trail.steps().map(view::step_view).collect();
    Ok(Json(ListPage { items, next_cursor: None }))
}

pub async fn task_doc(app: &App, id: TaskId) -> Result<TaskDoc, Error> {
    app.read(move |reader| reader.task(id)).await?.ok_or_else(|| not_found(id))
}

pub fn not_found(id: TaskId) -> Error {
    Error::NotFound { what: "task", id: Id(id.0).to_string() }
}

/// The core answers each event with the answer that belongs to it; anything else is a bug worth a 500.
pub fn unexpected() -> Error {
    Error::Internal("the scheduler gave an answer to another question".into())
}

/// The task, if the caller may see and touch it.
pub async fn own_doc(app: &App, caller: &Caller, id: TaskId) -> Result<TaskDoc, Error> {
    let doc = task_doc(app, id).await?;
    if caller.may_act_for(&doc.agent) { Ok(doc) } else { Err(Error::ForeignAgent(doc.agent.to_string())) }
}

pub fn key_header(headers: &HeaderMap) -> Result<Option<&str>, Invalid> {
    let value = headers.get(IDEMPOTENCY_KEY).map(HeaderValue::to_str).transpose();
    value.map_err(|_| Invalid::new("Idempotency-Key", "must be printable ASCII"))
}

pub fn replayed(mut response: Response) -> Response {
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

/// A task that was taken, or the first answer again.
pub struct Submitted {
    view: TaskView,
    is_replayed: bool,
}

impl Submitted {
    fn created(self) -> Response {
        self.respond(StatusCode::CREATED, |view| view)
    }

    /// With the place of the task, which may be another than the one that was sent.
    pub fn respond<T: Serialize>(self, status: StatusCode, body: impl FnOnce(TaskView) -> T) -> Response {
        let location = format!("/v1/tasks/{}", self.view.status.id);
        let mut response = (status, Json(body(self.view))).into_response();
        if let Ok(location) = HeaderValue::from_str(&location) {
            response.headers_mut().insert(header::LOCATION, location);
        }
        if self.is_replayed { replayed(response) } else { response }
    }
}

/// A message may become part of another task, and then no row has its id that a second try would find. Where nodes ask each
/// other again, it has a key for that: the id.
fn own_key(app: &App, new: &NewTask) -> Option<Idempotency> {
    let may_merge = app.cluster.is_some() && new.session.is_some();
    may_merge.then(|| intake::idempotency(&new.flow.agent, &Id(new.id.0).to_string(), b""))
}

pub async fn submit(
    app: &App,
    prepared: Prepared,
    idempotency: Option<Idempotency>,
    asked: Asked,
) -> Result<Submitted, Error> {
    let Prepared { new, stored } = prepared;
    let idempotency = idempotency.or_else(|| own_key(app, &new));
    let labels = Labels::of(&new);
    let as_submitted = as_asked(&new);
    let submit = |ticket| {
        let (mode, items) = (SubmitMode::All, vec![new]);
        Event::Submit(Submission { ticket, batch: None, mode, items, idempotency, asked })
    };
    match app.handle.ask(submit).await? {
        Answer::Submitted { items } => match items.into_iter().next() {
            Some(Ok(Accepted { task: Some(task), merged, .. })) => {
                let view = match merged {
                    Some(_) => carrier_view(app, *task).await?,
                    None => view::task_view(app, &task, labels, stored, None),
                };
                Ok(Submitted { view, is_replayed: false })
            }
            Some(Err(refusal)) => Err(Error::Refused(refusal)),
            Some(Ok(_)) | None => Err(unexpected()),
        },
        Answer::Refused(refusal) => Err(Error::Refused(refusal)),
        Answer::Replayed(FirstAnswer::Task { id, phase }) => {
            let view = match app.read(move |reader| reader.task(id)).await? {
                Some(doc) => view::doc_view(app, doc)?,
                // The key outlived its task. The body is the same, so the repeat itself says what was asked for.
                None => {
                    let task = Task { id, created_at: clock::made_at_ms(id.0), ..as_submitted };
                    view::task_view(app, &task, labels, stored, None)
                }
            };
            Ok(Submitted { view: view::as_first_answered(view, phase), is_replayed: true })
        }
        _ => Err(unexpected()),
    }
}

/// The task that carries a merged message: as the merge left it, with what it was submitted with itself.
async fn carrier_view(app: &App, task: Task) -> Result<TaskView, Error> {
    let doc = task_doc(app, task.id).await?;
    view::doc_view(app, TaskDoc { task, result: None, ..doc })
}

/// A task of which only the request is known.
fn as_asked(new: &NewTask) -> Task {
    Task {
        rank: new.rank,
        policy: new.policy,
        run_at: new.run_at,
        deadline: new.deadline,
        ..Task::new(new.id, 0, FlowId(0), 0)
    }
}

fn capped(app: &App, agent: &str, asked: Tier) -> Tier {
    let config = app.config.current();
    let highest = config.config.agents.get(agent).and_then(|agent| agent.max_priority);
    highest.map_or(asked, |highest| asked.max(highest.into()))
}

fn live_of(reader: &dyn runyard_store::store::Reader, parents: &[Id]) -> runyard_store::store::Result<Vec<TaskId>> {
    let mut live = Vec::new();
    for parent in parents {
        let id = TaskId(parent.0);
        live.extend(reader.task(id)?.filter(|doc| !doc.task.phase().is_terminal()).map(|_| id));
    }
    Ok(live)
}

/// What a task was given to do: its own payload, with the messages that were merged into it.
pub async fn whole_payload(app: &App, doc: &TaskDoc, own: Option<wire::Json>) -> Result<Option<wire::Json>, Error> {
    if doc.task.member.is_none_or(|member| member.n_merged == 0) {
        return Ok(own);
    }
    let id = doc.task.id;
    let messages = app.read(move |reader| reader.messages(id)).await?;
    let specs = messages.iter().map(|(_, spec)| view::read_spec(spec)).collect::<Result<Vec<_>, _>>()?;
    let merged = specs.iter().map(|spec| spec.payload.as_ref());
    let payloads: Vec<_> = [own.as_ref()].into_iter().chain(merged).map(|json| json.map(|json| &*json.0)).collect();
    Ok(runyard_worker::merged_payload(&payloads, &[]).map(wire::Json))
}

/// What was asked for then, asked for again; moments that have passed are left out.
pub fn copy_of(doc: &TaskDoc, stored: StoredSpec, now_ms: u64) -> TaskRequest {
    let policy = &doc.task.policy;
    let shown = view::retry_spec(&policy.retry);
    let retry = RetryRequest {
        max_retries: Some(shown.max_retries),
        backoff_ms: Some(shown.backoff_ms),
        multiplier: Some(shown.multiplier),
        max_backoff_ms: Some(shown.max_backoff_ms),
        jitter: Some(shown.jitter),
        on: Some(shown.on),
    };
    TaskRequest {
        kind: Some(doc.kind.to_string()),
        payload: stored.payload,
        agent: Some(doc.agent.to_string()),
        lane: Some(doc.lane.to_string()),
        session: doc.session.as_ref().map(|key| SessionRequest::new(key.as_str())),
        // A copy is asked for now: a stop of its session after the first was sent does not mean it.
        sent_at: stored.sent_at.filter(|_| doc.session.is_none()),
        priority: Some(view::priority(doc.tier)),
        rank: Some(doc.task.rank),
        depends_on: Vec::<Dependency>::new(),
        on_dependency_failure: Some(view::on_dependency_failure(policy.on_dependency_failure)),
        dependency_timeout_ms: stored.dependency_timeout_ms,
        delay_ms: None,
        run_at: None,
        deadline: doc.task.deadline.filter(|deadline| *deadline > now_ms).map(Timestamp),
        timeout_ms: Some(policy.timeout_ms),
        retry: Some(retry),
        resources: Some(stored.resources).filter(|resources| !resources.is_empty()),
        limits: stored.limits,
        place: Some(stored.place),
        gates: stored.gates,
        stall_ms: policy.stall_ms,
        preemptible: Some(policy.preemptible),
        ttl_ms: policy.ttl_ms,
        callback_url: stored.callback_url,
        metadata: stored.metadata,
        tags: stored.tags,
        name: stored.name,
        idempotency_key: None,
    }
}
