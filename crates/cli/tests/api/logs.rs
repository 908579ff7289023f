//! A task's output.

use serde_json::json;

use crate::scene::{SOON, Scene, Stream, header, text};
use crate::support::wait_until;

/// The issue: plain text unless events are asked for, readable after the end and after a restart.
#[test]
fn output_is_plain_text_or_events_and_stays_readable() {
    let mut scene = Scene::new();
    let id = scene.submit(json!({"kind": "process", "payload": {"shell": "echo out; echo err >&2; printf end"}}));
    scene.ends_as("completed", &id);
    let path = format!("/v1/tasks/{id}/logs");
    scene.restart();
    let plain = scene.request("GET", &path, "");
    assert!(header(&plain, "content-type").unwrap().starts_with("text/plain"));
    let mut lines: Vec<&str> = plain.body.lines().collect();
    lines.sort();
    assert_eq!(lines, ["end", "err", "out"]);
    let mut stream = Stream::open(&scene, &path, &[("accept", "text/event-stream")]);
    let mut seen = Vec::new();
    while let Some((name, _, line)) = stream.sse() {
        assert_eq!((name.as_str(), line["attempt"].as_u64()), ("log", Some(1)));
        seen.push((text(&line["stream"]), text(&line["text"])));
    }
    seen.sort();
    let expected = [("stderr", "err"), ("stdout", "end"), ("stdout", "out")];
    assert_eq!(seen, expected.map(|(stream, line)| (stream.to_owned(), line.to_owned())));
}

/// The issue: a follower sees each line while the task runs, and ends with it, in both forms.
#[test]
fn a_follower_sees_each_line_as_it_is_written_and_ends_with_the_task() {
    let scene = Scene::new();
    let go = scene.home().join("go");
    let shell = format!("echo first; while [ ! -e {} ]; do sleep 0.02; done; echo second", go.display());
    let id = scene.submit(json!({"kind": "process", "payload": {"shell": shell}}));
    let path = format!("/v1/tasks/{id}/logs?follow=true");
    let mut plain = Stream::open(&scene, &path, &[]);
    let mut events = Stream::open(&scene, &path, &[("accept", "text/event-stream")]);
    assert_eq!(plain.line().as_deref(), Some("first"));
    let (_, place, line) = events.sse().unwrap();
    assert_eq!(line["text"], "first");
    scene.until_state(&id, "running");
    std::fs::write(&go, "").unwrap();
    assert_eq!(plain.line().as_deref(), Some("second"));
    assert_eq!(events.next_event()["text"], "second");
    assert!(plain.line().is_none() && events.sse().is_none(), "the task has ended");
    scene.ends_as("completed", &id);
    let mut rest = Stream::open(&scene, &path, &[("accept", "text/event-stream"), ("last-event-id", &place.unwrap())]);
    assert_eq!(rest.next_event()["text"], "second");
    assert!(rest.sse().is_none());
}

/// Design 8: each attempt has its output; all of them in order unless one is asked for.
#[test]
fn each_attempt_has_its_own_output() {
    let scene = Scene::new();
    let body = json!({"kind": "process", "payload": {"shell": "echo attempt $RUNYARD_ATTEMPT; exit 1"},
        "retry": {"maxRetries": 1, "backoffMs": 1}});
    let id = scene.submit(body);
    scene.ends_as("failed", &id);
    let log = |query: &str| scene.request("GET", &format!("/v1/tasks/{id}/logs{query}"), "");
    assert_eq!(log("").body, "attempt 1\nattempt 2\n");
    assert_eq!(log("?attempt=2").body, "attempt 2\n");
    assert_eq!(log("?attempt=3").status, 404);
    assert_eq!(log("?attempt=0").status, 404);
}

/// Design 8: output is capped, says so, and the task ends well all the same.
#[test]
fn output_beyond_its_limit_is_cut() {
    let scene = Scene::new();
    let body = json!({"kind": "process", "limits": {"outputBytes": 1000},
        "payload": {"shell": "yes 0123456789 | head -c 100000"}});
    let id = scene.submit(body);
    scene.ends_as("completed", &id);
    let log = scene.request("GET", &format!("/v1/tasks/{id}/logs"), "").body;
    assert!(log.starts_with("0123456789\n") && log.len() < 3000, "{} bytes", log.len());
}

/// A task that has written nothing has an empty log, also before it starts.
#[test]
fn a_task_without_output_has_an_empty_log() {
    let scene = Scene::with("[lanes]\nmain = 0\n");
    let id = scene.noop(json!({}));
    let log = scene.request("GET", &format!("/v1/tasks/{id}/logs"), "");
    assert_eq!((log.status, log.body.as_str()), (200, ""));
    std::thread::scope(|scope| {
        let following = scope.spawn(|| scene.request("GET", &format!("/v1/tasks/{id}/logs?follow=true"), ""));
        scene.expect(200, "PUT", "/v1/lanes/main", json!({"limit": 1}));
        assert_eq!(following.join().unwrap().body, "");
    });
    wait_until(SOON, "it has ended", || scene.state(&id) == "completed");
}
