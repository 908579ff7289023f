//! How long ended work stays readable.

use serde_json::json;

use crate::scene::{SOON, Scene, Stream, text};
use crate::support::wait_until;

/// A4.65, A4.67: a task past its ttl is gone with its log, one with a longer ttl and a live one stay.
#[test]
fn a_task_is_gone_after_its_ttl_and_others_stay() {
    let mut scene = Scene::with("[lanes]\nmain = 5\n");
    let gone = scene.submit(json!({"kind": "process", "payload": {"argv": ["echo", "hi"]}, "ttlMs": 1}));
    let kept = scene.submit(json!({"kind": "noop", "ttlMs": 600_000}));
    let by_default = scene.noop(json!({}));
    let live = scene.submit(json!({"kind": "noop", "ttlMs": 1, "delayMs": 600_000}));
    [&gone, &kept, &by_default].into_iter().for_each(|id| drop(scene.end(id)));
    scene.restart();
    until_gone(&scene, &gone);
    assert_eq!(scene.request("GET", &format!("/v1/tasks/{gone}/logs"), "").status, 404);
    for id in [&kept, &by_default, &live] {
        assert_eq!(scene.request("GET", &format!("/v1/tasks/{id}"), "").status, 200);
    }
    wait_until(SOON, "its log is deleted", || !has_file_named(&scene.data(), &gone));
}

/// A4.65 with the general retention: ended tasks go, live ones never do.
#[test]
fn retention_deletes_ended_tasks_and_never_live_ones() {
    let mut scene = Scene::with("[retention]\ntasksMs = 1\n");
    let (batch, ids) = scene.batch(json!({"tasks": [{"kind": "noop"}, {"kind": "noop"}]}));
    let live = scene.submit(json!({"kind": "noop", "delayMs": 600_000}));
    ids.iter().for_each(|id| drop(scene.end(id)));
    scene.restart();
    ids.iter().for_each(|id| until_gone(&scene, id));
    wait_until(SOON, "the batch is gone", || scene.request("GET", &format!("/v1/batches/{batch}"), "").status == 404);
    assert_eq!(scene.ids("/v1/tasks"), [live]);
}

/// A4.66: what was answered is a copy: reading it again later gives the later state, and the first answer is what it
/// was. Until it is deleted an ended task does not change.
#[test]
fn an_ended_task_reads_the_same_until_it_is_deleted() {
    let mut scene = Scene::new();
    let id = scene.noop(json!({"result": {"n": 1}}));
    let ended = scene.end(&id);
    scene.restart();
    assert_eq!(scene.task(&id), ended);
}

/// Design 12: a Last-Event-ID older than the log gets a `reset` first, and then what is left.
#[test]
fn an_event_id_older_than_the_log_gets_a_reset() {
    let mut scene = Scene::with("[retention]\neventsMs = 1\n");
    let old = scene.noop(json!({}));
    scene.end(&old);
    scene.restart();
    wait_until(SOON, "old events are deleted", || {
        scene.noop(json!({}));
        let mut stream = Stream::open(&scene, "/v1/events", &[("last-event-id", "1-0")]);
        stream.sse().expect("an event").0 == "reset"
    });
    let mut stream = Stream::open(&scene, "/v1/events", &[("last-event-id", "1-0")]);
    assert_eq!(stream.next_event()["type"], "reset");
    let fresh = scene.noop(json!({}));
    loop {
        let event = stream.next_event();
        assert_ne!(event["task"].as_str(), Some(old.as_str()), "it was deleted");
        if event["task"] == fresh.as_str() {
            return;
        }
    }
}

fn until_gone(scene: &Scene, id: &str) {
    wait_until(SOON, &format!("{id} is gone"), || {
        let answer = scene.request("GET", &format!("/v1/tasks/{id}"), "");
        answer.status == 404 && text(&answer.json()["code"]) == "not_found"
    });
}

fn has_file_named(dir: &std::path::Path, part: &str) -> bool {
    std::fs::read_dir(dir).into_iter().flatten().flatten().any(|entry| {
        let path = entry.path();
        let is_named = entry.file_name().to_string_lossy().contains(part);
        is_named || (path.is_dir() && has_file_named(&path, part))
    })
}
