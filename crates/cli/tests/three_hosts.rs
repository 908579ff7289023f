//! Three hosts in network namespaces: a server in one, workers in the two others, a cable to each.
//!
//! ```text
//!   worker "left"  10.77.1.2 ── 10.77.1.1  server  10.77.2.1 ── 10.77.2.2  worker "right"
//! ```
//!
//! Under a workload one worker's cable is cut past its lease and put back, and the other is stopped past its lease and
//! woken. Nothing may be lost, no task may have two outcomes, and no worker may ever have more than it offers.

#![allow(clippy::unwrap_used)]

mod network;
mod support;

#[path = "worker/site.rs"]
mod site;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use network::{Network, Plug};
use serde_json::{Value, json};
use site::{Host, SOON, Site};
use support::wait_until;

/// The server's ends of the two cables.
const LEFT: Plug = Plug { host: "server", name: "left" };
const RIGHT: Plug = Plug { host: "server", name: "right" };
const TASKS: usize = 200;
const PARALLEL: u64 = 4;
/// The rules of presence, short enough that a test can wait for a loss.
const CONFIG: &str = "\
[server]\nallowedHosts = [\"10.77.1.1\", \"10.77.2.1\"]\n
[workers]\nheartbeatMs = 500\nofflineAfterMs = 2000\ncooldownMs = 100\nmaxCpuUsage = 100\n";

#[test]
fn nothing_is_lost_and_nothing_ends_twice_whoever_is_cut_off_or_asleep() {
    let network = wired();
    // From here on this thread, and whatever it starts, is on the server's host.
    network.enter("server");
    let site = Arc::new(Site::listening("0.0.0.0:7340", CONFIG));
    let left = join(&site, &network, "left", "10.77.1.1");
    let right = join(&site, &network, "right", "10.77.2.1");
    let watch = CapacityWatch::start(site.clone());
    let ledger = site.home().join("ledger");
    std::fs::create_dir(&ledger).unwrap();
    let ids = submit(&site, &ledger);

    until_completed(&site, TASKS / 5);
    network.cut(LEFT);
    site.until_status("left", "offline");
    until_completed(&site, TASKS * 2 / 5);
    network.mend(LEFT);
    until_back(&site, "left");

    until_completed(&site, TASKS / 2);
    right.signal("STOP");
    site.until_status("right", "offline");
    until_completed(&site, TASKS * 3 / 5);
    right.signal("CONT");
    until_back(&site, "right");

    let tasks: Vec<Value> = ids.iter().map(|id| site.ends_as("completed", id)).collect();
    let n_samples = watch.end();
    each_has_one_outcome_of_an_attempt_that_ran(&site, &tasks, &ledger);
    let n_rerun = tasks.iter().filter(|task| task["attempts"] != 1).count();
    assert!(n_rerun > 0, "nobody lost anything, so nothing was shown");
    assert!(n_samples > 100, "capacity was looked at {n_samples} times only");
    for host in [&left, &right] {
        wait_until(SOON, "a worker has tidied up", || support::runs(host.data()).is_empty());
    }
    println!("{n_rerun} of {TASKS} tasks ran more than once; capacity looked at {n_samples} times");
}

/// Each worker has a network of its own with the server, and none with the other.
fn wired() -> Network {
    let network = Network::of(&["server", "left", "right"]);
    for (near, net) in [(LEFT, 1), (RIGHT, 2)] {
        let far = Plug { host: near.name, name: "server" };
        network.cable(near, far);
        network.address(near, &format!("10.77.{net}.1/24"));
        network.address(far, &format!("10.77.{net}.2/24"));
    }
    network
}

fn join(site: &Site, network: &Network, name: &str, server: &str) -> Host {
    let (parallel, url) = (PARALLEL.to_string(), format!("http://{server}:7340"));
    let flags =
        ["--name", name, "--labels", "zone=field", "--cpu", "1", "--ram-mb", "512", "--max-parallel", &parallel];
    let host = Host::start_in(site, name, &flags, &url, &network.prefix(name));
    site.until_status(name, "idle");
    host
}

/// Each attempt leaves a line of its own, and says in its result which one it was.
fn submit(site: &Site, ledger: &Path) -> Vec<String> {
    let shell =
        format!("echo x >> {}/$RUNYARD_TASK_ID.$RUNYARD_ATTEMPT; sleep 0.3; echo $RUNYARD_ATTEMPT", ledger.display());
    let task = json!({
        "kind": "process", "payload": {"shell": shell}, "place": {"require": {"zone": "field"}},
        "resources": {"cpu": 0.25, "ramMb": 64}, "retry": {"maxRetries": 0},
    });
    let batch = site.expect(201, "POST", "/v1/batches", json!({"tasks": vec![task; TASKS]}));
    batch["tasks"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap().to_owned()).collect()
}

fn until_completed(site: &Site, n_tasks: usize) {
    let n_completed = || site.get("/v1/stats")["metrics"]["completed"].as_u64().unwrap();
    wait_until(Duration::from_secs(180), &format!("{n_tasks} tasks are completed"), || n_completed() >= n_tasks as u64);
}

fn until_back(site: &Site, name: &str) {
    let is_back = || ["idle", "busy"].iter().any(|status| site.worker(name)["status"] == *status);
    wait_until(SOON, &format!("{name} is back"), is_back);
}

fn each_has_one_outcome_of_an_attempt_that_ran(site: &Site, tasks: &[Value], ledger: &Path) {
    let mut n_ended: BTreeMap<String, usize> = BTreeMap::new();
    for task in tasks {
        let id = task["id"].as_str().unwrap();
        let steps = site.get(&format!("/v1/tasks/{id}/events"));
        let ends = ["completed", "failed", "cancelled"];
        let n = steps["items"].as_array().unwrap().iter().filter(|step| ends.contains(&step["step"].as_str().unwrap()));
        *n_ended.entry(id.to_owned()).or_default() += n.count();
        let attempt = task["result"]["stdout"].as_str().unwrap().trim();
        let line = std::fs::read_to_string(ledger.join(format!("{id}.{attempt}"))).unwrap();
        assert_eq!(line, "x\n", "attempt {attempt} of {id} ran once");
    }
    assert!(n_ended.values().all(|n| *n == 1), "{n_ended:#?}");
    assert_eq!(n_ended.len(), TASKS);
}

/// Looks at the workers all the time.
struct CapacityWatch {
    stop: Arc<AtomicBool>,
    n_samples: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

impl CapacityWatch {
    fn start(site: Arc<Site>) -> CapacityWatch {
        let (stop, n_samples) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (is_over, counted) = (stop.clone(), n_samples.clone());
        let thread = std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                ["left", "right"].iter().for_each(|name| check(&site.worker(name)));
                counted.fetch_add(1, Ordering::Relaxed);
                std::thread::park_timeout(Duration::from_millis(20));
            }
        });
        CapacityWatch { stop, n_samples, thread }
    }

    /// Gives how often it looked.
    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no worker ever had more than it offers");
        self.n_samples.load(Ordering::Relaxed)
    }
}

fn check(worker: &Value) {
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    assert!(worker["running"].as_array().unwrap().len() as u64 <= PARALLEL, "{worker:#}");
    assert!(number(&worker["reserved"]["cpu"]) <= number(&worker["cpus"]) + 1e-9, "{worker:#}");
    assert!(number(&worker["reserved"]["ramMb"]) <= number(&worker["ramMb"]), "{worker:#}");
    assert!(number(&worker["free"]["cpu"]) >= 0.0, "{worker:#}");
}
