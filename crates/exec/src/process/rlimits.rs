//! Limits that the kernel keeps for each process by itself, where there are no control groups to keep them for all.

use std::io;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::tree;

/// How much memory a process may write to, in bytes. Its children inherit it.
///
/// The data segment is limited and not the address space: many runtimes reserve far more addresses than they ever use,
/// and would not even start.
///
/// It is set from outside, on a process that has just been started, so what that one has already started gets it too.
pub(super) fn limit_ram(pid: Pid, bytes: u64) -> io::Result<()> {
    let limit = || Rlimit { current: Some(bytes), maximum: Some(bytes) };
    prlimit(Some(pid), Resource::Data, limit())?;
    for descendant in tree::descendants_of(pid) {
        // An error says that it has ended.
        let _ = prlimit(Some(descendant), Resource::Data, limit());
    }
    Ok(())
}
