//! Every change leaves a line that says who made it, and how it was before.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use common::raw::{say, until};
use common::{Request, Yard};
use serde_json::{Value, json};

async fn latest(yard: &Yard) -> Value {
    yard.get("/v1/audit?limit=1").await.json()["items"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_say_who_what_before_and_after() {
    let yard = Yard::new().await;
    let put = async |path: &str, body: Value| {
        let reply = yard.request("PUT", path).json(&body).send().await;
        assert_eq!(reply.status, 200, "{reply:?}");
    };
    let patch = yard.request("PATCH", "/v1/config").json(&json!({"limits": {"maxInflight": 7}})).send().await;
    assert_eq!(patch.status, 200, "{patch:?}");
    let entry = latest(&yard).await;
    assert_eq!((&entry["action"], &entry["by"]["name"]), (&json!("config.patched"), &json!("admin")));
    assert_eq!((&entry["n"], &entry["by"]["address"]), (&json!(1), &json!("127.0.0.1")), "{entry}");
    assert_eq!(entry["before"], json!({"limits.maxInflight": 1000}));
    assert_eq!(entry["after"], json!({"limits.maxInflight": 7}));

    put("/v1/agents/bot", json!({"weight": 2})).await;
    let entry = latest(&yard).await;
    assert_eq!((&entry["action"], &entry["subject"]), (&json!("agent.set"), &json!("bot")));
    put("/v1/lanes/main", json!({"limit": 3})).await;
    let entry = latest(&yard).await;
    assert_eq!(
        (&entry["before"], &entry["after"]),
        (&json!({"lanes.main.limit": 30}), &json!({"lanes.main.limit": 3}))
    );

    put("/v1/sessions/s", json!({"cap": 4})).await;
    assert!(latest(&yard).await.get("before").is_none(), "it is new");
    put("/v1/sessions/s", json!({"cap": 5})).await;
    let entry = latest(&yard).await;
    assert_eq!((&entry["action"], &entry["subject"]), (&json!("session.set"), &json!("s")));
    assert_eq!((&entry["before"]["cap"], &entry["after"]["cap"]), (&json!(4), &json!(5)));

    let key = yard.post("/v1/keys", json!({"name": "ci", "scopes": ["read"]})).await.json();
    let entry = latest(&yard).await;
    assert_eq!(
        (&entry["action"], &entry["subject"], &entry["after"]["name"]),
        (&json!("key.created"), &key["id"], &json!("ci"))
    );
    let secret = key["key"].as_str().unwrap();
    yard.request("DELETE", &format!("/v1/keys/{}", key["id"].as_str().unwrap())).send().await;
    assert_eq!(latest(&yard).await["action"], "key.revoked");
    yard.post("/v1/drain", json!({"on": true})).await;
    let entry = latest(&yard).await;
    assert_eq!((&entry["before"], &entry["after"]), (&json!({"on": false}), &json!({"on": true})));
    yard.post("/v1/backup", json!({"path": yard.dir.path().join("copy.db")})).await;
    assert_eq!(latest(&yard).await["action"], "backup.written");

    let all = yard.get("/v1/audit").await;
    assert!(!all.body.contains(secret), "a key is shown once");
    assert_eq!(all.json()["items"].as_array().unwrap().len(), 9);
    let refused = yard.request("PATCH", "/v1/config").json(&json!({"limits": {"maxInflight": "x"}})).send().await;
    assert_eq!(refused.status, 400);
    assert_eq!(latest(&yard).await["n"], 9, "what was refused has changed nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_read_in_pages_and_survives_a_restart() {
    let yard = Yard::new().await;
    for n in 1..=5 {
        let body = json!({"limit": n});
        assert_eq!(yard.request("PUT", "/v1/lanes/own").json(&body).send().await.status, 200);
    }
    let yard = yard.restart(json!({})).await;
    let mut seen = Vec::new();
    let mut path = "/v1/audit?limit=2".to_owned();
    loop {
        let page = yard.get(&path).await.json();
        seen.extend(page["items"].as_array().unwrap().iter().map(|entry| entry["n"].as_u64().unwrap()));
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        path = format!("/v1/audit?limit=2&cursor={cursor}");
    }
    assert_eq!(seen, [5, 4, 3, 2, 1]);
    assert_eq!(yard.request("PUT", "/v1/lanes/own").json(&json!({"limit": 9})).send().await.status, 200);
    assert_eq!(latest(&yard).await["n"], 6);
    let read = yard.post("/v1/keys", json!({"name": "r", "scopes": ["read"]})).await.json();
    let asked = Request::new(&yard.addr, "GET", "/v1/audit").header("X-API-Key", read["key"].as_str().unwrap());
    assert_eq!(asked.send().await.problem()["scope"], "admin");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_leaves_no_change_without_its_line() {
    let yard = Yard::new().await;
    let key = yard.key.as_ref().unwrap();
    for n in 0..50 {
        let head = format!(
            "PUT /v1/sessions/s{n} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{{\"cap\":4}}"
        );
        drop(say(&yard, &head).await);
    }
    // A line is written behind its change, so the two are the same only once there is nothing left to write.
    until(async || {
        let n_set = yard.get("/v1/sessions").await.json()["items"].as_array().unwrap().len();
        let n_lines = yard.get("/v1/audit?limit=1000").await.json()["items"].as_array().unwrap().len();
        n_set > 0 && n_set == n_lines
    })
    .await;
}
