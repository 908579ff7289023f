//! What happens after a failed attempt.

use serde_json::{Value, json};

use crate::scene::{Peer, Reply, Scene, is, ms, n, text};

/// B4.27: fails twice, then succeeds: completed, with two retries used.
#[test]
fn a_task_that_fails_twice_and_then_succeeds_is_completed() {
    let scene = Scene::new();
    let peer = Peer::start(|n| if n < 2 { Reply::text(500, "") } else { Reply::json(json!({"n": n})) });
    let id = scene.submit(peer.task(json!({"retry": {"backoffMs": 1}})));
    let task = scene.ends_as("completed", &id);
    assert_eq!((n(&task["attempts"]), n(&task["result"]["body"]["n"])), (3, 2));
    let attempts: Vec<_> = peer.asked().iter().map(|asked| asked.header("x-runyard-attempt").unwrap()).collect();
    assert_eq!(attempts, ["1", "2", "3"]);
    assert_eq!(names(&scene, &id).iter().filter(|name| *name == "task.retrying").count(), 2);
}

/// B4.28: maxRetries 0 is one try.
#[test]
fn no_retries_is_one_try() {
    let scene = Scene::new();
    let id = scene.submit(failing(json!({"maxRetries": 0})));
    assert_eq!(n(&scene.ends_as("failed", &id)["attempts"]), 1);
}

/// B4.29: maxRetries 1, always failing: exactly two attempts and one task.failed event.
#[test]
fn one_retry_is_two_attempts_and_one_final_event() {
    let scene = Scene::new();
    let id = scene.submit(failing(json!({"maxRetries": 1, "backoffMs": 1})));
    let task = scene.ends_as("failed", &id);
    assert_eq!((n(&task["attempts"]), n(&task["retriesLeft"])), (2, 0));
    let names = names(&scene, &id);
    let expected =
        ["task.created", "task.queued", "task.started", "task.retrying", "task.queued", "task.started", "task.failed"];
    assert_eq!(names, expected);
}

/// B4.30 and design 15: the first retry waits backoffMs, each further one more by the multiplier, and none longer than
/// the cap.
#[test]
fn backoff_grows_by_the_multiplier_up_to_its_cap() {
    let scene = Scene::new();
    let retry = json!({"maxRetries": 3, "backoffMs": 100, "multiplier": 100, "maxBackoffMs": 200, "jitter": 0});
    let id = scene.submit(failing(retry));
    scene.ends_as("failed", &id);
    let events = scene.events_until(|event| is(event, "task.failed", &id));
    let at = |kind: &str| -> Vec<i64> {
        events.iter().filter(|event| is(event, kind, &id)).map(|event| ms(&event["at"])).collect()
    };
    let (retrying, queued) = (at("task.retrying"), at("task.queued"));
    let waits: Vec<i64> = retrying.iter().zip(&queued[1..]).map(|(from, to)| to - from).collect();
    for (wait, least) in waits.iter().zip([100, 200, 200]) {
        // Backoffs run on the steady clock and events show the wall clock: both are cut to milliseconds.
        assert!(*wait + 2 >= least, "{waits:?}");
    }
    assert_eq!(waits.len(), 3);
    assert!(waits.iter().all(|wait| *wait < 8000), "without the cap the second would be 10 s: {waits:?}");
}

/// B4.31: a task's own policy wins over its agent's, its kind's and the general one.
#[test]
fn the_narrowest_policy_wins() {
    let scene = Scene::with(
        "[defaults.retry]\nmaxRetries = 9\n[kinds.noop.retry]\nmaxRetries = 8\n[agents.a.retry]\nmaxRetries = 7\n\
         [kinds.noop]\ntimeoutMs = 5000\n",
    );
    let retries = |body: Value| n(&scene.task(&scene.submit(body))["retry"]["maxRetries"]);
    assert_eq!(retries(json!({"kind": "other"})), 9);
    assert_eq!(retries(json!({"kind": "noop"})), 8);
    assert_eq!(retries(json!({"kind": "noop", "agent": "a"})), 7);
    assert_eq!(retries(json!({"kind": "noop", "agent": "a", "retry": {"maxRetries": 6}})), 6);
    assert_eq!(n(&scene.task(&scene.noop(json!({})))["timeoutMs"]), 5000);
}

/// B4.32: a task in its back-off holds no slot.
#[test]
fn a_backoff_holds_no_slot() {
    let scene = Scene::with("[lanes]\nmain = 1\n");
    let id = scene.submit(failing(json!({"backoffMs": 600_000})));
    scene.until_state(&id, "scheduled");
    let waiting = scene.task(&id);
    assert_eq!((waiting["error"]["class"].as_str(), n(&waiting["retriesLeft"])), (Some("task"), 2));
    scene.ends_as("completed", &scene.noop(json!({})));
    let explained = scene.get(&format!("/v1/tasks/{id}/explain"));
    assert_eq!(
        (explained["gates"][0]["kind"].as_str(), explained["gates"][0]["name"].as_str()),
        (Some("time"), Some("backoff"))
    );
}

/// Design 7: classes that a task does not name are not retried.
#[test]
fn only_the_named_classes_are_retried() {
    let scene = Scene::new();
    let body = |fail: &str| json!({"kind": "noop", "payload": {"fail": fail}, "retry": {"on": ["timeout"], "maxRetries": 1, "backoffMs": 1}});
    assert_eq!(n(&scene.ends_as("failed", &scene.submit(body("task")))["attempts"]), 1);
    assert_eq!(n(&scene.ends_as("failed", &scene.submit(body("timeout")))["attempts"]), 2);
}

/// Design 7: a retry that could only start after the deadline fails at once.
#[test]
fn a_retry_beyond_the_deadline_fails_at_once() {
    let scene = Scene::new();
    let mut body = failing(json!({"backoffMs": 600_000}));
    body["deadline"] = json!(crate::scene::from_now(20_000));
    let task = scene.ends_as("failed", &scene.submit(body));
    assert_eq!(n(&task["attempts"]), 1);
    assert!(ms(&task["finishedAt"]) < ms(&task["deadline"]), "{task:#}");
}

fn failing(retry: Value) -> Value {
    json!({"kind": "noop", "payload": {"fail": "task"}, "retry": retry})
}

/// The names of the task's events so far.
fn names(scene: &Scene, id: &str) -> Vec<String> {
    let marker = scene.noop(json!({}));
    scene.end(&marker);
    let events = scene.events_until(|event| is(event, "task.completed", &marker));
    events.iter().filter(|event| event["task"] == id).map(|event| text(&event["type"])).collect()
}
