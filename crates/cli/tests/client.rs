//! The client commands through the real binary, against a small server that answers as told.

mod fake;

use assert_cmd::Command;
use fake::{Fake, Reply};
use serde_json::{Value, json};

const ID: &str = "01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11";
const BATCH: &str = "01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c12";

fn task(state: &str) -> Value {
    json!({
        "id": ID, "state": state, "attempts": 1, "retriesLeft": 3, "createdAt": "2026-01-01T00:00:00.000Z",
        "kind": "process", "payload": {"argv": ["echo", "hi"]}, "agent": "alice", "lane": "main",
        "priority": "normal", "rank": 0, "onDependencyFailure": "cancel", "timeoutMs": 120000,
        "retry": {"maxRetries": 3, "backoffMs": 1000, "multiplier": 2.0, "maxBackoffMs": 60000, "jitter": 0.25, "on": ["task"]},
        "resources": {"cpu": 1.0}, "preemptible": false
    })
}

fn failed() -> Value {
    let mut task = task("failed");
    task["error"] = json!({"class": "task", "message": "exit code 7"});
    task["executionMs"] = json!(1500);
    task
}

fn runyard(fake: &Fake) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_runyard"));
    command.env_clear().env("RUNYARD_URL", fake.url()).env("RUNYARD_DATA", "/nonexistent/runyard");
    command
}

fn stdout(command: &mut Command, code: i32) -> String {
    let output = command.assert().code(code).get_output().stdout.clone();
    String::from_utf8(output).expect("UTF-8")
}

fn stderr(command: &mut Command, code: i32) -> String {
    let output = command.assert().code(code).get_output().stderr.clone();
    String::from_utf8(output).expect("UTF-8")
}

#[test]
fn submit_prints_the_id_alone() {
    let fake = Fake::start([("POST /v1/tasks", Reply::json(201, task("queued")))]);
    let mut command = runyard(&fake);
    command.args(["submit", "--agent", "alice", "--", "echo", "hi"]);
    assert_eq!(stdout(&mut command, 0), format!("{ID}\n"));
    let sent: Value = serde_json::from_str(&fake.bodies()[0]).unwrap();
    assert_eq!(sent, json!({"kind": "process", "payload": {"argv": ["echo", "hi"]}, "agent": "alice"}));
}

#[test]
fn the_key_is_sent_and_never_shown() {
    let fake = Fake::start([("GET /v1/tasks", Reply::json(200, json!({"items": []})))]);
    let mut command = runyard(&fake);
    command.env("RUNYARD_API_KEY", "ry_secret").arg("list");
    assert_eq!(stderr(&mut command, 0), "no tasks\n");
    assert!(fake.heads()[0].to_lowercase().contains("authorization: bearer ry_secret"), "{}", fake.heads()[0]);
    assert!(
        !stdout(Command::new(env!("CARGO_BIN_EXE_runyard")).env("RUNYARD_API_KEY", "ry_secret").arg("--help"), 0)
            .contains("ry_secret")
    );
}

#[test]
fn submit_and_wait_prints_output_and_exits_with_the_outcome() {
    let lines = "id: 1\ndata: {\"stream\":\"stdout\",\"at\":\"2026-01-01T00:00:00Z\",\"text\":\"out\",\"attempt\":1}\n\n\
                 id: 2\ndata: {\"stream\":\"stderr\",\"at\":\"2026-01-01T00:00:00Z\",\"text\":\"err\",\"attempt\":1}\n\n";
    let fake = Fake::start([
        ("POST /v1/tasks", Reply::json(201, task("queued"))),
        ("GET /v1/tasks/{id}/wait", Reply::json(200, failed())),
        ("GET /v1/tasks/{id}/logs", Reply::events(lines)),
    ]);
    let mut command = runyard(&fake);
    let assert = command.args(["submit", "--wait", "--", "false"]).assert().code(1);
    let output = assert.get_output();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(out.contains("out\n"), "{out}");
    assert!(err.contains("err\n") && err.contains("failed after 1.5s: exit code 7 (task)"), "{err}");
}

#[test]
fn outcomes_are_exit_codes() {
    for (state, code) in [("completed", 0), ("failed", 1), ("cancelled", 3), ("rejected", 4)] {
        let fake = Fake::start([("GET /v1/tasks/{id}/wait", Reply::json(200, task(state)))]);
        assert!(stdout(runyard(&fake).args(["wait", ID]), code).contains(state));
    }
}

#[test]
fn a_wait_that_takes_too_long_is_124() {
    let fake = Fake::start([("GET /v1/tasks/{id}/wait", Reply::json(200, task("queued")))]);
    let message = stderr(runyard(&fake).args(["wait", ID, "--timeout", "10ms"]), 124);
    assert!(message.contains("timed out") && message.contains("queued"), "{message}");
}

