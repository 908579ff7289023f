//! What a node answers before it has begun: how it is, and to everything else that it cannot be done yet. Nobody is known
//! here, so nothing is told but that; Host and Origin count as they do later.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use runyard_store::store;
use runyard_wire::HealthView;
use tokio::sync::watch;

use super::guard::{REQUEST_ID, check_host};
use super::health;
use crate::config::Live;
use crate::edge;
use crate::handle::Unavailable;
use crate::lobby::Waits;
use crate::nodes::{NODE, UNSETTLED};
use crate::problem::{Error, problem, problem_response};

pub struct Reception {
    pub waits: watch::Receiver<Waits>,
    pub config: Arc<Live>,
    pub listen: SocketAddr,
}

pub fn router(reception: Reception) -> Router {
    let reception = Arc::new(reception);
    Router::new()
        .route("/healthz", get(health::healthz))
        .route("/version", get(health::version))
        .route("/readyz", get(readyz))
        .fallback(not_yet)
        .method_not_allowed_fallback(not_yet)
        .layer(axum::middleware::from_fn_with_state(reception.clone(), guard))
        .with_state(reception)
}

async fn guard(State(reception): State<Arc<Reception>>, request: Request, next: Next) -> Response {
    let request_id = edge::request_id(request.headers().get(&REQUEST_ID));
    let config = reception.config.current();
    let host = check_host(&request, reception.listen, &config.config.server.allowed_hosts);
    drop(config);
    let mut response = match host {
        // Whether it is one of ours is in the database. It is told to ask again, and no more.
        _ if request.headers().contains_key(NODE) => refusal(Waits::Start),
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    };
    let headers = response.headers_mut();
    // The next request may find the server.
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    headers.insert(REQUEST_ID, request_id);
    edge::secure(headers);
    response
}

async fn readyz(State(reception): State<Arc<Reception>>) -> (StatusCode, Json<HealthView>) {
    let word = match *reception.waits.borrow() {
        Waits::Start => "recovering",
        Waits::Database => "no database",
        Waits::Holder | Waits::Key => "no holder",
    };
    (StatusCode::SERVICE_UNAVAILABLE, Json(HealthView { status: word.into() }))
}

async fn not_yet(State(reception): State<Arc<Reception>>) -> Response {
    refusal(*reception.waits.borrow())
}

/// Another node that passes a command on here asks again.
fn refusal(waits: Waits) -> Response {
    let error = match waits {
        Waits::Start => Error::Unavailable(Unavailable::Recovering),
        Waits::Database => Error::Store(store::Error::Away { doing: "starting", source: "it is not there yet".into() }),
        Waits::Holder | Waits::Key => Error::NoHolder,
    };
    let mut response = problem_response(&problem(&error));
    response.headers_mut().insert(UNSETTLED, HeaderValue::from_static("true"));
    response
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use serde_json::{Map, Value};
    use tower::ServiceExt;

    use super::*;
    use crate::config::Sources;

    struct Lobby {
        waits: watch::Sender<Waits>,
        router: Router,
    }

    fn lobby() -> Lobby {
        let waits = watch::Sender::new(Waits::Start);
        let config = Arc::new(Live::load(Sources::default(), Map::new()).expect("a configuration"));
        let listen = "127.0.0.1:7340".parse().expect("an address");
        let router = router(Reception { waits: waits.subscribe(), config, listen });
        Lobby { waits, router }
    }

    impl Lobby {
        async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> (Response<()>, Value) {
            let mut request = Request::builder().method(method).uri(path);
            if !headers.iter().any(|(name, _)| *name == "host") {
                request = request.header("host", "127.0.0.1:7340");
            }
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let answer = self.router.clone().oneshot(request.body(Body::empty()).expect("a request")).await;
            let (parts, body) = answer.expect("infallible").into_parts();
            let bytes = axum::body::to_bytes(body, 4096).await.expect("a short body");
            (Response::from_parts(parts, ()), serde_json::from_slice(&bytes).expect("JSON"))
        }
    }

    type Response<T = axum::body::Body> = axum::http::Response<T>;

    #[tokio::test]
    async fn a_node_that_waits_is_alive_and_not_ready_and_says_why() {
        let lobby = lobby();
        for (waits, word, code) in [
            (Waits::Start, "recovering", "recovering"),
            (Waits::Database, "no database", "no_database"),
            (Waits::Holder, "no holder", "no_holder"),
        ] {
            lobby.waits.send_replace(waits);
            let (answer, health) = lobby.ask("GET", "/healthz", &[]).await;
            assert_eq!((answer.status().as_u16(), &health["status"]), (200, &"ok".into()));
            let (answer, health) = lobby.ask("GET", "/readyz", &[]).await;
            assert_eq!((answer.status().as_u16(), &health["status"]), (503, &word.into()));
            for (method, path) in [("POST", "/v1/tasks"), ("GET", "/metrics"), ("POST", "/readyz"), ("GET", "/")] {
                let (answer, problem) = lobby.ask(method, path, &[]).await;
                assert_eq!((answer.status().as_u16(), &problem["code"]), (503, &code.into()), "{method} {path}");
                assert_eq!(answer.headers()["retry-after"], "1");
                assert_eq!(answer.headers()["connection"], "close");
                assert_eq!(answer.headers()["cache-control"], "no-store");
                assert!(answer.headers().contains_key(UNSETTLED), "a node that passed it on asks again");
            }
        }
        assert_eq!(lobby.ask("GET", "/version", &[]).await.1["name"], "runyard");
    }

    #[tokio::test]
    async fn a_page_of_another_site_learns_nothing() {
        let lobby = lobby();
        lobby.waits.send_replace(Waits::Database);
        for (headers, code) in [
            (&[("host", "evil.example")][..], "forbidden_host"),
            (&[("origin", "http://evil.example")], "forbidden_origin"),
        ] {
            for path in ["/readyz", "/version", "/v1/tasks"] {
                let (answer, problem) = lobby.ask("GET", path, headers).await;
                assert_eq!((answer.status().as_u16(), &problem["code"]), (403, &code.into()), "{path}");
            }
        }
        // It may say that it is a node, which nobody can tell yet.
        let (answer, problem) = lobby.ask("GET", "/version", &[("host", "evil.example"), ("runyard-node", "00")]).await;
        assert_eq!((answer.status().as_u16(), &problem["code"]), (503, &"recovering".into()));
    }
}
