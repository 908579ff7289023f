//! The HTTP client of the command line: one method for each route, answers as text that can be read as its type.

use std::marker::PhantomData;
use std::path::Path;
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, HeaderMap, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, Url};
use runyard_wire::{
    AgentPut, AgentView, ArtifactsView, AuditView, BackupRequest, BackupView, BatchAnswer, BatchRequest, BatchView,
    CancelAnswer, CancelFilter, CancelManyAnswer, CancelRequest, ConfigView, DeliveryView, DrainRequest, DrainView,
    ExplainView, HeartbeatRequest, Id, InputAnswer, InputRequest, KeyCreated, KeyRequest, KeyView, LanePut, LaneView,
    ListPage, MessageView, NodePage, PauseRequest, Problem, RunView, ScheduleRequest, ScheduleView, SecretPut,
    SecretView, SessionSettings, SessionStopAllAnswer, SessionStopAnswer, SessionView, StatsView, StepView,
    TaskRequest, TaskView, UploadView, WebhookSecrets, WorkerPage, WorkerView,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::locate::{Connection, is_loopback};
use crate::sse::{SseEvent, SseParser};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// For every call that is not meant to be held open.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
}

/// An answer as it came; `--json` prints the text, everything else reads it.
pub struct Answer<T> {
    pub text: String,
    url: String,
    kind: PhantomData<T>,
}

impl<T: DeserializeOwned> Answer<T> {
    pub fn read(&self) -> Result<T> {
        self.read_as()
    }
}

impl<T> Answer<T> {
    /// The same text, to be read as another type.
    pub fn cast<U>(self) -> Answer<U> {
        Answer { text: self.text, url: self.url, kind: PhantomData }
    }

    /// Reads only the part of the answer that `U` asks for.
    pub fn read_as<U: DeserializeOwned>(&self) -> Result<U> {
        serde_json::from_str(&self.text)
            .map_err(|error| Error::Unreadable { url: self.url.clone(), detail: error.to_string() })
    }
}

impl Client {
    pub fn new(connection: &Connection) -> Result<Client> {
        let base = connection.url()?;
        let key = connection.key_for(&base)?;
        // Another part of the process may have installed it already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut headers = HeaderMap::new();
        if let Some(key) = key {
            headers.insert(AUTHORIZATION, bearer(&key)?);
        }
        let builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .default_headers(headers)
            .user_agent(concat!("runyard/", env!("CARGO_PKG_VERSION")));
        let builder = builder.tls_certs_merge(connection.certificates()?);
        // A proxy of the environment cannot reach this machine's own loopback.
        let builder = if is_loopback(&base) { builder.no_proxy() } else { builder };
        let http = builder.build().map_err(|error| Error::usage(format!("cannot make an HTTP client: {error}")))?;
        Ok(Client { http, base })
    }

    pub fn base(&self) -> &Url {
        &self.base
    }

    pub async fn task_submit(&self, request: &TaskRequest) -> Result<Answer<TaskView>> {
        self.send(Method::POST, &["v1", "tasks"], &[], Some(request)).await
    }

    pub async fn task_list(&self, query: &[(&str, String)]) -> Result<Answer<ListPage<TaskView>>> {
        self.get(&["v1", "tasks"], query).await
    }

    pub async fn task(&self, id: Id) -> Result<Answer<TaskView>> {
        self.get(&["v1", "tasks", &id.to_string()], &[]).await
    }

    /// Holds until the task has ended, or for `timeout`: then the answer is the task as it is.
    pub async fn task_wait(&self, id: Id, timeout: Duration) -> Result<Answer<TaskView>> {
        let url =
            self.url(&["v1", "tasks", &id.to_string(), "wait"], &[("timeoutMs", timeout.as_millis().to_string())]);
        let request = self.http.get(url.clone()).timeout(timeout + ANSWER_TIMEOUT);
        self.answer(&url, request).await
    }

    pub async fn task_steps(&self, id: Id) -> Result<Answer<ListPage<StepView>>> {
        self.get(&["v1", "tasks", &id.to_string(), "events"], &[]).await
    }

