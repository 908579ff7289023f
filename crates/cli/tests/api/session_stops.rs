//! Stop, stopall, reset, and the cutoff. `G4.n` is goclaw's list of cases.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::chat::{Chat, counts, said};
use crate::scene::{SOON, Scene, Stream, from_now, is, ms, n, problem, text};
use crate::support::wait_until;

/// The issue: `stop` ends the oldest run and nothing else, and the next one starts without a further message.
#[test]
fn a_stop_ends_the_oldest_run_and_the_next_one_starts() {
    let scene = Scene::new();
    let chat = Chat::with(&scene, "s", json!({"maxConcurrent": 2}));
    let (oldest, younger) = (chat.hold(), chat.hold());
    let waiting = chat.say("next");
    assert_eq!(chat.act("stop")["stopped"], oldest.as_str());
    assert_eq!(scene.ends_as("cancelled", &oldest)["reason"], "stopped");
    assert_eq!(chat.heard(&waiting), "next\n");
    assert_eq!(scene.state(&younger), "running");
    assert_eq!(chat.view().get("cutoff"), None, "messages on their way are welcome");
}

/// G4.37: a stop of nothing says so, in a session that is idle and in one that never was; it is no error.
#[test]
fn a_stop_of_nothing_stops_nothing() {
    let scene = Scene::new();
    let chat = Chat::new(&scene, "s");
    assert_eq!(chat.act("stop"), json!({"stopped": null}));
    scene.problem(404, "GET", "/v1/sessions/s", Value::Null);
    chat.heard(&chat.say("done"));
    assert_eq!(chat.act("stop"), json!({"stopped": null}));
    assert_eq!(counts(&chat.act("stopall")), (0, 0, 0));
}

/// G4.37: a run that ends when it is asked is stopped within its grace, one that does not listen is killed after it; a
/// second stop does not stop it twice.
#[test]
fn a_run_that_does_not_listen_is_killed_after_its_grace() {
    let scene = Scene::with("[worker]\ngraceMs = 300\n");
    let chat = Chat::new(&scene, "s");
    let run = |shell: &str| {
        let id = text(&chat.submit(json!({"kind": "process", "payload": {"shell": shell}}))["id"]);
        let log = format!("/v1/tasks/{id}/logs");
        wait_until(SOON, "it is on", || scene.request("GET", &log, "").body.contains("on"));
        id
    };
    let listens = run("trap 'exit 0' TERM; echo on; while :; do sleep 0.02; done");
    assert_eq!(chat.act("stop")["stopped"], listens.as_str());
    assert_eq!(scene.ends_as("cancelled", &listens)["reason"], "stopped");
    let deaf = run("trap '' TERM; echo on; while :; do sleep 0.02; done");
    let began = Instant::now();
    assert_eq!(chat.act("stop")["stopped"], deaf.as_str());
    assert_eq!(chat.act("stop"), json!({"stopped": null}), "it is being stopped already");
    scene.ends_as("cancelled", &deaf);
    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
}

/// G4.14, the issue: `stopall` covers what runs, waits and debounces, and reports each count; all of it ends cancelled.
#[test]
fn stopall_covers_running_waiting_and_debouncing_work() {
    let scene = Scene::new();
    let chat = Chat::with(&scene, "s", json!({"maxConcurrent": 2}));
    let other = Chat::new(&scene, "other");
    let elsewhere = other.hold();
    let mut ids = vec![chat.hold(), chat.hold()];
    ids.extend(["one", "two", "three"].map(|message| chat.say(message)));
    ids.push(text(&chat.submit(json!({"kind": "noop", "delayMs": 600_000}))["id"]));
    let mut debounced = said("four");
    debounced["session"] = json!({"key": "s", "debounceMs": 600_000});
    ids.push(text(&chat.submit(debounced)["id"]));
    let answer = chat.act("stopall");
    assert_eq!(counts(&answer), (2, 4, 1), "{answer:#}");
    assert!(answer["session"]["cutoff"].is_string(), "{answer:#}");
    for id in &ids {
        assert_eq!(scene.ends_as("cancelled", id)["reason"], "session_stopped");
    }
    chat.until_idle();
    assert_eq!(scene.state(&elsewhere), "running", "other sessions are not concerned");
    let mut events = Stream::open(&scene, "/v1/events?after=0-0&types=session.stopped&session=s", &[]);
    let stopped = events.next_event();
    assert_eq!((&stopped["session"], counts(&stopped["data"]["counts"])), (&json!("s"), (2, 4, 1)), "{stopped:#}");
}

/// The issue: both answer at once whatever the lane does: here it is full with somebody else's work.
#[test]
fn stops_answer_at_once_when_the_lane_is_full() {
    let scene = Scene::with("[lanes]\nmain = 1\n");
    let blocker = scene.blocker();
    let chat = Chat::new(&scene, "s");
    for act in ["stopall", "reset"] {
        let ids = ["one", "two", "three"].map(|message| chat.say(message));
        assert_eq!(scene.state(&ids[0]), "queued");
        assert_eq!(chat.act("stop"), json!({"stopped": null}));
        assert_eq!(counts(&chat.act(act)), (0, 3, 0));
        ids.iter().for_each(|id| drop(scene.ends_as("cancelled", id)));
    }
    assert_eq!(scene.state(&blocker), "running");
}

