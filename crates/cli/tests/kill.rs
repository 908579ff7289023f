//! An accepted submit survives `kill -9` at any moment, and so does a running process.
//!
//! The real binary is killed again and again under load and started anew on the same data. In the end every task it ever
//! acknowledged must be there, ended, with one final outcome; and every process must have run exactly once, to its end,
//! however many servers came and went meanwhile.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use support::{Server, is_terminal, runs, stop_supervised, wait_until};

const CLIENTS: u64 = 4;

#[test]
fn every_accepted_task_survives_kill_9_and_ends_once() {
    let n_kills: u64 = std::env::var("RUNYARD_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(100);
    let dir = tempfile::tempdir().unwrap();
    let (data, marks) = (dir.path().join("data"), dir.path().join("marks"));
    std::fs::create_dir_all(&marks).unwrap();
    let _guard = Guard(data.clone());
    let accepted: Arc<Mutex<Vec<String>>> = Arc::default();
    let n_sent = Arc::new(AtomicU64::new(0));
    for kill in 0..n_kills {
        let mut server = Server::start(&data);
        load_until_killed(&mut server, kill, &marks, &accepted, &n_sent);
    }
    let server = Server::start(&data);
    let accepted = accepted.lock().unwrap();
    eprintln!(
        "{n_kills} kills, {} submits sent, {} tasks acknowledged",
        n_sent.load(Ordering::Relaxed),
        accepted.len()
    );
    assert!(accepted.len() as u64 >= n_kills, "the server was under load: {} tasks", accepted.len());
    let ends = ends_of_all(&server, &accepted);
    eprintln!("{ends:?}");
    let n_processes = check_runs(&marks);
    eprintln!("{n_processes} processes, each ran once");
    assert!(n_processes as u64 >= n_kills / 4, "processes were under way: {n_processes}");
    wait_until(Duration::from_secs(30), "nothing is left of the runs", || runs(&data).is_empty());
    assert_eq!(std::fs::read_dir(data.join("running")).unwrap().count(), 0, "no lease is left");
}

/// A test that fails must not leave processes behind.
struct Guard(PathBuf);

impl Drop for Guard {
    fn drop(&mut self) {
        stop_supervised(&self.0);
    }
}

/// Each process has begun once and ended once. Gives how many there were.
fn check_runs(marks: &Path) -> usize {
    let entries = std::fs::read_dir(marks).unwrap().map(|entry| entry.unwrap().path());
    let runs: Vec<_> = entries.map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect();
    for (path, marks) in &runs {
        assert_eq!(marks, "begun\nended\n", "{}", path.display());
    }
    runs.len()
}

/// Loads the server from a few clients, and kills it in the middle after a time that differs from kill to kill.
fn load_until_killed(
    server: &mut Server,
    kill: u64,
    marks: &Path,
    accepted: &Arc<Mutex<Vec<String>>>,
    n_sent: &Arc<AtomicU64>,
) {
    let is_over = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (is_over, server, n_sent) = (is_over.clone(), &*server, n_sent.clone());
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let n = n_sent.fetch_add(1, Ordering::Relaxed);
                    let ids = submit_one(server, client, n, marks);
                    accepted.lock().unwrap().extend(ids);
                }
            });
        }
        // 20 to 180 ms, spread without a random number so that a failure can be looked at again.
        std::thread::park_timeout(Duration::from_millis(20 + kill * 37 % 160));
        let status = std::process::Command::new("kill").args(["-9", &server.pid().to_string()]).status().unwrap();
        assert!(status.success());
        is_over.store(true, Ordering::Relaxed);
    });
    server.kill9();
}

