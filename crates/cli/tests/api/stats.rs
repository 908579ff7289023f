//! What is counted, and what is admitted.

use serde_json::{Value, json};

use crate::scene::{SOON, Scene, from_now, header, n, problem, text};
use crate::support::wait_until;

const COUNTERS: [&str; 8] =
    ["submitted", "started", "completed", "failed", "cancelled", "rejected", "expired", "retried"];

/// A4.59: each outcome raises exactly its own counters, globally and for its agent.
#[test]
fn each_outcome_raises_exactly_its_own_counters() {
    let scene = Scene::with("[limits]\nmaxQueuedPerAgent = 1\n");
    let task = |payload: Value| json!({"kind": "noop", "agent": "a", "payload": payload});
    let rise = |what: &str, act: &dyn Fn(), expected: &[(&str, u64)]| {
        let before = scene.stats()["metrics"].clone();
        act();
        let after = scene.stats()["metrics"].clone();
        for name in COUNTERS {
            let wanted = expected.iter().find(|(counter, _)| *counter == name).map_or(0, |(_, n)| *n);
            assert_eq!(n(&after[name]) - n(&before[name]), wanted, "{name} after {what}");
            if let (Some(now), was) = (after["agents"]["a"][name].as_u64(), &before["agents"]["a"][name]) {
                assert_eq!(now - was.as_u64().unwrap_or(0), wanted, "{name} of the agent after {what}");
            }
        }
    };
    let completes = || drop(scene.ends_as("completed", &scene.submit(task(json!({})))));
    rise("a success", &completes, &[("submitted", 1), ("started", 1), ("completed", 1)]);
    let fails = || drop(scene.ends_as("failed", &scene.submit(task(json!({"fail": "permanent"})))));
    rise("a failure", &fails, &[("submitted", 1), ("started", 1), ("failed", 1)]);
    let retries = || {
        let body = json!({"kind": "noop", "agent": "a", "payload": {"fail": "task"}, "retry": {"maxRetries": 2, "backoffMs": 1}});
        scene.ends_as("failed", &scene.submit(body));
    };
    rise("two retries", &retries, &[("submitted", 1), ("started", 3), ("failed", 1), ("retried", 2)]);
    let cancels = || {
        let id = scene.submit(json!({"kind": "noop", "agent": "a", "delayMs": 600_000}));
        scene.cancel(&id);
    };
    rise("a cancel", &cancels, &[("submitted", 1), ("cancelled", 1)]);
    let expires = || {
        let body = json!({"kind": "noop", "agent": "a", "payload": {"sleepMs": 600_000}, "deadline": from_now(1000)});
        scene.ends_as("failed", &scene.submit(body));
    };
    rise("a deadline", &expires, &[("submitted", 1), ("started", 1), ("failed", 1), ("expired", 1)]);
    let rejects = || {
        let id = scene.submit(json!({"kind": "noop", "agent": "a", "delayMs": 600_000}));
        scene.problem(429, "POST", "/v1/tasks", task(json!({})));
        scene.cancel(&id);
    };
    rise("a rejection", &rejects, &[("submitted", 1), ("rejected", 1), ("cancelled", 1)]);
}

/// A4.60, A4.64: averages and p99 of waits and runs are absent until there is something to measure.
#[test]
fn waits_and_runs_are_averaged_once_there_are_some() {
    let scene = Scene::with("[lanes]\nmain = 1\n");
    assert!(scene.stats()["metrics"].get("averageRunMs").is_none());
    let first = scene.noop(json!({"sleepMs": 400}));
    let second = scene.noop(json!({"sleepMs": 400}));
    scene.end(&first);
    scene.end(&second);
    let metrics = &scene.stats()["metrics"];
    let value = |name: &str| metrics[name].as_f64().unwrap_or_else(|| panic!("{name} in {metrics:#}"));
    assert!(value("averageRunMs") >= 100.0 && value("p99RunMs") >= value("averageRunMs") * 0.9, "{metrics:#}");
    assert!(value("averageWaitMs") > 20.0 && value("p99WaitMs") >= value("averageWaitMs"), "{metrics:#}");
    assert_eq!(n(&metrics["started"]), 2);
}

