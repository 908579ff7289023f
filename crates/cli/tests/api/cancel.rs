//! Cancel: in every state, by POST and DELETE, of many.

use serde_json::json;

use crate::scene::{Peer, Reply, SOON, Scene, n, problem, text};
use crate::support::wait_until;

/// A4.35, B4.38: a queued task is cancelled at once (200), stays readable and never runs; by DELETE as by POST.
#[test]
fn a_queued_task_is_cancelled_at_once_and_never_runs() {
    let scene = Scene::with("[lanes]\nmain = 1\n");
    let blocker = scene.blocker();
    let peer = Peer::start(|_| Reply::json(json!({})));
    let (by_post, by_delete) = (scene.submit(peer.task(json!({}))), scene.submit(peer.task(json!({}))));
    let reason = json!({"reason": "enough"}).to_string();
    let answer = scene.post(&format!("/v1/tasks/{by_post}/cancel"), &reason);
    assert_eq!((answer.status, answer.json()["state"].as_str()), (200, Some("cancelled")));
    assert_eq!(scene.request("DELETE", &format!("/v1/tasks/{by_delete}"), "").status, 200);
    scene.cancel(&blocker);
    let after = scene.noop(json!({}));
    scene.end(&after);
    for id in [&by_post, &by_delete] {
        let task = scene.task(id);
        assert_eq!((task["state"].as_str(), n(&task["attempts"])), (Some("cancelled"), 0), "{task:#}");
        assert!(task.get("startedAt").is_none() && !task["finishedAt"].is_null());
    }
    assert!(text(&scene.task(&by_post)["reason"]).contains("enough"));
    assert_eq!(peer.asked().len(), 0);
}

/// A4.36, B4.39: cancel of an unknown task is 404. A4.37 as design 7 has it: of an ended one 409, and changes nothing.
#[test]
fn cancel_of_an_ended_task_is_409_and_of_an_unknown_one_404() {
    let scene = Scene::new();
    let id = scene.noop(json!({"result": 1}));
    let ended = scene.end(&id);
    for answer in [scene.cancel(&id), scene.request("DELETE", &format!("/v1/tasks/{id}"), "")] {
        let refusal = problem(409, &answer);
        assert_eq!(
            (refusal["code"].as_str(), refusal["state"].as_str()),
            (Some("already_terminal"), Some("completed"))
        );
    }
    assert_eq!(scene.task(&id), ended);
    problem(404, &scene.cancel("01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11"));
}

/// B3 "cancel of a running task does not hold", put right: 202, the work is stopped, the end is `cancelled`, it is not
/// retried and not counted as failed.
#[test]
fn a_running_task_is_stopped_and_ends_cancelled_without_a_retry() {
    let scene = Scene::new();
    let peer = Peer::start(|_| Reply::Silence);
    let id = scene.submit(peer.task(json!({})));
    wait_until(SOON, "the request is there", || peer.asked().len() == 1);
    let answer = scene.cancel(&id);
    assert_eq!((answer.status, answer.json()["state"].as_str()), (202, Some("running")));
    peer.until_hung_up();
    let task = scene.ends_as("cancelled", &id);
    assert_eq!((n(&task["attempts"]), n(&task["retriesLeft"])), (1, 3), "a cancel uses no retry");
    let metrics = &scene.stats()["metrics"];
    assert_eq!((n(&metrics["cancelled"]), n(&metrics["failed"]), n(&metrics["retried"])), (1, 0, 0));
    assert_eq!(scene.steps(&id).iter().filter(|step| *step == "cancelled").count(), 1);
}

/// A4.38: cancelling a queued task leaves what runs as it is. A4.39: cancelling the running one frees its slot exactly
/// once: the next starts, and never two.
#[test]
fn a_cancel_frees_a_slot_exactly_once() {
    let scene = Scene::with("[lanes]\nmain = 1\n");
    let first = scene.blocker();
    let hold = || scene.noop(json!({"sleepMs": 600_000}));
    let (second, third, fourth) = (hold(), hold(), hold());
    let running = || n(&scene.stats()["queue"]["totalRunning"]);
    scene.cancel(&second);
    assert_eq!((running(), scene.state(&first)), (1, "running".to_owned()));
    scene.cancel(&first);
    scene.end(&first);
    scene.until_state(&third, "running");
    assert_eq!((running(), scene.state(&fourth)), (1, "queued".to_owned()));
    let started: Vec<_> = scene
        .events_until(|event| crate::scene::is(event, "task.started", &third))
        .into_iter()
        .filter(|event| event["type"] == "task.started")
        .map(|event| text(&event["task"]))
        .collect();
    assert_eq!(started, [first, third]);
}

