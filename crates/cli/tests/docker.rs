//! Containers through the real binary and a real engine: they outlive their server, and none is left whatever is killed.

#![allow(clippy::unwrap_used)]

mod support;

#[allow(dead_code, reason = "each test file uses its own part")]
#[path = "api/scene.rs"]
mod scene;

#[path = "chaos/dice.rs"]
mod dice;
#[path = "../../exec/tests/support/engine.rs"]
mod engine;

use std::time::{Duration, SystemTime};

use dice::Dice;
use engine::{Engine, IMAGE};
use scene::{SOON, Scene, n, text};
use serde_json::{Value, json};
use support::{is_alive, runs, wait_until};

/// A container that appears when whoever asked for it is dead is looked for this often; and a little more.
const SWEEP_MAX: Duration = Duration::from_secs(90);

/// Losses do not end a task here: chance must not decide how it ends.
fn config(engine: &Engine) -> String {
    let socket = engine.socket();
    format!(
        "[docker]\nsocket = {socket:?}\nramMbMax = 1024\n[worker]\ngraceMs = 500\n[scheduling]\nmaxLost = 1000\n\
         [limits]\nmaxInflight = 6\n"
    )
}

fn task(fields: Value) -> Value {
    let mut payload = json!({ "image": IMAGE });
    payload.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({ "kind": "docker", "payload": payload })
}

/// Says that it is there, waits for a file in its directory, and says that it goes.
fn until_told() -> Value {
    task(json!({ "shell": "echo on; while [ ! -e go ]; do sleep 0.02; done; echo off" }))
}

impl Scene {
    fn until_says(&self, id: &str, word: &str) {
        wait_until(SOON, "the container speaks", || self.log_of(id).contains(word));
    }

    fn log_of(&self, id: &str) -> String {
        self.request("GET", &format!("/v1/tasks/{id}/logs"), "").body
    }

    fn tell(&self, id: &str) {
        std::fs::write(self.data().join("work").join(id).join("go"), "").unwrap();
    }
}

/// Those that run now, by what their runs say.
fn supervisors(scene: &Scene) -> Vec<u64> {
    let pid = |run: std::path::PathBuf| {
        let identity: Value = serde_json::from_slice(&std::fs::read(run.join("supervisor.json")).ok()?).ok()?;
        identity["pid"].as_u64().filter(|pid| is_alive(*pid))
    };
    runs(&scene.data()).into_iter().filter_map(pid).collect()
}

fn kill9(pid: u64) {
    // It may have ended already, which is what was wanted.
    let _ = std::process::Command::new("kill").args(["-s", "KILL", &pid.to_string()]).output();
}

fn none_is_left(engine: &Engine) {
    assert_eq!(engine.containers(), [""; 0]);
}

