//! What is taken and what is refused at the door, and that a refusal leaves nothing behind.

use serde_json::{Value, json};

use crate::scene::{Scene, from_now, header, n, problem, text};
use crate::support::is_terminal;

/// A4.1, A4.30, B4.1: a valid task is accepted with its id, an active state and everything it was submitted with.
#[test]
fn a_valid_task_is_accepted_with_its_id_and_its_defaults_filled_in() {
    let scene = Scene::new();
    let answer = scene.send("POST", "/v1/tasks", json!({"kind": "noop", "agent": "a", "metadata": {"k": [1]}}));
    assert_eq!(answer.status, 201, "{}", answer.body);
    let task = answer.json();
    let id = text(&task["id"]);
    assert_eq!(header(&answer, "location"), Some(format!("/v1/tasks/{id}")));
    assert!(!is_terminal(&text(&task["state"])), "{task:#}");
    let shown = scene.end(&id);
    for (field, value) in [
        ("kind", json!("noop")),
        ("agent", json!("a")),
        ("lane", json!("main")),
        ("priority", json!("normal")),
        ("rank", json!(0)),
        ("timeoutMs", json!(120_000)),
        ("onDependencyFailure", json!("cancel")),
        ("preemptible", json!(false)),
        ("metadata", json!({"k": [1]})),
    ] {
        assert_eq!(shown[field], value, "{field}");
        assert_eq!(task[field], value, "{field}");
    }
    for field in ["createdAt", "queuedAt", "assignedAt", "startedAt", "finishedAt", "executionMs", "worker"] {
        assert!(!shown[field].is_null(), "{field} is missing in {shown:#}");
    }
    assert_eq!((n(&shown["attempts"]), n(&shown["retriesLeft"])), (1, 3));
}

/// A4.11: ids are distinct, of one form, and made by the server.
#[test]
fn ids_are_distinct_uuids() {
    let scene = Scene::new();
    let mut ids: Vec<String> = (0..20).map(|_| scene.noop(json!({}))).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 20);
    assert!(ids.iter().all(|id| id.len() == 36 && id.as_bytes()[14] == b'7'), "{ids:?}");
}

/// B4.10: a client's own `id` or `state` is refused by name; the server alone makes them.
#[test]
fn a_client_cannot_choose_id_or_state() {
    let scene = Scene::new();
    for field in ["id", "state"] {
        let refusal = scene.problem(400, "POST", "/v1/tasks", json!({"kind": "noop", field: "completed"}));
        assert_eq!(refusal["field"], field);
    }
}

/// B4.11: an empty retry policy gets the defaults.
#[test]
fn an_empty_retry_policy_gets_the_defaults() {
    let scene = Scene::new();
    let id = scene.submit(json!({"kind": "noop", "retry": {}}));
    let retry = &scene.task(&id)["retry"];
    assert_eq!((n(&retry["maxRetries"]), n(&retry["backoffMs"])), (3, 1000));
    assert_eq!((retry["multiplier"].as_f64(), n(&retry["maxBackoffMs"])), (Some(2.0), 60_000));
}

/// A4.8–A4.10, A4.12, B4.8: a callback to an address of the server's own network, or by anything but http, is refused; a
/// task without one does not show the field.
#[test]
fn a_callback_to_where_it_must_not_go_is_refused() {
    let scene = Scene::new();
    for url in [
        "http://127.0.0.1/",
        "http://169.254.169.254/",
        "file:///etc/passwd",
        "ftp://x/",
        "://bad",
        "https://me:secret@x.example/",
        "http://0x7f.1/",
        "http://[::ffff:10.0.0.1]/",
    ] {
        let refusal = scene.problem(400, "POST", "/v1/tasks", json!({"kind": "noop", "callbackUrl": url}));
        assert_eq!((refusal["field"].as_str(), refusal["code"].as_str()), (Some("callbackUrl"), Some("invalid")));
        let batch = json!({"tasks": [{"kind": "noop"}], "callbackUrl": url});
        assert_eq!(scene.problem(400, "POST", "/v1/batches", batch)["field"], "callbackUrl");
    }
    let id = scene.noop(json!({}));
    assert!(scene.task(&id).get("callbackUrl").is_none());
}