#[test]
fn a_refusal_names_code_and_field_and_is_4() {
    let problem = json!({"type": "about:blank", "title": "Bad Request", "status": 400, "code": "invalid", "field": "rank",
        "detail": "rank must lie between -1000 and 1000"});
    let fake = Fake::start([("POST /v1/tasks", Reply::problem(400, problem))]);
    let message = stderr(runyard(&fake).args(["submit", "--rank", "7", "--", "x"]), 4);
    assert_eq!(message, "error: rank must lie between -1000 and 1000 (invalid; field rank)\n");
}

#[test]
fn what_is_not_there_is_6_and_a_broken_server_is_5() {
    let fake = Fake::start([(
        "GET /v1/tasks/{id}",
        Reply::problem(404, json!({"status": 404, "detail": "no such task", "code": "not_found"})),
    )]);
    assert_eq!(stderr(runyard(&fake).args(["show", ID]), 6), "error: no such task (not_found)\n");
    let fake = Fake::start([(
        "GET /v1/stats",
        Reply::problem(500, json!({"status": 500, "detail": "oh", "code": "internal"})),
    )]);
    stderr(runyard(&fake).arg("stats"), 5);
    let fake = Fake::start([("GET /v1/stats", Reply { status: 200, kind: "text/html", body: "<html>".into() })]);
    assert!(stderr(runyard(&fake).arg("stats"), 5).contains("does not answer like"));
}

#[test]
fn a_server_that_is_not_there_is_5_and_says_what_to_do() {
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_runyard"));
    let message = stderr(command.env("RUNYARD_URL", format!("http://{unused}")).args(["stats"]), 5);
    assert!(message.contains("runyard serve"), "{message}");
}

#[test]
fn bad_usage_is_2() {
    let fake = Fake::start([]);
    for line in
        [&["show", "nonsense"][..], &["submit"], &["cancel"], &["submit", "--delay", "5", "--", "x"], &["nonsense"]]
    {
        stderr(runyard(&fake).args(line), 2);
    }
    assert!(fake.heads().is_empty());
}

#[test]
fn list_follows_cursors_only_when_asked() {
    let page = || Reply::json(200, json!({"items": [task("queued")], "nextCursor": "9"}));
    let last = Reply::json(200, json!({"items": [failed()]}));
    let fake = Fake::start([("GET /v1/tasks", page()), ("GET /v1/tasks", last)]);
    let out = stdout(runyard(&fake).args(["list", "--all", "--state", "queued,failed", "--agent", "a b"]), 0);
    assert_eq!(out.lines().count(), 3, "{out}");
    assert!(out.contains("task: exit code 7"), "{out}");
    assert!(
        fake.heads()[0].starts_with("GET /v1/tasks?agent=a+b&state=queued%2Cfailed&limit=50 "),
        "{}",
        fake.heads()[0]
    );
    assert!(fake.heads()[1].contains("&cursor=9 "), "{}", fake.heads()[1]);

    let fake = Fake::start([("GET /v1/tasks", page())]);
    let message = stderr(runyard(&fake).args(["list", "--limit", "1"]), 0);
    assert!(message.contains("--cursor 9"), "{message}");
}

#[test]
fn json_is_the_answer_as_it_came() {
    let body = r#"{"items":  [], "unknown": 1.00}"#;
    let fake = Fake::start([("GET /v1/lanes", Reply { status: 200, kind: "application/json", body: body.into() })]);
    assert_eq!(stdout(runyard(&fake).args(["lanes", "--json"]), 0), format!("{body}\n"));
}

