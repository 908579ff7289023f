//! Clients that mean no good: they ask and do not read, begin and do not go on, or close half of what they opened.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::time::Duration;

use common::raw::{last_words, metric, rss_mb, say, unread_at, until};
use common::{PATIENCE, Request, Yard};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const STREAMS: &str = "runyard_http_streams";
const CONNECTIONS: &str = "runyard_http_connections";

/// A request with the key, as text.
fn asks(yard: &Yard, line: &str, more: &str) -> String {
    let key = yard.key.as_ref().unwrap();
    format!("{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n{more}\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_requests_are_answered_in_their_order() {
    let yard = Yard::new().await;
    let mut text: String = (0..200).map(|n| asks(&yard, "GET /v1/stats", &format!("X-Request-Id: n{n}\r\n"))).collect();
    text += &asks(&yard, "GET /healthz", "X-Request-Id: last\r\nConnection: close\r\n");
    let words = last_words(say(&yard, &text).await).await;
    let ids: Vec<&str> = words.lines().filter_map(|line| line.strip_prefix("x-request-id: ")).collect();
    let expected: Vec<String> = (0..200).map(|n| format!("n{n}")).chain(["last".to_owned()]).collect();
    assert_eq!(ids, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_only_asks_and_never_reads_is_disconnected() {
    let yard = Yard::with(json!({"server": {"limits": {"stallMs": 300}}})).await;
    let request = asks(&yard, "GET /openapi.json", "");
    let mut stream = unread_at(&yard, "/openapi.json").await;
    let before = rss_mb();
    let asking = async { while stream.write_all(request.as_bytes()).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, asking).await.expect("the server hangs up");
    assert!(rss_mb() - before < 50, "what it asked for is not prepared for it");
    assert_eq!(yard.get("/healthz").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_nobody_asked_for_is_not_waited_for() {
    let yard = Yard::new().await;
    for line in ["GET /healthz", "GET /v1/stats", "DELETE /v1/nothing"] {
        let words = last_words(say(&yard, &asks(&yard, line, "Content-Length: 1000000\r\n")).await).await;
        assert!(words.starts_with("HTTP/1.1 "), "{line}: {words}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_two_lengths_is_refused() {
    let yard = Yard::new().await;
    for more in [
        "Content-Type: application/json\r\nContent-Length: 2\r\nContent-Length: 3\r\n",
        "Content-Type: application/json\r\nContent-Length: +2\r\n",
        "Content-Type: application/json\r\nTransfer-Encoding: gzip\r\n",
    ] {
        let text = asks(&yard, "POST /v1/tasks", more) + "{}" + &asks(&yard, "GET /healthz", "");
        let words = last_words(say(&yard, &text).await).await;
        assert!(words.starts_with("HTTP/1.1 400 "), "{more}: {words}");
        assert!(!words.contains(" 200 "), "what follows is no request: {words}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_stalls_or_drips_ends_and_leaves_nothing() {
    let yard = Yard::with(json!({"server": {"limits": {"bodyMs": 400}}})).await;
    let begun = asks(&yard, "PUT /v1/uploads", "Content-Length: 100000\r\n") + "begun";
    let words = last_words(say(&yard, &begun).await).await;
    assert!(words.starts_with("HTTP/1.1 408 ") && words.contains("slow_body"), "{words}");

    let (mut read, mut write) = say(&yard, &begun).await.into_split();
    let drip = tokio::spawn(async move {
        while write.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, read.read_to_end(&mut bytes)).await.expect("the server hangs up");
    assert!(String::from_utf8_lossy(&bytes).contains("slow_body"));
    drip.await.unwrap();
    let uploads = yard.dir.path().join("data/uploads");
    until(async || std::fs::read_dir(&uploads).unwrap().count() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_never_reads_is_disconnected_and_holds_up_nobody() {
    let yard = Yard::with(json!({"server": {"limits": {"stallMs": 500}}})).await;
    // More than the buffers of two sockets hold, less than the limit of a log.
    let shell = "head -c 8000000 /dev/zero | tr '\\0' x | fold -w 100; sleep 1000";
    let task = yard.submit(json!({"kind": "process", "payload": {"shell": shell}})).await;
    let id = task["id"].as_str().unwrap();
    let _text = unread_at(&yard, &format!("/v1/tasks/{id}/logs?follow=true")).await;
    until(async || metric(&yard, STREAMS).await == 1).await;
    until(async || metric(&yard, STREAMS).await == 0).await;
    assert_eq!(yard.get(&format!("/v1/tasks/{id}/logs")).await.body.len(), 8_079_999, "all of it was written");
    yard.request("DELETE", &format!("/v1/tasks/{id}")).send().await;
    yard.ended(&task["id"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_closes_its_half_is_not_kept() {
    let yard = Yard::with(json!({"lanes": {"closed": 0}})).await;
    let task = yard.submit(json!({"kind": "noop", "lane": "closed"})).await;
    let id = task["id"].as_str().unwrap();
    for path in [
        "/v1/events".to_owned(),
        format!("/v1/tasks/{id}/wait?timeoutMs=600000"),
        format!("/v1/tasks/{id}/logs?follow=true"),
    ] {
        let mut stream = say(&yard, &asks(&yard, &format!("GET {path}"), "")).await;
        until(async || metric(&yard, STREAMS).await == 1).await;
        stream.shutdown().await.unwrap();
        until(async || metric(&yard, STREAMS).await == 0).await;
        last_words(stream).await;
    }
    // The one that asks.
    until(async || metric(&yard, CONNECTIONS).await == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_wait_for_a_large_task_do_not_hold_a_copy_each() {
    const CLIENTS: i64 = 200;
    let yard = Yard::with(json!({"lanes": {"closed": 0}})).await;
    let payload = json!({"result": "x".repeat(1_000_000)});
    let task = yard.submit(json!({"kind": "noop", "lane": "closed", "payload": payload})).await;
    let line = format!("GET /v1/tasks/{}/wait?timeoutMs=600000", task["id"].as_str().unwrap());
    let mut waiting = Vec::new();
    let before = rss_mb();
    for n in 1..=CLIENTS {
        waiting.push(say(&yard, &asks(&yard, &line, "")).await);
        if n % 10 == 0 {
            until(async || metric(&yard, STREAMS).await == n).await;
        }
    }
    let grown = rss_mb() - before;
    assert!(grown < 100, "{grown} MB");
}

/// Bodies that are begun and not ended hold what has come of them, and only so much with one key.
#[tokio::test(flavor = "multi_thread")]
async fn the_bodies_of_one_key_leave_room_for_those_of_others() {
    let yard = Yard::with(json!({"server": {"limits": {"bodyBytes": 64 << 20}}, "lanes": {"main": 0}})).await;
    let mut keys = Vec::new();
    for name in ["greedy", "other"] {
        let created = yard.post("/v1/keys", json!({"name": name, "scopes": ["submit"]})).await.json();
        keys.push(created["key"].as_str().unwrap().to_owned());
    }
    let task = json!({"kind": "anything", "payload": {"text": "x".repeat(100_000)}});
    let submit = async |key: &str| {
        let request = Request::new(&yard.addr, "POST", "/v1/tasks").header("Authorization", &format!("Bearer {key}"));
        request.json(&task).send().await
    };
    let length = 32 << 20;
    let head = format!(
        "POST /v1/batches HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n",
        keys[0]
    );
    let mut begun = None;
    until(async || {
        // Where the short one is read while the long one still comes in, it is the long one that has to go.
        drop(begun.take());
        let mut long = say(&yard, &head).await;
        if long.write_all(&vec![b' '; length - 1000]).await.is_err() {
            return false;
        }
        begun = Some(long);
        submit(&keys[0]).await.status == 503 && submit(&keys[0]).await.status == 503
    })
    .await;
    let refused = submit(&keys[0]).await;
    assert_eq!((&refused.problem()["code"], refused.header("retry-after")), (&json!("busy"), Some("1")), "{refused:?}");
    assert_eq!(submit(&keys[1]).await.status, 201);
    yard.submit(json!({"kind": "noop"})).await;
    drop(begun);
    until(async || submit(&keys[0]).await.status == 201).await;
}
