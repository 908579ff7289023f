//! How a process ends, what is said of it, and what it is given: its verdict, its exit, its limits, its environment.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::scene::{SOON, Scene, n, text};
use crate::support::{runs, wait_until};

impl Scene {
    fn run(&self, shell: &str) -> String {
        self.submit(json!({"kind": "process", "payload": {"shell": shell}, "retry": {"maxRetries": 0}}))
    }

    /// The pid of its command, once it runs.
    fn command(&self, id: &str) -> String {
        let mut pid = String::new();
        wait_until(SOON, "its command runs", || {
            let bytes = std::fs::read(self.data().join(format!("running/task_{id}.json"))).unwrap_or_default();
            let lease: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            pid = lease["metadata"]["command_pid"].to_string();
            pid != "null"
        });
        pid
    }

    fn stdout_of(&self, id: &str) -> String {
        text(&self.ends_as("completed", id)["result"]["stdout"])
    }
}

/// The issue: exit 0 is well, 124 is a timeout, everything else is a failure of the work. A stop has no code of its own:
/// who ends with 130 and was not asked to stop has failed.
#[test]
fn each_exit_code_has_its_verdict() {
    let scene = Scene::new();
    for (code, class) in [(1, "task"), (3, "task"), (124, "timeout"), (130, "task"), (143, "task")] {
        let task = scene.ends_as("failed", &scene.run(&format!("exit {code}")));
        assert_eq!(task["error"], json!({"class": class, "message": format!("exit code {code}")}));
        assert_eq!((&task["exit"]["exitCode"], &task["exit"]["signal"]), (&json!(code), &Value::Null));
    }
    let well = scene.ends_as("completed", &scene.run("exit 0"));
    assert_eq!((n(&well["exit"]["exitCode"]), &well["error"]), (0, &Value::Null));
}

#[test]
fn who_ends_with_130_because_it_was_asked_to_is_cancelled() {
    let scene = Scene::new();
    let id = scene.run("trap 'exit 130' INT TERM; echo ready; while :; do sleep 0.05; done");
    let log = format!("/v1/tasks/{id}/logs");
    wait_until(SOON, "it listens", || scene.request("GET", &log, "").body == "ready\n");
    assert_eq!(scene.cancel(&id).status, 202);
    let task = scene.ends_as("cancelled", &id);
    assert_eq!((&task["error"], n(&task["exit"]["exitCode"])), (&Value::Null, 130));
}

#[test]
fn a_signal_is_named() {
    let scene = Scene::new();
    let crashed = scene.ends_as("failed", &scene.run("kill -SEGV $$"));
    assert_eq!((&crashed["error"]["class"], &crashed["exit"]["signal"]), (&json!("task"), &json!("SIGSEGV")));
    assert!(text(&crashed["error"]["message"]).contains("SIGSEGV"), "{crashed:#}");
    let id = scene.run("exec sleep 1000");
    let killed = std::process::Command::new("kill").args(["-s", "KILL", &scene.command(&id)]).status().unwrap();
    assert!(killed.success());
    let killed = scene.ends_as("failed", &id);
    assert_eq!((&killed["error"]["class"], &killed["exit"]["signal"]), (&json!("task"), &json!("SIGKILL")));
    assert!(text(&killed["error"]["message"]).contains("SIGKILL"), "{killed:#}");
    assert_eq!(killed["exit"]["exitCode"], Value::Null);
}

