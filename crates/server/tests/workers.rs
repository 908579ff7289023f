//! The worker protocol, spoken by hand.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use common::hand::{Hand, done, job, lease, offer, with};
use common::raw::{metric, until};
use common::{Request, Yard};
use serde_json::{Value, json};

fn id_of(task: &Value) -> &str {
    task["id"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_token_registers_workers_and_opens_nothing_else() {
    let yard = Yard::new().await;
    let token = yard.post("/v1/keys", json!({"name": "join", "scopes": ["worker"]})).await.json();
    let token = token["key"].as_str().unwrap();
    for (method, path) in [("GET", "/v1/workers"), ("GET", "/v1/tasks"), ("POST", "/v1/tasks"), ("GET", "/v1/keys")] {
        let reply = Request::new(&yard.addr, method, path).header("X-API-Key", token).json(&json!({})).send().await;
        assert_eq!(reply.problem()["code"], "missing_scope", "{method} {path}");
    }
    let hand = Hand::join(&yard, offer("w")).await;
    assert!(hand.key.starts_with("ryw_"));
    let (other, own) = (Hand::join(&yard, offer("other")).await, format!("Bearer {}", hand.key));
    let at = |path: String| Request::new(&yard.addr, "GET", &path).header("Authorization", &own);
    assert_eq!(at(format!("/v1/workers/{}", hand.id)).send().await.status, 200);
    for path in [format!("/v1/workers/{}", other.id), "/v1/workers".into(), "/v1/tasks".into(), "/metrics".into()] {
        assert_eq!(at(path.clone()).send().await.problem()["code"], "foreign_worker", "{path}");
    }
    let stolen = Hand { id: other.id.clone(), session: other.session.clone(), ..hand };
    assert_eq!(stolen.say(json!({})).await.problem()["code"], "foreign_worker");
    let guessed = Hand { key: "ryw_guess".into(), ..other };
    assert_eq!(guessed.say(json!({})).await.problem()["code"], "unknown_key");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_registers_again_fences_the_one_before() {
    let yard = Yard::new().await;
    let submitted = yard.submit(job()).await;
    let mut first = Hand::join(&yard, offer("w")).await;
    let start = first.take().await;
    let reply = first.call("POST", "/register", with(offer("renamed"), json!({"maxParallel": 3}))).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.json().get("key"), None);
    let mut second = Hand { session: reply.json()["session"].clone(), held: first.held.clone(), ..first };
    let first = Hand {
        session: json!("1"),
        addr: yard.addr.clone(),
        id: second.id.clone(),
        key: second.key.clone(),
        held: Vec::new(),
    };
    assert_eq!(first.say(json!({})).await.problem()["code"], "fenced");
    second.sync(json!({})).await;
    let view = second.view(&yard).await;
    assert_eq!(
        (&view["name"], &view["maxParallel"], &view["running"]),
        (&json!("renamed"), &json!(3), &json!([start["task"]]))
    );
    let late = first.say(json!({"done": [done(&start, json!({"state": "completed"}))]})).await;
    assert_eq!((late.status, &late.problem()["code"]), (409, &json!("fenced")));
    second.end(&start, json!({"state": "completed"})).await;
    assert_eq!(yard.ended(&submitted["id"]).await["attempts"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_report_is_refused_and_penalises_nobody() {
    let yard = Yard::new().await;
    let submitted = yard.submit(job()).await;
    let mut hand = Hand::join(&yard, offer("w")).await;
    let start = hand.take().await;
    let broken = json!({"state": "failed", "class": "lost", "message": "gone"});
    hand.end(&start, broken).await;
    let again = hand.take().await;
    assert_eq!(again["attempt"], 2);
    let fault = json!({"state": "failed", "class": "task", "message": "old", "fault": "worker"});
    let answer = hand.sync(json!({"done": [done(&start, fault)], "started": [lease(&start)]})).await;
    let refused = json!({"task": start["task"], "attempt": 1, "status": 409, "code": "stale_lease"});
    assert!(answer["refused"].as_array().unwrap().contains(&refused), "{answer}");
    assert_eq!(hand.view(&yard).await["status"], "busy", "it is not cooled for that");
    let forged = with(lease(&again), json!({"token": "1"}));
    let answer = hand.sync(json!({"done": [with(forged, json!({"outcome": {"state": "completed"}}))]})).await;
    assert_eq!(answer["refused"][0]["attempt"], 2, "{answer}");
    hand.end(&again, json!({"state": "completed"})).await;
    assert_eq!(yard.ended(&submitted["id"]).await["state"], "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_is_sent_again_until_it_is_known() {
    let yard = Yard::new().await;
    yard.submit(job()).await;
    let mut hand = Hand::join(&yard, offer("w")).await;
    let start = hand.fetch().await;
    assert_eq!(hand.fetch().await, start, "the answer may have got lost");
    hand.held.push(lease(&start));
    assert_eq!(hand.sync(json!({})).await["start"], json!([]));
    yard.post(&format!("/v1/tasks/{}/cancel", start["task"].as_str().unwrap()), json!({})).await;
    for _ in 0..2 {
        assert_eq!(hand.sync(json!({})).await["stop"].as_array().unwrap().len(), 1);
    }
    hand.end(&start, json!({"state": "stopped"})).await;
    assert_eq!(hand.sync(json!({})).await["stop"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_sync_answers_the_one_that_waits() {
    let yard = Yard::new().await;
    let hand = Hand::join(&yard, offer("w")).await;
    hand.sync(json!({})).await;
    let older = Hand {
        addr: hand.addr.clone(),
        id: hand.id.clone(),
        key: hand.key.clone(),
        session: hand.session.clone(),
        held: Vec::new(),
    };
    let waiting = tokio::spawn(async move { older.sync(json!({"waitMs": 10_000})).await });
    let mut answered = waiting;
    // The older may come after the newer once or twice; it waits in the end, and is answered by the next.
    let answer = loop {
        hand.sync(json!({})).await;
        if let Ok(answer) = tokio::time::timeout(std::time::Duration::from_millis(50), &mut answered).await {
            break answer.unwrap();
        }
    };
    assert_eq!(answer["start"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn output_and_progress_are_seen_while_it_runs_and_stay() {
    let yard = Yard::new().await;
    let submitted = yard.submit(job()).await;
    let mut hand = Hand::join(&yard, offer("w")).await;
    let start = hand.take().await;
    let logs = format!("/v1/tasks/{}/logs?follow=true", id_of(&submitted));
    let mut lines = yard.request("GET", &logs).header("Accept", "text/event-stream").open().await;
    let mut events = yard.events("?types=task.progress", None).await;
    let first = "2026-11-16T10:00:00.000Z O one\n";
    let second = "2026-11-16T10:00:01.000Z E two\n";
    let chunk =
        |offset: usize, text: &str| with(lease(&start), json!({"offset": offset, "data": STANDARD.encode(text)}));
    let answer = hand.sync(json!({"logs": [chunk(0, first)]})).await;
    assert_eq!(answer["logged"], json!([{"task": start["task"], "attempt": 1, "offset": first.len()}]));
    assert_eq!(lines.next_of("log").await.data["text"], "one");
    let answer = hand.sync(json!({"logs": [chunk(first.len() + 5, "gap")]})).await;
    assert_eq!(answer["logged"][0]["offset"], first.len(), "a gap is not taken");
    hand.sync(json!({"logs": [chunk(0, &format!("{first}{second}"))]})).await;
    let line = lines.next_of("log").await.data;
    assert_eq!((&line["text"], &line["stream"]), (&json!("two"), &json!("stderr")));
    hand.sync(json!({"progress": [with(lease(&start), json!({"fraction": 0.5, "message": "half"}))]})).await;
    assert_eq!(events.next_of("task.progress").await.data["task"], start["task"]);
    let view = yard.get(&format!("/v1/tasks/{}", id_of(&submitted))).await.json();
    assert_eq!(view["progress"], json!({"fraction": 0.5, "message": "half"}));
    // The last of it comes with the end.
    let last = "2026-11-16T10:00:02.000Z O three\n";
    let at = first.len() + second.len();
    hand.sync(json!({"logs": [chunk(at, last)], "done": [done(&start, json!({"state": "completed"}))]})).await;
    assert_eq!(lines.next_of("log").await.data["text"], "three");
    assert!(lines.next().await.is_none(), "it ends with the task");
    let text = yard.get(&format!("/v1/tasks/{}/logs", id_of(&submitted))).await.body;
    assert_eq!(text, "one\ntwo\nthree\n");
    let foreign = Hand::join(&yard, offer("foreign")).await;
    foreign.sync(json!({"logs": [chunk(text.len(), "2026-11-16T10:00:03.000Z O forged\n")]})).await;
    assert_eq!(yard.get(&format!("/v1/tasks/{}/logs", id_of(&submitted))).await.body, "one\ntwo\nthree\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_carries_the_secrets_it_names_and_no_other() {
    let yard = Yard::new().await;
    for name in ["wanted", "other"] {
        yard.request("PUT", &format!("/v1/secrets/{name}")).json(&json!({"value": "canary-value"})).send().await;
    }
    let payload = json!({"argv": ["true"], "env": {"TOKEN": "Bearer secret://wanted"}});
    let task = json!({"kind": "process", "payload": payload, "place": {"require": {"zone": "a"}}});
    yard.submit(task.clone()).await;
    let mut hand = Hand::join(&yard, with(offer("w"), json!({"kinds": ["process"]}))).await;
    let start = hand.take().await;
    assert_eq!((&start["payload"], &start["secrets"]), (&payload, &json!({"wanted": "canary-value"})));
    let doomed = yard.submit(task).await;
    let ended = async {
        yard.request("DELETE", "/v1/secrets/wanted").send().await;
        assert_eq!(hand.sync(json!({})).await["start"], json!([]));
        yard.ended(&doomed["id"]).await
    };
    let ended = ended.await;
    assert_eq!((&ended["state"], &ended["error"]["class"]), (&json!("failed"), &json!("permanent")), "{ended}");
    assert_eq!(hand.view(&yard).await["status"], "busy", "that is not the worker's fault");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_worker_ends_what_it_has_and_gets_nothing_new() {
    let yard = Yard::new().await;
    let mut hand = Hand::join(&yard, offer("w")).await;
    yard.submit(job()).await;
    let start = hand.take().await;
    assert_eq!(hand.call("POST", "/drain", Value::Null).await.json()["status"], "draining");
    let next = yard.submit(job()).await;
    assert_eq!(hand.end(&start, json!({"state": "completed"})).await["start"], json!([]));
    assert_eq!(hand.sync(json!({})).await["start"], json!([]));
    let page = yard.get("/v1/workers?status=draining").await.json();
    assert_eq!((&page["items"][0]["id"], &page["counts"]["draining"]), (&json!(hand.id), &json!(1)));
    let yard = yard.restart(json!({})).await;
    hand.addr = yard.addr.clone();
    hand.sync(json!({})).await;
    assert_eq!(hand.view(&yard).await["draining"], true, "a restart does not forget it");
    let path = format!("/v1/workers/{}/resume", hand.id);
    assert_eq!(yard.request("POST", &path).send().await.status, 200);
    assert_eq!(hand.fetch().await["task"], next["id"]);
    let audit = yard.get("/v1/audit").await.body;
    for action in ["worker.registered", "worker.drained", "worker.resumed"] {
        assert!(audit.contains(action), "{action} in {audit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_own_worker_is_shown_and_drained_like_any_other() {
    let yard = Yard::new().await;
    let page = yard.get("/v1/workers").await.json();
    let own = &page["items"][0];
    assert_eq!((&own["embedded"], &own["name"], &own["status"]), (&json!(true), &json!("embedded"), &json!("idle")));
    let path = |act: &str| format!("/v1/workers/{}{act}", own["id"].as_str().unwrap());
    assert_eq!(yard.request("POST", &path("/drain")).send().await.json()["status"], "draining");
    let waits = yard.submit(json!({"kind": "noop"})).await;
    assert_eq!(waits["state"], "queued");
    yard.request("POST", &path("/resume")).send().await;
    assert_eq!(yard.ended(&waits["id"]).await["state"], "completed");
    assert_eq!(yard.request("DELETE", &path("")).send().await.problem()["code"], "embedded_worker");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_own_worker_shows_how_its_machine_is() {
    let yard = Yard::with(json!({"workers": {"heartbeatMs": 100}})).await;
    let metrics = async || yard.get("/v1/workers").await.json()["items"][0]["metrics"].clone();
    until(async || metrics().await["cpuUsage"].is_number()).await;
    let metrics = metrics().await;
    for figure in ["ramFreeMb", "load1", "diskFreeMb", "diskTotalMb"] {
        assert!(metrics[figure].is_number(), "{figure} in {metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_that_was_overtaken_takes_no_lease_from_its_worker() {
    let yard = Yard::new().await;
    let [first, second] = [yard.submit(job()).await, yard.submit(job()).await];
    let mut hand = Hand::join(&yard, offer("w")).await;
    let early = json!({"seq": 1, "held": []});
    assert_eq!(hand.sync(early.clone()).await["start"].as_array().unwrap().len(), 2);
    let starts = hand.sync(json!({"seq": 2})).await["start"].clone();
    hand.held = starts.as_array().unwrap().iter().map(lease).collect();
    hand.sync(json!({"seq": 3, "started": hand.held})).await;
    // As after a restart of the scheduler, what it presents next is what it has.
    hand.sync(json!({"seq": 4, "leaving": true})).await;
    let reply = hand.say(early.clone()).await;
    assert_eq!(reply.problem()["code"], "recovering", "{reply:?}");
    hand.sync(json!({"seq": 5})).await;
    let completed = done(&starts[0], json!({"state": "completed"}));
    let late = hand.sync(with(early, json!({"seq": 3, "done": [completed], "unhealthy": "as it was then"}))).await;
    assert_eq!((&late["start"], &late["refused"]), (&json!([]), &json!([])), "its reports are taken");
    assert_eq!(yard.ended(&starts[0]["task"]).await["state"], "completed");
    assert_eq!(hand.view(&yard).await["status"], "busy");
    let [first, second] = [first, second].map(|task| task["id"].clone());
    for id in [first, second].iter().filter(|id| **id != starts[0]["task"]) {
        let task = yard.get(&format!("/v1/tasks/{}", id.as_str().unwrap())).await.json();
        assert_eq!((&task["state"], &task["attempts"]), (&json!("running"), &json!(1)), "{task}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rules_for_workers_follow_a_patch_of_the_configuration() {
    let yard = Yard::new().await;
    let patch = async |workers: serde_json::Value| {
        let reply = yard.request("PATCH", "/v1/config").json(&json!({"workers": workers})).send().await;
        assert_eq!(reply.status, 200, "{reply:?}");
    };
    let mut hand = Hand::join(&yard, offer("w")).await;
    assert_eq!(hand.sync(json!({})).await["heartbeatMs"], 10_000);
    patch(json!({"heartbeatMs": 250, "cooldownMs": 3_600_000, "assignTimeoutMs": 100})).await;
    assert_eq!(hand.sync(json!({})).await["heartbeatMs"], 250);
    let task = yard.submit(job()).await;
    let lazy = hand.fetch().await;
    assert_eq!(lazy["attempt"], 1);
    // It is handed out and not begun: taken back after 100 ms, and then given again.
    until(async || !hand.sync(json!({})).await["stop"].as_array().unwrap().is_empty()).await;
    patch(json!({"assignTimeoutMs": 60_000})).await;
    hand.sync(json!({"done": [done(&lazy, json!({"state": "stopped"}))]})).await;
    let start = hand.take().await;
    assert_eq!((&start["task"], start["attempt"].as_u64() > Some(1)), (&task["id"], true));
    let broken = json!({"state": "failed", "class": "task", "message": "it broke", "fault": "worker"});
    hand.end(&start, broken).await;
    let view = hand.view(&yard).await;
    let wall = |text: &serde_json::Value| text.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let cools_s = wall(&view["cooldownUntil"]).duration_since(wall(&view["lastSeenAt"])).as_secs();
    assert!((3500..=3600).contains(&cools_s), "{view}");
    patch(json!({"offlineAfterMs": 500})).await;
    until(async || hand.view(&yard).await["status"] == "offline").await;
    let light = Hand::join(&yard, with(offer("light"), json!({"cpus": 2, "ramMb": 65_536}))).await;
    let heavy = Hand::join(&yard, with(offer("heavy"), json!({"cpus": 64, "ramMb": 2048}))).await;
    patch(json!({"offlineAfterMs": 600_000, "weights": {"cpuUsage": 0, "reservedCpu": 0, "reservedRam": 1}})).await;
    light.sync(json!({})).await;
    heavy.sync(json!({})).await;
    let sized = with(job(), json!({"resources": {"cpu": 1, "ramMb": 512}}));
    for _ in 0..3 {
        yard.submit(sized.clone()).await;
    }
    // By cores the third would go to the other one: half of this one's are reserved, and hardly any of its memory.
    assert_eq!(light.view(&yard).await["reserved"]["cpu"], 2.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_removed_worker_had_goes_elsewhere() {
    let yard = Yard::new().await;
    let mut hand = Hand::join(&yard, offer("w")).await;
    let submitted = yard.submit(job()).await;
    hand.take().await;
    let mut events = yard.events("?types=worker.removed", None).await;
    assert_eq!(yard.request("DELETE", &format!("/v1/workers/{}", hand.id)).send().await.json()["status"], "offline");
    assert_eq!(events.next_of("worker.removed").await.data["data"]["worker"], hand.id.as_str());
    let mut other = Hand::join(&yard, offer("other")).await;
    let start = other.take().await;
    assert_eq!((&start["task"], &start["attempt"]), (&submitted["id"], &json!(2)));
    other.end(&start, json!({"state": "completed"})).await;
    assert_eq!(yard.ended(&submitted["id"]).await["state"], "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_says_goodbye_gets_nothing_and_keeps_what_it_presents_again() {
    let yard = Yard::new().await;
    let mut hand = Hand::join(&yard, with(offer("w"), json!({"keeps": ["job"]}))).await;
    let submitted = yard.submit(job()).await;
    let start = hand.take().await;
    hand.sync(json!({"leaving": true})).await;
    assert_eq!(hand.view(&yard).await["status"], "offline");
    let reply = hand.call("POST", "/register", offer("w")).await.json();
    hand.session = reply["session"].clone();
    assert_eq!(hand.sync(json!({})).await["revoked"], json!([]));
    hand.end(&start, json!({"state": "completed"})).await;
    assert_eq!(yard.ended(&submitted["id"]).await["attempts"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_reaches_work_on_another_machine() {
    let yard = Yard::new().await;
    let mut hand = Hand::join(&yard, with(offer("w"), json!({"kinds": ["process"]}))).await;
    let place = json!({"require": {"zone": "a"}});
    let payload = json!({"argv": ["cat"], "input": true});
    let submitted = yard.submit(json!({"kind": "process", "payload": payload, "place": place})).await;
    let start = hand.take().await;
    let path = format!("/v1/tasks/{}/input", id_of(&submitted));
    let reply = yard.post(&path, json!({"text": "go on"})).await;
    assert!(reply.status < 300, "{reply:?}");
    for _ in 0..2 {
        let answer = hand.sync(json!({"waitMs": 5000})).await;
        assert_eq!((&answer["input"][0]["text"], &answer["input"][0]["task"]), (&json!("go on"), &start["task"]));
    }
    let message = hand.sync(json!({})).await["input"][0]["message"].clone();
    let taken = with(lease(&start), json!({ "message": message }));
    assert_eq!(hand.sync(json!({"inputs": [taken]})).await["input"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_travel_through_the_server_for_those_who_hold_the_task() {
    let yard = Yard::new().await;
    let put = yard.request("PUT", "/v1/uploads").body(b"hello".to_vec()).send().await.json();
    let other = yard.request("PUT", "/v1/uploads").body(b"other".to_vec()).send().await.json();
    let files = json!([{"path": "in.txt", "upload": put["id"]}]);
    let place = json!({"require": {"zone": "a"}});
    let payload = json!({"shell": "true", "files": files});
    let submitted = yard.submit(json!({"kind": "process", "payload": payload, "place": place})).await;
    let mut hand = Hand::join(&yard, with(offer("w"), json!({"kinds": ["process"]}))).await;
    let start = hand.take().await;
    let lease_query = |token: &Value| format!("attempt=1&token={}", token.as_str().unwrap());
    let upload = |id: &Value, token: &Value| {
        format!("/uploads/{}?task={}&{}", id.as_str().unwrap(), id_of(&submitted), lease_query(token))
    };
    let got = hand.call("GET", &upload(&put["id"], &start["token"]), Value::Null).await;
    assert_eq!((got.status, got.body.as_str()), (200, "hello"));
    let foreign = hand.call("GET", &upload(&other["id"], &start["token"]), Value::Null).await;
    assert_eq!(foreign.problem()["code"], "not_found", "its task does not name it");
    let stale = hand.call("GET", &upload(&put["id"], &json!("1")), Value::Null).await;
    assert_eq!((stale.status, &stale.problem()["code"]), (409, &json!("stale_lease")));
    let artifact = async |path: &str, token: &Value, body: &[u8]| {
        let path =
            format!("/v1/workers/{}/tasks/{}/artifacts/{path}?{}", hand.id, id_of(&submitted), lease_query(token));
        let request = Request::new(&yard.addr, "PUT", &path).header("Authorization", &format!("Bearer {}", hand.key));
        request.body(body.to_vec()).send().await
    };
    let kept = artifact("out/a.txt", &start["token"], b"made").await;
    assert_eq!((kept.status, &kept.json()["bytes"]), (201, &json!(4)));
    assert_eq!(artifact("out/a.txt", &json!("1"), b"forged").await.problem()["code"], "stale_lease");
    assert_eq!(artifact("..%2Fx", &start["token"], b"x").await.problem()["field"], "path");
    let exit = json!({"exitCode": 0, "cpuSeconds": 0.5, "peakRssBytes": 4096, "wallMs": 7});
    hand.end(&start, json!({"state": "completed", "exit": exit})).await;
    let ended = yard.ended(&submitted["id"]).await;
    assert_eq!((&ended["exit"]["exitCode"], &ended["exit"]["wallMs"]), (&json!(0), &json!(7)), "{ended}");
    let listed = yard.get(&format!("/v1/tasks/{}/artifacts", id_of(&submitted))).await.json();
    assert_eq!(listed["items"][0]["path"], "out/a.txt", "{listed}");
    let read = yard.get(&format!("/v1/tasks/{}/artifacts/out/a.txt", id_of(&submitted))).await;
    assert_eq!(read.body, "made");
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_listed_by_what_is_asked_and_counted_as_series() {
    let yard = Yard::new().await;
    let mut hands = Vec::new();
    for (name, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
        let hand = Hand::join(&yard, with(offer(name), json!({"labels": {"zone": zone}}))).await;
        let metrics =
            json!({"cpuUsage": 12.5, "ramFreeMb": 4096, "load1": 0.7, "diskFreeMb": 9, "gpus": [{"name": "g"}]});
        hand.sync(json!({ "metrics": metrics })).await;
        hands.push(hand);
    }
    let names = async |query: &str| {
        let page = yard.get(&format!("/v1/workers{query}")).await.json();
        page["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names("?label=zone%3Da").await, ["a1", "a2"]);
    assert_eq!(names("?kind=noop").await, ["embedded"]);
    assert_eq!(names("?status=offline").await, Vec::<String>::new());
    assert_eq!(yard.get("/v1/workers?label=zone").await.problem()["field"], "label");
    let first = yard.get("/v1/workers?limit=2&kind=job").await.json();
    let rest = format!("/v1/workers?kind=job&cursor={}", first["nextCursor"].as_str().unwrap());
    assert_eq!(yard.get(&rest).await.json()["items"].as_array().unwrap().len(), 1);
    let view = hands[0].view(&yard).await;
    assert_eq!((&view["metrics"]["load1"], &view["metrics"]["cpuUsage"]), (&json!(0.7), &json!(12.5)), "{view}");
    assert_eq!(view["metrics"]["gpus"], json!([{"name": "g"}]));
    assert_eq!(metric(&yard, "runyard_workers{status=\"idle\"}").await, 4);
    let series = format!("runyard_worker_ram_free_bytes{{worker=\"a1\",id=\"{}\"}} 4294967296", hands[0].id);
    let text = yard.get("/metrics").await.body;
    assert!(text.contains(&series), "{text}");
    hands[0].sync(json!({"unhealthy": "disk full"})).await;
    let view = hands[0].view(&yard).await;
    assert_eq!((&view["status"], &view["reason"]), (&json!("unhealthy"), &json!("disk full")));
    until(async || metric(&yard, "runyard_workers{status=\"unhealthy\"}").await == 1).await;
}