    pub async fn task_explain(&self, id: Id) -> Result<Answer<ExplainView>> {
        self.get(&["v1", "tasks", &id.to_string(), "explain"], &[]).await
    }

    /// The messages that were merged into it, beyond its own.
    pub async fn task_messages(&self, id: Id) -> Result<Answer<ListPage<MessageView>>> {
        self.get(&["v1", "tasks", &id.to_string(), "messages"], &[]).await
    }

    pub async fn task_input(&self, id: Id, text: String) -> Result<Answer<InputAnswer>> {
        let body = InputRequest { text };
        self.send(Method::POST, &["v1", "tasks", &id.to_string(), "input"], &[], Some(&body)).await
    }

    pub async fn task_heartbeat(&self, id: Id, request: &HeartbeatRequest) -> Result<()> {
        let url = self.url(&["v1", "tasks", &id.to_string(), "heartbeat"], &[]);
        self.respond(&url, self.http.post(url.clone()).json(request).timeout(ANSWER_TIMEOUT)).await.map(drop)
    }

    pub async fn task_cancel(&self, id: Id, reason: Option<String>) -> Result<Answer<CancelAnswer>> {
        let body = CancelRequest { reason };
        self.send(Method::POST, &["v1", "tasks", &id.to_string(), "cancel"], &[], Some(&body)).await
    }

    pub async fn tasks_cancel(&self, filter: &CancelFilter) -> Result<Answer<CancelManyAnswer>> {
        self.send(Method::POST, &["v1", "tasks", "cancel"], &[], Some(filter)).await
    }

    pub async fn task_retry(&self, id: Id) -> Result<Answer<TaskView>> {
        self.send::<_, ()>(Method::POST, &["v1", "tasks", &id.to_string(), "retry"], &[], None).await
    }

    pub async fn batch_submit(&self, request: &BatchRequest) -> Result<Answer<BatchAnswer>> {
        self.send(Method::POST, &["v1", "batches"], &[], Some(request)).await
    }

    pub async fn batch(&self, id: Id) -> Result<Answer<BatchView>> {
        self.get(&["v1", "batches", &id.to_string()], &[]).await
    }

    pub async fn batch_cancel(&self, id: Id, reason: Option<String>) -> Result<Answer<CancelManyAnswer>> {
        let body = CancelRequest { reason };
        self.send(Method::POST, &["v1", "batches", &id.to_string(), "cancel"], &[], Some(&body)).await
    }

    pub async fn agent_list(&self) -> Result<Answer<ListPage<AgentView>>> {
        self.get(&["v1", "agents"], &[]).await
    }

    pub async fn agent_put(&self, name: &str, put: &AgentPut) -> Result<Answer<AgentView>> {
        self.send(Method::PUT, &["v1", "agents", name], &[], Some(put)).await
    }

    pub async fn lane_list(&self) -> Result<Answer<ListPage<LaneView>>> {
        self.get(&["v1", "lanes"], &[]).await
    }

    pub async fn lane_put(&self, name: &str, put: &LanePut) -> Result<Answer<LaneView>> {
        self.send(Method::PUT, &["v1", "lanes", name], &[], Some(put)).await
    }

    pub async fn worker_list(&self, query: &[(&str, String)]) -> Result<Answer<WorkerPage>> {
        self.get(&["v1", "workers"], query).await
    }

    pub async fn node_list(&self) -> Result<Answer<NodePage>> {
        self.get(&["v1", "nodes"], &[]).await
    }

    pub async fn worker(&self, id: Id) -> Result<Answer<WorkerView>> {
        self.get(&["v1", "workers", &id.to_string()], &[]).await
    }

    pub async fn worker_drain(&self, id: Id) -> Result<Answer<WorkerView>> {
        self.send::<_, ()>(Method::POST, &["v1", "workers", &id.to_string(), "drain"], &[], None).await
    }

    pub async fn worker_resume(&self, id: Id) -> Result<Answer<WorkerView>> {
        self.send::<_, ()>(Method::POST, &["v1", "workers", &id.to_string(), "resume"], &[], None).await
    }

    pub async fn worker_remove(&self, id: Id) -> Result<()> {
        let url = self.url(&["v1", "workers", &id.to_string()], &[]);
        self.respond(&url, self.http.delete(url.clone()).timeout(ANSWER_TIMEOUT)).await.map(drop)
    }

