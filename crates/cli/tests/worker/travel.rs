//! What travels between a task and its server: output, progress, files, input, secrets, results.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::site::{SOON, Site, process};
use crate::support::{is_alive, wait_until};

#[test]
fn a_task_runs_on_the_worker_and_its_output_is_read_while_it_runs() {
    let site = Site::new();
    let host = site.host("one", "a", &[]);
    let go = site.home().join("go");
    let line = format!("echo on $RUNYARD_WORKDIR; while [ ! -e {} ]; do sleep 0.02; done; echo off >&2", go.display());
    let id = site.shell("a", &line);
    site.until_logged(&id, &format!("on {}", host.data().canonicalize().unwrap().join("work").join(&id).display()));
    assert_eq!(site.state(&id), "running");
    let worker = site.worker("one");
    assert_eq!((worker["status"].as_str(), worker["running"].clone()), (Some("busy"), json!([id])), "{worker:#}");
    assert!(worker["metrics"]["ramFreeMb"].as_u64() > Some(0), "{worker:#}");
    std::fs::write(&go, "").unwrap();
    let task = site.ends_as("completed", &id);
    assert_eq!((&task["attempts"], &task["result"]["exitCode"]), (&json!(1), &json!(0)), "{task:#}");
    assert!(site.log(&id).contains("off"), "the end of the log comes before the end of the task");
    site.until_status("one", "idle");
    let left = || std::fs::read_dir(host.data().join("runs")).is_ok_and(|runs| runs.count() == 0);
    wait_until(SOON, "the worker has tidied up", left);
    let folder = host.data().join("logs").join(&id[34..]);
    wait_until(SOON, "its log is removed", || !folder.join(format!("{id}.1.log")).exists());
}

#[test]
fn progress_is_seen_while_the_task_runs() {
    let site = Site::new();
    let _host = site.host("one", "a", &[]);
    let line = r#"echo '{"progress": 0.25, "message": "a quarter"}' >> $RUNYARD_REPORT; exec sleep 1000"#;
    let id = site.shell("a", line);
    wait_until(SOON, "progress is known", || site.task(&id)["progress"]["fraction"] == json!(0.25));
    assert_eq!(site.task(&id)["progress"]["message"], "a quarter");
    site.expect(202, "POST", &format!("/v1/tasks/{id}/cancel"), json!({}));
    site.ends_as("cancelled", &id);
}

#[test]
fn a_failure_comes_with_its_class_message_and_result() {
    let site = Site::new();
    let _host = site.host("one", "a", &[]);
    let mut task = process("a", json!({"shell": "echo because >&2; exit 3"}));
    task["retry"] = json!({"maxRetries": 0});
    let task = site.ends_as("failed", &site.submit(task));
    assert_eq!(task["error"]["class"], "task", "{task:#}");
    assert_eq!(task["error"]["message"], "exit code 3: because");
    assert_eq!(task["result"]["exitCode"], 3);
    // The work's own failure cools nobody.
    assert_eq!(site.worker("one")["cooldownUntil"], json!(null));
}

#[test]
fn a_cancel_reaches_a_running_task_within_a_second_and_its_tree_is_dead() {
    let site = Site::new();
    let _host = site.host("one", "a", &[]);
    let id = site.shell("a", "echo on $$; sleep 1000 & wait");
    site.until_logged(&id, "on ");
    let pid = site.log(&id).lines().find_map(|line| line.split("on ").nth(1)?.trim().parse().ok()).unwrap();
    assert!(is_alive(pid));
    let began = Instant::now();
    site.expect(202, "POST", &format!("/v1/tasks/{id}/cancel"), json!({}));
    site.ends_as("cancelled", &id);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(1), "it took {took:?}");
    assert!(!is_alive(pid));
}