/// A4.2–A4.7, A4.47, B4.2–B4.9 and the issue's table of bad input: each is a 4xx problem+json that names the field and the
/// rule, and nothing of it is stored or counted.
#[test]
fn bad_input_is_refused_with_field_and_rule_and_leaves_nothing() {
    let scene = Scene::new();
    let before = scene.stats();
    let long = "x".repeat(10_000);
    let cases = [
        (json!({}), "kind", "is required"),
        (json!({"kind": ""}), "kind", "a name is 1 to 64"),
        (json!({"kind": 7}), "kind", "expected a string"),
        (json!({"kind": "noop", "agent": ["a"]}), "agent", "expected a string"),
        (json!({"kind": "noop", "agent": ""}), "agent", "a name is 1 to 64"),
        (json!({"kind": "noop", "agent": long}), "agent", "a name is 1 to 64"),
        (json!({"kind": "noop", "lane": long}), "lane", "a name is 1 to 64"),
        (json!({"kind": long}), "kind", "a name is 1 to 64"),
        (json!({"kind": "noop", "name": long}), "name", "256 bytes"),
        (json!({"kind": "noop", "tags": [long]}), "tags[0]", "a name is 1 to 64"),
        (json!({"kind": "noop", "surprise": true}), "surprise", "unknown field"),
        (json!({"kind": "noop", "llmConfig": {}}), "llmConfig", "unknown field"),
        (json!({"kind": "noop", "retry": {"tries": 1}}), "retry.tries", "unknown field"),
        (json!({"kind": "noop", "priority": "urgent"}), "priority", "critical"),
        (json!({"kind": "noop", "priority": 1}), "priority", "expected"),
        (json!({"kind": "noop", "rank": 1.5}), "rank", "expected i32"),
        (json!({"kind": "noop", "timeoutMs": 0}), "timeoutMs", "from 1"),
        (json!({"kind": "noop", "timeoutMs": -5}), "timeoutMs", "-5"),
        (json!({"kind": "noop", "timeoutMs": 86_400_001}), "timeoutMs", "to 86400000"),
        (json!({"kind": "noop", "delayMs": -1}), "delayMs", "-1"),
        (json!({"kind": "noop", "ttlMs": -1}), "ttlMs", "-1"),
        (json!({"kind": "noop", "retry": {"maxRetries": -1}}), "retry.maxRetries", "-1"),
        (json!({"kind": "noop", "retry": {"backoffMs": -1}}), "retry.backoffMs", "-1"),
        (json!({"kind": "noop", "retry": {"multiplier": 0.9}}), "retry.multiplier", "from 1"),
        (json!({"kind": "noop", "retry": {"jitter": -0.1}}), "retry.jitter", "0 to 1"),
        (json!({"kind": "noop", "resources": {"cpu": -1}}), "resources.cpu", "more than 0"),
        (json!({"kind": "noop", "deadline": "not-a-date"}), "deadline", "a time looks like"),
        (json!({"kind": "noop", "deadline": "2030-01-01"}), "deadline", "a time looks like"),
        (json!({"kind": "noop", "deadline": from_now(-1000)}), "deadline", "already past"),
        (json!({"kind": "noop", "dependsOn": ["not-an-id"]}), "dependsOn[0]", "id"),
        (json!({"kind": "noop", "dependsOn": ["#name"]}), "dependsOn[0]", "batch"),
        (json!({"kind": "noop", "gates": ["nobody"]}), "gates[0]", "no gate"),
        (json!({"kind": "noop", "metadata": "text"}), "metadata", "expected"),
        (json!({"kind": "noop", "metadata": {"k": "x".repeat(17_000)}}), "metadata", "16384 bytes"),
        (json!({"kind": "noop", "session": ["s"]}), "session", "the key of a session"),
        (json!({"kind": "noop", "session": {"mode": "queue"}}), "session.key", "missing field"),
        (json!({"kind": "http"}), "payload", "is missing"),
        (json!({"kind": "http", "payload": {"url": "ftp://x/"}}), "payload.url", "use http or https"),
        (json!({"kind": "process", "payload": {}}), "payload.argv", "is missing"),
        (json!({"kind": "noop", "payload": {"sleepMs": -1}}), "payload.sleepMs", "-1"),
    ];
    for (body, field, rule) in cases {
        let refusal = scene.problem(400, "POST", "/v1/tasks", body.clone());
        assert_eq!(refusal["field"], field, "{body} gave {refusal:#}");
        assert!(text(&refusal["detail"]).contains(rule), "{body} gave {refusal:#}");
    }
    assert_nothing_stored(&scene, &before);
}

