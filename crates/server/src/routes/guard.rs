//! In front of every route: Host, Origin, key, scope; behind it: one count for each request.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::extract::BodyRules;
use crate::access::{Caller, Need, Reach, hosts, needed};
use crate::app::App;
use crate::edge::{self, Peer};
use crate::problem::Error;
use crate::workers;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

pub async fn guard(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let request_id = edge::request_id(request.headers().get(&REQUEST_ID));
    request.extensions_mut().insert(body_rules(&app));
    let mut response = match admit(&app, &request) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    };
    app.metrics.observe_request(&method, response.status());
    response.headers_mut().insert(REQUEST_ID, request_id);
    edge::secure(response.headers_mut());
    response
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
    check_host(app, request)?;
    let config = app.config.current();
    let server = &config.config.server;
    check_url(request, server.limits.url_bytes)?;
    let path = request.uri().path();
    let address = request
        .extensions()
        .get()
        .map(|Peer(peer)| edge::client_address(*peer, request.headers(), &server.trusted_proxies));
    // Probes go on whatever else comes from where they come from.
    if let Some(address) = address.filter(|_| !matches!(path, "/healthz" | "/readyz")) {
        limited(app, app.rates.address(address, &server.rate_limit))?;
    }
    match needed(request.method(), path) {
        // Whoever needs no key has no rights either.
        Need::Open => Ok(Caller::default()),
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
        Need::Open => return Ok(()),
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

fn check_host(app: &App, request: &Request) -> Result<(), Error> {
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
    let config = app.config.current();
    let allowed = &config.config.server.allowed_hosts;
    if !hosts::host_is_allowed(host, app.listen, allowed) {
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
