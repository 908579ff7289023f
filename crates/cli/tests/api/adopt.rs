//! A process outlives its server: it is adopted by the next one, or its end is found.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::scene::{SOON, Scene, Stream, n, text};
use crate::support::{is_alive, runs, wait_until};

/// Says that it is there, waits for the file, and says that it goes.
fn until_told(go: &Path) -> Value {
    let shell = format!("echo on $$; while [ ! -e {} ]; do sleep 0.02; done; echo off", go.display());
    json!({"kind": "process", "payload": {"shell": shell}})
}

/// Runs as long as it is let.
fn endless() -> Value {
    json!({"kind": "process", "payload": {"shell": "echo on $$; exec sleep 1000"}})
}

impl Scene {
    /// The pid of the command, once it says so.
    fn command_of(&self, id: &str) -> u64 {
        let mut pid = None;
        wait_until(SOON, "the command runs", || {
            let log = self.log_of(id);
            pid = log.lines().find_map(|line| line.strip_prefix("on ")?.trim().parse().ok());
            pid.is_some()
        });
        pid.unwrap()
    }

    fn log_of(&self, id: &str) -> String {
        self.request("GET", &format!("/v1/tasks/{id}/logs"), "").body
    }

    fn killed_and_started_again(&mut self) {
        self.server_mut().kill9();
        self.start_again();
    }

    /// Everything that runs leaves behind is gone when its outcome is known.
    fn nothing_is_left(&self) {
        wait_until(SOON, "the directory of the run is removed", || runs(&self.data()).is_empty());
        let leases = std::fs::read_dir(self.data().join("running")).unwrap().count();
        assert_eq!(leases, 0);
    }
}

/// Design 13, tinyscheduler 32: a stop of the server does not wait for a process, and does not stop it.
#[test]
fn a_process_goes_on_over_a_clean_stop_and_is_adopted() {
    let mut scene = Scene::with("[server]\ndrainMs = 60000\n");
    let go = scene.home().join("go");
    let id = scene.submit(until_told(&go));
    let pid = scene.command_of(&id);
    let began = Instant::now();
    assert!(scene.server_mut().terminate().success());
    assert!(began.elapsed() < Duration::from_secs(20), "it waited {:?}", began.elapsed());
    assert!(is_alive(pid));
    scene.start_again();
    assert_eq!((scene.state(&id).as_str(), scene.command_of(&id)), ("running", pid));
    std::fs::write(&go, "").unwrap();
    let task = scene.ends_as("completed", &id);
    assert_eq!((n(&task["attempts"]), n(&task["retriesLeft"])), (1, 3), "{task:#}");
    assert_eq!(text(&task["result"]["stdout"]), format!("on {pid}\noff\n"));
    assert_eq!(scene.steps(&id), ["created", "queued", "assigned", "started", "completed"]);
    scene.nothing_is_left();
}

/// The issue: kill -9 of the server changes nothing for a process, however often.
#[test]
fn a_process_survives_its_server_again_and_again() {
    let mut scene = Scene::new();
    let go = scene.home().join("go");
    let id = scene.submit(until_told(&go));
    let pid = scene.command_of(&id);
    for _ in 0..3 {
        scene.killed_and_started_again();
        assert_eq!((scene.state(&id).as_str(), is_alive(pid)), ("running", true));
    }
    std::fs::write(&go, "").unwrap();
    let task = scene.ends_as("completed", &id);
    assert_eq!((n(&task["attempts"]), text(&task["result"]["stdout"])), (1, format!("on {pid}\noff\n")));
    scene.nothing_is_left();
}

/// The issue: the outcome is taken from the exit record even if the process ended while no server ran.
#[test]
fn an_end_without_a_server_is_found_by_the_next_one() {
    let mut scene = Scene::new();
    let go = scene.home().join("go");
    let good = scene.submit(until_told(&go));
    let shell = format!("echo on $$; while [ ! -e {} ]; do sleep 0.02; done; echo sorry >&2; exit 3", go.display());
    let bad = scene.submit(json!({"kind": "process", "payload": {"shell": shell}, "retry": {"maxRetries": 0}}));
    let pids = [scene.command_of(&good), scene.command_of(&bad)];
    scene.server_mut().kill9();
    std::fs::write(&go, "").unwrap();
    wait_until(SOON, "both have ended", || !pids.iter().any(|pid| is_alive(*pid)));
    let is_recorded = |run: &std::path::PathBuf| run.join("exit.json").exists();
    wait_until(SOON, "both have left a record", || runs(&scene.data()).iter().all(is_recorded));
    let records: Vec<Value> = runs(&scene.data()).iter().map(|run| json_of(&run.join("exit.json"))).collect();
    for record in &records {
        let numbers = ["cpuSeconds", "peakRssBytes", "wallMs"].map(|name| record[name].as_f64().unwrap());
        assert!(numbers.iter().all(|number| *number > 0.0), "{record:#}");
    }
    let mut codes: Vec<_> = records.iter().map(|record| n(&record["exitCode"])).collect();
    codes.sort();
    assert_eq!(codes, [0, 3]);
    scene.start_again();
    let task = scene.ends_as("completed", &good);
    assert_eq!((n(&task["attempts"]), text(&task["result"]["stdout"])), (1, format!("on {}\noff\n", pids[0])));
    let task = scene.ends_as("failed", &bad);
    assert_eq!((n(&task["attempts"]), text(&task["error"]["message"])), (1, "exit code 3: sorry".to_owned()));
    scene.nothing_is_left();
}

