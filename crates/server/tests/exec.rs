//! What tasks may run, and the secrets they may have.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::path::Path;

use common::{PATIENCE, Request, Yard};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const CANARY: &str = "canary-7d1f0c";

#[tokio::test(flavor = "multi_thread")]
async fn only_listed_programs_and_directories_may_be_used() {
    let yard = Yard::with(json!({"exec": {"commands": ["true"], "workDirs": ["/tmp"]}})).await;
    let process = |payload: Value| json!({"kind": "process", "payload": payload});
    let done = yard.submit(process(json!({"argv": ["true"], "cwd": "/tmp"}))).await;
    assert_eq!(yard.ended(&done["id"]).await["state"], "completed");
    for (payload, field) in [
        (json!({"argv": ["false"]}), "payload.argv"),
        (json!({"shell": "true"}), "payload.argv"),
        (json!({"argv": ["true"], "cwd": "/"}), "payload.cwd"),
        (json!({"argv": ["true"], "env": {"PATH": "/tmp"}}), "payload.env.PATH"),
    ] {
        let refused = yard.post("/v1/tasks", process(payload.clone())).await;
        let problem = refused.problem();
        assert_eq!((refused.status, &problem["code"], &problem["field"]), (403, &json!("not_allowed"), &json!(field)));
        let batch = yard.post("/v1/batches", json!({"mode": "partial", "tasks": [process(payload)]})).await;
        assert_eq!(batch.problem()["code"], "not_allowed");
    }
    // A list that was narrowed since binds copies of what was accepted before.
    let narrowed = yard.request("PATCH", "/v1/config").json(&json!({"exec": {"commands": []}})).send().await;
    assert_eq!(narrowed.status, 200, "{narrowed:?}");
    let retry = yard.request("POST", &format!("/v1/tasks/{}/retry", done["id"].as_str().unwrap())).send().await;
    assert_eq!(retry.problem()["code"], "not_allowed");
    let bad = yard.request("PATCH", "/v1/config").json(&json!({"exec": {"workDirs": ["relative"]}})).send().await;
    assert_eq!(bad.problem()["field"], "exec.workDirs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_was_narrowed_binds_what_was_accepted_before() {
    let yard = Yard::new().await;
    let patch = async |change: Value| {
        let patched = yard.request("PATCH", "/v1/config").json(&change).send().await;
        assert_eq!(patched.status, 200, "{patched:?}");
    };
    patch(json!({"agents": {"bot": {"paused": true}}})).await;
    let task = json!({"kind": "process", "agent": "bot", "payload": {"argv": ["true"]}, "retry": {"maxRetries": 3}});
    let task = yard.submit(task).await;
    patch(json!({"exec": {"commands": ["git"]}, "agents": {"bot": {"paused": false}}})).await;
    let ended = yard.ended(&task["id"]).await;
    assert_eq!((&ended["state"], &ended["attempts"]), (&json!("failed"), &json!(1)), "{ended}");
    assert_eq!(ended["error"]["class"], "permanent", "{ended}");
    assert!(ended["error"]["message"].as_str().unwrap().contains("[exec] commands"), "{ended}");
}

/// Answers one request with what it was asked, headers and all.
async fn echo(listener: &TcpListener) -> String {
    let (mut stream, _) = tokio::time::timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n") {
        asked.push(stream.read_u8().await.unwrap());
    }
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", asked.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&asked).await.unwrap();
    String::from_utf8(asked).unwrap()
}

