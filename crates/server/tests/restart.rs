//! Stop and start again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use common::{Yard, options};
use runyard_server::{Error, SERVER_FILE, Server};
use serde_json::{Value, json};
use tempfile::TempDir;

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_at_a_clean_stop_goes_back_uncounted() {
    let yard = Yard::new().await;
    let task = yard
        .submit(json!({"kind": "process", "payload": {"argv": ["sleep", "1000"]}, "retry": {"maxRetries": 2}}))
        .await;
    let query = format!("?task={}", task["id"].as_str().unwrap());
    yard.events(&query, Some("0-0")).await.next_of("task.started").await;
    let yard = yard.restart(json!({"lanes": {"main": 0}})).await;
    let path = format!("/v1/tasks/{}", task["id"].as_str().unwrap());
    let queued = yard.get(&path).await.json();
    assert_eq!((&queued["state"], &queued["retriesLeft"]), (&json!("queued"), &json!(2)), "{queued}");
    assert!(queued["error"].is_null(), "{queued}");
    let mut events = yard.events(&query, None).await;
    yard.request("PUT", "/v1/lanes/main").json(&json!({"limit": 1})).send().await;
    events.next_of("task.started").await;
    yard.request("DELETE", &path).send().await;
    assert_eq!(yard.ended(&task["id"]).await["state"], "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_is_there_after_a_restart() {
    let yard = Yard::with(json!({"lanes": {"closed": 0}})).await;
    let done = yard.submit(json!({"kind": "noop", "payload": {"result": {"n": 1}}})).await;
    let before = yard.ended(&done["id"]).await;
    let waiting = yard.submit(json!({"kind": "noop", "lane": "closed", "metadata": {"a": [1, 2]}})).await;
    let yard = yard.restart(json!({})).await;
    assert_eq!(yard.get(&format!("/v1/tasks/{}", done["id"].as_str().unwrap())).await.json(), before);
    let stats = yard.get("/v1/stats").await.json();
    assert_eq!(stats["metrics"]["submitted"], 2, "{stats}");
    // Its lane is gone with the old configuration, so it runs in main.
    let ended = yard.ended(&waiting["id"]).await;
    assert_eq!((&ended["state"], &ended["metadata"]), (&json!("completed"), &json!({"a": [1, 2]})));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_says_where_it_is_while_it_is_there() {
    let mut yard = Yard::new().await;
    let path = yard.server.as_ref().unwrap().data_dir.join(SERVER_FILE);
    let told: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!((&told["url"], &told["pid"]), (&json!(format!("http://{}", yard.addr)), &json!(std::process::id())));
    yard.stop().await;
    assert!(!path.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_server_on_the_same_data_is_refused() {
    let yard = Yard::new().await;
    let second = Server::start(options(&yard.dir)).await;
    assert!(matches!(second, Err(Error::Store { .. })), "{:?}", second.err());
    // The first one goes on, and is still the one that the file names.
    yard.submit(json!({"kind": "noop"})).await;
    assert!(yard.server.as_ref().unwrap().data_dir.join(SERVER_FILE).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_configuration_is_refused_before_anything_is_touched() {
    let dir = TempDir::new().unwrap();
    let flags = json!({"lanes": {"main": -1}}).as_object().unwrap().clone();
    let refused = Server::start(runyard_server::ServeOptions { flags, ..options(&dir) }).await;
    assert!(matches!(refused, Err(Error::Config(_))));
    assert!(!dir.path().join("data").join("runyard.db").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_is_answered_when_its_task_is_gone() {
    let yard = Yard::with(json!({"retention": {"tasksMs": 1}})).await;
    let body = json!({"kind": "noop", "idempotencyKey": "k", "rank": 4, "payload": {"result": 1}, "tags": ["t"]});
    let first = yard.submit(body.clone()).await;
    yard.ended(&first["id"]).await;
    // What grew old goes first at the next start.
    let yard = yard.restart(json!({"retention": {"tasksMs": 1}})).await;
    let path = format!("/v1/tasks/{}", first["id"].as_str().unwrap());
    while yard.get(&path).await.status != 404 {}
    let reply = yard.post("/v1/tasks", body).await;
    let again = reply.json();
    assert_eq!((reply.status, reply.header("idempotent-replayed")), (201, Some("true")), "{reply:?}");
    assert_eq!(reply.header("location"), Some(&*path));
    for field in ["id", "state", "rank", "payload", "tags", "kind", "agent", "retry"] {
        assert_eq!(again[field], first[field], "{field} in {again}");
    }
    let other = json!({"kind": "noop", "idempotencyKey": "k", "rank": 5});
    assert_eq!(yard.post("/v1/tasks", other).await.status, 422);
}
