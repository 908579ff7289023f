//! In front of every route: Host, Origin, key, scope; behind it: one count for each request.

use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use runyard_core::ids::WorkerId;
use runyard_wire::Id;
use tokio_util::sync::CancellationToken;

use super::extract::{BATCH_BODY_BYTES_MAX, BodyRules, body_bytes};
use super::logs;
use crate::access::{Caller, Need, Reach, Scope, hosts, needed};
use crate::app::App;
use crate::edge::{self, Peer};
use crate::handle::{Readiness, Unavailable};
use crate::nodes::{self, Desk, Forwarded, IDS, NODE, Once, OutputRelay, Relay, WORKER, Whole};
use crate::problem::Error;
use crate::workers;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

pub async fn guard(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let request_id = edge::request_id(request.headers().get(&REQUEST_ID));
    request.extensions_mut().insert(body_rules(&app));
    let mut response = match asks(&app, &request) {
        Ok(Asks::Client) => answer(&app, request, next).await,
        Ok(Asks::Node) => answer_node(&app, request, next).await,
        Err(error) => error.into_response(),
    };
    app.metrics.observe_request(&method, response.status());
    response.headers_mut().insert(REQUEST_ID, request_id);
    edge::secure(response.headers_mut());
    response
}

/// Who is at the other end of the connection.
enum Asks {
    Client,
    /// Another node of this database, for itself or for a client of its own.
    Node,
}

/// A web page cannot know what nodes prove themselves with, so their names are not looked at.
fn asks(app: &App, request: &Request) -> Result<Asks, Error> {
    match (&app.cluster, request.headers().get(NODE)) {
        (Some(cluster), Some(proof)) => match cluster.peers.knows(proof) {
            true => Ok(Asks::Node),
            false => Err(Error::UnknownKey),
        },
        _ => {
            let config = app.config.current();
            check_host(request, app.listen, &config.config.server.allowed_hosts).map(|()| Asks::Client)
        }
    }
}

/// A client's request: here where it can be answered here, else by the holder.
async fn answer(app: &Arc<App>, mut request: Request, next: Next) -> Response {
    let address = address(app, &request);
    let forwarded = Forwarded { address, ..Forwarded::fresh() };
    request.extensions_mut().insert(forwarded);
    let desk = Desk::of(request.method(), request.uri().path());
    let Some(cluster) = app.cluster.as_ref().filter(|_| desk != Desk::Here) else {
        return serve(app, request, next).await;
    };
    let patience = Duration::from_millis(app.config.current().config.nodes.wait_ms);
    let relay = Relay { member: &cluster.member, peers: &cluster.peers, patience };
    let here = serving(app.clone(), next, patience);
    if desk == Desk::HolderStreamed {
        return nodes::relay_streamed(&relay, request, forwarded, here).await;
    }
    match whole(request).await {
        Ok(whole) if desk == Desk::HolderOutput => {
            let (cluster, stop) = (cluster.clone(), app.stop.clone());
            let until = if logs::is_followed(&whole.parts.uri) { stop } else { CancellationToken::new() };
            output(OutputRelay { cluster, patience, until, whole, forwarded, here }).await
        }
        Ok(whole) => nodes::relay(&relay, whole, forwarded, here).await,
        Err(error) => error.into_response(),
    }
}

/// The output of a task, in the form that was asked for.
async fn output<H>(relay: OutputRelay<H>) -> Response
where
    H: Fn(Request) -> BoxFuture<'static, Response> + Send + Sync + 'static,
{
    let headers = relay.whole.parts.headers.clone();
    match nodes::relay_output(relay).await {
        Ok(parts) => logs::as_asked(&headers, parts),
        Err(answer) => answer,
    }
}

/// As [`serve_as_holder`], for as long as an answer takes.
fn serving(app: Arc<App>, next: Next, patience: Duration) -> impl Fn(Request) -> BoxFuture<'static, Response> {
    move |request| {
        let (app, next) = (app.clone(), next.clone());
        async move { serve_as_holder(&app, request, next, patience).await }.boxed()
    }
}

/// Another node's request. It is not sent on again: who sent it knows better whom to ask next.
async fn answer_node(app: &Arc<App>, mut request: Request, next: Next) -> Response {
    let is_for_any = request.uri().path() == nodes::SELF;
    if !is_for_any && *app.handle.readiness().borrow() == Readiness::Following {
        return Error::Unavailable(Unavailable::NotHolder).into_response();
    }
    let forwarded = Forwarded::read(request.headers());
    request.extensions_mut().insert(forwarded);
    serve(app, request, next).await
}

