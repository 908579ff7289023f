//! Who looks at a run while it goes on: the scheduler (is it alive? has it taken its input?), readers of its log, readers of its progress.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use runyard_core::event::{Event, Held, Report};
use runyard_core::ids::{TaskId, WorkerId};
use runyard_exec::{Progress, Signs};
use tokio::sync::{broadcast, watch};

use crate::input::Inbox;
use crate::link::Link;

/// Signs of life are told at most so often: silence is measured in seconds.
const ALIVE_EVERY_MS: u64 = 1000;

/// A log that may still grow.
pub struct LogFollow {
    pub attempt: u32,
    pub path: PathBuf,
    /// The file's length. Closed when the attempt has ended: then one last read gets the rest.
    pub bytes: watch::Receiver<u64>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct ProgressEvent {
    pub task: TaskId,
    pub attempt: u32,
    pub progress: Progress,
}

pub(crate) struct Watch {
    pub(crate) worker: WorkerId,
    pub(crate) lease: Held,
    pub(crate) silence: Silence,
    /// Has its start been told, or is to be?
    pub(crate) has_begun: AtomicBool,
    pub(crate) link: Arc<dyn Link>,
    pub(crate) born: Instant,
    /// Milliseconds after `born` from which on the next sign of life is told.
    pub(crate) tell_alive_at: AtomicU64,
    pub(crate) inbox: Inbox,
    pub(crate) log_bytes: watch::Sender<u64>,
    pub(crate) progress: Mutex<Option<Progress>>,
    pub(crate) progress_events: broadcast::Sender<ProgressEvent>,
}

/// Does the scheduler measure how long a run has been silent?
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Silence {
    Watched,
    Ignored,
}

impl Watch {
    pub(crate) fn progress_now(&self) -> Option<Progress> {
        self.progress.lock().expect("no thread panics while it holds the progress").clone()
    }

    pub(crate) fn taken_event(&self, message: TaskId) -> Event {
        report_event(self.worker, self.lease, Report::InputTaken { message })
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    fn is_time_to_tell(&self) -> bool {
        let now = u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX);
        let due = self.tell_alive_at.load(Ordering::Relaxed);
        let next = now.saturating_add(ALIVE_EVERY_MS);
        now >= due && self.tell_alive_at.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl Signs for Watch {
    fn begun(&self) {
        if !self.has_begun.swap(true, Ordering::Relaxed) {
            self.link.report(vec![report_event(self.worker, self.lease, Report::Started)]);
        }
    }

    fn alive(&self) {
        if self.silence == Silence::Watched && self.is_time_to_tell() {
            self.link.report(vec![report_event(self.worker, self.lease, Report::Alive)]);
        }
    }

    fn log_grew(&self, log_bytes: u64) {
        if self.log_bytes.send_if_modified(|bytes| std::mem::replace(bytes, log_bytes) != log_bytes) {
            self.link.log_grew(self.lease, log_bytes);
        }
    }

    fn progress(&self, progress: Progress) {
        let merged = {
            let mut last = self.progress.lock().expect("no thread panics while it holds the progress");
            let earlier = last.take().unwrap_or_default();
            // A message alone does not take the fraction back, nor the other way round.
            let merged = Progress {
                fraction: progress.fraction.or(earlier.fraction),
                message: progress.message.or(earlier.message),
            };
            last.insert(merged).clone()
        };
        let event = ProgressEvent { task: self.lease.task, attempt: self.lease.attempt, progress: merged };
        // An error only says that nobody listens.
        let _ = self.progress_events.send(event);
    }

    fn input_taken(&self, id: u128) {
        let message = TaskId(id);
        self.inbox.take(message);
        self.link.report(vec![self.taken_event(message)]);
    }
}

pub(crate) fn report_event(worker: WorkerId, lease: Held, report: Report) -> Event {
    Event::Report { worker, task: lease.task, attempt: lease.attempt, token: lease.token, report }
}
