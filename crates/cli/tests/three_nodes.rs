//! Three nodes and PostgreSQL on hosts of their own, in network namespaces, and everything that can happen to them.
//!
//! ```text
//!   hub ──┬─ store 10.78.2.0/24 ── one, two, three     PostgreSQL is on the hub, and so are the clients.
//!         ├─ peers 10.78.1.0/24 ── one, two, three     Each node has three cables, and each can be cut.
//!         └─ door  10.78.3.0/24 ── one, two, three
//! ```
//!
//! Under a load the holder is killed and started again, stopped and woken, cut from the database, cut from its peers, and
//! the database is restarted, at random. In the end every accepted task has exactly one outcome, limits were never
//! exceeded, each moment of a schedule was fired once, and nothing is left: no process, no namespace.
//!
//! `RUNYARD_NODES_SECONDS` for a longer run, `RUNYARD_NODES_SEED` for the plan of an earlier one.

#![allow(clippy::unwrap_used)]

mod cluster;
mod moments;
mod network;
mod support;

#[path = "three_nodes/faults.rs"]
mod faults;
#[path = "three_nodes/hosts.rs"]
mod hosts;
#[path = "three_nodes/ledger.rs"]
mod ledger;

#[path = "chaos/dice.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod dice;

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use cluster::{Cluster, Press, Refusal};
use dice::Dice;
use hosts::Hosts;
use serde_json::{Value, json};

const LANE: usize = 3;
const CONFIG: &str = "\
[lanes]\nnarrow = 3\n
[schedules]\nkeepRuns = 1000000\n
[server]\nallowedHosts = [\"10.78.1.1\", \"10.78.1.2\", \"10.78.1.3\", \"10.78.3.1\", \"10.78.3.2\", \"10.78.3.3\"]\n";
const EVERY_MS: i64 = 1000;
/// Two of them submit so often, each.
const PAUSE: Duration = Duration::from_millis(20);
/// So long a node waits for a holder ([nodes] waitMs), and a client for a node.
const WAIT: Duration = Duration::from_secs(15);
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn every_task_ends_once_and_every_moment_fires_once_whatever_happens_to_nodes_and_database() {
    let seconds = number("RUNYARD_NODES_SECONDS").unwrap_or(60);
    let seed = number("RUNYARD_NODES_SEED").unwrap_or_else(any_seed);
    eprintln!("RUNYARD_NODES_SEED={seed} RUNYARD_NODES_SECONDS={seconds}");
    let hosts = Hosts::new();
    // From here on this thread, and whatever it starts, is on the hub.
    hosts.enter_hub();
    let mut cluster = hosts.start(CONFIG);
    let marks = cluster.folder("marks");
    make_schedule(&cluster);
    let loads = [load(&cluster, &marks), load(&cluster, &marks), load_once(&cluster)];
    let epoch = cluster.epoch(0);
    let counts = faults::storm(&hosts, &mut cluster, Dice::new(seed, 1), Duration::from_secs(seconds));
    cluster.until_all_ready();
    let pressed = loads.map(Press::end);
    let refusals: Vec<&Refusal> = pressed.iter().flat_map(|pressed| &pressed.refusals).collect();
    let told: Vec<&&Refusal> = refusals.iter().filter(|refusal| refusal.said.is_some()).collect();
    assert!(told.iter().all(|refusal| refusal.after >= WAIT), "a pause, and only then an error: {told:#?}");
    // What was sent once and not answered may be there or not.
    let n_unanswered = pressed[2].refusals.len();
    let longest = pressed.iter().map(|pressed| pressed.longest).max().unwrap();
    eprintln!("{} without an answer, {} refused, the longest answer took {longest:?}", refusals.len(), told.len());
    let ids: Vec<String> = pressed.into_iter().flat_map(|pressed| pressed.ids).collect();
    eprintln!("{} tasks, {counts:?}", ids.len());
    assert!(cluster.epoch(0) >= epoch + counts.killed, "each time the holder was killed there was another one");
    ledger::check(&cluster, &ids, n_unanswered, &marks);
    nothing_is_left(cluster, hosts);
}

fn make_schedule(cluster: &Cluster) {
    let schedule = json!({
        "name": "pulse", "schedule": {"kind": "every", "everyMs": EVERY_MS}, "overlap": "allow",
        "task": {"kind": "noop", "agent": "pulse"},
    });
    cluster.expect(0, 201, "POST", "/v1/schedules", schedule);
}

/// At all nodes in turn. Each attempt of a process leaves a mark.
fn load(cluster: &Cluster, marks: &Path) -> Press {
    let mut clients: Vec<_> = cluster.nodes.iter().map(|node| node.client()).collect();
    clients.iter_mut().for_each(|client| client.patience = PATIENCE);
    let shell = format!("echo x >> {}/$RUNYARD_TASK_ID.$RUNYARD_ATTEMPT; sleep 0.05", marks.display());
    Press::paced(clients, PAUSE, move |n| task(n, &shell))
}

/// Without keys: such a submit needs no look at the database before it is written, so a fault finds it in its commit.
fn load_once(cluster: &Cluster) -> Press {
    let mut clients: Vec<_> = cluster.nodes.iter().map(|node| node.client()).collect();
    clients.iter_mut().for_each(|client| client.patience = PATIENCE);
    Press::once(clients, PAUSE, |n| json!({"kind": "noop", "agent": "once", "payload": {"sleepMs": n % 5}}))
}

fn task(n: u64, shell: &str) -> Value {
    match n % 16 {
        0 => json!({"kind": "process", "lane": "narrow", "payload": {"shell": shell}}),
        1..5 => json!({"kind": "noop", "lane": "narrow", "payload": {"sleepMs": n % 50}}),
        _ => json!({"kind": "noop", "agent": format!("agent-{}", n % 5), "payload": {"sleepMs": n % 20}}),
    }
}

/// Neither a process of the nodes, of their tasks or of the database, nor a host.
fn nothing_is_left(cluster: Cluster, hosts: Hosts) {
    let places = [cluster.home().to_owned(), cluster.postgres.directory().to_owned()];
    let names = hosts.names();
    drop(cluster);
    drop(hosts);
    let began = Instant::now();
    let left = loop {
        let left = processes_of(&places.each_ref().map(|path| path.as_path()));
        if left.is_empty() || began.elapsed() > Duration::from_secs(10) {
            break left;
        }
        std::thread::park_timeout(Duration::from_millis(20));
    };
    assert!(left.is_empty(), "left behind: {left:#?}");
    for name in names {
        assert!(!Path::new("/run/netns").join(&name).exists(), "{name} is left behind");
    }
}

/// Command lines that speak of one of these places.
fn processes_of(places: &[&Path]) -> Vec<String> {
    let lines = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let bytes = std::fs::read(entry.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&bytes).replace('\0', " "))
    });
    lines.filter(|line| places.iter().any(|place| line.contains(&place.display().to_string()))).collect()
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

fn any_seed() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64
}
