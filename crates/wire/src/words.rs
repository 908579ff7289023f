//! The closed sets of words that requests and answers use.

use std::fmt;

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

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
    /// For dependencies, or for a place in its batch.
    Waiting,
    /// For a time: a delay, or a retry's backoff.
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
        assert!("urgent".parse::<Priority>().unwrap_err().contains("critical, high"));
    }
}
