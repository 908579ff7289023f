//! The calls of the worker protocol, and what their answers mean to a worker.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use reqwest::{Body, Certificate, Method, RequestBuilder, Response, StatusCode, Url};
use runyard_core::event::Held;
use runyard_wire::{Id, Problem, SyncAnswer, SyncRequest, WorkerRegistered, WorkerRequest};
use serde::de::DeserializeOwned;

use super::identity::Identity;

const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Beyond the time that a call may wait at the server: for the way there and back.
const ANSWER_MARGIN: Duration = Duration::from_secs(10);
/// Longer than the longest wait of a sync.
const SILENCE_MAX: Duration = Duration::from_secs(60);
const AGENT: &str = concat!("runyard-worker/", env!("CARGO_PKG_VERSION"));

pub(super) struct Client {
    http: reqwest::Client,
    /// Of a server, or of several that are the nodes of one: never empty.
    bases: Vec<Url>,
    /// Which of them is asked.
    at: AtomicUsize,
    own: RwLock<Option<Arc<Identity>>>,
}

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// It may come to something a little later: no answer, a server that starts, one that is busy.
    #[error("{0}")]
    Away(String),
    /// The server does not know this worker, or not any more.
    #[error("{0}")]
    Unknown(String),
    #[error("another process has registered as this worker")]
    Fenced,
    #[error("the attempt is not this worker's any more")]
    StaleLease,
    #[error("{0}")]
    Refused(String),
}

impl Client {
    pub(super) fn new(servers: &[Url], certificates: Vec<Certificate>) -> Result<Client, reqwest::Error> {
        // Another part of the process may have installed it already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = reqwest::Client::builder()
            .user_agent(AGENT)
            .connect_timeout(CONNECT_MAX)
            // Of any two bytes: a file may take long, silence may not.
            .read_timeout(SILENCE_MAX)
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            .tls_certs_merge(certificates);
        // A proxy of the environment cannot reach this machine's own loopback.
        let builder = if servers.iter().all(is_loopback) { builder.no_proxy() } else { builder };
        let base = |server: &Url| {
            let mut base = server.clone();
            if !base.path().ends_with('/') {
                base.set_path(&format!("{}/", base.path()));
            }
            base
        };
        let bases = servers.iter().map(base).collect();
        Ok(Client { http: builder.build()?, bases, at: AtomicUsize::new(0), own: RwLock::new(None) })
    }

    /// Over connections that somebody else makes, and that prove by themselves who calls.
    pub(super) fn over(http: reqwest::Client, server: &Url) -> Client {
        Client { http, bases: vec![server.clone()], at: AtomicUsize::new(0), own: RwLock::new(None) }
    }

    /// As the worker that the connections are of.
    pub(super) async fn join_as_known(&self, about: &WorkerRequest) -> Result<WorkerRegistered, CallError> {
        self.read(self.http.post(self.url(&[])).json(about).timeout(ANSWER_MARGIN)).await
    }

    /// From now on calls are made as this worker.
    pub(super) fn be(&self, identity: Option<Identity>) {
        *self.own.write().expect("no thread panics while it holds this") = identity.map(Arc::new);
    }

    pub(super) async fn join(&self, token: &str, about: &WorkerRequest) -> Result<WorkerRegistered, CallError> {
        let request = self.http.post(self.url(&[])).bearer_auth(token).json(about).timeout(ANSWER_MARGIN);
        self.read(request).await
    }

    pub(super) async fn register(&self, about: &WorkerRequest) -> Result<WorkerRegistered, CallError> {
        let request = self.own_call(Method::POST, &["register"], &[])?.json(about).timeout(ANSWER_MARGIN);
        self.read(request).await
    }

    pub(super) async fn sync(&self, letter: &SyncRequest) -> Result<SyncAnswer, CallError> {
        let wait = Duration::from_millis(letter.wait_ms.unwrap_or(0));
        self.read(self.own_call(Method::POST, &["sync"], &[])?.json(letter).timeout(wait + ANSWER_MARGIN)).await
    }

    /// The answer's body is the upload.
    pub(super) async fn upload(&self, lease: Held, upload: u128) -> Result<Response, CallError> {
        let [attempt, token] = fence(lease);
        let query = [("task", Id(lease.task.0).to_string()), attempt, token];
        self.send(self.own_call(Method::GET, &["uploads", &Id(upload).to_string()], &query)?).await
    }

    pub(super) async fn artifact(&self, lease: Held, path: &str, bytes: u64, body: Body) -> Result<(), CallError> {
        let task = Id(lease.task.0).to_string();
        let segments: Vec<&str> = ["tasks", &task, "artifacts"].into_iter().chain(path.split('/')).collect();
        let request = self.own_call(Method::PUT, &segments, &fence(lease))?;
        self.send(request.header(reqwest::header::CONTENT_LENGTH, bytes).body(body)).await.map(drop)
    }