#[test]
fn show_has_the_task_and_its_history() {
    let steps = json!({"items": [
        {"step": "created", "at": "2026-01-01T00:00:00.000Z", "attempt": 0},
        {"step": "failed", "at": "2026-01-01T00:00:01.500Z", "attempt": 1, "detail": "task"}
    ]});
    let fake = Fake::start([
        ("GET /v1/tasks/{id}", Reply::json(200, failed())),
        ("GET /v1/tasks/{id}/events", Reply::json(200, steps)),
    ]);
    let out = stdout(runyard(&fake).args(["show", ID]), 0);
    assert!(out.contains("state     failed\n") && out.contains(r#"payload   {"argv":["echo","hi"]}"#), "{out}");
    assert!(out.contains("  +1.5s     failed attempt 1 (task)\n"), "{out}");
}

#[test]
fn cancel_by_id_goes_on_after_a_refusal() {
    let conflict = Reply::problem(409, json!({"status": 409, "code": "already_terminal", "detail": "it has ended"}));
    let stopping = Reply::json(202, json!({"id": ID, "state": "running", "reason": "stopping: cancel"}));
    let fake = Fake::start([("POST /v1/tasks/{id}/cancel", conflict), ("POST /v1/tasks/{id}/cancel", stopping)]);
    let out = stdout(runyard(&fake).args(["cancel", ID, ID, "--reason", "no"]), 4);
    assert_eq!(out, format!("{ID} running (being stopped)\n"));
    assert_eq!(fake.bodies()[0], r#"{"reason":"no"}"#);
}

#[test]
fn cancel_by_filter_says_how_many() {
    let answer = || Reply::json(200, json!({"matched": 3, "cancelled": 2, "stopping": 1}));
    let fake = Fake::start([("POST /v1/tasks/cancel", answer())]);
    let out = stdout(runyard(&fake).args(["cancel", "--agent", "a", "--state", "queued"]), 0);
    assert_eq!(out, "3 matched: 2 cancelled, 1 being stopped\n");
    assert_eq!(fake.bodies()[0], r#"{"agent":"a","state":["queued"]}"#);

    let fake = Fake::start([("POST /v1/batches/{id}/cancel", answer())]);
    stdout(runyard(&fake).args(["cancel", "--batch", BATCH]), 0);
}

#[test]
fn a_batch_is_read_from_lines_and_waited_for() {
    let counts = |done: u32| json!({"total": 2, "waiting": 0, "active": 2 - done, "completed": done, "failed": 0, "cancelled": 0});
    let view = |state: &str, done| json!({"id": BATCH, "state": state, "counts": counts(done), "createdAt": "2026-01-01T00:00:00.000Z"});
    let fake = Fake::start([
        (
            "POST /v1/batches",
            Reply::json(
                201,
                json!({"id": BATCH, "tasks": [{"id": ID, "state": "queued"}, {"id": ID, "state": "queued"}]}),
            ),
        ),
        ("GET /v1/batches/{id}", Reply::json(200, view("running", 1))),
        ("GET /v1/batches/{id}", Reply::json(200, view("finished", 2))),
    ]);
    let mut command = runyard(&fake);
    command
        .args(["batch", "-", "--parallelism", "1", "--wait"])
        .write_stdin("{\"kind\":\"noop\"}\n{\"kind\":\"noop\"}\n");
    assert!(stdout(&mut command, 0).contains("2 tasks, 2 completed"));
    let sent: Value = serde_json::from_str(&fake.bodies()[0]).unwrap();
    assert_eq!(sent, json!({"mode": "all", "parallelism": 1, "tasks": [{"kind": "noop"}, {"kind": "noop"}]}));
}

#[test]
fn agents_and_lanes_are_changed_by_name() {
    let lane = json!({"name": "main", "limit": 3, "paused": true, "running": 1, "queued": 2, "waiting": 0});
    let fake = Fake::start([("PUT /v1/lanes/{id}", Reply::json(200, lane))]);
    assert!(stdout(runyard(&fake).args(["lanes", "main", "--limit", "3", "--pause"]), 0).contains("paused"));
    assert_eq!(fake.bodies()[0], r#"{"limit":3,"paused":true}"#);

    let counts = json!({"waiting": 0, "scheduled": 0, "queued": 4, "running": 1, "completed": 9, "failed": 0, "cancelled": 0, "rejected": 0});
    let mut agent = json!({"name": "a", "weight": 2, "paused": false, "maxInflight": 5});
    agent.as_object_mut().unwrap().extend(counts.as_object().unwrap().clone());
    let fake = Fake::start([("PUT /v1/agents/{id}", Reply::json(200, agent))]);
    stdout(runyard(&fake).args(["agents", "a", "--max-inflight", "5", "--weight", "2", "--resume"]), 0);
    assert_eq!(fake.bodies()[0], r#"{"maxInflight":5,"weight":2,"paused":false}"#);
}

#[test]
fn config_can_be_checked_and_described_without_a_server() {
    let fake = Fake::start([]);
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("good.toml");
    std::fs::write(&good, "[limits]\nmaxQueued = 5\n").unwrap();
    assert!(stdout(runyard(&fake).args(["config", "check"]).arg(&good), 0).ends_with("good.toml: ok\n"));
    let bad = dir.path().join("bad.toml");
    std::fs::write(&bad, "[limits]\nmaxQueue = 5\n").unwrap();
    assert!(stderr(runyard(&fake).args(["config", "check"]).arg(&bad), 2).contains("maxQueue"));
    let schema: Value = serde_json::from_str(&stdout(runyard(&fake).args(["config", "schema"]), 0)).unwrap();
    assert!(schema["properties"]["limits"].is_object());
    let defaults = dir.path().join("default.toml");
    std::fs::write(&defaults, stdout(runyard(&fake).args(["config", "show", "--default"]), 0)).unwrap();
    stdout(runyard(&fake).args(["config", "check"]).arg(&defaults), 0);
}

#[test]
fn completions_are_a_script() {
    let fake = Fake::start([]);
    assert!(stdout(runyard(&fake).args(["completions", "bash"]), 0).contains("complete -F"));
}
