//! What the `http` and `process` kinds do with their payloads and give back.

use serde_json::json;

use crate::scene::{Peer, Reply, SOON, Scene, n, text};
use crate::support::wait_until;

/// A4.40: a JSON answer is the result. A4.43: the body arrives as it was sent. A4.46: the agent is in a header.
#[test]
fn a_json_answer_is_the_result_and_the_request_is_what_was_asked() {
    let scene = Scene::new();
    let peer = Peer::start(|_| Reply::json(json!({"answer": [42]})));
    let payload = json!({"method": "put", "url": peer.url() + "tabs/7?x=1", "headers": {"x-own": "yes"},
        "body": {"kind": "click", "ref": "e5", "selector": "#go", "count": 2}});
    let id = scene.submit(json!({"kind": "http", "agent": "alice", "payload": payload}));
    let task = scene.ends_as("completed", &id);
    assert_eq!(task["result"], json!({"status": 200, "body": {"answer": [42]}}));
    let asked = &peer.asked()[0];
    assert!(asked.head.starts_with("PUT /tabs/7?x=1 HTTP/1.1"), "{}", asked.head);
    assert_eq!(asked.body, payload["body"].to_string());
    assert_eq!(asked.header("x-agent-id").as_deref(), Some("alice"));
    assert_eq!(asked.header("x-own").as_deref(), Some("yes"));
    assert_eq!(asked.header("content-type").as_deref(), Some("application/json"));
}

/// A4.44 in our terms: a payload cannot say that it is another task or attempt; other headers pass.
#[test]
fn a_payload_cannot_pose_as_another_task() {
    let scene = Scene::new();
    let peer = Peer::start(|_| Reply::json(json!({})));
    let headers = json!({"x-runyard-task-id": "other", "x-runyard-attempt": "9", "x-agent-id": "own"});
    let id = scene.submit(json!({"kind": "http", "payload": {"url": peer.url(), "headers": headers}}));
    scene.ends_as("completed", &id);
    let asked = &peer.asked()[0];
    assert_eq!(asked.header("x-runyard-task-id"), Some(id));
    assert_eq!(asked.header("x-runyard-attempt").as_deref(), Some("1"));
}

/// A4.45: what is not there is not sent: no body, no content type, and the method is GET.
#[test]
fn what_a_payload_leaves_out_is_not_sent() {
    let scene = Scene::new();
    let peer = Peer::start(|_| Reply::json(json!({})));
    let id = scene.submit(peer.task(json!({})));
    scene.ends_as("completed", &id);
    let asked = &peer.asked()[0];
    assert!(asked.head.starts_with("GET / HTTP/1.1"), "{}", asked.head);
    assert_eq!((asked.body.as_str(), asked.header("content-type")), ("", None));
}

/// A4.41, B4.34: an answer that is no success fails the task, with status and body in the error.
#[test]
fn a_refusal_is_a_failure_with_status_and_body() {
    let scene = Scene::new();
    let peer = Peer::start(|_| Reply::text(500, "the tab is gone"));
    let id = scene.submit(peer.task(json!({"retry": {"maxRetries": 0}})));
    let task = scene.ends_as("failed", &id);
    assert_eq!(task["error"]["class"], "task");
    let message = text(&task["error"]["message"]);
    assert!(message.contains("500") && message.contains("the tab is gone"), "{message}");
    assert_eq!(n(&task["result"]["status"]), 500);
}

/// A4.42: a place that cannot be reached fails the task, and the error says why.
#[test]
fn an_unreachable_place_is_a_failure() {
    let scene = Scene::new();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let id = scene.submit(json!({"kind": "http", "payload": {"url": format!("http://{closed}/")},
        "retry": {"maxRetries": 0}}));
    let task = scene.ends_as("failed", &id);
    assert_eq!(task["error"]["class"], "task");
    assert!(text(&task["error"]["message"]).contains(&closed.to_string()), "{task:#}");
}

/// Design 7: each status has its class, and permanent ones are never retried.
#[test]
fn a_client_error_is_permanent_and_not_retried() {
    let scene = Scene::new();
    let peer = Peer::start(|_| Reply::text(404, "no"));
    let id = scene.submit(peer.task(json!({"retry": {"backoffMs": 1}})));
    let task = scene.ends_as("failed", &id);
    assert_eq!((task["error"]["class"].as_str(), n(&task["attempts"])), (Some("permanent"), 1));
    assert_eq!(peer.asked().len(), 1);
}

/// A4.48, B4.37: an answer that is no JSON is the result as text.
#[test]
fn a_plain_answer_is_a_text_result() {
    let scene = Scene::new();
    let peer = Peer::start(|_| Reply::text(200, "plain\ntext"));
    let id = scene.submit(peer.task(json!({})));
    assert_eq!(scene.ends_as("completed", &id)["result"], json!({"status": 200, "body": "plain\ntext"}));
}

