//! Configuration while the server runs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use common::{Yard, options};
use runyard_server::ServeOptions;
use serde_json::json;
use tempfile::TempDir;

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_is_in_force_at_once_and_after_a_restart() {
    let yard = Yard::with(json!({"limits": {"maxInflight": 7}})).await;
    let config = yard.get("/v1/config").await.json();
    assert_eq!(
        (&config["values"]["limits"]["maxInflight"], &config["origins"]["limits.maxInflight"]),
        (&json!(7), &json!("flag"))
    );
    let mut events = yard.events("?types=config.changed", None).await;
    let patch = json!({"lanes": {"main": 3}, "limits": {"maxInflight": 9}});
    let reply = yard.request("PATCH", "/v1/config").json(&patch).send().await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.json()["origins"]["lanes.main.limit"], "patch");
    events.next_of("config.changed").await;
    let yard = yard.restart(json!({"limits": {"maxInflight": 7}})).await;
    let config = yard.get("/v1/config").await.json();
    assert_eq!(
        (&config["values"]["lanes"]["main"]["limit"], &config["values"]["limits"]["maxInflight"]),
        (&json!(3), &json!(9))
    );
    let back = json!({"limits": {"maxInflight": null}});
    let config = yard.request("PATCH", "/v1/config").json(&back).send().await.json();
    assert_eq!(
        (&config["values"]["limits"]["maxInflight"], &config["origins"]["limits.maxInflight"]),
        (&json!(7), &json!("flag"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_patch_changes_nothing() {
    let yard = Yard::new().await;
    let before = yard.get("/v1/config").await.json();
    let table = [
        (json!({"lanes": {"main": -1}}), "lanes.main.limit"),
        (json!({"limits": {"maxQued": 1}}), "limits.maxQued"),
        (json!({"agents": {"a": {"weight": 0}}}), "agents.a.weight"),
        (json!({"lanes": {"a b": 1}}), "lanes.a b"),
        (json!({"server": {"listen": "0.0.0.0:1"}}), "server.listen"),
        (json!({"store": {"durability": "normal"}}), "store"),
        (json!({"workers": {"offlineAfterMs": u64::MAX}}), "workers.offlineAfterMs"),
        (json!({"workers": {"offlineAfterMs": 19_999}}), "workers.offlineAfterMs"),
        (json!({"workers": {"heartbeatMs": 99}}), "workers.heartbeatMs"),
        (json!({"workers": {"heartbeatMs": 15_001}}), "workers.offlineAfterMs"),
        (json!({"workers": {"forgetAfterMs": 29_999}}), "workers.forgetAfterMs"),
        (json!({"workers": {"assignTimeoutMs": u64::MAX}}), "workers.assignTimeoutMs"),
        (json!({"workers": {"cooldownMs": u64::MAX}}), "workers.cooldownMs"),
        (json!({"workers": {"maxCpuUsage": 100.1}}), "workers.maxCpuUsage"),
        (json!({"workers": {"weights": {"cpuUsage": -0.1}}}), "workers.weights.cpuUsage"),
        (json!({"workers": {"placement": "random"}}), "workers.placement"),
        (json!({"scheduling": {"workerOfflineMs": 30_000}}), "scheduling.workerOfflineMs"),
        (json!({"scheduling": {"quotaWaitMsMax": u64::MAX}}), "scheduling.quotaWaitMsMax"),
        (json!({"scheduling": {"agingMs": u64::MAX}}), "scheduling.agingMs"),
        (json!({"scheduling": {"windowMax": 0}}), "scheduling.windowMax"),
        (json!({"scheduling": {"duesMax": 0}}), "scheduling.duesMax"),
        (json!({"scheduling": {"agedOneIn": 0}}), "scheduling.agedOneIn"),
        (json!({"defaults": {"timeoutMsMax": u64::MAX, "timeoutMs": u64::MAX}}), "defaults.timeoutMsMax"),
        (json!({"defaults": {"retry": {"backoffMs": u64::MAX}}}), "defaults.retry.backoffMs"),
        (json!({"agents": {"a": {"retry": {"maxBackoffMs": u64::MAX}}}}), "agents.a.retry.maxBackoffMs"),
        (json!({"kinds": {"noop": {"retry": {"backoffMs": u64::MAX}}}}), "kinds.noop.retry.backoffMs"),
        (json!({"server": {"drainMs": u64::MAX}}), "server.drainMs"),
        (json!({"retention": {"tasksMs": u64::MAX}}), "retention.tasksMs"),
        (json!({"limits": {"maxQueued": u64::MAX}}), "limits.maxQueued"),
    ];
    for (patch, field) in table {
        let reply = yard.request("PATCH", "/v1/config").json(&patch).send().await;
        let problem = reply.problem();
        assert_eq!((reply.status, &problem["field"]), (400, &json!(field)), "{patch}: {reply:?}");
    }
    assert_eq!(yard.get("/v1/config").await.json(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_and_agents_are_paused_and_resumed() {
    let yard = Yard::new().await;
    let put = |path: &'static str, body| yard.request("PUT", path).json(&body).send();
    assert_eq!(put("/v1/lanes/main", json!({"paused": true})).await.json()["paused"], true);
    let task = yard.submit(json!({"kind": "noop"})).await;
    assert_eq!(task["state"], "queued");
    let lanes = yard.get("/v1/lanes").await.json();
    let main = lanes["items"].as_array().unwrap().iter().find(|lane| lane["name"] == "main").unwrap();
    assert_eq!((&main["queued"], &main["limit"], &main["paused"]), (&json!(1), &json!(30), &json!(true)));
    put("/v1/lanes/main", json!({"paused": false})).await;
    assert_eq!(yard.ended(&task["id"]).await["state"], "completed");
    let agent = put("/v1/agents/bot", json!({"paused": true, "weight": 3, "maxInflight": 2})).await.json();
    assert_eq!((&agent["weight"], &agent["maxInflight"], &agent["paused"]), (&json!(3), &json!(2), &json!(true)));
    let task = yard.submit(json!({"kind": "noop", "agent": "bot"})).await;
    assert_eq!(task["state"], "queued");
    assert_eq!(put("/v1/agents/bot", json!({"paused": false, "weight": null})).await.json()["weight"], 1);
    assert_eq!(yard.ended(&task["id"]).await["state"], "completed");
    let agents = yard.get("/v1/agents").await.json();
    assert_eq!(agents["items"].as_array().unwrap().iter().find(|a| a["name"] == "bot").unwrap()["completed"], 1);
    assert_eq!(put("/v1/lanes/fresh", json!({"paused": false})).await.problem()["field"], "limit");
    assert_eq!(put("/v1/lanes/fresh", json!({"limit": 2})).await.json()["limit"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_file_is_read_again() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("runyard.toml");
    std::fs::write(&file, "[lanes]\nmain = 3\n").unwrap();
    let yard = Yard::start(ServeOptions { config: Some(file.clone()), ..options(&dir) }, dir).await;
    let limit = || async { yard.get("/v1/config").await.json()["values"]["lanes"]["main"]["limit"].clone() };
    assert_eq!(limit().await, 3);
    let mut events = yard.events("?types=config.changed", None).await;
    std::fs::write(&file, "[lanes]\nmain = 4\n").unwrap();
    events.next_of("config.changed").await;
    assert_eq!(limit().await, 4);
    let origin = yard.get("/v1/config").await.json()["origins"]["lanes.main.limit"].clone();
    assert_eq!(origin, "file");
}

#[tokio::test(flavor = "multi_thread")]
async fn stats_and_metrics_count_what_happened() {
    let yard = Yard::with(json!({"lanes": {"closed": 0}})).await;
    let done = yard.submit(json!({"kind": "noop", "agent": "a"})).await;
    yard.ended(&done["id"]).await;
    let failed = yard.submit(json!({"kind": "noop", "agent": "a", "payload": {"fail": "permanent"}})).await;
    yard.ended(&failed["id"]).await;
    yard.submit(json!({"kind": "noop", "agent": "b", "lane": "closed"})).await;
    let stats = yard.get("/v1/stats").await.json();
    let (queue, metrics) = (&stats["queue"], &stats["metrics"]);
    assert_eq!((&queue["totalQueued"], &queue["agents"]["b"]["queued"]), (&json!(1), &json!(1)), "{stats}");
    assert_eq!(queue["lanes"]["closed"]["queued"], 1);
    assert_eq!((&metrics["submitted"], &metrics["completed"], &metrics["failed"]), (&json!(3), &json!(1), &json!(1)));
    assert!(metrics["averageWaitMs"].is_number() && metrics["p99RunMs"].is_number(), "{stats}");
    assert_eq!((&stats["limits"]["maxQueued"], &stats["limits"]["lanes"]["closed"]), (&json!(1_000_000), &json!(0)));
    let text = yard.get("/metrics").await.body;
    for line in [
        "runyard_tasks_queued{agent=\"b\",lane=\"closed\"} 1",
        "runyard_tasks_completed_total{agent=\"a\"} 1",
        "runyard_attempts_failed_total{class=\"permanent\"} 1",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_written_while_serving() {
    let yard = Yard::new().await;
    yard.submit(json!({"kind": "noop"})).await;
    let reply = yard.post("/v1/backup", json!({"path": yard.dir.path().join("copy.db")})).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(reply.json()["bytes"].as_u64().unwrap() > 0);
    let again = yard.post("/v1/backup", json!({"path": yard.dir.path().join("copy.db")})).await;
    assert_eq!(again.problem()["field"], "path");
}
