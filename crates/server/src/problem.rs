//! Every error the API answers with, and the one function that turns each into RFC 9457 problem+json.

use std::borrow::Cow;
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use runyard_core::event::{ChangeRefusal, Refusal};
use runyard_core::ids::{TaskId, WorkerId};
use runyard_core::task::Phase;
use runyard_store::store;
use runyard_wire::{Id, PROBLEM_CONTENT_TYPE, ParseError, Problem, Timestamp};
use serde_json::{Map, Value, json};

use crate::access::{KeyError, Scope};
use crate::config;
use crate::handle::Unavailable;
use crate::nodes::UNSETTLED;
use crate::nodes::{KeepError, UploadError};
use crate::secrets;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Invalid(#[from] Invalid),
    #[error("an API key is needed: send it as `Authorization: Bearer ry_…` or `X-API-Key: ry_…`")]
    NoKey,
    #[error("this API key is not known")]
    UnknownKey,
    #[error("this API key lacks the scope `{}`", .0.as_str())]
    MissingScope(Scope),
    #[error("the key of a worker is good for what is that worker's only")]
    ForeignWorker,
    #[error("there is no worker {}: it was removed, or was away for too long", Id(.0.0))]
    WorkerNotFound(WorkerId),
    #[error("another process has registered as this worker since")]
    Fenced,
    #[error("there are {0} workers, and that is the limit ([workers] max)")]
    TooManyWorkers(u32),
    #[error("the server's own worker cannot be removed, only drained")]
    EmbeddedWorker,
    #[error("this worker does not hold attempt {attempt} of task {}", Id(.task.0))]
    StaleLease { task: TaskId, attempt: u32 },
    #[error("this API key is bound to agents and may not see or touch the work of {}", whose(.0))]
    ForeignAgent(String),
    #[error("this key may not depend on task {task}: it is of agent `{agent}`")]
    ForeignParent { task: Id, agent: String },
    #[error("{message}")]
    NotAllowed { field: String, message: String },
    #[error(transparent)]
    Secret(secrets::Error),
    #[error("this API key is bound to agents: it may use sessions named after them only, such as `AGENT/…`")]
    ForeignSession(String),
    #[error("Host `{0}` is not a name of this server; [server] allowedHosts can allow it")]
    ForbiddenHost(String),
    #[error("Origin `{0}` may not use this server; [server] allowedHosts can allow it")]
    ForbiddenOrigin(String),
    #[error("there is no {what} {id}")]
    NotFound { what: &'static str, id: String },
    #[error("there is nothing at {0}")]
    NoRoute(String),
    #[error("{0} is not possible here")]
    MethodNotAllowed(String),
    #[error("the body must be application/json")]
    UnsupportedMediaType,
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the URL is longer than {0} bytes")]
    UrlTooLong(u32),
    #[error("the body did not arrive in {} s", .0.as_secs_f64())]
    SlowBody(Duration),
    #[error("this {whose} may send {per_second} requests in a second")]
    RateLimited { whose: &'static str, per_second: u32, wait: Duration },
    #[error("{limit} streams are open {whose}, and that is the limit")]
    TooManyStreams { limit: u32, whose: &'static str },
    #[error("the bodies of requests being read {whose} would take more than {limit} bytes")]
    TooManyBodies { limit: u64, whose: &'static str },
    #[error("the body could not be read to its end")]
    BrokenBody,
    #[error("refused")]
    Refused(Refusal),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    #[error("no node holds the scheduler lease, or it cannot be reached")]
    NoHolder,
    #[error("the task has already ended as {}", .0.as_str())]
    Terminal(Phase),
    #[error("the task is {}: only an ended task can be retried", .0.as_str())]
    StillLive(Phase),
    #[error("the task is {}: only what runs has a heartbeat", .0.as_str())]
    NotRunning(Phase),
    #[error("the task is being stopped")]
    Stopping,
    #[error("the task was rejected at its submit, so no payload was kept that could be submitted again")]
    NoPayload,
    #[error("delivery {0} is pending: it is being tried already")]
    DeliveryPending(u64),
    #[error("there is a schedule `{name}` already: {by}")]
    NameTaken { name: String, by: Id },
    #[error("no run of schedule `{0}` lies ahead")]
    NoFutureRun(String),
    #[error("there are {0} schedules, and that is the limit ([schedules] max)")]
    TooManySchedules(u64),
    #[error("the change was refused")]
    Change(ChangeRefusal),
    #[error(transparent)]
    Config(#[from] config::Error),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("the store could not answer")]
    Store(#[from] store::Error),
    #[error("{0}")]
    Internal(Cow<'static, str>),
}

/// A request that breaks a rule: which field, and what would be right.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Invalid {
    pub code: &'static str,
    pub field: String,
    pub message: String,
}

impl Invalid {
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Invalid {
        Invalid { code: "invalid", field: field.into(), message: message.into() }
    }

    /// The same, seen from further out: `timeoutMs` inside `tasks[3]`.
    pub fn inside(self, outer: &str) -> Invalid {
        let field = if self.field.is_empty() { outer.to_owned() } else { format!("{outer}.{}", self.field) };
        Invalid { field, ..self }
    }
}

impl From<ParseError> for Invalid {
    fn from(error: ParseError) -> Invalid {
        Invalid::new(error.field, error.message)
    }
}

impl From<ParseError> for Error {
    fn from(error: ParseError) -> Error {
        Error::Invalid(error.into())
    }
}

impl From<config::ChangeError> for Error {
    fn from(error: config::ChangeError) -> Error {
        match error {
            config::ChangeError::Invalid(error) => Error::Config(error),
            config::ChangeError::Seal(error) => Error::Secret(error.into()),
            config::ChangeError::Unavailable(error) => Error::Unavailable(error),
        }
    }
}

impl From<UploadError> for Error {
    fn from(error: UploadError) -> Error {
        match error {
            UploadError::Store(error) => Error::Store(error),
            error => Error::Internal(error.to_string().into()),
        }
    }
}

impl From<KeepError> for Error {
    fn from(error: KeepError) -> Error {
        match error {
            KeepError::Store(error) => Error::Store(error),
            error @ KeepError::Disk(_) => Error::Internal(error.to_string().into()),
        }
    }
}

impl From<secrets::Error> for Error {
    fn from(error: secrets::Error) -> Error {
        Error::Secret(error)
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let needs_key = matches!(self, Error::NoKey | Error::UnknownKey);
        if let Error::Store(error) = &self {
            tracing::error!(target: "runyard::http", error = error as &dyn std::error::Error, "a read failed");
        }
        let is_unsettled = is_unsettled(&self);
        let mut response = problem_response(&problem(&self));
        if is_unsettled {
            response.headers_mut().insert(UNSETTLED, HeaderValue::from_static("true"));
        }
        if needs_key {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"runyard\""));
        }
        response
    }
}

/// Nobody here knows whether the command was, or will be, carried out; another node may.
fn is_unsettled(error: &Error) -> bool {
    let unavailable = match error {
        Error::Store(store::Error::Away { .. }) => return true,
        Error::Unavailable(unavailable) | Error::Secret(secrets::Error::Unavailable(unavailable)) => unavailable,
        _ => return false,
    };
    matches!(unavailable, Unavailable::Recovering | Unavailable::NotHolder | Unavailable::Stopped)
}

fn whose(agent: &str) -> String {
    if agent == "*" { "all of them".to_owned() } else { format!("agent `{agent}`") }
}

pub fn problem_response(problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = serde_json::to_vec(problem).expect("a problem is plain data");
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_CONTENT_TYPE));
    let known = problem.extra.get(RETRY_AFTER_SECONDS).and_then(Value::as_u64);
    if let Some(seconds) = known.or(retry_after_s(&problem.code)) {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// The one map from causes to status, code and text.
pub fn problem(error: &Error) -> Problem {
    let detail = error.to_string();
    match error {
        Error::Invalid(invalid) => invalid_problem(invalid),
        Error::NoKey => plain(401, "unauthorized", detail),
        Error::UnknownKey => plain(401, "unknown_key", detail),
        Error::MissingScope(scope) => with(plain(403, "missing_scope", detail), [("scope", json!(scope.as_str()))]),
        Error::ForeignWorker => plain(403, "foreign_worker", detail),
        Error::WorkerNotFound(_) => plain(404, "worker_not_found", detail),
        Error::Fenced => plain(409, "fenced", detail),
        Error::TooManyWorkers(limit) => with(plain(409, "too_many_workers", detail), [("limit", json!(limit))]),
        Error::EmbeddedWorker => plain(409, "embedded_worker", detail),
        Error::StaleLease { .. } => plain(409, "stale_lease", detail),
        Error::ForeignParent { task, agent } => {
            let problem = Problem { field: Some("dependsOn".to_owned()), ..plain(403, "foreign_agent", detail) };
            with(problem, [("agent", json!(agent)), ("task", json!(task))])
        }
        Error::ForeignAgent(agent) => with(plain(403, "foreign_agent", detail), [("agent", json!(agent))]),
        Error::NotAllowed { field, message } => {
            let detail = format!("{field}: {message}");
            Problem { field: Some(field.clone()), ..plain(403, "not_allowed", detail) }
        }
        Error::Secret(error) => secret_problem(error),
        Error::ForeignSession(key) => with(plain(403, "foreign_session", detail), [("session", json!(key))]),
        Error::ForbiddenHost(_) => plain(403, "forbidden_host", detail),
        Error::ForbiddenOrigin(_) => plain(403, "forbidden_origin", detail),
        Error::NotFound { .. } | Error::NoRoute(_) => plain(404, "not_found", detail),
        Error::MethodNotAllowed(_) => plain(405, "method_not_allowed", detail),
        Error::UnsupportedMediaType => plain(415, "unsupported_media_type", detail),
        Error::TooLarge(limit) => with(plain(413, "body_too_large", detail), [("limit", json!(limit))]),
        Error::UrlTooLong(limit) => with(plain(414, "url_too_long", detail), [("limit", json!(limit))]),
        Error::SlowBody(_) => plain(408, "slow_body", detail),
        Error::RateLimited { whose, per_second, wait } => {
            let facts = [
                ("whose", json!(whose)),
                ("perSecond", json!(per_second)),
                (RETRY_AFTER_SECONDS, json!(wait.as_millis().div_ceil(1000) as u64)),
            ];
            with(plain(429, "rate_limited", detail), facts)
        }
        Error::TooManyStreams { limit, .. } => with(plain(503, "too_many_streams", detail), [("limit", json!(limit))]),
        Error::TooManyBodies { limit, .. } => with(plain(503, "busy", detail), [("limit", json!(limit))]),
        Error::BrokenBody => plain(400, "broken_body", detail),
        Error::Refused(refusal) => refusal_problem(refusal),
        Error::Unavailable(Unavailable::Busy) => plain(503, "busy", detail),
        Error::Unavailable(Unavailable::Recovering) => plain(503, "recovering", detail),
        Error::Unavailable(Unavailable::Stopped) => plain(503, "stopping", detail),
        Error::Unavailable(Unavailable::NotHolder) => plain(503, "not_holder", detail),
        Error::NoHolder => plain(503, "no_holder", detail),
        Error::Terminal(phase) => with(plain(409, "already_terminal", detail), [("state", json!(phase.as_str()))]),
        Error::StillLive(phase) => with(plain(409, "still_live", detail), [("state", json!(phase.as_str()))]),
        Error::NotRunning(phase) => with(plain(409, "not_running", detail), [("state", json!(phase.as_str()))]),
        // It still holds its place, but nothing it says counts any more.
        Error::Stopping => plain(409, "task_stopping", detail),
        Error::NoPayload => plain(409, "no_payload", detail),
        Error::DeliveryPending(_) => plain(409, "still_pending", detail),
        Error::NameTaken { by, .. } => {
            let problem = Problem { field: Some("name".into()), ..plain(409, "name_taken", detail) };
            with(problem, [("schedule", json!(by))])
        }
        Error::NoFutureRun(_) => plain(409, "no_future_run", detail),
        Error::TooManySchedules(limit) => with(plain(409, "too_many_schedules", detail), [("limit", json!(limit))]),
        Error::Change(refusal) => change_problem(refusal),
        Error::Config(error) => {
            Problem { field: error.field().map(str::to_owned), ..plain(400, "invalid_config", detail) }
        }
        Error::Key(KeyError::NotFound) => plain(404, "not_found", detail),
        Error::Key(KeyError::TooMany) => plain(409, "too_many_keys", detail),
        Error::Key(KeyError::LastAdmin) => plain(409, "last_admin_key", detail),
        Error::Store(store::Error::Away { .. }) => plain(503, "no_database", detail),
        Error::Key(KeyError::NoRandomness) | Error::Store(_) | Error::Internal(_) => plain(500, "internal", detail),
    }
}

fn secret_problem(error: &secrets::Error) -> Problem {
    let detail = error.to_string();
    match error {
        secrets::Error::Name => field_problem("invalid", "name", &detail),
        secrets::Error::Value => field_problem("invalid", "value", &detail),
        secrets::Error::Configured(_) => plain(409, "configured_secret", detail),
        secrets::Error::NotFound(_) => plain(404, "not_found", detail),
        secrets::Error::TooMany => plain(409, "too_many_secrets", detail),
        secrets::Error::Seal(_) => plain(500, "internal", detail),
        secrets::Error::Unavailable(error) => problem(&Error::Unavailable(*error)),
    }
}

/// Also for one item of a batch.
pub fn refusal_problem(refusal: &Refusal) -> Problem {
    match refusal {
        Refusal::QueueFull { agent, queued, limit, recorded } => {
            queue_full(agent.as_deref(), *queued, *limit, *recorded)
        }
        Refusal::TooManyFlows { agent, flows, limit } => {
            let whose = agent.as_ref().map_or("the server".to_owned(), |agent| format!("agent `{agent}`"));
            let detail = format!(
                "{whose} has {flows} different combinations of lane, tier, kind, resources, place and gates in use, \
                 and the limit is {limit}"
            );
            let facts = [("agent", json!(agent.as_deref())), ("flows", json!(flows)), ("limit", json!(limit))];
            with(plain(429, "too_many_flows", detail), facts)
        }
        Refusal::Draining => plain(503, "draining", "the server is draining: it accepts nothing new".into()),
        Refusal::KeyReused { key } => {
            let detail = format!("idempotency key `{key}` was used before with another body");
            Problem { field: Some("idempotencyKey".into()), ..plain(422, "idempotency_key_reused", detail) }
        }
        Refusal::ParentRefused { parent } => {
            let parent = Id(parent.0);
            let problem = plain(424, "parent_refused", format!("it depends on {parent}, which was refused"));
            with(Problem { field: Some("dependsOn".into()), ..problem }, [("parent", json!(parent))])
        }
        Refusal::DeadlinePassed => Problem {
            field: Some("deadline".into()),
            ..plain(400, "deadline_passed", "the deadline is already past".into())
        },
        Refusal::SessionBusy { key, recorded } => {
            let detail = format!("session `{key}` is busy, and it refuses messages meanwhile (mode reject)");
            session_problem(plain(409, "session_busy", detail), key, *recorded)
        }
        Refusal::SessionFull { key, waiting, cap, recorded } => {
            let detail = format!("session `{key}` is full: {waiting} messages wait, and its cap is {cap}");
            let problem = session_problem(plain(429, "session_full", detail), key, *recorded);
            with(problem, [("waiting", json!(waiting)), ("cap", json!(cap))])
        }
        Refusal::Stale { key, cutoff, recorded } => {
            let cutoff = Timestamp(*cutoff);
            let detail = format!("the message was sent before session `{key}` was stopped at {cutoff}");
            let problem = Problem { field: Some("sentAt".into()), ..plain(409, "stale_message", detail) };
            with(session_problem(problem, key, *recorded), [("cutoff", json!(cutoff))])
        }
        Refusal::Invalid { code, field, message } => field_problem(code, field, message),
    }
}

fn queue_full(agent: Option<&str>, queued: u64, limit: u64, recorded: Option<TaskId>) -> Problem {
    let whose = agent.map_or("the queue".to_owned(), |agent| format!("the queue of agent `{agent}`"));
    let problem = plain(429, "queue_full", format!("{whose} is full: {queued} tasks wait, and the limit is {limit}"));
    let facts = [
        ("agent", json!(agent)),
        ("queued", json!(queued)),
        ("limit", json!(limit)),
        ("taskId", json!(recorded.map(|id| Id(id.0)))),
    ];
    with(problem, facts)
}

fn session_problem(problem: Problem, key: &str, recorded: Option<TaskId>) -> Problem {
    with(problem, [("session", json!(key)), ("taskId", json!(recorded.map(|id| Id(id.0))))])
}

fn change_problem(refusal: &ChangeRefusal) -> Problem {
    match refusal {
        ChangeRefusal::NotFound => plain(404, "not_found", "there is no such task".into()),
        ChangeRefusal::Started(phase) => {
            let detail = format!("the task is {}: it can be changed only until it starts", phase.as_str());
            with(plain(409, "already_started", detail), [("state", json!(phase.as_str()))])
        }
        ChangeRefusal::Terminal(phase) => problem(&Error::Terminal(*phase)),
        ChangeRefusal::TooManyFlows { scope, limit } => {
            plain(429, "too_many_flows", format!("{scope} is at its limit of {limit} flows"))
        }
        ChangeRefusal::DeadlinePassed => refusal_problem(&Refusal::DeadlinePassed),
    }
}

fn invalid_problem(invalid: &Invalid) -> Problem {
    field_problem(invalid.code, &invalid.field, &invalid.message)
}

/// The detail names the field too: people often see nothing else of a problem.
fn field_problem(code: &str, field: &str, message: &str) -> Problem {
    if field.is_empty() {
        return plain(400, code, message.to_owned());
    }
    Problem { field: Some(field.to_owned()), ..plain(400, code, format!("{field}: {message}")) }
}

fn plain(status: u16, code: &str, detail: String) -> Problem {
    let title = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("");
    Problem {
        kind: format!("urn:runyard:problem:{code}"),
        title: title.to_owned(),
        status,
        detail,
        code: code.to_owned(),
        field: None,
        extra: Map::new(),
    }
}

fn with<const N: usize>(mut problem: Problem, facts: [(&str, Value); N]) -> Problem {
    problem
        .extra
        .extend(facts.into_iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| (key.to_owned(), value)));
    problem
}

/// Where it is known how long to wait.
const RETRY_AFTER_SECONDS: &str = "retryAfterSeconds";

/// Full queues empty at the speed of the work behind them; the others pass within a second or two.
fn retry_after_s(code: &str) -> Option<u64> {
    match code {
        "queue_full" | "too_many_flows" | "session_full" | "too_many_streams" => Some(5),
        "draining" | "stopping" => Some(10),
        "busy" | "recovering" | "not_holder" | "no_holder" | "no_database" => Some(1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_status_and_code() {
        let full = Refusal::QueueFull { agent: Some("a".into()), queued: 7, limit: 7, recorded: Some(TaskId(1)) };
        let table = [
            (Error::NoKey, 401, "unauthorized"),
            (Error::MissingScope(Scope::Exec), 403, "missing_scope"),
            (Error::TooLarge(5), 413, "body_too_large"),
            (Error::UrlTooLong(5), 414, "url_too_long"),
            (Error::SlowBody(Duration::from_secs(1)), 408, "slow_body"),
            (Error::TooManyStreams { limit: 5, whose: "in all" }, 503, "too_many_streams"),
            (Error::Refused(full), 429, "queue_full"),
            (Error::Refused(Refusal::Draining), 503, "draining"),
            (Error::Refused(Refusal::KeyReused { key: "k".into() }), 422, "idempotency_key_reused"),
            (Error::Unavailable(Unavailable::Busy), 503, "busy"),
            (Error::TooManyBodies { limit: 5, whose: "in all" }, 503, "busy"),
            (Error::Unavailable(Unavailable::Recovering), 503, "recovering"),
            (Error::Terminal(Phase::Completed), 409, "already_terminal"),
            (Error::NotRunning(Phase::Queued), 409, "not_running"),
            (Error::Stopping, 409, "task_stopping"),
            (Error::Change(ChangeRefusal::Started(Phase::Running)), 409, "already_started"),
            (Error::Key(KeyError::LastAdmin), 409, "last_admin_key"),
        ];
        for (error, status, code) in table {
            let problem = problem(&error);
            assert_eq!((problem.status, problem.code.as_str()), (status, code), "{error}");
            assert!(!problem.title.is_empty() && !problem.detail.is_empty());
        }
    }

    #[test]
    fn what_a_session_refuses_names_it_and_the_record() {
        let (key, recorded) = (|| "a:7".into(), Some(TaskId(1)));
        let table = [
            (Refusal::SessionBusy { key: key(), recorded }, 409, "session_busy", None),
            (Refusal::SessionFull { key: key(), waiting: 3, cap: 2, recorded }, 429, "session_full", Some("5")),
            (Refusal::Stale { key: key(), cutoff: 0, recorded }, 409, "stale_message", None),
        ];
        for (refusal, status, code, retry_after) in table {
            let problem = refusal_problem(&refusal);
            assert_eq!((problem.status, problem.code.as_str()), (status, code));
            assert_eq!((&problem.extra["session"], &problem.extra["taskId"]), (&json!("a:7"), &json!(Id(1))));
            let response = problem_response(&problem);
            let header = response.headers().get(header::RETRY_AFTER).map(|value| value.to_str().expect("text"));
            assert_eq!(header, retry_after, "{code}");
        }
        let full = refusal_problem(&Refusal::SessionFull { key: key(), waiting: 3, cap: 2, recorded: None });
        assert_eq!((&full.extra["waiting"], &full.extra["cap"]), (&json!(3), &json!(2)));
        let stale = refusal_problem(&Refusal::Stale { key: key(), cutoff: 0, recorded: None });
        assert_eq!(stale.extra["cutoff"], "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn whoever_asks_too_often_learns_when_to_come_back() {
        let wait = Duration::from_millis(1200);
        let response = Error::RateLimited { whose: "key", per_second: 5, wait }.into_response();
        assert_eq!(
            (response.status().as_u16(), &response.headers()[header::RETRY_AFTER]),
            (429, &HeaderValue::from(2))
        );
    }

    #[test]
    fn a_full_queue_answers_with_both_numbers() {
        let refusal = Refusal::QueueFull { agent: Some("a".into()), queued: 8, limit: 7, recorded: None };
        let response = Error::Refused(refusal.clone()).into_response();
        assert_eq!(response.headers()[header::RETRY_AFTER], "5");
        assert_eq!(response.headers()[header::CONTENT_TYPE], PROBLEM_CONTENT_TYPE);
        let problem = refusal_problem(&refusal);
        assert_eq!((&problem.extra["queued"], &problem.extra["limit"]), (&json!(8), &json!(7)));
        assert!(!problem.extra.contains_key("taskId"));
    }
}