    pub async fn session_list(&self, query: &[(&str, String)]) -> Result<Answer<ListPage<SessionView>>> {
        self.get(&["v1", "sessions"], query).await
    }

    pub async fn session(&self, key: &str) -> Result<Answer<SessionView>> {
        self.get(&["v1", "sessions", key], &[]).await
    }

    pub async fn session_put(&self, key: &str, settings: &SessionSettings) -> Result<Answer<SessionView>> {
        self.send(Method::PUT, &["v1", "sessions", key], &[], Some(settings)).await
    }

    pub async fn session_stop(&self, key: &str) -> Result<Answer<SessionStopAnswer>> {
        self.send::<_, ()>(Method::POST, &["v1", "sessions", key, "stop"], &[], None).await
    }

    pub async fn session_stop_all(&self, key: &str) -> Result<Answer<SessionStopAllAnswer>> {
        self.send::<_, ()>(Method::POST, &["v1", "sessions", key, "stopall"], &[], None).await
    }

    pub async fn session_reset(&self, key: &str) -> Result<Answer<SessionStopAllAnswer>> {
        self.send::<_, ()>(Method::POST, &["v1", "sessions", key, "reset"], &[], None).await
    }

    pub async fn schedule_create(&self, request: &ScheduleRequest) -> Result<Answer<ScheduleView>> {
        self.send(Method::POST, &["v1", "schedules"], &[], Some(request)).await
    }

    pub async fn schedule_list(&self, query: &[(&str, String)]) -> Result<Answer<ListPage<ScheduleView>>> {
        self.get(&["v1", "schedules"], query).await
    }

    /// By its id or its name, here and below.
    pub async fn schedule(&self, schedule: &str) -> Result<Answer<ScheduleView>> {
        self.get(&["v1", "schedules", schedule], &[]).await
    }

    pub async fn schedule_patch(&self, schedule: &str, patch: &Map<String, Value>) -> Result<Answer<ScheduleView>> {
        self.send(Method::PATCH, &["v1", "schedules", schedule], &[], Some(patch)).await
    }

    pub async fn schedule_remove(&self, schedule: &str) -> Result<()> {
        let url = self.url(&["v1", "schedules", schedule], &[]);
        self.respond(&url, self.http.delete(url.clone()).timeout(ANSWER_TIMEOUT)).await.map(drop)
    }

    pub async fn schedule_pause(&self, schedule: &str, request: &PauseRequest) -> Result<Answer<ScheduleView>> {
        self.send(Method::POST, &["v1", "schedules", schedule, "pause"], &[], Some(request)).await
    }

    pub async fn schedule_resume(&self, schedule: &str) -> Result<Answer<ScheduleView>> {
        self.send::<_, ()>(Method::POST, &["v1", "schedules", schedule, "resume"], &[], None).await
    }

    pub async fn schedule_run(&self, schedule: &str) -> Result<Answer<RunView>> {
        self.send::<_, ()>(Method::POST, &["v1", "schedules", schedule, "run"], &[], None).await
    }

    pub async fn schedule_runs(&self, schedule: &str, query: &[(&str, String)]) -> Result<Answer<ListPage<RunView>>> {
        self.get(&["v1", "schedules", schedule, "runs"], query).await
    }

    pub async fn delivery_list(&self, query: &[(&str, String)]) -> Result<Answer<ListPage<DeliveryView>>> {
        self.get(&["v1", "webhooks", "deliveries"], query).await
    }

    pub async fn delivery(&self, id: u64) -> Result<Answer<DeliveryView>> {
        self.get(&["v1", "webhooks", "deliveries", &id.to_string()], &[]).await
    }

    pub async fn delivery_replay(&self, id: u64) -> Result<Answer<DeliveryView>> {
        let path = ["v1", "webhooks", "deliveries", &id.to_string(), "replay"];
        self.send::<_, ()>(Method::POST, &path, &[], None).await
    }

    pub async fn webhook_secret(&self) -> Result<Answer<WebhookSecrets>> {
        self.get(&["v1", "webhooks", "secret"], &[]).await
    }

