//! Text for a task that runs: mode `steer`, and `POST /v1/tasks/{id}/input`.

use serde_json::{Value, json};

use crate::chat::{Chat, said};
use crate::scene::{SOON, Scene, n, problem, text};
use crate::support::wait_until;

/// Says what it reads, and ends with the line `bye`.
const ECHO: &str = "while read line; do echo heard: $line; if [ \"$line\" = bye ]; then exit 0; fi; done; echo closed";

fn listener(message: &str) -> Value {
    json!({"kind": "process", "payload": {"shell": ECHO, "input": true, "message": message}})
}

/// The issue: mode `steer` hands the message to the running task, which reads it as a line; the message's own task
/// completes and says to whom it went.
#[test]
fn a_message_steers_the_running_task() {
    let scene = Scene::new();
    let chat = Chat::with(&scene, "s", json!({"mode": "steer"}));
    let run = text(&chat.submit(listener("hello"))["id"]);
    until_heard(&scene, &run, "hello");
    let first = chat.submit(said("to the left"));
    assert_eq!(first["steeredInto"], run.as_str(), "{first:#}");
    let task = scene.ends_as("completed", &text(&first["id"]));
    assert_eq!(task["reason"], format!("handed to {run} as input"));
    assert_eq!(n(&task["attempts"]), 0, "{task:#}");
    chat.say("bye");
    assert_eq!(chat.heard(&run), "heard: hello\nheard: to the left\nheard: bye\n");
    chat.until_idle();
}

/// The issue: a kind that takes no input turns the message into a follow-up.
#[test]
fn a_task_that_takes_no_input_is_not_steered() {
    let scene = Scene::new();
    let chat = Chat::with(&scene, "s", json!({"mode": "steer"}));
    let held = chat.hold();
    let answer = chat.submit(said("next"));
    assert_eq!((answer["state"].as_str(), answer.get("steeredInto")), (Some("waiting"), None));
    chat.release(&held);
    assert_eq!(chat.heard(&text(&answer["id"])), "next\n");
}

/// A message that the run did not take before its end is not lost: it runs by itself.
#[test]
fn a_message_that_was_not_taken_runs_by_itself() {
    let scene = Scene::new();
    let chat = Chat::with(&scene, "s", json!({"mode": "steer"}));
    // It never reads, and the pipe takes 64 KiB at most.
    let deaf = json!({"kind": "process", "payload": {"shell": "echo on; sleep 600", "input": true}});
    let run = text(&chat.submit(deaf)["id"]);
    until_logged(&scene, &run, "on");
    let (long, last) = (chat.say(&"x".repeat(200_000)), chat.say("last"));
    assert_eq!(scene.state(&long), "waiting");
    chat.act("stop");
    scene.ends_as("cancelled", &run);
    scene.ends_as("completed", &long);
    assert_eq!(chat.heard(&last), "last\n");
}

/// The issue: `POST …/input` hands text to a running process that was started with `input: true`.
#[test]
fn text_reaches_a_running_process_line_by_line() {
    let scene = Scene::new();
    let run = scene.submit(listener("hello"));
    until_heard(&scene, &run, "hello");
    for line in ["one", "two words"] {
        let answer = scene.expect(202, "POST", &format!("/v1/tasks/{run}/input"), json!({"text": line}));
        assert_eq!(answer["steers"], run.as_str(), "{answer:#}");
        let carrier = scene.ends_as("completed", &text(&answer["id"]));
        assert!(text(&carrier["reason"]).contains(&run), "{carrier:#}");
    }
    scene.expect(202, "POST", &format!("/v1/tasks/{run}/input"), json!({"text": "bye"}));
    let result = scene.ends_as("completed", &run)["result"].clone();
    assert_eq!(result["stdout"], "heard: hello\nheard: one\nheard: two words\nheard: bye\n");
    let refusal = scene.problem(409, "POST", &format!("/v1/tasks/{run}/input"), json!({"text": "late"}));
    assert_eq!((refusal["code"].as_str(), refusal["state"].as_str()), (Some("already_terminal"), Some("completed")));
}

