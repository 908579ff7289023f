//! Tasks submitted together.

use serde_json::{Value, json};

use crate::scene::{Scene, is, n, problem, text};

/// A4.49, B4.12: each item answers with id and state, in order, and all share the batch.
#[test]
fn each_item_answers_in_order_and_shares_the_batch() {
    let scene = Scene::new();
    let request = json!({"name": "pair", "tasks": [{"kind": "noop", "rank": 1}, {"kind": "noop", "rank": 2}]});
    let answer = scene.expect(201, "POST", "/v1/batches", request);
    let (batch, items) = (text(&answer["id"]), answer["tasks"].as_array().unwrap());
    assert_eq!(items.len(), 2);
    for (at, item) in items.iter().enumerate() {
        let task = scene.ends_as("completed", &text(&item["id"]));
        assert_eq!((task["batchId"].as_str(), n(&task["rank"])), (Some(batch.as_str()), at as u64 + 1));
    }
    let shown = scene.get(&format!("/v1/batches/{batch}"));
    assert_eq!((shown["state"].as_str(), shown["name"].as_str()), (Some("finished"), Some("pair")));
    assert_eq!((n(&shown["counts"]["total"]), n(&shown["counts"]["completed"])), (2, 2));
}

/// A4.50: every item reaches its end, and the agent's counters show them all.
#[test]
fn every_item_reaches_its_end_and_is_counted_for_its_agent() {
    let scene = Scene::new();
    let tasks = [json!({}), json!({"payload": {"fail": "permanent"}}), json!({"payload": {"sleepMs": 5}})];
    let (_, ids) = scene.batch(json!({"defaults": {"kind": "noop", "agent": "a"}, "tasks": tasks}));
    let ends: Vec<String> = ids.iter().map(|id| text(&scene.end(id)["state"])).collect();
    assert_eq!(ends, ["completed", "failed", "completed"]);
    let agent = &scene.stats()["metrics"]["agents"]["a"];
    assert_eq!((n(&agent["submitted"]), n(&agent["completed"]), n(&agent["failed"])), (3, 2, 1));
}

/// A4.51–A4.56, B4.13: an empty batch, one too many, bad JSON, a parallelism of 0, a callback: refused, nothing stored.
#[test]
fn a_bad_batch_is_refused_whole() {
    let scene = Scene::new();
    let noop = json!({"kind": "noop"});
    let cases = [
        (json!({"tasks": []}), "tasks"),
        (json!({}), "tasks"),
        (json!({"tasks": vec![&noop; 1001]}), "tasks"),
        (json!({"tasks": [noop], "parallelism": 0}), "parallelism"),
        (json!({"tasks": [noop], "parallelism": -1}), "parallelism"),
        (json!({"tasks": [noop], "mode": "some"}), "mode"),
        (json!({"tasks": [noop], "callbackUrl": "http://127.0.0.1/"}), "callbackUrl"),
        (json!({"tasks": [noop], "defaults": {"agent": ""}}), "defaults.agent"),
        (json!({"tasks": [{"agent": "a"}]}), "tasks[0].kind"),
    ];
    for (body, field) in cases {
        let refusal = scene.problem(400, "POST", "/v1/batches", body);
        assert_eq!(refusal["field"], field, "{refusal:#}");
    }
    problem(400, &scene.post("/v1/batches", "{\"tasks\": [}"));
    assert_eq!(scene.ids("/v1/tasks").len(), 0);
    assert_eq!(
        scene.expect(201, "POST", "/v1/batches", json!({"tasks": vec![&noop; 1000]}))["tasks"]
            .as_array()
            .unwrap()
            .len(),
        1000
    );
}