/// The issue: the cutoff refuses what was sent before it, lets pass what was sent later, and survives `kill -9`.
#[test]
fn the_cutoff_refuses_older_messages_and_survives_a_kill() {
    let mut scene = Scene::new();
    // Nothing of this session has been seen yet, and still the cutoff must hold.
    let before = from_now(-5000);
    Chat::new(&scene, "s").act("stopall");
    for round in 0..2 {
        let chat = Chat::new(&scene, "s");
        let sent = |at: &str| {
            let mut task = said("late");
            task["sentAt"] = json!(at);
            chat.send(task)
        };
        let refusal = problem(409, &sent(&before));
        assert_eq!((refusal["code"].as_str(), refusal["session"].as_str()), (Some("stale_message"), Some("s")));
        assert_eq!(refusal["cutoff"], chat.view()["cutoff"]);
        let recorded = scene.task(&text(&refusal["taskId"]));
        assert_eq!((recorded["state"].as_str(), recorded.get("payload")), (Some("rejected"), None));
        let fresh = sent(&from_now(1000));
        assert_eq!(fresh.status, 201, "{}", fresh.body);
        assert_eq!(chat.heard(&text(&fresh.json()["id"])), "late\n");
        assert_eq!(chat.heard(&chat.say("without a time")), "without a time\n");
        if round == 0 {
            scene.server_mut().kill9();
            scene.start_again();
        }
    }
}

/// What was stopped stays stopped over a kill that comes right behind the answer.
#[test]
fn a_stopall_survives_a_kill() {
    let mut scene = Scene::with("[lanes]\nmain = 1\n");
    let ids = {
        let chat = Chat::with(&scene, "s", json!({"cap": 100}));
        let held = chat.hold();
        let mut ids: Vec<String> = (0..20).map(|n| chat.say(&n.to_string())).collect();
        ids.push(held);
        chat.act("stopall");
        ids
    };
    scene.server_mut().kill9();
    scene.start_again();
    for id in &ids {
        let task = scene.ends_as("cancelled", id);
        assert_eq!(task["reason"], "session_stopped", "{task:#}");
    }
    let chat = Chat::new(&scene, "s");
    assert_eq!(chat.heard(&chat.say("anew")), "anew\n");
}

/// G4.13: a reset cancels like stopall, with its own reason, raises the generation and forgets the context; settings
/// stay, and a new message succeeds.
#[test]
fn a_reset_begins_anew() {
    let scene = Scene::new();
    let chat = Chat::with(&scene, "s", json!({"cap": 7}));
    scene.expect(200, "PUT", "/v1/sessions/s/context", json!({"contextTokens": 90, "contextWindow": 100}));
    let held = chat.hold();
    let waiting = chat.say("old");
    let answer = chat.act("reset");
    assert_eq!((counts(&answer), n(&answer["session"]["generation"])), ((1, 1, 0), 1));
    for id in [&held, &waiting] {
        assert_eq!(scene.ends_as("cancelled", id)["reason"], "session_reset");
    }
    let view = chat.view();
    assert_eq!((view.get("context"), n(&view["settings"]["cap"])), (None, 7), "{view:#}");
    assert_eq!(chat.heard(&chat.say("new")), "new\n");
    let mut events = Stream::open(&scene, "/v1/events?after=0-0&types=session.*", &[]);
    let kinds: Vec<String> = (0..3).map(|_| text(&events.next_event()["type"])).collect();
    assert_eq!(kinds, ["session.changed", "session.changed", "session.reset"]);
}

/// Design 6: what a run of an older generation still reports changes nothing.
#[test]
fn reports_of_an_older_generation_do_not_touch_the_session() {
    let scene = Scene::new();
    let chat = Chat::new(&scene, "s");
    let usage = r#"{"usage": {"contextTokens": 90, "contextWindow": 100}}"#;
    let shell =
        format!("trap 'echo {} >> $RUNYARD_REPORT; exit 0' TERM; echo on; while :; do sleep 0.02; done", quoted(usage));
    let id = text(&chat.submit(json!({"kind": "process", "payload": {"shell": shell}}))["id"]);
    let log = format!("/v1/tasks/{id}/logs");
    wait_until(SOON, "it is on", || scene.request("GET", &log, "").body.contains("on"));
    chat.act("reset");
    scene.ends_as("cancelled", &id);
    assert_eq!(chat.view().get("context"), None);
}

/// The issue: an interrupt waits for the run that is being stopped, and a stopall behind it takes it along.
#[test]
fn a_stopall_takes_a_waiting_interrupt_along() {
    let scene = Scene::with("[worker]\ngraceMs = 60000\n");
    let chat = Chat::with(&scene, "s", json!({"mode": "interrupt"}));
    let gate = scene.home().join("gate");
    let shell = format!(
        "trap 'while [ ! -e {} ]; do sleep 0.02; done; exit 0' TERM; echo on; while :; do sleep 0.02; done",
        gate.display()
    );
    let old = text(&chat.submit(json!({"kind": "process", "payload": {"shell": shell}}))["id"]);
    let log = format!("/v1/tasks/{old}/logs");
    wait_until(SOON, "it is on", || scene.request("GET", &log, "").body.contains("on"));
    let newer = chat.say("newer");
    assert_eq!((scene.state(&newer), scene.state(&old)), ("waiting".into(), "running".into()));
    assert_eq!(counts(&chat.act("stopall")), (1, 1, 0));
    scene.ends_as("cancelled", &newer);
    std::fs::write(gate, "").unwrap();
    let ended = scene.ends_as("cancelled", &old);
    let last = chat.say("last");
    assert_eq!(chat.heard(&last), "last\n");
    assert!(ms(&scene.task(&last)["startedAt"]) >= ms(&ended["finishedAt"]));
    let events = scene.events_until(|event| is(event, "task.completed", &last));
    assert!(!events.iter().any(|event| is(event, "task.started", &newer)));
}

/// In single quotes within a trap that is in single quotes.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\\\""))
}
