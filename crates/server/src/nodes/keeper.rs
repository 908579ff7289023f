//! Files of ended attempts, kept in the database: they come in on the disk of the node that holds the lease, and the next
//! holder has another disk.
//!
//! What has ended is kept right behind the commit that ended it. What was missed then (this node died in between, the database
//! was away, there were too many at once) is found on the disk: when a node starts, when it begins to follow, and every hour.
//! That look also removes what lies here of tasks that retention has taken, which only the holder of that moment is told of:
//! not at once, because somebody may have started this node on another database than he meant.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use runyard_core::event::{Happening, HappeningKind, Subject};
use runyard_core::ids::TaskId;
use runyard_exec::workspace::{Artifacts, ArtifactsHere, artifacts_here, logs_here};
use runyard_exec::{Kind, Places};
use runyard_store::postgres::{KeptArtifact, Known, OfAttempt, PgDepot};
use runyard_store::store;

use crate::observe::remove_files;
use crate::server::STORE_FILE;

/// Ends that wait for their files to be read. Beyond it the oldest are left to the next look at the disk.
const WAITING_MAX: usize = 100_000;
/// As much of a log as is kept of it anywhere.
const LOG_BYTES_MAX: u64 = 10 * 1024 * 1024 + 64 * 1024;
const LOOK_EVERY: Duration = Duration::from_secs(3600);
/// What nobody knows of stays for so long.
const STRAY_AGE_MIN: Duration = Duration::from_secs(86_400);
/// Attempts that the database is asked about in one go.
const CHUNK: usize = 500;

/// Hands ended attempts to a thread of its own, which ends with it.
pub struct Keeper {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    news: Condvar,
}

#[derive(Default)]
struct Queue {
    ended: VecDeque<Ended>,
    looks: bool,
    closed: bool,
}

#[derive(Clone, Copy)]
struct Ended {
    of: OfAttempt,
    leaves_files: bool,
}

enum Work {
    Keep(Ended),
    Look,
}

impl Keeper {
    /// It begins with a look at the disk.
    pub fn start(depot: Arc<PgDepot>, places: Places) -> Keeper {
        let shared = Arc::new(Shared::default());
        shared.lock().looks = true;
        let working = shared.clone();
        let disk = Disk { depot, places };
        std::thread::Builder::new()
            .name("file-keeper".into())
            .spawn(move || working.run(&disk))
            .expect("the operating system gives one more thread");
        Keeper { shared }
    }

    /// Called with each commit; what did not end an attempt is passed over.
    pub fn observe(&self, happenings: &[Happening]) {
        let mut queue = self.shared.lock();
        let n_before = queue.ended.len();
        queue.ended.extend(happenings.iter().filter_map(ended_attempt));
        if queue.ended.len() == n_before {
            return;
        }
        let n_over = queue.ended.len().saturating_sub(WAITING_MAX);
        queue.ended.drain(..n_over);
        queue.looks |= n_over > 0;
        drop(queue);
        self.shared.news.notify_one();
    }

    /// Has the disk looked at.
    pub fn look(&self) {
        self.shared.lock().looks = true;
        self.shared.news.notify_one();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.news.notify_one();
    }
}

impl Shared {
    fn run(&self, disk: &Disk) {
        let mut looked_at = Instant::now();
        while let Some(work) = self.next(looked_at + LOOK_EVERY) {
            match work {
                Work::Keep(ended) => disk.keep_ended(ended),
                Work::Look => {
                    looked_at = Instant::now();
                    if let Err(error) = disk.look() {
                        tracing::warn!(target: "runyard::nodes", error = &*error,
                            "files of ended tasks may be on this node only; looking again in an hour");
                    }
                }
            }
        }
    }

