//! Who gets in, and how far.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use common::{Request, Yard, options};
use runyard_server::{Error, ServeOptions, Server};
use serde_json::json;
use tempfile::TempDir;

async fn key(yard: &Yard, body: serde_json::Value) -> String {
    let reply = yard.post("/v1/keys", body).await;
    assert_eq!(reply.status, 201, "{reply:?}");
    reply.json()["key"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_scope_opens_its_routes_only() {
    let yard = Yard::new().await;
    let read = key(&yard, json!({"name": "r", "scopes": ["read"]})).await;
    let submit = key(&yard, json!({"name": "s", "scopes": ["submit"]})).await;
    let exec = key(&yard, json!({"name": "e", "scopes": ["exec"], "agents": ["mine"]})).await;
    let noop = json!({"kind": "noop", "agent": "mine"});
    let process = json!({"kind": "process", "agent": "mine", "payload": {"argv": ["true"]}});
    let foreign = json!({"kind": "noop", "agent": "other"});
    let none = json!(null);
    let table = [
        (None, "GET", "/healthz", &none, 200),
        (None, "GET", "/readyz", &none, 200),
        (None, "GET", "/version", &none, 200),
        (None, "GET", "/openapi.json", &none, 200),
        (None, "GET", "/metrics", &none, 401),
        (None, "GET", "/v1/tasks", &none, 401),
        (None, "POST", "/v1/tasks", &noop, 401),
        (None, "GET", "/v1/unknown", &none, 401),
        (Some("ry_wrong"), "GET", "/v1/tasks", &none, 401),
        (Some(read.as_str()), "GET", "/v1/tasks", &none, 200),
        (Some(read.as_str()), "GET", "/metrics", &none, 200),
        (Some(read.as_str()), "POST", "/v1/tasks", &noop, 403),
        (Some(read.as_str()), "GET", "/v1/keys", &none, 403),
        (Some(submit.as_str()), "POST", "/v1/tasks", &noop, 201),
        (Some(submit.as_str()), "POST", "/v1/tasks", &process, 403),
        (Some(submit.as_str()), "GET", "/v1/tasks", &none, 403),
        (Some(submit.as_str()), "POST", "/v1/drain", &none, 403),
        (Some(exec.as_str()), "POST", "/v1/tasks", &process, 201),
        (Some(exec.as_str()), "POST", "/v1/tasks", &foreign, 403),
        (yard.key.as_deref(), "GET", "/v1/keys", &none, 200),
    ];
    for (key, method, path, body, status) in table {
        let mut request = Request::new(&yard.addr, method, path);
        if let Some(key) = key {
            request = request.header("X-API-Key", key);
        }
        if !body.is_null() {
            request = request.json(body);
        }
        let reply = request.send().await;
        assert_eq!(reply.status, status, "{method} {path} {body}: {reply:?}");
        if status == 401 {
            assert!(reply.header("www-authenticate").is_some(), "{reply:?}");
        }
        if status >= 400 {
            reply.problem();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_is_out_at_once_and_keys_survive_a_restart() {
    let yard = Yard::new().await;
    let created = yard.post("/v1/keys", json!({"name": "r", "scopes": ["read"]})).await.json();
    let get = |yard: &Yard, path: &str| {
        Request::new(&yard.addr, "GET", path)
            .header("Authorization", &format!("bearer {}", created["key"].as_str().unwrap()))
    };
    let admin = yard.key.clone();
    let yard = yard.restart(json!({})).await;
    assert_eq!(yard.key, admin);
    assert_eq!(get(&yard, "/v1/tasks").send().await.status, 200);
    let path = format!("/v1/keys/{}", created["id"].as_str().unwrap());
    assert_eq!(yard.request("DELETE", &path).send().await.status, 204);
    assert_eq!(get(&yard, "/v1/tasks").send().await.status, 401);
    let keys = yard.get("/v1/keys").await.json();
    assert_eq!(keys["items"].as_array().unwrap().len(), 1, "{keys}");
    let last = format!("/v1/keys/{}", keys["items"][0]["id"].as_str().unwrap());
    assert_eq!(yard.request("DELETE", &last).send().await.problem()["code"], "last_admin_key");
}

#[tokio::test(flavor = "multi_thread")]
async fn host_and_origin_are_checked_on_every_route() {
    let yard = Yard::with(json!({"server": {"allowedHosts": ["yard.example"]}})).await;
    let port = yard.addr.rsplit(':').next().unwrap().to_owned();
    let own = yard.addr.clone();
    let table = [
        (Some(own.as_str()), None, 200, ""),
        (Some("localhost:1"), None, 200, ""),
        (Some("yard.example"), None, 200, ""),
        (Some("evil.example"), None, 403, "forbidden_host"),
        (None, None, 403, "forbidden_host"),
        (Some(own.as_str()), Some(format!("http://{own}")), 200, ""),
        (Some(own.as_str()), Some("https://yard.example".to_owned()), 200, ""),
        (Some(own.as_str()), Some("https://evil.example".to_owned()), 403, "forbidden_origin"),
        (Some(own.as_str()), Some(format!("http://localhost:{port}")), 403, "forbidden_origin"),
        (Some(own.as_str()), Some("null".to_owned()), 403, "forbidden_origin"),
    ];
    for path in ["/healthz", "/v1/tasks", "/metrics", "/v1/config"] {
        for (host, origin, status, code) in &table {
            let mut request = yard.request("GET", path).host(*host);
            if let Some(origin) = origin {
                request = request.header("Origin", origin);
            }
            let reply = request.send().await;
            assert_eq!(reply.status, *status, "{path} {host:?} {origin:?}: {reply:?}");
            if *status == 403 {
                assert_eq!(reply.problem()["code"], *code);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_keys_only_on_loopback() {
    let dir = TempDir::new().unwrap();
    let public = ServeOptions { no_auth: true, listen: Some("0.0.0.0:0".into()), ..options(&dir) };
    assert!(matches!(Server::start(public).await, Err(Error::NoAuthInPublic { .. })));
    let yard = Yard::start(ServeOptions { no_auth: true, ..options(&dir) }, dir).await;
    assert_eq!(yard.key, None);
    assert_eq!(yard.get("/v1/keys").await.status, 200);
    yard.submit(json!({"kind": "process", "payload": {"argv": ["true"]}})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_names_one_host_and_one_origin() {
    let yard = Yard::new().await;
    let addr = &yard.addr;
    let origin = format!("http://{addr}");
    let health = |target: &str| Request::new(addr, "GET", target);
    let absolute = format!("http://{addr}/healthz");
    for (request, status) in [
        (health("/healthz").header("Origin", &origin), 200),
        (health(&absolute), 200),
        (health("/healthz").header("Host", "evil.example"), 403),
        (health("/healthz").header("Host", addr), 403),
        (health("/healthz").header("Origin", &origin).header("Origin", "http://evil.example"), 403),
        (health("http://evil.example/healthz"), 403),
        (health("/healthz").host(Some("localhost:evil")), 403),
    ] {
        assert_eq!(request.send().await.status, status);
    }
}
