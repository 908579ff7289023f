//! Tasks that wait for other tasks.

use serde_json::json;

use crate::scene::{Peer, Reply, Scene, is, ms, n, text};

const UNKNOWN: &str = "01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11";

/// B4.21: with two slots, two dependents of one task run together, both after it.
#[test]
fn dependents_run_together_after_their_parent() {
    let scene = Scene::with("[lanes]\nmain = 2\n");
    let parent = scene.blocker();
    let dependent = || {
        scene.submit(json!({"kind": "noop", "dependsOn": [parent], "onDependencyFailure": "run", "payload": {"sleepMs": 600_000}}))
    };
    let (first, second) = (dependent(), dependent());
    assert_eq!((scene.state(&first), scene.state(&second)), ("waiting".into(), "waiting".into()));
    scene.cancel(&parent);
    scene.until_state(&first, "running");
    scene.until_state(&second, "running");
    let (parent, first) = (scene.task(&parent), scene.task(&first));
    assert!(ms(&first["startedAt"]) >= ms(&parent["finishedAt"]));
}

/// B4.26: a waiting task runs when its dependency completes; one that is complete already holds nobody.
#[test]
fn a_waiting_task_runs_when_its_dependency_completes() {
    let scene = Scene::new();
    let parent = scene.submit(json!({"kind": "noop", "delayMs": 600_000}));
    let child = scene.submit(json!({"kind": "noop", "dependsOn": [parent, parent]}));
    assert_eq!(scene.state(&child), "waiting");
    scene.expect(200, "PATCH", &format!("/v1/tasks/{parent}"), json!({"runAt": crate::scene::from_now(0)}));
    scene.ends_as("completed", &child);
    assert_eq!(scene.state(&parent), "completed");
    let late = scene.submit(json!({"kind": "noop", "dependsOn": [parent]}));
    scene.ends_as("completed", &late);
}

/// B4.22–B4.24: a failed or cancelled dependency cancels its dependents, transitively, with a reason; none of them runs.
#[test]
fn a_bad_end_cancels_dependents_transitively() {
    let scene = Scene::with("[lanes]\nmain = 0\n");
    for bad_end in ["failed", "cancelled"] {
        let parent = scene.noop(json!({"fail": "permanent"}));
        let child = scene.submit(json!({"kind": "noop", "dependsOn": [parent]}));
        let grandchild = scene.submit(json!({"kind": "noop", "dependsOn": [child]}));
        if bad_end == "cancelled" {
            scene.cancel(&parent);
        }
        scene.expect(200, "PUT", "/v1/lanes/main", json!({"limit": 5}));
        scene.ends_as(bad_end, &parent);
        for id in [&child, &grandchild] {
            let task = scene.ends_as("cancelled", id);
            assert_eq!(n(&task["attempts"]), 0);
            assert!(text(&task["reason"]).contains("depend"), "{task:#}");
        }
        scene.expect(200, "PUT", "/v1/lanes/main", json!({"limit": 0}));
    }
}

/// Design 3: a dependent may also fail, or run all the same.
#[test]
fn a_dependent_chooses_what_a_bad_end_means() {
    let scene = Scene::new();
    let (_, ids) = scene.batch(json!({"defaults": {"kind": "noop"}, "tasks": [
        {"name": "bad", "payload": {"fail": "permanent"}},
        {"dependsOn": ["#bad"], "onDependencyFailure": "fail"},
        {"dependsOn": ["#bad"], "onDependencyFailure": "run"},
    ]}));
    scene.ends_as("failed", &ids[1]);
    scene.ends_as("completed", &ids[2]);
}

/// B3 "a dependent polled while its parent is in back-off is cancelled", put right: a parent that will be retried keeps
/// its dependents waiting.
#[test]
fn a_parent_in_its_backoff_keeps_its_dependents_waiting() {
    let scene = Scene::new();
    let peer = Peer::start(|n| if n == 0 { Reply::text(500, "") } else { Reply::json(json!({})) });
    let parent = scene.submit(peer.task(json!({"retry": {"backoffMs": 1500}})));
    let child = scene.submit(json!({"kind": "noop", "dependsOn": [parent]}));
    scene.until_state(&parent, "scheduled");
    assert_eq!(scene.state(&child), "waiting");
    scene.ends_as("completed", &child);
}

/// B4.25: an unknown dependency is waited for and explained.
#[test]
fn an_unknown_dependency_is_waited_for_and_explained() {
    let scene = Scene::new();
    let id = scene.submit(json!({"kind": "noop", "dependsOn": [UNKNOWN]}));
    assert_eq!(scene.state(&id), "waiting");
    let explained = scene.get(&format!("/v1/tasks/{id}/explain"));
    let gate = &explained["gates"][0];
    assert_eq!((gate["kind"].as_str(), gate["open"].as_bool()), (Some("dependencies"), Some(false)), "{explained:#}");
}

/// Design 15: a missing dependency fails the task after dependencyTimeoutMs, or at its deadline.
#[test]
fn waiting_for_a_dependency_ends_at_its_timeout_or_the_deadline() {
    let scene = Scene::new();
    let timed = scene.submit(json!({"kind": "noop", "dependsOn": [UNKNOWN], "dependencyTimeoutMs": 100}));
    let deadline = crate::scene::from_now(1000);
    let dated = scene.submit(json!({"kind": "noop", "dependsOn": [UNKNOWN], "deadline": deadline}));
    assert!(text(&scene.ends_as("failed", &timed)["error"]["message"]).contains("depend"));
    assert_eq!(scene.ends_as("failed", &dated)["error"]["class"], "deadline");
}

/// B3 "two critical tasks with unknown dependencies starve everything", put right.
#[test]
fn tasks_that_wait_for_others_hold_nobody_up() {
    let scene = Scene::with("[lanes]\nmain = 1\n");
    let stuck = json!({"kind": "noop", "priority": "critical", "dependsOn": [UNKNOWN]});
    scene.batch(json!({"tasks": vec![stuck; 20]}));
    let free = scene.submit(json!({"kind": "noop", "priority": "low"}));
    scene.ends_as("completed", &free);
}

/// Design 11: a parent with many dependents frees all of them.
#[test]
fn a_parent_frees_all_of_its_dependents() {
    let scene = Scene::with("[limits]\nmaxInflight = 5000\n[lanes]\nmain = 5000\n");
    let parent = scene.submit(json!({"kind": "noop", "delayMs": 600_000}));
    let child = json!({"dependsOn": [parent]});
    let batches: Vec<String> =
        (0..2).map(|_| scene.batch(json!({"defaults": {"kind": "noop"}, "tasks": vec![&child; 1000]})).0).collect();
    scene.expect(200, "PATCH", &format!("/v1/tasks/{parent}"), json!({"runAt": crate::scene::from_now(0)}));
    for batch in &batches {
        let mut stream = scene.events(&format!("types=batch.finished&batch={batch}"));
        let event = stream.next_event();
        assert!(is(&event, "batch.finished", batch));
        assert_eq!(n(&event["data"]["completed"]), 1000, "{event:#}");
    }
}
