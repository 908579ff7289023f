//! What an operator needs: the API's description, backups, versions of the data.

use serde_json::{Value, json};

use crate::scene::{SOON, Scene, header, n, problem, text};
use crate::support::Server;

/// The issue: /openapi.json is generated, parses, lists every route, and each that it lists is there.
#[test]
fn the_api_describes_every_route_it_has() {
    let scene = Scene::new();
    let api = scene.get("/openapi.json");
    assert!(text(&api["openapi"]).starts_with("3.1"), "{}", api["openapi"]);
    let expected = [
        "POST /v1/tasks",
        "GET /v1/tasks",
        "GET /v1/tasks/{id}",
        "PATCH /v1/tasks/{id}",
        "DELETE /v1/tasks/{id}",
        "POST /v1/tasks/cancel",
        "POST /v1/tasks/{id}/cancel",
        "POST /v1/tasks/{id}/retry",
        "GET /v1/tasks/{id}/wait",
        "GET /v1/tasks/{id}/explain",
        "GET /v1/tasks/{id}/logs",
        "GET /v1/tasks/{id}/events",
        "GET /v1/tasks/{id}/messages",
        "POST /v1/tasks/{id}/input",
        "POST /v1/batches",
        "GET /v1/batches/{id}",
        "POST /v1/batches/{id}/cancel",
        "GET /v1/agents",
        "PUT /v1/agents/{name}",
        "GET /v1/lanes",
        "PUT /v1/lanes/{name}",
        "GET /v1/sessions",
        "GET /v1/sessions/{key}",
        "PUT /v1/sessions/{key}",
        "PUT /v1/sessions/{key}/context",
        "POST /v1/sessions/{key}/stop",
        "POST /v1/sessions/{key}/stopall",
        "POST /v1/sessions/{key}/reset",
        "PUT /v1/uploads",
        "GET /v1/tasks/{id}/artifacts",
        "GET /v1/tasks/{id}/artifacts/{path}",
        "POST /v1/tasks/{id}/heartbeat",
        "POST /v1/schedules",
        "GET /v1/schedules",
        "POST /v1/schedules/preview",
        "GET /v1/schedules/{id}",
        "PATCH /v1/schedules/{id}",
        "DELETE /v1/schedules/{id}",
        "POST /v1/schedules/{id}/pause",
        "POST /v1/schedules/{id}/resume",
        "POST /v1/schedules/{id}/run",
        "GET /v1/schedules/{id}/runs",
        "GET /v1/nodes",
        "POST /v1/workers",
        "GET /v1/workers",
        "GET /v1/workers/{id}",
        "DELETE /v1/workers/{id}",
        "POST /v1/workers/{id}/register",
        "POST /v1/workers/{id}/sync",
        "POST /v1/workers/{id}/drain",
        "POST /v1/workers/{id}/resume",
        "GET /v1/workers/{id}/uploads/{upload}",
        "PUT /v1/workers/{id}/tasks/{task}/artifacts/{path}",
        "GET /v1/stats",
        "GET /v1/config",
        "PATCH /v1/config",
        "GET /v1/config/schema",
        "GET /v1/events",
        "GET /v1/drain",
        "POST /v1/drain",
        "GET /v1/keys",
        "POST /v1/keys",
        "DELETE /v1/keys/{id}",
        "POST /v1/backup",
        "GET /v1/audit",
        "GET /v1/secrets",
        "PUT /v1/secrets/{name}",
        "DELETE /v1/secrets/{name}",
        "GET /v1/webhooks/deliveries",
        "GET /v1/webhooks/deliveries/{id}",
        "POST /v1/webhooks/deliveries/{id}/replay",
        "GET /v1/webhooks/secret",
        "POST /v1/webhooks/secret/rotate",
        "GET /healthz",
        "GET /readyz",
        "GET /version",
        "GET /metrics",
        "GET /openapi.json",
    ];
    let mut expected: Vec<String> = expected.iter().map(|route| route.to_string()).collect();
    let mut listed = Vec::new();
    for (path, methods) in api["paths"].as_object().unwrap() {
        listed.extend(methods.as_object().unwrap().keys().map(|method| format!("{} {path}", method.to_uppercase())));
    }
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected);
    for route in listed.iter().filter(|route| *route != "GET /v1/events") {
        let (method, path) = route.split_once(' ').unwrap();
        let path = path.replace("{id}", "01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11");
        let path = path.replace("{name}", "x").replace("{key}", "x").replace("{path}", "x");
        let answer = scene.request(method, &path, "");
        let is_missing = answer.body.contains("there is nothing at");
        assert!(
            answer.status != 405 && answer.status != 500 && !is_missing,
            "{route}: {} {}",
            answer.status,
            answer.body
        );
    }
}

