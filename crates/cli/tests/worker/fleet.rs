//! Several workers, and what becomes of one.

use serde_json::{Value, json};

use crate::site::{Host, SOON, Site, process};
use crate::support::wait_until;

/// Which worker ran it: each has a directory of its own.
fn where_it_ran(site: &Site, id: &str) -> String {
    let task = site.ends_as("completed", id);
    let stdout = task["result"]["stdout"].as_str().unwrap_or_default().to_owned();
    ["one", "two"].into_iter().find(|name| stdout.contains(&format!("worker-{name}/"))).unwrap_or("nowhere").to_owned()
}

#[test]
fn tasks_go_to_the_worker_with_the_labels_they_ask_for() {
    let site = Site::new();
    let (_one, _two) = (site.host("one", "a", &[]), site.host("two", "b", &[]));
    let ids: Vec<_> = (0..6).map(|n| site.shell(if n % 2 == 0 { "a" } else { "b" }, "echo $RUNYARD_WORKDIR")).collect();
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(where_it_ran(&site, id), if n % 2 == 0 { "one" } else { "two" });
    }
}

#[test]
fn a_retry_goes_to_another_worker_than_the_one_where_it_failed() {
    let site = Site::new();
    let (_one, _two) = (site.host("one", "a", &[]), site.host("two", "a", &[]));
    let tried = site.home().join("tried");
    let line = format!("echo $RUNYARD_WORKDIR | tee -a {}; [ $RUNYARD_ATTEMPT -ge 2 ]", tried.display());
    let mut task = process("a", json!({"shell": line}));
    task["retry"] = json!({"maxRetries": 1, "backoffMs": 10});
    site.ends_as("completed", &site.submit(task));
    let tried = std::fs::read_to_string(tried).unwrap();
    let places: Vec<_> = ["worker-one/", "worker-two/"].map(|name| tried.contains(name)).into();
    assert_eq!((places, tried.lines().count()), (vec![true, true], 2), "{tried}");
}

#[test]
fn a_worker_that_was_removed_joins_anew_and_runs_nothing_of_before() {
    let site = Site::new();
    let host = site.host("one", "a", &[]);
    let before = site.worker("one")["id"].as_str().unwrap().to_owned();
    let mut task = process("a", json!({"shell": "echo on; exec sleep 1000"}));
    task["retry"] = json!({"maxRetries": 0});
    let id = site.submit(task);
    site.until_logged(&id, "on");
    site.runyard(&["workers", "rm", "one"]);
    let is_anew = |worker: &Value| worker["id"].is_string() && worker["id"] != before.as_str();
    wait_until(SOON, "it joins anew", || is_anew(&site.worker("one")) && site.worker("one")["status"] != "offline");
    wait_until(SOON, "the old attempt is dead", || {
        std::fs::read_dir(host.data().join("running")).is_ok_and(|leases| leases.count() <= 1)
    });
    site.expect(202, "POST", &format!("/v1/tasks/{id}/cancel"), json!({}));
    site.ends_as("cancelled", &id);
}

#[test]
fn a_second_process_of_the_same_worker_fences_the_first() {
    let site = Site::new();
    let mut first = site.host("one", "a", &[]);
    let id = site.shell("a", "echo on $$; exec sleep 1000");
    site.until_logged(&id, "on ");
    let pid: u64 = site.log(&id).lines().find_map(|line| line.split("on ").nth(1)?.trim().parse().ok()).unwrap();
    // Somebody copied the identity to another directory.
    let copy = site.home().join("worker-copy");
    std::fs::create_dir(&copy).unwrap();
    std::fs::copy(first.data().join("worker.json"), copy.join("worker.json")).unwrap();
    let _second = Host::start(&site, "copy", &["--name", "one", "--labels", "zone=a"]);
    assert_eq!(first.ended().code(), Some(7), "{}", first.own_log());
    assert!(!crate::support::is_alive(pid), "what it ran is stopped");
    site.expect(202, "POST", &format!("/v1/tasks/{id}/cancel"), json!({}));
    site.ends_as("cancelled", &id);
}

#[test]
fn two_processes_cannot_share_a_data_directory_and_a_token_is_needed_to_join() {
    let site = Site::new();
    let host = site.host("one", "a", &[]);
    let data = host.data().to_str().unwrap().to_owned();
    let url = site.url();
    let refused = |data: &str| {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_runyard"));
        command.args(["worker", "--server", &url, "--data-dir", data]).env_remove("RUNYARD_WORKER_TOKEN");
        String::from_utf8(command.timeout(SOON).assert().code(2).get_output().stderr.clone()).unwrap()
    };
    assert!(refused(&data).contains("another worker uses"));
    assert!(refused(site.home().join("fresh").to_str().unwrap()).contains("no token"));
    assert!(refused(site.home().join("server").to_str().unwrap()).contains("server's data directory"));
}

#[test]
fn workers_are_listed_shown_drained_and_resumed_by_name() {
    let site = Site::new();
    let _one = site.host("one", "a", &["--resource", "gpu=1", "--ram-mb", "1000", "--cpu", "1.5"]);
    let table = site.runyard(&["workers"]);
    let line = table.lines().find(|line| line.starts_with("one")).unwrap();
    assert!(
        line.contains("idle") && line.contains("zone=a") && line.contains("/1000") && line.contains("0/8"),
        "{table}"
    );
    assert!(table.contains("embedded"), "{table}");
    let shown = site.runyard(&["workers", "show", "one"]);
    assert!(shown.contains("cpu 1.5, ram 1000 MiB, gpu 1, 8 at a time"), "{shown}");
    let drained = site.runyard(&["workers", "drain", "one"]);
    assert!(drained.contains("draining"), "{drained}");
    let id = site.shell("a", "true");
    assert_eq!(site.worker("one")["status"], "draining");
    assert_eq!(site.state(&id), "queued");
    site.runyard(&["workers", "resume", "one"]);
    site.ends_as("completed", &id);
    let listed: Value = serde_json::from_str(&site.runyard(&["workers", "--json", "--label", "zone=a"])).unwrap();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed:#}");
}

#[test]
fn top_prints_one_picture_of_agents_lanes_workers_and_running_tasks() {
    let site = Site::new();
    let _one = site.host("one", "a", &[]);
    let line = r#"echo '{"progress": 0.25, "message": "a quarter"}' >> $RUNYARD_REPORT; exec sleep 1000"#;
    let mut task = process("a", json!({"shell": line}));
    task["agent"] = json!("painter");
    let id = site.submit(task);
    wait_until(SOON, "progress is known", || site.task(&id)["progress"]["fraction"] == json!(0.25));
    let picture = site.runyard(&["top", "--once", "--width", "160"]);
    for word in ["1 running", "painter", "main", "embedded", "busy", "zone=a", &id, "25 %", "a quarter"] {
        assert!(picture.contains(word), "`{word}` is not in\n{picture}");
    }
    site.expect(202, "POST", &format!("/v1/tasks/{id}/cancel"), json!({}));
    site.ends_as("cancelled", &id);
}
