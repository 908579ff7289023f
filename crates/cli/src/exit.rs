//! What the process tells its caller in one number.

use std::process::ExitCode;

use runyard_wire::TaskState;

/// Shown by `runyard --help`; the numbers are part of the interface.
pub const HELP: &str = "\
Exit codes:
    0  done; the task completed
    1  the task failed
    2  the command line or a local file is wrong
    3  the task was cancelled
    4  the server refused the request, or the task was rejected
    5  the server cannot be reached, or failed
    6  there is no such task, batch, session, schedule, key, …
    7  another process is this worker now
  124  timed out while waiting

Environment:
  RUNYARD_URL           address of the server
  RUNYARD_API_KEY       key to sign in with; RUNYARD_API_KEY_FILE names a file that holds it
  RUNYARD_DATA          data directory; the address and key of a server on this machine are found there
  NO_COLOR              no colours";

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Exit {
    Done = 0,
    Failed = 1,
    Usage = 2,
    Cancelled = 3,
    Refused = 4,
    Unavailable = 5,
    NotFound = 6,
    Fenced = 7,
    TimedOut = 124,
}

impl Exit {
    /// How a task that ended so is reported.
    pub fn of_state(state: TaskState) -> Exit {
        match state {
            TaskState::Failed => Exit::Failed,
            TaskState::Cancelled => Exit::Cancelled,
            TaskState::Rejected => Exit::Refused,
            _ => Exit::Done,
        }
    }

    /// Of several outcomes the one that is reported: the first of failed, cancelled, refused, … that occurs.
    pub fn worst(self, other: Exit) -> Exit {
        match (self, other) {
            (Exit::Done, other) => other,
            (this, Exit::Done) => this,
            (this, other) => this.min(other),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_outweighs_a_cancel_and_both_outweigh_success() {
        assert_eq!(Exit::Done.worst(Exit::Cancelled), Exit::Cancelled);
        assert_eq!(Exit::Cancelled.worst(Exit::Failed), Exit::Failed);
        assert_eq!(Exit::Failed.worst(Exit::Done), Exit::Failed);
        assert_eq!(Exit::of_state(TaskState::Completed), Exit::Done);
    }
}