#[test]
fn docker_tells_of_ends_limits_and_what_is_wrong() {
    let engine = Engine::start();
    let scene = Scene::with(&config(&engine));

    let done = scene.ends_as("completed", &scene.submit(task(json!({ "command": ["echo", "hi"] }))));
    assert_eq!((&done["result"], n(&done["exit"]["exitCode"])), (&json!({ "exitCode": 0, "stdout": "hi\n" }), 0));

    let mut hog = task(json!({ "shell": "exec dd if=/dev/zero of=/tmp/x bs=1M count=100" }));
    hog["limits"] = json!({ "ramMb": 32 });
    hog["retry"] = json!({ "maxRetries": 0 });
    let failed = scene.ends_as("failed", &scene.submit(hog));
    assert_eq!(text(&failed["error"]["message"]), "out of memory: limit 32 MB");
    assert_eq!((&failed["exit"]["outOfMemory"], n(&failed["exit"]["exitCode"])), (&json!(true), 137));

    let mut slow = task(json!({ "shell": "trap '' TERM; while :; do sleep 1; done" }));
    slow["timeoutMs"] = json!(1500);
    slow["retry"] = json!({ "maxRetries": 0 });
    let failed = scene.ends_as("failed", &scene.submit(slow));
    assert_eq!(text(&failed["error"]["class"]), "timeout");

    for (fields, message) in [
        (json!({ "image": "no/such:1" }), "image no/such:1 is not there; pull it, or allow pull: true"),
        (json!({ "network": "host" }), "[docker] networks"),
    ] {
        let failed = scene.ends_as("failed", &scene.submit(task(fields)));
        assert_eq!((text(&failed["error"]["class"]), n(&failed["attempts"])), ("permanent".to_owned(), 1));
        assert!(text(&failed["error"]["message"]).contains(message), "{failed:#}");
    }
    let mut much = task(json!({ "command": ["true"] }));
    much["limits"] = json!({ "ramMb": 2048 });
    let failed = scene.ends_as("failed", &scene.submit(much));
    assert!(text(&failed["error"]["message"]).contains("[docker] ramMbMax = 1024"), "{failed:#}");
    let problem = scene.problem(400, "POST", "/v1/tasks", task(json!({ "privileged": true })));
    assert_eq!(text(&problem["field"]), "payload.privileged");

    // What the configuration says counts from the next start on.
    scene.expect(
        200,
        "PATCH",
        "/v1/config",
        json!({ "docker": { "networks": ["none", "host"], "limits": { "pids": 77 } } }),
    );
    let id = scene.submit(task(json!({ "network": "host", "shell": "echo on; sleep 1000" })));
    scene.until_says(&id, "on");
    let name = engine.containers().pop().unwrap();
    let asked = "{{.HostConfig.NetworkMode}} {{.HostConfig.PidsLimit}} {{.HostConfig.Memory}}";
    assert_eq!(engine.docker(&["inspect", "--format", asked, &name]), format!("host 77 {}", 512 << 20));
    assert_eq!(scene.cancel(&id).status, 202);
    scene.ends_as("cancelled", &id);
    none_is_left(&engine);
}

#[test]
fn docker_is_not_offered_without_an_engine() {
    let scene = Scene::with("[docker]\nsocket = \"/nowhere/docker.sock\"\n");
    let id = scene.submit(task(json!({ "command": ["true"] })));
    scene.until_state(&id, "queued");
    let why = scene.get(&format!("/v1/tasks/{id}/explain")).to_string();
    assert!(why.contains("docker"), "{why}");
}

#[test]
fn docker_outlives_its_server_and_is_removed_with_its_supervisor() {
    let engine = Engine::start();
    let mut scene = Scene::with(&config(&engine));

    let id = scene.submit(until_told());
    scene.until_says(&id, "on");
    let before = engine.docker(&["ps", "--quiet", "--no-trunc"]);
    scene.server_mut().kill9();
    scene.start_again();
    assert_eq!(scene.state(&id), "running");
    assert_eq!(engine.docker(&["ps", "--quiet", "--no-trunc"]), before, "the very same container goes on");
    scene.tell(&id);
    let done = scene.ends_as("completed", &id);
    assert_eq!((n(&done["attempts"]), text(&done["result"]["stdout"])), (1, "on\noff\n".to_owned()));
    assert_eq!(scene.steps(&id), ["created", "queued", "assigned", "started", "completed"]);
    none_is_left(&engine);

    // The supervisor alone: the server sees it, and the task runs again in another container.
    let id = scene.submit(until_told());
    scene.until_says(&id, "on");
    let first = engine.docker(&["ps", "--quiet", "--no-trunc"]);
    supervisors(&scene).into_iter().for_each(kill9);
    wait_until(SOON, "another attempt runs", || {
        let running = engine.docker(&["ps", "--quiet", "--no-trunc"]);
        n(&scene.task(&id)["attempts"]) == 2 && !running.is_empty() && running != first
    });
    assert_eq!(engine.containers().len(), 1, "never two of one task");

    // Both: what they leave is found at the next start.
    scene.server_mut().kill9();
    let second = engine.docker(&["ps", "--quiet", "--no-trunc"]);
    supervisors(&scene).into_iter().for_each(kill9);
    scene.start_again();
    assert!(
        !engine.docker(&["ps", "--all", "--quiet", "--no-trunc"]).contains(&second),
        "it is gone when the server is ready"
    );
    wait_until(SOON, "another attempt runs", || n(&scene.task(&id)["attempts"]) == 3);
    scene.until_says(&id, "on");
    scene.tell(&id);
    scene.ends_as("completed", &id);
    none_is_left(&engine);
}

