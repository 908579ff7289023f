//! Workers on other machines: the cases that were collected for them, by their numbers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::time::{Duration, Instant};

use common::Yard;
use common::hand::{Hand, done, job, lease, offer, with};
use common::raw::until;
use serde_json::{Value, json};

/// Soon offline, soon taken back.
fn impatient() -> Value {
    json!({"workers": {"heartbeatMs": 200, "offlineAfterMs": 1000, "assignTimeoutMs": 600, "cooldownMs": 1500}})
}

async fn task(yard: &Yard, id: &Value) -> Value {
    yard.get(&format!("/v1/tasks/{}", id.as_str().unwrap())).await.json()
}

async fn until_state(yard: &Yard, id: &Value, state: &str) {
    until(async || task(yard, id).await["state"] == state).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_44_a_task_goes_from_queued_to_completed_with_all_timestamps() {
    let yard = Yard::new().await;
    let submitted = yard.submit(job()).await;
    let id = &submitted["id"];
    assert_eq!(task(&yard, id).await["state"], "queued");
    let mut hand = Hand::join(&yard, offer("w")).await;
    let start = hand.fetch().await;
    assert_eq!((&start["task"], &start["payload"]), (id, &json!({"n": 1})));
    assert_eq!(task(&yard, id).await["state"], "assigned");
    hand.held.push(lease(&start));
    hand.sync(json!({"started": [lease(&start)]})).await;
    assert_eq!(task(&yard, id).await["state"], "running");
    assert_eq!(hand.view(&yard).await["status"], "busy");
    hand.end(&start, json!({"state": "completed", "result": {"sum": 3}})).await;
    let ended = yard.ended(id).await;
    assert_eq!((&ended["state"], &ended["result"]), (&json!("completed"), &json!({"sum": 3})));
    for field in ["createdAt", "queuedAt", "assignedAt", "startedAt", "finishedAt"] {
        assert!(ended[field].is_string(), "{field} in {ended}");
    }
    assert_eq!(ended["worker"], hand.id.as_str());
    assert_eq!(hand.view(&yard).await["status"], "idle");
}

#[tokio::test(flavor = "multi_thread")]
async fn case_45_a_task_that_fits_nobody_says_so_until_a_worker_with_room_comes() {
    let yard = Yard::new().await;
    let small = Hand::join(&yard, offer("small")).await;
    small.sync(json!({})).await;
    let big = yard.submit(with(job(), json!({"resources": {"cpu": 8}}))).await;
    assert_eq!(small.sync(json!({})).await["start"], json!([]));
    let why = yard.get(&format!("/v1/tasks/{}/explain", big["id"].as_str().unwrap())).await.body;
    assert!(why.contains("1 is too small"), "{why}");
    assert_eq!(task(&yard, &big["id"]).await["state"], "queued");
    let large = Hand::join(&yard, with(offer("large"), json!({"cpus": 8}))).await;
    assert_eq!(large.fetch().await["task"], big["id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn case_46_neither_capacity_nor_the_declared_parallelism_is_exceeded() {
    let yard = Yard::new().await;
    let sized = Hand::join(&yard, offer("sized")).await;
    sized.sync(json!({})).await;
    for _ in 0..5 {
        yard.submit(with(job(), json!({"resources": {"cpu": 1, "ramMb": 256}}))).await;
    }
    let starts = sized.sync(json!({})).await["start"].as_array().unwrap().len();
    let view = sized.view(&yard).await;
    assert_eq!(starts, 4, "{view}");
    assert_eq!((&view["reserved"]["cpu"], &view["free"]["cpu"]), (&json!(4.0), &json!(0.0)));
    assert_eq!((&view["reserved"]["ramMb"], &view["running"].as_array().unwrap().len()), (&json!(1024), &4));
    let two = Hand::join(&yard, with(offer("two"), json!({"kinds": ["other"], "maxParallel": 2}))).await;
    two.sync(json!({})).await;
    for _ in 0..5 {
        yard.submit(json!({"kind": "other"})).await;
    }
    assert_eq!(two.sync(json!({})).await["start"].as_array().unwrap().len(), 2);
}

/// The vectors themselves are the core's to check; here, what workers report decides.
#[tokio::test(flavor = "multi_thread")]
async fn case_47_the_least_loaded_worker_wins() {
    let yard = Yard::new().await;
    let (busy, calm) = (Hand::join(&yard, offer("busy")).await, Hand::join(&yard, offer("calm")).await);
    for _ in 0..3 {
        busy.sync(json!({"metrics": {"cpuUsage": 80, "ramFreeMb": 8000}})).await;
        calm.sync(json!({"metrics": {"cpuUsage": 5, "ramFreeMb": 8000}})).await;
    }
    yard.submit(with(job(), json!({"resources": {"cpu": 1}}))).await;
    assert_eq!(busy.sync(json!({})).await["start"], json!([]));
    assert_eq!(calm.sync(json!({})).await["start"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn case_49_a_silent_worker_is_offline_and_its_tasks_are_requeued_once() {
    let yard = Yard::with(impatient()).await;
    let submitted = yard.submit(job()).await;
    let mut hand = Hand::join(&yard, offer("w")).await;
    let start = hand.take().await;
    until(async || hand.view(&yard).await["status"] == "offline").await;
    let lost = task(&yard, &submitted["id"]).await;
    assert!(matches!(lost["state"].as_str(), Some("queued" | "scheduled")), "{lost}");
    let answer = hand.sync(json!({})).await;
    assert_eq!(answer["revoked"], json!([{"task": start["task"], "attempt": 1}]));
    hand.held.clear();
    assert_ne!(hand.view(&yard).await["status"], "offline");
    let again = hand.fetch().await;
    assert_eq!((&again["task"], &again["attempt"]), (&start["task"], &json!(2)));
    hand.held.push(lease(&again));
    hand.end(&again, json!({"state": "completed"})).await;
    assert_eq!(yard.ended(&submitted["id"]).await["attempts"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn case_50_a_broken_worker_is_cooled_and_only_the_failed_task_is_requeued() {
    let yard = Yard::with(json!({"workers": {"cooldownMs": 60_000}})).await;
    let (first, second) = (yard.submit(job()).await, yard.submit(job()).await);
    let mut hand = Hand::join(&yard, offer("w")).await;
    let (a, b) = (hand.take().await, hand.take().await);
    let broken = json!({"state": "failed", "class": "task", "message": "no disk", "fault": "worker"});
    hand.end(&a, broken).await;
    let view = hand.view(&yard).await;
    assert_eq!(view["status"], "unhealthy", "{view}");
    assert!(view["cooldownUntil"].is_string() && view["reason"].as_str().unwrap().contains("cooling"), "{view}");
    assert_eq!(task(&yard, &second["id"]).await["state"], "running");
    until_state(&yard, &first["id"], "queued").await;
    hand.end(&b, json!({"state": "completed"})).await;
    assert_eq!(yard.ended(&second["id"]).await["state"], "completed");
    assert_eq!(task(&yard, &first["id"]).await["state"], "queued", "nobody else is there");
}

#[tokio::test(flavor = "multi_thread")]
async fn case_51_three_retries_are_four_runs_and_none_is_one() {
    let yard = Yard::new().await;
    let mut hand = Hand::join(&yard, offer("w")).await;
    let failed = || json!({"state": "failed", "class": "task", "message": "no"});
    for (retries, runs) in [(3, 4), (0, 1)] {
        let retry = json!({"retry": {"maxRetries": retries, "backoffMs": 0}});
        let submitted = yard.submit(with(job(), retry)).await;
        for attempt in 1..=runs {
            let start = hand.take().await;
            assert_eq!(start["attempt"], attempt);
            hand.end(&start, failed()).await;
        }
        let ended = yard.ended(&submitted["id"]).await;
        assert_eq!((&ended["state"], &ended["attempts"]), (&json!("failed"), &json!(runs)));
    }
    for retries in [json!(-1), json!("abc")] {
        let reply = yard.post("/v1/tasks", with(job(), json!({"retry": {"maxRetries": retries}}))).await;
        assert_eq!(reply.problem()["field"], "retry.maxRetries");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn case_53_a_failure_has_the_class_its_worker_says() {
    let yard = Yard::new().await;
    let mut hand = Hand::join(&yard, offer("w")).await;
    for class in ["task", "timeout", "permanent"] {
        let submitted = yard.submit(with(job(), json!({"retry": {"maxRetries": 0}}))).await;
        let start = hand.take().await;
        hand.end(&start, json!({"state": "failed", "class": class, "message": "exit 7", "result": {"exitCode": 7}}))
            .await;
        let ended = yard.ended(&submitted["id"]).await;
        assert_eq!((&ended["state"], &ended["error"]["class"]), (&json!("failed"), &json!(class)), "{ended}");
        assert_eq!(ended["result"]["exitCode"], 7);
    }
    let start = {
        yard.submit(job()).await;
        hand.take().await
    };
    for (outcome, field) in [
        (json!({"state": "failed", "message": "x"}), "done[0].outcome.class"),
        (json!({"state": "failed", "class": "task"}), "done[0].outcome.message"),
        (json!({"state": "failed", "class": "deadline", "message": "x"}), "done[0].outcome.class"),
        (json!({"state": "notStarted"}), "done[0].outcome.message"),
    ] {
        let reply = hand.say(json!({"done": [done(&start, outcome)]})).await;
        assert_eq!((reply.status, &reply.problem()["field"]), (400, &json!(field)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn case_54_cancel_is_at_once_for_what_is_not_sent_and_soon_for_what_runs() {
    let yard = Yard::new().await;
    let mut hand = Hand::join(&yard, offer("w")).await;
    hand.sync(json!({})).await;
    let assigned = yard.submit(job()).await;
    let path = |task: &Value| format!("/v1/tasks/{}/cancel", task["id"].as_str().unwrap());
    let began = Instant::now();
    yard.post(&path(&assigned), json!({})).await;
    assert_eq!(yard.ended(&assigned["id"]).await["state"], "cancelled");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(hand.view(&yard).await["reserved"]["cpu"], 0.0);
    assert_eq!(hand.sync(json!({})).await["start"], json!([]), "its start was never sent");
    let running = yard.submit(job()).await;
    let start = hand.take().await;
    let cancel = async {
        assert_eq!(yard.post(&path(&running), json!({})).await.status, 202);
        Instant::now()
    };
    let (answer, asked_at) = tokio::join!(hand.sync(json!({"waitMs": 10_000})), cancel);
    assert!(asked_at.elapsed() < Duration::from_secs(1), "{:?}", asked_at.elapsed());
    assert_eq!(answer["stop"][0], with(lease(&start), json!({"reason": "cancel"})));
    hand.end(&start, json!({"state": "stopped"})).await;
    assert_eq!(yard.ended(&running["id"]).await["state"], "cancelled");
    assert_eq!(yard.post(&path(&running), json!({})).await.problem()["code"], "already_terminal");
}

#[tokio::test(flavor = "multi_thread")]
async fn case_54_a_cancelled_task_whose_worker_is_lost_ends_cancelled() {
    let yard = Yard::with(impatient()).await;
    let submitted = yard.submit(job()).await;
    let mut hand = Hand::join(&yard, offer("w")).await;
    hand.take().await;
    yard.post(&format!("/v1/tasks/{}/cancel", submitted["id"].as_str().unwrap()), json!({})).await;
    let ended = yard.ended(&submitted["id"]).await;
    assert_eq!((&ended["state"], &ended["attempts"]), (&json!("cancelled"), &json!(1)), "{ended}");
}

#[tokio::test(flavor = "multi_thread")]
async fn case_56_what_is_not_begun_in_time_is_taken_back_and_costs_nothing() {
    let yard = Yard::with(impatient()).await;
    let submitted = yard.submit(with(job(), json!({"retry": {"maxRetries": 0}}))).await;
    let mut lazy = Hand::join(&yard, offer("lazy")).await;
    let start = lazy.fetch().await;
    // It goes on talking, but never holds what it was given; after a while it gets another attempt of it.
    until(async || lazy.sync(json!({})).await["start"][0]["attempt"] == 2).await;
    assert_eq!(task(&yard, &submitted["id"]).await["state"], "assigned", "no retry was left, and none was needed");
    lazy.held.push(lease(&start));
    let late = lazy.sync(json!({"done": [done(&start, json!({"state": "completed"}))]})).await;
    assert_eq!(late["refused"][0]["code"], "stale_lease", "{late}");
}

#[tokio::test(flavor = "multi_thread")]
async fn case_58_a_removed_worker_joins_anew_and_a_restart_keeps_the_others() {
    let yard = Yard::new().await;
    let submitted = yard.submit(job()).await;
    let mut kept = Hand::join(&yard, offer("kept")).await;
    let start = kept.take().await;
    let gone = Hand::join(&yard, offer("gone")).await;
    assert_eq!(yard.request("DELETE", &format!("/v1/workers/{}", gone.id)).send().await.status, 200);
    let reply = gone.say(json!({})).await;
    assert_eq!((reply.status, &reply.problem()["code"]), (404, &json!("worker_not_found")));
    let reply = gone.call("POST", "/register", offer("gone")).await;
    assert_eq!((reply.status, &reply.problem()["code"]), (404, &json!("worker_not_found")));
    let yard = yard.restart(json!({})).await;
    kept.addr = yard.addr.clone();
    assert_eq!(kept.sync(json!({})).await["revoked"], json!([]));
    let view = kept.view(&yard).await;
    assert_eq!((&view["name"], &view["running"]), (&json!("kept"), &json!([start["task"]])));
    kept.end(&start, json!({"state": "completed", "result": 7})).await;
    let ended = yard.ended(&submitted["id"]).await;
    assert_eq!((&ended["attempts"], &ended["result"]), (&json!(1), &json!(7)), "{ended}");
}

#[tokio::test(flavor = "multi_thread")]
async fn case_59_a_worker_or_task_of_no_size_is_refused() {
    let yard = Yard::new().await;
    for (resources, field) in [(json!({"cpu": -5}), "resources.cpu"), (json!({"ramMb": -1}), "resources.ramMb")] {
        let reply = yard.post("/v1/tasks", with(job(), json!({ "resources": resources }))).await;
        assert_eq!((reply.status, &reply.problem()["field"]), (400, &json!(field)));
    }
    for (more, field) in [(json!({"cpus": 0}), "cpus"), (json!({"cpus": -1}), "cpus"), (json!({"ramMb": 0}), "ramMb")] {
        let reply = yard.post("/v1/workers", with(offer("w"), more)).await;
        assert_eq!((reply.status, &reply.problem()["field"]), (400, &json!(field)));
    }
}
