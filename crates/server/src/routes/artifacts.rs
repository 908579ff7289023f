//! Files that a task left.

use std::io;
use std::sync::Arc;

use axum::Extension;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use runyard_core::ids::TaskId;
use runyard_exec::workspace::{Artifact, Artifacts, LeftOut};
use runyard_wire::{ArtifactView, ArtifactsView, Id, LeftOutView};
use tokio_util::io::ReaderStream;

use super::apart::apart;
use super::extract::{TaskPath, parsed};
use super::tasks::own_doc;
use crate::access::Caller;
use crate::app::App;
use crate::problem::{Error, Invalid};

/// What was collected of the task's working directory: its own attempt's last.
#[utoipa::path(get, path = "/v1/tasks/{id}/artifacts", tag = "files", params(("id" = Id, Path)),
    responses((status = 200, description = "The files, and what was left out", body = ArtifactsView)))]
pub async fn list(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    TaskPath(id): TaskPath,
) -> Result<Json<ArtifactsView>, Error> {
    own_doc(&app, &caller, id).await?;
    let places = app.worker.places().clone();
    let artifacts = apart(move || Artifacts::of(&places, id.0)).await.map_err(unreadable)?;
    Ok(Json(view(artifacts)))
}

/// One file of them, as it is.
#[utoipa::path(get, path = "/v1/tasks/{id}/artifacts/{*path}", tag = "files",
    params(("id" = Id, Path), ("path" = String, Path, description = "As `GET /v1/tasks/{id}/artifacts` lists it, slashes and all")),
    responses((status = 200, description = "The file", content((String = "application/octet-stream")))))]
pub async fn file(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
) -> Result<Response, Error> {
    let Path((id, path)) = path.map_err(|error| Invalid::new("path", error.body_text()))?;
    let id = TaskId(parsed::<Id>("id", &id)?.0);
    own_doc(&app, &caller, id).await?;
    let (places, asked) = (app.worker.places().clone(), path.clone());
    let found = apart(move || Artifacts::open(&places, id.0, &asked)).await.map_err(unreadable)?;
    let (artifact, file) = found.ok_or(Error::NotFound { what: "artifact", id: path })?;
    let body = Body::from_stream(ReaderStream::new(tokio::fs::File::from_std(file)));
    Ok((headers(&artifact), body).into_response())
}

/// Whatever a task wrote must not become a page of this server in somebody's browser.
fn headers(artifact: &Artifact) -> [(header::HeaderName, HeaderValue); 4] {
    let name = artifact.path.rsplit('/').next().unwrap_or_default();
    let disposition = format!("attachment; filename*=UTF-8''{}", encoded(name));
    [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CONTENT_LENGTH, HeaderValue::from(artifact.bytes)),
        (header::CONTENT_DISPOSITION, HeaderValue::from_str(&disposition).expect("it is plain ASCII")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ]
}

/// As RFC 8187 wants it: everything but letters, digits and a few signs as its bytes.
fn encoded(name: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    name.bytes().map(encode).collect()
}

fn unreadable(error: io::Error) -> Error {
    tracing::error!(target: "runyard::http", %error, "artifacts cannot be read");
    Error::Internal("the artifacts cannot be read".into())
}

fn view(artifacts: Artifacts) -> ArtifactsView {
    let item = |Artifact { path, bytes, sha256 }| ArtifactView { path, bytes, sha256 };
    let left_out = |LeftOut { path, reason }| LeftOutView { path, reason };
    ArtifactsView {
        items: artifacts.items.into_iter().map(item).collect(),
        left_out: artifacts.left_out.into_iter().map(left_out).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_header() {
        let artifact = Artifact { path: "a/\"\r\nx: ü.txt".to_owned(), bytes: 3, sha256: String::new() };
        let [_, length, disposition, _] = headers(&artifact);
        assert_eq!(
            (length.1, disposition.1),
            (
                HeaderValue::from(3),
                HeaderValue::from_static("attachment; filename*=UTF-8''%22%0D%0Ax%3A%20%C3%BC.txt",)
            )
        );
    }
}
