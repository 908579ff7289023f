//! Processes outlive their server, so a test has to stop what it started by itself.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longer than any grace in these tests.
const LIMIT: Duration = Duration::from_secs(20);

/// Stops everything that supervisors run in this data directory. Its server must be gone: it would start it again.
pub fn stop_supervised(data: &Path) {
    let pids: Vec<u64> = runs(data).iter().filter_map(|run| supervisor(run)).collect();
    for pid in &pids {
        let _ = Command::new("kill").args(["-s", "TERM", &pid.to_string()]).output();
    }
    let began = Instant::now();
    while pids.iter().any(|pid| is_alive(*pid)) && began.elapsed() < LIMIT {
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// The directories of runs.
pub fn runs(data: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(data.join("runs"));
    entries.map(|entries| entries.flatten().map(|entry| entry.path()).collect()).unwrap_or_default()
}

/// More than a zombie.
pub fn is_alive(pid: u64) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X'])))
}

/// The pid of the supervisor, if it is the very process that the run's directory speaks of.
fn supervisor(run: &Path) -> Option<u64> {
    let identity: Value = serde_json::from_slice(&std::fs::read(run.join("supervisor.json")).ok()?).ok()?;
    let pid = identity["pid"].as_u64()?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let start: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    (identity["processStart"].as_u64() == Some(start)).then_some(pid)
}
