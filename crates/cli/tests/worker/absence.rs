//! Somebody is away for a while: the worker, or the server.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::site::{SOON, Site, process};
use crate::support::{is_alive, wait_until};

/// Says that it is there, waits for the file, and says that it goes.
fn until_told(site: &Site) -> String {
    format!("echo on $$; while [ ! -e {} ]; do sleep 0.02; done; echo off", site.home().join("go").display())
}

fn pid_of(site: &Site, id: &str) -> u64 {
    site.until_logged(id, "on ");
    site.log(id).lines().find_map(|line| line.split("on ").nth(1)?.trim().parse().ok()).unwrap()
}

fn ended_once(site: &Site, id: &str) -> Value {
    let task = site.ends_as("completed", id);
    assert_eq!(task["attempts"], 1, "{task:#}");
    let log = site.log(id);
    assert_eq!((log.matches("on ").count(), log.matches("off").count()), (1, 1), "{log}");
    task
}

#[test]
fn a_worker_that_was_killed_adopts_its_processes_when_it_is_back() {
    let site = Site::new();
    let mut host = site.host("one", "a", &[]);
    let running = site.shell("a", &until_told(&site));
    let pid = pid_of(&site, &running);
    host.kill9();
    assert!(is_alive(pid));
    host.spawn();
    wait_until(SOON, "it is back", || host.own_log().contains("adopted"));
    std::fs::write(site.home().join("go"), "").unwrap();
    ended_once(&site, &running);
}

#[test]
fn what_ended_while_the_worker_was_away_is_told_when_it_is_back() {
    let site = Site::new();
    let mut host = site.host("one", "a", &[]);
    let id = site.shell("a", &format!("{}; echo '{{\"result\": 7}}' >> $RUNYARD_REPORT", until_told(&site)));
    let pid = pid_of(&site, &id);
    host.kill9();
    std::fs::write(site.home().join("go"), "").unwrap();
    wait_until(SOON, "it has ended", || !is_alive(pid));
    host.spawn();
    assert_eq!(ended_once(&site, &id)["result"], 7);
}

#[test]
fn a_worker_that_is_told_to_end_hands_back_what_is_bound_and_leaves_processes_running() {
    let site = Site::new();
    let mut host = site.host("one", "a", &["--drain-ms", "0"]);
    let process_id = site.shell("a", &until_told(&site));
    let pid = pid_of(&site, &process_id);
    let bound =
        site.submit(json!({"kind": "noop", "payload": {"sleepMs": 600_000}, "place": {"require": {"zone": "a"}}}));
    site.until_state(&bound, "running");
    host.signal("TERM");
    assert_eq!(host.ended().code(), Some(0), "{}", host.own_log());
    assert!(is_alive(pid), "a process goes on");
    site.until_state(&bound, "queued");
    site.until_status("one", "offline");
    assert_eq!(site.state(&process_id), "running", "its lease is kept for the next start");
    host.spawn();
    std::fs::write(site.home().join("go"), "").unwrap();
    ended_once(&site, &process_id);
    site.until_state(&bound, "running");
    let task = site.task(&bound);
    assert_eq!(task["retriesLeft"], 3, "handing back costs nothing: {task:#}");
    site.expect(202, "POST", &format!("/v1/tasks/{bound}/cancel"), json!({}));
}

#[test]
fn a_worker_that_is_told_to_end_lets_bound_work_finish_and_takes_nothing_new() {
    let site = Site::new();
    let mut host = site.host("one", "a", &["--drain-ms", "60000"]);
    let noop = |ms: u64| json!({"kind": "noop", "payload": {"sleepMs": ms}, "place": {"require": {"zone": "a"}}});
    let first = site.submit(noop(1500));
    site.until_state(&first, "running");
    host.signal("TERM");
    site.until_status("one", "unhealthy");
    let second = site.submit(noop(1));
    site.ends_as("completed", &first);
    assert_eq!(host.ended().code(), Some(0));
    assert_eq!(site.state(&second), "queued");
}

#[test]
fn a_second_signal_ends_the_worker_at_once() {
    let site = Site::new();
    let mut host = site.host("one", "a", &["--drain-ms", "600000"]);
    let id = site.submit(json!({"kind": "noop", "payload": {"sleepMs": 600_000}, "place": {"require": {"zone": "a"}}}));
    site.until_state(&id, "running");
    host.signal("TERM");
    site.until_status("one", "unhealthy");
    let began = Instant::now();
    host.signal("TERM");
    assert_eq!(host.ended().code(), Some(1));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn a_server_that_is_killed_in_the_middle_loses_nothing() {
    let mut site = Site::new();
    let _host = site.host("one", "a", &[]);
    let running = site.shell("a", &until_told(&site));
    pid_of(&site, &running);
    site.kill_and_restart();
    site.until_status("one", "busy");
    std::fs::write(site.home().join("go"), "").unwrap();
    ended_once(&site, &running);
}

#[test]
fn what_ends_while_the_server_is_away_is_told_when_it_is_back() {
    let mut site = Site::new();
    let _host = site.host("one", "a", &[]);
    let id = site.submit(process("a", json!({"shell": until_told(&site), "outputs": ["*.txt"]})));
    let pid = pid_of(&site, &id);
    site.while_away(|home| {
        std::fs::write(home.join("go"), "").unwrap();
        wait_until(SOON, "it has ended", || !is_alive(pid));
    });
    ended_once(&site, &id);
}