/// B4.14: in mode all one invalid item is named, and nothing is stored.
#[test]
fn one_bad_item_stores_nothing_in_mode_all() {
    let scene = Scene::new();
    let before = scene.stats();
    let tasks = json!([{"kind": "noop"}, {"kind": "noop", "timeoutMs": 0}]);
    let refusal = scene.problem(400, "POST", "/v1/batches", json!({"tasks": tasks}));
    assert_eq!(refusal["field"], "tasks[1].timeoutMs");
    assert_eq!(scene.ids("/v1/tasks").len(), 0);
    assert_eq!(scene.stats()["metrics"], before["metrics"]);
}

/// A4.56 in mode partial: each item answers for itself; one that names a refused one is refused and says which.
#[test]
fn in_mode_partial_each_item_answers_for_itself() {
    let scene = Scene::new();
    let tasks = json!([
        {"kind": "noop", "name": "bad", "timeoutMs": 0},
        {"kind": "noop", "name": "good"},
        {"kind": "noop", "name": "child", "dependsOn": ["#bad"]},
        {"kind": "noop", "dependsOn": ["#child"]},
        {"kind": "noop", "dependsOn": ["#good"]},
    ]);
    let answer = scene.expect(201, "POST", "/v1/batches", json!({"mode": "partial", "tasks": tasks}));
    let items = answer["tasks"].as_array().unwrap();
    assert_eq!(items[0]["error"]["field"], "tasks[0].timeoutMs");
    for (at, parent) in [(2, "#bad"), (3, "#child")] {
        let error = &items[at]["error"];
        assert_eq!(error["code"], "parent_refused", "{error:#}");
        assert!(text(&error["detail"]).contains(parent), "{error:#}");
    }
    for at in [1, 4] {
        scene.ends_as("completed", &text(&items[at]["id"]));
    }
    let shown = scene.get(&format!("/v1/batches/{}", text(&answer["id"])));
    assert_eq!((n(&shown["counts"]["total"]), shown["state"].as_str()), (2, Some("finished")));
}

/// A4.57: over the agent's limit, mode partial takes what fits and refuses the rest with both numbers; mode all takes
/// nothing.
#[test]
fn a_limit_refuses_what_does_not_fit() {
    let scene = Scene::with("[limits]\nmaxQueuedPerAgent = 1\n[lanes]\nmain = 0\n");
    let batch = |mode: &str, agent: &str| json!({"mode": mode, "defaults": {"kind": "noop", "agent": agent}, "tasks": [{}, {}]});
    let refusal = scene.problem(429, "POST", "/v1/batches", batch("all", "a"));
    assert_eq!(refusal["code"], "queue_full");
    assert_eq!(scene.ids("/v1/tasks?agent=a&state=queued").len(), 0);
    let answer = scene.expect(201, "POST", "/v1/batches", batch("partial", "b"));
    assert_eq!(answer["tasks"][0]["state"], "queued");
    let error = &answer["tasks"][1]["error"];
    assert_eq!((error["code"].as_str(), n(&error["limit"])), (Some("queue_full"), 1));
}

/// A4.58: two agents' batches count for each of them.
#[test]
fn agents_counters_stay_apart() {
    let scene = Scene::new();
    for (agent, n_tasks) in [("a", 2), ("b", 3)] {
        let (_, ids) =
            scene.batch(json!({"defaults": {"kind": "noop", "agent": agent}, "tasks": vec![json!({}); n_tasks]}));
        ids.iter().for_each(|id| drop(scene.end(id)));
    }
    let metrics = &scene.stats()["metrics"];
    assert_eq!(n(&metrics["submitted"]), 5);
    assert_eq!((n(&metrics["agents"]["a"]["completed"]), n(&metrics["agents"]["b"]["completed"])), (2, 3));
}