/// The lease is this node's before its scheduler has begun, and only then it knows what others changed while they held it:
/// a worker that joined elsewhere would be told that there is no such worker, and stop all it runs.
async fn serve_as_holder(app: &Arc<App>, request: Request, next: Next, patience: Duration) -> Response {
    let mut readiness = app.handle.readiness();
    let begun = readiness.wait_for(|readiness| *readiness != Readiness::Following);
    match tokio::time::timeout(patience, begun).await {
        Ok(Ok(_)) => {}
        _ => return Error::Unavailable(Unavailable::NotHolder).into_response(),
    }
    serve(app, request, next).await
}

async fn serve(app: &Arc<App>, mut request: Request, next: Next) -> Response {
    let admitted = match Once::of(app, request.extensions().get::<Forwarded>().copied()).await {
        Ok(once) => {
            let caller = admit(app, &request).or_else(|error| admitted_before(&once, request.method(), error));
            request.extensions_mut().insert(once);
            caller
        }
        Err(error) => Err(error.into()),
    };
    match admitted {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}

/// Whoever has revoked the very key it asked with is told so, also at the second try. That it was done says that the first
/// was admitted.
fn admitted_before(once: &Once, method: &Method, error: Error) -> Result<Caller, Error> {
    match error {
        Error::UnknownKey if once.first.is_some() && method == Method::DELETE => Ok(Caller::default()),
        error => Err(error),
    }
}

/// The whole of a request, so that it can be asked twice. Its bytes count until it is handed on.
async fn whole(request: Request) -> Result<Whole, Error> {
    let (parts, body) = request.into_parts();
    let request = Request::from_parts(parts.clone(), body);
    let (body, _pass) = body_bytes(request, BATCH_BODY_BYTES_MAX).await?;
    Ok(Whole { parts, body })
}

/// Whoever the client is, as far as that can be known.
fn address(app: &App, request: &Request) -> Option<IpAddr> {
    let config = app.config.current();
    let Peer(peer) = request.extensions().get()?;
    Some(edge::client_address(*peer, request.headers(), &config.config.server.trusted_proxies))
}

fn body_rules(app: &App) -> BodyRules {
    let config = app.config.current();
    let limits = &config.config.server.limits;
    BodyRules {
        time: Duration::from_millis(limits.body_ms),
        bytes_held_max: limits.body_bytes,
        bodies: app.bodies.clone(),
    }
}

fn admit(app: &App, request: &Request) -> Result<Caller, Error> {
    let config = app.config.current();
    let server = &config.config.server;
    check_url(request, server.limits.url_bytes)?;
    let path = request.uri().path();
    let address = request.extensions().get::<Forwarded>().and_then(|forwarded| forwarded.address);
    // Probes go on whatever else comes from where they come from.
    if let Some(address) = address.filter(|_| !matches!(path, "/healthz" | "/readyz")) {
        limited(app, app.rates.address(address, &server.rate_limit))?;
    }
    match needed(request.method(), path) {
        // Whoever needs no key has no rights either.
        Need::Open => Ok(Caller::default()),
        Need::Node if !speaks_for_itself(app, request) => Err(Error::NoRoute(cut(path))),
        Need::Node => Ok(Caller::default()),
        Need::Scope(Scope::Worker, _) if introduces_its_worker(app, request) => {
            Ok(Caller { joins_as: worker_of(request), ..Caller::default() })
        }
        need => {
            let mut caller = caller(app, presented(request), need)?;
            caller.actor.address = address;
            if let Some(key) = &caller.actor.key {
                limited(app, app.rates.key(&key.id, &server.rate_limit))?;
            }
            may(&caller, need)?;
            Ok(caller)
        }
    }
}

fn is_node(app: &App, request: &Request) -> bool {
    let proof = request.headers().get(NODE);
    app.cluster.as_ref().zip(proof).is_some_and(|(cluster, proof)| cluster.peers.knows(proof))
}

/// What a node passes on for a client has the ids of that request.
fn speaks_for_itself(app: &App, request: &Request) -> bool {
    is_node(app, request) && !request.headers().contains_key(IDS)
}

/// For itself: what a node passes on for a client names no worker, whatever the client said, and needs the client's key.
fn introduces_its_worker(app: &App, request: &Request) -> bool {
    is_node(app, request) && presented(request).is_none() && worker_of(request).is_some()
}

/// The worker that a node introduces: its own.
fn worker_of(request: &Request) -> Option<WorkerId> {
    let text = request.headers().get(WORKER)?.to_str().ok()?;
    text.parse::<Id>().ok().map(|Id(id)| WorkerId(id))
}

fn caller(app: &App, presented: Option<&str>, need: Need) -> Result<Caller, Error> {
    match presented.filter(|text| app.keys.are_asked_for() && workers::is_key(text)) {
        None => app.keys.caller(presented),
        Some(text) => app.roster.caller(text).ok_or(match need {
            // Its key was forgotten with it: it must learn that it is to join anew.
            Need::Worker(worker, _) if !app.roster.knows(worker) => Error::WorkerNotFound(worker),
            _ => Error::UnknownKey,
        }),
    }
}

fn may(caller: &Caller, need: Need) -> Result<(), Error> {
    let (scope, reach) = match need {
        Need::Open | Need::Node => return Ok(()),
        Need::Scope(scope, reach) => (scope, reach),
        Need::Worker(worker, _) if caller.worker == Some(worker) => return Ok(()),
        Need::Worker(_, scope) => (scope, Reach::All),
    };
    if caller.worker.is_some() {
        return Err(Error::ForeignWorker);
    }
    if !caller.scopes.allow(scope) {
        return Err(Error::MissingScope(scope));
    }
    if reach == Reach::All && caller.agents.is_bound() {
        return Err(Error::ForeignAgent("*".to_owned()));
    }
    Ok(())
}

fn limited(app: &App, asked: Result<(), Error>) -> Result<(), Error> {
    asked.inspect_err(|_| app.metrics.request_limited())
}

fn check_url(request: &Request, limit: u32) -> Result<(), Error> {
    let length = request.uri().path_and_query().map_or(0, |url| url.as_str().len());
    if length <= limit as usize { Ok(()) } else { Err(Error::UrlTooLong(limit)) }
}

pub(super) fn check_host(request: &Request, listen: SocketAddr, allowed: &[String]) -> Result<(), Error> {
    let headers = request.headers();
    let target = request.uri().authority().map(|authority| authority.as_str());
    let host = only(headers, header::HOST).map_err(Error::ForbiddenHost)?;
    // A target that names a host goes before the header, for whoever stands in between; two names are none.
    let host = match (host, target) {
        (Some(host), Some(target)) if !host.eq_ignore_ascii_case(target) => {
            return Err(Error::ForbiddenHost(cut(target)));
        }
        (host, target) => host.or(target).unwrap_or(""),
    };
    if !hosts::host_is_allowed(host, listen, allowed) {
        return Err(Error::ForbiddenHost(cut(host)));
    }
    let Some(origin) = only(headers, header::ORIGIN).map_err(Error::ForbiddenOrigin)? else { return Ok(()) };
    if !hosts::origin_is_allowed(origin, host, allowed) {
        return Err(Error::ForbiddenOrigin(cut(origin)));
    }
    Ok(())
}

/// The value of a header that may be there once. Of several, nobody knows which one the sender was judged by.
fn only(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, String> {
    let mut values = headers.get_all(name).iter().map(|value| value.to_str().unwrap_or(""));
    match (values.next(), values.next()) {
        (first, None) => Ok(first),
        (Some(first), Some(second)) => Err(cut(&format!("{first}, {second}"))),
        (None, Some(_)) => Ok(None),
    }
}

fn cut(text: &str) -> String {
    text.chars().take(256).collect()
}

fn presented(request: &Request) -> Option<&str> {
    let headers = request.headers();
    if let Some(bearer) = headers.get(header::AUTHORIZATION) {
        let (scheme, key) = bearer.to_str().ok()?.split_once(' ')?;
        return scheme.eq_ignore_ascii_case("bearer").then(|| key.trim());
    }
    headers.get(API_KEY)?.to_str().ok()
}

pub async fn no_route(uri: Uri) -> Error {
    Error::NoRoute(uri.path().chars().take(256).collect())
}

pub async fn method_not_allowed(method: Method, uri: Uri) -> Error {
    Error::MethodNotAllowed(format!("{method} {}", uri.path().chars().take(256).collect::<String>()))
}

pub fn panicked(panic: Box<dyn Any + Send + 'static>) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    tracing::error!(target: "runyard::http", panic = text.unwrap_or("unknown"), "a request panicked");
    Error::Internal("this request hit a bug in the server; its log says more".into()).into_response()
}

#[cfg(test)]
mod tests {
    use runyard_wire::PROBLEM_CONTENT_TYPE;

    use super::*;

    #[test]
    fn a_panic_is_a_problem_that_does_not_tell_its_text() {
        let response = panicked(Box::new("secret".to_owned()));
        assert_eq!(response.status(), 500);
        assert_eq!(response.headers()[header::CONTENT_TYPE], PROBLEM_CONTENT_TYPE);
    }
}