/// The exit record is kept beside the log: it says the same before and after a restart, and the run's own directory is
/// gone.
#[test]
fn an_ended_process_tells_what_it_took() {
    let mut scene = Scene::new();
    let shell = "[ $RUNYARD_ATTEMPT = 1 ] && exit 7; i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; echo done";
    let retry = json!({"maxRetries": 1, "backoffMs": 1});
    let id = scene.submit(json!({"kind": "process", "payload": {"shell": shell}, "retry": retry}));
    let exit = scene.ends_as("completed", &id)["exit"].clone();
    assert_eq!((n(&exit["attempt"]), n(&exit["exitCode"])), (2, 0), "{exit:#}");
    assert!(exit["cpuSeconds"].as_f64().unwrap() > 0.0 && n(&exit["peakRssBytes"]) > 100_000, "{exit:#}");
    assert!(n(&exit["wallMs"]) > 0 && text(&exit["endedAt"]).ends_with('Z'), "{exit:#}");
    wait_until(SOON, "the directories of its runs are removed", || runs(&scene.data()).is_empty());
    scene.restart();
    assert_eq!(scene.task(&id)["exit"], exit);
    assert_eq!(scene.get("/v1/tasks")["items"][0]["exit"], Value::Null, "a list reads no files");
    for attempt in [1, 2] {
        let record = scene.data().join(format!("logs/{}/{id}.{attempt}.exit.json", &id[id.len() - 2..]));
        let record: Value = serde_json::from_slice(&std::fs::read(record).unwrap()).unwrap();
        assert_eq!((text(&record["taskId"]), n(&record["attempt"])), (id.clone(), attempt));
    }
    let shown = std::process::Command::new(env!("CARGO_BIN_EXE_runyard"))
        .args(["show", &id, "--url", &format!("http://{}", scene.address)])
        .output()
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("\nexit      code 0 of attempt 2 after "), "{shown}");
}

/// While the second attempt runs, the exit of the first is what is known.
#[test]
fn a_retry_shows_the_exit_before_it() {
    let scene = Scene::new();
    let shell = "[ $RUNYARD_ATTEMPT = 1 ] && exit 7; exec sleep 1000";
    let id = scene.submit(json!({"kind": "process", "payload": {"shell": shell}, "retry": {"backoffMs": 1}}));
    wait_until(SOON, "it runs again", || n(&scene.task(&id)["attempts"]) == 2);
    let task = scene.task(&id);
    assert_eq!((n(&task["exit"]["attempt"]), n(&task["exit"]["exitCode"])), (1, 7), "{task:#}");
}

const HUNGRY: &str = "x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo ${#x}";

#[test]
fn out_of_memory_is_said_as_such() {
    let scene = Scene::new();
    let payload = json!({"shell": HUNGRY});
    let limits = json!({"ramMb": 64});
    let id = scene.submit(json!({"kind": "process", "payload": payload, "limits": limits, "retry": {"maxRetries": 0}}));
    let task = scene.ends_as("failed", &id);
    assert_eq!(task["error"]["class"], "task", "{task:#}");
    match task["notEnforced"].as_array().map_or(&[][..], Vec::as_slice) {
        [] => assert_eq!(task["error"]["message"], "out of memory: limit 64 MB"),
        // Each process by itself: the shell says it with its own words.
        [sentence] => assert!(text(sentence).contains("each process by itself"), "{sentence}"),
        more => panic!("{more:?}"),
    }
}