/// B4.36, put right: a stream gives its joined text and its last event; `[DONE]` is none; each event is in the log.
#[test]
fn a_stream_gives_its_text_its_last_event_and_its_log() {
    let scene = Scene::new();
    let peer =
        Peer::start(|_| Reply::events("data: hello\n\ndata: world\n\ndata: {\"type\":\"finish\"}\n\ndata: [DONE]\n\n"));
    let id = scene.submit(peer.task(json!({})));
    let task = scene.ends_as("completed", &id);
    assert_eq!(task["result"]["text"], "hello\nworld\n{\"type\":\"finish\"}");
    assert_eq!(task["result"]["lastEvent"], json!({"type": "finish"}));
    let log = scene.request("GET", &format!("/v1/tasks/{id}/logs"), "");
    assert_eq!(log.body, "hello\nworld\n{\"type\":\"finish\"}\n");
}

/// B4.33: an attempt that takes too long is aborted; the class says so, and it is per attempt.
#[test]
fn a_timeout_aborts_the_attempt() {
    let scene = Scene::new();
    let peer = Peer::start(|n| if n == 0 { Reply::Silence } else { Reply::json(json!({})) });
    let once = scene.submit(peer.task(json!({"timeoutMs": 1000, "retry": {"maxRetries": 0}})));
    let task = scene.ends_as("failed", &once);
    assert_eq!(task["error"]["class"], "timeout");
    assert!(text(&task["error"]["message"]).contains("1000"), "{task:#}");
    peer.until_hung_up();
    let silent_once = Peer::start(|n| if n == 0 { Reply::Silence } else { Reply::json(json!({})) });
    let twice = scene.submit(silent_once.task(json!({"timeoutMs": 1000, "retry": {"backoffMs": 1}})));
    assert_eq!(n(&scene.ends_as("completed", &twice)["attempts"]), 2);
}

/// Design 7: Retry-After of a 429 is waited for and costs no retry.
#[test]
fn retry_after_is_honoured_and_costs_no_retry() {
    let scene = Scene::new();
    let peer = Peer::start(|n| match n {
        0 => Reply::With(429, "retry-after: 2\r\n", "slow down".into()),
        _ => Reply::json(json!({})),
    });
    let id = scene.submit(peer.task(json!({"retry": {"maxRetries": 0, "backoffMs": 1}})));
    wait_until(SOON, "it waits", || scene.state(&id) == "scheduled");
    let waiting = scene.task(&id);
    assert_eq!(waiting["error"]["class"], "quota", "{waiting:#}");
    let task = scene.ends_as("completed", &id);
    assert_eq!(n(&task["attempts"]), 2);
    let events = scene.events_until(|event| crate::scene::is(event, "task.completed", &id));
    let at = |kind: &str| crate::scene::ms(&events.iter().rfind(|event| event["type"] == kind).unwrap()["at"]);
    assert!(at("task.started") - at("task.retrying") >= 1990, "{events:#?}");
}

/// The issue: a process gives its exit code and output; a non-zero exit is a failure of class task, 124 a timeout.
#[test]
fn a_process_gives_its_exit_code_and_output() {
    let scene = Scene::new();
    let run = |payload| scene.submit(json!({"kind": "process", "payload": payload, "retry": {"maxRetries": 0}}));
    let good = run(json!({"argv": ["cat"], "stdin": "hello"}));
    let result = scene.ends_as("completed", &good)["result"].clone();
    assert_eq!((n(&result["exitCode"]), result["stdout"].as_str()), (0, Some("hello")));
    let environment = run(json!({"shell": "echo $RUNYARD_TASK_ID $RUNYARD_AGENT $RUNYARD_ATTEMPT $OWN; pwd",
        "env": {"OWN": "x"}, "cwd": "/"}));
    let result = scene.ends_as("completed", &environment)["result"].clone();
    assert_eq!(result["stdout"], format!("{environment} default 1 x\n/\n"));
    let bad = scene.ends_as("failed", &run(json!({"shell": "echo why >&2; exit 3"})));
    assert_eq!(bad["error"]["class"], "task");
    assert!(text(&bad["error"]["message"]).contains("3: why"), "{bad:#}");
    assert_eq!(scene.ends_as("failed", &run(json!({"shell": "exit 124"})))["error"]["class"], "timeout");
}

/// Design 8: a stop asks first, then kills the whole group; afterwards nothing of it is alive.
#[test]
fn a_cancelled_process_is_dead_with_all_its_children() {
    let scene = Scene::with("[worker]\ngraceMs = 100\n");
    let shell = "trap '' TERM; (trap '' TERM; sleep 600) & echo $!; echo $$; wait; sleep 600";
    let id = scene.submit(json!({"kind": "process", "payload": {"shell": shell}}));
    let log = format!("/v1/tasks/{id}/logs");
    wait_until(SOON, "both have said who they are", || scene.request("GET", &log, "").body.lines().count() == 2);
    let pids: Vec<String> = scene.request("GET", &log, "").body.lines().map(str::to_owned).collect();
    assert!(pids.iter().all(|pid| is_alive(pid)));
    assert_eq!(scene.cancel(&id).status, 202);
    scene.ends_as("cancelled", &id);
    assert!(!pids.iter().any(|pid| is_alive(pid)), "{pids:?}");
}

/// A zombie waits only for whoever inherited it to look.
fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with(['Z', 'X']))
}
