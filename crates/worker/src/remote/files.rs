//! Files that travel through the server: uploads that tasks are given, artifacts that they leave.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use reqwest::Body;
use runyard_core::event::Held;
use runyard_core::ids::{TaskId, Token};
use runyard_exec::outcome::Failure;
use runyard_exec::workspace::{Artifacts, BoxFuture, Incoming};
use runyard_exec::{Class, Job, Places, RemoteUploads, Signs};
use tokio_util::io::ReaderStream;

use super::backoff::Backoff;
use super::client::{CallError, Client};

/// A task whose file cannot be had waits no longer than this for the server to come back; its next attempt does.
const BRING_TRIES: u32 = 6;

pub(super) struct UploadsOfServer {
    pub client: Arc<Client>,
    pub places: Places,
}

impl RemoteUploads for UploadsOfServer {
    fn bring<'a>(&'a self, job: &'a Job, upload: u128, signs: &'a dyn Signs) -> BoxFuture<'a, Result<(), Failure>> {
        let lease = Held { task: TaskId(job.task), attempt: job.attempt, token: Token(job.token) };
        Box::pin(async move {
            let mut backoff = Backoff::new();
            loop {
                let error = match self.fetch(lease, upload, signs).await {
                    Ok(()) => return Ok(()),
                    Err(error) => error,
                };
                match error {
                    NotBrought::Call(CallError::Away(_)) if backoff.n_tries() < BRING_TRIES => backoff.pause().await,
                    NotBrought::Call(CallError::Refused(why)) => return Err(Failure::work(Class::Permanent, why)),
                    NotBrought::Call(error) => return Err(Failure::work(Class::Task, error.to_string())),
                    NotBrought::Disk(error) => return Err(Failure::worker(format!("cannot be stored: {error}"))),
                }
            }
        })
    }
}

/// Why a file is not here.
enum NotBrought {
    Call(CallError),
    Disk(io::Error),
}

impl UploadsOfServer {
    async fn fetch(&self, lease: Held, upload: u128, signs: &dyn Signs) -> Result<(), NotBrought> {
        let mut response = self.client.upload(lease, upload).await.map_err(NotBrought::Call)?;
        let mut incoming: Incoming = self.places.uploads().begin().map_err(NotBrought::Disk)?;
        let broken = |error: reqwest::Error| NotBrought::Call(CallError::Away(error.to_string()));
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
            signs.alive();
            incoming.write(&chunk).map_err(NotBrought::Disk)?;
        }
        incoming.finish_as(upload).map_err(NotBrought::Disk)
    }
}

/// Sends what an attempt left, and gives the length of its log. Returns when all of it is with the server, or is not
/// wanted there.
pub(super) async fn close(client: &Client, places: &Places, lease: Held) -> u64 {
    let artifacts = Artifacts::of(places, lease.task.0).unwrap_or_else(|error| {
        tracing::warn!(task = ?lease.task, %error, "the artifacts of a task cannot be read");
        Artifacts::default()
    });
    for artifact in artifacts.items {
        if !send(client, places, lease, &artifact.path).await {
            break;
        }
    }
    length(&places.log_file(lease.task.0, lease.attempt))
}

/// False when nothing more of this attempt is wanted.
async fn send(client: &Client, places: &Places, lease: Held, path: &str) -> bool {
    let mut backoff = Backoff::new();
    loop {
        let opened = Artifacts::open(places, lease.task.0, path);
        let Ok(Some((artifact, file))) = opened else {
            tracing::warn!(task = ?lease.task, path, "an artifact is gone before it was sent");
            return true;
        };
        match client.artifact(lease, path, artifact.bytes, body(file)).await {
            Ok(()) => return true,
            Err(CallError::Away(why)) => {
                tracing::debug!(task = ?lease.task, path, why, "an artifact is sent again later");
                backoff.pause().await;
            }
            Err(CallError::Refused(why)) => {
                tracing::warn!(task = ?lease.task, path, why, "the server does not take an artifact");
                return true;
            }
            Err(CallError::Unknown(_) | CallError::Fenced | CallError::StaleLease) => return false,
        }
    }
}

fn body(file: File) -> Body {
    Body::wrap_stream(ReaderStream::new(tokio::fs::File::from_std(file)))
}

/// Of a file; one that is not there is empty.
pub(super) fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// A part of a log file; what is not there is left out.
pub(super) fn read_part(path: &Path, offset: u64, bytes: u64) -> io::Result<Vec<u8>> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut part = Vec::new();
    file.take(bytes).read_to_end(&mut part)?;
    Ok(part)
}

/// Of what is acknowledged nothing is kept here but a working directory that its task wants kept.
pub(super) fn remove_told(places: &Places, lease: Held) {
    places.remove_attempt(lease.task.0, lease.attempt);
    if let Err(error) = runyard_exec::workspace::remove_artifacts(places, lease.task.0) {
        tracing::warn!(task = ?lease.task, %error, "artifacts that the server has cannot be removed here");
    }
}

/// What nobody has asked for in so long.
pub(super) fn remove_old(places: &Places, age: Duration, held: &[Held]) {
    let before = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    let is_held = |task: u128| held.iter().any(|lease| lease.task.0 == task);
    match runyard_exec::workspace::remove_old(places, before, is_held) {
        Ok(0) => {}
        Ok(n_removed) => tracing::info!(n_removed, "files of old tasks are removed"),
        Err(error) => tracing::warn!(%error, "files of old tasks cannot be removed"),
    }
    if let Err(error) = places.uploads().remove_unneeded(age) {
        tracing::warn!(%error, "old uploads cannot be removed");
    }
}
