//! The event stream: resumed without gap or duplicate, filtered, ended with the server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::time::Duration;

use common::{PATIENCE, Yard};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_goes_on_behind_the_last_event_seen() {
    let yard = Yard::new().await;
    let task = yard.submit(json!({"kind": "noop"})).await;
    yard.ended(&task["id"]).await;
    // From the beginning of the log to this task's end.
    let mut stream = yard.events("", Some("0-0")).await;
    let mut all = Vec::new();
    loop {
        let event = stream.next().await.unwrap();
        let is_last = event.event == "task.completed";
        all.push(event);
        if is_last {
            break;
        }
    }
    let ids: Vec<_> = all.iter().map(|event| event.id.clone().unwrap()).collect();
    assert!(all.iter().any(|event| event.event == "task.created"), "{all:?}");
    let mut unique = ids.clone();
    unique.dedup();
    assert_eq!(unique, ids);
    // From each event on, exactly the rest comes, then what is new.
    for (at, id) in ids.iter().enumerate() {
        let mut stream = yard.events("", Some(id)).await;
        for expected in &ids[at + 1..] {
            assert_eq!(stream.next().await.unwrap().id.as_ref(), Some(expected), "after {id}");
        }
    }
    let mut stream = yard.events("", ids.last().map(String::as_str)).await;
    let next = yard.submit(json!({"kind": "noop", "agent": "fresh"})).await;
    let created = stream.next_of("task.created").await;
    assert_eq!((&created.data["task"], &created.data["agent"]), (&next["id"], &json!("fresh")));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_events_come_once_each_and_in_order() {
    let yard = Yard::new().await;
    let mut stream = yard.events("?types=task.created", None).await;
    let tasks = vec![json!({"kind": "noop"}); 200];
    for _ in 0..5 {
        assert_eq!(yard.post("/v1/batches", json!({"tasks": tasks})).await.status, 201);
    }
    let position = |id: &str| {
        let (seq, index) = id.split_once('-').unwrap();
        (seq.parse::<u64>().unwrap(), index.parse::<u64>().unwrap())
    };
    let mut last = (0, 0);
    for _ in 0..1000 {
        let event = stream.next().await.unwrap();
        let at = position(event.id.as_deref().unwrap());
        assert!(at > last, "{at:?} after {last:?}");
        last = at;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_let_through_what_was_asked_for() {
    let yard = Yard::new().await;
    let mut of_agent = yard.events("?agent=b&types=task.completed", None).await;
    let mut of_batch = yard.events("?types=batch.finished", None).await;
    let a = yard.submit(json!({"kind": "noop", "agent": "a"})).await;
    yard.ended(&a["id"]).await;
    let b = yard.submit(json!({"kind": "noop", "agent": "b"})).await;
    let event = of_agent.next().await.unwrap();
    assert_eq!((&event.data["task"], event.event.as_str()), (&b["id"], "task.completed"));
    let batch = yard.post("/v1/batches", json!({"tasks": [{"kind": "noop"}]})).await.json();
    let event = of_batch.next().await.unwrap();
    assert_eq!((&event.data["batch"], &event.data["data"]["completed"]), (&batch["id"], &json!(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_the_log_does_not_know_gets_a_reset_first() {
    let yard = Yard::new().await;
    let mut stream = yard.events("", Some("999999999-0")).await;
    assert_eq!(stream.next().await.unwrap().event, "reset");
    let task = yard.submit(json!({"kind": "noop"})).await;
    assert_eq!(stream.next_of("task.created").await.data["task"], task["id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_streamed_while_it_runs() {
    let yard = Yard::new().await;
    let mut stream = yard.events("?types=task.progress", None).await;
    let shell = r#"echo '{"progress":0.5,"message":"half"}' >> $RUNYARD_REPORT; sleep 1"#;
    let task = yard.submit(json!({"kind": "process", "payload": {"shell": shell}})).await;
    let event = stream.next().await.unwrap();
    assert_eq!((&event.data["task"], &event.data["data"]["fraction"]), (&task["id"], &json!(0.5)));
    assert_eq!(event.id, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn open_streams_and_polls_do_not_hold_the_stop_up() {
    let mut yard = Yard::with(json!({"lanes": {"closed": 0}})).await;
    let task = yard.submit(json!({"kind": "noop", "lane": "closed"})).await;
    let mut stream = yard.events("", None).await;
    let path = format!("/v1/tasks/{}/wait?timeoutMs=600000", task["id"].as_str().unwrap());
    let poll = yard.request("GET", &path).send();
    let poll = tokio::spawn(poll);
    let server = yard.server.take().unwrap();
    tokio::time::timeout(PATIENCE, server.shutdown(Duration::from_secs(1))).await.expect("the server stops");
    while stream.next().await.is_some() {}
    // It was answered, or cut off before it was read.
    assert!(poll.await.map_or(true, |reply| reply.status == 503 || reply.status == 200));
    let yard = yard.restart(json!({"lanes": {"closed": 0}})).await;
    assert_eq!(yard.get(&format!("/v1/tasks/{}", task["id"].as_str().unwrap())).await.json()["state"], "queued");
}
