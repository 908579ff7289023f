//! What a change of holder must not cost: work that runs, work that waits, and the way to the new holder.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use runyard_testbed::Options;
use serde_json::{Value, json};

use crate::beside_others;
use crate::cluster::{CONFIG, Cluster, Node, Plan, SOON, Site, Transaction};
use crate::site::Host;
use crate::support::wait_until;

fn two(config: &str) -> Cluster {
    let sites = (1..=2).map(|n| Site::on_loopback(&format!("node-{n}"))).collect();
    Cluster::start(Plan { sites, url: &str::to_owned, config, postgres: Options::default() })
}

#[test]
fn a_worker_that_speaks_through_the_node_that_takes_over_goes_on() {
    let _turn = beside_others();
    // Its call waits at the follower all through the change.
    let patient =
        CONFIG.replace("heartbeatMs = 500\nofflineAfterMs = 2000", "heartbeatMs = 10000\nofflineAfterMs = 30000");
    let mut cluster = two(&patient);
    let (holder, follower) = (cluster.holder(), 1 - cluster.holder());
    let key = cluster.expect(holder, 201, "POST", "/v1/keys", json!({"name": "join", "scopes": ["worker"]}));
    let knows =
        || cluster.get(follower, "/v1/keys")["items"].as_array().unwrap().iter().any(|one| one["name"] == "join");
    wait_until(SOON, "the follower knows the key", knows);
    // From here on it learns nothing new: neither of the worker now, nor when it gets the lease, until this ends.
    let lock =
        Transaction::begin(cluster.url(), "BEGIN; LOCK TABLE settings IN ACCESS EXCLUSIVE MODE; SELECT 'locked';");
    let (token, url) = (key["key"].as_str().unwrap(), cluster.nodes[follower].url());
    let worker = Host::join(cluster.home(), "field", &["--name", "field", "--labels", "zone=field"], &url, token, &[]);
    let go = cluster.home().join("go");
    let shell = format!("while [ ! -e {} ]; do sleep 0.02; done", go.display());
    let place = json!({"require": {"zone": "field"}});
    let id = cluster.submit(follower, json!({"kind": "process", "payload": {"shell": shell}, "place": place}));
    cluster.until_state(follower, &id, "running");
    cluster.nodes[holder].kill9();
    wait_until(SOON, "the other holds the lease", || cluster.holder_seen_by(follower) == Some(follower));
    let told = asks_as_worker(&cluster, follower);
    assert!(told.is_none(), "nobody knows yet whether there is such a worker: {told:?}");
    lock.end();
    std::fs::write(&go, "").unwrap();
    let task = cluster.ends_as(follower, "completed", &id);
    assert_eq!(task["attempts"], 1, "it was not lost: {task:#}");
    drop(worker);
}

/// What the worker is told when it comes with its key, within a second.
fn asks_as_worker(cluster: &Cluster, node: usize) -> Option<u16> {
    let identity = walk(cluster.home()).into_iter().find(|path| path.ends_with("worker.json")).unwrap();
    let identity: Value = serde_json::from_slice(&std::fs::read(identity).unwrap()).unwrap();
    let mut client = cluster.nodes[node].client().with_key(identity["key"].as_str().unwrap());
    client.patience = Duration::from_secs(1);
    let path = format!("/v1/workers/{}/sync", identity["id"].as_str().unwrap());
    client.try_send("POST", &path, &[], b"{}").map(|answer| answer.status)
}

fn walk(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.flat_map(|entry| if entry.path().is_dir() { walk(&entry.path()) } else { vec![entry.path()] }).collect()
}

