//! Spans as a collector gets them, and the trace as everybody behind the server gets it.

#![cfg(feature = "otlp")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use common::{PATIENCE, Yard};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// One request, head and body, answered with this status.
async fn taken(listener: &TcpListener, status: &str) -> (String, Value) {
    let exchange = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (head, body) = read(&mut stream).await;
        stream
            .write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").as_bytes())
            .await
            .unwrap();
        (head, serde_json::from_slice(&body).unwrap())
    };
    tokio::time::timeout(PATIENCE, exchange).await.expect("a request comes")
}

async fn read(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut bytes = Vec::new();
    loop {
        stream.read_buf(&mut bytes).await.unwrap();
        let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(bytes[..at].to_vec()).unwrap().to_ascii_lowercase();
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
        while bytes.len() < at + 4 + length {
            stream.read_buf(&mut bytes).await.unwrap();
        }
        return (head, bytes[at + 4..].to_vec());
    }
}

fn spans(body: &Value) -> Vec<Value> {
    body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
}

fn attribute<'a>(span: &'a Value, key: &str) -> Option<&'a str> {
    let found = span["attributes"].as_array().unwrap().iter().find(|attribute| attribute["key"] == key)?;
    found["value"]["stringValue"].as_str().or(found["value"]["intValue"].as_str())
}

fn nanos(span: &Value, key: &str) -> u64 {
    span[key].as_str().expect("64-bit numbers are texts").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_and_its_attempts_become_spans_of_its_trace() {
    let collector = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/", collector.local_addr().unwrap());
    let telemetry =
        json!({"otlpEndpoint": endpoint, "otlpHeaders": ["x-collector-key: canary-of-a-key"], "serviceName": "yard-7"});
    let yard = Yard::with(json!({"telemetry": telemetry})).await;
    let fails = json!({"kind": "noop", "agent": "ada", "payload": {"fail": "task", "message": "canary-of-a-message"}, "retry": {"maxRetries": 1, "backoffMs": 1}});
    let submit = yard.request("POST", "/v1/tasks").header("traceparent", &format!("00-{TRACE}-{PARENT}-01"));
    let failing = submit.json(&fails).send().await;
    assert_eq!(failing.status, 201, "{failing:?}");
    let failing = failing.json();
    let fine = yard.submit(json!({"kind": "noop"})).await;
    let unrecorded = yard.request("POST", "/v1/tasks").header("traceparent", &format!("00-{TRACE}-{PARENT}-00"));
    assert_eq!(unrecorded.json(&json!({"kind": "noop"})).send().await.status, 201);

    let mut all: Vec<Value> = Vec::new();
    while all.len() < 5 {
        let (head, body) = taken(&collector, "200 OK").await;
        assert!(
            head.starts_with("post /v1/traces http/1.1") && head.contains("x-collector-key: canary-of-a-key"),
            "{head}"
        );
        assert_eq!(body["resourceSpans"][0]["resource"]["attributes"][0]["value"]["stringValue"], "yard-7");
        assert!(!body.to_string().contains("canary-of-a-message"), "{body}");
        all.extend(spans(&body));
    }
    assert_eq!(all.len(), 5, "three for the one, two for the other, none for what is not recorded: {all:?}");
    let of = |task: &Value| -> Vec<&Value> {
        all.iter().filter(|span| attribute(span, "runyard.task") == task["id"].as_str()).collect()
    };

    let [root, first, second] = of(&failing)[..] else { panic!("{all:?}") };
    assert!([root, first, second].iter().all(|span| span["traceId"] == TRACE));
    assert_eq!(root["parentSpanId"], PARENT);
    assert!([first, second].iter().all(|span| span["parentSpanId"] == root["spanId"]));
    assert!([root, first, second].iter().all(|span| span["spanId"].as_str().unwrap().len() == 16));
    assert_ne!(first["spanId"], second["spanId"]);
    assert_eq!((root["status"]["code"].as_u64(), attribute(root, "runyard.state")), (Some(2), Some("failed")));
    assert_eq!((attribute(root, "runyard.agent"), attribute(root, "runyard.class")), (Some("ada"), Some("task")));
    assert_eq!(
        (attribute(first, "runyard.outcome"), attribute(second, "runyard.outcome")),
        (Some("retrying"), Some("failed"))
    );
    assert_eq!((attribute(first, "runyard.attempt"), attribute(second, "runyard.attempt")), (Some("1"), Some("2")));
    assert!(attribute(second, "runyard.worker").is_some());
    let (start, end) = ("startTimeUnixNano", "endTimeUnixNano");
    assert!(nanos(root, start) <= nanos(first, start) && nanos(first, end) <= nanos(second, start));
    assert!(nanos(second, start) <= nanos(second, end) && nanos(second, end) <= nanos(root, end));

    let [root, only] = of(&fine)[..] else { panic!("{all:?}") };
    assert_eq!(root["traceId"], fine["id"].as_str().unwrap().replace('-', ""), "its own id, without a trace given");
    assert_eq!((root.get("parentSpanId"), root["status"]["code"].as_u64()), (None, Some(1)));
    assert_eq!(only["parentSpanId"], root["spanId"]);
    let shown = yard.get("/v1/config").await.body.clone();
    assert!(shown.contains("x-collector-key") && !shown.contains("canary-of-a-key"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_that_nobody_takes_are_counted_and_a_stop_sends_the_rest() {
    let collector = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    let mut yard = Yard::with(json!({"telemetry": {"otlpEndpoint": endpoint}})).await;
    yard.submit(json!({"kind": "noop"})).await;
    taken(&collector, "400 Bad Request").await;
    let counted = async {
        while !yard.get("/metrics").await.body.contains("runyard_otlp_dropped_total 2") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, counted).await.expect("the task and its attempt are counted");
    let task = yard.submit(json!({"kind": "noop"})).await;
    yard.get(&format!("/v1/tasks/{}/wait", task["id"].as_str().unwrap())).await;
    let (sent, ()) = tokio::join!(taken(&collector, "200 OK"), yard.stop());
    assert_eq!(spans(&sent.1).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_belongs_to_the_trace_of_its_task() {
    let receiver = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", receiver.local_addr().unwrap());
    let yard = Yard::with(json!({"outbound": {"allow": ["127.0.0.1"]}})).await;
    let trace = format!("00-{TRACE}-{PARENT}-01");
    for (header, expected) in [(trace.as_str(), true), ("00-broken", false)] {
        let request = yard.request("POST", "/v1/tasks").header("traceparent", header);
        let answer = request.json(&json!({"kind": "noop", "callbackUrl": url})).send().await;
        assert_eq!(answer.status, 201);
        let (head, _) = taken(&receiver, "204 No Content").await;
        assert_eq!(head.contains(&format!("traceparent: {trace}")), expected, "{head}");
        assert_eq!(head.contains("traceparent"), expected, "{head}");
    }
}
