//! What is shown of the whole, whichever node shows it: statistics, metrics, workers, and the nodes themselves.

use std::collections::BTreeSet;

use runyard_testbed::Options;
use serde_json::{Value, json};

use crate::beside_others;
use crate::cluster::{CONFIG, Cluster, Node, Plan, SOON, Site};
use crate::commands::runyard;
use crate::support::{Client, wait_until};

fn items(view: &Value) -> &Vec<Value> {
    view["items"].as_array().unwrap_or_else(|| panic!("{view:#}"))
}

#[test]
fn every_node_tells_how_long_tasks_wait_and_run() {
    let _turn = beside_others();
    let cluster = Cluster::of(2);
    let holder = cluster.holder();
    let id = cluster.submit(holder, json!({"kind": "noop", "payload": {"sleepMs": 5}}));
    cluster.ends_as(holder, "completed", &id);
    let told = cluster.get(holder, "/v1/stats");
    for field in ["averageWaitMs", "p99WaitMs", "averageRunMs", "p99RunMs"] {
        assert!(told["metrics"][field].is_number(), "{field}: {told:#}");
    }
    assert_eq!(cluster.get(1 - holder, "/v1/stats"), told);
}

#[test]
fn what_only_the_holder_knows_is_not_told_as_nothing_by_the_others() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(2);
    let holder = cluster.holder();
    let id = cluster.submit(holder, json!({"kind": "noop"}));
    cluster.ends_as(holder, "completed", &id);
    let metrics = |cluster: &Cluster, node| cluster.request(node, "GET", "/metrics", "").body;
    let of_the_holder = ["runyard_task_wait_seconds", "runyard_commits", "runyard_workers", "runyard_worker_up"];
    let (held, followed) = (metrics(&cluster, holder), metrics(&cluster, 1 - holder));
    for (text, holds) in [(&held, 1), (&followed, 0)] {
        assert!(text.contains(&format!("\nrunyard_holder {holds}\n")), "{text}");
        assert!(text.contains("runyard_tasks_completed_total{agent=\"default\"} 1"), "{text}");
        assert!(text.contains("runyard_http_requests_total"), "{text}");
        for family in of_the_holder {
            assert_eq!(text.contains(family), holds == 1, "{family}: {text}");
        }
    }
    cluster.nodes[holder].ask_to_stop();
    wait_until(SOON, "the other one holds the lease, and says so", || {
        let text = metrics(&cluster, 1 - holder);
        text.contains("\nrunyard_holder 1\n") && of_the_holder.iter().all(|family| text.contains(family))
    });
}

/// The workers that are there, when each node's is.
fn workers(cluster: &Cluster, node: usize, n: usize) -> Vec<Value> {
    let mut found = Vec::new();
    wait_until(SOON, "every node has its worker there", || {
        let view = cluster.get(node, "/v1/workers");
        found = items(&view).iter().filter(|worker| worker["status"] != "offline").cloned().collect();
        found.len() == n
    });
    found
}

fn named<'a>(workers: &'a [Value], name: &str) -> &'a Value {
    workers.iter().find(|worker| worker["name"] == name).unwrap_or_else(|| panic!("{name}: {workers:#?}"))
}

fn act(cluster: &Cluster, worker: &Value, act: &str) {
    let path = format!("/v1/workers/{}/{act}", worker["id"].as_str().unwrap());
    cluster.expect(0, 200, "POST", &path, json!({}));
}

#[test]
fn a_worker_is_called_the_same_at_every_node_and_as_its_own_node_is() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(2);
    let holder = cluster.holder();
    let names: Vec<String> = cluster.nodes.iter().map(|node| node.name().to_owned()).collect();
    let all = workers(&cluster, 0, 2);
    let mut ran = Vec::new();
    for runs_at in [0, 1] {
        act(&cluster, named(&all, &names[1 - runs_at]), "drain");
        act(&cluster, named(&all, &names[runs_at]), "resume");
        let id = cluster.submit(0, json!({"kind": "noop"}));
        let shown: Vec<Value> = [0, 1].iter().map(|node| cluster.ends_as(*node, "completed", &id)).collect();
        assert_eq!(shown[0]["worker"], shown[1]["worker"], "ran at {runs_at}");
        for node in [0, 1] {
            let worker = cluster.get(node, &format!("/v1/workers/{}", shown[0]["worker"].as_str().unwrap()));
            assert_eq!((&worker["name"], &worker["embedded"]), (&json!(names[runs_at]), &json!(true)), "{worker:#}");
            assert!(!runyard(&cluster, node, &["workers"]).contains("embedded"));
        }
        ran.push((id, shown[0]["worker"].clone()));
    }
    cluster.nodes[holder].ask_to_stop();
    wait_until(SOON, "another node holds the lease", || cluster.holder_seen_by(1 - holder) == Some(1 - holder));
    let left = workers(&cluster, 1 - holder, 1);
    assert_eq!((&left[0]["name"], &left[0]["embedded"]), (&json!(names[1 - holder]), &json!(true)), "{left:#?}");
    for (id, worker) in ran {
        assert_eq!(cluster.get(1 - holder, &format!("/v1/tasks/{id}"))["worker"], worker);
    }
}

