//! A holder that slept past its lease.

use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::beside_others;
use crate::cluster::{Cluster, Record, SOON};
use crate::support::wait_until;

const TASKS: usize = 60;
const LANE: usize = 4;
/// Asked of the sleeper while it sleeps.
const ASKED: usize = 10;

#[test]
fn a_holder_that_slept_past_its_lease_writes_nothing_and_starts_nothing_when_it_wakes() {
    let _turn = beside_others();
    let mut cluster = Cluster::with(3, &format!("[lanes]\nnarrow = {LANE}\n"));
    let (sleeper, [one, other]) = (cluster.holder(), cluster.followers());
    let ledger = cluster.folder("ledger");
    let mut ids = submit(&cluster, one, &ledger);
    until_completed(&cluster, one, TASKS / 6);
    let epoch = cluster.epoch(one);

    cluster.nodes[sleeper].freeze();
    let asked = ask(&cluster, sleeper);
    cluster.until_taken_over(one, sleeper, Instant::now());
    until_completed(&cluster, one, TASKS / 2);
    cluster.nodes[sleeper].thaw();

    ids.extend(asked.into_iter().filter_map(accepted));
    for id in &ids {
        cluster.ends_as(other, "completed", id);
    }
    let is_follower = || {
        let view = cluster.get(sleeper, "/v1/nodes");
        view["items"].as_array().unwrap().iter().any(|node| node["isSelf"] == true && node["role"] == "follower")
    };
    wait_until(SOON, "the sleeper knows that it follows", is_follower);
    cluster.nodes[sleeper].until_ready();
    assert!(cluster.epoch(one) > epoch, "the new holder has an epoch of its own");
    each_attempt_ran_once(&ledger);
    each_result_is_of_an_attempt_that_ran(&cluster, other, &ids[..TASKS], &ledger);
    let record = Record::read(&cluster, sleeper);
    record.each_ended_once(&ids);
    assert!(record.most_at_once("narrow") <= LANE, "{} at once", record.most_at_once("narrow"));
}

/// Each attempt leaves a line of its own, and says in its result which one it was.
fn submit(cluster: &Cluster, at: usize, ledger: &Path) -> Vec<String> {
    let shell =
        format!("echo x >> {}/$RUNYARD_TASK_ID.$RUNYARD_ATTEMPT; sleep 0.2; echo $RUNYARD_ATTEMPT", ledger.display());
    let task = json!({"kind": "process", "lane": "narrow", "payload": {"shell": shell}});
    let batch = cluster.expect(at, 201, "POST", "/v1/batches", json!({"tasks": vec![task; TASKS]}));
    batch["tasks"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap().to_owned()).collect()
}

/// The kernel takes the connections of a process that is stopped: it finds them when it wakes.
fn ask(cluster: &Cluster, sleeper: usize) -> Vec<TcpStream> {
    let client = cluster.nodes[sleeper].client();
    let body = json!({"kind": "noop"}).to_string();
    (0..ASKED).map(|_| client.open("POST", "/v1/tasks", &[], body.as_bytes()).unwrap()).collect()
}

/// What it wakes up to it passes on. An answer that says yes is as good as any.
fn accepted(mut stream: TcpStream) -> Option<String> {
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    assert!(head.starts_with("HTTP/1.1 201") || head.starts_with("HTTP/1.1 503"), "{text}");
    let task: Value = serde_json::from_str(body).unwrap();
    task["id"].as_str().map(str::to_owned)
}

fn until_completed(cluster: &Cluster, at: usize, n_tasks: usize) {
    let n_completed = || cluster.get(at, "/v1/stats")["metrics"]["completed"].as_u64().unwrap();
    let what = format!("{n_tasks} tasks are completed");
    wait_until(Duration::from_secs(120), &what, || n_completed() >= n_tasks as u64);
}

/// An attempt that two nodes had handed out would have two lines.
fn each_attempt_ran_once(ledger: &Path) {
    for entry in std::fs::read_dir(ledger).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "x\n", "{}", path.display());
    }
}

fn each_result_is_of_an_attempt_that_ran(cluster: &Cluster, at: usize, ids: &[String], ledger: &Path) {
    for id in ids {
        let task = cluster.get(at, &format!("/v1/tasks/{id}"));
        let attempt = task["result"]["stdout"].as_str().unwrap().trim();
        assert!(ledger.join(format!("{id}.{attempt}")).exists(), "{task:#}");
    }
}
