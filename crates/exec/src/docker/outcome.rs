//! What the end of a container means.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use bollard::models::ContainerState;

use super::watch::Words;
use crate::limits::Limits;
use crate::outcome::{Class, Outcome};
use crate::process::exit;

/// What the first process of a container says when it cannot start the command.
const INIT_FAILED: &str = "[FATAL tini";

/// How it exited, as if it had been a process here.
pub(super) fn status_of(state: &ContainerState) -> Option<ExitStatus> {
    let code = state.exit_code.and_then(|code| i32::try_from(code).ok())?;
    Some(ExitStatus::from_raw((code & 0xff) << 8))
}

pub(super) fn was_out_of_memory(state: &ContainerState) -> bool {
    state.oom_killed == Some(true)
}

pub(super) fn of_end(status: ExitStatus, out_of_memory: bool, limits: &Limits, words: Words) -> Outcome {
    let Words { stdout, stderr, reported } = words;
    let never_began = stderr.last_line().filter(|line| line.starts_with(INIT_FAILED));
    let mut outcome = exit::outcome(status, exit::Said { stdout: &stdout, stderr: &stderr, printed: None }, reported);
    if let Outcome::Failed(failure) = &mut outcome {
        match (never_began, limits.ram_mb) {
            // On the next attempt it would say the same.
            (Some(line), _) => {
                failure.class = Class::Permanent;
                failure.message = format!("the command cannot be run in this image: {line}");
            }
            (None, Some(mb)) if out_of_memory => {
                failure.class = Class::Task;
                failure.message = format!("out of memory: limit {mb} MB");
            }
            _ => {}
        }
    }
    outcome
}
