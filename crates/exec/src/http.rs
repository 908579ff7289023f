//! `http`: one request, aborted at once when a stop is asked.
//!
//! The result of a 2xx answer:
//!
//! | answer | result |
//! |---|---|
//! | JSON | `{"status": 200, "body": <the JSON>}` |
//! | anything else | `{"status": 200, "body": "<the text>"}` |
//! | says JSON and is none | `{"status": 200, "body": "<the text>", "notJson": true}` |
//! | `text/event-stream` | `{"status": 200, "text": "<data of all events, joined by newlines>", "lastEvent": <data of the last>}` |
//!
//! Each event goes to the log as it arrives. `lastEvent` is JSON when the data is; the `[DONE]` that some providers end
//! with is no event. An object `usage` in a JSON answer, or in the last event, that says `inputTokens`, `outputTokens`,
//! `contextTokens` or `contextWindow` is the usage of the run. A result is at most 1 MiB: a longer answer is cut, marked with `"truncated": true`, and goes to
//! the log instead. Redirects are not followed: a task names the place it means, and an answer must not move its
//! credentials elsewhere. A body that comes packed (gzip, br), though nobody asked for it, is a failure that names the
//! encoding: as a text it would be noise. Any other status is a failure, see [`classify`]. Where tasks are guarded, only
//! public addresses are connected to, see [`crate::guard`].

mod answer;
pub mod classify;
pub mod sse;

pub(crate) use answer::next_chunk;

use std::sync::{Arc, OnceLock};

use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Method, RequestBuilder, Response, Url};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::guard::{Guard, GuardedClient, blocked_by};
use crate::job::{Job, Signs};
use crate::log::LogWriter;
use crate::outcome::{Class, Failure, Outcome};
use crate::payload::{HttpBody, HttpPayload};
use crate::places::Places;
use crate::secret::{self, Redactor, Secrets};

/// Who asks, where nothing else is said.
const AGENT: &str = concat!("runyard/", env!("CARGO_PKG_VERSION"));

pub struct Http {
    places: Arc<Places>,
    /// Made with the first request: reading the system's certificates takes longer than a server may take to listen.
    client: OnceLock<Client>,
    guarded: Option<Guarded>,
    secrets: Option<Arc<dyn Secrets>>,
}

/// Tasks go through the guard while it says that they do.
struct Guarded {
    guard: Arc<Guard>,
    client: OnceLock<GuardedClient>,
}

impl Http {
    pub fn new(places: Arc<Places>, guard: Option<Arc<Guard>>, secrets: Option<Arc<dyn Secrets>>) -> Http {
        let guarded = guard.map(|guard| Guarded { guard, client: OnceLock::new() });
        Http { places, client: OnceLock::new(), guarded, secrets }
    }

    pub async fn run(&self, job: &Job, stop: &CancellationToken, signs: &dyn Signs) -> Outcome {
        let mut log = LogWriter::new(self.places.log_file(job.task, job.attempt), job.output_bytes_max);
        let (payload, redactor) = match self.revealed(job) {
            Ok(revealed) => revealed,
            Err(message) => return Outcome::Failed(Failure::work(Class::Permanent, message)),
        };
        log.redact(redactor.clone());
        let outcome = tokio::select! {
            biased;
            // Dropping the request closes its connection.
            () = stop.cancelled() => Outcome::Stopped,
            end = self.request(job, payload.as_deref(), signs, &mut log) => end.unwrap_or_else(Outcome::Failed),
        };
        log.finish();
        signs.log_grew(log.file_bytes());
        redactor.outcome(outcome)
    }

    /// The payload with the values of its secrets. They are read at each attempt, so a changed one is used by the next.
    fn revealed(&self, job: &Job) -> Result<(Option<Box<RawValue>>, Redactor), String> {
        let (Some(payload), Some(secrets)) = (&job.payload, &self.secrets) else {
            return Ok((job.payload.clone(), Redactor::default()));
        };
        // A submit refuses it; what was submitted to an earlier version is still here.
        if let Some((found, why)) = secret::misplaced_in_http(payload) {
            return Err(format!("{}: {why}", found.field));
        }
        let revealed = secret::reveal(payload, &job.agent, &**secrets).map_err(|error| error.to_string())?;
        Ok((Some(revealed.payload), revealed.redactor))
    }

