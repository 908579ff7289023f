//! What an executor is given, and how it tells that the work is alive.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::docker::DockerRules;
use crate::limits::Limits;
use crate::payload::{self, Sandbox};
use crate::workspace::WorkspaceRules;

/// The kinds this crate can run. Any other kind belongs to a worker that claims it by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Http,
    Process,
    Docker,
    Noop,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Http, Kind::Process, Kind::Docker, Kind::Noop];

    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Http => "http",
            Kind::Process => "process",
            Kind::Docker => "docker",
            Kind::Noop => "noop",
        }
    }

    pub fn parse(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// One attempt of one task. A supervisor reads it from a file, and so does the worker that adopts the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    #[serde(rename = "taskId", with = "id_text")]
    pub task: u128,
    pub attempt: u32,
    /// By which lease the attempt is held. It means nothing here, and is there to be found again with the run.
    pub token: u64,
    #[serde(with = "shared_text")]
    pub agent: Arc<str>,
    /// The key of its session.
    #[serde(default, with = "shared_text_option")]
    pub session: Option<Arc<str>>,
    /// The trace that the work belongs to (W3C `traceparent`), handed on as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    pub kind: Kind,
    /// Of a kind that is this worker's own, which runs as a process: the program reads the payload, and what it prints is
    /// the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<PathBuf>,
    /// JSON, as submitted; `None` when the task has no payload.
    pub payload: Option<Box<RawValue>>,
    /// Milliseconds since the Unix epoch. Passed on to the work as information. Like the timeout it is the scheduler's
    /// to enforce: only a supervisor acts on it, when no scheduler has.
    #[serde(rename = "deadlineMs")]
    pub deadline: Option<u64>,
    /// Of this attempt.
    pub timeout_ms: u64,
    /// The scheduler measures how long the work has been silent.
    pub watch_silence: bool,
    /// Output beyond this is counted, not stored.
    pub output_bytes_max: u64,
    /// Of a process or a container.
    #[serde(default)]
    pub limits: Limits,
    /// Of a process that names none.
    #[serde(default)]
    pub sandbox: Sandbox,
    /// Of a process or a container, for its working directory.
    #[serde(default)]
    pub workspace: WorkspaceRules,
    /// Of a container: what this worker lets it have. Carried with the attempt, so that whoever ends it asks the engine
    /// that began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub docker: Option<Box<DockerRules>>,
    /// Between the request to stop and the kill.
    #[serde(rename = "graceMs", with = "milliseconds")]
    pub grace: Duration,
}

impl Job {
    /// The task's id as people see it.
    pub fn task_text(&self) -> String {
        task_text(self.task)
    }

    /// Does it read further lines while it runs?
    pub fn takes_input(&self) -> bool {
        self.program.is_none() && payload::takes_input(self.kind.as_str(), self.payload.as_deref())
    }
}

/// A task id in its lower-case hyphenated form.
pub fn task_text(task: u128) -> String {
    uuid::Uuid::from_u128(task).hyphenated().to_string()
}

/// The other way round.
pub fn task_of_text(text: &str) -> Option<u128> {
    uuid::Uuid::try_parse(text).ok().map(|id| id.as_u128())
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Progress {
    /// 0.0 to 1.0; absent when the work only sent a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fraction: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Of what a run says of itself, in characters.
const MESSAGE_CHARS_MAX: usize = 500;

impl Progress {
    /// As the work says it: a part beyond the whole is the whole, and a long message is cut.
    pub fn said(fraction: Option<f64>, message: Option<String>) -> Progress {
        Progress {
            fraction: fraction.map(|fraction| fraction.clamp(0.0, 1.0)),
            message: message.map(|text| text.chars().take(MESSAGE_CHARS_MAX).collect()),
        }
    }
}

/// Where a run tells what it sees. Called often and from the run's own task: implementations must be quick.
pub trait Signs: Send + Sync {
    /// It has begun, and will be found again whatever becomes of this program. Only runs that can go on without it say so.
    fn begun(&self) {}
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

/// An id as people see it.
pub(crate) mod id_text {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(id: &u128, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::task_text(*id))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::task_of_text(&text).ok_or_else(|| de::Error::custom(format!("`{text}` is not an id")))
    }
}

mod shared_text {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
        String::deserialize(deserializer).map(Arc::from)
    }
}

mod shared_text_option {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(text: &Option<Arc<str>>, serializer: S) -> Result<S::Ok, S::Error> {
        text.as_deref().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<str>>, D::Error> {
        Ok(Option::<String>::deserialize(deserializer)?.map(Arc::from))
    }
}

mod milliseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}
