//! Bytes that no client would send, to a real server: it answers, or hangs up, and goes on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use common::hand::{Hand, job, lease, offer, with};
use common::{PATIENCE, Yard};
use futures_util::StreamExt;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// More of them in `cargo xtask soak`.
fn n_cases() -> usize {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(300)
}

/// The same ones each time, so that a failure can be seen again.
fn samples<T>(strategy: impl Strategy<Value = T>) -> Vec<T> {
    let mut runner = TestRunner::new(Config { rng_seed: RngSeed::Fixed(7), ..Config::default() });
    (0..n_cases()).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

/// The status of the answer; none when the server hangs up without one.
async fn answer(yard: &Yard, bytes: &[u8]) -> Option<u16> {
    let exchange = async {
        let mut stream = TcpStream::connect(&yard.addr).await.unwrap();
        // It may have hung up already.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let text = String::from_utf8_lossy(&answer);
        text.split(' ').nth(1).and_then(|status| status.parse().ok())
    };
    tokio::time::timeout(PATIENCE, exchange).await.expect("the server answers or hangs up")
}

async fn stays_well(yard: &Yard, requests: Vec<Vec<u8>>) {
    // Several at once: a request that lacks its end is waited for.
    let asked = requests.iter().map(|bytes| async move { (bytes, answer(yard, bytes).await) });
    let answers: Vec<_> = futures_util::stream::iter(asked).buffer_unordered(16).collect().await;
    for (bytes, status) in &answers {
        assert!(status.is_none_or(|status| status < 500), "{status:?} to {:?}", String::from_utf8_lossy(bytes));
    }
    let n_answered = answers.iter().filter(|(_, status)| status.is_some()).count();
    assert!(n_answered * 2 > answers.len(), "only {n_answered} of {} were answered", answers.len());
    assert_eq!(yard.get("/healthz").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_some_bytes_changed_is_answered() {
    let yard = Yard::with(json!({"server": {"limits": {"headMs": 500, "bodyMs": 500}}})).await;
    let body = r#"{"kind":"noop","agent":"a","session":{"key":"k","mode":"collect"},"delayMs":5,"tags":["t"]}"#;
    let key = yard.key.as_ref().unwrap();
    let whole = format!(
        "POST /v1/tasks?x=%41 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nTraceparent: 00-1-2-3\r\n\
         Connection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stays_well(&yard, mangled(&whole)).await;
}

/// With a few bytes replaced or added, in as many ways as there are cases.
fn mangled(whole: &str) -> Vec<Vec<u8>> {
    let change = (any::<prop::sample::Index>(), any::<u8>(), any::<bool>());
    let mangle = |changes: Vec<(prop::sample::Index, u8, bool)>| {
        let mut bytes = whole.as_bytes().to_vec();
        for (at, byte, replace) in changes {
            let at = at.index(bytes.len());
            if replace { bytes[at] = byte } else { bytes.insert(at, byte) }
        }
        bytes
    };
    samples(prop::collection::vec(change, 1..6)).into_iter().map(mangle).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_with_some_bytes_changed_is_answered_and_takes_nothing_from_its_worker() {
    let yard = Yard::with(json!({"server": {"limits": {"headMs": 500, "bodyMs": 500}}})).await;
    let mut hand = Hand::join(&yard, offer("w")).await;
    let task = yard.submit(job()).await;
    let start = hand.take().await;
    let (held, other) = (lease(&start), json!({"task": hand.id, "attempt": 1, "token": "7"}));
    let outcome = json!({"state": "failed", "class": "task", "message": "m", "exit": {"exitCode": 1, "wallMs": 5}});
    let body = json!({
        "session": hand.session, "seq": 9, "waitMs": 0, "want": 3, "metrics": {"cpuUsage": 12.5, "load1": 0.5},
        "held": [held], "started": [held], "alive": [other], "done": [with(other.clone(), json!({"outcome": outcome}))],
        "progress": [with(held.clone(), json!({"fraction": 0.5, "message": "m"}))],
        "logs": [with(held.clone(), json!({"offset": 0, "data": "MjAyNi0xMS0xNVQyMTowMDowMC4xMjNaIE8gaGkK"}))],
        "inputs": [with(other, json!({"message": hand.id}))],
    });
    // What is changed is the body: it says how it goes on, and its length does not tell.
    let bodies = mangled(&body.to_string()).into_iter();
    let head = format!("POST /v1/workers/{}/sync HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", hand.id);
    let requests = bodies.map(|body| {
        let head = format!(
            "{head}Authorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            hand.key,
            body.len()
        );
        [head.into_bytes(), body].concat()
    });
    stays_well(&yard, requests.collect()).await;
    assert_eq!(hand.end(&start, json!({"state": "completed"})).await["refused"], json!([]));
    assert_eq!(yard.ended(&task["id"]).await["state"], "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn any_path_and_any_query_is_answered() {
    let yard = Yard::new().await;
    let key = yard.key.as_ref().unwrap();
    // Every byte that may stand in a request line, and every escape, well-formed or not.
    let piece = prop_oneof![
        "[!-~]{0,6}",
        "(%[0-9a-fA-F]{2}){1,4}",
        "%[0-9a-g]?",
        Just("..".to_owned()),
        Just("%00".to_owned()),
        Just("%2F".to_owned()),
        "[0-9]{15,22}",
    ];
    let resource = prop::sample::select(vec![
        "sessions/",
        "tasks/",
        "batches/",
        "lanes/",
        "agents/",
        "keys/",
        "secrets/",
        "tasks?cursor=",
        "tasks?limit=",
        "tasks?createdAfter=",
        "tasks?state=",
        "sessions?prefix=",
        "sessions?cursor=",
        "audit?cursor=",
        "schedules/",
        "schedules?cursor=",
    ]);
    let method = prop::sample::select(vec!["GET", "GET", "GET", "PUT", "POST", "DELETE", "PATCH"]);
    let request = (method, resource, prop::collection::vec(piece, 1..4));
    let requests = samples(request).into_iter().map(|(method, resource, pieces)| {
        let url = format!("/v1/{resource}{}", pieces.concat()).replace(' ', "+");
        format!(
            "{method} {url} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\
             Content-Length: 0\r\n\r\n"
        )
        .into_bytes()
    });
    stays_well(&yard, requests.collect()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_place_to_go_on_from_is_answered() {
    let yard = Yard::new().await;
    let task = yard.submit(json!({"kind": "noop"})).await;
    let logs = format!("/v1/tasks/{}/logs", task["id"].as_str().unwrap());
    let number = prop_oneof![Just(u64::MAX), Just(0), Just(u64::from(u32::MAX)), Just(i64::MAX as u64), any::<u64>()];
    let number = prop_oneof![number.prop_map(|number| number.to_string()), "[!-~]{0,8}"];
    for (seq, index) in samples((number.clone(), number)) {
        let place: String = format!("{seq}-{index}").chars().map(|c| format!("%{:02X}", c as u32)).collect();
        for path in [format!("/v1/events?after={place}"), format!("{logs}?after={place}")] {
            let status = yard.request("GET", &path).status().await;
            assert!(matches!(status, 200 | 400), "{status} to {seq}-{index} at {path}");
        }
    }
}
