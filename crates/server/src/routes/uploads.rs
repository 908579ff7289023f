//! Files that are handed in before a task names them.

use std::io;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use futures_util::StreamExt;
use runyard_exec::workspace::{Incoming, Upload};
use runyard_wire::{Id, UploadView};

use super::apart::apart;
use crate::app::App;
use crate::problem::Error;

/// Hand in a file for tasks to come. The body is the file; it is kept until no task has needed it for a while.
#[utoipa::path(put, path = "/v1/uploads", tag = "files",
    request_body(content = String, content_type = "application/octet-stream", description = "The file"),
    responses((status = 201, description = "Stored", body = UploadView)))]
pub async fn create(State(app): State<Arc<App>>, request: Request) -> Result<(StatusCode, Json<UploadView>), Error> {
    let bytes_max = app.config.current().config.uploads.bytes_max;
    if declared_bytes(request.headers()).is_some_and(|bytes| bytes > bytes_max) {
        return Err(too_large(bytes_max));
    }
    let uploads = app.worker.places().uploads();
    let mut incoming = apart(move || uploads.begin()).await.map_err(not_stored)?;
    let mut body = request.into_body().into_data_stream();
    // From here on whatever ends this early, a client that hangs up too, drops what has come, and that removes it.
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(|_| Error::BrokenBody)?;
        if incoming.n_bytes() + chunk.len() as u64 > bytes_max {
            return Err(too_large(bytes_max));
        }
        incoming = add(incoming, chunk).await?;
    }
    let Upload { id, bytes, sha256 } = apart(move || incoming.finish()).await.map_err(not_stored)?;
    Ok((StatusCode::CREATED, Json(UploadView { id: Id(id), bytes, sha256 })))
}

async fn add(mut incoming: Incoming, chunk: Bytes) -> Result<Incoming, Error> {
    apart(move || incoming.write(&chunk).map(|()| incoming)).await.map_err(not_stored)
}

fn not_stored(error: io::Error) -> Error {
    tracing::error!(target: "runyard::http", %error, "an upload cannot be stored");
    Error::Internal(format!("the upload cannot be stored: {error}").into())
}

fn declared_bytes(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large(bytes_max: u64) -> Error {
    Error::TooLarge(usize::try_from(bytes_max).unwrap_or(usize::MAX))
}
