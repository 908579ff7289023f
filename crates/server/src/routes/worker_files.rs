//! Files of tasks that run on other machines: what was handed in for them, and what they leave.

use std::io;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use runyard_core::event::Held;
use runyard_core::ids::{TaskId, WorkerId};
use runyard_exec::workspace::{Artifact, ReceiveError, Received};
use runyard_store::postgres::OfAttempt;
use runyard_wire::{ArtifactView, HeldLease, Id, Token};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio_util::io::ReaderStream;
use utoipa::IntoParams;

use super::apart::apart;
use super::extract::{Params, parsed};
use super::tasks::task_doc;
use super::uploads::{declared_bytes, receive, too_large};
use crate::app::App;
use crate::config::to_process_defaults;
use crate::desk::held;
use crate::nodes::keep_artifact;
use crate::problem::{Error, Invalid};

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub struct LeaseParams {
    /// The task that needs it.
    task: Id,
    /// Which run of it.
    attempt: u32,
    /// As its start gave it.
    #[param(value_type = String)]
    token: Token,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub struct AttemptParams {
    /// Which run of the task.
    attempt: u32,
    /// As its start gave it.
    #[param(value_type = String)]
    token: Token,
}

type Parts<T> = Result<Path<T>, axum::extract::rejection::PathRejection>;

/// A file that was handed in for a task that this worker holds.
#[utoipa::path(get, path = "/v1/workers/{id}/uploads/{upload}", tag = "workers",
    params(("id" = Id, Path), ("upload" = Id, Path, description = "As the payload names it"), LeaseParams),
    responses((status = 200, description = "The file", content((String = "application/octet-stream")))))]
pub async fn upload(
    State(app): State<Arc<App>>,
    path: Parts<(String, String)>,
    Params(lease): Params<LeaseParams>,
) -> Result<Response, Error> {
    let Path((worker, upload)) = path.map_err(|error| Invalid::new("path", error.body_text()))?;
    let (worker, Id(upload)) = (worker_of(&worker)?, parsed::<Id>("upload", &upload)?);
    let held = held(HeldLease { task: lease.task, attempt: lease.attempt, token: lease.token });
    live(&app, worker, held)?;
    if !app.desk.names_upload(held.task, upload) && !names(&app, held.task, upload).await? {
        return Err(Error::NotFound { what: "upload", id: Id(upload).to_string() });
    }
    if let Some(shared) = &app.shared_uploads {
        // Where it is not there, opening it says so.
        shared.bring(upload, || ()).await?;
    }
    let uploads = app.worker.places().uploads();
    let opened = apart(move || {
        let file = uploads.open(upload)?;
        Ok((file.metadata()?.len(), file))
    });
    let (bytes, file) = match opened.await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::NotFound { what: "upload", id: Id(upload).to_string() });
        }
        opened => opened.map_err(broken)?,
    };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CONTENT_LENGTH, HeaderValue::from(bytes)),
    ];
    Ok((headers, Body::from_stream(ReaderStream::new(tokio::fs::File::from_std(file)))).into_response())
}

/// Keep a file that a task left. One of the same path is replaced; those of an earlier attempt go with the first of a
/// later one. To be sent before the end is reported.
#[utoipa::path(put, path = "/v1/workers/{id}/tasks/{task}/artifacts/{*path}", tag = "workers",
    params(("id" = Id, Path), ("task" = Id, Path),
           ("path" = String, Path, description = "As it is in the working directory, slashes and all"), AttemptParams),
    request_body(content = Option<String>, content_type = "application/octet-stream", description = "The file"),
    responses((status = 201, description = "Kept", body = ArtifactView)))]
pub async fn artifact(
    State(app): State<Arc<App>>,
    path: Parts<(String, String, String)>,
    Params(params): Params<AttemptParams>,
    request: Request,
) -> Result<(StatusCode, Json<ArtifactView>), Error> {
    let Path((worker, task, path)) = path.map_err(|error| Invalid::new("path", error.body_text()))?;
    let (worker, task) = (worker_of(&worker)?, parsed::<Id>("task", &task)?);
    let held = held(HeldLease { task, attempt: params.attempt, token: params.token });
    live(&app, worker, held)?;
    let rules = to_process_defaults(&app.config.current().config).workspace;
    if declared_bytes(request.headers()).is_some_and(|bytes| bytes > rules.artifacts_bytes_max) {
        return Err(too_large(rules.artifacts_bytes_max));
    }
    let incoming = receive(&app, request, rules.artifacts_bytes_max).await?;
    let turn = app.desk.turn(worker);
    let _alone = turn.lock().await;
    // It may have been lost while the file came.
    live(&app, worker, held)?;
    let places = app.worker.places().clone();
    let depot = app.cluster.as_ref().map(|cluster| cluster.depot.clone());
    let keep = move || -> Result<Artifact, Error> {
        let received = Received { task: held.task.0, attempt: held.attempt, path: &path };
        let kept = received.keep(&places, &rules, incoming).map_err(refused)?;
        // Its end may be told to another node.
        if let Some(depot) = depot {
            let of = OfAttempt { task: held.task, attempt: held.attempt };
            keep_artifact(&depot, &places, of, &kept.path)?;
        }
        Ok(kept)
    };
    let kept = tokio::task::spawn_blocking(keep).await.map_err(|error| broken(io::Error::other(error)))?;
    let Artifact { path, bytes, sha256 } = kept?;
    Ok((StatusCode::CREATED, Json(ArtifactView { path, bytes, sha256 })))
}

fn worker_of(text: &str) -> Result<WorkerId, Invalid> {
    parsed::<Id>("id", text).map(|id| WorkerId(id.0))
}

fn live(app: &App, worker: WorkerId, held: Held) -> Result<(), Error> {
    match app.desk.holds(worker, held) {
        true => Ok(()),
        false => Err(Error::StaleLease { task: held.task, attempt: held.attempt }),
    }
}

/// For a lease that was presented after a restart, when nobody remembers its start.
async fn names(app: &App, task: TaskId, upload: u128) -> Result<bool, Error> {
    #[derive(Deserialize)]
    struct Spec<'a> {
        #[serde(borrow)]
        payload: Option<&'a RawValue>,
    }
    let doc = task_doc(app, task).await?;
    let spec = doc.spec.as_deref().and_then(|spec| serde_json::from_slice::<Spec>(spec).ok());
    let named = runyard_exec::uploads_named(&doc.kind, spec.and_then(|spec| spec.payload));
    Ok(named.iter().any(|(_, id)| *id == upload))
}

fn refused(error: ReceiveError) -> Error {
    match error {
        ReceiveError::Path(_) | ReceiveError::TooMany(_) => Invalid::new("path", error.to_string()).into(),
        ReceiveError::TooLarge(bytes_max) => too_large(bytes_max),
        ReceiveError::Io(error) => broken(error),
    }
}

fn broken(error: io::Error) -> Error {
    tracing::error!(target: "runyard::http", %error, "a worker's file cannot be read or stored");
    Error::Internal("the file cannot be read or stored".into())
}
