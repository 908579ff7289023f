//! What `/proc` knows of the processes on this machine.

use std::fs;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stat {
    pub pid: i32,
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
    let pgid = fields.nth(1)?.parse().ok()?;
    let start = fields.nth(16)?.parse().ok()?;
    Some(Stat { pid, pgid, is_alive: !matches!(state, "Z" | "X" | "x"), start })
}

/// Processes of the group that are more than a zombie.
pub(super) fn alive_in_group(pgid: i32) -> Vec<i32> {
    let members = pids().into_iter().filter_map(stat).filter(|stat| stat.pgid == pgid && stat.is_alive);
    members.map(|stat| stat.pid).collect()
}

/// Is there a variable (`NAME=value`) like this in the environment the process was started with? A zombie has none.
pub(super) fn environ_has(pid: i32, matches: impl Fn(&[u8]) -> bool) -> bool {
    fs::read(format!("/proc/{pid}/environ")).is_ok_and(|bytes| bytes.split(|byte| *byte == 0).any(matches))
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
    }
}