    async fn request(
        &self,
        job: &Job,
        payload: Option<&RawValue>,
        signs: &dyn Signs,
        log: &mut LogWriter,
    ) -> Result<Outcome, Failure> {
        // As it was submitted, with references: a client writes a URL, and a value in it, in its own way.
        let target = HttpPayload::parse(job.payload.as_deref())?.target();
        let payload = HttpPayload::parse(payload)?;
        if let Some(field) = payload.unsaid {
            log.note(&format!("payload.{field} is not sent, because body is given beside it"));
        }
        let begun = self.begin(&target, payload.method.clone(), payload.url.clone())?;
        let request = build(begun, job, payload);
        let response = request.send().await.map_err(|error| unreachable(&target, error))?;
        signs.alive();
        answer::read(response, signs, log).await
    }

    /// Opens what is at an address, to be read by whoever asks. Anything but a plain 2xx answer is a failure, of the same
    /// classes as a task of this kind would end with.
    pub(crate) async fn fetch(&self, url: Url) -> Result<Response, Failure> {
        let target = format!("GET {url}");
        let request = self.begin(&target, Method::GET, url)?.header(USER_AGENT, AGENT);
        let response = request.send().await.map_err(|error| unreachable(&target, error))?;
        answer::check(response).await.map_err(|failure| {
            let message = format!("{target}: {}", failure.message);
            Failure { message, result: None, usage: None, ..failure }
        })
    }

    fn begin(&self, target: &str, method: Method, url: Url) -> Result<RequestBuilder, Failure> {
        let Some(Guarded { guard, client }) = self.guarded.as_ref().filter(|guarded| guarded.guard.covers_tasks())
        else {
            return Ok(made(&self.client, make_client)?.request(method, url));
        };
        let request = made(client, || guard.client())?.request(method, url);
        request.map_err(|blocked| Failure::work(Class::Permanent, format!("{target}: {blocked}")))
    }
}

fn made<T>(cell: &OnceLock<T>, make: impl FnOnce() -> Result<T, reqwest::Error>) -> Result<&T, Failure> {
    if let Some(client) = cell.get() {
        return Ok(client);
    }
    let client =
        make().map_err(|error| Failure::worker(format!("the HTTP client cannot be made: {}", with_causes(&error))))?;
    Ok(cell.get_or_init(|| client))
}

fn make_client() -> Result<Client, reqwest::Error> {
    with_certificates(|| Client::builder().no_proxy().redirect(Policy::none()))
}

pub fn with_certificates(builder: impl Fn() -> ClientBuilder) -> Result<Client, reqwest::Error> {
    // Whoever was first has chosen the provider for the whole process; ring is ours.
    let _ = rustls::crypto::ring::default_provider().install_default();
    builder().build().or_else(|error| {
        // A minimal container has no certificates. Plain HTTP works all the same, and HTTPS then says why not.
        tracing::warn!(error = %with_causes(&error), "no system certificates; https requests will fail");
        builder().tls_certs_only([]).build()
    })
}

fn build(request: RequestBuilder, job: &Job, payload: HttpPayload) -> RequestBuilder {
    let task = job.task_text();
    let mut headers = payload.headers;
    let mut default = |name: HeaderName, value: &str| {
        if let (false, Ok(value)) = (headers.contains_key(&name), HeaderValue::from_str(value)) {
            headers.insert(name, value);
        }
    };
    default(HeaderName::from_static("idempotency-key"), &task);
    default(HeaderName::from_static("x-agent-id"), &job.agent);
    if let Some(trace) = &job.traceparent {
        default(HeaderName::from_static("traceparent"), trace);
    }
    default(USER_AGENT, AGENT);
    match &payload.body {
        Some(HttpBody::Json(_)) => default(CONTENT_TYPE, "application/json"),
        Some(HttpBody::Text(_)) => default(CONTENT_TYPE, "text/plain; charset=utf-8"),
        None => {}
    }
    // These two say who asks, so a payload cannot replace them.
    headers.insert("x-runyard-attempt", HeaderValue::from(job.attempt));
    if let Ok(task) = HeaderValue::from_str(&task) {
        headers.insert("x-runyard-task-id", task);
    }
    let request = request.headers(headers);
    match payload.body {
        Some(HttpBody::Json(text) | HttpBody::Text(text)) => request.body(text),
        None => request,
    }
}

/// No answer: a name that does not resolve, a refused connection, a broken handshake.
fn unreachable(target: &str, error: reqwest::Error) -> Failure {
    if let Some(blocked) = blocked_by(&error) {
        return Failure::work(Class::Permanent, format!("{target}: {blocked}"));
    }
    let class = if error.is_builder() { Class::Permanent } else { Class::Task };
    Failure::work(class, format!("{target}: {}", with_causes(&error.without_url())))
}

/// An error and what is behind it: the outermost text of an HTTP client alone says very little.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}
