//! The working directory of a process or a container, from before its start until after its end.
//!
//! ```text
//! nothing ─ prepare: emptied, our own files, then those of the payload ─► ready ─ the run ─► ended
//! ended ─ settle: outputs are collected as artifacts ─► collected ─ by its policy ─► removed | kept
//! ```
//!
//! All of it is done by the worker, around the run: a supervisor finds a directory that is ready and leaves one that has
//! ended, so it needs no HTTP client and no table of artifacts, and stays small. A worker that dies in between leaves the
//! directory as it is; the next one prepares it anew, or settles it, by the run it belongs to.
//!
//! What comes in is not trusted (archives, answers of servers) and neither is what the process leaves. So every step is
//! counted against a limit with a name, and is done through open descriptors that follow no link ([`folder`]).

mod artifacts;
mod budget;
mod collect;
mod files;
mod folder;
#[cfg(test)]
mod fuzz;
mod old;
mod outputs;
mod path;
mod receive;
mod rules;
mod stage;
pub(crate) mod tree;
mod unpack;
mod uploads;
mod zip;

pub use artifacts::{Artifact, Artifacts, LeftOut, remove_artifacts, remove_files};
pub(crate) use files::{FileFields, FileSource, FileSpec, Outputs, parse_files, parse_work_dir};
pub use old::{ArtifactsHere, LogHere, artifacts_here, logs_here, remove_old};
pub use receive::{ReceiveError, Received};
pub use rules::{WorkDir, WorkspaceRules};
pub use uploads::{Incoming, Upload, Uploads};

use std::fs::{self, OpenOptions};
use std::future::Future;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::pin::{Pin, pin};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::http::Http;
use crate::job::{Job, Signs};
use crate::log::LogWriter;
use crate::outcome::{Failure, Outcome};
use crate::payload::{Staging, staging_of};
use crate::places::{Places, create_private_dir};
use crate::process::task_file;
use budget::Hindrance;
use collect::Collected;
use stage::{Sources, Stage};

/// How many files that are left out are noted in the log one by one; the task's artifacts list more.
const NOTES_MAX: usize = 20;

/// Where uploads are that were handed in on another machine.
pub trait RemoteUploads: Send + Sync {
    /// Puts it among this machine's uploads, under the same id.
    fn bring<'a>(&'a self, job: &'a Job, upload: u128, signs: &'a dyn Signs) -> BoxFuture<'a, Result<(), Failure>>;
}

/// One of several kinds of futures.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub(crate) struct Workspaces {
    places: Arc<Places>,
    http: Arc<Http>,
    remote: Option<Arc<dyn RemoteUploads>>,
}

impl Workspaces {
    pub(crate) fn new(places: Arc<Places>, http: Arc<Http>, remote: Option<Arc<dyn RemoteUploads>>) -> Workspaces {
        Workspaces { places, http, remote }
    }

    /// Makes the directory and fills it, unless `halted` comes first and says how the attempt ends instead. When this
    /// returns, nothing is at work in the directory any more; what is not ready is removed again, so that nobody takes it
    /// for what a run has left.
    pub(crate) async fn prepare(
        &self,
        job: &Job,
        files: Vec<FileSpec>,
        signs: &dyn Signs,
        halted: impl Future<Output = Outcome>,
    ) -> Result<(), Outcome> {
        let filled = self.fill_unless(job, files, signs, halted).await;
        if filled.is_err() {
            let (places, task) = (self.places.clone(), job.task);
            let _ = tokio::task::spawn_blocking(move || tidy(&places, task, false)).await;
        }
        filled
    }

    async fn fill_unless(
        &self,
        job: &Job,
        files: Vec<FileSpec>,
        signs: &dyn Signs,
        halted: impl Future<Output = Outcome>,
    ) -> Result<(), Outcome> {
        let halt = CancellationToken::new();
        let _halted_when_dropped = halt.clone().drop_guard();
        let mut filling = pin!(self.fill(job, files, signs, halt.clone()));
        tokio::select! {
            filled = &mut filling => filled.map_err(|hindrance| match hindrance {
                Hindrance::Failed(failure) => failure.into(),
                Hindrance::Halted => unreachable!("nobody has halted it"),
            }),
            outcome = halted => {
                halt.cancel();
                let _ = filling.await;
                Err(outcome)
            }
        }
    }

