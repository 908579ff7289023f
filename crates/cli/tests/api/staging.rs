//! What becomes of files and working directories when servers come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::scene::{Peer, Reply, SOON, Scene, n, text};
use crate::support::{runs, wait_until};

/// A peer that says nothing until it is told to.
struct Slow {
    peer: Peer,
    speaks: Arc<AtomicBool>,
}

impl Slow {
    fn start() -> Slow {
        let speaks = Arc::new(AtomicBool::new(false));
        let its = speaks.clone();
        let reply = move |_| if its.load(Ordering::SeqCst) { Reply::text(200, "from afar") } else { Reply::Silence };
        Slow { peer: Peer::start(reply), speaks }
    }

    fn speak(&self) {
        self.speaks.store(true, Ordering::SeqCst);
    }

    /// A task that cannot afford to lose an attempt.
    fn task(&self, more: Value) -> Value {
        let files = json!([{"inline": "1", "path": "first"}, {"url": self.peer.url(), "path": "a"}]);
        let payload = json!({"shell": "cat a; ls", "files": files});
        let mut task = json!({"kind": "process", "retry": {"maxRetries": 0}, "payload": payload});
        task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        task
    }

    fn until_asked(&self, n_times: usize) {
        wait_until(SOON, "it is asked for the file", || self.peer.asked().len() == n_times);
    }
}

impl Scene {
    fn work_names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.data().join("work")).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

/// It counts as begun, so that neither the time a start may take nor a loss is held against it.
#[test]
fn a_download_may_take_longer_than_a_start() {
    let scene = Scene::with("[workers]\nassignTimeoutMs = 200\n");
    let slow = Slow::start();
    let id = scene.submit(slow.task(json!({})));
    scene.until_state(&id, "running");
    let quick = scene.noop(json!({"sleepMs": 600}));
    scene.ends_as("completed", &quick);
    assert_eq!((scene.state(&id).as_str(), slow.peer.asked().len()), ("running", 1));
    scene.cancel(&id);
    scene.ends_as("cancelled", &id);
    slow.peer.until_hung_up();
    wait_until(SOON, "nothing is left of it", || scene.work_names().is_empty() && runs(&scene.data()).is_empty());
}

#[test]
fn the_time_of_staging_is_the_attempts_own() {
    let scene = Scene::new();
    let slow = Slow::start();
    let id = scene.submit(slow.task(json!({"timeoutMs": 300})));
    let task = scene.ends_as("failed", &id);
    assert_eq!((&task["error"]["class"], n(&task["attempts"])), (&json!("timeout"), 1));
    slow.peer.until_hung_up();
}

/// Neither a crash nor a clean stop in the middle of it costs the task anything.
#[test]
fn a_task_whose_files_were_being_staged_is_handed_back() {
    for is_clean in [false, true] {
        let mut scene = Scene::new();
        let slow = Slow::start();
        let id = scene.submit(slow.task(json!({})));
        scene.until_state(&id, "running");
        slow.until_asked(1);
        match is_clean {
            true => assert!(scene.server_mut().terminate().success()),
            false => scene.server_mut().kill9(),
        }
        slow.speak();
        scene.start_again();
        let task = scene.ends_as("completed", &id);
        assert_eq!(task["result"]["stdout"], "from afara\nfirst\ntask.json\n");
        let steps = scene.steps(&id);
        assert!(!steps.iter().any(|step| step.contains("lost")), "clean {is_clean}: {steps:?}");
        wait_until(SOON, "nothing is left of it", || scene.work_names().is_empty() && runs(&scene.data()).is_empty());
    }
}

/// Twice in a row: the first server has died, and so has the one that found it.
#[test]
fn what_was_handed_back_is_known_until_it_is_stored() {
    let mut scene = Scene::new();
    let slow = Slow::start();
    let id = scene.submit(slow.task(json!({})));
    scene.until_state(&id, "running");
    slow.until_asked(1);
    scene.server_mut().kill9();
    scene.start_again();
    slow.until_asked(2);
    scene.server_mut().kill9();
    slow.speak();
    scene.start_again();
    scene.ends_as("completed", &id);
    let steps = scene.steps(&id);
    assert!(!steps.iter().any(|step| step.contains("lost")), "{steps:?}");
}

