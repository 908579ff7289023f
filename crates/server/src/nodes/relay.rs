//! A request that only the holder can answer, through every change of holder.
//!
//! ```text
//!            ┌────────── holder known: ask it (here, or there) ──────────┐
//! request ─► wait                                                       ├─► settled: its answer
//!            └◄── no holder, unreachable, unsettled, another holder now ─┘
//!                         └─ too long: 503 with Retry-After
//! ```
//!
//! An answer is *unsettled* when whoever gave it does not know whether the command was stored: its commit failed, or it
//! is not the holder any more. The command is then asked *again*, under the same ids, and the rows say what became of the
//! first try. A client sees a pause, not an error.

use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderName, Method};
use axum::response::{IntoResponse, Response};
use futures_util::TryStreamExt;
use runyard_core::event::Asked;
use tokio::sync::watch;

use super::forwarded::Forwarded;
use super::member::{Member, Role};
use super::peer::{Peers, passed_back};
use crate::problem::Error;

/// On an answer that does not say what became of the command.
pub const UNSETTLED: HeaderName = HeaderName::from_static("runyard-unsettled");

/// Between two tries while nothing is heard of a new holder: one that has just begun may still be loading.
pub(super) const TRY_EVERY: Duration = Duration::from_millis(100);

/// Where a request is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Desk {
    /// At every node: what it needs is in the database.
    Here,
    Holder,
    /// At the holder, and only once: its body is as long as it likes, so nobody keeps it for another try.
    HolderStreamed,
    /// At the holder, and from where it breaks off at the next one: the output of a task.
    HolderOutput,
}

impl Desk {
    pub fn of(method: &Method, path: &str) -> Desk {
        let Some(rest) = path.strip_prefix("/v1/") else { return Desk::Here };
        let parts: Vec<&str> = rest.split('/').collect();
        match (method, parts.as_slice()) {
            (&Method::PUT, ["workers", _, "tasks", _, "artifacts", ..]) => Desk::HolderStreamed,
            (&Method::GET, ["tasks", _, "logs"]) => Desk::HolderOutput,
            // It needs nothing but the database.
            (&Method::PUT, ["uploads"]) => Desk::Here,
            (&Method::GET | &Method::HEAD, parts) if is_read(parts) => Desk::Here,
            (&Method::POST, ["schedules", "preview"]) => Desk::Here,
            // A client that speaks as nodes do is not spoken for.
            (_, ["nodes", ..]) => Desk::Here,
            _ => Desk::Holder,
        }
    }
}

/// What is stored, and what is this node's own. Statistics are the holder's: how long tasks wait and run is counted with the
/// commits.
fn is_read(parts: &[&str]) -> bool {
    matches!(
        parts,
        ["tasks"]
            | ["tasks", _]
            | ["tasks", _, "wait" | "events" | "messages"]
            | ["batches", _]
            | ["sessions"]
            | ["sessions", _]
            | ["schedules"]
            | ["schedules", _]
            | ["schedules", _, "runs"]
            | ["events"]
            | ["config", ..]
            | ["keys"]
            | ["audit"]
            | ["nodes", ..]
            | ["webhooks", "deliveries", ..]
    )
}

pub struct Relay<'a> {
    pub member: &'a Member,
    pub peers: &'a Peers,
    /// How long a change of holder may take.
    pub patience: Duration,
}

/// A request with its body in memory, so that it can be asked again.
#[derive(Clone)]
pub struct Whole {
    pub parts: Parts,
    pub body: Bytes,
}

impl Whole {
    fn request(&self, forwarded: Forwarded) -> Request {
        let mut request = Request::from_parts(self.parts.clone(), Body::from(self.body.clone()));
        request.extensions_mut().insert(forwarded);
        request
    }
}

/// Asks the holder, whoever that is, until it has answered. `here` answers as this node.
pub async fn relay<F: Future<Output = Response>>(
    relay: &Relay<'_>,
    whole: Whole,
    forwarded: Forwarded,
    here: impl Fn(Request) -> F,
) -> Response {
    match settled(relay, whole, forwarded, here).await {
        Some((_, answer)) => answer,
        None => Error::NoHolder.into_response(),
    }
}