#[test]
fn files_come_in_and_artifacts_go_out_through_the_server() {
    let site = Site::new();
    let host = site.host("one", "a", &[]);
    let upload = site.request("PUT", "/v1/uploads", "twice as nice\n").json()["id"].as_str().unwrap().to_owned();
    let payload = json!({
        "shell": "mkdir -p out/deep && cat in/a.txt in/a.txt > out/deep/b.txt && printf x > 'out/c d.txt'",
        "files": [{"upload": upload, "path": "in/a.txt"}],
        "outputs": ["out/"],
    });
    let id = site.submit(process("a", payload));
    site.ends_as("completed", &id);
    let artifacts = site.get(&format!("/v1/tasks/{id}/artifacts"));
    let mut paths: Vec<_> = artifacts["items"].as_array().unwrap().iter().map(|item| item["path"].clone()).collect();
    paths.sort_by_key(ToString::to_string);
    assert_eq!(paths, ["out/c d.txt", "out/deep/b.txt"], "{artifacts:#}");
    let content = site.request("GET", &format!("/v1/tasks/{id}/artifacts/out/deep/b.txt"), "").body;
    assert_eq!(content, "twice as nice\ntwice as nice\n");
    let content = site.request("GET", &format!("/v1/tasks/{id}/artifacts/out/c%20d.txt"), "").body;
    assert_eq!(content, "x");
    let folder = host.data().join("artifacts").join(&id[34..]).join(&id);
    wait_until(SOON, "the worker keeps no copy", || !folder.exists());
}

#[test]
fn a_long_log_is_whole_on_the_server_when_the_task_has_ended() {
    let site = Site::new();
    let _host = site.host("one", "a", &[]);
    let id = site.shell("a", "seq 100000");
    site.ends_as("completed", &id);
    let log = site.log(&id);
    assert_eq!(log.lines().filter(|line| !line.is_empty()).count(), 100_000);
    assert!(log.lines().any(|line| line.ends_with("100000")));
}

#[test]
fn a_message_is_handed_to_the_running_task() {
    let site = Site::new();
    let _host = site.host("one", "a", &[]);
    let id = site.submit(process("a", json!({"shell": "echo ready; read line; echo got $line", "input": true})));
    site.until_logged(&id, "ready");
    site.request("POST", &format!("/v1/tasks/{id}/input"), r#"{"text": "hello there"}"#);
    let task = site.ends_as("completed", &id);
    assert!(task["result"]["stdout"].as_str().unwrap().contains("got hello there"), "{task:#}");
}

#[test]
fn secrets_reach_the_task_and_neither_its_log_nor_the_workers_disk() {
    let site = Site::new();
    let host = site.host("one", "a", &[]);
    let canary = "canary-of-the-remote-worker";
    let put = site.request("PUT", "/v1/secrets/token", &json!({"value": canary}).to_string());
    assert!(put.status < 300, "{}", put.body);
    let line = "echo length ${#TOKEN}; echo it is $TOKEN; while [ ! -e ../../go ]; do sleep 0.02; done";
    let id = site.submit(process("a", json!({"shell": line, "env": {"TOKEN": "secret://token"}})));
    site.until_logged(&id, &format!("length {}", canary.len()));
    site.until_logged(&id, "it is (secret)");
    assert!(!site.log(&id).contains(canary));
    let found = std::process::Command::new("grep").args(["-r", "-l", canary]).arg(host.data()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "", "no file of the worker has it");
    assert!(!host.own_log().contains(canary));
    std::fs::write(host.data().join("go"), "").unwrap();
    site.ends_as("completed", &id);
}

#[test]
fn a_kind_of_its_own_reads_the_payload_and_prints_the_result() {
    let site = Site::new();
    let program = site.home().join("reverse.sh");
    std::fs::write(&program, "#!/bin/sh\ncat > in.json\necho working >&2\ncase $(cat in.json) in *fail*) exit 9;; *text*) echo plain words;; *) cat in.json;; esac\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    let offer = format!("mirror={}", program.display());
    let _host = site.host("one", "a", &["--kind", &offer]);
    let run = |payload| site.submit(json!({"kind": "mirror", "payload": payload, "retry": {"maxRetries": 0}}));
    let json_id = run(json!({"shell": "not a command", "n": [1, 2]}));
    let task = site.ends_as("completed", &json_id);
    assert_eq!(task["result"], json!({"shell": "not a command", "n": [1, 2]}), "{task:#}");
    assert!(site.log(&json_id).contains("working"));
    let task = site.ends_as("completed", &run(json!("text")));
    assert_eq!(task["result"], "plain words");
    let task = site.ends_as("failed", &run(json!("fail")));
    assert_eq!(task["error"]["message"], "exit code 9: working", "{task:#}");
}
