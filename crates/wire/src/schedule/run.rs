//! One moment of a schedule, and what came of it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::words::words;
use crate::{Class, Id, Timestamp, UsageView};

/// One run of a schedule. It outlives its schedule.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunView {
    /// Its number, from 1.
    pub run: u64,
    /// The moment it is the run of, as the timing gives it.
    pub scheduled_for: Timestamp,
    /// Why there is one.
    pub cause: RunCause,
    /// Its task; a run that was skipped or missed has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<Id>,
    /// What came of it.
    pub outcome: RunOutcome,
    /// How many moments were missed together, this being the latest of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<u32>,
    /// When it was fired, skipped, or found to be missed.
    pub created_at: Timestamp,
    /// When its latest attempt began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// How long its latest attempt ran, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Attempts that really began.
    pub attempts: u32,
    /// The class of the failure that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// Why it ended so, where there is something to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Tokens it says it has used.
    #[serde(flatten)]
    pub usage: UsageView,
    /// The end of what its task gave back, at most 16 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<String>,
}

/// Why there is a run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum RunCause {
    /// Its time came.
    Time,
    /// Its time had passed while the server was down.
    CatchUp,
    /// Somebody asked for it.
    Hand,
}

words!(RunCause { Time = "time", CatchUp = "catchUp", Hand = "hand" });

/// What came of a run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunOutcome {
    /// Its task has not ended; it may still wait.
    Running,
    Completed,
    Failed,
    Cancelled,
    /// An earlier one was still at work, or there was no room.
    Skipped,
    /// The server was down.
    Missed,
}

words!(RunOutcome {
    Running = "running",
    Completed = "completed",
    Failed = "failed",
    Cancelled = "cancelled",
    Skipped = "skipped",
    Missed = "missed",
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_stand_beside_the_rest() {
        let text = r#"{"run":3,"scheduledFor":"2026-01-01T00:00:00.000Z","cause":"catchUp","outcome":"skipped","createdAt":"2026-01-01T00:00:00.000Z","attempts":0,"inputTokens":5}"#;
        let run: RunView = serde_json::from_str(text).unwrap();
        assert_eq!((run.usage.input_tokens, run.cause, run.outcome), (Some(5), RunCause::CatchUp, RunOutcome::Skipped));
        assert_eq!(serde_json::to_string(&run).unwrap(), text);
    }
}