fn files_below(dir: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            files_below(&entry.path(), found);
        } else {
            found.push(entry.path());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_reaches_its_request_and_nothing_else() {
    let yard = Yard::new().await;
    let put =
        async |name: &str, body: Value| yard.request("PUT", &format!("/v1/secrets/{name}")).json(&body).send().await;
    assert_eq!(put("token", json!({"value": CANARY, "agents": ["bot"]})).await.status, 204);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/secret-is-secret://token", listener.local_addr().unwrap());
    let payload = json!({"url": url, "headers": {"Authorization": "Bearer secret://token"}});
    let mut events = yard.events("", None).await;
    let task = yard.submit(json!({"kind": "http", "agent": "bot", "payload": payload})).await;
    let asked = echo(&listener).await;
    assert!(asked.contains(&format!("Bearer {CANARY}")) && asked.contains(&format!("secret-is-{CANARY}")), "{asked}");
    let ended = yard.ended(&task["id"]).await;
    assert_eq!(ended["state"], "completed", "{ended}");
    assert!(ended["result"].to_string().contains("(secret)"), "{ended}");
    let id = task["id"].as_str().unwrap();
    // Nobody listens any more: the failure names the address.
    drop(listener);
    let failing = json!({"kind": "http", "agent": "bot", "payload": payload, "retry": {"maxRetries": 0}});
    let failed = yard.submit(failing).await;
    let failed = yard.ended(&failed["id"]).await;
    assert!(failed["error"]["message"].as_str().unwrap().contains("secret-is-secret://token"), "{failed}");

    let mut seen = String::new();
    loop {
        let event = events.next().await.unwrap();
        seen += &event.data.to_string();
        if event.event == "task.failed" {
            break;
        }
    }
    let paths = ["", "/events", "/logs", "/messages", "/explain"].map(|part| format!("/v1/tasks/{id}{part}"));
    let routes = ["/v1/tasks", "/v1/secrets", "/v1/audit", "/v1/config", "/v1/stats", "/metrics"].map(str::to_owned);
    for path in paths.iter().chain(&routes) {
        seen += &yard.get(path).await.body;
    }
    assert!(seen.contains("secret://token") && !seen.contains(CANARY), "{seen}");
    let backup = yard.post("/v1/backup", json!({"path": yard.dir.path().join("copy.db")})).await;
    assert_eq!(backup.status, 200, "{backup:?}");
    let mut files = Vec::new();
    files_below(yard.dir.path(), &mut files);
    assert!(files.iter().any(|file| file.ends_with("secrets.key")) && files.len() > 5, "{files:?}");
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        assert!(!bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes()), "{}", file.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_for_its_agents_and_survives_a_restart() {
    let yard = Yard::with(json!({"secrets": {"fixed": {"env": "PATH"}}})).await;
    let put = async |yard: &Yard, name: &str, body: Value| {
        yard.request("PUT", &format!("/v1/secrets/{name}")).json(&body).send().await
    };
    assert_eq!(put(&yard, "token", json!({"value": CANARY, "agents": ["bot"]})).await.status, 204);
    let submit = async |yard: &Yard, kind: &str, agent: &str, text: &str| {
        let payload = match kind {
            "http" => json!({"url": "http://127.0.0.1:9/", "body": text}),
            _ => json!({"argv": ["true"], "env": {"TOKEN": text}}),
        };
        yard.post("/v1/tasks", json!({"kind": kind, "agent": agent, "payload": payload, "delayMs": 600_000})).await
    };
    assert_eq!(submit(&yard, "http", "bot", "secret://token").await.status, 201);
    assert_eq!(submit(&yard, "http", "other", "secret://fixed").await.status, 201);
    let foreign = submit(&yard, "http", "other", "secret://token").await;
    assert_eq!((foreign.status, &foreign.problem()["code"]), (403, &json!("not_allowed")));
    assert_eq!(submit(&yard, "http", "bot", "secret://nope").await.problem()["code"], "unknown_secret");
    assert_eq!(submit(&yard, "process", "bot", "secret://token").await.status, 201);
    let foreign = submit(&yard, "process", "other", "secret://token").await;
    assert_eq!((foreign.status, &foreign.problem()["field"]), (403, &json!("payload.env.TOKEN")));
    for payload in [json!({"argv": ["echo", "secret://token"]}), json!({"shell": "echo secret://token"})] {
        let refused = yard.post("/v1/tasks", json!({"kind": "process", "agent": "bot", "payload": payload})).await;
        let (problem, field) = (refused.problem(), if payload["shell"].is_null() { "argv[1]" } else { "shell" });
        assert_eq!((refused.status, &problem["field"]), (400, &json!(format!("payload.{field}"))));
        assert!(problem["detail"].as_str().unwrap().contains("put secret://NAME in env"), "{problem}");
    }
    for payload in [
        json!({"url": "http://secret://token.invalid/"}),
        json!({"url": "http://u:secret://token@127.0.0.1/"}),
        json!({"url": "http://127.0.0.1/", "method": "secret://token"}),
    ] {
        let refused = yard.post("/v1/tasks", json!({"kind": "http", "agent": "bot", "payload": payload})).await;
        let field = if payload["method"].is_null() { "payload.url" } else { "payload.method" };
        assert_eq!((refused.status, &refused.problem()["field"]), (400, &json!(field)));
    }
    for (name, body, status, what) in [
        ("short", json!({"value": "1234567"}), 400, "value"),
        ("a.b", json!({"value": CANARY}), 400, "name"),
        ("ok", json!({"value": CANARY, "agents": ["a b"]}), 400, "agents[0]"),
    ] {
        let refused = put(&yard, name, body).await;
        assert_eq!((refused.status, refused.problem()["field"].as_str()), (status, Some(what)));
    }
    assert_eq!(put(&yard, "fixed", json!({"value": CANARY})).await.problem()["code"], "configured_secret");

    let yard = yard.restart(json!({})).await;
    let listed = yard.get("/v1/secrets").await.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!((&listed["items"][0]["name"], &listed["items"][0]["source"]), (&json!("token"), &json!("stored")));
    assert_eq!(submit(&yard, "http", "bot", "secret://token").await.status, 201);
    assert_eq!(put(&yard, "token", json!({"value": CANARY})).await.status, 204);
    let replaced = yard.get("/v1/audit?limit=1").await.json()["items"][0].clone();
    assert_eq!((&replaced["before"]["agents"], &replaced["after"]["agents"]), (&json!(["bot"]), &Value::Null));
    assert_eq!(yard.request("DELETE", "/v1/secrets/token").send().await.status, 204);
    assert_eq!(yard.request("DELETE", "/v1/secrets/token").send().await.status, 404);
    assert_eq!(submit(&yard, "http", "bot", "secret://token").await.status, 400);
    let actions: Vec<String> = yard.get("/v1/audit").await.json()["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["action"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(actions, ["secret.removed", "secret.replaced", "secret.set"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_goes_through() {
    let yard = Yard::new().await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let task = json!({"kind": "http", "payload": {"url": format!("http://{}/", listener.local_addr().unwrap())}});
    let submit = |header: &str| yard.request("POST", "/v1/tasks").header("traceparent", header).json(&task);
    let submitted = submit(trace).send().await.json();
    assert_eq!(submitted["traceparent"], trace);
    assert!(echo(&listener).await.contains(&format!("traceparent: {trace}")));
    yard.ended(&submitted["id"]).await;
    let shown = yard.get(&format!("/v1/tasks/{}", submitted["id"].as_str().unwrap())).await.json();
    assert_eq!(shown["traceparent"], trace);
    let broken = submit("nonsense").send().await;
    assert_eq!((broken.status, broken.json().get("traceparent")), (201, None));
    assert!(!echo(&listener).await.to_ascii_lowercase().contains("traceparent"));
    let process = json!({"kind": "process", "payload": {"shell": "echo trace=$TRACEPARENT"}});
    let request = Request::new(&yard.addr, "POST", "/v1/tasks").header("X-API-Key", yard.key.as_ref().unwrap());
    let process = request.header("traceparent", trace).json(&process).send().await.json();
    let ended = yard.ended(&process["id"]).await;
    assert_eq!(ended["result"]["stdout"], format!("trace={trace}\n"), "{ended}");
}
