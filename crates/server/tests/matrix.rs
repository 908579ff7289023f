//! Every route × every role. The table below has to name all routes of the OpenAPI document, so a new route is a decision
//! about who may use it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::collections::BTreeSet;

use Bound::{Everyones, Foreign, Own};
use common::{Request, Yard};
use serde_json::{Value, json};

/// What a key that is bound to agent `mine` meets, when it asks for what is `other`'s.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Bound {
    /// The thing asked for is not its own.
    Foreign,
    /// The route is about everyone.
    Everyones,
    /// It gets an answer, about its own work only.
    Own,
}

struct Row {
    method: &'static str,
    path: &'static str,
    scope: Option<&'static str>,
    bound: Bound,
    body: Value,
}

fn table() -> Vec<Row> {
    let row = |scope, method, path, bound, body| Row { method, path, scope, bound, body };
    let open = |path| row(None, "get", path, Own, Value::Null);
    let read = |path, bound| row(Some("read"), "get", path, bound, Value::Null);
    let submit = |method, path, bound, body| row(Some("submit"), method, path, bound, body);
    let admin = |method, path| row(Some("admin"), method, path, Everyones, Value::Null);
    let noop = json!({"kind": "noop", "agent": "other"});
    let schedule = schedule("another");
    vec![
        open("/healthz"),
        open("/readyz"),
        open("/version"),
        open("/openapi.json"),
        read("/metrics", Everyones),
        read("/v1/tasks", Own),
        read("/v1/tasks/{id}", Foreign),
        read("/v1/tasks/{id}/wait", Foreign),
        read("/v1/tasks/{id}/explain", Foreign),
        read("/v1/tasks/{id}/logs", Foreign),
        read("/v1/tasks/{id}/events", Foreign),
        read("/v1/tasks/{id}/messages", Foreign),
        read("/v1/tasks/{id}/artifacts", Foreign),
        read("/v1/tasks/{id}/artifacts/{path}", Foreign),
        read("/v1/batches/{id}", Foreign),
        read("/v1/sessions", Own),
        read("/v1/sessions/{key}", Foreign),
        read("/v1/schedules", Own),
        read("/v1/schedules/{id}", Foreign),
        read("/v1/schedules/{id}/runs", Foreign),
        row(
            Some("read"),
            "post",
            "/v1/schedules/preview",
            Own,
            json!({"schedule": {"kind": "cron", "expr": "@daily"}}),
        ),
        read("/v1/agents", Own),
        read("/v1/lanes", Own),
        read("/v1/stats", Own),
        read("/v1/events", Own),
        read("/v1/config", Everyones),
        read("/v1/config/schema", Everyones),
        read("/v1/drain", Own),
        read("/v1/webhooks/deliveries", Everyones),
        read("/v1/webhooks/deliveries/{id}", Everyones),
        submit("post", "/v1/tasks", Foreign, noop.clone()),
        submit("post", "/v1/tasks/cancel", Foreign, json!({"agent": "other"})),
        submit("patch", "/v1/tasks/{id}", Foreign, json!({"rank": 1})),
        submit("delete", "/v1/tasks/{id}", Foreign, Value::Null),
        submit("post", "/v1/tasks/{id}/cancel", Foreign, Value::Null),
        submit("post", "/v1/tasks/{id}/retry", Foreign, Value::Null),
        submit("post", "/v1/tasks/{id}/input", Foreign, json!({"text": "hi"})),
        submit("post", "/v1/tasks/{id}/heartbeat", Foreign, Value::Null),
        submit("put", "/v1/uploads", Own, Value::Null),
        submit("post", "/v1/batches", Foreign, json!({"tasks": [noop]})),
        submit("post", "/v1/batches/{id}/cancel", Foreign, Value::Null),
        submit("put", "/v1/sessions/{key}", Foreign, json!({"cap": 3})),
        submit("put", "/v1/sessions/{key}/context", Foreign, json!({"contextTokens": 1, "contextWindow": 2})),
        submit("post", "/v1/sessions/{key}/stop", Foreign, Value::Null),
        submit("post", "/v1/sessions/{key}/stopall", Foreign, Value::Null),
        submit("post", "/v1/sessions/{key}/reset", Foreign, Value::Null),
        submit("post", "/v1/schedules", Foreign, schedule.clone()),
        submit("patch", "/v1/schedules/{id}", Foreign, json!({"maxRuns": 3})),
        submit("post", "/v1/schedules/{id}/pause", Foreign, Value::Null),
        submit("post", "/v1/schedules/{id}/resume", Foreign, Value::Null),
        submit("post", "/v1/schedules/{id}/run", Foreign, Value::Null),
        submit("delete", "/v1/schedules/{id}", Foreign, Value::Null),
        row(
            Some("worker"),
            "post",
            "/v1/workers",
            Everyones,
            json!({"name": "w", "cpus": 1, "ramMb": 1, "kinds": ["noop"]}),
        ),
        read("/v1/nodes", Everyones),
        read("/v1/workers", Everyones),
        read("/v1/workers/{id}", Everyones),
        admin("delete", "/v1/workers/{id}"),
        admin("post", "/v1/workers/{id}/register"),
        admin("post", "/v1/workers/{id}/sync"),
        admin("post", "/v1/workers/{id}/drain"),
        admin("post", "/v1/workers/{id}/resume"),
        admin("get", "/v1/workers/{id}/uploads/{upload}"),
        admin("put", "/v1/workers/{id}/tasks/{task}/artifacts/{path}"),
        admin("put", "/v1/agents/{name}"),
        admin("put", "/v1/lanes/{name}"),
        admin("patch", "/v1/config"),
        admin("post", "/v1/drain"),
        admin("post", "/v1/backup"),
        admin("get", "/v1/audit"),
        admin("get", "/v1/secrets"),
        admin("put", "/v1/secrets/{name}"),
        admin("delete", "/v1/secrets/{name}"),
        admin("post", "/v1/webhooks/deliveries/{id}/replay"),
        admin("get", "/v1/webhooks/secret"),
        admin("post", "/v1/webhooks/secret/rotate"),
        admin("get", "/v1/keys"),
        admin("post", "/v1/keys"),
        admin("delete", "/v1/keys/{id}"),
    ]
}