    /// A call for this worker alone.
    fn own_call(&self, method: Method, segments: &[&str], query: &[Word]) -> Result<RequestBuilder, CallError> {
        let own = self.own.read().expect("no thread panics while it holds this").clone();
        let own = own.ok_or_else(|| CallError::Unknown("this worker has not joined".to_owned()))?;
        let id = own.id.to_string();
        let segments: Vec<&str> = [id.as_str()].into_iter().chain(segments.iter().copied()).collect();
        let mut url = self.url(&segments);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(self.http.request(method, url).bearer_auth(&own.key))
    }

    async fn read<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, CallError> {
        let bytes = self.send(request).await?.bytes().await.map_err(|error| away(&error))?;
        serde_json::from_slice(&bytes)
            .map_err(|error| CallError::Away(format!("the answer is not understood: {error}")))
    }

    /// A server that is away leaves its turn to the next one.
    async fn send(&self, request: RequestBuilder) -> Result<Response, CallError> {
        let answer = answer_to(request).await;
        if let Err(CallError::Away(_)) = answer {
            self.at.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    fn url(&self, segments: &[&str]) -> Url {
        let mut url = self.bases[self.at.load(Ordering::Relaxed) % self.bases.len()].clone();
        let mut path = url.path_segments_mut().expect("an http address has a path");
        path.pop_if_empty().extend(["v1", "workers"]).extend(segments);
        drop(path);
        url
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Of a query.
type Word = (&'static str, String);

fn fence(lease: Held) -> [Word; 2] {
    [("attempt", lease.attempt.to_string()), ("token", lease.token.0.to_string())]
}

async fn answer_to(request: RequestBuilder) -> Result<Response, CallError> {
    let response = request.send().await.map_err(|error| away(&error))?;
    if response.status().is_success() {
        return Ok(response);
    }
    let status = response.status();
    let problem = response.bytes().await.ok().and_then(|bytes| serde_json::from_slice::<Problem>(&bytes).ok());
    Err(meaning(status, problem.unwrap_or_default()))
}

fn meaning(status: StatusCode, problem: Problem) -> CallError {
    let detail = match problem.detail.as_str() {
        "" => status.to_string(),
        detail => format!("{detail} ({})", status.as_u16()),
    };
    match (status.as_u16(), problem.code.as_str()) {
        (401, _) | (404, "worker_not_found") => CallError::Unknown(detail),
        (409, "fenced") => CallError::Fenced,
        (409, "stale_lease") => CallError::StaleLease,
        (408 | 425 | 429 | 500.., _) => CallError::Away(detail),
        _ => CallError::Refused(detail),
    }
}

fn away(error: &reqwest::Error) -> CallError {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    CallError::Away(causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning_of(status: u16, code: &str) -> CallError {
        let problem = Problem { status, code: code.into(), detail: "so it is".into(), ..Problem::default() };
        meaning(StatusCode::from_u16(status).expect("a status"), problem)
    }

    #[test]
    fn only_what_may_pass_is_waited_for() {
        for status in [408, 429, 500, 502, 503, 504] {
            assert!(matches!(meaning_of(status, "busy"), CallError::Away(_)), "{status}");
        }
        assert!(matches!(meaning_of(401, "unauthorized"), CallError::Unknown(_)));
        assert!(matches!(meaning_of(404, "worker_not_found"), CallError::Unknown(_)));
        assert!(matches!(meaning_of(404, "not_found"), CallError::Refused(_)));
        assert!(matches!(meaning_of(409, "fenced"), CallError::Fenced));
        assert!(matches!(meaning_of(409, "stale_lease"), CallError::StaleLease));
        assert_eq!(meaning_of(403, "forbidden").to_string(), "so it is (403)");
    }

    #[tokio::test]
    async fn a_server_that_is_away_leaves_its_turn_to_the_next() {
        // Nobody listens at either: a port that was free a moment ago.
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
        let servers = ["one", "two"].map(|path| format!("http://{free}/{path}").parse().expect("a URL"));
        let client = Client::new(&servers, Vec::new()).expect("a client");
        let asked = |client: &Client| client.url(&[]).path().to_owned();
        assert_eq!(asked(&client), "/one/v1/workers");
        let request = client.http.get(client.url(&[]));
        assert!(matches!(client.send(request).await, Err(CallError::Away(_))));
        assert_eq!(asked(&client), "/two/v1/workers");
        client.at.fetch_add(1, Ordering::Relaxed);
        assert_eq!(asked(&client), "/one/v1/workers", "after the last comes the first");
    }

    #[test]
    fn a_path_of_an_artifact_cannot_leave_its_place() {
        let client = Client::new(&["http://h/base".parse().expect("a URL")], Vec::new()).expect("a client");
        let url = client.url(&["w", "artifacts", "a b", "..", "c?d#e"]);
        assert_eq!(url.as_str(), "http://h/base/v1/workers/w/artifacts/a%20b/c%3Fd%23e");
    }
}
