//! Who is next.

use serde_json::{Value, json};

use crate::batches::peak;
use crate::scene::{Scene, is, n};

/// B4.18: submitted low, normal, high, critical, normal at concurrency 1: run critical, high, normal, normal, low.
#[test]
fn tiers_are_served_from_critical_to_low() {
    let scene = Scene::with("[lanes]\nmain = 1\n");
    let tiers = ["low", "normal", "high", "critical", "normal"];
    let started = started_behind_a_blocker(&scene, tiers.iter().map(|tier| json!({"kind": "noop", "priority": tier})));
    assert_eq!(started, [3, 2, 1, 4, 0]);
}

/// B4.19, A4.14: equal ones are served in the order of their submit.
#[test]
fn equal_tasks_are_served_in_submit_order() {
    let scene = Scene::with("[lanes]\nmain = 1\n");
    let started = started_behind_a_blocker(&scene, (0..8).map(|_| json!({"kind": "noop"})));
    assert_eq!(started, [0, 1, 2, 3, 4, 5, 6, 7]);
}

/// A4.13: inside one agent a lower rank goes first; observed in pinchtab as -3, 0, 0, 5, 5, 9.
#[test]
fn a_lower_rank_goes_first_inside_an_agent() {
    let scene = Scene::with("[lanes]\nmain = 1\n");
    let ranks = [5, 0, 9, -3, 5, 0];
    let started = started_behind_a_blocker(&scene, ranks.iter().map(|rank| json!({"kind": "noop", "rank": rank})));
    assert_eq!(started.iter().map(|at| ranks[*at]).collect::<Vec<_>>(), [-3, 0, 0, 5, 5, 9]);
    assert_eq!(started, [3, 1, 5, 0, 4, 2]);
}

/// A4.17: with one slot, agents take turns however much one of them has queued.
#[test]
fn agents_take_turns() {
    let scene = Scene::with("[lanes]\nmain = 1\n");
    let agents = ["a", "a", "a", "b"];
    let started = started_behind_a_blocker(&scene, agents.iter().map(|agent| json!({"kind": "noop", "agent": agent})));
    let first_two: Vec<&str> = started[..2].iter().map(|at| agents[*at]).collect();
    assert!(first_two.contains(&"a") && first_two.contains(&"b"), "{started:?}");
}

/// A4.18: an agent at its own limit waits, and others pass it.
#[test]
fn an_agent_at_its_limit_waits_and_others_pass() {
    let scene = Scene::with("[agents.a]\nmaxInflight = 1\n");
    let hold = |agent: &str| scene.submit(json!({"kind": "noop", "agent": agent, "payload": {"sleepMs": 600_000}}));
    let first = hold("a");
    scene.until_state(&first, "running");
    let (second, other) = (hold("a"), hold("b"));
    scene.until_state(&other, "running");
    assert_eq!(scene.state(&second), "queued");
    scene.cancel(&first);
    scene.until_state(&second, "running");
}

/// B4.20: never more at once than the limit; and B4's poll put right: all the slots are used.
#[test]
fn never_more_at_once_than_each_limit_and_no_fewer() {
    for config in [
        "[lanes]\nmain = 3\n",
        "[limits]\nmaxInflight = 3\n",
        "[limits]\nmaxInflightPerAgent = 3\n",
        "[kinds.noop]\nmaxInflight = 3\n",
    ] {
        let scene = Scene::with(config);
        let defaults = json!({"kind": "noop", "payload": {"sleepMs": 100}});
        let (batch, _) = scene.batch(json!({"defaults": defaults, "tasks": vec![json!({}); 9]}));
        let events = scene.events_until(|event| event["type"] == "batch.finished" && event["batch"] == batch.as_str());
        assert_eq!(peak(&events, &mut |_| true), 3, "{config}");
    }
}

/// Design 3: a named gate holds those that name it, and only those.
#[test]
fn a_named_gate_holds_those_that_name_it() {
    let scene = Scene::with("[gates.api]\nmaxInflight = 1\n");
    let gated = |ms: u64| scene.submit(json!({"kind": "noop", "gates": ["api"], "payload": {"sleepMs": ms}}));
    let first = gated(600_000);
    scene.until_state(&first, "running");
    let second = gated(0);
    scene.end(&scene.noop(json!({})));
    let explained = scene.get(&format!("/v1/tasks/{second}/explain"));
    let closed = explained["gates"].as_array().unwrap().iter().find(|gate| gate["open"] == false).unwrap();
    assert_eq!((closed["kind"].as_str(), closed["name"].as_str()), (Some("gate"), Some("api")));
    scene.cancel(&first);
    scene.ends_as("completed", &second);
}

/// Design 5: a critical task stops a preemptible one when there is no slot, which then runs again without losing a retry.
#[test]
fn a_critical_task_preempts_a_preemptible_one() {
    let scene = Scene::with("[lanes]\nmain = 1\n");
    let victim =
        json!({"kind": "noop", "priority": "low", "payload": {"sleepMs": 600_000}, "retry": {"maxRetries": 1}});
    let victim = scene.submit(victim);
    scene.until_state(&victim, "running");
    let critical = scene.submit(json!({"kind": "noop", "priority": "critical"}));
    scene.ends_as("completed", &critical);
    scene.until_state(&victim, "running");
    let task = scene.task(&victim);
    assert_eq!((n(&task["attempts"]), n(&task["retriesLeft"])), (2, 1), "{task:#}");
    assert!(is(&scene.events("types=task.preempted").next_event(), "task.preempted", &victim));
}

/// Design 3: `[agents.NAME] maxPriority` caps what an agent asks for.
#[test]
fn an_agents_priority_is_capped() {
    let scene = Scene::with("[agents.a]\nmaxPriority = \"normal\"\n");
    let id = scene.submit(json!({"kind": "noop", "agent": "a", "priority": "critical"}));
    assert_eq!(scene.task(&id)["priority"], "normal");
}

/// Submits behind a task that holds the only slot, frees it, and gives the order of the starts.
fn started_behind_a_blocker(scene: &Scene, bodies: impl Iterator<Item = Value>) -> Vec<usize> {
    let blocker = scene.blocker();
    let ids: Vec<String> = bodies.map(|body| scene.submit(body)).collect();
    scene.cancel(&blocker);
    ids.iter().for_each(|id| drop(scene.ends_as("completed", id)));
    let marker = scene.submit(json!({"kind": "noop", "priority": "low"}));
    scene.end(&marker);
    let events = scene.events_until(|event| is(event, "task.completed", &marker));
    let started = events.iter().filter(|event| event["type"] == "task.started");
    started.filter_map(|event| ids.iter().position(|id| event["task"] == id.as_str())).collect()
}
