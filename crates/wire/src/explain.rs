//! Why a task waits.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Id, TaskState, Timestamp};

/// Why a task stands where it stands: each gate in the order they are checked, and its place in line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplainView {
    /// The task.
    pub task: Id,
    /// Where it stands.
    pub state: TaskState,
    /// Why, as the task itself says.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The answer in one sentence.
    pub summary: String,
    /// Everything that can hold it back, open or closed right now.
    pub gates: Vec<GateView>,
    /// Its place in line, while it is queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<PlaceInLine>,
}

/// One thing that can hold a task back.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GateView {
    /// `global`, `agent`, `lane`, `kind`, `gate`, `worker`, `dependencies`, `time`, `session`, `batch` or `order`.
    pub kind: String,
    /// Which one: the agent's name, the lane in force, and so on.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// May the task pass it now?
    pub open: bool,
    /// How much of it is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<u64>,
    /// How much of it there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Tasks that hold it, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Id>,
    /// Since when it has been closed for this task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// When it opens, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opens_at: Option<Timestamp>,
    /// What else there is to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// A queued task's place among those that pass the same gates.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlaceInLine {
    /// So many go before it.
    pub ahead: u32,
    /// Counting stopped at `ahead`: there may be more.
    pub at_least: bool,
    /// The task that would be served next, if one could start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_served: Option<Id>,
}