fn schedule(name: &str) -> Value {
    let task = json!({"kind": "noop", "agent": "other"});
    json!({"name": name, "schedule": {"kind": "cron", "expr": "0 0 1 1 *"}, "task": task})
}

/// Work of agent `other`, for the paths that name some.
struct Stage {
    yard: Yard,
    task: String,
    batch: String,
    schedule: String,
}

impl Stage {
    async fn new() -> Stage {
        let yard = Yard::with(json!({"agents": {"other": {"paused": true}}})).await;
        let other = json!({"kind": "noop", "agent": "other", "session": "other/7"});
        let task = yard.submit(other.clone()).await["id"].as_str().unwrap().to_owned();
        let batch = yard.post("/v1/batches", json!({"tasks": [{"kind": "noop", "agent": "other"}]})).await.json();
        let made = yard.post("/v1/schedules", schedule("others")).await.json();
        let text = |id: &Value| id.as_str().unwrap().to_owned();
        Stage { task, batch: text(&batch["id"]), schedule: text(&made["id"]), yard }
    }

    fn request(&self, row: &Row, key: Option<&str>) -> Request {
        let id = match row.path {
            path if path.starts_with("/v1/batches") => &self.batch,
            path if path.starts_with("/v1/schedules") => &self.schedule,
            _ => &self.task,
        };
        let path = row
            .path
            .replace("{id}", id)
            .replace("{upload}", id)
            .replace("{task}", id)
            .replace("{key}", "other%2F7")
            .replace("{name}", "any")
            .replace("{path}", "a");
        let path = if path.ends_with("/wait") { path + "?timeoutMs=0" } else { path };
        let mut request = Request::new(&self.yard.addr, &row.method.to_ascii_uppercase(), &path);
        if let Some(key) = key {
            request = request.header("Authorization", &format!("Bearer {key}"));
        }
        if row.body.is_null() { request } else { request.json(&row.body) }
    }

    async fn key(&self, body: Value) -> String {
        let reply = self.yard.post("/v1/keys", body).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        reply.json()["key"].as_str().unwrap().to_owned()
    }
}

