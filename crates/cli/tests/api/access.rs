//! Who may do what, and from where.

use std::path::Path;

use serde_json::{Value, json};

use crate::scene::{SOON, Scene, header, problem, text};
use crate::support::Answer;

pub struct Guarded {
    scene: Scene,
    pub admin: String,
}

impl Guarded {
    pub fn new() -> Guarded {
        let scene = Scene::with_flags(&[], "");
        let admin = std::fs::read_to_string(scene.data().join("admin.key")).unwrap().trim().to_owned();
        Guarded { scene, admin }
    }

    pub fn ask(&self, key: &str, method: &str, path: &str, body: Value) -> Answer {
        let bearer = format!("Bearer {key}");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.scene.try_request(method, path, &[("authorization", &bearer)], &body).unwrap()
    }

    pub fn key(&self, request: Value) -> (String, String) {
        let answer = self.ask(&self.admin, "POST", "/v1/keys", request);
        assert_eq!(answer.status, 201, "{}", answer.body);
        let key = answer.json();
        (text(&key["id"]), text(&key["key"]))
    }
}

/// B4.42: no key or a wrong one is 401; Bearer and X-API-Key both work; health is open.
#[test]
fn a_key_is_needed_from_the_first_start() {
    let guarded = Guarded::new();
    let (scene, admin) = (&guarded.scene, &guarded.admin);
    let none = scene.request("GET", "/v1/tasks", "");
    assert_eq!(problem(401, &none)["code"], "unauthorized");
    assert!(header(&none, "www-authenticate").unwrap().starts_with("Bearer"));
    for key in ["ry_wrong", "", admin.to_uppercase().as_str()] {
        problem(401, &guarded.ask(key, "GET", "/v1/tasks", Value::Null));
        problem(401, &scene.try_request("GET", "/v1/tasks", &[("x-api-key", key)], "").unwrap());
    }
    assert_eq!(guarded.ask(admin, "GET", "/v1/tasks", Value::Null).status, 200);
    assert_eq!(scene.try_request("GET", "/v1/tasks", &[("x-api-key", admin)], "").unwrap().status, 200);
    for path in ["/healthz", "/readyz", "/version", "/openapi.json"] {
        assert_eq!(scene.request("GET", path, "").status, 200, "{path}");
    }
    for path in ["/metrics", "/v1/stats", "/v1/events", "/v1/nowhere"] {
        problem(401, &scene.request("GET", path, ""));
    }
    let refused = scene.request("POST", "/v1/tasks", r#"{"kind":"noop"}"#);
    assert_eq!(refused.status, 401);
    assert_eq!(guarded.ask(admin, "GET", "/v1/tasks", Value::Null).json()["items"], json!([]));
}

/// Design 13: the admin key lies in a file for its owner alone, is stored hashed, and stays over restarts.
#[test]
fn the_admin_key_is_its_owners_secret_and_stays() {
    use std::os::unix::fs::PermissionsExt;
    let mut guarded = Guarded::new();
    let file = guarded.scene.data().join("admin.key");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    guarded.ask(&guarded.admin, "POST", "/v1/tasks", json!({"kind": "noop"}));
    guarded.scene.restart();
    assert_eq!(guarded.ask(&guarded.admin, "GET", "/v1/keys", Value::Null).status, 200);
    let admin = guarded.admin.as_bytes();
    for file in ["runyard.db", "runyard.db-wal", "server.log"] {
        let bytes = std::fs::read(guarded.scene.data().join(file)).unwrap_or_default();
        assert!(!bytes.windows(admin.len()).any(|part| part == admin), "{file}");
    }
}

/// Design 13: a key can do what its scopes say, and no more.
#[test]
fn a_key_can_do_what_its_scopes_say() {
    let guarded = Guarded::new();
    let noop = || json!({"kind": "noop"});
    let process = || json!({"kind": "process", "payload": {"argv": ["true"]}});
    let batch = || json!({"tasks": [{"kind": "noop"}, {"kind": "process", "payload": {"argv": ["true"]}}]});
    let requests = [
        ("GET", "/v1/tasks", Value::Null),
        ("POST", "/v1/tasks", noop()),
        ("POST", "/v1/tasks", process()),
        ("POST", "/v1/batches", batch()),
        ("PATCH", "/v1/config", json!({})),
    ];
    for (scope, expected) in [
        ("read", [200, 403, 403, 403, 403]),
        ("submit", [403, 201, 403, 403, 403]),
        ("exec", [403, 201, 201, 201, 403]),
        ("admin", [200, 201, 201, 201, 200]),
    ] {
        let (_, key) = guarded.key(json!({"name": scope, "scopes": [scope]}));
        let answers = requests.each_ref().map(|(method, path, body)| guarded.ask(&key, method, path, body.clone()));
        assert_eq!(answers.each_ref().map(|answer| answer.status), expected, "{scope}");
        for refused in answers.iter().filter(|answer| answer.status == 403) {
            assert_eq!(problem(403, refused)["code"], "missing_scope");
        }
    }
    let (_, submit) = guarded.key(json!({"name": "s", "scopes": ["submit"]}));
    assert_eq!(problem(403, &guarded.ask(&submit, "POST", "/v1/tasks", process()))["scope"], "exec");
    for path in ["/v1/keys", "/v1/backup", "/v1/drain", "/v1/lanes/main"] {
        let method = if path.contains("lanes") { "PUT" } else { "POST" };
        problem(403, &guarded.ask(&submit, method, path, json!({})));
    }
}

/// Design 13: who may not run programs may not do it by submitting somebody's process task again either.
#[test]
fn a_retry_needs_the_scope_of_its_kind() {
    let guarded = Guarded::new();
    let process = json!({"kind": "process", "payload": {"argv": ["true"]}});
    let id = text(&guarded.ask(&guarded.admin, "POST", "/v1/tasks", process).json()["id"]);
    let ended = guarded.ask(&guarded.admin, "GET", &format!("/v1/tasks/{id}/wait"), Value::Null);
    assert_eq!(ended.json()["state"], "completed");
    let (_, submit) = guarded.key(json!({"name": "s", "scopes": ["submit"]}));
    let refused = guarded.ask(&submit, "POST", &format!("/v1/tasks/{id}/retry"), Value::Null);
    assert_eq!(problem(403, &refused)["scope"], "exec");
}

/// Design 13: a key that is bound to agents acts for them only: in submits, batches, cancels, changes and retries.
#[test]
fn a_bound_key_acts_for_its_agents_only() {
    let guarded = Guarded::new();
    let (_, key) = guarded.key(json!({"name": "a", "scopes": ["submit", "read"], "agents": ["a"]}));
    let task = |agent: &str| json!({"kind": "noop", "agent": agent, "delayMs": 600_000});
    let own = text(&guarded.ask(&key, "POST", "/v1/tasks", task("a")).json()["id"]);
    let foreign = text(&guarded.ask(&guarded.admin, "POST", "/v1/tasks", task("b")).json()["id"]);
    let refused = [
        ("POST", "/v1/tasks".to_owned(), task("b")),
        ("POST", "/v1/tasks".to_owned(), json!({"kind": "noop"})),
        ("POST", "/v1/batches".to_owned(), json!({"mode": "partial", "tasks": [task("a"), task("b")]})),
        ("POST", format!("/v1/tasks/{foreign}/cancel"), Value::Null),
        ("DELETE", format!("/v1/tasks/{foreign}"), Value::Null),
        ("PATCH", format!("/v1/tasks/{foreign}"), json!({"rank": 1})),
        ("POST", "/v1/tasks/cancel".to_owned(), json!({"kind": "noop"})),
        ("POST", "/v1/tasks/cancel".to_owned(), json!({"agent": "b"})),
    ];
    for (method, path, body) in refused {
        let refusal = problem(403, &guarded.ask(&key, method, &path, body.clone()));
        assert_eq!(refusal["code"], "foreign_agent", "{method} {path} {body}");
    }
    let cancelled = guarded.ask(&key, "POST", "/v1/tasks/cancel", json!({"agent": "a"})).json();
    assert_eq!(cancelled["cancelled"], 1);
    let state =
        |id: &str| text(&guarded.ask(&guarded.admin, "GET", &format!("/v1/tasks/{id}"), Value::Null).json()["state"]);
    assert_eq!((state(&own), state(&foreign)), ("cancelled".into(), "scheduled".into()));
    assert_eq!(guarded.ask(&guarded.admin, "POST", &format!("/v1/tasks/{foreign}/cancel"), Value::Null).status, 200);
    let refusal = problem(403, &guarded.ask(&key, "POST", &format!("/v1/tasks/{foreign}/retry"), Value::Null));
    assert_eq!(refusal["code"], "foreign_agent");
}

/// Design 13: a revoked key ends at once; the last admin key cannot be revoked; secrets are never listed.
#[test]
fn a_revoked_key_ends_at_once() {
    let mut guarded = Guarded::new();
    let (id, key) = guarded.key(json!({"name": "reader", "scopes": ["read"]}));
    let admin = guarded.admin.clone();
    assert_eq!(guarded.ask(&key, "GET", "/v1/tasks", Value::Null).status, 200);
    let listed = guarded.ask(&admin, "GET", "/v1/keys", Value::Null);
    assert!(!listed.body.contains(&key) && !listed.body.contains("hash"), "{}", listed.body);
    assert_eq!(guarded.ask(&admin, "DELETE", &format!("/v1/keys/{id}"), Value::Null).status, 204);
    problem(401, &guarded.ask(&key, "GET", "/v1/tasks", Value::Null));
    guarded.scene.restart();
    problem(401, &guarded.ask(&key, "GET", "/v1/tasks", Value::Null));
    let last = text(&guarded.ask(&admin, "GET", "/v1/keys", Value::Null).json()["items"][0]["id"]);
    let refusal = problem(409, &guarded.ask(&admin, "DELETE", &format!("/v1/keys/{last}"), Value::Null));
    assert_eq!(refusal["code"], "last_admin_key");
    for (body, field) in [
        (json!({"name": "x", "scopes": []}), "scopes"),
        (json!({"name": "x", "scopes": ["root"]}), "scopes[0]"),
        (json!({"name": "", "scopes": ["read"]}), "name"),
        (json!({"name": "x", "scopes": ["read"], "agents": ["a b"]}), "agents[0]"),
    ] {
        assert_eq!(problem(400, &guarded.ask(&admin, "POST", "/v1/keys", body))["field"], field);
    }
}

/// Design 13: a foreign Host or Origin is refused everywhere, with or without keys, so that no web page reaches a
/// loopback port by rebinding.
#[test]
fn a_foreign_host_or_origin_is_refused_everywhere() {
    let scene = Scene::with("[server]\nallowedHosts = [\"yard.example\"]\n");
    let ask = |path: &str, name: &str, value: &str| scene.try_request("GET", path, &[(name, value)], "").unwrap();
    for path in ["/v1/tasks", "/v1/events", "/healthz", "/metrics", "/openapi.json"] {
        assert_eq!(problem(403, &ask(path, "host", "evil.example"))["code"], "forbidden_host", "{path}");
        assert_eq!(problem(403, &ask(path, "origin", "https://evil.example"))["code"], "forbidden_origin", "{path}");
    }
    for host in ["localhost:1234", "127.0.0.1", "[::1]:80", "yard.example", scene.address.as_str()] {
        assert_eq!(ask("/v1/tasks", "host", host).status, 200, "{host}");
    }
    for (origin, status) in [
        (format!("http://{}", scene.address), 200),
        ("https://yard.example".to_owned(), 200),
        ("null".to_owned(), 403),
        ("http://localhost:9".to_owned(), 403),
    ] {
        assert_eq!(ask("/v1/tasks", "origin", &origin).status, status, "{origin}");
    }
    let headers = [("origin", "https://evil.example")];
    let submit = scene.try_request("POST", "/v1/tasks", &headers, r#"{"kind":"noop"}"#).unwrap();
    problem(403, &submit);
    assert_eq!(scene.ids("/v1/tasks").len(), 0);
}

/// Design 13: without keys only on loopback.
#[test]
fn no_auth_is_refused_off_loopback() {
    let home = tempfile::tempdir().unwrap();
    let error = refused_start(home.path(), &["--no-auth", "--listen", "0.0.0.0:0"]);
    assert!(error.contains("--no-auth works on loopback only"), "{error}");
}

/// Two servers on one data directory would each believe to be the only writer.
#[test]
fn a_second_server_on_the_same_data_is_refused() {
    let scene = Scene::new();
    let error = refused_start(&scene.data(), &["--no-auth", "--listen", "127.0.0.1:0"]);
    assert!(error.contains("data") && !error.is_empty(), "{error}");
    scene.ends_as("completed", &scene.noop(json!({})));
}

fn refused_start(data: &Path, flags: &[&str]) -> String {
    let mut serve = assert_cmd::Command::new(env!("CARGO_BIN_EXE_runyard"));
    serve.arg("serve").arg("--data").arg(data).args(flags).timeout(SOON);
    String::from_utf8_lossy(&serve.assert().failure().get_output().stderr).into_owned()
}
