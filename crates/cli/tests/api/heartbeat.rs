//! A sign of life that the work gives by itself: what it postpones, what it tells, and who may give it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::access::Guarded;
use crate::scene::{SOON, Scene, is, n, problem, text};
use crate::support::{Answer, wait_until};

const STALL: Duration = Duration::from_millis(1500);

impl Scene {
    fn heartbeat(&self, id: &str, body: Value) -> Answer {
        self.send("POST", &format!("/v1/tasks/{id}/heartbeat"), body)
    }

    /// A process that never says anything.
    fn silent(&self, more: Value) -> String {
        let mut task = json!({"kind": "process", "payload": {"shell": "exec sleep 1000"}});
        task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let id = self.submit(task);
        self.until_state(&id, "running");
        id
    }
}

/// The issue: a process that is alive but silent beyond its `stallMs` is reported, stopped and retried.
#[test]
fn who_is_silent_for_too_long_is_told_stopped_and_retried() {
    let scene = Scene::new();
    let id = scene.silent(json!({"stallMs": 200, "retry": {"maxRetries": 1, "backoffMs": 1}}));
    let task = scene.ends_as("failed", &id);
    assert_eq!((n(&task["attempts"]), &task["error"]["class"]), (2, &json!("timeout")), "{task:#}");
    assert_eq!(task["error"]["message"], "no sign of life for 200 ms");
    let events = scene.events_until(|event| is(event, "task.failed", &id));
    let told = |kind: &str| events.iter().filter(|event| is(event, kind, &id)).count();
    assert_eq!((told("task.stalled"), told("task.retrying")), (2, 1), "{events:#?}");
}

#[test]
fn a_heartbeat_keeps_silent_work_going_until_it_ends() {
    let scene = Scene::new();
    let id = scene.silent(json!({"stallMs": STALL.as_millis() as u64, "retry": {"maxRetries": 0}}));
    let began = Instant::now();
    wait_until(SOON, "twice its patience has passed", || {
        let answer = scene.heartbeat(&id, json!({}));
        assert_eq!((answer.status, answer.body.as_str()), (204, ""));
        began.elapsed() > 2 * STALL
    });
    let task = scene.task(&id);
    assert_eq!((&task["state"], n(&task["attempts"])), (&json!("running"), 1));
    let task = scene.ends_as("failed", &id);
    assert!(text(&task["error"]["message"]).contains("no sign of life"), "without them it is stalled: {task:#}");
}

/// As a program does it that knows nothing but its own variables.
#[test]
fn a_heartbeat_tells_how_far_the_work_is() {
    let scene = Scene::new();
    let runyard = env!("CARGO_BIN_EXE_runyard");
    let beat = format!("{runyard} heartbeat $RUNYARD_TASK_ID");
    let shell = format!("{beat} --progress 0.25 --message 'page 1' && {beat} --progress 0.5 && exec sleep 1000");
    let env = json!({"RUNYARD_URL": format!("http://{}", scene.address)});
    let mut events = scene.events("types=task.progress");
    let id = scene.submit(json!({"kind": "process", "payload": {"shell": shell, "env": env}}));
    let half = json!({"fraction": 0.5, "message": "page 1"});
    wait_until(SOON, "the message stays", || scene.task(&id)["progress"] == half);
    let first = events.next_event();
    assert_eq!((&first["task"], n(&first["attempt"])), (&json!(id), 1));
    assert_eq!(first["data"], json!({"fraction": 0.25, "message": "page 1"}));
    assert_eq!(events.next_event()["data"], half);
}

#[test]
fn only_what_runs_has_a_heartbeat() {
    let scene = Scene::with("[worker]\ngraceMs = 20000\n[lanes]\nheld = 0\n");
    let queued = scene.submit(json!({"kind": "noop", "lane": "held"}));
    let refused = problem(409, &scene.heartbeat(&queued, json!({})));
    assert_eq!((&refused["code"], &refused["state"]), (&json!("not_running"), &json!("queued")));
    let ended = scene.noop(json!({}));
    scene.ends_as("completed", &ended);
    let refused = problem(409, &scene.heartbeat(&ended, json!({})));
    assert_eq!((&refused["code"], &refused["state"]), (&json!("already_terminal"), &json!("completed")));
    let let_go = scene.home().join("let-go");
    let shell = format!("trap : TERM; echo ready; while [ ! -e {} ]; do sleep 0.05; done", let_go.display());
    let stubborn = scene.submit(json!({"kind": "process", "payload": {"shell": shell}}));
    let log = format!("/v1/tasks/{stubborn}/logs");
    wait_until(SOON, "it is deaf", || scene.request("GET", &log, "").body == "ready\n");
    assert_eq!(scene.cancel(&stubborn).status, 202);
    assert_eq!(problem(409, &scene.heartbeat(&stubborn, json!({})))["code"], "task_stopping");
    std::fs::write(let_go, "").unwrap();
    let nobody = "01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11";
    assert_eq!(problem(404, &scene.heartbeat(nobody, json!({})))["code"], "not_found");
}

#[test]
fn what_a_heartbeat_says_must_make_sense() {
    let scene = Scene::new();
    let id = scene.blocker();
    for (body, field) in [
        (json!({"progress": 1.5}), json!("progress")),
        (json!({"progress": -0.1}), json!("progress")),
        (json!({"progress": "half"}), json!("progress")),
        (json!({"mesage": "typo"}), json!("mesage")),
    ] {
        assert_eq!(problem(400, &scene.heartbeat(&id, body.clone()))["field"], field, "{body}");
    }
    assert_eq!(scene.post(&format!("/v1/tasks/{id}/heartbeat"), "").status, 204, "a body is not needed");
    let long = "x".repeat(2000);
    assert_eq!(scene.heartbeat(&id, json!({"message": long})).status, 204);
    assert_eq!(text(&scene.task(&id)["progress"]["message"]).len(), 500, "a long message is cut");
}

#[test]
fn a_key_beats_for_its_own_agents_only() {
    let guarded = Guarded::new();
    let submit = |agent: &str| {
        let body = json!({"kind": "noop", "agent": agent, "payload": {"sleepMs": 600_000}});
        let answer = guarded.ask(&guarded.admin, "POST", "/v1/tasks", body);
        text(&answer.json()["id"])
    };
    let (own, foreign) = (submit("ada"), submit("bob"));
    let (_, key) = guarded.key(json!({"name": "ada", "scopes": ["submit"], "agents": ["ada"]}));
    let (_, reader) = guarded.key(json!({"name": "reader", "scopes": ["read"]}));
    let beat = |key: &str, id: &str| guarded.ask(key, "POST", &format!("/v1/tasks/{id}/heartbeat"), json!({}));
    wait_until(SOON, "its own is noted", || beat(&key, &own).status == 204);
    assert_eq!(problem(403, &beat(&key, &foreign))["code"], "foreign_agent");
    assert_eq!(problem(403, &beat(&reader, &own))["code"], "missing_scope");
}
