//! Two requests to the kernel that the language cannot check. This is the one place with `unsafe` in it.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Lets the runtime wait until the descriptor is readable.
pub(super) fn watch_readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open and stays the same descriptor until it is dropped, which the `AsyncFd` does after it
    // has withdrawn the registration; nobody here reaches into it to replace it.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    Ok(watched?)
}

/// The kernel kills the process when the server dies, however it dies.
///
/// The signal is bound to the thread that starts the process, not to the program: that thread must live as long as
/// the server does.
#[cfg(target_os = "linux")]
pub(super) fn die_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    let bind = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        // The parent may have died before the signal was bound; then nothing would ever send it.
        if rustix::process::getppid() != Some(parent) {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::SRCH.raw_os_error()));
        }
        Ok(())
    };
    // SAFETY: the closure runs between fork and exec, where only async-signal-safe calls are allowed. It makes two
    // system calls (prctl, getppid) directly, allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(bind);
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn die_with_parent(_command: &mut Command) {}
