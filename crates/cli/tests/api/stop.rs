//! SIGTERM, restart, drain.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::scene::{Peer, Reply, SOON, Scene, Stream, n, problem, text};
use crate::support::wait_until;

/// A4.79 as design 15 has it: queued, waiting and scheduled work survives a stop, and goes on after the restart.
#[test]
fn queued_work_survives_a_stop_and_goes_on() {
    let mut scene = Scene::with("[lanes]\nmain = 0\n");
    let queued = scene.noop(json!({"result": "done"}));
    let scheduled = scene.submit(json!({"kind": "noop", "delayMs": 300}));
    let waiting = scene.submit(json!({"kind": "noop", "dependsOn": [queued]}));
    scene.restart();
    assert_eq!(scene.state(&queued), "queued");
    scene.expect(200, "PUT", "/v1/lanes/main", json!({"limit": 5}));
    assert_eq!(scene.ends_as("completed", &queued)["result"], "done");
    scene.ends_as("completed", &waiting);
    scene.ends_as("completed", &scheduled);
}

/// B3 "a task in back-off stays failed": a retry that waits survives the restart.
#[test]
fn a_backoff_survives_a_restart() {
    let mut scene = Scene::new();
    let peer = Peer::start(|n| if n == 0 { Reply::text(500, "") } else { Reply::json(json!({})) });
    let id = scene.submit(peer.task(json!({"retry": {"backoffMs": 1500}})));
    scene.until_state(&id, "scheduled");
    scene.restart();
    let task = scene.ends_as("completed", &id);
    assert_eq!((n(&task["attempts"]), peer.asked().len()), (2, 2));
}

/// Design 13: work that ends within drainMs is waited for, and its outcome is kept.
#[test]
fn a_stop_waits_for_work_that_ends_in_time() {
    let mut scene = Scene::with("[server]\ndrainMs = 30000\n");
    let id = scene.noop(json!({"sleepMs": 300}));
    scene.until_state(&id, "running");
    scene.restart();
    let task = scene.task(&id);
    assert_eq!((task["state"].as_str(), n(&task["attempts"])), (Some("completed"), 1), "{task:#}");
}

/// Design 13: work that outlasts drainMs is stopped and goes back to queued; that costs no retry.
#[test]
fn work_that_outlasts_the_drain_goes_back_without_losing_a_retry() {
    let mut scene = Scene::with("[server]\ndrainMs = 100\n[worker]\ngraceMs = 100\n[lanes]\nmain = 1\n");
    let body = json!({"kind": "noop", "payload": {"sleepMs": 600_000}, "retry": {"maxRetries": 2}});
    let id = scene.submit(body);
    scene.until_state(&id, "running");
    // A lane that is paused shows the task as the stop left it.
    scene.expect(200, "PUT", "/v1/lanes/main", json!({"paused": true}));
    assert!(scene.server_mut().terminate().success());
    scene.start_again();
    let task = scene.task(&id);
    assert_eq!((task["state"].as_str(), n(&task["retriesLeft"])), (Some("queued"), 2), "{task:#}");
    assert_eq!(task.get("error"), None, "{task:#}");
    scene.expect(200, "PUT", "/v1/lanes/main", json!({"paused": false}));
    scene.until_state(&id, "running");
    let metrics = &scene.stats()["metrics"];
    assert_eq!((n(&metrics["failed"]), n(&metrics["retried"])), (0, 0));
    scene.cancel(&id);
    scene.ends_as("cancelled", &id);
}

/// Design 13: a second signal stops now, though work runs and the drain is long.
#[test]
fn a_second_signal_stops_now() {
    let mut scene = Scene::with("[server]\ndrainMs = 600000\n");
    scene.blocker();
    let began = Instant::now();
    scene.signal("TERM");
    wait_until(SOON, "it is stopping", || readyz(&scene) != Some("ready".into()));
    scene.signal("TERM");
    wait_until(SOON, "it has ended", || scene.server_mut().has_ended());
    assert!(began.elapsed() < Duration::from_secs(20));
    scene.start_again();
    assert_eq!(readyz(&scene), Some("ready".into()));
}

/// Design 13: open streams and long polls never hold the exit up, and are told.
#[test]
fn open_streams_do_not_hold_the_exit_up() {
    let mut scene = Scene::with("[lanes]\nmain = 0\n");
    let queued = scene.noop(json!({}));
    let mut events = Stream::open(&scene, "/v1/events", &[]);
    let mut logs = Stream::open(&scene, &format!("/v1/tasks/{queued}/logs?follow=true"), &[]);
    let mut poll = scene.open("GET", &format!("/v1/tasks/{queued}/wait?timeoutMs=600000"), &[], b"").unwrap();
    let began = Instant::now();
    assert!(scene.server_mut().terminate().success());
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    while events.line().is_some() {}
    while logs.line().is_some() {}
    assert!(events.has_ended() && !logs.has_ended(), "text has no end where the output has none");
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut poll, &mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("stopping"), "{answer}");
}

/// B3 "running stays running for ever": what ran at a kill is lost, counted as such, and retried.
#[test]
fn what_ran_at_a_kill_is_lost_and_retried() {
    let mut scene = Scene::new();
    let peer = Peer::start(|n| if n == 0 { Reply::Silence } else { Reply::json(json!({})) });
    let id = scene.submit(peer.task(json!({"retry": {"backoffMs": 1}})));
    wait_until(SOON, "the request is there", || peer.asked().len() == 1);
    scene.until_state(&id, "running");
    scene.server_mut().kill9();
    scene.start_again();
    let task = scene.ends_as("completed", &id);
    assert_eq!(n(&task["attempts"]), 2);
    assert!(scene.steps(&id).contains(&"lost".to_owned()), "{:?}", scene.steps(&id));
}

/// The issue: drain refuses and starts nothing new, lets what runs end, is shown, and is taken back.
#[test]
fn a_drain_refuses_new_work_and_lets_the_rest_end() {
    let scene = Scene::with("[lanes]\nmain = 1\n");
    let running = scene.blocker();
    let queued = scene.noop(json!({}));
    let view = scene.expect(200, "POST", "/v1/drain", json!({"on": true}));
    assert_eq!((view["draining"].as_bool(), n(&view["running"]), n(&view["queued"])), (Some(true), 1, 1));
    let refusal = scene.problem(503, "POST", "/v1/tasks", json!({"kind": "noop"}));
    assert_eq!(refusal["code"], "draining");
    assert_eq!(scene.problem(503, "POST", "/v1/batches", json!({"tasks": [{"kind": "noop"}]}))["code"], "draining");
    assert_eq!(readyz(&scene), Some("draining".into()));
    assert_eq!(scene.get("/healthz")["status"], "ok");
    scene.cancel(&running);
    scene.end(&running);
    let view = scene.get("/v1/drain");
    assert_eq!((n(&view["running"]), n(&view["queued"]), scene.state(&queued)), (0, 1, "queued".into()));
    assert_eq!(scene.expect(200, "POST", "/v1/drain", json!({"on": false}))["draining"], false);
    scene.ends_as("completed", &queued);
    assert_eq!(readyz(&scene), Some("ready".into()));
    problem(400, &scene.post("/v1/drain", "{}"));
}

fn readyz(scene: &Scene) -> Option<String> {
    let answer = scene.try_request("GET", "/readyz", &[], "")?;
    Some(text(&answer.json()["status"]))
}
