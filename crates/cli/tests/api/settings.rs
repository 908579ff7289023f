//! Lanes and agents: pause, limit, weight.

use serde_json::json;

use crate::scene::{Scene, n, problem, text};

/// The issue: a paused lane starts nothing and says so; the pause survives a restart; resumed it goes on.
#[test]
fn a_paused_lane_starts_nothing_until_it_is_resumed() {
    let mut scene = Scene::new();
    let view = scene.expect(200, "PUT", "/v1/lanes/main", json!({"paused": true}));
    assert_eq!((view["paused"].as_bool(), n(&view["limit"])), (Some(true), 30));
    let id = scene.noop(json!({}));
    let elsewhere = scene.submit(json!({"kind": "noop", "lane": "cron"}));
    scene.ends_as("completed", &elsewhere);
    let explained = scene.get(&format!("/v1/tasks/{id}/explain"));
    assert!(text(&explained["summary"]).contains("paused"), "{explained:#}");
    scene.restart();
    assert_eq!(scene.state(&id), "queued");
    scene.expect(200, "PUT", "/v1/lanes/main", json!({"paused": false}));
    scene.ends_as("completed", &id);
}

/// The issue: a paused agent starts nothing, others do; the pause survives a restart.
#[test]
fn a_paused_agent_starts_nothing_until_it_is_resumed() {
    let mut scene = Scene::new();
    scene.expect(200, "PUT", "/v1/agents/a", json!({"paused": true}));
    let id = scene.submit(json!({"kind": "noop", "agent": "a"}));
    scene.ends_as("completed", &scene.submit(json!({"kind": "noop", "agent": "b"})));
    scene.restart();
    assert_eq!(scene.state(&id), "queued");
    scene.expect(200, "PUT", "/v1/agents/a", json!({"paused": false}));
    scene.ends_as("completed", &id);
}

/// The issue: a lane's limit is changed by PUT, holds at once, and survives a restart; a new name makes a lane.
#[test]
fn a_lanes_limit_holds_at_once_and_survives_a_restart() {
    let mut scene = Scene::new();
    scene.expect(200, "PUT", "/v1/lanes/main", json!({"limit": 1}));
    let first = scene.blocker();
    let second = scene.noop(json!({}));
    assert_eq!(scene.state(&second), "queued");
    scene.expect(200, "PUT", "/v1/lanes/main", json!({"limit": 2}));
    scene.ends_as("completed", &second);
    scene.expect(200, "PUT", "/v1/lanes/own", json!({"limit": 4}));
    assert_eq!(scene.problem(400, "PUT", "/v1/lanes/other", json!({"paused": true}))["field"], "limit");
    scene.cancel(&first);
    scene.end(&first);
    scene.restart();
    let lanes = scene.get("/v1/lanes");
    let limit =
        |name: &str| n(&lanes["items"].as_array().unwrap().iter().find(|lane| lane["name"] == name).unwrap()["limit"]);
    assert_eq!((limit("main"), limit("own"), limit("cron")), (2, 4, 30));
}

/// The issue: an agent's limit, weight and highest priority are changed by PUT; null goes back to the configured value.
#[test]
fn an_agents_settings_are_changed_and_taken_back() {
    let scene = Scene::with("[agents.a]\nmaxInflight = 9\n");
    let view = scene.expect(200, "PUT", "/v1/agents/a", json!({"maxInflight": 1, "weight": 2, "maxPriority": "low"}));
    assert_eq!((n(&view["maxInflight"]), n(&view["weight"]), view["maxPriority"].as_str()), (1, 2, Some("low")));
    let hold = json!({"kind": "noop", "agent": "a", "payload": {"sleepMs": 600_000}});
    let first = scene.submit(hold.clone());
    scene.until_state(&first, "running");
    let second = scene.submit(hold);
    assert_eq!(scene.state(&second), "queued");
    let view = scene.expect(200, "PUT", "/v1/agents/a", json!({"maxInflight": null}));
    assert_eq!((n(&view["maxInflight"]), n(&view["weight"])), (9, 2));
    scene.until_state(&second, "running");
    let agents = scene.get("/v1/agents");
    assert_eq!(n(&agents["items"][0]["running"]), 2, "{agents:#}");
}

/// G4.1: in a lane of 2 at most 2 of 6 run together, and at some time exactly 2.
#[test]
fn a_lane_runs_as_many_as_it_may_and_no_more() {
    let scene = Scene::with("[lanes]\nnarrow = 2\n");
    let defaults = json!({"kind": "noop", "lane": "narrow", "payload": {"sleepMs": 50}});
    let (batch, _) = scene.batch(json!({"defaults": defaults, "tasks": vec![json!({}); 6]}));
    let events = scene.events_until(|event| event["type"] == "batch.finished" && event["batch"] == batch.as_str());
    assert_eq!(crate::batches::peak(&events, &mut |_| true), 2);
}

/// G4.2, G4.3, G4.4: a new lane is shown with its limit and nothing in it; a task never makes or changes a lane: one of
/// an unknown lane runs in main and says so.
#[test]
fn a_lane_is_what_it_was_made_as() {
    let scene = Scene::new();
    scene.expect(200, "PUT", "/v1/lanes/custom", json!({"limit": 3}));
    let lane = |name: &str| {
        let lanes = scene.get("/v1/lanes");
        lanes["items"].as_array().unwrap().iter().find(|lane| lane["name"] == name).cloned()
    };
    let custom = json!({"name": "custom", "limit": 3, "paused": false, "running": 0, "queued": 0, "waiting": 0});
    assert_eq!(lane("custom"), Some(custom.clone()));
    scene.end(&scene.submit(json!({"kind": "noop", "lane": "custom"})));
    assert_eq!(lane("custom"), Some(custom));
    let task = scene.end(&scene.submit(json!({"kind": "noop", "lane": "nonexistent"})));
    assert_eq!((task["lane"].as_str(), task["laneInForce"].as_str()), (Some("nonexistent"), Some("main")));
    assert_eq!(lane("nonexistent"), None);
}

/// G4.5: what is cancelled before a full lane has room for it never runs.
#[test]
fn what_is_cancelled_before_its_lane_has_room_never_runs() {
    let scene = Scene::with("[lanes]\nmain = 1\n");
    let blocker = scene.blocker();
    let id = scene.noop(json!({}));
    assert_eq!(scene.cancel(&id).status, 200);
    scene.cancel(&blocker);
    scene.end(&blocker);
    scene.end(&scene.noop(json!({})));
    let task = scene.task(&id);
    assert_eq!((task["state"].as_str(), n(&task["attempts"])), (Some("cancelled"), 0));
}

/// Bad settings are refused with their field, and change nothing.
#[test]
fn bad_settings_are_refused() {
    let scene = Scene::new();
    for (path, body, field) in [
        ("/v1/lanes/main", json!({"limit": -1}), "limit"),
        ("/v1/lanes/main", json!({"limit": "many"}), "limit"),
        ("/v1/lanes/main", json!({"colour": "red"}), "colour"),
        ("/v1/lanes/a%20b", json!({"limit": 1}), "name"),
        ("/v1/agents/a", json!({"weight": -1}), "weight"),
        ("/v1/agents/a", json!({"weight": 0}), "agents.a.weight"),
        ("/v1/agents/a", json!({"maxPriority": "urgent"}), "maxPriority"),
    ] {
        let refusal = scene.problem(400, "PUT", path, body);
        assert_eq!(refusal["field"], field, "{refusal:#}");
    }
    problem(415, &scene.request("PUT", "/v1/lanes/main", ""));
    assert_eq!(scene.get("/v1/agents")["items"], json!([]));
}
