//! Clients that are too many, too slow, too large or too eager, on real sockets.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::time::Duration;

use common::raw::{last_words, metric, rss_mb, say, unread, until};
use common::{PATIENCE, Request, Yard};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_does_not_come_to_its_end_is_not_waited_for() {
    let yard = Yard::with(json!({"server": {"limits": {"headMs": 300}}})).await;
    for begun in ["", "GET", "GET /healthz HTTP/1.1\r\n", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: "] {
        let words = last_words(say(&yard, begun).await).await;
        assert!(!words.contains(" 200 "), "{begun:?}: {words}");
    }
    let whole = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let words = last_words(say(&yard, whole).await).await;
    assert!(words.contains(" 200 "), "then it waits for the next one as long: {words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_drips_its_head_is_not_waited_for_either() {
    let yard = Yard::with(json!({"server": {"limits": {"headMs": 400}}})).await;
    let (mut read, mut write) = say(&yard, "GET /healthz HTTP/1.1\r\n").await.into_split();
    let drip = tokio::spawn(async move {
        while write.write_all(b"X-A: b\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, read.read_to_end(&mut bytes)).await.expect("the server hangs up");
    assert!(!String::from_utf8_lossy(&bytes).contains(" 200 "));
    drip.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let yard = Yard::with(json!({"server": {"limits": {"bodyMs": 300}}})).await;
    let key = yard.key.as_ref().unwrap();
    let head = format!(
        "POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{"
    );
    let words = last_words(say(&yard, &head).await).await;
    assert!(words.starts_with("HTTP/1.1 408 ") && words.contains("slow_body"), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_is_refused_before_it_is_read() {
    let yard = Yard::with(json!({"server": {"limits": {"headBytes": 16384, "headers": 20, "urlBytes": 1024}}})).await;
    let long = "x".repeat(2000);
    let reply = yard.get(&format!("/v1/tasks?agent={long}")).await;
    assert_eq!((reply.status, &reply.problem()["code"]), (414, &json!("url_too_long")));
    let mut many = yard.request("GET", "/v1/tasks");
    for n in 0..20 {
        many = many.header(&format!("X-{n}"), "y");
    }
    assert_eq!(many.send().await.status, 431);
    let large = yard.request("GET", "/v1/tasks").header("X-Large", &"y".repeat(20_000)).send().await;
    assert_eq!(large.status, 431);
    let body = Request::new(&yard.addr, "POST", "/v1/tasks")
        .header("X-API-Key", yard.key.as_ref().unwrap())
        .header("Content-Type", "application/json")
        .body(vec![b' '; 1024 * 1024 + 1]);
    assert_eq!(body.send().await.problem()["code"], "body_too_large");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_has_so_many_connections_and_gets_them_back() {
    let yard = Yard::with(json!({"server": {"limits": {"connectionsPerAddress": 5}}})).await;
    let mut held = Vec::new();
    for _ in 0..5 {
        // Each has been accepted once it has been answered.
        let mut stream = say(&yard, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        stream.read_exact(&mut [0; 15]).await.unwrap();
        held.push(stream);
    }
    let words = last_words(TcpStream::connect(&yard.addr).await.unwrap()).await;
    assert!(words.starts_with("HTTP/1.1 503 ") && words.contains("too_many_connections"), "{words}");
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(yard.addr.parse().unwrap()).await.unwrap();
    other.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    assert!(last_words(other).await.contains(" 200 "), "others are not kept out");
    held.pop();
    until(async || yard.get("/healthz").await.status == 200).await;
    // More than one, because an answer comes before its connection is counted out.
    drop(held);
    until(async || yard.get("/metrics").await.status == 200).await;
    assert!(metric(&yard, "runyard_http_connections_refused_total").await >= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_and_an_address_have_a_rate() {
    let yard = Yard::with(json!({"server": {"rateLimit": {"perKey": 2, "burstSeconds": 2}}})).await;
    let other = yard.post("/v1/keys", json!({"name": "other", "scopes": ["read"]})).await.json();
    let ask = async || yard.get("/v1/stats").await;
    let statuses: Vec<u16> = [ask().await, ask().await, ask().await, ask().await].iter().map(|r| r.status).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    let refused = ask().await;
    assert_eq!((refused.header("retry-after"), &refused.problem()["whose"]), (Some("1"), &json!("key")));
    assert_eq!(yard.get("/healthz").await.status, 200);
    let other = Request::new(&yard.addr, "GET", "/v1/stats").header("X-API-Key", other["key"].as_str().unwrap());
    assert_eq!(other.send().await.status, 200, "each key has its own");

    let config =
        json!({"server": {"rateLimit": {"perAddress": 1, "burstSeconds": 1}, "trustedProxies": ["127.0.0.2"]}});
    let yard = Yard::with(config).await;
    assert_eq!(yard.get("/v1/stats").await.status, 200);
    assert_eq!(yard.get("/v1/stats").await.problem()["whose"], "address");
    let forwarded = yard.request("GET", "/v1/stats").header("X-Forwarded-For", "192.0.2.9");
    assert_eq!(forwarded.send().await.status, 429, "whoever is no proxy speaks for itself only");
    assert_eq!(yard.get("/readyz").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_have_a_limit() {
    let yard = Yard::with(json!({"server": {"limits": {"streams": 2}}})).await;
    let first = yard.events("", None).await;
    let _second = yard.events("", None).await;
    let reply = yard.get("/v1/events").await;
    assert_eq!((reply.status, &reply.problem()["code"]), (503, &json!("too_many_streams")));
    assert_eq!(reply.header("retry-after"), Some("5"));
    let task = yard.submit(json!({"kind": "noop"})).await;
    let wait = yard.get(&format!("/v1/tasks/{}/wait", task["id"].as_str().unwrap())).await;
    assert_eq!(wait.status, 503, "a wait is one too");
    drop(first);
    until(async || metric(&yard, "runyard_http_streams").await == 1).await;
    yard.ended(&task["id"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_loses_what_it_has_open() {
    let yard = Yard::with(json!({"agents": {"default": {"paused": true}}})).await;
    let task = yard.submit(json!({"kind": "noop"})).await;
    let id = task["id"].as_str().unwrap();
    let key = yard.post("/v1/keys", json!({"name": "reader", "scopes": ["read"]})).await.json();
    let open = async |path: &str| {
        let text = key["key"].as_str().unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {text}\r\nConnection: close\r\n\r\n");
        say(&yard, &head).await
    };
    let mut events = yard.events("", None).await;
    let streams = [
        open("/v1/events").await,
        open(&format!("/v1/tasks/{id}/logs?follow=true")).await,
        open(&format!("/v1/tasks/{id}/wait?timeoutMs=600000")).await,
    ];
    until(async || metric(&yard, "runyard_http_streams").await == 4).await;
    let revoked = yard.request("DELETE", &format!("/v1/keys/{}", key["id"].as_str().unwrap())).send().await;
    assert_eq!(revoked.status, 204, "{revoked:?}");
    let [_, _, wait] = streams.map(last_words);
    assert!(wait.await.starts_with("HTTP/1.1 401 "), "a wait is answered");
    until(async || metric(&yard, "runyard_http_streams").await == 1).await;
    yard.submit(json!({"kind": "noop"})).await;
    events.next_of("task.queued").await;
}

/// So many tasks, each with some events of its own.
async fn flood(yard: &Yard, n_batches: usize) {
    for _ in 0..n_batches {
        let tasks: Vec<Value> = (0..1000).map(|_| json!({"kind": "noop", "tags": ["flood"]})).collect();
        let reply = yard.post("/v1/batches", json!({"tasks": tasks})).await;
        assert_eq!(reply.status, 201, "{reply:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stops_reading_its_stream_is_disconnected() {
    let yard = Yard::with(json!({"server": {"limits": {"stallMs": 500}}})).await;
    let stalled = unread(&yard).await;
    let mut reads = yard.events("?types=task.completed", None).await;
    until(async || metric(&yard, "runyard_http_streams").await == 2).await;
    let reads = tokio::spawn(async move {
        for _ in 0..12_000 {
            reads.next_of("task.completed").await;
        }
        reads
    });
    // More than the buffers of two sockets hold.
    flood(&yard, 12).await;
    let _reads = reads.await.expect("who reads gets all of it");
    until(async || metric(&yard, "runyard_http_streams").await == 1).await;
    drop(stalled);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_stop_reading_cost_no_memory() {
    const CLIENTS: i64 = 100;
    let yard = Yard::new().await;
    flood(&yard, 2).await;
    let mut stalled = Vec::new();
    for _ in 0..CLIENTS {
        stalled.push(unread(&yard).await);
    }
    until(async || metric(&yard, "runyard_http_streams").await == CLIENTS).await;
    let before = rss_mb();
    flood(&yard, 8).await;
    until(async || yard.get("/v1/stats").await.json()["metrics"]["completed"] == 10_000).await;
    // 8000 tasks have 40 000 events of 300 bytes: kept for each client that would be 1200 MB.
    let grown = rss_mb() - before;
    assert!(grown < 300, "{grown} MB");
    assert_eq!(metric(&yard, "runyard_http_streams").await, CLIENTS, "they are all still there");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_data_that_browsers_leave_alone() {
    let yard = Yard::new().await;
    for path in ["/healthz", "/v1/tasks", "/v1/unknown", "/openapi.json", "/metrics"] {
        let reply = yard.get(path).await;
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-store"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(reply.header(name), Some(value), "{path}");
        }
        assert_eq!(reply.header("x-request-id").unwrap().len(), 36, "{path}");
        assert_eq!(reply.header("access-control-allow-origin"), None, "{path}");
    }
    let named = yard.request("GET", "/healthz").header("X-Request-Id", "abc-7").send().await;
    assert_eq!(named.header("x-request-id"), Some("abc-7"));
    let preflight = yard.request("OPTIONS", "/v1/tasks").header("Access-Control-Request-Method", "POST").send().await;
    assert!(preflight.status >= 400 && preflight.header("access-control-allow-methods").is_none(), "{preflight:?}");
}