#[test]
fn the_table_names_every_route() {
    let api: Value = serde_json::from_str(runyard_server::openapi_json()).unwrap();
    let paths = api["paths"].as_object().unwrap();
    let methods = paths.iter().flat_map(|(path, item)| item.as_object().unwrap().keys().map(move |m| (m, path)));
    let served: BTreeSet<(String, String)> = methods.map(|(method, path)| (method.clone(), path.clone())).collect();
    let named: BTreeSet<_> = table().iter().map(|row| (row.method.to_owned(), row.path.to_owned())).collect();
    assert_eq!(named.symmetric_difference(&served).collect::<Vec<_>>(), Vec::<&(String, String)>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_there_is_health_and_nothing_else() {
    let stage = Stage::new().await;
    for row in table() {
        for key in [None, Some("ry_wrong"), Some("")] {
            let status = stage.request(&row, key).status().await;
            let expected = if row.scope.is_some() { 401 } else { 200 };
            assert_eq!(status, expected, "{} {} with {key:?}", row.method, row.path);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_host_or_origin_is_refused_on_every_route() {
    let stage = Stage::new().await;
    let admin = stage.yard.key.clone();
    for row in table() {
        let place = format!("{} {}", row.method, row.path);
        let request = || stage.request(&row, admin.as_deref());
        let foreign = request().host(Some("evil.example")).send().await;
        assert_eq!((foreign.status, &foreign.problem()["code"]), (403, &json!("forbidden_host")), "{place}");
        let foreign = request().header("Origin", "https://evil.example").send().await;
        assert_eq!((foreign.status, &foreign.problem()["code"]), (403, &json!("forbidden_origin")), "{place}");
        assert_eq!(foreign.header("access-control-allow-origin"), None, "{place}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_scope_opens_its_routes_and_no_other() {
    let stage = Stage::new().await;
    for scope in ["read", "submit", "exec", "worker", "admin"] {
        let key = stage.key(json!({"name": scope, "scopes": [scope]})).await;
        for row in table() {
            let opens = match row.scope {
                None => true,
                Some("submit") => !matches!(scope, "read" | "worker"),
                Some(needed) => scope == needed || scope == "admin",
            };
            let place = format!("{scope}: {} {}", row.method, row.path);
            if opens {
                let status = stage.request(&row, Some(&key)).status().await;
                assert!(!matches!(status, 401 | 403) && status < 500, "{place}: {status}");
                continue;
            }
            let problem = stage.request(&row, Some(&key)).send().await.problem();
            let facts = (&problem["status"], &problem["code"], problem["scope"].as_str());
            assert_eq!(facts, (&json!(403), &json!("missing_scope"), row.scope), "{place}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_key_sees_and_touches_no_work_of_others() {
    let stage = Stage::new().await;
    for agents in [json!(["mine"]), json!(["mine", "too"])] {
        let scopes = json!(["read", "submit", "exec"]);
        let key = stage.key(json!({"name": "bound", "scopes": scopes, "agents": agents})).await;
        for row in table().iter().filter(|row| !matches!(row.scope, Some("admin" | "worker"))) {
            let place = format!("{agents}: {} {}", row.method, row.path);
            if row.bound == Own {
                let status = stage.request(row, Some(&key)).status().await;
                assert!((200..300).contains(&status), "{place}: {status}");
                continue;
            }
            let problem = stage.request(row, Some(&key)).send().await.problem();
            assert_eq!(problem["status"], 403, "{place}: {problem}");
            let code = problem["code"].as_str().unwrap();
            assert!(matches!(code, "foreign_agent" | "foreign_session"), "{place}: {problem}");
        }
        for path in ["/v1/tasks", "/v1/sessions", "/v1/schedules", "/v1/agents", "/v1/stats"] {
            let reply = Request::new(&stage.yard.addr, "GET", path).header("X-API-Key", &key).send().await;
            assert_eq!(reply.status, 200, "{path}: {reply:?}");
            assert!(!reply.body.contains("other"), "{path}: {reply:?}");
        }
    }
    let bound_admin = json!({"name": "x", "scopes": ["admin"], "agents": ["mine"]});
    assert_eq!(stage.yard.post("/v1/keys", bound_admin).await.problem()["field"], "agents");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_key_has_its_own_work_to_itself() {
    let stage = Stage::new().await;
    let key = stage.key(json!({"name": "bound", "scopes": ["read", "submit"], "agents": ["mine"]})).await;
    let ask = async |method: &str, path: &str, body: Value| {
        let request = Request::new(&stage.yard.addr, method, path).header("X-API-Key", &key);
        let request = if body.is_null() { request } else { request.json(&body) };
        let reply = request.send().await;
        assert!(reply.status < 300, "{method} {path}: {reply:?}");
        reply.json()
    };
    let events = Request::new(&stage.yard.addr, "GET", "/v1/events").header("X-API-Key", &key);
    let mut events = events.open().await;
    stage.yard.submit(json!({"kind": "noop", "agent": "third"})).await;
    let mine = json!({"kind": "noop", "agent": "mine", "session": {"key": "mine/1", "mode": "interrupt"}});
    let task = ask("POST", "/v1/tasks", mine).await;
    let id = task["id"].as_str().unwrap();
    for part in ["", "/wait", "/events", "/messages"] {
        ask("GET", &format!("/v1/tasks/{id}{part}"), Value::Null).await;
    }
    assert_eq!(events.next_of("task.completed").await.data["task"], task["id"]);
    let mut own = schedule("own");
    own["task"]["agent"] = json!("mine");
    stage.yard.post("/v1/schedules", schedule("foreign")).await;
    ask("POST", "/v1/schedules", own).await;
    let created = events.next_of("schedule.created").await.data;
    assert_eq!((&created["agent"], &created["data"]["name"]), (&json!("mine"), &json!("own")), "{created}");
    assert_eq!(ask("GET", "/v1/tasks", Value::Null).await["items"].as_array().unwrap().len(), 1);
    assert_eq!(ask("GET", "/v1/sessions", Value::Null).await["items"][0]["key"], "mine/1");
    ask("PUT", "/v1/sessions/mine%2F1", json!({"cap": 3})).await;
    ask("POST", "/v1/sessions/mine%2F1/stopall", Value::Null).await;
    let batch = ask("POST", "/v1/batches", json!({"tasks": [{"kind": "noop", "agent": "mine"}]})).await;
    ask("GET", &format!("/v1/batches/{}", batch["id"].as_str().unwrap()), Value::Null).await;
    assert_eq!(ask("POST", "/v1/tasks/cancel", json!({"lane": "main", "agent": "mine"})).await["matched"], 0);
    let every = Request::new(&stage.yard.addr, "POST", "/v1/tasks/cancel").header("X-API-Key", &key);
    assert_eq!(every.json(&json!({"lane": "main"})).send().await.problem()["agent"], "*");
    let left = stage.yard.get(&format!("/v1/tasks/{}", stage.task)).await.json();
    assert_eq!(left["state"], "queued", "{left}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_key_depends_on_no_task_of_others() {
    let stage = Stage::new().await;
    let key = stage.key(json!({"name": "bound", "scopes": ["submit"], "agents": ["mine"]})).await;
    let submit = async |path: &str, body: Value| {
        Request::new(&stage.yard.addr, "POST", path).header("X-API-Key", &key).json(&body).send().await
    };
    let task = |parents: Value| json!({"kind": "noop", "agent": "mine", "dependsOn": parents});
    let own = submit("/v1/tasks", task(json!([]))).await.json()["id"].clone();
    let tasks = json!([{"kind": "noop", "agent": "mine", "name": "a"}, task(json!(["#a", stage.task]))]);
    for (path, body) in [
        ("/v1/tasks", task(json!([own, stage.task]))),
        ("/v1/batches", json!({"tasks": tasks})),
        ("/v1/batches", json!({"mode": "partial", "tasks": tasks})),
    ] {
        let reply = submit(path, body).await;
        let problem = reply.problem();
        assert_eq!((reply.status, &problem["code"]), (403, &json!("foreign_agent")), "{path}: {reply:?}");
        assert_eq!((&problem["task"], &problem["agent"]), (&json!(stage.task), &json!("other")), "{problem}");
        assert_eq!(problem["field"], "dependsOn", "{problem}");
    }
    assert_eq!(submit("/v1/tasks", task(json!([own]))).await.status, 201);
    let unknown = submit("/v1/tasks", task(json!(["00000000-0000-7000-8000-000000000001"]))).await;
    assert_eq!(unknown.status, 201, "one that nobody knows is waited for: {unknown:?}");
    // Somebody who may has made one that waits for both. Its copy is the bound key's own submit.
    let made = stage.yard.submit(task(json!([own, stage.task]))).await;
    let path = |act: &str| format!("/v1/tasks/{}/{act}", made["id"].as_str().unwrap());
    stage.yard.post(&path("cancel"), json!({})).await;
    let reply = submit(&path("retry"), json!({})).await;
    assert_eq!((reply.status, &reply.problem()["task"]), (403, &json!(stage.task)), "{reply:?}");
    assert_eq!(stage.yard.post(&path("retry"), json!({})).await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_use_of_a_key_is_known_and_survives_a_restart() {
    let stage = Stage::new().await;
    let key = stage.key(json!({"name": "used", "scopes": ["read"]})).await;
    let listed = async |yard: &Yard| {
        let keys = yard.get("/v1/keys").await.json();
        keys["items"].as_array().unwrap().iter().find(|key| key["name"] == "used").unwrap()["lastUsedAt"].clone()
    };
    assert_eq!(listed(&stage.yard).await, Value::Null);
    let row = table().into_iter().find(|row| row.path == "/v1/stats").unwrap();
    assert_eq!(stage.request(&row, Some(&key)).status().await, 200);
    let used = listed(&stage.yard).await;
    assert!(used.as_str().is_some_and(|at| at.ends_with(":00.000Z")), "{used}");
    let yard = stage.yard.restart(json!({})).await;
    assert_eq!(listed(&yard).await, used);
}