    pub async fn webhook_secret_rotate(&self) -> Result<Answer<WebhookSecrets>> {
        self.send::<_, ()>(Method::POST, &["v1", "webhooks", "secret", "rotate"], &[], None).await
    }

    pub async fn stats(&self) -> Result<Answer<StatsView>> {
        self.get(&["v1", "stats"], &[]).await
    }

    pub async fn config(&self) -> Result<Answer<ConfigView>> {
        self.get(&["v1", "config"], &[]).await
    }

    pub async fn drain(&self) -> Result<Answer<DrainView>> {
        self.get(&["v1", "drain"], &[]).await
    }

    pub async fn drain_set(&self, request: DrainRequest) -> Result<Answer<DrainView>> {
        self.send(Method::POST, &["v1", "drain"], &[], Some(&request)).await
    }

    pub async fn key_list(&self) -> Result<Answer<ListPage<KeyView>>> {
        self.get(&["v1", "keys"], &[]).await
    }

    pub async fn key_create(&self, request: &KeyRequest) -> Result<Answer<KeyCreated>> {
        self.send(Method::POST, &["v1", "keys"], &[], Some(request)).await
    }

    pub async fn key_revoke(&self, id: Id) -> Result<()> {
        let url = self.url(&["v1", "keys", &id.to_string()], &[]);
        self.respond(&url, self.http.delete(url.clone()).timeout(ANSWER_TIMEOUT)).await.map(drop)
    }

    pub async fn secret_list(&self) -> Result<Answer<ListPage<SecretView>>> {
        self.get(&["v1", "secrets"], &[]).await
    }

    pub async fn secret_put(&self, name: &str, put: &SecretPut) -> Result<()> {
        let url = self.url(&["v1", "secrets", name], &[]);
        self.respond(&url, self.http.put(url.clone()).json(put).timeout(ANSWER_TIMEOUT)).await.map(drop)
    }

    pub async fn secret_remove(&self, name: &str) -> Result<()> {
        let url = self.url(&["v1", "secrets", name], &[]);
        self.respond(&url, self.http.delete(url.clone()).timeout(ANSWER_TIMEOUT)).await.map(drop)
    }

    pub async fn audit(&self, query: &[(&str, String)]) -> Result<Answer<ListPage<AuditView>>> {
        self.get(&["v1", "audit"], query).await
    }

    /// Copying takes as long as the data is big, so it has no time limit.
    pub async fn backup(&self, request: &BackupRequest) -> Result<Answer<BackupView>> {
        let url = self.url(&["v1", "backup"], &[]);
        self.answer(&url, self.http.post(url.clone()).json(request)).await
    }

    /// Takes as long as the file is big, so it has no time limit.
    pub async fn upload(&self, path: &Path) -> Result<Answer<UploadView>> {
        let unreadable = |source| Error::File { doing: "read", path: path.to_owned(), source };
        let file = tokio::fs::File::open(path).await.map_err(unreadable)?;
        let metadata = file.metadata().await.map_err(unreadable)?;
        let url = self.url(&["v1", "uploads"], &[]);
        let mut request = self.http.put(url.clone());
        // A pipe does not know how long it is. For a file the server can refuse before it has to read.
        if metadata.is_file() {
            request = request.header(CONTENT_LENGTH, metadata.len());
        }
        self.answer(&url, request.body(file)).await
    }

    pub async fn artifacts(&self, id: Id) -> Result<Answer<ArtifactsView>> {
        self.get(&["v1", "tasks", &id.to_string(), "artifacts"], &[]).await
    }

    /// Slashes in the path stay slashes in the address.
    pub async fn artifact(&self, id: Id, path: &str) -> Result<Download> {
        let id = id.to_string();
        let segments: Vec<&str> = ["v1", "tasks", &id, "artifacts"].into_iter().chain(path.split('/')).collect();
        let url = self.url(&segments, &[]);
        let response = self.respond(&url, self.http.get(url.clone())).await?;
        Ok(Download { response, url: self.base.to_string() })
    }