/// B3 "cancel during back-off": it never runs again.
#[test]
fn a_task_cancelled_in_its_backoff_never_runs_again() {
    let scene = Scene::new();
    let payload = json!({"fail": "task"});
    let id = scene.submit(json!({"kind": "noop", "payload": payload, "retry": {"backoffMs": 600_000}}));
    scene.until_state(&id, "scheduled");
    assert_eq!(scene.cancel(&id).status, 200);
    let task = scene.ends_as("cancelled", &id);
    assert_eq!(n(&task["attempts"]), 1);
    assert_eq!(n(&scene.stats()["metrics"]["failed"]), 0);
}

/// Design 3: a task that waits for its dependencies, or for its time, is cancelled at once.
#[test]
fn waiting_and_scheduled_tasks_are_cancelled_at_once() {
    let scene = Scene::new();
    let waiting = scene.submit(json!({"kind": "noop", "dependsOn": ["01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11"]}));
    let scheduled = scene.submit(json!({"kind": "noop", "delayMs": 600_000}));
    for (id, state) in [(waiting, "waiting"), (scheduled, "scheduled")] {
        assert_eq!(scene.state(&id), state);
        assert_eq!(scene.cancel(&id).status, 200);
        assert_eq!(scene.state(&id), "cancelled");
    }
}

/// The issue: cancel by filter touches what matches, in every live state, and answers how many; no filter is refused.
#[test]
fn a_filter_cancels_what_matches_and_answers_a_count() {
    let scene = Scene::with("[lanes]\nmain = 1\n");
    let running = scene.blocker();
    let mine = json!({"kind": "noop", "agent": "mine"});
    scene.batch(json!({"tasks": vec![mine; 30]}));
    let other = scene.submit(json!({"kind": "noop", "agent": "other"}));
    let answer = scene.expect(200, "POST", "/v1/tasks/cancel", json!({"agent": "mine", "state": ["queued"]}));
    assert_eq!((n(&answer["matched"]), n(&answer["cancelled"]), n(&answer["stopping"])), (30, 30, 0));
    assert_eq!(scene.state(&other), "queued");
    let rest = scene.expect(200, "POST", "/v1/tasks/cancel", json!({"kind": "noop", "reason": "tidy"}));
    assert_eq!((n(&rest["matched"]), n(&rest["cancelled"]), n(&rest["stopping"])), (2, 1, 1));
    scene.ends_as("cancelled", &running);
    scene.problem(400, "POST", "/v1/tasks/cancel", json!({}));
    let refusal = scene.problem(400, "POST", "/v1/tasks/cancel", json!({"agent": "mine", "state": ["failed"]}));
    assert_eq!(refusal["field"], "state");
}

/// The issue: cancel of a batch ends every live task of it and the batch itself, once.
#[test]
fn a_batch_is_cancelled_whole() {
    let scene = Scene::with("[lanes]\nmain = 1\n");
    let (done, _) = scene.batch(json!({"tasks": [{"kind": "noop"}]}));
    let sleeper = json!({"kind": "noop", "payload": {"sleepMs": 600_000}});
    let (batch, ids) = scene.batch(json!({"tasks": vec![sleeper; 5]}));
    scene.until_state(&ids[0], "running");
    let answer = scene.expect(200, "POST", &format!("/v1/batches/{batch}/cancel"), json!({"reason": "no"}));
    assert_eq!((n(&answer["matched"]), n(&answer["cancelled"]), n(&answer["stopping"])), (5, 4, 1));
    ids.iter().for_each(|id| drop(scene.ends_as("cancelled", id)));
    let shown = scene.get(&format!("/v1/batches/{batch}"));
    assert_eq!((shown["state"].as_str(), n(&shown["counts"]["cancelled"])), (Some("finished"), 5));
    assert_eq!(n(&scene.get(&format!("/v1/batches/{done}"))["counts"]["completed"]), 1);
}