/// One submit; gives the ids that the server acknowledged.
fn submit_one(server: &Server, client: u64, n: u64, marks: &Path) -> Vec<String> {
    let agent = format!("agent-{client}");
    let (path, body) = match n % 8 {
        0 => ("/v1/tasks", process_task(&agent, n, marks)),
        1 => ("/v1/tasks", format!(r#"{{"kind":"noop","agent":"{agent}","payload":{{"sleepMs":30}}}}"#)),
        2 => ("/v1/tasks", format!(r#"{{"kind":"noop","agent":"{agent}","delayMs":50}}"#)),
        3 => (
            "/v1/tasks",
            format!(
                r#"{{"kind":"noop","agent":"{agent}","payload":{{"fail":"task"}},"retry":{{"maxRetries":1,"backoffMs":20}}}}"#
            ),
        ),
        4 => (
            "/v1/batches",
            format!(
                r##"{{"parallelism":2,"defaults":{{"agent":"{agent}","kind":"noop"}},
                   "tasks":[{{"name":"a"}},{{"name":"b","dependsOn":["#a"]}},{{"dependsOn":["#a","#b"]}},{{}}]}}"##
            ),
        ),
        5 => ("/v1/tasks", message(&agent, n)),
        _ => ("/v1/tasks", format!(r#"{{"kind":"noop","agent":"{agent}"}}"#)),
    };
    let Some(answer) = server.try_request("POST", path, &[], &body).filter(|answer| answer.status == 201) else {
        return Vec::new();
    };
    let Ok(json) = serde_json::from_str::<serde_json::Value>(&answer.body) else { return Vec::new() };
    let id = |value: &serde_json::Value| value["id"].as_str().map(str::to_owned);
    match json["tasks"].as_array() {
        Some(items) => items.iter().filter_map(id).collect(),
        None => id(&json).into_iter().collect(),
    }
}

/// To a session of its client, in a mode that changes from message to message: in order, merged, interrupted.
fn message(agent: &str, n: u64) -> String {
    let mode = ["queue", "collect", "interrupt"][n as usize / 8 % 3];
    format!(
        r#"{{"kind":"noop","agent":"{agent}","payload":{{"sleepMs":10,"message":"{n}"}},
            "session":{{"key":"chat:{agent}","mode":"{mode}","debounceMs":{}}}}}"#,
        n / 8 % 2 * 20
    )
}

/// Notes when it begins and when it ends. It takes long enough to see one server die, and often two.
fn process_task(agent: &str, n: u64, marks: &Path) -> String {
    let mark = marks.join(n.to_string());
    let mark = mark.display();
    let script = format!("echo begun >> {mark}; sleep 0.4; echo ended >> {mark}");
    format!(r#"{{"kind":"process","agent":"{agent}","payload":{{"shell":"{script}"}}}}"#)
}

fn ends_of_all(server: &Server, accepted: &[String]) -> BTreeMap<String, u64> {
    let mut ends: BTreeMap<String, u64> = BTreeMap::new();
    let began = Instant::now();
    for id in accepted {
        wait_until(Duration::from_secs(120), "every accepted task ends", || {
            let answer = server.request("GET", &format!("/v1/tasks/{id}"), "");
            assert_eq!(answer.status, 200, "task {id} was acknowledged and is gone: {}", answer.body);
            is_terminal(answer.json()["state"].as_str().unwrap())
        });
        let task = server.task(id);
        if task["kind"] == "process" {
            assert_eq!((&task["state"], task["attempts"].as_u64()), (&"completed".into(), Some(1)), "{task:#}");
        }
        let steps = server.get(&format!("/v1/tasks/{id}/events"));
        let n_final = count_final(&steps);
        assert_eq!(n_final, 1, "task {id} has {n_final} ends: {task:#} {steps:#}");
        *ends.entry(task["state"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    eprintln!("accounted for {} tasks in {:?}", accepted.len(), began.elapsed());
    ends
}

fn count_final(steps: &serde_json::Value) -> usize {
    let items = steps["items"].as_array().or(steps.as_array()).expect("a task's history is a list");
    let name = |step: &serde_json::Value| {
        let name = step["type"].as_str().or(step["step"].as_str()).or(step["kind"].as_str()).unwrap_or_default();
        name.trim_start_matches("task.").to_owned()
    };
    items.iter().filter(|step| is_terminal(&name(step))).count()
}