    /// The output of a task as plain text, as far as it is there.
    pub async fn logs(&self, id: Id, query: &[(&str, String)]) -> Result<String> {
        let url = self.url(&["v1", "tasks", &id.to_string(), "logs"], query);
        let request = self.http.get(url.clone()).header(ACCEPT, "text/plain").timeout(ANSWER_TIMEOUT);
        let response = self.respond(&url, request).await?;
        response.text().await.map_err(|error| self.unreachable(&error))
    }

    pub async fn log_stream(&self, id: Id, query: &[(&str, String)], after: Option<&str>) -> Result<EventStream> {
        self.stream(self.url(&["v1", "tasks", &id.to_string(), "logs"], query), after).await
    }

    pub async fn event_stream(&self, query: &[(&str, String)], after: Option<&str>) -> Result<EventStream> {
        self.stream(self.url(&["v1", "events"], query), after).await
    }

    async fn stream(&self, url: Url, after: Option<&str>) -> Result<EventStream> {
        let mut request = self.http.get(url.clone()).header(ACCEPT, "text/event-stream");
        if let Some(after) = after {
            request = request.header("Last-Event-ID", after);
        }
        let response = self.respond(&url, request).await?;
        Ok(EventStream { response, parser: SseParser::default(), url: self.base.to_string() })
    }

    async fn get<T>(&self, path: &[&str], query: &[(&str, String)]) -> Result<Answer<T>> {
        self.send::<T, ()>(Method::GET, path, query, None).await
    }

    async fn send<T, B: Serialize>(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, String)],
        body: Option<&B>,
    ) -> Result<Answer<T>> {
        let url = self.url(path, query);
        let mut request = self.http.request(method, url.clone()).timeout(ANSWER_TIMEOUT);
        if let Some(body) = body {
            request = request.json(body);
        }
        self.answer(&url, request).await
    }

    async fn answer<T>(&self, url: &Url, request: RequestBuilder) -> Result<Answer<T>> {
        let response = self.respond(url, request).await?;
        let text = response.text().await.map_err(|error| self.unreachable(&error))?;
        Ok(Answer { text, url: url.to_string(), kind: PhantomData })
    }

    async fn respond(&self, url: &Url, request: RequestBuilder) -> Result<Response> {
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let text = response.text().await.map_err(|error| self.unreachable(&error))?;
        match serde_json::from_str::<Problem>(&text) {
            Ok(problem) => Err(Error::Refused(Box::new(problem))),
            Err(_) => Err(Error::Unreadable { url: url.to_string(), detail: format!("status {status}") }),
        }
    }

    fn url(&self, path: &[&str], query: &[(&str, String)]) -> Url {
        let mut url = self.base.clone();
        url.path_segments_mut().expect("an http address has a path").pop_if_empty().extend(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    fn unreachable(&self, error: &reqwest::Error) -> Error {
        Error::Unreachable { url: self.base.to_string(), detail: innermost(error) }
    }
}

/// A file as it arrives.
pub struct Download {
    response: Response,
    url: String,
}

impl Download {
    /// `None` at its end.
    pub async fn next(&mut self) -> Result<Option<impl AsRef<[u8]> + use<>>> {
        let chunk = self.response.chunk().await;
        chunk.map_err(|error| Error::Unreachable { url: self.url.clone(), detail: innermost(&error) })
    }
}

/// Server-sent events as they arrive.
pub struct EventStream {
    response: Response,
    parser: SseParser,
    url: String,
}

impl EventStream {
    /// `None` when the server has ended the stream.
    pub async fn next(&mut self) -> Result<Option<SseEvent>> {
        loop {
            if let Some(event) = self.parser.pop() {
                return Ok(Some(event));
            }
            let chunk = self.response.chunk().await;
            let chunk =
                chunk.map_err(|error| Error::Unreachable { url: self.url.clone(), detail: innermost(&error) })?;
            let Some(chunk) = chunk else { return Ok(None) };
            self.parser
                .push(&chunk)
                .map_err(|error| Error::Unreadable { url: self.url.clone(), detail: error.to_string() })?;
        }
    }
}

fn bearer(key: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {key}"))
        .map_err(|_| Error::usage("the API key has characters that no key has"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// The cause at the bottom: "connection refused" says more than "error sending request".
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
