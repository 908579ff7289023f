//! `GET /v1/events`.

use serde_json::{Value, json};

use crate::scene::{Scene, Stream, is, problem, text};

/// Design 12: the stream begins now, and each event has its id, name and subject.
#[test]
fn a_stream_shows_what_happens_from_now_on() {
    let scene = Scene::new();
    let before = scene.noop(json!({}));
    scene.end(&before);
    let mut stream = Stream::open(&scene, "/v1/events", &[]);
    assert!(stream.head.to_ascii_lowercase().contains("content-type: text/event-stream"), "{}", stream.head);
    let id = scene.submit(json!({"kind": "noop", "agent": "a", "priority": "high"}));
    let mut names = Vec::new();
    while names.last().is_none_or(|name| name != "task.completed") {
        let (name, event_id, event) = stream.sse().unwrap();
        assert_eq!((event["type"].as_str(), event["id"].as_str()), (Some(name.as_str()), event_id.as_deref()));
        assert_eq!((event["task"].as_str(), event["agent"].as_str()), (Some(id.as_str()), Some("a")), "{event:#}");
        assert_eq!(
            (event["lane"].as_str(), event["kind"].as_str(), event["priority"].as_str()),
            (Some("main"), Some("noop"), Some("high"))
        );
        names.push(name);
    }
    assert_eq!(names, ["task.created", "task.queued", "task.started", "task.completed"]);
}

/// Design 12: with Last-Event-ID the stream goes on behind that event, without gap or repeat, also after a restart.
#[test]
fn a_stream_resumes_behind_the_last_event_seen() {
    let mut scene = Scene::new();
    let (batch, _) = scene.batch(json!({"tasks": vec![json!({"kind": "noop"}); 5]}));
    let all = scene.events_until(|event| is(event, "batch.finished", &batch) && event.get("task").is_none());
    scene.restart();
    for at in [0, 3, all.len() - 2] {
        let last = text(&all[at]["id"]);
        for headers in [&[("last-event-id", last.as_str())][..], &[]] {
            let query = if headers.is_empty() {
                format!("?after={last}&types=task.*,batch.*")
            } else {
                "?types=task.*,batch.*".into()
            };
            let mut stream = Stream::open(&scene, &format!("/v1/events{query}"), headers);
            let rest: Vec<Value> = (at + 1..all.len()).map(|_| stream.next_event()).collect();
            assert_eq!(rest, all[at + 1..]);
        }
    }
}

/// Design 12: ids grow in commit order.
#[test]
fn event_ids_grow() {
    let scene = Scene::new();
    let (batch, _) = scene.batch(json!({"tasks": vec![json!({"kind": "noop"}); 20]}));
    let all = scene.events_until(|event| is(event, "batch.finished", &batch) && event.get("task").is_none());
    let places: Vec<(u64, u64)> = all
        .iter()
        .map(|event| {
            let id = text(&event["id"]);
            let (seq, index) = id.split_once('-').unwrap();
            (seq.parse().unwrap(), index.parse().unwrap())
        })
        .collect();
    assert!(places.is_sorted() && places.windows(2).all(|pair| pair[0] != pair[1]), "{places:?}");
}

/// The issue: filters choose by type, agent, lane, task and batch.
#[test]
fn filters_choose_events() {
    let scene = Scene::new();
    let a = scene.submit(json!({"kind": "noop", "agent": "a"}));
    let b = scene.submit(json!({"kind": "noop", "agent": "b", "lane": "cron", "payload": {"fail": "permanent"}}));
    [&a, &b].into_iter().for_each(|id| drop(scene.end(id)));
    let (batch, members) = scene.batch(json!({"tasks": [{"kind": "noop", "agent": "c"}]}));
    drop(scene.end(&members[0]));
    let first = |query: &str| scene.events(query).next_event();
    assert_eq!(first("agent=b")["task"], b.as_str());
    assert_eq!(first("lane=cron")["task"], b.as_str());
    assert_eq!(first(&format!("task={b}"))["task"], b.as_str());
    assert_eq!(first(&format!("batch={batch}"))["task"], members[0].as_str());
    assert_eq!(first("types=task.failed")["task"], b.as_str());
    assert_eq!(first("types=task.failed,batch.*")["task"], b.as_str());
    let finished = first("types=batch.finished");
    assert_eq!((finished["batch"].as_str(), &finished["data"]["completed"]), (Some(batch.as_str()), &json!(1)));
    assert_eq!(first("types=task.completed&agent=c")["task"], members[0].as_str());
}

/// Design 12: an id that this store cannot have given gets a `reset`; one that is none is refused.
#[test]
fn an_id_of_another_store_gets_a_reset() {
    let scene = Scene::new();
    let mut stream = Stream::open(&scene, "/v1/events", &[("last-event-id", "999999-0")]);
    assert_eq!(stream.sse().unwrap().0, "reset");
    let id = scene.noop(json!({}));
    assert!(is(&stream.next_event(), "task.created", &id));
    let refused = scene.try_request("GET", "/v1/events", &[("last-event-id", "x")], "").unwrap();
    assert_eq!(problem(400, &refused)["field"], "Last-Event-ID");
}

/// Design 12: a process that reports progress is seen as it goes, on the stream and on the task.
#[test]
fn progress_is_seen_as_it_goes() {
    let scene = Scene::new();
    let mut stream = Stream::open(&scene, "/v1/events?types=task.progress", &[]);
    let shell = "echo '{\"progress\": 0.5, \"message\": \"half\"}' >> $RUNYARD_REPORT; sleep 600";
    let id = scene.submit(json!({"kind": "process", "payload": {"shell": shell}}));
    let event = stream.next_event();
    assert_eq!(
        (event["task"].as_str(), event["data"]["fraction"].as_f64()),
        (Some(id.as_str()), Some(0.5)),
        "{event:#}"
    );
    assert_eq!(scene.task(&id)["progress"]["message"], "half");
    scene.cancel(&id);
    scene.end(&id);
}

/// The issue: a rejection, a cancel and a retry are events too.
#[test]
fn rejections_cancels_and_retries_are_events() {
    let scene = Scene::with("[limits]\nmaxQueuedPerAgent = 1\n");
    let delayed = scene.submit(json!({"kind": "noop", "delayMs": 600_000}));
    scene.problem(429, "POST", "/v1/tasks", json!({"kind": "noop"}));
    scene.cancel(&delayed);
    let retried = scene
        .submit(json!({"kind": "noop", "payload": {"fail": "timeout"}, "retry": {"maxRetries": 1, "backoffMs": 1}}));
    scene.end(&retried);
    assert_eq!(scene.events("types=task.rejected").next_event()["agent"], "default");
    assert!(is(&scene.events("types=task.cancelled").next_event(), "task.cancelled", &delayed));
    let retrying = scene.events("types=task.retrying").next_event();
    assert!(is(&retrying, "task.retrying", &retried));
    assert_eq!(retrying["class"], "timeout");
}