/// A4.4, A4.5, B4.3: broken JSON, bytes that are no text, another media type and huge bodies, declared or not.
#[test]
fn a_body_that_cannot_be_read_is_refused_and_leaves_nothing() {
    let scene = Scene::new();
    let before = scene.stats();
    let cases: [(&[u8], &str); 8] = [
        (b"", "empty"),
        (b"{", "ends too early"),
        (b"not json", "not JSON"),
        (b"{\"kind\":\"noop\",}", "not JSON"),
        (b"{\"kind\":\"noop\"} {}", "more behind"),
        (b"[{\"kind\":\"noop\"}]", "must be an object, not a list"),
        (b"null", "invalid type: null"),
        (b"{\"kind\":\"\xff\xfe\"}", "not UTF-8"),
    ];
    for (body, rule) in cases {
        let headers = [("content-type", "application/json")];
        let refusal = problem(400, &scene.try_send("POST", "/v1/tasks", &headers, body).unwrap());
        assert!(text(&refusal["detail"]).contains(rule), "{} gave {refusal:#}", body.escape_ascii());
    }
    let other =
        scene.try_request("POST", "/v1/tasks", &[("content-type", "text/plain")], r#"{"kind":"noop"}"#).unwrap();
    assert_eq!(problem(415, &other)["code"], "unsupported_media_type");
    let huge = format!(r#"{{"kind":"noop","payload":{{"result":"{}"}}}}"#, "x".repeat(1 << 20));
    assert_eq!(n(&problem(413, &scene.post("/v1/tasks", &huge))["limit"]), 1 << 20);
    let chunked = format!("{:x}\r\n{huge}\r\n0\r\n\r\n", huge.len());
    let undeclared = scene.try_request("POST", "/v1/tasks", &[("transfer-encoding", "chunked")], &chunked).unwrap();
    assert_eq!(problem(413, &undeclared)["code"], "body_too_large");
    assert_nothing_stored(&scene, &before);
}

/// The issue: an unknown id is 404 on every route that takes one, an id that is none is 400; unknown routes, methods
/// and query parameters are problems too.
#[test]
fn unknown_ids_routes_methods_and_parameters_are_problems() {
    let scene = Scene::new();
    let unknown = "01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11";
    for (method, rest) in [
        ("GET", ""),
        ("DELETE", ""),
        ("PATCH", ""),
        ("GET", "/wait"),
        ("POST", "/cancel"),
        ("POST", "/retry"),
        ("GET", "/explain"),
        ("GET", "/logs"),
        ("GET", "/events"),
        ("GET", "/messages"),
        ("POST", "/input"),
    ] {
        let body = match (method, rest) {
            ("PATCH", _) => "{\"rank\":1}",
            (_, "/input") => "{\"text\":\"a\"}",
            _ => "",
        };
        let refusal = problem(404, &scene.request(method, &format!("/v1/tasks/{unknown}{rest}"), body));
        assert_eq!(refusal["code"], "not_found", "{method} {rest}");
        let refusal = problem(400, &scene.request(method, &format!("/v1/tasks/nope{rest}"), body));
        assert_eq!(refusal["field"], "id", "{method} {rest}");
    }
    assert_eq!(scene.problem(404, "GET", &format!("/v1/batches/{unknown}"), Value::Null)["code"], "not_found");
    problem(404, &scene.request("POST", &format!("/v1/batches/{unknown}/cancel"), ""));
    problem(404, &scene.request("GET", "/v1/nowhere", ""));
    problem(404, &scene.request("GET", "/", ""));
    problem(405, &scene.request("PUT", "/v1/tasks", ""));
    assert_eq!(problem(400, &scene.request("GET", "/v1/tasks?colour=red", ""))["field"], "colour");
    assert_eq!(problem(400, &scene.request("GET", "/v1/tasks?state=done", ""))["field"], "state");
    assert_eq!(problem(400, &scene.request("GET", "/v1/tasks?cursor=x", ""))["field"], "cursor");
    problem(400, &scene.request("GET", &format!("/v1/tasks/{unknown}/wait?timeoutMs=-1"), ""));
    problem(400, &scene.request("GET", "/v1/events?after=yesterday", ""));
}

/// Design 4: a repeat with the same key and body gets the first answer again; another body is 422; the key's scope is
/// the agent.
#[test]
fn an_idempotency_key_answers_again_and_refuses_another_body() {
    let scene = Scene::new();
    let send = |body: &str| scene.try_request("POST", "/v1/tasks", &[("idempotency-key", "k")], body).unwrap();
    let first = send(r#"{"kind":"noop","agent":"a"}"#);
    let id = text(&first.json()["id"]);
    scene.end(&id);
    let again = send(r#"{"kind":"noop","agent":"a"}"#);
    assert_eq!((again.status, text(&again.json()["id"])), (201, id.clone()));
    assert_eq!(again.json()["state"], first.json()["state"]);
    assert_eq!(header(&again, "idempotent-replayed").as_deref(), Some("true"));
    let other = problem(422, &send(r#"{"kind":"noop","agent":"a","rank":1}"#));
    assert_eq!(other["code"], "idempotency_key_reused");
    let elsewhere = send(r#"{"kind":"noop","agent":"b"}"#);
    assert_eq!(elsewhere.status, 201);
    assert_ne!(text(&elsewhere.json()["id"]), id);
    assert_eq!(n(&scene.stats()["metrics"]["submitted"]), 2);
}

fn assert_nothing_stored(scene: &Scene, before: &Value) {
    assert_eq!(scene.stats()["queue"], before["queue"]);
    assert_eq!(scene.stats()["metrics"], before["metrics"]);
    assert_eq!(scene.ids("/v1/tasks").len(), 0);
}
