//! How a run ended. The scheduler decides what that means.

use serde::{Deserialize, Serialize};

use crate::usage::Usage;

/// Why the work failed, as far as an executor can tell. `deadline` is the scheduler's own, and a loss is no failure of
/// the work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Class {
    Task,
    Timeout,
    Quota,
    Permanent,
}

/// Whose fault was it? Only a broken worker or executor is cooled down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Fault {
    Work,
    Worker,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    Completed {
        /// JSON.
        result: Option<Vec<u8>>,
        usage: Option<Usage>,
    },
    Failed(Failure),
    /// Asked to stop, and nothing of it is alive any more.
    Stopped,
    /// Nobody knows how it ended; nothing of it is alive any more.
    Lost {
        reason: String,
    },
    /// Nothing of it ever ran, and that was not its fault.
    NotStarted {
        reason: String,
    },
    /// It goes on without this worker, and the next one adopts it.
    Left,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Failure {
    pub class: Class,
    pub message: String,
    /// What the other side asked us to wait.
    pub retry_after_ms: Option<u64>,
    /// JSON.
    pub result: Option<Vec<u8>>,
    /// Boxed, because a failure is the error of many functions that mostly go well.
    pub usage: Option<Box<Usage>>,
    pub fault: Fault,
}

impl Failure {
    pub fn work(class: Class, message: impl Into<String>) -> Failure {
        Failure { class, message: message.into(), retry_after_ms: None, result: None, usage: None, fault: Fault::Work }
    }

    /// The work never had a chance: this machine or this program is at fault.
    pub fn worker(message: impl Into<String>) -> Failure {
        Failure { fault: Fault::Worker, ..Failure::work(Class::Task, message) }
    }

    pub fn with_result(mut self, result: Vec<u8>) -> Failure {
        self.result = Some(result);
        self
    }

    pub fn with_usage(mut self, usage: Option<Usage>) -> Failure {
        self.usage = usage.map(Box::new);
        self
    }
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Outcome {
        Outcome::Failed(failure)
    }
}
