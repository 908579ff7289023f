//! What `/proc` knows of the processes on this machine.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stat {
    pub pid: i32,
    pub ppid: i32,
    pub pgid: i32,
    pub is_alive: bool,
    /// In clock ticks since boot: with the pid it names one process for ever.
    pub start: u64,
}

pub(super) fn pids() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

pub(super) fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may itself contain blanks and parentheses.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    let ppid = fields.next()?.parse().ok()?;
    let pgid = fields.next()?.parse().ok()?;
    let start = fields.nth(16)?.parse().ok()?;
    Some(Stat { pid, ppid, pgid, is_alive: !matches!(state, "Z" | "X" | "x"), start })
}

/// Everybody. Each is looked at by itself, so it is not one moment's picture.
pub(super) fn all() -> Vec<Stat> {
    pids().into_iter().filter_map(stat).collect()
}

/// Processes of the group that are more than a zombie.
pub(super) fn alive_in_group(pgid: i32) -> Vec<i32> {
    let members = all().into_iter().filter(|stat| stat.pgid == pgid && stat.is_alive);
    members.map(|stat| stat.pid).collect()
}

/// The environment a process was started with.
pub(super) enum Environ {
    Shown(Variables),
    /// It has none, or is in the middle of an `exec`: the old one is gone and the new one not there yet.
    Blank,
    /// Dead, a zombie, part of the kernel, or none of our business.
    Gone,
}

/// `NAME=value`, each ended by a zero byte.
pub(super) struct Variables(Vec<u8>);

impl Variables {
    pub(super) fn has(&self, matches: impl Fn(&[u8]) -> bool) -> bool {
        self.0.split(|byte| *byte == 0).any(matches)
    }
}

pub(super) fn environ(pid: i32) -> Environ {
    match fs::read(format!("/proc/{pid}/environ")) {
        Ok(bytes) if !bytes.is_empty() => Environ::Shown(Variables(bytes)),
        // Only what has a program of its own can be in an `exec`: a zombie and a kernel thread have none.
        Ok(_) if fs::read_link(format!("/proc/{pid}/exe")).is_ok() => Environ::Blank,
        _ => Environ::Gone,
    }
}

/// The words it was started with; none for a zombie and for a part of the kernel.
pub(super) fn arguments(pid: i32) -> Vec<OsString> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = bytes.strip_suffix(b"\0").unwrap_or(&bytes).split(|byte| *byte == 0);
    words.map(|word| OsString::from_vec(word.to_vec())).collect()
}

pub(super) fn boot_id() -> String {
    line_of("/proc/sys/kernel/random/boot_id")
}

pub(super) fn host() -> String {
    line_of("/proc/sys/kernel/hostname")
}

fn line_of(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_in_the_table() {
        let pid = std::process::id() as i32;
        assert!(pids().contains(&pid));
        let stat = stat(pid).expect("this process has a stat");
        assert!(stat.is_alive && stat.start > 0);
        assert_eq!(stat.pgid, rustix::process::getpgrp().as_raw_nonzero().get());
        assert!(alive_in_group(stat.pgid).contains(&pid));
        assert!(!boot_id().is_empty());
        assert_eq!(arguments(pid), std::env::args_os().collect::<Vec<_>>());
    }
}
