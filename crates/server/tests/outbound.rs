//! Where tasks may connect to: `[outbound]` through the whole server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::Yard;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Counts who connects, and answers everybody.
struct Listener {
    url: String,
    n_connections: Arc<AtomicUsize>,
}

impl Listener {
    async fn start() -> Listener {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let n_connections = Arc::new(AtomicUsize::new(0));
        let counted = n_connections.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(answer(stream));
            }
        });
        Listener { url, n_connections }
    }

    fn taken(&self) -> usize {
        self.n_connections.swap(0, Ordering::SeqCst)
    }
}

async fn answer(mut stream: TcpStream) {
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => asked.push(byte),
            Err(_) => return,
        }
    }
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi").await;
}

/// Both ways in which a task makes the server call somebody.
fn tasks(url: &str) -> [Value; 2] {
    [
        json!({"kind": "http", "payload": {"url": url}}),
        json!({"kind": "process", "payload": {"shell": "cat a", "files": [{"url": url, "path": "a"}]}}),
    ]
}

async fn ends(yard: &Yard, url: &str) -> Vec<Value> {
    let mut ended = Vec::new();
    for task in tasks(url) {
        let task = yard.submit(task).await;
        ended.push(yard.ended(&task["id"]).await);
    }
    ended
}

async fn patch(yard: &Yard, outbound: Value) {
    let patched = yard.request("PATCH", "/v1/config").json(&json!({ "outbound": outbound })).send().await;
    assert_eq!(patched.status, 200, "{patched:?}");
}

async fn are_refused(yard: &Yard, listener: &Listener) {
    for task in ends(yard, &listener.url).await {
        let error = &task["error"];
        assert_eq!(
            (&task["state"], &error["class"], &task["attempts"]),
            (&json!("failed"), &json!("permanent"), &json!(1))
        );
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("127.0.0.1") && message.contains("outbound.allow"), "{message}");
    }
    assert_eq!(listener.taken(), 0);
}

async fn get_through(yard: &Yard, listener: &Listener) {
    for task in ends(yard, &listener.url).await {
        assert_eq!(task["state"], "completed", "{task}");
    }
    assert_eq!(listener.taken(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn guarded_tasks_call_only_what_is_public_or_allowed() {
    let listener = Listener::start().await;
    let yard = Yard::with(json!({"outbound": {"guardHttpTasks": true}})).await;
    are_refused(&yard, &listener).await;
    // By a name that leads there, too.
    let by_name = listener.url.replace("127.0.0.1", "localhost");
    for task in ends(&yard, &by_name).await {
        assert_eq!(task["error"]["class"], "permanent", "{task}");
    }
    assert_eq!(listener.taken(), 0);
    patch(&yard, json!({"allow": ["127.0.0.1"]})).await;
    get_through(&yard, &listener).await;
    patch(&yard, json!({"allow": []})).await;
    are_refused(&yard, &listener).await;
    patch(&yard, json!({"guardHttpTasks": false})).await;
    get_through(&yard, &listener).await;
    patch(&yard, json!({"guardHttpTasks": true})).await;
    are_refused(&yard, &listener).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_counts_for_the_next_attempt() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let yard = Yard::new().await;
    let task = json!({"kind": "http", "payload": {"url": url}, "retry": {"maxRetries": 3, "backoffMs": 1}});
    let task = yard.submit(task).await;
    let (mut first, _) = listener.accept().await.unwrap();
    patch(&yard, json!({"guardHttpTasks": true})).await;
    first.write_all(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await.unwrap();
    let task = yard.ended(&task["id"]).await;
    assert_eq!((&task["error"]["class"], &task["attempts"]), (&json!("permanent"), &json!(2)), "{task}");
    let second = tokio::time::timeout(std::time::Duration::ZERO, listener.accept()).await;
    assert!(second.is_err(), "the second attempt has not connected");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_secret_a_subscription_is_sent_nothing() {
    let yard = Yard::with(json!({"outbound": {"allow": ["127.0.0.1"]}})).await;
    let listener = Listener::start().await;
    let hook = json!({
        "url": format!("{}hook?token=canary-url", listener.url), "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    });
    let patched = yard.request("PATCH", "/v1/config").json(&json!({"webhooks": {"own": hook}})).send().await;
    assert_eq!(patched.status, 200, "{patched:?}");
    let shown = patched.json()["values"]["webhooks"]["own"].clone();
    assert_eq!(shown["url"], format!("{}…", listener.url));
    let back = yard.request("PATCH", "/v1/config").json(&json!({"webhooks": {"own": {"url": shown["url"]}}}));
    assert_eq!(back.send().await.problem()["field"], "webhooks.own.url", "what is shown is not the URL");
    assert!(!yard.get("/v1/audit").await.body.contains("canary-url"));
    let key = yard.dir.path().join("data/secrets.key");
    let kept = std::fs::read(&key).unwrap();
    std::fs::remove_file(&key).unwrap();

    let yard = yard.restart(json!({"outbound": {"allow": ["127.0.0.1"]}})).await;
    let config = yard.get("/v1/config").await.json();
    assert_eq!(config["values"]["webhooks"]["own"]["secret"], "***", "{config}");
    // Another change does not lose it.
    patch(&yard, json!({"allow": ["127.0.0.1", "::1"]})).await;
    yard.submit(json!({"kind": "noop"})).await;
    let delivery = tried(&yard, |delivery| delivery["tries"] == 1).await;
    assert_eq!(delivery["state"], "pending");
    assert!(delivery["log"][0]["error"].as_str().unwrap().contains("cannot be opened"), "{delivery}");
    assert_eq!(listener.taken(), 0);

    std::fs::write(&key, kept).unwrap();
    let yard = yard.restart(json!({"outbound": {"allow": ["127.0.0.1"]}})).await;
    let delivery = tried(&yard, |delivery| delivery["state"] == "delivered").await;
    assert_eq!((listener.taken(), &delivery["webhook"]), (1, &json!("own")));
    let replay = format!("/v1/webhooks/deliveries/{}/replay", delivery["id"]);
    assert_eq!(yard.post(&replay, Value::Null).await.status, 200);
    let entry = yard.get("/v1/audit?limit=1").await.json()["items"][0].clone();
    assert_eq!((&entry["action"], &entry["subject"]), (&json!("webhook.replayed"), &json!(delivery["id"].to_string())));
}

async fn tried(yard: &Yard, is_so: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..600 {
        let delivery = yard.get("/v1/webhooks/deliveries").await.json()["items"][0].clone();
        if is_so(&delivery) {
            return delivery;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("{}", yard.get("/v1/webhooks/deliveries").await.body);
}
