//! Files that a task left.

use std::cmp::Ordering;
use std::io;
use std::sync::Arc;

use axum::Extension;
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use runyard_core::ids::TaskId;
use runyard_exec::workspace::{Artifact, Artifacts, LeftOut};
use runyard_store::postgres::{KeptArtifact, KeptArtifacts, OfAttempt, PgDepot};
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
    Ok(Json(view(all(&app, id).await?)))
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
    let Artifacts { attempt, items, .. } = all(&app, id).await?;
    let known = items.into_iter().find(|artifact| artifact.path == path);
    let not_found = || Error::NotFound { what: "artifact", id: path.clone() };
    let artifact = known.ok_or_else(not_found)?;
    let (places, asked) = (app.worker.places().clone(), artifact.clone());
    let opened = apart(move || Artifacts::open(&places, id.0, &asked.path)).await.map_err(unreadable)?;
    let body = match (opened, &app.cluster) {
        (Some((here, file)), _) if here == artifact => {
            Body::from_stream(ReaderStream::new(tokio::fs::File::from_std(file)))
        }
        (_, Some(cluster)) => {
            let of = OfAttempt { task: id, attempt };
            Body::from_stream(kept_parts(cluster.depot.clone(), of, artifact.path.clone()))
        }
        // Replaced by a later attempt meanwhile.
        (_, None) => return Err(not_found()),
    };
    Ok((headers(&artifact), body).into_response())
}

/// Those of the task's last attempt that left any: on this disk, and where several nodes have them in common.
async fn all(app: &App, id: TaskId) -> Result<Artifacts, Error> {
    let places = app.worker.places().clone();
    let here = apart(move || Artifacts::of(&places, id.0)).await.map_err(unreadable)?;
    let Some(cluster) = app.cluster.clone() else { return Ok(here) };
    let kept = tokio::task::spawn_blocking(move || cluster.depot.artifacts(id)).await;
    let kept = kept.map_err(|_| Error::Internal("a read ended without an answer".into()))??;
    Ok(together(here, kept))
}

/// A later attempt's go before an earlier one's. Of the same attempt some may be here and some there: a holder that has just
/// begun has none, one whose task has just ended has all.
fn together(mut here: Artifacts, kept: KeptArtifacts) -> Artifacts {
    let left_out = |(path, reason)| LeftOut { path, reason };
    let item = |KeptArtifact { path, bytes, sha256 }| Artifact { path, bytes, sha256 };
    let there = Artifacts {
        attempt: kept.attempt,
        items: kept.items.into_iter().map(item).collect(),
        left_out: kept.left_out.into_iter().map(left_out).collect(),
    };
    match here.attempt.cmp(&there.attempt) {
        Ordering::Greater => here,
        Ordering::Less => there,
        Ordering::Equal => {
            let mut more = there.items;
            more.retain(|item| here.items.iter().all(|known| known.path != item.path));
            here.items.extend(more);
            here.items.sort_by(|a, b| a.path.cmp(&b.path));
            let left_out = if here.left_out.is_empty() { there.left_out } else { here.left_out };
            Artifacts { left_out, ..here }
        }
    }
}

/// One part after the other, as the client takes them.
fn kept_parts(depot: Arc<PgDepot>, of: OfAttempt, path: String) -> impl Stream<Item = io::Result<Bytes>> {
    futures_util::stream::try_unfold(0, move |n| {
        let (depot, path) = (depot.clone(), path.clone());
        async move {
            let part = tokio::task::spawn_blocking(move || depot.artifact_part(of, &path, n)).await;
            let part = part.map_err(io::Error::other)?.map_err(io::Error::other)?;
            Ok(part.map(|part| (Bytes::from(part), n + 1)))
        }
    })
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
    fn a_later_attempts_files_go_before_and_those_of_one_attempt_are_put_together() {
        let item = |path: &str| Artifact { path: path.to_owned(), bytes: 1, sha256: String::new() };
        let kept_item = |path: &str| KeptArtifact { path: path.to_owned(), bytes: 2, sha256: String::new() };
        let here = |attempt| Artifacts { attempt, items: vec![item("b"), item("c")], left_out: Vec::new() };
        let kept = KeptArtifacts {
            attempt: 2,
            items: vec![kept_item("a"), kept_item("c")],
            left_out: vec![("x".to_owned(), "too large".to_owned())],
        };
        let found = |here| {
            let found = together(here, kept.clone());
            let items: Vec<_> = found.items.into_iter().map(|item| (item.path, item.bytes)).collect();
            (items, found.left_out.len())
        };
        let of =
            |items: &[(&str, u64)]| items.iter().map(|(path, bytes)| ((*path).to_owned(), *bytes)).collect::<Vec<_>>();
        assert_eq!(found(here(1)), (of(&[("a", 2), ("c", 2)]), 1));
        assert_eq!(found(here(2)), (of(&[("a", 2), ("b", 1), ("c", 1)]), 1));
        assert_eq!(found(here(3)), (of(&[("b", 1), ("c", 1)]), 0));
    }

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
