//! Who makes workers is told when some are missing, and when some are idle.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use common::hand::{Hand, job, offer};
use common::raw::until;
use common::{PATIENCE, Yard};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

/// The next request that comes: its head and its body. It is thanked for.
async fn received(listener: &TcpListener) -> (String, Value) {
    let exchange = async {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(stream.read_line(&mut head).await.unwrap() > 0, "{head}");
        }
        let head = head.to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").await.unwrap();
        (head, serde_json::from_slice(&body).unwrap())
    };
    tokio::time::timeout(PATIENCE, exchange).await.expect("somebody calls")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_is_told_of_unmet_demand_and_again_while_it_lasts() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/scale", listener.local_addr().unwrap());
    let autoscale = json!({"url": url, "afterMs": 100, "everyMs": 1000});
    let yard = Yard::with(json!({"autoscale": autoscale, "outbound": {"allow": ["127.0.0.1"]}})).await;
    yard.submit(job()).await;
    for _ in 0..2 {
        let (head, body) = received(&listener).await;
        assert!(head.contains("webhook-signature: v1,"), "{head}");
        assert_eq!((&body["event"], &body["shapes"][0]["kind"]), (&json!("autoscale.demand"), &json!("job")), "{body}");
        assert_eq!((&body["shapes"][0]["queued"], &body["shapes"][0]["fitsSomeWorker"]), (&json!(1), &json!(false)));
        assert!(body["shapes"][0]["waitedMs"].as_u64().unwrap() >= 100, "{body}");
    }
    let shown = yard.get("/v1/config").await.body;
    assert!(!shown.contains("/scale"), "what follows the host may be a token");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_told_of_idle_workers() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("told");
    let command = json!(["sh", "-c", format!("cat >> {0}; echo >> {0}", file.display())]);
    let yard = Yard::with(json!({"autoscale": {"command": command, "idleAfterMs": 100, "everyMs": 60_000}})).await;
    let hand = Hand::join(&yard, offer("idle")).await;
    hand.sync(json!({})).await;
    until(async || std::fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n'))).await;
    let told: Value = serde_json::from_str(std::fs::read_to_string(&file).unwrap().lines().next().unwrap()).unwrap();
    assert_eq!(told["event"], "autoscale.idle", "{told}");
    assert_eq!((&told["workers"][0]["id"], &told["workers"][0]["name"]), (&json!(hand.id), &json!("idle")));
}