    async fn fill(
        &self,
        job: &Job,
        files: Vec<FileSpec>,
        signs: &dyn Signs,
        halt: CancellationToken,
    ) -> Result<(), Hindrance> {
        let (places, its_job) = (self.places.clone(), job.clone());
        let made = tokio::task::spawn_blocking(move || {
            make(&places, &its_job).and_then(|()| Stage::new(&places, &its_job, halt))
        });
        let stage = made.await.map_err(io::Error::other).and_then(|made| made).map_err(|error| {
            let path = self.places.work_dir(job.task);
            Failure::worker(format!("the working directory {} cannot be made: {error}", path.display()))
        })?;
        let remote = self.remote.as_deref();
        Sources { places: &self.places, http: &self.http, signs, job, remote }.put_all(stage, files).await
    }

    /// Collects what is to be kept, and tidies up.
    pub(crate) async fn settle(&self, job: &Job, outcome: &Outcome, signs: &dyn Signs) {
        let Some(end) = End::of(outcome) else { return };
        let (places, job) = (self.places.clone(), job.clone());
        let settled = tokio::task::spawn_blocking(move || settle(&places, &job, end)).await;
        if let Ok(Some(log_bytes)) = settled {
            signs.log_grew(log_bytes);
        }
    }

    /// As [`Self::settle`], for a run that ended while no worker was there to see it. It blocks.
    pub(crate) fn settle_now(&self, job: &Job, outcome: &Outcome) {
        if let Some(end) = End::of(outcome) {
            settle(&self.places, job, end);
        }
    }
}

/// What a working directory is left by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Completed,
    NotCompleted,
    /// There was no run, so there is nothing to collect and nothing to look at.
    NeverBegan,
}

impl End {
    /// `None` for a run that goes on.
    fn of(outcome: &Outcome) -> Option<End> {
        match outcome {
            Outcome::Completed { .. } => Some(End::Completed),
            Outcome::Failed(_) | Outcome::Stopped | Outcome::Lost { .. } => Some(End::NotCompleted),
            Outcome::NotStarted { .. } => Some(End::NeverBegan),
            Outcome::Left => None,
        }
    }

    fn keeps(self, policy: WorkDir) -> bool {
        match (self, policy) {
            (End::NeverBegan, _) | (_, WorkDir::Remove) => false,
            (_, WorkDir::Keep) => true,
            (end, WorkDir::KeepOnFailure) => end == End::NotCompleted,
        }
    }
}

/// Empty at the start of every attempt but for our own files. The report file is there to be appended to.
fn make(places: &Places, job: &Job) -> io::Result<()> {
    let work_dir = places.work_dir(job.task);
    create_private_dir(&places.work_root())?;
    tree::remove(&work_dir)?;
    artifacts::remove_file(&places.kept_mark(job.task))?;
    create_private_dir(&work_dir)?;
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(places.report_file(job.task))?;
    task_file::write(&work_dir, &task_file::content(job))
}

/// Gives the length of the log when something was noted in it. Without the directory there is nothing to do: it was
/// settled before, and what was collected then stays.
fn settle(places: &Places, job: &Job, end: End) -> Option<u64> {
    // Asked without following a link, which is what a process may have made of it.
    fs::symlink_metadata(places.work_dir(job.task)).ok()?;
    let Staging { outputs, work_dir, .. } = staging_of(job).unwrap_or_default();
    let mut is_kept = end.keeps(work_dir.unwrap_or(job.workspace.work_dir));
    let mut log = LogWriter::new(places.log_file(job.task, job.attempt), job.output_bytes_max);
    if end != End::NeverBegan && !outputs.is_empty() {
        match collect::collect(places, job, &outputs) {
            Ok(collected) => note(&collected, &mut log),
            Err(error) => {
                tracing::warn!(task = job.task_text(), %error, "the outputs of a task cannot be collected");
                log.note(&format!("its outputs cannot be collected, so its working directory is kept: {error}"));
                is_kept = true;
            }
        }
    }
    tidy(places, job.task, is_kept);
    Some(log.file_bytes()).filter(|bytes| *bytes > 0)
}

fn tidy(places: &Places, task: u128, is_kept: bool) {
    let work_dir = places.work_dir(task);
    let tidied = if is_kept { fs::write(places.kept_mark(task), "") } else { tree::remove(&work_dir) };
    if let Err(error) = tidied {
        tracing::warn!(path = %work_dir.display(), %error, "a working directory cannot be tidied");
    }
}

/// Tells in the log what a person may have expected among the artifacts.
fn note(collected: &Collected, log: &mut LogWriter) {
    for pattern in &collected.unmet {
        log.note(&format!("outputs: `{pattern}` matches no file"));
    }
    let left_out = &collected.artifacts.left_out;
    for item in left_out.iter().take(NOTES_MAX) {
        log.note(&format!("outputs: `{}` is left out: {}", item.path.escape_debug(), item.reason));
    }
    if left_out.len() > NOTES_MAX {
        log.note("outputs: … and more are left out; the task's artifacts list them");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
