//! Secrets: set, list, remove. There is no route that gives a value.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use runyard_wire::{ListPage, SecretPut, SecretSource, SecretView, Timestamp};
use serde_json::json;

use super::extract::{Body, NamePath};
use crate::access::Caller;
use crate::app::App;
use crate::audit::Entry;
use crate::config::{NAME_RULE, name_is_valid};
use crate::nodes::Once;
use crate::problem::{Error, Invalid};
use crate::secrets::{self, Known, Source};

/// The secrets that tasks may refer to, without their values.
#[utoipa::path(get, path = "/v1/secrets", tag = "secrets",
    responses((status = 200, description = "All of them, by name", body = ListPage<SecretView>)))]
pub async fn list(State(app): State<Arc<App>>) -> Json<ListPage<SecretView>> {
    let items = app.vault.list().into_iter().map(view).collect();
    Json(ListPage { items, next_cursor: None })
}

/// Keep a secret, sealed. Attempts that start from now on get the new value.
#[utoipa::path(put, path = "/v1/secrets/{name}", tag = "secrets", params(("name" = String, Path)), request_body = SecretPut,
    responses((status = 204, description = "It is kept")))]
pub async fn put(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    NamePath(name): NamePath,
    body: Body<SecretPut>,
) -> Result<StatusCode, Error> {
    let SecretPut { value, agents } = body.value;
    if let Some(at) = agents.iter().flatten().position(|agent| !name_is_valid(agent)) {
        return Err(Invalid::new(format!("agents[{at}]"), NAME_RULE).into());
    }
    // To its end also when the client hangs up, as every change.
    let change = tokio::spawn(async move {
        let told = json!({ "agents": agents });
        let entry = match app.vault.set(&app.handle, &name, &value, agents).await? {
            Some(replaced) => Entry::new("secret.replaced").before(json!({ "agents": replaced.agents })),
            None => Entry::new("secret.set"),
        };
        app.audit.record(&caller.actor, entry.of(&*name).after(told)).await;
        Ok::<_, secrets::Error>(())
    });
    ended(change.await)
}

/// Remove a secret. Tasks that refer to it fail from now on.
#[utoipa::path(delete, path = "/v1/secrets/{name}", tag = "secrets", params(("name" = String, Path)),
    responses((status = 204, description = "It is gone")))]
pub async fn remove(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(once): Extension<Once>,
    NamePath(name): NamePath,
) -> Result<StatusCode, Error> {
    if once.first.is_some() {
        app.audit.record(&caller.actor, Entry::new("secret.removed").of(&*name)).await;
        return Ok(StatusCode::NO_CONTENT);
    }
    let change = tokio::spawn(async move {
        app.vault.remove(&once.handle(&app), &name).await?;
        app.audit.record(&caller.actor, Entry::new("secret.removed").of(&*name)).await;
        Ok::<_, secrets::Error>(())
    });
    ended(change.await)
}

fn ended(change: Result<Result<(), secrets::Error>, tokio::task::JoinError>) -> Result<StatusCode, Error> {
    change.map_err(|_| Error::Internal("the change ended without an answer".into()))??;
    Ok(StatusCode::NO_CONTENT)
}

fn view(known: Known) -> SecretView {
    let source = match known.source {
        Source::Stored => SecretSource::Stored,
        Source::Env => SecretSource::Env,
        Source::File => SecretSource::File,
    };
    SecretView { name: known.name, source, agents: known.agents, set_at: known.set_at_ms.map(Timestamp) }
}
