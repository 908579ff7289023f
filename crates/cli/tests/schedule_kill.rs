//! Each moment of a schedule is fired exactly once, whenever the server is killed.
//!
//! The real binary is killed again and again around the moments at which schedules of one and two seconds are due, and
//! started anew on the same data. In the end every moment since a schedule was made has one run, that run has one task,
//! and that task has run once. Each is back within a minute, so by the rule none of them is missed.

#![allow(clippy::unwrap_used)]

mod moments;
mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use moments::{moments, ms, nominal};
use serde_json::{Value, json};
use support::{Server, runs, stop_supervised, wait_until};

/// Names, and how often they are due in milliseconds.
const SCHEDULES: [(&str, i64); 4] = [("one", 1000), ("other-one", 1000), ("one-and-a-half", 1500), ("two", 2000)];
const CONFIG: &str = "[schedules]\nkeepRuns = 1000000\n";
const SOON: Duration = Duration::from_secs(60);

#[test]
fn every_moment_is_fired_exactly_once_whenever_the_server_is_killed() {
    let n_kills: u64 = std::env::var("RUNYARD_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(30);
    let dir = tempfile::tempdir().unwrap();
    let (data, marks) = (dir.path().join("data"), dir.path().join("marks"));
    std::fs::create_dir_all(&marks).unwrap();
    let _guard = Guard(data.clone());
    let mut server = start(&data);
    SCHEDULES.iter().for_each(|(name, every_ms)| make(&server, name, *every_ms, &marks));
    for kill in 0..n_kills {
        wait_for_the_moment(&server, kill);
        server.kill9();
        server = start(&data);
    }
    // One more of each, so that what was due at the last kill is surely behind it.
    let after = now_ms();
    for (name, every_ms) in SCHEDULES {
        wait_until(SOON, "it goes on", || moments(|path| server.get(path), name).keys().any(|at| *at > after));
        assert_eq!(server.post(&format!("/v1/schedules/{name}/pause"), "{}").status, 200);
        check(&server, name, every_ms, &marks);
    }
    wait_until(SOON, "nothing is left of the runs", || runs(&data).is_empty());
}

/// A test that fails must not leave processes behind.
struct Guard(PathBuf);

impl Drop for Guard {
    fn drop(&mut self) {
        stop_supervised(&self.0);
    }
}

fn start(data: &Path) -> Server {
    Server::start_with(data, &["--no-auth"], CONFIG)
}

/// Its task notes the moment it is for.
fn make(server: &Server, name: &str, every_ms: i64, marks: &Path) {
    let script = format!("echo {{{{scheduledFor}}}} >> {}", marks.join(name).display());
    let body = json!({
        "name": name, "schedule": {"kind": "every", "everyMs": every_ms}, "overlap": "allow",
        "task": {"kind": "process", "payload": {"shell": script}},
    });
    let answer = server.post("/v1/schedules", &body.to_string());
    assert_eq!(answer.status, 201, "{}", answer.body);
}

/// From a little before one of them is due to a little after, spread without a random number so that a failure can be
/// looked at again.
fn wait_for_the_moment(server: &Server, kill: u64) {
    let (name, _) = SCHEDULES[kill as usize % SCHEDULES.len()];
    let due = ms(&server.get(&format!("/v1/schedules/{name}"))["nextRunAt"]);
    let offset = (kill * 37 % 110) as i64 - 30;
    wait_until(SOON, "the moment comes", || now_ms() >= due + offset);
}

fn check(server: &Server, name: &str, every_ms: i64, marks: &Path) {
    let is_live = |run: &Value| run["outcome"] == "running";
    let runs = || moments(|path| server.get(path), name);
    wait_until(SOON, "every run has ended", || !runs().values().any(is_live));
    let schedule = server.get(&format!("/v1/schedules/{name}"));
    let all = runs();
    let expected = nominal(&schedule, every_ms, all.len());
    assert_eq!(all.keys().copied().collect::<Vec<_>>(), expected, "{name}: none is left out");
    for run in all.values() {
        assert_eq!((&run["outcome"], &run["attempts"]), (&json!("completed"), &json!(1)), "{name}: {run:#}");
        let task = server.task(run["taskId"].as_str().unwrap());
        assert_eq!(task["schedule"], json!({"id": schedule["id"], "run": run["run"]}), "{task:#}");
    }
    let noted = std::fs::read_to_string(marks.join(name)).unwrap();
    let mut noted: Vec<i64> = noted.lines().map(|at| ms(&Value::from(at))).collect();
    noted.sort_unstable();
    assert_eq!(noted, expected, "{name}: each ran once");
    eprintln!("{name}: {} moments, each fired and run once", all.len());
}

fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
