//! What can be done to a task that is there: list, change, keep alive, cancel.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::json::nullable;
use crate::object::object;
use crate::{Id, Priority, TaskState, Timestamp};

/// One page of a list.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListPage<T> {
    /// Newest first. A filtered page may be short and still have a next one.
    pub items: Vec<T>,
    /// Hand it back as `cursor` for the next page; absent on the last one.
    #[serde(default = "Option::default", skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// What may still be changed before a task starts.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct ChangeRequest {
    /// Another tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// Another place inside its agent, lower first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<i32>,
    /// Another deadline; null removes it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "nullable")]
    #[schema(value_type = Option<Timestamp>)]
    pub deadline: Option<Option<Timestamp>>,
    /// Not before this moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
}

object!(ChangeRequest);

/// Why a task is cancelled; the whole body may be left out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct CancelRequest {
    /// For people; shown with the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

object!(CancelRequest);

/// What a cancel did.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CancelAnswer {
    /// The task.
    pub id: Id,
    /// `cancelled`, or still `running` while it is being stopped.
    pub state: TaskState,
    /// Why, where there is something to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// A sign of life of a running task; the whole body may be left out.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct HeartbeatRequest {
    /// The part that is done, 0.0 to 1.0. Not given: as it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<f64>,
    /// What it is doing. Not given: as it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

object!(HeartbeatRequest);

/// Which tasks to cancel: all that match every field given. At least one field besides `reason` is required.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct CancelFilter {
    /// Tasks of this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Tasks in any of these states.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub state: Vec<TaskState>,
    /// Tasks of this lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// Tasks of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Tasks of this batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<Id>,
    /// Tasks of this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// For people; shown with each task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

object!(CancelFilter);

/// What a cancel of many did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CancelManyAnswer {
    /// Live tasks that matched.
    pub matched: u64,
    /// Of these, ended at once.
    pub cancelled: u64,
    /// Of these, still running and being stopped.
    pub stopping: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    #[test]
    fn a_deadline_can_be_removed_and_left_alone() {
        assert_eq!(parse::<ChangeRequest>(b"{}").unwrap().deadline, None);
        assert_eq!(parse::<ChangeRequest>(br#"{"deadline":null}"#).unwrap().deadline, Some(None));
        let set: ChangeRequest = parse(br#"{"deadline":"1970-01-01T00:00:01Z"}"#).unwrap();
        assert_eq!(set.deadline, Some(Some(Timestamp(1000))));
    }
}