    /// What has ended first: somebody may be about to ask for it elsewhere.
    fn next(&self, look_at: Instant) -> Option<Work> {
        let idle = |queue: &mut Queue| queue.ended.is_empty() && !queue.looks && !queue.closed;
        let pause = look_at.saturating_duration_since(Instant::now());
        let (mut queue, timeout) = self.news.wait_timeout_while(self.lock(), pause, idle).expect(UNPOISONED);
        match queue.ended.pop_front() {
            Some(ended) => Some(Work::Keep(ended)),
            None if queue.closed => None,
            None => {
                debug_assert!(queue.looks || timeout.timed_out(), "something is to be done");
                queue.looks = false;
                Some(Work::Look)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect(UNPOISONED)
    }
}

const UNPOISONED: &str = "no thread panics while it holds the queue";

/// This node's disk, and where its files are to be.
struct Disk {
    depot: Arc<PgDepot>,
    places: Places,
}

type Anything = Box<dyn std::error::Error + Send + Sync>;

impl Disk {
    fn keep_ended(&self, Ended { of, leaves_files }: Ended) {
        let kept = self.keep_log(of).and_then(|()| if leaves_files { self.keep_artifacts_of(of) } else { Ok(()) });
        if let Err(error) = kept {
            tracing::warn!(target: "runyard::nodes", task = ?of.task, attempt = of.attempt, error = &*error,
                "files of an ended attempt are on this node only for now");
        }
    }

    /// Most work prints nothing, and has no file.
    fn keep_log(&self, of: OfAttempt) -> Result<(), Anything> {
        let path = self.places.log_file(of.task.0, of.attempt);
        let Ok(about) = std::fs::metadata(&path) else { return Ok(()) };
        if about.len() == 0 || about.len() > LOG_BYTES_MAX {
            return Ok(());
        }
        Ok(self.depot.keep_log(of, &std::fs::read(&path)?)?)
    }

    fn keep_artifacts_of(&self, of: OfAttempt) -> Result<(), Anything> {
        let artifacts = Artifacts::of(&self.places, of.task.0)?;
        if artifacts.attempt != of.attempt || n_entries(&artifacts) == 0 {
            return Ok(());
        }
        match self.depot.known(&[of])?[..] {
            [known @ Known::Ended { .. }] => self.keep_missing(of, &artifacts, known),
            _ => Ok(()),
        }
    }

    fn keep_missing(&self, of: OfAttempt, artifacts: &Artifacts, known: Known) -> Result<(), Anything> {
        let Known::Ended { n_artifacts, .. } = known else { return Ok(()) };
        if n_artifacts >= n_entries(artifacts) {
            return Ok(());
        }
        for item in &artifacts.items {
            keep_artifact(&self.depot, &self.places, of, &item.path)?;
        }
        for left in &artifacts.left_out {
            self.depot.keep_left_out(of, &left.path, &left.reason)?;
        }
        Ok(())
    }

    fn look(&self) -> Result<(), Anything> {
        for logs in logs_here(&self.places)?.chunks(CHUNK) {
            let of: Vec<OfAttempt> = logs.iter().map(|log| of_attempt(log.task, log.attempt)).collect();
            for ((of, known), log) in of.iter().zip(self.depot.known(&of)?).zip(logs) {
                match known {
                    Known::Gone => self.remove_stray(of.task, log.changed_at),
                    Known::Ended { log_bytes, .. } if log_bytes.is_none_or(|n| n < log.bytes) => self.keep_log(*of)?,
                    Known::Ended { .. } | Known::Runs => {}
                }
            }
        }
        for tasks in artifacts_here(&self.places)?.chunks(CHUNK) {
            self.look_at_artifacts(tasks)?;
        }
        Ok(())
    }

    fn look_at_artifacts(&self, found: &[ArtifactsHere]) -> Result<(), Anything> {
        let tables = found.iter().map(|here| Artifacts::of(&self.places, here.task)).collect::<io::Result<Vec<_>>>()?;
        let of: Vec<OfAttempt> =
            found.iter().zip(&tables).map(|(here, table)| of_attempt(here.task, table.attempt)).collect();
        let known = self.depot.known(&of)?;
        for (((here, table), of), known) in found.iter().zip(&tables).zip(of).zip(known) {
            match known {
                Known::Gone => self.remove_stray(of.task, here.changed_at),
                known => self.keep_missing(of, table, known)?,
            }
        }
        Ok(())
    }

    /// A directory that is also the home of a store of its own keeps what it has.
    fn remove_stray(&self, task: TaskId, changed_at: SystemTime) {
        let is_old = changed_at.elapsed().is_ok_and(|age| age >= STRAY_AGE_MIN);
        if is_old && !self.places.data_dir().join(STORE_FILE).exists() {
            remove_files(&self.places, task);
        }
    }
}

/// Puts one file that a task left, and that lies here, where every node can have it. One that is gone meanwhile is passed over.
pub fn keep_artifact(depot: &PgDepot, places: &Places, of: OfAttempt, path: &str) -> Result<(), KeepError> {
    let Some((artifact, mut file)) = Artifacts::open(places, of.task.0, path)? else { return Ok(()) };
    let item = KeptArtifact { path: artifact.path, bytes: artifact.bytes, sha256: artifact.sha256 };
    Ok(depot.keep_artifact(of, &item, &mut file)?)
}

#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    #[error("a file cannot be read")]
    Disk(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] store::Error),
}

fn n_entries(artifacts: &Artifacts) -> u64 {
    (artifacts.items.len() + artifacts.left_out.len()) as u64
}

fn of_attempt(task: u128, attempt: u32) -> OfAttempt {
    OfAttempt { task: TaskId(task), attempt }
}

fn ended_attempt(happening: &Happening) -> Option<Ended> {
    use HappeningKind::{TaskCancelled, TaskCompleted, TaskFailed, TaskPreempted, TaskRetrying};
    let ends = matches!(happening.kind, TaskCompleted | TaskFailed | TaskCancelled | TaskRetrying | TaskPreempted);
    match &happening.subject {
        Subject::Task(facts) if ends && facts.attempt > 0 => {
            let leaves_files = matches!(Kind::parse(&facts.kind), Some(Kind::Process | Kind::Docker));
            Some(Ended { of: OfAttempt { task: facts.task, attempt: facts.attempt }, leaves_files })
        }
        _ => None,
    }
}
