//! The call in which a worker says everything and hears everything.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{MachineMetrics, Token};
use crate::object::object;
use crate::words::words;
use crate::{Class, Id, Json, Limits, Timestamp, UsageView};

/// All that a worker has to say now. What the answer does not refuse is stored; without an answer the same is said again.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct SyncRequest {
    /// As the registration gave it.
    pub session: Token,
    /// Greater with each sync of a session: one that arrives behind a later one is known by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// How its machine is doing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<MachineMetrics>,
    /// Why it should get nothing for now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unhealthy: Option<String>,
    /// It says goodbye: it gets nothing more, and what it still holds has the usual time to be presented again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
    /// It takes so many more than it holds (default: as many as have room).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub want: Option<u32>,
    /// Every lease it has: what runs, and what has ended but is not acknowledged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldLease>,
    /// What has begun since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub started: Vec<HeldLease>,
    /// What gave a sign of life since; only asked for where the start said `watchSilence`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alive: Vec<HeldLease>,
    /// Messages that have been handed to the work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputTaken>,
    /// What has ended, and how.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub done: Vec<WorkDone>,
    /// How far what runs says it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub progress: Vec<ProgressNote>,
    /// What has been added to the logs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<LogChunk>,
    /// If there is nothing to answer, wait so long for something, 0 to 30000 (default 10000).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

object!(SyncRequest);

/// One attempt of a task that a worker has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct HeldLease {
    /// Its task.
    pub task: Id,
    /// Which run of it.
    pub attempt: u32,
    /// As its start gave it.
    pub token: Token,
}

object!(HeldLease);

/// A message that was handed to the work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct InputTaken {
    /// The task that took it.
    pub task: Id,
    /// Which run of it.
    pub attempt: u32,
    /// As its start gave it.
    pub token: Token,
    /// The message.
    pub message: Id,
}

object!(InputTaken);

/// The end of an attempt.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct WorkDone {
    /// Its task.
    pub task: Id,
    /// Which run of it.
    pub attempt: u32,
    /// As its start gave it.
    pub token: Token,
    /// How it ended.
    pub outcome: WorkOutcome,
}

object!(WorkDone);

impl WorkDone {
    pub fn lease(&self) -> HeldLease {
        HeldLease { task: self.task, attempt: self.attempt, token: self.token }
    }
}

/// How an attempt ended. `failed` needs `class` and `message`, `notStarted` needs `message`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct WorkOutcome {
    /// In one word.
    pub state: WorkEnd,
    /// completed, failed: what it gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    /// completed, failed: tokens it used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageView>,
    /// failed: what kind of failure; `deadline` is not for workers to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// failed, notStarted: for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// failed with class quota: not again before so many milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// failed: `worker` cools this worker down (default `work`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<FaultOf>,
    /// completed, failed: how its command ended, if it was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<WorkExit>,
}

object!(WorkOutcome);

/// How an attempt ended, in one word.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum WorkEnd {
    /// The work is done.
    #[default]
    Completed,
    /// It failed.
    Failed,
    /// It was asked to stop, and nothing of it is alive.
    Stopped,
    /// It is handed back, and nothing of it ever ran.
    NotStarted,
}

words!(WorkEnd { Completed = "completed", Failed = "failed", Stopped = "stopped", NotStarted = "notStarted" });

/// Whose fault a failure was.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FaultOf {
    /// The work's own.
    #[default]
    Work,
    /// The worker's, or its executor's: it gets nothing for a while.
    Worker,
}

words!(FaultOf { Work = "work", Worker = "worker" });

/// How a command ended, and what it took.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct WorkExit {
    /// What it exited with; absent when a signal ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// What ended it, such as `SIGKILL`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// It was over its limit of memory.
    #[serde(default)]
    pub out_of_memory: bool,
    /// Of the command and everything it started.
    #[serde(default)]
    pub cpu_seconds: f64,
    /// Of the largest of its processes.
    #[serde(default)]
    pub peak_rss_bytes: u64,
    /// How long it ran, in milliseconds.
    #[serde(default)]
    pub wall_ms: u64,
}