#[test]
fn docker_leaves_no_container_after_30_random_kills() {
    let seed = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    eprintln!("seed {seed}");
    let mut dice = Dice::new(seed, 0);
    let engine = Engine::start();
    let mut scene = Scene::with(&config(&engine));
    engine.docker(&["create", "--name", "foreign", "--label", "runyard.owner=somebody", IMAGE, "true"]);
    let line = "echo work; sleep 0.3; echo '{\"result\":\"done\"}' >> $RUNYARD_REPORT";
    let submit = |scene: &Scene| {
        let mut task = task(json!({ "shell": line }));
        task["retry"] = json!({ "maxRetries": 100, "backoffMs": 1 });
        scene.submit(task)
    };
    let (mut ids, mut n_servers, mut n_supervisors) = (Vec::new(), 0, 0);
    for _ in 0..30 {
        while ids.len() < 12 || dice.one_in(2) {
            ids.push(submit(&scene));
        }
        std::thread::park_timeout(dice.ms(0..400));
        let with_server = dice.one_in(3);
        if with_server {
            scene.server_mut().kill9();
            n_servers += 1;
        }
        let victims = supervisors(&scene);
        let victims = match dice.between(0..3) {
            0 if with_server => Vec::new(),
            1 => victims,
            _ => dice.pick(&victims).copied().into_iter().collect(),
        };
        n_supervisors += victims.len();
        victims.into_iter().for_each(kill9);
        if with_server {
            scene.start_again();
        }
    }
    let mut n_attempts = 0;
    for id in &ids {
        let task = scene.ends_as("completed", id);
        assert_eq!(task["result"], "done", "{task:#}");
        n_attempts += n(&task["attempts"]);
    }
    let left = engine.containers();
    eprintln!("killed: {n_servers} servers, {n_supervisors} supervisors");
    eprintln!("{} tasks completed in {n_attempts} attempts; {left:?} right after the last", ids.len());
    assert!(n_supervisors > 10 && n_attempts > ids.len() as u64, "something was lost on the way");
    wait_until(SWEEP_MAX, "only what is not ours is left", || engine.containers() == ["foreign"]);
    engine.docker(&["rm", "foreign"]);
    wait_until(SOON, "nothing of them is alive", || !ids.iter().any(|id| is_process_of(id)));
}

/// Is there a process with this task in its environment, in whichever container?
fn is_process_of(id: &str) -> bool {
    let mark = format!("RUNYARD_TASK_ID={id}");
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let environs = entries.filter_map(|entry| std::fs::read(entry.path().join("environ")).ok());
    environs.into_iter().any(|environ| environ.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()))
}

#[test]
fn docker_removes_at_start_what_was_created_and_never_started() {
    let engine = Engine::start();
    let mut scene = Scene::with(&config(&engine));
    let id = scene.submit(until_told());
    scene.until_says(&id, "on");
    let name = engine.containers().pop().unwrap();
    let owner = engine.docker(&["inspect", "--format", "{{index .Config.Labels \"runyard.owner\"}}", &name]);
    scene.server_mut().kill9();
    let label = format!("runyard.owner={owner}");
    engine.docker(&["create", "--name", "stray", "--label", &label, IMAGE, "true"]);
    engine.docker(&["create", "--name", "foreign", "--label", "runyard.owner=other", IMAGE, "true"]);
    scene.start_again();
    let mut left = engine.containers();
    left.sort();
    assert_eq!(left, ["foreign".to_owned(), name], "the adopted one goes on, a foreign one is not touched");
    scene.tell(&id);
    scene.ends_as("completed", &id);
    assert_eq!(engine.containers(), ["foreign"]);
}