/// A4.62: concurrent first submits of two agents are all counted.
#[test]
fn concurrent_first_submits_are_all_counted() {
    let scene = Scene::new();
    std::thread::scope(|scope| {
        for at in 0..10 {
            let scene = &scene;
            scope.spawn(move || scene.submit(json!({"kind": "noop", "agent": format!("agent-{}", at % 2)})));
        }
    });
    let metrics = &scene.stats()["metrics"];
    assert_eq!(n(&metrics["submitted"]), 10);
    assert_eq!((n(&metrics["agents"]["agent-0"]["submitted"]), n(&metrics["agents"]["agent-1"]["submitted"])), (5, 5));
}

/// A4.21, A4.63, B4.17: queue, metrics and limits are there; queued and running by agent and lane sum up; limits are the
/// file's.
#[test]
fn stats_show_the_queue_by_agent_and_lane_and_the_limits_in_force() {
    let scene = Scene::with(
        "[limits]\nmaxQueued = 50\nmaxQueuedPerAgent = 40\n[lanes]\nmain = 1\n[agents.a]\nmaxInflight = 3\n[kinds.http]\nmaxInflight = 4\n",
    );
    let running = scene.submit(json!({"kind": "noop", "agent": "a", "payload": {"sleepMs": 600_000}}));
    scene.until_state(&running, "running");
    scene.submit(json!({"kind": "noop", "agent": "b"}));
    scene.submit(json!({"kind": "noop", "agent": "b", "delayMs": 600_000}));
    let stats = scene.stats();
    let queue = &stats["queue"];
    assert_eq!((n(&queue["totalQueued"]), n(&queue["totalRunning"])), (2, 1));
    assert_eq!((n(&queue["agents"]["a"]["running"]), n(&queue["agents"]["b"]["queued"])), (1, 1));
    assert_eq!(n(&queue["agents"]["b"]["scheduled"]), 1);
    assert_eq!((n(&queue["lanes"]["main"]["running"]), n(&queue["lanes"]["main"]["queued"])), (1, 1));
    assert!(COUNTERS.iter().all(|name| stats["metrics"][name].is_u64()), "{stats:#}");
    let limits = &stats["limits"];
    assert_eq!((n(&limits["maxQueued"]), n(&limits["maxQueuedPerAgent"]), n(&limits["maxInflight"])), (50, 40, 1000));
    assert_eq!((n(&limits["lanes"]["main"]), n(&limits["agents"]["a"]), n(&limits["kinds"]["http"])), (1, 3, 4));
    let total: u64 = ["waiting", "scheduled", "queued", "running", "completed", "failed", "cancelled", "rejected"]
        .iter()
        .map(|state| n(&queue["agents"]["a"][state]) + n(&queue["agents"]["b"][state]))
        .sum();
    assert_eq!(total, scene.ids("/v1/tasks").len() as u64);
}

/// A4.61: counts are those of the store: a restart does not lose them.
#[test]
fn counts_survive_a_restart() {
    let mut scene = Scene::new();
    for fail in [json!({}), json!({"fail": "permanent"})] {
        let id = scene.noop(fail);
        scene.end(&id);
    }
    let before = scene.stats();
    scene.restart();
    let after = scene.stats();
    for name in COUNTERS {
        assert_eq!(after["metrics"][name], before["metrics"][name], "{name}");
    }
    assert_eq!(after["queue"], before["queue"]);
}

/// A4.15, A4.16, A4.22: over the agent's or the global limit a submit is 429 with both numbers and Retry-After; another
/// agent is accepted; the rejection is recorded, readable and counted.
#[test]
fn a_full_queue_refuses_with_both_numbers_and_records_it() {
    let scene = Scene::with("[limits]\nmaxQueued = 4\nmaxQueuedPerAgent = 3\n[lanes]\nmain = 0\n");
    let submit = |agent: &str| scene.send("POST", "/v1/tasks", json!({"kind": "noop", "agent": agent}));
    (0..3).for_each(|_| assert_eq!(submit("a").status, 201));
    let full = submit("a");
    let refusal = problem(429, &full);
    assert_eq!((refusal["code"].as_str(), refusal["agent"].as_str()), (Some("queue_full"), Some("a")));
    assert_eq!((n(&refusal["queued"]), n(&refusal["limit"])), (3, 3));
    assert!(header(&full, "retry-after").is_some(), "{}", full.head);
    assert_eq!(submit("b").status, 201);
    let global = problem(429, &submit("c"));
    assert_eq!((n(&global["queued"]), n(&global["limit"])), (4, 4));
    assert!(global.get("agent").is_none());
    let rejected = text(&refusal["taskId"]);
    wait_until(SOON, "both rejections are recorded", || scene.ids("/v1/tasks?state=rejected").len() == 2);
    let task = scene.task(&rejected);
    assert_eq!((task["state"].as_str(), task["agent"].as_str()), (Some("rejected"), Some("a")));
    assert!(!task["finishedAt"].is_null() && task.get("payload").is_none(), "{task:#}");
    assert_eq!(n(&scene.stats()["metrics"]["rejected"]), 2);
    let refusal = problem(409, &scene.post(&format!("/v1/tasks/{rejected}/retry"), ""));
    assert_eq!(refusal["code"], "no_payload");
}

