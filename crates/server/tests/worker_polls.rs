//! Many workers that wait cost little, and the one that is meant is answered at once.
//!
//! `RUNYARD_POLLS=9900` for as many as a large yard has; each takes two open files here.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::time::{Duration, Instant};

use common::Yard;
use common::hand::{Hand, lease, offer, with};
use common::raw::{metric, rss_mb, until};
use futures_util::StreamExt;
use futures_util::stream::{self, FuturesUnordered};
use serde_json::json;

/// Of memory, for each that waits, both ends of its connection included: they are in this process.
const KIB_EACH_MAX: i64 = 100;

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_wait_cost_little_and_the_one_that_is_meant_is_answered_at_once() {
    let n: usize = std::env::var("RUNYARD_POLLS").map_or(200, |text| text.parse().unwrap());
    let limits = json!({"connections": 3 * n, "connectionsPerAddress": 3 * n});
    let yard = Yard::with(json!({
        "workers": {"heartbeatMs": 60_000, "offlineAfterMs": 600_000},
        "server": {"limits": limits},
    }))
    .await;
    let token = yard.post("/v1/keys", json!({"name": "join", "scopes": ["worker"]})).await.json();
    let token = token["key"].as_str().unwrap();
    let join = async |at: usize| {
        let offer = with(offer(&format!("w{at}")), json!({"labels": {"n": at.to_string()}}));
        Hand::join_with(&yard.addr, token, offer).await
    };
    let began = Instant::now();
    let hands: Vec<Hand> = stream::iter(0..n).map(join).buffer_unordered(100).collect().await;
    let joined = began.elapsed();
    let present = async |hand: &Hand| hand.sync(json!({})).await;
    stream::iter(&hands).map(present).buffer_unordered(100).collect::<Vec<_>>().await;
    let before_mb = rss_mb();
    let open = n as i64;
    let polls: FuturesUnordered<_> = FuturesUnordered::new();
    for hand in hands {
        polls.push(tokio::spawn(async move {
            let answer = hand.sync(json!({"waitMs": 30_000})).await;
            (Instant::now(), hand, answer)
        }));
        // Not all in one moment: so many the kernel would not let wait. And most of them, because on a busy machine the
        // first may be through before the last has come.
        if polls.len().is_multiple_of(500) || polls.len() == n {
            let come = polls.len() as i64;
            until(async || metric(&yard, "runyard_http_connections").await >= come * 9 / 10).await;
        }
    }
    let each_kib = (rss_mb() - before_mb) * 1024 / open;
    let asked = Instant::now();
    let place = json!({"require": {"n": (n / 2).to_string()}});
    yard.submit(json!({"kind": "job", "place": place})).await;
    let (answered, mut hand, answer) = {
        let mut polls = polls;
        polls.next().await.unwrap().unwrap()
    };
    let took = answered.duration_since(asked);
    let start = &answer["start"][0];
    hand.held.push(lease(start));
    hand.end(start, json!({"state": "completed"})).await;
    println!("{n} polls: joined in {joined:?}, {each_kib} KiB each, the one that was meant answered after {took:?}");
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert!(each_kib <= KIB_EACH_MAX, "{each_kib} KiB");
}
