//! What an operator does to the whole server: drain it, copy its store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use runyard_core::event::{Admit, Event};
use runyard_wire::{BackupRequest, BackupView, DrainRequest, DrainView};

use serde_json::json;

use super::extract::Body;
use super::settings::{plus, shown};
use crate::access::Caller;
use crate::app::{App, to_its_end};
use crate::audit::Entry;
use crate::handle::Readiness;
use crate::problem::{Error, Invalid};

/// Is the server draining, and what is left?
#[utoipa::path(get, path = "/v1/drain", tag = "operation",
    responses((status = 200, description = "How far it is", body = DrainView)))]
pub async fn show(State(app): State<Arc<App>>) -> Result<Json<DrainView>, Error> {
    drain_view(&app).await.map(Json)
}

/// Accept and start nothing new while it is on; what runs goes on to its end, what is queued stays.
#[utoipa::path(post, path = "/v1/drain", tag = "operation", request_body = DrainRequest,
    responses((status = 200, description = "How far it is", body = DrainView)))]
pub async fn set(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    body: Body<DrainRequest>,
) -> Result<Json<DrainView>, Error> {
    let before = app.handle.is_draining();
    let admit = if body.value.on { Admit::Draining } else { Admit::Open };
    if *app.handle.readiness().borrow() == Readiness::Stopping {
        return Err(crate::handle::Unavailable::Stopped.into());
    }
    to_its_end(async move {
        app.handle.ask(|ticket| Event::Admit { admit, ticket: Some(ticket) }).await?;
        app.handle.set_draining(body.value.on);
        tracing::info!(target: "runyard::server", draining = body.value.on, "drain");
        let entry = Entry::new("drain.set").before(json!({ "on": before })).after(json!({ "on": body.value.on }));
        app.audit.record(&caller.actor, entry).await;
        drain_view(&app).await.map(Json)
    })
    .await
}

/// Write a consistent copy of the store to a file on the server's machine, while it goes on.
#[utoipa::path(post, path = "/v1/backup", tag = "operation", request_body = BackupRequest,
    responses((status = 200, description = "Where it is", body = BackupView)))]
pub async fn backup(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    body: Body<BackupRequest>,
) -> Result<Json<BackupView>, Error> {
    let path = backup_path(&body.value.path)?;
    let to = path.clone();
    to_its_end(async move {
        app.read(move |reader| reader.backup(&to)).await?;
        let bytes = std::fs::metadata(&path).map_or(0, |file| file.len());
        tracing::info!(target: "runyard::server", path = %path.display(), bytes, "backup written");
        app.audit.record(&caller.actor, Entry::new("backup.written").of(path.display().to_string())).await;
        Ok(Json(BackupView { path: path.display().to_string(), bytes }))
    })
    .await
}

async fn drain_view(app: &App) -> Result<DrainView, Error> {
    let counts = app.read(|reader| reader.counts()).await?;
    let total = counts.iter().fold(Default::default(), |sum, (_, count)| plus(&sum, count));
    let count = shown(&total);
    let draining = app.handle.is_draining();
    Ok(DrainView { draining, running: count.running, queued: count.waiting + count.scheduled + count.queued })
}

/// Absolute, so that it says by itself where the copy is; never over something that is there.
fn backup_path(asked: &str) -> Result<PathBuf, Invalid> {
    let path = PathBuf::from(asked);
    if !path.is_absolute() {
        return Err(Invalid::new("path", "must be an absolute path"));
    }
    if path.exists() {
        return Err(Invalid::new("path", format!("{} exists already", path.display())));
    }
    if !path.parent().is_some_and(Path::is_dir) {
        return Err(Invalid::new("path", format!("the directory of {} does not exist", path.display())));
    }
    Ok(path)
}
