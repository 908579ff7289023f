//! How many files this program may have open. Each supervised run takes two of the server's (its process, its socket), and
//! the 1024 that many systems give at first would end near five hundred runs.

use std::sync::OnceLock;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

/// Where nothing limits them: the kernel's own default for one process (`fs.nr_open`), and more than it will ever need.
const UNLIMITED: u64 = 1 << 20;

static AT_FIRST: OnceLock<Rlimit> = OnceLock::new();

/// To as many as this program may have without asking anybody, and tells how many that are. Once is enough.
pub fn raise() -> u64 {
    let limit = *AT_FIRST.get_or_init(|| getrlimit(Resource::Nofile));
    let raised = limit.maximum.unwrap_or(UNLIMITED);
    match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..limit }) {
        Ok(()) => raised,
        Err(error) => {
            tracing::warn!(%error, "the number of open files cannot be raised");
            limit.current.unwrap_or(UNLIMITED)
        }
    }
}

/// A program that is started gets what this one was given: some believe that no number of a file is above 1024.
pub(crate) fn give_as_it_was(pid: Pid) {
    if let Some(limit) = AT_FIRST.get() {
        // An error says that it has ended.
        let _ = prlimit(Some(pid), Resource::Nofile, *limit);
    }
}