#[test]
fn what_a_process_left_is_collected_by_the_next_server() {
    let mut scene = Scene::new();
    let go = scene.home().join("go");
    let line = format!("echo on; while [ ! -e {} ]; do sleep 0.02; done; echo abc > a; mkfifo p", go.display());
    let id = scene.submit(json!({"kind": "process", "payload": {"shell": line, "outputs": ["*"]}}));
    wait_until(SOON, "it runs", || scene.request("GET", &format!("/v1/tasks/{id}/logs"), "").body.contains("on"));
    scene.server_mut().kill9();
    std::fs::write(&go, "").unwrap();
    let ended = scene.data().join(format!("runs/{id}-1/exit.json"));
    wait_until(SOON, "it has ended", || ended.exists());
    assert_eq!(scene.work_names(), [&*id], "it is there until somebody collects");
    scene.start_again();
    let task = scene.ends_as("completed", &id);
    assert_eq!(n(&task["attempts"]), 1);
    assert_eq!(scene.artifact(&id, "a").body, "abc\n");
    assert_eq!(text(&scene.artifacts(&id)["leftOut"][0]["path"]), "p");
    assert_eq!(scene.work_names(), Vec::<String>::new());
    // A restart later nothing is collected again, and nothing is lost.
    scene.restart();
    assert_eq!(scene.artifact(&id, "a").body, "abc\n");
}

#[test]
fn an_adopted_process_is_collected_too() {
    let mut scene = Scene::new();
    let go = scene.home().join("go");
    let line = format!("echo on; while [ ! -e {} ]; do sleep 0.02; done; echo abc > a", go.display());
    let id = scene.submit(json!({"kind": "process", "payload": {"shell": line, "outputs": ["a"]}}));
    wait_until(SOON, "it runs", || scene.request("GET", &format!("/v1/tasks/{id}/logs"), "").body.contains("on"));
    scene.restart();
    std::fs::write(&go, "").unwrap();
    scene.ends_as("completed", &id);
    assert_eq!(scene.artifact(&id, "a").body, "abc\n");
    assert_eq!(scene.work_names(), Vec::<String>::new());
}

#[test]
fn a_kept_directory_outlives_the_server_and_goes_with_its_task() {
    let mut scene = Scene::with("[process]\nworkDir = \"keepOnFailure\"\n[retention]\ntasksMs = 600000\n");
    let fails = scene.submit(json!({"kind": "process", "ttlMs": 1, "retry": {"maxRetries": 0},
        "payload": {"shell": "echo 1 > mark; echo 2 > out; exit 3", "outputs": ["out"]}}));
    let completes = scene.leaves("echo 1 > mark", json!({}));
    let kept = scene.data().join("work").join(&fails).join("mark");
    wait_until(SOON, "it has ended", || {
        scene.request("GET", &format!("/v1/tasks/{fails}"), "").status == 404 || kept.exists()
    });
    assert!(!scene.data().join("work").join(completes).exists());
    scene.restart();
    wait_until(SOON, "the task is forgotten", || scene.request("GET", &format!("/v1/tasks/{fails}"), "").status == 404);
    wait_until(SOON, "its files go with it", || {
        let artifacts = std::fs::read_dir(scene.data().join("artifacts")).into_iter().flatten().flatten();
        let n_artifacts = artifacts.flat_map(|folder| std::fs::read_dir(folder.path())).flatten().count();
        scene.work_names().is_empty() && n_artifacts == 0
    });
}

/// A task's own word wins, and a change counts for the next start.
#[test]
fn the_limits_of_files_are_configured_and_reloaded() {
    let scene = Scene::with("[process]\nfilesBytesMax = 10\nartifactsMax = 1\n");
    let submit = |content: &str| {
        let payload =
            json!({"shell": "echo > a; echo > b", "files": [{"inline": content, "path": "f"}], "outputs": ["?"]});
        let id = scene.submit(json!({"kind": "process", "retry": {"maxRetries": 0}, "payload": payload}));
        scene.end(&id)
    };
    let refused = submit("eleven chars");
    assert_eq!((&refused["state"], &refused["error"]["class"]), (&json!("failed"), &json!("permanent")));
    assert!(text(&refused["error"]["message"]).contains("process.filesBytesMax"), "{refused:#}");
    let one = submit("ten");
    assert_eq!(scene.artifacts(&text(&one["id"]))["items"].as_array().unwrap().len(), 1);
    scene.expect(200, "PATCH", "/v1/config", json!({"process": {"filesBytesMax": 100, "artifactsMax": 5}}));
    let more = submit("eleven chars");
    assert_eq!(
        (&more["state"], scene.artifacts(&text(&more["id"]))["items"].as_array().unwrap().len()),
        (&json!("completed"), 3)
    );
}
