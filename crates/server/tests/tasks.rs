//! The way of a task through the API.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use common::Yard;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_task_answers_with_all_it_was_submitted_with_and_runs() {
    let yard = Yard::new().await;
    let body = json!({
        "kind": "process", "payload": {"shell": "echo out; echo err >&2"}, "agent": "bot", "lane": "cron",
        "priority": "high", "rank": -2, "timeoutMs": 9000, "retry": {"maxRetries": 1}, "tags": ["t"],
        "metadata": {"k": [1]}, "name": "first", "ttlMs": 100000
    });
    let reply = yard.post("/v1/tasks", body).await;
    assert_eq!(reply.status, 201, "{reply:?}");
    let task = reply.json();
    assert_eq!(reply.header("location"), Some(format!("/v1/tasks/{}", task["id"].as_str().unwrap()).as_str()));
    assert_eq!(task["payload"]["shell"], "echo out; echo err >&2");
    assert_eq!(task["retry"]["backoffMs"], 1000);
    assert_eq!(task["resources"], json!({"cpu": 1.0, "ramMb": 256}));
    let ended = yard.ended(&task["id"]).await;
    assert_eq!(ended["state"], "completed", "{ended}");
    assert_eq!(ended["result"]["exitCode"], 0);
    assert_eq!((&ended["attempts"], &ended["worker"]), (&json!(1), &json!("embedded")));
    for field in ["createdAt", "queuedAt", "assignedAt", "startedAt", "finishedAt", "executionMs"] {
        assert!(!ended[field].is_null(), "{field} in {ended}");
    }
    for (field, value) in [("agent", "bot"), ("lane", "cron"), ("priority", "high"), ("name", "first")] {
        assert_eq!(ended[field], value);
    }
    let logs = yard.get(&format!("/v1/tasks/{}/logs", task["id"].as_str().unwrap())).await;
    assert!(logs.body.contains("out\n") && logs.body.contains("err\n"), "{logs:?}");
    let history = yard.get(&format!("/v1/tasks/{}/events", task["id"].as_str().unwrap())).await.json();
    let steps: Vec<_> =
        history["items"].as_array().unwrap().iter().map(|step| step["step"].as_str().unwrap()).collect();
    assert_eq!(steps.first(), Some(&"created"));
    assert_eq!(steps.last(), Some(&"completed"));
}

