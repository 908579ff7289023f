//! Sessions over HTTP: what a chat host sends, and what it gets back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use common::Yard;
use serde_json::{Value, json};

fn id(task: &Value) -> &str {
    task["id"].as_str().unwrap()
}

/// Work that goes on until it is stopped.
fn endless(session: Value) -> Value {
    json!({"kind": "noop", "session": session, "payload": {"sleepMs": 3_600_000}})
}

async fn started(yard: &Yard, session: Value) -> Value {
    let mut events = yard.events("?types=task.started", None).await;
    let task = yard.submit(endless(session)).await;
    while events.next_of("task.started").await.data["task"] != task["id"] {}
    task
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_one_session_run_in_their_order() {
    let yard = Yard::new().await;
    let first = started(&yard, json!("a/b c")).await;
    let second = yard.submit(json!({"kind": "noop", "session": "a/b c"})).await;
    assert_eq!((&first["session"], &second["state"]), (&json!("a/b c"), &json!("waiting")));
    let shown = yard.get("/v1/sessions/a%2Fb%20c").await.json();
    assert_eq!(shown["counts"], json!({"running": 1, "waiting": 1, "debouncing": 0}), "{shown}");
    assert_eq!((&shown["key"], &shown["messages"], &shown["settings"]), (&json!("a/b c"), &json!(2), &json!({})));
    assert_eq!(shown["effective"]["mode"], "queue");
    let listed = yard.get("/v1/tasks?session=a%2Fb%20c").await.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 2, "{listed}");
    let why = yard.get(&format!("/v1/tasks/{}/explain", id(&second))).await.json();
    assert!(why["summary"].as_str().unwrap().contains("session `a/b c`"), "{why}");
    let stopped = yard.request("POST", "/v1/sessions/a%2Fb%20c/stop").send().await;
    assert_eq!((stopped.status, &stopped.json()["stopped"]), (200, &first["id"]), "{stopped:?}");
    assert_eq!(yard.ended(&first["id"]).await["state"], "cancelled");
    assert_eq!(yard.ended(&second["id"]).await["state"], "completed", "without a further message");
    let none = yard.request("POST", "/v1/sessions/a%2Fb%20c/stop").send().await;
    assert_eq!(none.json(), json!({"stopped": null}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_becomes_one_task_and_each_sender_learns_which() {
    let yard = Yard::new().await;
    let message = |n: u32| {
        json!({"kind": "process", "session": {"key": "s", "debounceMs": 3_600_000}, "sentAt": "2026-01-01T00:00:00Z",
            "idempotencyKey": format!("k{n}"), "payload": {"argv": ["cat"], "message": format!("line {n}")}})
    };
    let carrier = yard.submit(message(0)).await;
    assert_eq!((&carrier["state"], carrier.get("merged")), (&json!("scheduled"), None));
    for n in 1..=2 {
        let reply = yard.post("/v1/tasks", message(n)).await;
        let answer = reply.json();
        assert_eq!((reply.status, &answer["id"], &answer["merged"]), (201, &carrier["id"], &json!(n)), "{reply:?}");
        assert_eq!(reply.header("location"), Some(format!("/v1/tasks/{}", id(&carrier)).as_str()));
    }
    let again = yard.post("/v1/tasks", message(2)).await;
    assert_eq!(again.header("idempotent-replayed"), Some("true"), "{again:?}");
    assert_eq!(again.json()["id"], carrier["id"]);
    let messages = yard.get(&format!("/v1/tasks/{}/messages", id(&carrier))).await.json();
    let messages = messages["items"].as_array().unwrap();
    assert_eq!(messages.len(), 2, "a repeat adds nothing");
    assert_eq!((&messages[1]["n"], &messages[1]["idempotencyKey"]), (&json!(2), &json!("k2")));
    assert_eq!(
        (&messages[1]["sentAt"], &messages[1]["payload"]["message"]),
        (&json!("2026-01-01T00:00:00.000Z"), &json!("line 2"))
    );
    let all = yard.request("POST", "/v1/sessions/s/stopall").send().await.json();
    assert_eq!((&all["running"], &all["waiting"], &all["debouncing"]), (&json!(0), &json!(0), &json!(1)), "{all}");
    let ended = yard.ended(&carrier["id"]).await;
    assert_eq!((&ended["state"], &ended["reason"]), (&json!("cancelled"), &json!("session_stopped")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_session_refuses_is_answered_and_recorded() {
    let yard = Yard::new().await;
    started(&yard, json!({"key": "r", "mode": "reject"})).await;
    let busy = yard.post("/v1/tasks", endless(json!("r"))).await;
    assert_eq!((busy.status, &busy.problem()["code"]), (409, &json!("session_busy")), "{busy:?}");
    let recorded = yard.get(&format!("/v1/tasks/{}", busy.problem()["taskId"].as_str().unwrap())).await.json();
    assert_eq!((&recorded["state"], recorded.get("payload")), (&json!("rejected"), None));

    started(&yard, json!({"key": "f", "drop": "new", "cap": 1})).await;
    yard.submit(endless(json!("f"))).await;
    let full = yard.post("/v1/tasks", endless(json!("f"))).await;
    let problem = full.problem();
    assert_eq!((full.status, &problem["code"], &problem["cap"]), (429, &json!("session_full"), &json!(1)), "{full:?}");
    assert!(full.header("retry-after").is_some() && problem["taskId"].is_string() && problem["waiting"].is_u64());

    yard.request("POST", "/v1/sessions/late/stopall").send().await;
    let mut message = endless(json!("late"));
    message["sentAt"] = json!("2001-01-01T00:00:00Z");
    let stale = yard.post("/v1/tasks", message).await;
    let problem = stale.problem();
    assert_eq!((stale.status, &problem["code"]), (409, &json!("stale_message")), "{stale:?}");
    assert_eq!(problem["cutoff"], yard.get("/v1/sessions/late").await.json()["cutoff"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_replaced_as_a_whole_and_checked() {
    let yard = Yard::with(json!({"sessions": {"cap": 4, "patterns": [{"match": "g:*", "maxConcurrent": 3}]}})).await;
    assert_eq!(yard.get("/v1/sessions/g:1").await.problem()["code"], "not_found");
    let put = |path: &'static str, body: Value| yard.request("PUT", path).json(&body).send();
    let made = put("/v1/sessions/g:1", json!({"mode": "collect", "debounceMs": 20})).await.json();
    assert_eq!(made["settings"], json!({"mode": "collect", "debounceMs": 20}));
    let effective =
        json!({"mode": "collect", "cap": 4, "drop": "old", "debounceMs": 20, "maxWaitMs": 100, "maxConcurrent": 3});
    assert_eq!(made["effective"], effective);
    let context = put("/v1/sessions/g:1/context", json!({"contextTokens": 60, "contextWindow": 100})).await.json();
    assert_eq!((&context["effective"]["maxConcurrent"], &context["context"]["contextTokens"]), (&json!(1), &json!(60)));
    let replaced = put("/v1/sessions/g:1", json!({"cap": 2})).await.json();
    assert_eq!((&replaced["settings"], &replaced["effective"]["mode"]), (&json!({"cap": 2}), &json!("queue")));
    let reset = yard.request("POST", "/v1/sessions/g:1/reset").send().await.json();
    let session = &reset["session"];
    assert_eq!((&session["generation"], session.get("context")), (&json!(1), None), "{reset}");
    assert_eq!(session["settings"], json!({"cap": 2}), "a reset keeps them");
    for (body, field) in [
        (json!({"cap": 0}), "cap"),
        (json!({"maxConcurrent": 0}), "maxConcurrent"),
        (json!({"mode": "fifo"}), "mode"),
        (json!({"key": "x"}), "key"),
    ] {
        let reply = put("/v1/sessions/g:1", body).await;
        assert_eq!((reply.status, &reply.problem()["field"]), (400, &json!(field)), "{reply:?}");
    }
    let context = put("/v1/sessions/g:1/context", json!({"contextTokens": 1, "contextWindow": 0})).await;
    assert_eq!((context.status, &context.problem()["field"]), (400, &json!("contextWindow")));
    let long = "k".repeat(257);
    for key in ["%0A", "a%00b", long.as_str()] {
        let reply = yard.get(&format!("/v1/sessions/{key}")).await;
        assert_eq!((reply.status, &reply.problem()["field"]), (400, &json!("key")), "{reply:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_listed_by_prefix_and_by_what_they_do() {
    let yard = Yard::new().await;
    for key in ["a:1", "a:2", "b:1"] {
        let task = yard.submit(json!({"kind": "noop", "session": key})).await;
        yard.ended(&task["id"]).await;
    }
    started(&yard, json!("b:2")).await;
    let keys = |page: &Value| -> Vec<String> {
        page["items"].as_array().unwrap().iter().map(|item| item["key"].as_str().unwrap().to_owned()).collect()
    };
    let first = yard.get("/v1/sessions?limit=3").await.json();
    assert_eq!(keys(&first), ["b:2", "b:1", "a:2"], "the latest created first");
    let cursor = first["nextCursor"].as_str().unwrap();
    assert_eq!(keys(&yard.get(&format!("/v1/sessions?limit=3&cursor={cursor}")).await.json()), ["a:1"]);
    assert_eq!(keys(&yard.get("/v1/sessions?prefix=a:").await.json()), ["a:2", "a:1"]);
    assert_eq!(keys(&yard.get("/v1/sessions?busy=true").await.json()), ["b:2"]);
    let cancelled = yard.post("/v1/tasks/cancel", json!({"session": "b:2"})).await.json();
    assert_eq!(cancelled["matched"], 1, "{cancelled}");
    for query in ["limit=0", "cursor=x", "busy=maybe", "pre=a"] {
        assert_eq!(yard.get(&format!("/v1/sessions?{query}")).await.status, 400, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupting_message_starts_when_the_old_run_is_dead() {
    let yard = Yard::new().await;
    let mut events = yard.events("?session=i", None).await;
    let old = started(&yard, json!({"key": "i", "mode": "interrupt"})).await;
    let new = yard.submit(json!({"kind": "noop", "session": "i"})).await;
    assert_eq!(yard.ended(&new["id"]).await["state"], "completed");
    let mut seen = Vec::new();
    loop {
        let event = events.next().await.unwrap();
        assert_eq!(event.data["session"], "i", "{event:?}");
        let whose = if event.data["task"] == old["id"] { "old" } else { "new" };
        seen.push(format!("{whose} {}", event.event));
        if event.event == "task.completed" {
            break;
        }
    }
    let at = |wanted: &str| seen.iter().position(|event| event == wanted);
    assert!(at("old task.cancelled").unwrap() < at("new task.started").unwrap(), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn text_reaches_a_process_that_reads_it() {
    let yard = Yard::new().await;
    let payload = json!({"shell": "while read line; do echo got $line; [ $line = end ] && exit 0; done", "input": true, "message": "hello"});
    let mut events = yard.events("?types=task.started", None).await;
    let task = yard.submit(json!({"kind": "process", "payload": payload, "session": "chat"})).await;
    while events.next_of("task.started").await.data["task"] != task["id"] {}
    let path = format!("/v1/tasks/{}/input", id(&task));
    let reply = yard.request("POST", &path).header("Idempotency-Key", "k").json(&json!({"text": "end"})).send().await;
    let answer = reply.json();
    assert_eq!((reply.status, &answer["steers"]), (202, &task["id"]), "{reply:?}");
    assert_eq!(reply.header("location"), Some(format!("/v1/tasks/{}", id(&answer)).as_str()));
    let message = yard.ended(&answer["id"]).await;
    assert_eq!((&message["state"], &message["attempts"]), (&json!("completed"), &json!(0)), "{message}");
    assert_eq!((&message["steeredInto"], &message["session"]), (&task["id"], &json!("chat")));
    assert_eq!(yard.ended(&task["id"]).await["state"], "completed");
    let logs = yard.get(&format!("/v1/tasks/{}/logs", id(&task))).await;
    assert_eq!(logs.body.trim_end(), "got hello\ngot end", "{logs:?}");
    let late = yard.post(&path, json!({"text": "x"})).await;
    assert_eq!((late.status, &late.problem()["code"]), (409, &json!("already_terminal")));
}

#[tokio::test(flavor = "multi_thread")]
async fn text_for_a_task_that_takes_none_is_a_follow_up() {
    let yard = Yard::new().await;
    let mut events = yard.events("?types=task.started", None).await;
    let payload = json!({"shell": "read line; echo said $line; [ $line = second ] || sleep 3600", "message": "first"});
    let task = yard.submit(json!({"kind": "process", "payload": payload, "retry": {"maxRetries": 0}})).await;
    while events.next_of("task.started").await.data["task"] != task["id"] {}
    let path = format!("/v1/tasks/{}/input", id(&task));
    let send =
        |text: &str| yard.request("POST", &path).header("Idempotency-Key", "k").json(&json!({"text": text})).send();
    let reply = send("second").await;
    let answer = reply.json();
    let again = send("second").await;
    assert_eq!((&again.json()["id"], again.header("idempotent-replayed")), (&answer["id"], Some("true")), "{again:?}");
    assert_eq!(send("third").await.problem()["code"], "idempotency_key_reused");
    assert_eq!((reply.status, answer.get("steers"), &answer["state"]), (202, None, &json!("waiting")), "{reply:?}");
    yard.request("DELETE", &format!("/v1/tasks/{}", id(&task))).send().await;
    assert_eq!(yard.ended(&task["id"]).await["state"], "cancelled");
    let follow_up = yard.ended(&answer["id"]).await;
    assert_eq!((&follow_up["state"], &follow_up["payload"]["message"]), (&json!("completed"), &json!("second")));
    assert_eq!(yard.get(&format!("/v1/tasks/{}/logs", id(&answer))).await.body.trim_end(), "said second");
    let unknown = yard.post("/v1/tasks/01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11/input", json!({"text": "x"})).await;
    assert_eq!(unknown.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_may_send_text_only_where_it_may_submit() {
    let yard = Yard::new().await;
    let task = yard
        .submit(json!({"kind": "process", "payload": {"argv": ["sleep", "3600"], "input": true}, "agent": "a"}))
        .await;
    let key = |body: Value| {
        let yard = &yard;
        async move { yard.post("/v1/keys", body).await.json()["key"].as_str().unwrap().to_owned() }
    };
    let path = format!("/v1/tasks/{}/input", id(&task));
    let send = |key: String, method: &'static str, path: String| {
        common::Request::new(&yard.addr, method, &path)
            .header("Authorization", &format!("Bearer {key}"))
            .json(&json!({"text": "x"}))
            .send()
    };
    let submit = key(json!({"name": "s", "scopes": ["submit"]})).await;
    assert_eq!(send(submit, "POST", path.clone()).await.problem()["code"], "missing_scope");
    let foreign = key(json!({"name": "f", "scopes": ["exec"], "agents": ["b"]})).await;
    assert_eq!(send(foreign.clone(), "POST", path.clone()).await.problem()["code"], "foreign_agent");
    assert_eq!(send(foreign, "POST", "/v1/sessions/x/stopall".into()).await.problem()["code"], "foreign_session");
    let read = key(json!({"name": "r", "scopes": ["read"]})).await;
    assert_eq!(send(read.clone(), "POST", "/v1/sessions/x/stopall".into()).await.problem()["code"], "missing_scope");
    assert_eq!(send(read, "GET", "/v1/sessions".into()).await.status, 200);
    let exec = key(json!({"name": "e", "scopes": ["exec"], "agents": ["a"]})).await;
    assert_eq!(send(exec, "POST", path).await.status, 202);
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_refuses_every_way_in_with_retry_after() {
    let yard = Yard::new().await;
    let done = yard.submit(json!({"kind": "noop"})).await;
    yard.ended(&done["id"]).await;
    let running = started(&yard, json!("s")).await;
    yard.post("/v1/drain", json!({"on": true})).await;
    let noop = json!({"kind": "noop"});
    for (path, body) in [
        ("/v1/tasks".to_owned(), noop.clone()),
        ("/v1/tasks".to_owned(), json!({"kind": "noop", "session": "s"})),
        ("/v1/batches".to_owned(), json!({"tasks": [noop]})),
        ("/v1/batches".to_owned(), json!({"mode": "partial", "tasks": [noop]})),
        (format!("/v1/tasks/{}/retry", id(&done)), json!({})),
        (format!("/v1/tasks/{}/input", id(&running)), json!({"text": "x"})),
    ] {
        let reply = yard.post(&path, body).await;
        assert_eq!((reply.status, &reply.problem()["code"]), (503, &json!("draining")), "{path}");
        assert!(reply.header("retry-after").is_some(), "{path}");
    }
    assert_eq!(yard.get("/v1/drain").await.json()["running"], 1, "what runs goes on");
    let all = yard.request("POST", "/v1/sessions/s/stopall").send().await;
    assert_eq!((all.status, &all.json()["running"]), (200, &json!(1)), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cutoff_and_the_order_survive_a_restart() {
    let yard = Yard::with(json!({"lanes": {"main": 0}})).await;
    yard.request("POST", "/v1/sessions/s/stopall").send().await;
    let first = yard.submit(json!({"kind": "noop", "session": "s"})).await;
    let second = yard.submit(json!({"kind": "noop", "session": "s"})).await;
    let before = yard.get("/v1/sessions/s").await.json();
    let yard = yard.restart(json!({"lanes": {"main": 1}})).await;
    assert_eq!(yard.get("/v1/sessions/s").await.json()["cutoff"], before["cutoff"]);
    let (first, second) = (yard.ended(&first["id"]).await, yard.ended(&second["id"]).await);
    assert!(first["finishedAt"].as_str() <= second["startedAt"].as_str(), "{first} {second}");
    let stale = json!({"kind": "noop", "session": "s", "sentAt": "2001-01-01T00:00:00Z"});
    assert_eq!(yard.post("/v1/tasks", stale).await.problem()["code"], "stale_message");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_collected_runs_once_and_is_retried_whole() {
    let yard = Yard::new().await;
    let say = |text: &str| {
        let report = r#"cat; printf '{"usage":{"contextTokens":70,"contextWindow":100}}\n' >> "$RUNYARD_REPORT""#;
        json!({"kind": "process", "session": {"key": "c", "mode": "collect", "maxConcurrent": 1},
            "payload": {"shell": report, "message": text}})
    };
    let mut events = yard.events("?session=c", None).await;
    let busy = json!({"kind": "process", "session": "c", "payload": {"argv": ["sleep", "3600"]}});
    let first = yard.submit(busy).await;
    events.next_of("task.started").await;
    let carrier = yard.submit(say("one")).await;
    let merged = yard.submit(say("two")).await;
    assert_eq!((&merged["id"], &merged["merged"]), (&carrier["id"], &json!(1)));
    assert_eq!(events.next_of("task.merged").await.data["task"], carrier["id"]);
    yard.request("POST", "/v1/sessions/c/stop").send().await;
    assert_eq!(yard.ended(&first["id"]).await["state"], "cancelled");
    let ended = yard.ended(&carrier["id"]).await;
    assert_eq!((&ended["state"], &ended["merged"]), (&json!("completed"), &json!(1)), "{ended}");
    assert_eq!(ended["usage"], json!({"contextTokens": 70, "contextWindow": 100}));
    assert_eq!(yard.get(&format!("/v1/tasks/{}/logs", id(&carrier))).await.body.trim_end(), "one\ntwo");
    let session = yard.get("/v1/sessions/c").await.json();
    assert_eq!(session["context"], json!({"contextTokens": 70, "contextWindow": 100}));
    let copy = yard.request("POST", &format!("/v1/tasks/{}/retry", id(&carrier))).send().await.json();
    assert_eq!((&copy["session"], &copy["payload"]["message"]), (&json!("c"), &json!("one\ntwo")), "{copy}");
    yard.ended(&copy["id"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_steering_message_is_read_by_the_running_task() {
    let yard = Yard::new().await;
    let mut events = yard.events("?types=task.started&session=st", None).await;
    let task = json!({"kind": "process", "session": {"key": "st", "mode": "steer"},
        "payload": {"shell": "read line; echo got $line", "input": true}});
    let running = yard.submit(task.clone()).await;
    events.next_of("task.started").await;
    let mut message = task;
    message["payload"]["message"] = json!("turn left");
    let steering = yard.submit(message).await;
    assert_eq!(steering["steeredInto"], running["id"], "{steering}");
    let ended = yard.ended(&steering["id"]).await;
    assert_eq!((&ended["state"], &ended["attempts"]), (&json!("completed"), &json!(0)), "{ended}");
    assert_eq!(yard.ended(&running["id"]).await["state"], "completed");
    assert_eq!(yard.get(&format!("/v1/tasks/{}/logs", id(&running))).await.body.trim_end(), "got turn left");
}