/// The answer, and as what this node got it. None when there was no holder for too long.
pub(super) async fn settled<F: Future<Output = Response>>(
    relay: &Relay<'_>,
    whole: Whole,
    mut forwarded: Forwarded,
    here: impl Fn(Request) -> F,
) -> Option<(Role, Response)> {
    let began = Instant::now();
    let mut roles = relay.member.roles();
    loop {
        let role = roles.borrow_and_update().clone();
        let is_asked = role != Role::Unknown;
        let tried = match &role {
            Role::Unknown => None,
            // Whoever was asked may be stopped, or cut off from the database: it would not answer for long.
            Role::Holder => tokio::select! {
                answer = here(whole.request(forwarded)) => Some(answer),
                _ = roles.changed() => None,
            },
            Role::Follower { url, .. } => tokio::select! {
                answer = relay.peers.send(url, &whole.parts, whole.body.clone(), &forwarded) => {
                    answer.ok().map(|answer| passed_back(answer, is_not(role.clone(), roles.clone())))
                }
                _ = roles.changed() => None,
            },
        };
        match tried {
            Some(answer) if !answer.headers().contains_key(UNSETTLED) => return Some((role, answer)),
            _ if is_asked => forwarded.asked = Asked::Again,
            _ => {}
        }
        let left = relay.patience.saturating_sub(began.elapsed());
        if left.is_zero() {
            return None;
        }
        let _ = tokio::time::timeout(TRY_EVERY.min(left), roles.changed()).await;
    }
}

/// As [`relay`], for a body that is passed on as it comes, and so cannot be sent twice.
pub async fn relay_streamed<F: Future<Output = Response>>(
    relay: &Relay<'_>,
    request: Request,
    forwarded: Forwarded,
    here: impl Fn(Request) -> F,
) -> Response {
    let began = Instant::now();
    let mut roles = relay.member.roles();
    loop {
        let role = roles.borrow_and_update().clone();
        match &role {
            Role::Holder => return here(request).await,
            Role::Follower { url, .. } => {
                let (parts, body) = request.into_parts();
                let body = reqwest::Body::wrap_stream(body.into_data_stream().map_err(std::io::Error::other));
                return match relay.peers.send(url, &parts, body, &forwarded).await {
                    Ok(answer) => passed_back(answer, is_not(role.clone(), roles)),
                    Err(_) => Error::NoHolder.into_response(),
                };
            }
            Role::Unknown => {}
        }
        let left = relay.patience.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Error::NoHolder.into_response();
        }
        let _ = tokio::time::timeout(left, roles.changed()).await;
    }
}

/// Returns when this node is something else than it was.
pub(super) async fn is_not(role: Role, mut roles: watch::Receiver<Role>) {
    // Without a sender the node is gone, and its connections with it.
    let _ = roles.wait_for(|now| *now != role).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_at_every_node_and_all_else_is_the_holders() {
        let table = [
            ("GET", "/healthz", Desk::Here),
            ("GET", "/metrics", Desk::Here),
            ("GET", "/v1/tasks", Desk::Here),
            ("GET", "/v1/tasks/x", Desk::Here),
            ("GET", "/v1/tasks/x/wait", Desk::Here),
            ("GET", "/v1/tasks/x/explain", Desk::Holder),
            ("GET", "/v1/tasks/x/logs", Desk::HolderOutput),
            ("HEAD", "/v1/tasks/x/logs", Desk::Holder),
            ("GET", "/v1/tasks/x/artifacts/a", Desk::Holder),
            ("POST", "/v1/tasks", Desk::Holder),
            ("PATCH", "/v1/tasks/x", Desk::Holder),
            ("DELETE", "/v1/tasks/x", Desk::Holder),
            ("GET", "/v1/events", Desk::Here),
            ("GET", "/v1/stats", Desk::Holder),
            ("GET", "/v1/nodes", Desk::Here),
            ("GET", "/v1/audit", Desk::Here),
            ("POST", "/v1/nodes/used", Desk::Here),
            ("GET", "/v1/workers", Desk::Holder),
            ("POST", "/v1/workers/x/sync", Desk::Holder),
            ("PUT", "/v1/workers/x/tasks/y/artifacts/a/b", Desk::HolderStreamed),
            ("PUT", "/v1/uploads", Desk::Here),
            ("GET", "/v1/webhooks/deliveries/7", Desk::Here),
            ("GET", "/v1/webhooks/secret", Desk::Holder),
            ("POST", "/v1/schedules/preview", Desk::Here),
            ("GET", "/v1/sessions/a%2Fb", Desk::Here),
            ("GET", "/v1/unknown", Desk::Holder),
        ];
        for (method, path, desk) in table {
            let method = method.parse().expect("a method");
            assert_eq!(Desk::of(&method, path), desk, "{method} {path}");
        }
    }
}