/// `[process]`: what a process gets that says nothing of its own; a change counts for the next start.
#[test]
fn a_process_gets_the_configured_sandbox_and_limits_unless_it_says_otherwise() {
    let config = "[process]\nsandbox = \"bubblewrap\"\n[process.limits]\nramMb = 64\noutputBytes = 2000\n";
    let scene = Scene::with(config);
    let process = |payload: Value, limits: Value| {
        scene.submit(json!({"kind": "process", "payload": payload, "limits": limits, "retry": {"maxRetries": 0}}))
    };
    let own = std::fs::read_link("/proc/self/ns/net").unwrap().to_string_lossy().into_owned();
    let network = "readlink /proc/self/ns/net";
    let is_apart = |payload: Value| scene.stdout_of(&process(payload, json!({}))).trim() != own;
    assert!(is_apart(json!({"shell": network})));
    assert!(!is_apart(json!({"shell": network, "network": true})), "it may say more of the sandbox it gets");
    assert!(!is_apart(json!({"shell": network, "sandbox": "none"})), "its own word wins");
    let hungry = scene.ends_as("failed", &process(json!({"shell": HUNGRY}), json!({"pids": 500})));
    let said = format!("{} {}", hungry["error"]["message"], hungry["notEnforced"]);
    assert!(said.contains("out of memory: limit 64 MB") || said.contains("each process by itself"), "{said}");
    assert_eq!(scene.stdout_of(&process(json!({"shell": HUNGRY}), json!({"ramMb": 2000}))), "200000000\n");
    let loud = json!({"shell": "yes 0123456789 | head -n 1000"});
    let log_of = |id: &str| scene.request("GET", &format!("/v1/tasks/{id}/logs"), "").body.len();
    let (cut, whole) = (process(loud.clone(), json!({})), process(loud, json!({"outputBytes": 100_000})));
    scene.ends_as("completed", &cut);
    scene.ends_as("completed", &whole);
    assert!(log_of(&cut) < 3000 && log_of(&whole) == 11_000, "{} {}", log_of(&cut), log_of(&whole));
    scene.expect(200, "PATCH", "/v1/config", json!({"process": {"sandbox": "none"}}));
    assert!(!is_apart(json!({"shell": network})), "a change counts for the next start");
    let refused = scene.problem(
        400,
        "POST",
        "/v1/tasks",
        json!({"kind": "process", "payload": {"shell": "true", "network": true}}),
    );
    assert_eq!(refused["field"], "payload.network");
    let refused = scene.problem(400, "PATCH", "/v1/config", json!({"process": {"limits": {"cpu": 0}}}));
    assert_eq!(refused["field"], "process.limits.cpu");
}

/// The issue: the environment of the server is not the task's.
#[test]
fn a_process_knows_its_task_and_nothing_of_its_server() {
    let scene = Scene::new();
    let servers = std::fs::read_to_string(format!("/proc/{}/environ", scene.pid())).unwrap();
    assert!(servers.contains("SECRET_OF_THE_SERVER="), "the server has something that is not the task's");
    let task = json!({"kind": "process", "agent": "ada", "session": "chat:7", "deadline": "2100-01-02T03:04:05Z",
        "payload": {"shell": "env -0; printf '\\0'; cat task.json", "env": {"OWN": "x"}}, "limits": {"pids": 50}});
    let id = scene.submit(task);
    let stdout = scene.stdout_of(&id);
    let (env, file) = stdout.split_once("\0\0").unwrap();
    let env: BTreeMap<&str, &str> = env.split('\0').filter_map(|variable| variable.split_once('=')).collect();
    let work_dir = scene.data().canonicalize().unwrap().join("work").join(&id);
    for (name, value) in [
        ("RUNYARD_TASK_ID", id.as_str()),
        ("RUNYARD_AGENT", "ada"),
        ("RUNYARD_ATTEMPT", "1"),
        ("RUNYARD_SESSION", "chat:7"),
        ("RUNYARD_DEADLINE", "2100-01-02T03:04:05.000Z"),
        ("RUNYARD_WORKDIR", work_dir.to_str().unwrap()),
        ("PWD", work_dir.to_str().unwrap()),
        ("OWN", "x"),
    ] {
        assert_eq!(env.get(name), Some(&value), "{name}");
    }
    let known = ["PATH", "HOME", "LANG", "TZ", "USER", "TMPDIR", "PWD", "OLDPWD", "SHLVL", "_", "OWN"];
    let foreign = env.keys().filter(|name| !known.contains(name) && !name.starts_with("RUNYARD_"));
    assert_eq!(foreign.collect::<Vec<_>>(), [&""; 0]);
    let file: Value = serde_json::from_str(file).unwrap();
    assert_eq!((&file["id"], &file["agent"], &file["session"]), (&json!(id), &json!("ada"), &json!("chat:7")));
    assert_eq!((n(&file["attempt"]), &file["deadline"]), (1, &json!("2100-01-02T03:04:05.000Z")));
    assert_eq!((&file["limits"]["pids"], &file["payload"]["env"]), (&json!(50), &Value::Null));
}
