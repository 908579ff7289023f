//! What an executor is given, and how it tells that the work is alive.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

/// The kinds this crate can run. Any other kind belongs to a worker that claims it by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Http,
    Process,
    Noop,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Http, Kind::Process, Kind::Noop];

    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Http => "http",
            Kind::Process => "process",
            Kind::Noop => "noop",
        }
    }

    pub fn parse(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// One attempt of one task.
#[derive(Clone, Debug)]
pub struct Job {
    pub task: u128,
    pub attempt: u32,
    pub agent: Arc<str>,
    /// The key of its session.
    pub session: Option<Arc<str>>,
    pub kind: Kind,
    /// JSON, as submitted; `None` when the task has no payload.
    pub payload: Option<Box<RawValue>>,
    /// Milliseconds since the Unix epoch. Passed on to the work as information; nothing here acts on it.
    pub deadline: Option<u64>,
    /// Output beyond this is counted, not stored.
    pub output_bytes_max: u64,
    /// Between the request to stop and the kill.
    pub grace: Duration,
}

impl Job {
    /// The task's id as people see it.
    pub fn task_text(&self) -> String {
        task_text(self.task)
    }
}

/// A task id in its lower-case hyphenated form.
pub fn task_text(task: u128) -> String {
    uuid::Uuid::from_u128(task).hyphenated().to_string()
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Progress {
    /// 0.0 to 1.0; absent when the work only sent a message.
    pub fraction: Option<f64>,
    pub message: Option<String>,
}

/// Where a run tells what it sees. Called often and from the run's own task: implementations must be quick.
pub trait Signs: Send + Sync {
    /// Output, or bytes of an answer, arrived.
    fn alive(&self);
    /// The attempt's log file is now so long.
    fn log_grew(&self, log_bytes: u64);
    fn progress(&self, progress: Progress);
    /// The line that was handed in with this id is written to where the work reads it.
    fn input_taken(&self, id: u128);
}

/// For runs nobody watches.
pub struct NoSigns;

impl Signs for NoSigns {
    fn alive(&self) {}
    fn log_grew(&self, _log_bytes: u64) {}
    fn progress(&self, _progress: Progress) {}
    fn input_taken(&self, _id: u128) {}
}
