//! How the server is: for probes, for Prometheus, for people.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use runyard_wire::{HealthView, VersionView};

use crate::app::App;
use crate::handle::Readiness;
use crate::metrics::Seat;
use crate::nodes::{Cluster, Role};
use crate::problem::Error;

/// Is the process alive?
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, description = "It is", body = HealthView)))]
pub async fn healthz() -> Json<HealthView> {
    Json(HealthView { status: "ok".into() })
}

/// Does it take work?
#[utoipa::path(get, path = "/readyz", tag = "health",
    responses((status = 200, description = "It does", body = HealthView),
              (status = 503, description = "It recovers, drains or stops", body = HealthView)))]
pub async fn readyz(State(app): State<Arc<App>>) -> (StatusCode, Json<HealthView>) {
    let readiness = *app.handle.readiness().borrow();
    let (status, word) = match readiness {
        // What is stored cannot be read or written: whatever the scheduler believes, it serves nobody.
        Readiness::Ready | Readiness::Following if !reaches_its_database(&app) => {
            (StatusCode::SERVICE_UNAVAILABLE, "no database")
        }
        // Nobody could ask for anything: its first key is about to be made.
        Readiness::Ready if !has_admin(&app) => (StatusCode::SERVICE_UNAVAILABLE, "recovering"),
        Readiness::Ready => (StatusCode::OK, "ready"),
        Readiness::Following if has_holder(&app) => (StatusCode::OK, "following"),
        Readiness::Following => (StatusCode::SERVICE_UNAVAILABLE, "no holder"),
        Readiness::Recovering => (StatusCode::SERVICE_UNAVAILABLE, "recovering"),
        Readiness::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        Readiness::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
    };
    (status, Json(HealthView { status: word.into() }))
}

fn reaches_its_database(app: &App) -> bool {
    app.cluster.as_ref().is_none_or(|cluster| cluster.member.is_reached())
}

fn has_admin(app: &App) -> bool {
    !app.keys.are_asked_for() || app.keys.ring().has_admin()
}

/// One that answers: its lease alone does nothing for a client of this node.
fn has_holder(app: &App) -> bool {
    let serves = |cluster: &Arc<Cluster>| cluster.holder_serves.load(Ordering::Relaxed);
    app.cluster
        .as_ref()
        .is_some_and(|cluster| matches!(cluster.member.role(), Role::Follower { .. }) && serves(cluster))
}

/// What is running here?
#[utoipa::path(get, path = "/version", tag = "health", responses((status = 200, description = "Name and release", body = VersionView)))]
pub async fn version() -> Json<VersionView> {
    Json(VersionView { name: "runyard".into(), version: env!("CARGO_PKG_VERSION").into() })
}

/// Everything that is counted, for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "health",
    responses((status = 200, description = "OpenMetrics text", content_type = "application/openmetrics-text", body = String)))]
pub async fn metrics(State(app): State<Arc<App>>) -> Result<([(HeaderName, &'static str); 1], String), Error> {
    let counts = app.read(|reader| reader.counts()).await?;
    // A scheduler that recovers knows no workers; what is counted is told all the same.
    let workers = match app.holds() {
        true => Some(super::workers::views(&app, None).await.unwrap_or_default()),
        false => None,
    };
    let seat = workers.as_deref().map_or(Seat::Follower, |workers| Seat::Holder { workers });
    let text = app.metrics.scrape(&counts, &app.config.current().config, seat);
    Ok(([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text))
}