/// The issue: the probes and the version answer anybody.
#[test]
fn probes_and_version_answer() {
    let scene = Scene::new();
    assert_eq!(scene.get("/healthz")["status"], "ok");
    assert_eq!(scene.get("/readyz")["status"], "ready");
    let version = scene.get("/version");
    assert_eq!(
        (version["name"].as_str(), version["version"].as_str()),
        (Some("runyard"), Some(env!("CARGO_PKG_VERSION")))
    );
    let schema = scene.get("/v1/config/schema");
    assert!(schema["properties"]["lanes"].is_object(), "{schema:#}");
    let echoed = scene.try_request("GET", "/healthz", &[("x-request-id", "r-1")], "").unwrap();
    assert_eq!(header(&echoed, "x-request-id").as_deref(), Some("r-1"));
}

/// The issue: a backup taken while serving is a whole store: a server on the copy has every task and goes on with them.
#[test]
fn a_backup_taken_while_serving_starts_another_server() {
    let scene = Scene::new();
    let done = scene.noop(json!({"result": [1]}));
    let ended = scene.end(&done);
    let later = scene.submit(json!({"kind": "noop", "delayMs": 600_000, "metadata": {"k": "v"}}));
    let copy = scene.home().join("copy");
    std::fs::create_dir(&copy).unwrap();
    let file = copy.join("runyard.db");
    std::thread::scope(|scope| {
        let load = scope.spawn(|| (0..50).map(|_| scene.noop(json!({}))).collect::<Vec<_>>());
        let written = scene.expect(200, "POST", "/v1/backup", json!({"path": file}));
        assert_eq!(
            (written["path"].as_str(), n(&written["bytes"])),
            (file.to_str(), std::fs::metadata(&file).unwrap().len())
        );
        load.join().unwrap();
    });
    for (path, rule) in
        [(file.to_str().unwrap(), "exists"), ("../up.db", "absolute"), ("/no/such/dir/x.db", "directory")]
    {
        let refusal = scene.problem(400, "POST", "/v1/backup", json!({"path": path}));
        assert!(text(&refusal["detail"]).contains(rule), "{refusal:#}");
    }
    let second = Server::start(&copy);
    let mut copied = second.task(&done);
    // The copy has a worker of its own, so the one that ran it then is a stranger.
    copied["worker"] = ended["worker"].clone();
    assert_eq!(copied, ended);
    assert_eq!(second.task(&later)["metadata"], json!({"k": "v"}));
    second.request("PATCH", &format!("/v1/tasks/{later}"), &json!({"runAt": crate::scene::from_now(0)}).to_string());
    assert_eq!(second.wait(&later)["state"], "completed");
    assert_eq!(scene.state(&later), "scheduled", "the first server has its own");
}

/// The issue: a data directory of a later version is refused clearly, and is left as it is.
#[test]
fn data_of_a_later_version_is_refused_clearly() {
    let mut scene = Scene::new();
    let id = scene.noop(json!({}));
    scene.end(&id);
    assert!(scene.server_mut().terminate().success());
    let db = rusqlite::Connection::open(scene.data().join("runyard.db")).unwrap();
    let known: u32 = db.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    db.pragma_update(None, "user_version", known + 1).unwrap();
    let mut serve = assert_cmd::Command::new(env!("CARGO_BIN_EXE_runyard"));
    serve.args(["serve", "--no-auth", "--listen", "127.0.0.1:0", "--data"]).arg(scene.data()).timeout(SOON);
    let error = String::from_utf8_lossy(&serve.assert().failure().get_output().stderr).into_owned();
    let (found, known_text) = ((known + 1).to_string(), known.to_string());
    assert!(error.contains(&found) && error.contains(&known_text) && error.contains("version"), "{error}");
    db.pragma_update(None, "user_version", known).unwrap();
    drop(db);
    scene.start_again();
    assert_eq!(scene.state(&id), "completed");
}

/// A file that is another program's, or no database at all, is refused too.
#[test]
fn data_that_is_not_ours_is_refused() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("runyard.db"), "this is no database, but somebody's notes\n".repeat(100)).unwrap();
    let mut serve = assert_cmd::Command::new(env!("CARGO_BIN_EXE_runyard"));
    serve.args(["serve", "--no-auth", "--listen", "127.0.0.1:0", "--data"]).arg(home.path()).timeout(SOON);
    let error = String::from_utf8_lossy(&serve.assert().failure().get_output().stderr).into_owned();
    assert!(error.contains(home.path().to_str().unwrap()), "{error}");
    let kept = std::fs::read_to_string(home.path().join("runyard.db")).unwrap();
    assert!(kept.starts_with("this is no database"));
}

/// Design 4: over 32 MiB a batch is refused as too large, below it a large one is taken.
#[test]
fn a_batch_body_has_a_limit_of_its_own() {
    let scene = Scene::new();
    let result = "x".repeat(100_000);
    let tasks = vec![json!({"kind": "noop", "payload": {"result": result}}); 20];
    assert_eq!(scene.send("POST", "/v1/batches", json!({"tasks": tasks})).status, 201);
    let length = ((32 << 20) + 1).to_string();
    let headers = [("content-length", length.as_str()), ("content-type", "application/json")];
    let refusal = problem(413, &scene.try_request("POST", "/v1/batches", &headers, "").unwrap());
    assert_eq!(refusal["limit"], Value::from(32 << 20));
}
