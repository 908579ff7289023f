//! API keys: who may do what.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use runyard_wire::{Id, KeyCreated, KeyRequest, KeyView, ListPage, Scope as WireScope, Timestamp};

use serde_json::Value;

use super::extract::{Body, KeyPath};
use crate::access::{Caller, Key, NewKey, Scope};
use crate::app::App;
use crate::audit::Entry;
use crate::clock;
use crate::config::{NAME_RULE, name_is_valid};
use crate::nodes::{Forwarded, Once};
use crate::problem::{Error, Invalid};

const AGENTS_MAX: usize = 100;

/// The keys, without their secrets.
#[utoipa::path(get, path = "/v1/keys", tag = "keys",
    responses((status = 200, description = "All of them", body = ListPage<KeyView>)))]
pub async fn list(State(app): State<Arc<App>>) -> Json<ListPage<KeyView>> {
    let items = app.keys.ring().keys().iter().map(key_view).collect();
    Json(ListPage { items, next_cursor: None })
}

/// Create a key. Its secret is in the answer, and nowhere else ever again.
#[utoipa::path(post, path = "/v1/keys", tag = "keys", request_body = KeyRequest,
    responses((status = 201, description = "The key with its secret", body = KeyCreated)))]
pub async fn create(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(forwarded): Extension<Forwarded>,
    body: Body<KeyRequest>,
) -> Result<(StatusCode, Json<KeyCreated>), Error> {
    let new = new_key(Id(forwarded.ids), body.value)?;
    let entry = |(key, _): &(Key, String)| Entry::new("key.created").of(&key.id).after(told(key));
    let (key, text) = app.change_keys(&caller.actor, app.handle.clone(), |ring| ring.add(new), entry).await?;
    tracing::info!(target: "runyard::access", key = %key.id, name = %key.name, "key created");
    Ok((StatusCode::CREATED, Json(KeyCreated { key: text, view: key_view(&key) })))
}

/// Revoke a key, at once.
#[utoipa::path(delete, path = "/v1/keys/{id}", tag = "keys", params(("id" = Id, Path)),
    responses((status = 204, description = "It is gone")))]
pub async fn revoke(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(once): Extension<Once>,
    KeyPath(id): KeyPath,
) -> Result<StatusCode, Error> {
    if once.first.is_some() {
        app.audit.record(&caller.actor, Entry::new("key.revoked").of(id.to_string())).await;
        return Ok(StatusCode::NO_CONTENT);
    }
    let entry = |key: &Key| Entry::new("key.revoked").of(&key.id).before(told(key));
    let handle = once.handle(&app);
    let key = app.change_keys(&caller.actor, handle, move |ring| ring.remove(&id.to_string()), entry).await?;
    tracing::info!(target: "runyard::access", key = %key.id, name = %key.name, "key revoked");
    Ok(StatusCode::NO_CONTENT)
}

/// What the audit log says of a key.
fn told(key: &Key) -> Value {
    serde_json::to_value(key_view(key)).expect("a view is plain data")
}

fn new_key(id: Id, request: KeyRequest) -> Result<NewKey, Invalid> {
    if !name_is_valid(&request.name) {
        return Err(Invalid::new("name", NAME_RULE));
    }
    if request.scopes.is_empty() {
        return Err(Invalid::new("scopes", "at least one of read, submit, exec, worker, admin"));
    }
    let agents = request.agents.as_deref().unwrap_or(&[]);
    if request.agents.is_some() && request.scopes.contains(&WireScope::Admin) {
        return Err(Invalid::new("agents", "a key with scope admin cannot be bound: it could make itself another one"));
    }
    if request.agents.is_some() && !(1..=AGENTS_MAX).contains(&agents.len()) {
        return Err(Invalid::new("agents", format!("1 to {AGENTS_MAX} agents, or leave it out for all")));
    }
    if let Some(at) = agents.iter().position(|agent| !name_is_valid(agent)) {
        return Err(Invalid::new(format!("agents[{at}]"), NAME_RULE));
    }
    let scopes = request.scopes.iter().map(|scope| match scope {
        WireScope::Read => Scope::Read,
        WireScope::Submit => Scope::Submit,
        WireScope::Exec => Scope::Exec,
        WireScope::Worker => Scope::Worker,
        WireScope::Admin => Scope::Admin,
    });
    Ok(NewKey {
        id: id.to_string(),
        name: request.name,
        scopes: scopes.collect(),
        agents: request.agents,
        created_at_ms: clock::wall_ms(),
    })
}

fn key_view(key: &Key) -> KeyView {
    let scopes = key.scopes.iter().map(|scope| match scope {
        Scope::Read => WireScope::Read,
        Scope::Submit => WireScope::Submit,
        Scope::Exec => WireScope::Exec,
        Scope::Worker => WireScope::Worker,
        Scope::Admin => WireScope::Admin,
    });
    KeyView {
        // Ids are made here and nowhere else, so they always parse.
        id: key.id.parse().unwrap_or(Id(0)),
        name: key.name.clone(),
        scopes: scopes.collect(),
        agents: key.agents.clone(),
        created_at: Timestamp(key.created_at_ms),
        last_used_at: key.last_used.at_ms().map(Timestamp),
    }
}
