//! Files that are handed in before a task names them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use futures_util::StreamExt;
use runyard_exec::workspace::{Incoming, Upload};
use runyard_wire::{Id, UploadView};
use tokio::time::{Instant, timeout_at};

use super::apart::apart;
use super::extract::BodyRules;
use crate::app::App;
use crate::problem::Error;

/// Hand in a file for tasks to come. The body is the file; it is kept until no task has needed it for a while.
#[utoipa::path(put, path = "/v1/uploads", tag = "files",
    request_body(content = Option<String>, content_type = "application/octet-stream", description = "The file"),
    responses((status = 201, description = "Stored", body = UploadView)))]
pub async fn create(State(app): State<Arc<App>>, request: Request) -> Result<(StatusCode, Json<UploadView>), Error> {
    let bytes_max = app.config.current().config.uploads.bytes_max;
    if declared_bytes(request.headers()).is_some_and(|bytes| bytes > bytes_max) {
        return Err(too_large(bytes_max));
    }
    let incoming = receive(&app, request, bytes_max).await?;
    let upload = apart(move || incoming.finish()).await.map_err(not_stored)?;
    if let Some(shared) = &app.shared_uploads {
        shared.keep(&upload).await?;
    }
    let Upload { id, bytes, sha256 } = upload;
    Ok((StatusCode::CREATED, Json(UploadView { id: Id(id), bytes, sha256 })))
}

/// The body of a request, in a file that nobody else has.
pub async fn receive(app: &App, request: Request, bytes_max: u64) -> Result<Incoming, Error> {
    let uploads = app.worker.places().uploads();
    let mut pace = Pace::new(BodyRules::of(&request)?.time, Instant::now());
    let mut incoming = apart(move || uploads.begin()).await.map_err(not_stored)?;
    let mut body = request.into_body().into_data_stream();
    // From here on whatever ends this early, a client that hangs up too, drops what has come, and that removes it.
    while let Some(chunk) = pace.keep(body.next(), incoming.n_bytes()).await? {
        let chunk = chunk.map_err(|_| Error::BrokenBody)?;
        if incoming.n_bytes() + chunk.len() as u64 > bytes_max {
            return Err(too_large(bytes_max));
        }
        incoming = add(incoming, chunk).await?;
    }
    Ok(incoming)
}

/// A file may take as long as it needs, but each part of it has to come in the time of a body: whoever has a slow line
/// is served, whoever stalls or drips is not.
struct Pace {
    time: Duration,
    until: Instant,
    /// The part is there when so many bytes are.
    n_bytes: u64,
}

/// In a minute, that is 17 KiB in a second.
const PART_BYTES: u64 = 1024 * 1024;

impl Pace {
    fn new(time: Duration, now: Instant) -> Pace {
        Pace { time, until: now + time, n_bytes: PART_BYTES }
    }

    async fn keep<T>(&mut self, next: impl Future<Output = T>, n_bytes: u64) -> Result<T, Error> {
        let until = self.until(n_bytes, Instant::now());
        timeout_at(until, next).await.map_err(|_| Error::SlowBody(self.time))
    }

    /// When more has to be there than so many bytes.
    fn until(&mut self, n_bytes: u64, now: Instant) -> Instant {
        if n_bytes >= self.n_bytes {
            *self = Pace { n_bytes: n_bytes + PART_BYTES, ..Pace::new(self.time, now) };
        }
        self.until
    }
}

async fn add(mut incoming: Incoming, chunk: Bytes) -> Result<Incoming, Error> {
    apart(move || incoming.write(&chunk).map(|()| incoming)).await.map_err(not_stored)
}

fn not_stored(error: io::Error) -> Error {
    tracing::error!(target: "runyard::http", %error, "an upload cannot be stored");
    Error::Internal(format!("the upload cannot be stored: {error}").into())
}

pub fn declared_bytes(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

pub fn too_large(bytes_max: u64) -> Error {
    Error::TooLarge(usize::try_from(bytes_max).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_a_file_has_the_time_of_a_body() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut pace = Pace::new(Duration::from_secs(60), began);
        assert_eq!(pace.until(0, at(0)), at(60));
        assert_eq!(pace.until(PART_BYTES - 1, at(50)), at(60), "the first part is not there yet");
        assert_eq!(pace.until(PART_BYTES + 9, at(55)), at(115), "the second has its own minute");
        assert_eq!(pace.until(2 * PART_BYTES, at(100)), at(115), "from where it began");
    }
}