#[test]
fn what_waits_when_the_holder_is_killed_is_started_once() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(2);
    let (holder, follower) = (cluster.holder(), 1 - cluster.holder());
    let marks = cluster.folder("marks");
    let shell = format!("echo x >> {}/$RUNYARD_TASK_ID; sleep 1", marks.display());
    let task = json!({"kind": "process", "payload": {"shell": shell}, "resources": {"cpu": 200}});
    let ids: Vec<String> = (0..40).map(|_| cluster.submit(follower, task.clone())).collect();
    // Five fit on each.
    let running = || running_of(&cluster, follower);
    wait_until(SOON, "both workers are full", || running().len() == 10);
    cluster.nodes[holder].kill9();
    // Nobody starts anything any more.
    let begun = running_of(&cluster, follower);
    for id in &ids {
        cluster.ends_as(follower, "completed", id);
    }
    for id in ids.iter().filter(|id| !begun.contains(*id)) {
        let history = cluster.get(follower, &format!("/v1/tasks/{id}/events"));
        assert!(!history.to_string().contains("lost"), "no worker of theirs was lost: {history:#}");
        assert_eq!(n_lines(&marks.join(id)), 1, "it was started once");
    }
}

fn running_of(cluster: &Cluster, node: usize) -> BTreeSet<String> {
    let page = cluster.get(node, "/v1/tasks?state=assigned,running,completed&limit=1000");
    let id = |task: &Value| task["id"].as_str().unwrap().to_owned();
    page["items"].as_array().unwrap().iter().map(id).collect()
}

fn n_lines(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap_or_default().lines().count()
}

/// Whatever is inserted is refused, as by a role without the right to.
const REFUSE: &str = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
    $$ BEGIN RAISE EXCEPTION 'no'; END $$; \
    CREATE TRIGGER refuse BEFORE INSERT ON tasks FOR EACH ROW EXECUTE FUNCTION refuse()";

#[test]
fn a_database_that_takes_no_writes_holds_nobody_up_for_longer_than_one_that_is_away() {
    let _turn = beside_others();
    let config = CONFIG.replace("[nodes]", "[nodes]\nwaitMs = 3000");
    let cluster = two(&config);
    cluster.sql(REFUSE);
    for node in 0..2 {
        let began = Instant::now();
        let answer = cluster.request(node, "POST", "/v1/tasks", r#"{"kind":"noop"}"#);
        assert_eq!(answer.status, 503, "{}", answer.body);
        assert!(answer.head.to_ascii_lowercase().contains("\r\nretry-after:"), "{}", answer.head);
        assert!(began.elapsed() < Duration::from_secs(9), "it took {:?}", began.elapsed());
    }
    cluster.sql("DROP TRIGGER refuse ON tasks");
    cluster.until_all_ready();
    // Or it does not even refuse.
    let lock = Transaction::begin(cluster.url(), "BEGIN; LOCK TABLE tasks IN ACCESS EXCLUSIVE MODE; SELECT 'locked';");
    let began = Instant::now();
    let answer = cluster.request(cluster.holder(), "POST", "/v1/tasks", r#"{"kind":"noop"}"#);
    assert_eq!(answer.status, 503, "{}", answer.body);
    assert!(began.elapsed() < Duration::from_secs(9), "it took {:?}", began.elapsed());
    lock.end();
    cluster.until_all_ready();
    let id = cluster.submit(1, json!({"kind": "noop"}));
    cluster.ends_as(0, "completed", &id);
}

#[test]
fn a_follower_whose_holder_does_not_answer_is_not_ready() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(2);
    let (holder, follower) = (cluster.holder(), 1 - cluster.holder());
    // It renews its lease no more than it answers, but this one lasts.
    cluster.nodes[holder].freeze();
    cluster.sql("UPDATE lease SET until = clock_timestamp() + interval '1 hour'");
    cluster.nodes[follower].until_not_ready();
    cluster.nodes[holder].thaw();
    cluster.until_all_ready();
}

#[test]
fn a_node_that_gives_anothers_address_as_its_own_does_not_take_the_lease() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(2);
    let (holder, follower) = (cluster.holder(), 1 - cluster.holder());
    let site = Site { advertise: cluster.nodes[holder].url(), ..Site::on_loopback("node-3") };
    let liar = Node::start(site, cluster.url(), cluster.home().join("node-3"), CONFIG);
    wait_until(SOON, "it says so", || liar.last_lines().contains("another node answers at the address"));
    let began = Instant::now();
    cluster.nodes[holder].kill9();
    let taken = cluster.until_taken_over(follower, holder, began);
    assert_eq!(taken.by, follower);
}
