//! The closed sets of words that requests and answers use.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Gives an enum of words its list, its text and a `Display`, so that none of them can be forgotten for a new word.
macro_rules! words {
    ($type:ident { $($variant:ident = $text:literal),+ $(,)? }) => {
        impl $type {
            pub const ALL: &'static [$type] = &[$($type::$variant),+];

            pub fn as_str(self) -> &'static str {
                match self { $($type::$variant => $text),+ }
            }
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<$type, String> {
                $type::ALL.iter().copied().find(|word| word.as_str() == text).ok_or_else(|| {
                    format!("`{}` is none of {}", text, [$($text),+].join(", "))
                })
            }
        }
    };
}

pub(crate) use words;

/// Compared across all agents: a higher tier is served first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    Critical,
    High,
    #[default]
    Normal,
    Low,
}

words!(Priority { Critical = "critical", High = "high", Normal = "normal", Low = "low" });

/// Where a task stands. The last four are terminal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TaskState {
    /// For dependencies, for its turn in its session, or for a place in its batch.
    Waiting,
    /// For a time: a delay, a retry's backoff, or the pause in which more messages may come.
    Scheduled,
    /// Ready: only capacity is missing.
    Queued,
    /// Handed to a worker that has not begun yet.
    Assigned,
    Running,
    Completed,
    Failed,
    Cancelled,
    /// Not admitted; kept for the record.
    Rejected,
}

words!(TaskState {
    Waiting = "waiting",
    Scheduled = "scheduled",
    Queued = "queued",
    Assigned = "assigned",
    Running = "running",
    Completed = "completed",
    Failed = "failed",
    Cancelled = "cancelled",
    Rejected = "rejected",
});

impl TaskState {
    pub fn is_terminal(self) -> bool {
        self >= TaskState::Completed
    }
}

/// Why an attempt failed; it decides whether it is retried.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// The work itself failed.
    Task,
    /// The attempt took longer than timeoutMs.
    Timeout,
    /// The worker or executor is gone.
    Lost,
    /// A provider's limit.
    Quota,
    /// It cannot work as asked; never retried.
    Permanent,
    /// The task's own deadline is past; never retried.
    Deadline,
}

words!(Class {
    Task = "task",
    Timeout = "timeout",
    Lost = "lost",
    Quota = "quota",
    Permanent = "permanent",
    Deadline = "deadline",
});

/// What becomes of a task whose dependency ended badly.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnDependencyFailure {
    #[default]
    Cancel,
    Fail,
    Run,
}

words!(OnDependencyFailure { Cancel = "cancel", Fail = "fail", Run = "run" });

/// What one bad item means for a batch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum BatchMode {
    /// One bad item and nothing is stored.
    #[default]
    All,
    /// Each item answers for itself.
    Partial,
}

words!(BatchMode { All = "all", Partial = "partial" });

/// What becomes of a message that comes while its session is busy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, ToSchema, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SessionMode {
    /// In order.
    #[default]
    Queue,
    /// In order, as `queue`.
    Followup,
    /// What comes during a run becomes one follow-up.
    Collect,
    /// Handed to the running task if it takes input, else in order.
    Steer,
    /// The running task is stopped, the waiting ones are dropped; the new one starts when the old has stopped.
    Interrupt,
    /// Refused.
    Reject,
}

words!(SessionMode {
    Queue = "queue",
    Followup = "followup",
    Collect = "collect",
    Steer = "steer",
    Interrupt = "interrupt",
    Reject = "reject",
});

/// Who makes room when a session's line is full.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, ToSchema, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SessionDrop {
    /// The message that has waited longest.
    #[default]
    Old,
    /// The one that comes.
    New,
    /// As `old`, and the next run is told of it in one line.
    Summarize,
}

words!(SessionDrop { Old = "old", New = "new", Summarize = "summarize" });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_json_agree() {
        for state in TaskState::ALL {
            assert_eq!(serde_json::to_string(state).unwrap(), format!("\"{state}\""));
            assert_eq!(state.as_str().parse::<TaskState>().unwrap(), *state);
        }
        for class in Class::ALL {
            assert_eq!(serde_json::to_string(class).unwrap(), format!("\"{class}\""));
        }
        for mode in SessionMode::ALL {
            assert_eq!(serde_json::to_string(mode).unwrap(), format!("\"{mode}\""));
        }
        assert!("urgent".parse::<Priority>().unwrap_err().contains("critical, high"));
    }
}
