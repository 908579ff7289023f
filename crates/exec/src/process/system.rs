//! Five requests to the kernel that the language cannot check. This is the one place with `unsafe` in it.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Lets the runtime wait until the descriptor is readable.
pub(super) fn watch_readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open and stays the same descriptor until it is dropped, which the `AsyncFd` does after it
    // has withdrawn the registration; nobody here reaches into it to replace it.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    Ok(watched?)
}

/// No program that is started from now on inherits a file that this one was itself started with: a supervisor, or a task,
/// that outlives the server would keep whoever waits for the other end waiting. What this program opens by itself is
/// never inherited. An old kernel refuses, and everything stays as it is.
#[cfg(target_os = "linux")]
pub(super) fn keep_files_to_self() {
    const AFTER_STANDARD_ERROR: libc::c_uint = 3;
    // SAFETY: it sets a flag on open descriptors that only an `exec` looks at; nothing is closed in this process.
    unsafe {
        libc::syscall(libc::SYS_close_range, AFTER_STANDARD_ERROR, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn keep_files_to_self() {}

/// Lets go of the program text that only the start has needed: what a supervisor does in the hours that follow fits in a
/// fraction of it. Whatever is needed again is mapped again, from the pages that all supervisors share anyway.
#[cfg(target_os = "linux")]
pub(super) fn forget_program_text() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for (start, end) in maps.lines().filter_map(text_range) {
        // SAFETY: the range is an executable mapping of a file that cannot be written to, so the kernel reads the same
        // bytes from that file again; nothing in this process changes or removes such mappings.
        unsafe {
            libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_DONTNEED);
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn forget_program_text() {}

/// Where a line of `/proc/self/maps` speaks of program text.
fn text_range(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let is_text = fields.next() == Some("r-xp") && fields.nth(3).is_some_and(|path| path.starts_with('/'));
    let address = |text| usize::from_str_radix(text, 16).ok();
    address(start).zip(address(end)).filter(|_| is_text)
}

/// What all children that have ended and were waited for have used, and theirs.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct ChildrenUsage {
    pub cpu: Duration,
    /// Of the largest one.
    pub peak_rss_bytes: u64,
}

pub(super) fn children_usage() -> ChildrenUsage {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills the structure it is given, which lives until the call is over; all its fields are numbers,
    // for which zeroes are as good as any other bytes.
    let usage = unsafe {
        if libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) != 0 {
            return ChildrenUsage::default();
        }
        usage.assume_init()
    };
    let duration = |time: libc::timeval| {
        let micros = u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0);
        Duration::from_micros(micros)
    };
    let peak_kib = u64::try_from(usage.ru_maxrss).unwrap_or(0);
    ChildrenUsage { cpu: duration(usage.ru_utime) + duration(usage.ru_stime), peak_rss_bytes: peak_kib * 1024 }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_what_is_executable_and_has_a_file() {
        let text = "55d0-55f0 r-xp 0001 fe:00 12  /usr/bin/runyard";
        assert_eq!(text_range(text), Some((0x55d0, 0x55f0)));
        for other in ["7f00-7f10 r--p 0 fe:00 12 /lib/x.so", "7fff-8000 r-xp 0 00:00 0 [vdso]", "1-2 r-xp 0 0:0 0", ""]
        {
            assert_eq!(text_range(other), None, "{other}");
        }
        // Nothing is lost by it.
        forget_program_text();
        assert_eq!(text_range(text), Some((0x55d0, 0x55f0)));
    }
}
