//! Tasks submitted together.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::object::object;
use crate::{BatchMode, Id, Problem, TaskRequest, TaskState, Timestamp};

/// Tasks to be submitted together; they may name each other as `#name`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct BatchRequest {
    /// What one bad item means for the others (default `all`: nothing is stored).
    #[serde(default)]
    pub mode: BatchMode,
    /// How many of its tasks may be queued or running at once (default: all).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<u32>,
    /// Fields that every task has unless it says otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defaults: Option<Box<TaskRequest>>,
    /// Called when the whole batch has ended. It must be one that the server may call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback_url: Option<String>,
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Anything the submitter wants to find again; at most 16 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// A repeat with the same key and body gets the first answer again. May also be sent as a header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// 1 to 1000 tasks.
    pub tasks: Vec<TaskRequest>,
}

object!(BatchRequest);

/// What became of each task of a batch at its submit.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchAnswer {
    /// The batch.
    pub id: Id,
    /// One for each task, in the order they were sent.
    pub tasks: Vec<BatchItem>,
}

/// One task of a batch: accepted with its id and state, or refused with a problem.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum BatchItem {
    Accepted { id: Id, state: TaskState },
    Refused { error: Box<Problem> },
}

/// A batch and how far it is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchView {
    /// Its id.
    pub id: Id,
    /// `finished` when every task has ended.
    pub state: BatchState,
    /// How many of its tasks may be queued or running at once; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<u32>,
    /// Its tasks by how they stand.
    pub counts: BatchCounts,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What the submitter wants to find again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When its last task ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

/// Does a batch still have live tasks?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum BatchState {
    Running,
    Finished,
}

/// The tasks of a batch by how they stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchCounts {
    /// Tasks that were accepted.
    pub total: u32,
    /// Tasks that wait for a place in the batch.
    pub waiting: u32,
    /// Tasks that have not ended and do not wait for a place: they wait for something else, or run.
    pub active: u32,
    /// Ended well.
    pub completed: u32,
    /// Ended badly.
    pub failed: u32,
    /// Cancelled.
    pub cancelled: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_mixes_accepted_and_refused_items() {
        let text = r#"{"id":"00000000-0000-0000-0000-000000000001","tasks":[
            {"id":"00000000-0000-0000-0000-000000000002","state":"queued"},
            {"error":{"type":"about:blank","title":"Bad Request","status":400,"detail":"no","code":"invalid"}}]}"#;
        let answer: BatchAnswer = serde_json::from_str(text).unwrap();
        assert_eq!(answer.tasks[0], BatchItem::Accepted { id: Id(2), state: TaskState::Queued });
        let BatchItem::Refused { error } = &answer.tasks[1] else { panic!("refused") };
        assert_eq!(error.code, "invalid");
        let again: BatchAnswer = serde_json::from_str(&serde_json::to_string(&answer).unwrap()).unwrap();
        assert_eq!(again, answer);
    }
}