/// The limits reach the process, and what the machine cannot keep of them is on the task.
#[tokio::test(flavor = "multi_thread")]
async fn limits_are_shown_and_kept() {
    let yard = Yard::new().await;
    let hungry = "x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo ${#x}";
    let limits = json!({"cpu": 1.5, "ramMb": 64, "pids": 32, "outputBytes": 1000});
    let body = json!({
        "kind": "process", "payload": {"shell": hungry}, "limits": limits, "retry": {"maxRetries": 0}
    });
    let task = yard.post("/v1/tasks", body).await.json();
    let ended = yard.ended(&task["id"]).await;
    assert_eq!((&ended["limits"], &ended["state"]), (&limits, &json!("failed")), "{ended}");
    match ended.get("notEnforced") {
        None => assert_eq!(ended["error"], json!({"class": "task", "message": "out of memory: limit 64 MB"})),
        Some(sentences) => {
            assert!(sentences.as_array().unwrap().iter().all(|text| text.as_str().unwrap().starts_with("limits.")));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_with_the_same_key_gets_the_first_answer() {
    let yard = Yard::new().await;
    let body = json!({"kind": "noop", "agent": "a"});
    let send = |body: serde_json::Value, key: &'static str| {
        yard.request("POST", "/v1/tasks").header("Idempotency-Key", key).json(&body).send()
    };
    let first = send(body.clone(), "k").await;
    yard.ended(&first.json()["id"]).await;
    let again = send(body.clone(), "k").await;
    assert_eq!(again.status, 201, "{again:?}");
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!((&again.json()["id"], &again.json()["state"]), (&first.json()["id"], &first.json()["state"]));
    let other = send(json!({"kind": "noop", "agent": "a", "rank": 1}), "k").await;
    assert_eq!((other.status, &other.problem()["code"]), (422, &json!("idempotency_key_reused")));
    let batch = json!({"tasks": [{"kind": "noop"}, {"kind": "noop"}], "idempotencyKey": "b"});
    let first = yard.post("/v1/batches", batch.clone()).await.json();
    let again = yard.post("/v1/batches", batch).await;
    assert_eq!((again.header("idempotent-replayed"), again.json()), (Some("true"), first));
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_answers_by_what_the_task_is_doing() {
    let yard = Yard::with(json!({"lanes": {"closed": 0}})).await;
    let queued = yard.submit(json!({"kind": "noop", "lane": "closed"})).await;
    let path = |task: &serde_json::Value| format!("/v1/tasks/{}", task["id"].as_str().unwrap());
    let reply = yard.post(&(path(&queued) + "/cancel"), json!({"reason": "changed my mind"})).await;
    assert_eq!((reply.status, &reply.json()["state"]), (200, &json!("cancelled")), "{reply:?}");
    let again = yard.request("DELETE", &path(&queued)).send().await;
    assert_eq!((again.status, &again.problem()["code"]), (409, &json!("already_terminal")));
    let running = yard.submit(json!({"kind": "process", "payload": {"argv": ["sleep", "1000"]}})).await;
    let mut events = yard.events(&format!("?task={}", running["id"].as_str().unwrap()), Some("0-0")).await;
    events.next_of("task.started").await;
    let reply = yard.request("POST", &(path(&running) + "/cancel")).send().await;
    assert_eq!((reply.status, &reply.json()["state"]), (202, &json!("running")), "{reply:?}");
    assert_eq!(yard.ended(&running["id"]).await["state"], "cancelled");
    let unknown = yard.request("DELETE", "/v1/tasks/01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11").send().await;
    assert_eq!((unknown.status, &unknown.problem()["code"]), (404, &json!("not_found")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_cancels_in_chunks_and_counts() {
    let yard = Yard::with(json!({"lanes": {"closed": 0}})).await;
    let tasks = vec![json!({"kind": "noop", "lane": "closed", "agent": "many"}); 700];
    for _ in 0..2 {
        assert_eq!(yard.post("/v1/batches", json!({"tasks": tasks})).await.status, 201);
    }
    let keep = yard.submit(json!({"kind": "noop", "lane": "closed", "agent": "other"})).await;
    let nothing = yard.post("/v1/tasks/cancel", json!({})).await;
    assert_eq!((nothing.status, &nothing.problem()["code"]), (400, &json!("invalid")));
    let reply = yard.post("/v1/tasks/cancel", json!({"agent": "many", "state": ["queued"]})).await;
    assert_eq!(reply.json(), json!({"matched": 1400, "cancelled": 1400, "stopping": 0}), "{reply:?}");
    let kept = yard.get(&format!("/v1/tasks/{}", keep["id"].as_str().unwrap())).await.json();
    assert_eq!(kept["state"], "queued");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_runs_in_order_and_can_be_cancelled() {
    let yard = Yard::with(json!({"lanes": {"closed": 0}})).await;
    let body = json!({"defaults": {"kind": "noop"}, "name": "b", "parallelism": 1, "tasks": [
        {"name": "a"}, {"name": "b", "dependsOn": ["#a"]}, {"dependsOn": ["#b"]}
    ]});
    let batch = yard.post("/v1/batches", body).await;
    assert_eq!(batch.status, 201, "{batch:?}");
    let batch = batch.json();
    assert_eq!(yard.ended(&batch["tasks"][2]["id"]).await["state"], "completed");
    let view = yard.get(&format!("/v1/batches/{}", batch["id"].as_str().unwrap())).await.json();
    assert_eq!(
        (&view["state"], &view["counts"]["completed"], &view["name"]),
        (&json!("finished"), &json!(3), &json!("b"))
    );
    let body = json!({"defaults": {"kind": "noop", "lane": "closed"}, "tasks": [{}, {}]});
    let batch = yard.post("/v1/batches", body).await.json();
    let reply = yard.request("POST", &format!("/v1/batches/{}/cancel", batch["id"].as_str().unwrap())).send().await;
    assert_eq!(reply.json(), json!({"matched": 2, "cancelled": 2, "stopping": 0}), "{reply:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_body_may_be_large() {
    let yard = Yard::with(json!({"lanes": {"closed": 0}})).await;
    let tasks = vec![json!({"kind": "noop", "lane": "closed", "payload": {"result": "x".repeat(4096)}}); 1000];
    let reply = yard.post("/v1/batches", json!({"tasks": tasks})).await;
    assert_eq!((reply.status, reply.json()["tasks"].as_array().unwrap().len()), (201, 1000));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_task_is_retried_as_a_copy() {
    let yard = Yard::new().await;
    let failing = json!({"kind": "noop", "payload": {"fail": "permanent"}, "agent": "a", "tags": ["x"]});
    let task = yard.submit(failing).await;
    let ended = yard.ended(&task["id"]).await;
    assert_eq!((&ended["state"], &ended["error"]["class"]), (&json!("failed"), &json!("permanent")));
    let reply = yard.request("POST", &format!("/v1/tasks/{}/retry", task["id"].as_str().unwrap())).send().await;
    assert_eq!(reply.status, 201, "{reply:?}");
    let copy = reply.json();
    assert_ne!(copy["id"], task["id"]);
    assert_eq!((&copy["retryOf"], &copy["tags"], &copy["payload"]), (&task["id"], &json!(["x"]), &task["payload"]));
    let live = yard.submit(json!({"kind": "noop", "delayMs": 1000000})).await;
    let reply = yard.request("POST", &format!("/v1/tasks/{}/retry", live["id"].as_str().unwrap())).send().await;
    assert_eq!((reply.status, &reply.problem()["code"]), (409, &json!("still_live")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_can_be_changed_until_it_starts() {
    let yard = Yard::with(json!({"lanes": {"closed": 0}, "agents": {"capped": {"maxPriority": "normal"}}})).await;
    let task = yard.submit(json!({"kind": "noop", "lane": "closed", "agent": "capped"})).await;
    let path = format!("/v1/tasks/{}", task["id"].as_str().unwrap());
    let change = json!({"rank": 7, "priority": "critical", "deadline": "2100-01-01T00:00:00Z"});
    let reply = yard.request("PATCH", &path).json(&change).send().await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let changed = yard.get(&path).await.json();
    assert_eq!((&changed["rank"], &changed["priority"]), (&json!(7), &json!("normal")));
    assert_eq!(changed["deadline"], "2100-01-01T00:00:00.000Z");
    let reply = yard.request("PATCH", &path).json(&json!({"deadline": null, "priority": "low"})).send().await;
    assert_eq!((&reply.json()["deadline"], &reply.json()["priority"]), (&json!(null), &json!("low")), "{reply:?}");
    let past = yard.request("PATCH", &path).json(&json!({"deadline": "2001-01-01T00:00:00Z"})).send().await;
    assert_eq!((past.status, &past.problem()["field"]), (400, &json!("deadline")));
    let done = yard.submit(json!({"kind": "noop"})).await;
    yard.ended(&done["id"]).await;
    let path = format!("/v1/tasks/{}", done["id"].as_str().unwrap());
    let late = yard.request("PATCH", &path).json(&json!({"rank": 1})).send().await;
    assert_eq!(late.status, 409, "{late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_task_is_explained() {
    let yard = Yard::with(json!({"lanes": {"closed": 0}})).await;
    let task = yard.submit(json!({"kind": "noop", "lane": "closed"})).await;
    let reply = yard.get(&format!("/v1/tasks/{}/explain", task["id"].as_str().unwrap())).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let explained = reply.json();
    let lane = explained["gates"].as_array().unwrap().iter().find(|gate| gate["kind"] == "lane").unwrap();
    assert_eq!((&lane["open"], &lane["limit"]), (&json!(false), &json!(0)));
    assert!(explained["summary"].as_str().unwrap().contains("lane `closed`"), "{explained}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_filtered_and_paged() {
    let yard = Yard::with(json!({"lanes": {"closed": 0}})).await;
    for n in 0..5 {
        yard.submit(json!({"kind": "noop", "lane": "closed", "agent": if n == 0 {"x"} else {"y"}})).await;
    }
    let first = yard.get("/v1/tasks?agent=y&state=queued&limit=3").await.json();
    assert_eq!(first["items"].as_array().unwrap().len(), 3, "{first}");
    let cursor = first["nextCursor"].as_str().unwrap();
    let second = yard.get(&format!("/v1/tasks?agent=y&state=queued&limit=3&cursor={cursor}")).await.json();
    assert_eq!(second["items"].as_array().unwrap().len(), 1, "{second}");
    assert!(yard.get("/v1/tasks?state=completed").await.json()["items"].as_array().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_lane_falls_back_to_main_and_says_so() {
    let yard = Yard::with(json!({"lanes": {"main": 0}})).await;
    let task = yard.submit(json!({"kind": "noop", "lane": "nowhere"})).await;
    assert_eq!((&task["lane"], &task["laneInForce"]), (&json!("nowhere"), &json!("main")));
    assert!(task["reason"].as_str().unwrap().contains("nowhere"), "{task}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_gives_the_live_task_when_the_time_is_up() {
    let yard = Yard::with(json!({"lanes": {"closed": 0}})).await;
    let task = yard.submit(json!({"kind": "noop", "lane": "closed"})).await;
    let reply = yard.get(&format!("/v1/tasks/{}/wait?timeoutMs=10", task["id"].as_str().unwrap())).await;
    assert_eq!((reply.status, reply.header("wait-timed-out")), (200, Some("true")));
    assert_eq!(reply.json()["state"], "queued");
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_followed_to_the_end() {
    let yard = Yard::new().await;
    let shell = "for i in 1 2 3; do echo line $i; sleep 0.05; done; printf end";
    let task = yard.submit(json!({"kind": "process", "payload": {"shell": shell}})).await;
    let id = task["id"].as_str().unwrap();
    let text = yard.get(&format!("/v1/tasks/{id}/logs?follow=true")).await;
    assert_eq!(text.body.trim_end(), "line 1\nline 2\nline 3\nend", "{text:?}");
    let request = yard.request("GET", &format!("/v1/tasks/{id}/logs")).header("Accept", "text/event-stream");
    let mut events = request.open().await;
    let first = events.next_of("log").await;
    assert_eq!((&first.data["text"], &first.data["stream"]), (&json!("line 1"), &json!("stdout")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_429_with_both_numbers() {
    let yard = Yard::with(json!({"limits": {"maxQueuedPerAgent": 1}, "lanes": {"closed": 0}})).await;
    let body = json!({"kind": "noop", "lane": "closed", "agent": "a"});
    yard.submit(body.clone()).await;
    let reply = yard.post("/v1/tasks", body).await;
    let problem = reply.problem();
    assert_eq!((reply.status, &problem["code"]), (429, &json!("queue_full")), "{reply:?}");
    assert_eq!((&problem["limit"], &problem["agent"]), (&json!(1), &json!("a")));
    assert!(reply.header("retry-after").is_some());
    let mixed = json!({"mode": "partial", "defaults": {"kind": "noop"}, "tasks": [
        {"agent": "a", "lane": "closed", "name": "p"}, {"agent": "b", "dependsOn": ["#p"]}, {"agent": "c"}, {"timeoutMs": 0}
    ]});
    let items = yard.post("/v1/batches", mixed).await.json()["tasks"].clone();
    assert_eq!(items[0]["error"]["code"], "queue_full", "{items}");
    let orphan = &items[1]["error"];
    assert_eq!(
        (&orphan["code"], &orphan["field"]),
        (&json!("parent_refused"), &json!("tasks[1].dependsOn")),
        "{items}"
    );
    assert_eq!((&orphan["parent"], &orphan["detail"]), (&json!("#p"), &json!("it depends on #p, which was refused")));
    assert!(items[2]["id"].is_string(), "{items}");
    let invalid = &items[3]["error"];
    assert_eq!(invalid["field"], "tasks[3].timeoutMs", "{items}");
    assert!(invalid["detail"].as_str().is_some_and(|text| text.starts_with("tasks[3].timeoutMs: must be")), "{items}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_repeats_first_answers_and_counts_every_refusal() {
    let limits = json!({"maxQueued": 2, "maxRejectionsPerHour": 3});
    let yard = Yard::with(json!({"limits": limits, "lanes": {"closed": 0}})).await;
    let body = json!({"kind": "noop", "lane": "closed", "agent": "a"});
    let keyed = || yard.request("POST", "/v1/tasks").header("Idempotency-Key", "k").json(&body).send();
    let first = keyed().await;
    assert_eq!(first.status, 201, "{first:?}");
    yard.submit(body.clone()).await;
    for _ in 0..20 {
        let reply = yard.post("/v1/tasks", body.clone()).await;
        let problem = reply.problem();
        assert_eq!((reply.status, &problem["code"]), (429, &json!("queue_full")), "{reply:?}");
        assert_eq!((&problem["queued"], &problem["limit"]), (&json!(2), &json!(2)), "{problem}");
        assert!(reply.header("retry-after").is_some());
    }
    let batch = yard.post("/v1/batches", json!({"tasks": [body]})).await;
    assert_eq!((batch.status, &batch.problem()["code"]), (429, &json!("queue_full")), "{batch:?}");
    let repeat = keyed().await;
    assert_eq!((repeat.status, repeat.header("idempotent-replayed")), (201, Some("true")), "{repeat:?}");
    assert_eq!(repeat.json()["id"], first.json()["id"]);
    // The repeat went through a tick, and what was refused before it was counted by then.
    assert_eq!(yard.get("/v1/stats").await.json()["metrics"]["rejected"], 21);
    let recorded = yard.get("/v1/tasks?state=rejected").await.json()["items"].clone();
    assert_eq!(recorded.as_array().map(Vec::len), Some(3), "{recorded}");
    assert_eq!((&recorded[0]["reason"], recorded[0].get("payload")), (&json!("queue is full (2/2)"), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_refuses_submits_and_readiness_says_so() {
    let yard = Yard::new().await;
    assert_eq!(yard.get("/readyz").await.status, 200);
    let drained = yard.post("/v1/drain", json!({"on": true})).await;
    assert_eq!(drained.json()["draining"], true, "{drained:?}");
    let reply = yard.post("/v1/tasks", json!({"kind": "noop"})).await;
    assert_eq!((reply.status, &reply.problem()["code"]), (503, &json!("draining")));
    assert_eq!(yard.get("/readyz").await.json()["status"], "draining");
    yard.post("/v1/drain", json!({"on": false})).await;
    yard.submit(json!({"kind": "noop"})).await;
}