/// B3 "in-batch dependencies cannot be expressed", put right: `#name` orders items of one batch, whatever their order.
#[test]
fn names_order_the_items_of_a_batch() {
    let scene = Scene::new();
    let tasks = json!([{"name": "last", "dependsOn": ["#mid", "#first"]}, {"name": "mid", "dependsOn": ["#first"]}, {"name": "first"}]);
    let (batch, ids) = scene.batch(json!({"defaults": {"kind": "noop"}, "tasks": tasks}));
    let marker = scene.submit(json!({"kind": "noop", "dependsOn": ids}));
    let events = scene.events_until(|event| is(event, "task.completed", &marker));
    let of_batch = events.iter().filter(|event| event["type"] == "task.completed" && event["batch"] == batch.as_str());
    let done: Vec<&str> = of_batch.map(|event| event["task"].as_str().unwrap()).collect();
    assert_eq!(done, [&ids[2], &ids[1], &ids[0]]);
    assert_eq!(scene.task(&ids[0])["dependsOn"], json!([ids[1], ids[2]]));
}

/// The issue: a cycle is refused and named.
#[test]
fn a_cycle_is_refused_and_named() {
    let scene = Scene::new();
    let tasks = json!([{"name": "a", "dependsOn": ["#b"]}, {"name": "b", "dependsOn": ["#a"]}]);
    let refusal = scene.problem(400, "POST", "/v1/batches", json!({"defaults": {"kind": "noop"}, "tasks": tasks}));
    assert_eq!(refusal["field"], "tasks[0].dependsOn");
    assert!(text(&refusal["detail"]).contains("a → b → a"), "{refusal:#}");
}

/// B3 "parallelism ignored", put right: never more of a batch at once than it says, and it finishes with one event.
#[test]
fn a_batch_never_runs_more_at_once_than_its_parallelism() {
    let scene = Scene::new();
    let defaults = json!({"kind": "noop", "payload": {"sleepMs": 60}});
    let (batch, ids) = scene.batch(json!({"parallelism": 2, "defaults": defaults, "tasks": vec![json!({}); 9]}));
    ids.iter().for_each(|id| drop(scene.ends_as("completed", id)));
    let marker = scene.submit(json!({"kind": "noop"}));
    let events = scene.events_until(|event| is(event, "task.completed", &marker));
    assert_eq!(peak(&events, &mut |event| event["batch"] == batch.as_str()), 2);
    let finals: Vec<&Value> = events.iter().filter(|event| event["type"] == "batch.finished").collect();
    assert_eq!(finals.len(), 1);
    assert_eq!(finals[0]["data"], json!({"total": 9, "completed": 9, "failed": 0, "cancelled": 0}));
    let place = |kind: &str| events.iter().rposition(|event| event["type"] == kind && event["batch"] == batch.as_str());
    assert!(place("batch.finished") > place("task.completed"), "the batch ends after its last task");
}

/// How many were between start and end at once, at most.
pub fn peak(events: &[Value], counts: &mut dyn FnMut(&Value) -> bool) -> usize {
    let (mut running, mut peak) = (0usize, 0);
    for event in events.iter().filter(|event| counts(event)) {
        match event["type"].as_str().unwrap() {
            "task.started" => running += 1,
            "task.completed" | "task.failed" | "task.retrying" | "task.cancelled" => running -= 1,
            _ => {}
        }
        peak = peak.max(running);
    }
    peak
}

/// Design 4: a repeated key inside one batch is one task, and the batch's own key answers the whole batch again.
#[test]
fn a_batch_has_idempotency_keys_too() {
    let scene = Scene::new();
    let item = json!({"kind": "noop", "idempotencyKey": "one"});
    let (_, ids) = scene.batch(json!({"tasks": [item, item]}));
    assert_eq!(ids[0], ids[1]);
    let body = json!({"idempotencyKey": "whole", "tasks": [{"kind": "noop"}, {"kind": "noop"}]});
    let first = scene.expect(201, "POST", "/v1/batches", body.clone());
    first["tasks"].as_array().unwrap().iter().for_each(|item| drop(scene.end(&text(&item["id"]))));
    assert_eq!(scene.expect(201, "POST", "/v1/batches", body), first);
    let other = json!({"idempotencyKey": "whole", "tasks": [{"kind": "noop"}]});
    scene.problem(422, "POST", "/v1/batches", other);
    assert_eq!(n(&scene.stats()["metrics"]["submitted"]), 3);
}