object!(WorkExit);

/// How far a running attempt says it is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct ProgressNote {
    /// Its task.
    pub task: Id,
    /// Which run of it.
    pub attempt: u32,
    /// As its start gave it.
    pub token: Token,
    /// The part that is done, 0.0 to 1.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fraction: Option<f64>,
    /// What it is doing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

object!(ProgressNote);

/// A part of an attempt's log file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct LogChunk {
    /// Its task.
    pub task: Id,
    /// Which run of it.
    pub attempt: u32,
    /// As its start gave it.
    pub token: Token,
    /// Where in the file it begins, in bytes. What the server has already is passed over; a gap is not taken.
    pub offset: u64,
    /// Bytes of the file, in base64.
    pub data: String,
}

object!(LogChunk);

/// All that a worker has to know now. What it may have missed is said again until a later sync shows that it is known.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncAnswer {
    /// To be run. One that the worker has, or has had, is a repetition and changes nothing.
    #[serde(default)]
    pub start: Vec<StartOrder>,
    /// To be stopped: ask, grace, kill, then `done`. What the worker does not have is answered with `stopped` at once.
    #[serde(default)]
    pub stop: Vec<StopOrder>,
    /// Messages for what runs.
    #[serde(default)]
    pub input: Vec<InputOrder>,
    /// Not this worker's any more: to be stopped, and nothing is reported of it.
    #[serde(default)]
    pub revoked: Vec<LeaseRef>,
    /// Reports on leases that do not live: they changed nothing, and are not to be repeated.
    #[serde(default)]
    pub refused: Vec<RefusedReport>,
    /// How much of each log is stored.
    #[serde(default)]
    pub logged: Vec<LogTaken>,
    /// The worker is to be heard from this often.
    pub heartbeat_ms: u64,
}

/// A task to run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartOrder {
    /// Its id.
    pub task: Id,
    /// Which run of it.
    pub attempt: u32,
    /// To be said in everything that is reported of it.
    pub token: Token,
    /// What kind of work.
    pub kind: String,
    /// Whose work.
    pub agent: String,
    /// The key of its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// It is of no use after this moment. The server sees to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// How long the attempt may take. The server sees to it.
    pub timeout_ms: u64,
    /// Signs of life are to be reported for it.
    pub watch_silence: bool,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Json>,
    /// What is to be enforced while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// Of the trace it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// The values behind each `secret://NAME` in the payload. They belong in no log and on no disk.
    #[serde(default, skip_serializing_if = "SecretValues::is_empty")]
    pub secrets: SecretValues,
}

/// Values of secrets by their names; only the names are ever printed.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = BTreeMap<String, String>)]
pub struct SecretValues(pub BTreeMap<String, String>);

impl SecretValues {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for SecretValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

/// An attempt to be stopped.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StopOrder {
    /// Its task.
    pub task: Id,
    /// Which run of it.
    pub attempt: u32,
    /// As its start gave it.
    pub token: Token,
    /// Why, in a word or a few.
    pub reason: String,
}

/// A message for an attempt that runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InputOrder {
    /// Its task.
    pub task: Id,
    /// Which run of it.
    pub attempt: u32,
    /// As its start gave it.
    pub token: Token,
    /// For `inputs`, when the work has taken it.
    pub message: Id,
    /// What it says.
    pub text: String,
}

/// An attempt, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaseRef {
    /// Its task.
    pub task: Id,
    /// Which run of it.
    pub attempt: u32,
}

/// A report that came too late, or from somebody who does not hold the attempt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusedReport {
    /// Its task.
    pub task: Id,
    /// Which run of it.
    pub attempt: u32,
    /// As if it had been a request of its own.
    pub status: u16,
    /// `stale_lease`.
    pub code: String,
}

/// How much of a log is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogTaken {
    /// Its task.
    pub task: Id,
    /// Which run of it.
    pub attempt: u32,
    /// Bytes from its beginning; the next chunk begins here.
    pub offset: u64,
}