#[test]
fn the_worker_of_a_node_that_follows_gets_work_however_busy_its_machine_is() {
    let _turn = beside_others();
    let config = CONFIG.replace("maxCpuUsage = 100", "maxCpuUsage = 0");
    let sites = ["node-1", "node-2"].map(Site::on_loopback).to_vec();
    let cluster = Cluster::start(Plan { sites, url: &str::to_owned, config: &config, postgres: Options::default() });
    let holder = cluster.holder();
    let all = workers(&cluster, 0, 2);
    act(&cluster, named(&all, cluster.nodes[holder].name()), "drain");
    let path = format!("/v1/workers/{}", named(&all, cluster.nodes[1 - holder].name())["id"].as_str().unwrap());
    let mut seen = BTreeSet::new();
    // Its first sample does not count.
    wait_until(SOON, "it has said how busy it is", || {
        let worker = cluster.get(0, &path);
        if worker["metrics"]["cpuUsage"].as_f64().is_some_and(|usage| usage > 0.0) {
            seen.insert(worker["lastSeenAt"].to_string());
        }
        seen.len() > 3
    });
    let id = cluster.submit(0, json!({"kind": "noop", "resources": {"cpu": 1}}));
    cluster.ends_as(0, "completed", &id);
}

#[test]
fn whoever_joins_with_a_key_is_no_server_s_own_worker_whatever_it_says() {
    let _turn = beside_others();
    let cluster = Cluster::of(1);
    let key = cluster.expect(0, 201, "POST", "/v1/keys", json!({"name": "join", "scopes": ["worker"]}));
    let own = workers(&cluster, 0, 1)[0]["id"].as_str().unwrap().to_owned();
    let about = json!({"name": "stranger", "cpus": 1, "ramMb": 1, "kinds": ["noop"]}).to_string();
    let client = Client::new(cluster.nodes[0].address()).with_key(key["key"].as_str().unwrap());
    let headers = [("runyard-worker", &*own)];
    let joined = client.try_send("POST", "/v1/workers", &headers, about.as_bytes()).expect("an answer");
    assert_eq!(joined.status, 201, "{}", joined.body);
    let worker = cluster.get(0, &format!("/v1/workers/{}", joined.json()["id"].as_str().unwrap()));
    assert_eq!((&worker["name"], &worker["embedded"]), (&json!("stranger"), &json!(false)), "{worker:#}");
    assert_ne!(worker["id"], *own);
}

#[test]
fn a_node_that_is_not_heard_of_any_more_is_away() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(2);
    let holder = cluster.holder();
    let gone = 1 - holder;
    cluster.nodes[gone].kill9();
    let role = || {
        let view = cluster.get(holder, "/v1/nodes");
        let node = items(&view).iter().find(|node| node["name"] == cluster.nodes[gone].name());
        node.expect("it is listed for a day")["role"].as_str().unwrap().to_owned()
    };
    assert_eq!(role(), "follower", "it may be a beat that is late");
    let earlier = "UPDATE nodes SET seen_at = seen_at - interval '11 seconds' WHERE name = ";
    cluster.sql(&format!("{earlier}'{}'", cluster.nodes[gone].name()));
    assert_eq!(role(), "away");
    let printed = runyard(&cluster, holder, &["nodes"]);
    let line = printed.lines().find(|line| line.contains(cluster.nodes[gone].name())).unwrap();
    assert!(line.contains("away") && !line.contains("follower"), "{printed}");
    cluster.nodes[gone].start_again();
    cluster.nodes[gone].until_ready();
    let view = cluster.get(holder, "/v1/nodes");
    assert!(items(&view).iter().all(|node| node["role"] != "away"), "{view:#}");
}

#[test]
fn a_node_that_is_called_as_another_one_says_so_and_is_told_apart() {
    let _turn = beside_others();
    let cluster = Cluster::of(1);
    let data = cluster.home().join("twin");
    let twin = Node::start(Site::on_loopback("node-1"), cluster.url(), data, CONFIG);
    twin.until_ready();
    wait_until(SOON, "it warns", || twin.said().contains("another node has the same name"));
    let view = cluster.get(0, "/v1/nodes");
    let other = items(&view).iter().find(|node| node["isSelf"] == true).unwrap()["id"].as_str().unwrap();
    assert!(twin.said().contains(other), "{}", twin.said());
    assert!(!cluster.nodes[0].said().contains("the same name"), "it was alone when it started");
    let printed = runyard(&cluster, 0, &["nodes"]);
    for node in items(&view) {
        let end = node["id"].as_str().unwrap().rsplit('-').next().unwrap();
        assert_eq!(printed.lines().filter(|line| line.contains(end)).count(), 1, "{printed}");
    }
    assert_eq!(items(&view).len(), 2);
}