/// A cancel, a timeout and a deadline reach an adopted process, and everything it has started.
#[test]
fn an_adopted_process_is_stopped_like_any_other() {
    let mut scene = Scene::with("[worker]\ngraceMs = 200\n");
    let shell = "setsid sleep 1000 & echo on $!; trap '' TERM; while :; do sleep 0.05; done";
    let body = |extra: Value| {
        let mut body = json!({"kind": "process", "payload": {"shell": shell}, "retry": {"maxRetries": 0}});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        body
    };
    let cancelled = scene.submit(body(json!({})));
    let late = scene.submit(body(json!({"timeoutMs": 4000})));
    let expired = scene.submit(body(json!({"deadline": crate::scene::from_now(4000)})));
    let ids = [&cancelled, &late, &expired];
    let pids = ids.map(|id| scene.command_of(id));
    scene.killed_and_started_again();
    assert_eq!(scene.cancel(&cancelled).status, 202);
    assert_eq!(n(&scene.ends_as("cancelled", &cancelled)["attempts"]), 1);
    assert_eq!(scene.ends_as("failed", &late)["error"]["class"], "timeout");
    assert_eq!(scene.ends_as("failed", &expired)["error"]["class"], "deadline");
    assert!(!pids.iter().any(|pid| is_alive(*pid)), "what left the session is dead too");
    scene.nothing_is_left();
}

/// A supervisor whose server is gone enforces the time by itself.
#[test]
fn a_process_that_outlasts_its_time_without_a_server_is_stopped() {
    let mut scene = Scene::with("[worker]\ngraceMs = 100\n");
    let mut body = endless();
    (body["timeoutMs"], body["retry"]) = (json!(1000), json!({"maxRetries": 0}));
    let id = scene.submit(body);
    let pid = scene.command_of(&id);
    scene.server_mut().kill9();
    wait_until(SOON, "its supervisor stops it", || !is_alive(pid));
    wait_until(SOON, "it leaves a record", || runs(&scene.data()).iter().all(|run| run.join("exit.json").exists()));
    scene.start_again();
    let task = scene.ends_as("failed", &id);
    assert_eq!((&task["error"]["class"], n(&task["attempts"])), (&json!("timeout"), 1), "{task:#}");
}

/// Input reaches an adopted process, once.
#[test]
fn an_adopted_process_takes_input() {
    let mut scene = Scene::new();
    let shell = "echo on $$; while read line; do echo heard $line; [ \"$line\" = bye ] && exit 0; done";
    let id = scene.submit(json!({"kind": "process", "payload": {"shell": shell, "input": true}}));
    scene.command_of(&id);
    let say = |scene: &Scene, line: &str| {
        let answer = scene.expect(202, "POST", &format!("/v1/tasks/{id}/input"), json!({"text": line}));
        text(&answer["id"])
    };
    for line in ["before", "after"] {
        let message = say(&scene, line);
        scene.ends_as("completed", &message);
        scene.killed_and_started_again();
    }
    say(&scene, "bye");
    let task = scene.ends_as("completed", &id);
    let heard = text(&task["result"]["stdout"]);
    let heard: Vec<&str> = heard.lines().skip(1).collect();
    assert_eq!(heard, ["heard before", "heard after", "heard bye"]);
    assert_eq!(n(&task["attempts"]), 1);
}

/// The issue: a follower that comes back behind the last line it saw misses nothing and sees nothing twice.
#[test]
fn a_followed_log_has_no_gap_and_no_repeated_line_over_restarts() {
    let mut scene = Scene::new();
    let go = scene.home().join("go");
    let shell =
        format!("n=0; while [ ! -e {} ]; do n=$((n+1)); echo $n; sleep 0.005; done; echo last $((n+1))", go.display());
    let id = scene.submit(json!({"kind": "process", "payload": {"shell": shell}}));
    let path = format!("/v1/tasks/{id}/logs?follow=true");
    let mut seen: Vec<String> = Vec::new();
    let mut place: Option<String> = None;
    for round in 0..4 {
        let mut headers = vec![("accept", "text/event-stream")];
        headers.extend(place.as_deref().map(|place| ("last-event-id", place)));
        let mut stream = Stream::open(&scene, &path, &headers);
        let mut unplaced = Vec::new();
        let wanted = seen.len() + 50;
        while let Some((_, at, line)) = stream.sse() {
            unplaced.push(text(&line["text"]));
            if at.is_some() {
                place = at;
                seen.append(&mut unplaced);
            }
            if round < 3 && seen.len() >= wanted {
                break;
            }
            if round == 3 && seen.len() >= wanted && !go.exists() {
                std::fs::write(&go, "").unwrap();
            }
        }
        match round {
            0 | 2 => scene.killed_and_started_again(),
            1 => scene.restart(),
            _ => {}
        }
    }
    let last = seen.pop().unwrap();
    assert_eq!(last, format!("last {}", seen.len() + 1));
    let expected: Vec<String> = (1..=seen.len()).map(|n| n.to_string()).collect();
    assert_eq!(seen, expected);
    assert_eq!(n(&scene.ends_as("completed", &id)["attempts"]), 1);
}

fn json_of(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}
