//! What happened: the shared event stream, a task's own history, its output.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Class, Id, Json, Priority, Timestamp};

/// One event of the stream.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventView {
    /// `seq-index`: events are in commit order. Send it as Last-Event-ID to go on behind it. Absent where an event is
    /// not in the log but only sent live, as progress is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Its name, such as `task.completed`.
    #[serde(rename = "type")]
    pub kind: String,
    /// When it happened.
    pub at: Timestamp,
    /// The task it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Id>,
    /// That task's agent, or that of the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// That task's lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// That task's kind.
    #[serde(default, rename = "kind", skip_serializing_if = "Option::is_none")]
    pub task_kind: Option<String>,
    /// That task's tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// The batch it is about, or that the task belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<Id>,
    /// The session it is about, or that the task belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The schedule it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Id>,
    /// Which attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The class behind a failure, a retry or a rejection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// Why, where there is something to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Anything else: a batch's or a session's counts, a worker's name, a schedule's name and run, a task's progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Json>,
}

/// One step of a task's own history, kept as long as the task.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepView {
    /// What happened: `created`, `queued`, `started`, `retrying`, and so on.
    pub step: String,
    /// When.
    pub at: Timestamp,
    /// In which attempt; 0 before the first.
    pub attempt: u32,
    /// The class of the failure, or the reason of the stop, behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A line of a task's output.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    /// Where it came from.
    pub stream: LogStream,
    /// When it was read.
    pub at: Timestamp,
    /// The text, without the line's end.
    pub text: String,
    /// The attempt that wrote it.
    pub attempt: u32,
}

/// Where a line of output came from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogStream {
    Stdout,
    Stderr,
    /// The runner's own word, such as that output was cut.
    Note,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_is_only_sent_live_has_no_id() {
        let text = r#"{"type":"task.progress","at":"2026-01-01T00:00:00.000Z","attempt":1,"data":{"fraction":0.5}}"#;
        let event: EventView = serde_json::from_str(text).unwrap();
        assert_eq!((&event.id, event.kind.as_str()), (&None, "task.progress"));
        assert_eq!(serde_json::to_string(&event).unwrap(), text);
    }
}