/// A4.23: limits raised at run time admit more, up to the new limit exactly.
#[test]
fn raised_limits_admit_more() {
    let scene = Scene::with("[limits]\nmaxQueuedPerAgent = 2\n[lanes]\nmain = 0\n");
    let submit = || scene.send("POST", "/v1/tasks", json!({"kind": "noop"})).status;
    assert_eq!([submit(), submit(), submit()], [201, 201, 429]);
    scene.expect(200, "PATCH", "/v1/config", json!({"limits": {"maxQueuedPerAgent": 10}}));
    assert_eq!((0..8).map(|_| submit()).filter(|status| *status == 201).count(), 8);
    assert_eq!(submit(), 429, "the 11th");
}

/// The issue: /metrics has the counters, gauges by agent and lane, and histograms, in one consistent text.
#[test]
fn metrics_have_the_named_series() {
    let scene = Scene::with("[lanes]\nmain = 1\n");
    scene.end(&scene.noop(json!({"fail": "permanent"})));
    scene.blocker();
    scene.submit(json!({"kind": "noop", "agent": "a"}));
    let answer = scene.request("GET", "/metrics", "");
    assert_eq!(answer.status, 200);
    assert!(header(&answer, "content-type").unwrap().starts_with("application/openmetrics-text"));
    for line in [
        "runyard_tasks_submitted_total{agent=\"a\"} 1",
        "runyard_tasks_started_total{agent=\"default\"} 2",
        "runyard_tasks_completed_total{agent=\"a\"} 0",
        "runyard_tasks_failed_total{agent=\"default\"} 1",
        "runyard_tasks_cancelled_total{agent=\"a\"} 0",
        "runyard_tasks_rejected_total{agent=\"a\"} 0",
        "runyard_tasks_expired_total{agent=\"default\"} 0",
        "runyard_tasks_retried_total{agent=\"default\"} 0",
        "runyard_attempts_failed_total{class=\"permanent\"} 1",
        "runyard_tasks_running{agent=\"default\",lane=\"main\"} 1",
        "runyard_tasks_queued{agent=\"a\",lane=\"main\"} 1",
        "runyard_task_wait_seconds_count 2",
        "runyard_task_run_seconds_count 1",
        "runyard_limit{scope=\"lane\",name=\"main\"} 1",
    ] {
        assert!(answer.body.lines().any(|found| found == line), "{line} is missing in\n{}", answer.body);
    }
    for series in ["runyard_commits_total ", "runyard_commit_events_bucket", "runyard_commit_duration_seconds_count "] {
        assert!(answer.body.contains(series), "{series} is missing in\n{}", answer.body);
    }
    assert!(answer.body.ends_with("# EOF\n"));
}

/// The issue: the 100 busiest agents have series of their own, the rest is `other`, in /metrics as in /v1/stats.
#[test]
fn agents_beyond_the_hundred_busiest_are_counted_as_other() {
    let scene = Scene::new();
    let task = |at: usize| json!({"kind": "noop", "agent": format!("agent-{at}")});
    let mut tasks: Vec<Value> = (0..103).map(task).collect();
    tasks.extend((0..100).map(task));
    let (_, ids) = scene.batch(json!({"tasks": tasks}));
    ids.iter().for_each(|id| drop(scene.end(id)));
    let agents = scene.stats()["metrics"]["agents"].clone();
    assert_eq!((agents.as_object().unwrap().len(), n(&agents["other"]["completed"])), (101, 3));
    let metrics = scene.request("GET", "/metrics", "").body;
    assert!(metrics.contains("runyard_tasks_completed_total{agent=\"other\"} 3"), "{metrics}");
    assert!(metrics.contains("runyard_tasks_completed_total{agent=\"agent-0\"} 2"), "{metrics}");
}
