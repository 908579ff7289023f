//! The nodes of one scheduler: who they are, for people; and what they ask each other.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use runyard_store::nodes::NodeRow;
use runyard_wire::{Id, NodePage, NodeView, Timestamp};
use serde::Deserialize;

use super::extract::Params;
use crate::access::Used;
use crate::app::App;
use crate::handle::{Readiness, Unavailable};
use crate::nodes::{HINT_MAX, SELF, Told, role_of};
use crate::problem::Error;

/// The nodes, by name. A server with a store of its own has none.
#[utoipa::path(get, path = "/v1/nodes", tag = "operation",
    responses((status = 200, description = "Those heard of within the last day", body = NodePage)))]
pub async fn list(State(app): State<Arc<App>>) -> Result<Json<NodePage>, Error> {
    let Some(cluster) = app.cluster.clone() else { return Ok(Json(NodePage::default())) };
    let (nodes, own) = (cluster.nodes.clone(), cluster.member.card().id);
    let list = tokio::task::spawn_blocking(move || nodes.all()).await;
    let list = list.map_err(|_| Error::Internal("a read ended without an answer".into()))??;
    let ttl_ms = app.config.current().config.nodes.ttl_ms;
    let view = |row: NodeRow| NodeView {
        role: role_of(&row, ttl_ms),
        id: Id(row.card.id.0),
        name: row.card.name,
        url: row.card.url,
        is_self: row.card.id == own,
        started_at: Timestamp(row.started_at_ms),
        silent_ms: row.silent_ms,
        version: row.card.version,
    };
    Ok(Json(NodePage { items: list.nodes.into_iter().map(view).collect(), epoch: list.epoch }))
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub struct AfterParams {
    after: u64,
}

/// For a node that follows: the number of the last commit, as soon as there is one behind `after`. A holder that cannot write
/// does not answer it.
pub async fn commits(State(app): State<Arc<App>>, Params(params): Params<AfterParams>) -> Result<String, Error> {
    let mut readiness = app.handle.readiness();
    let serves = |readiness: &Readiness| !matches!(readiness, Readiness::Recovering | Readiness::Following);
    if !serves(&readiness.borrow()) {
        return Err(Unavailable::Recovering.into());
    }
    let feed = app.handle.feed();
    let mut commits = feed.commits();
    let news = async {
        loop {
            match feed.last_seq() {
                Some(seq) if seq > params.after => return seq,
                // That some were left out says as much as the next one.
                _ => drop(commits.recv().await),
            }
        }
    };
    let seq = tokio::select! {
        seq = tokio::time::timeout(HINT_MAX, news) => seq.unwrap_or(params.after),
        _ = readiness.wait_for(|readiness| !serves(readiness)) => return Err(Unavailable::Recovering.into()),
        () = app.stop.cancelled() => params.after,
    };
    Ok(seq.to_string())
}

/// Who answers at this address?
pub async fn own_id(State(app): State<Arc<App>>) -> Result<String, Error> {
    let cluster = app.cluster.as_ref().ok_or_else(|| Error::NoRoute(SELF.to_owned()))?;
    Ok(Id(cluster.member.card().id.0).to_string())
}

/// For a node that follows: how far tasks are, as soon as one of them has said something behind `after`.
pub async fn progress(State(app): State<Arc<App>>, Params(params): Params<AfterParams>) -> Json<Told> {
    let Some(cluster) = app.cluster.clone() else { return Json(Told::default()) };
    let told = tokio::select! {
        told = cluster.progress.behind(params.after) => told,
        () = app.stop.cancelled() => Told::default(),
    };
    Json(told)
}

/// From a node that follows: when keys were last used there. The later moment counts.
pub async fn used(State(app): State<Arc<App>>, Json(used): Json<Used>) -> StatusCode {
    app.keys.ring().mark(&used);
    StatusCode::NO_CONTENT
}

/// For a node that starts: the key that secrets are sealed with, sealed with what only nodes know.
pub async fn sealing_key(State(app): State<Arc<App>>) -> Result<String, Error> {
    let cluster = app.cluster.clone().ok_or_else(|| Error::NoRoute("/v1/nodes/sealing-key".to_owned()))?;
    let shared = app.documents.key.shared(cluster.peers.secret_bytes());
    shared.map_err(|error| Error::Internal(error.to_string().into()))
}
