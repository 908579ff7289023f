//! Bad input is answered with problem+json that names the field and the rule, and nothing of it is stored.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use common::{Reply, Yard};
use serde_json::{Value, json};

const JSON: (&str, &str) = ("Content-Type", "application/json");

async fn send(yard: &Yard, method: &str, path: &str, body: &[u8]) -> Reply {
    yard.request(method, path).header(JSON.0, JSON.1).body(body.to_vec()).send().await
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_bodies_are_refused_and_nothing_is_stored() {
    let yard = Yard::new().await;
    let long = format!(r#"{{"kind":"noop","agent":"{}"}}"#, "x".repeat(10_000));
    let huge = format!(r#"{{"kind":"noop","payload":{{"result":"{}"}}}}"#, "x".repeat(1024 * 1024));
    let table: Vec<(&str, &[u8], u16, &str, &str)> = vec![
        ("/v1/tasks", b"", 400, "", "empty"),
        ("/v1/tasks", b"{", 400, "", "ends too early"),
        ("/v1/tasks", b"{\"kind\":\"\xff\"}", 400, "", "UTF-8"),
        ("/v1/tasks", b"[]", 400, "", "must be an object"),
        ("/v1/tasks", br#"{"kind":"noop","retry":[9,5,2,9,0,null]}"#, 400, "retry", "must be an object"),
        ("/v1/tasks", br#"{"kind":"noop","payload":[5,null,null]}"#, 400, "payload", "must be an object"),
        ("/v1/batches", br#"{"tasks":[{"kind":"noop"},["noop"]]}"#, 400, "tasks[1]", "must be an object"),
        ("/v1/drain", b"[true]", 400, "", "the body must be an object"),
        ("/v1/tasks/cancel", br#"["a",[],null,null,null,null]"#, 400, "", "the body must be an object"),
        ("/v1/tasks", br#"{"kind":"noop"} x"#, 400, "", "more behind"),
        ("/v1/tasks", br#"{"kind":7}"#, 400, "kind", "invalid type"),
        ("/v1/tasks", br#"{"kind":"noop","prio":1}"#, 400, "prio", "unknown field"),
        ("/v1/tasks", br#"{"kind":"noop","timeoutMs":-5}"#, 400, "timeoutMs", "-5"),
        ("/v1/tasks", br#"{"kind":"noop","rank":1.5}"#, 400, "rank", "1.5"),
        ("/v1/tasks", br#"{"kind":"noop","deadline":"2001-01-01T00:00:00Z"}"#, 400, "deadline", "past"),
        ("/v1/tasks", br#"{"kind":"noop","dependsOn":["x"]}"#, 400, "dependsOn[0]", "not an id"),
        ("/v1/tasks", br#"{"kind":"process","payload":{"argv":[]}}"#, 400, "payload.argv", "program"),
        ("/v1/tasks", long.as_bytes(), 400, "agent", "a name is"),
        ("/v1/tasks", huge.as_bytes(), 413, "", "1048576"),
        ("/v1/batches", br#"{"tasks":[{"kind":"noop"},{"kind":"noop","lane":""}]}"#, 400, "tasks[1].lane", "a name is"),
        ("/v1/batches", br#"{"tasks":[]}"#, 400, "tasks", "1 to 1000"),
        ("/v1/tasks/cancel", br#"{"state":["completed"]}"#, 400, "state", "only live"),
        ("/v1/drain", br#"{}"#, 400, "on", "missing field"),
        ("/v1/keys", br#"{"name":"a b","scopes":["read"]}"#, 400, "name", "a name is"),
        ("/v1/keys", br#"{"name":"a","scopes":[]}"#, 400, "scopes", "at least one"),
        ("/v1/backup", br#"{"path":"x.db"}"#, 400, "path", "absolute"),
        ("/v1/backup", br#"{"path":"../x"}"#, 400, "path", "absolute"),
    ];
    for (path, body, status, field, rule) in table {
        let shown = String::from_utf8_lossy(&body[..body.len().min(100)]).into_owned();
        let reply = send(&yard, "POST", path, body).await;
        assert_eq!(reply.status, status, "{path} {shown}: {reply:?}");
        let problem = reply.problem();
        let named = problem["field"].as_str().unwrap_or("");
        assert_eq!(named, field, "{path} {shown}: {reply:?}");
        assert!(problem["detail"].as_str().unwrap().contains(rule), "{path} {shown}: {reply:?}");
    }
    let stored = yard.get("/v1/tasks").await.json();
    assert_eq!(stored["items"], json!([]));
    let stats: Value = yard.get("/v1/stats").await.json();
    assert_eq!((&stats["metrics"]["submitted"], &stats["queue"]["totalQueued"]), (&json!(0), &json!(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_changes_no_setting_and_no_task() {
    let yard = Yard::new().await;
    let waiting = json!({"kind": "noop", "delayMs": 3_600_000});
    let id = yard.request("POST", "/v1/tasks").json(&waiting).send().await.json()["id"].as_str().unwrap().to_owned();
    let task = format!("/v1/tasks/{id}");
    let table: [(&str, &str, &[u8]); 4] = [
        ("PATCH", &task, br#"["high",7,null,null]"#),
        ("PUT", "/v1/lanes/zz", b"[3,false]"),
        ("PUT", "/v1/agents/zz", b"[1,1,true,null]"),
        ("PATCH", "/v1/config", b"[]"),
    ];
    for (method, path, body) in table {
        let reply = send(&yard, method, path, body).await;
        assert_eq!((reply.status, &reply.problem()["code"]), (400, &json!("invalid")), "{path}: {reply:?}");
        assert!(reply.problem()["detail"].as_str().unwrap().contains("must be an object"), "{path}: {reply:?}");
    }
    assert_eq!(yard.get(&task).await.json()["rank"], 0);
    let lanes = yard.get("/v1/lanes").await.json();
    assert!(!lanes.to_string().contains("zz"), "{lanes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_paths_queries_methods_and_media_types_are_problems() {
    let yard = Yard::new().await;
    let unknown = "/v1/tasks/01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11";
    let long_id = format!("/v1/tasks/{}", "x".repeat(5000));
    let table = [
        ("GET", unknown.to_owned(), 404, "not_found"),
        ("GET", format!("{unknown}/wait"), 404, "not_found"),
        ("GET", format!("{unknown}/explain"), 404, "not_found"),
        ("GET", format!("{unknown}/logs"), 404, "not_found"),
        ("GET", format!("{unknown}/events"), 404, "not_found"),
        ("POST", format!("{unknown}/retry"), 404, "not_found"),
        ("POST", format!("{unknown}/cancel"), 404, "not_found"),
        ("GET", "/v1/batches/01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11".to_owned(), 404, "not_found"),
        ("GET", "/v1/tasks/nonsense".to_owned(), 400, "invalid"),
        ("GET", long_id, 400, "invalid"),
        ("GET", "/v1/nothing".to_owned(), 404, "not_found"),
        ("GET", "/".to_owned(), 404, "not_found"),
        ("DELETE", "/v1/tasks".to_owned(), 405, "method_not_allowed"),
        ("GET", "/v1/tasks?limit=0".to_owned(), 400, "invalid"),
        ("GET", "/v1/tasks?limit=x".to_owned(), 400, "invalid"),
        ("GET", "/v1/tasks?colour=red".to_owned(), 400, "invalid"),
        ("GET", "/v1/tasks?state=sleeping".to_owned(), 400, "invalid"),
        ("GET", "/v1/tasks?cursor=x".to_owned(), 400, "invalid"),
        ("GET", "/v1/events?after=x".to_owned(), 400, "invalid"),
        ("GET", format!("{unknown}/wait?timeoutMs=99999999"), 400, "invalid"),
    ];
    for (method, path, status, code) in table {
        let reply = yard.request(method, &path).send().await;
        assert_eq!(
            (reply.status, reply.problem()["code"].as_str()),
            (status, Some(code)),
            "{method} {path}: {reply:?}"
        );
    }
    let plain =
        yard.request("POST", "/v1/tasks").header("Content-Type", "text/plain").body(b"{}".to_vec()).send().await;
    assert_eq!((plain.status, &plain.problem()["code"]), (415, &json!("unsupported_media_type")));
    let limit = yard.get("/v1/tasks?limit=x").await.problem();
    assert_eq!(limit["field"], "limit", "{limit}");
    let colour = yard.get("/v1/tasks?colour=red").await.problem();
    assert_eq!(colour["field"], "colour", "{colour}");
}