/// The issue: a kind that takes none turns the text into a follow-up, built from the task it was meant for.
#[test]
fn text_for_a_task_that_takes_none_becomes_a_follow_up() {
    let scene = Scene::new();
    let task = json!({"kind": "process", "agent": "a", "payload": {"shell": "cat; sleep 0.3", "message": "first"}});
    let run = scene.submit(task);
    scene.until_state(&run, "running");
    let answer = scene.expect(202, "POST", &format!("/v1/tasks/{run}/input"), json!({"text": "second"}));
    assert_eq!((answer.get("steers"), answer["state"].as_str()), (None, Some("waiting")), "{answer:#}");
    let follow_up = scene.ends_as("completed", &text(&answer["id"]));
    assert_eq!((follow_up["result"]["stdout"].as_str(), follow_up["agent"].as_str()), (Some("second\n"), Some("a")));
    assert_eq!(follow_up["dependsOn"], json!([run]));
}

/// A follow-up runs however the task it was meant for ended.
#[test]
fn a_follow_up_runs_also_after_a_bad_end() {
    let scene = Scene::new();
    let run = scene.blocker();
    let answer = scene.expect(202, "POST", &format!("/v1/tasks/{run}/input"), json!({"text": "then"}));
    scene.cancel(&run);
    scene.ends_as("cancelled", &run);
    let id = text(&answer["id"]);
    scene.until_state(&id, "running");
    assert_eq!(scene.task(&id)["payload"]["message"], "then");
}

/// In a session the follow-up stands in its line, whatever the session's mode is: it must not interrupt the task it is
/// meant for.
#[test]
fn a_follow_up_stands_in_the_session_of_its_task() {
    let scene = Scene::new();
    let chat = Chat::with(&scene, "s", json!({"mode": "interrupt"}));
    let run =
        text(&chat.submit(json!({"kind": "process", "payload": {"shell": "cat; sleep 0.3", "message": "a"}}))["id"]);
    scene.until_state(&run, "running");
    let answer = scene.expect(202, "POST", &format!("/v1/tasks/{run}/input"), json!({"text": "b"}));
    let follow_up = text(&answer["id"]);
    assert_eq!(scene.task(&follow_up)["session"], "s");
    assert_eq!((chat.heard(&run), chat.heard(&follow_up)), ("a\n".into(), "b\n".into()));
}

/// Bad input is refused with its field; an unknown task is 404.
#[test]
fn bad_input_is_refused() {
    let scene = Scene::new();
    let run = scene.blocker();
    let path = format!("/v1/tasks/{run}/input");
    assert_eq!(scene.problem(400, "POST", &path, json!({}))["field"], "text");
    assert_eq!(scene.problem(400, "POST", &path, json!({"text": 7}))["field"], "text");
    assert_eq!(scene.problem(400, "POST", &path, json!({"text": "a", "to": "b"}))["field"], "to");
    let unknown = "/v1/tasks/01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11/input";
    problem(404, &scene.send("POST", unknown, json!({"text": "a"})));
}

/// Design 13: text for a task is work like any other: a draining server takes none.
#[test]
fn a_draining_server_takes_no_input() {
    let scene = Scene::new();
    let run = scene.blocker();
    scene.expect(200, "POST", "/v1/drain", json!({"on": true}));
    let refusal = scene.problem(503, "POST", &format!("/v1/tasks/{run}/input"), json!({"text": "a"}));
    assert_eq!(refusal["code"], "draining");
}

fn until_heard(scene: &Scene, id: &str, line: &str) {
    until_logged(scene, id, &format!("heard: {line}\n"));
}

fn until_logged(scene: &Scene, id: &str, line: &str) {
    let log = format!("/v1/tasks/{id}/logs");
    wait_until(SOON, &format!("{line:?} is in the log"), || scene.request("GET", &log, "").body.contains(line));
}
