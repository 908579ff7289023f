//! Every node takes every request.

use std::time::Duration;

use serde_json::{Value, json};

use crate::beside_others;
use crate::cluster::{Cluster, SOON, TTL};
use crate::site::Host;
use crate::support::wait_until;

#[test]
fn each_node_lists_all_of_them_and_the_one_that_holds() {
    let _turn = beside_others();
    let cluster = Cluster::of(3);
    let holder = cluster.holder();
    let ids = |view: &Value| {
        let mut ids: Vec<String> = nodes(view).iter().map(|node| node["id"].to_string()).collect();
        ids.sort();
        ids
    };
    let first = cluster.get(0, "/v1/nodes");
    assert_eq!(nodes(&first).len(), 3, "{first:#}");
    for (n, node) in cluster.nodes.iter().enumerate() {
        let view = cluster.get(n, "/v1/nodes");
        assert_eq!((ids(&view), &view["epoch"]), (ids(&first), &first["epoch"]), "{view:#}");
        for item in nodes(&view) {
            let its = cluster.nodes.iter().position(|node| item["name"] == node.name()).unwrap();
            assert_eq!(item["isSelf"], json!(its == n), "{view:#}");
            assert_eq!(item["role"], if its == holder { "holder" } else { "follower" }, "{view:#}");
            assert_eq!(item["url"], cluster.nodes[its].url(), "{view:#}");
            assert!(item["silentMs"].as_u64().unwrap() <= TTL.as_millis() as u64, "{view:#}");
            assert!(item["version"].is_string() && item["startedAt"].is_string(), "{view:#}");
        }
        let printed = runyard(&cluster, n, &["nodes"]);
        for other in &cluster.nodes {
            let line = printed.lines().find(|line| line.contains(other.name())).unwrap_or_else(|| panic!("{printed}"));
            assert_eq!(line.contains("holder"), other.name() == cluster.nodes[holder].name(), "{printed}");
        }
        assert!(printed.contains(&node.url()), "{printed}");
    }
}

#[test]
fn a_follower_takes_a_submit_a_cancel_and_the_question_why() {
    let _turn = beside_others();
    let cluster = Cluster::of(3);
    let [one, other] = cluster.followers();
    cluster.expect(one, 200, "PUT", "/v1/lanes/narrow", json!({"limit": 1}));
    let blocker = cluster.submit(one, lane_task("noop", json!({"sleepMs": 600_000})));
    cluster.until_state(other, &blocker, "running");
    let waiting = cluster.submit(other, lane_task("noop", json!({})));
    let explained = cluster.get(one, &format!("/v1/tasks/{waiting}/explain"));
    let closed: Vec<&Value> =
        explained["gates"].as_array().unwrap().iter().filter(|gate| gate["open"] == false).collect();
    assert!(closed.len() == 1 && closed[0]["name"] == "narrow", "{explained:#}");
    assert!(closed[0].to_string().contains(&blocker), "it says who holds the lane: {explained:#}");
    let said = runyard(&cluster, other, &["why", &waiting]);
    assert!(said.contains("lane") && said.contains("narrow"), "{said}");
    cluster.expect(one, 202, "POST", &format!("/v1/tasks/{blocker}/cancel"), json!({}));
    cluster.ends_as(other, "cancelled", &blocker);
    cluster.ends_as(one, "completed", &waiting);
    let refused = cluster.request(other, "POST", &format!("/v1/tasks/{blocker}/cancel"), "{}");
    assert_eq!(refused.status, 409, "{}", refused.body);
}

#[test]
fn a_follower_takes_a_batch_a_session_and_a_schedule() {
    let _turn = beside_others();
    let cluster = Cluster::of(3);
    let [one, other] = cluster.followers();
    let tasks = json!({"tasks": [{"name": "a", "kind": "noop"}, {"kind": "noop", "dependsOn": ["#a"]}]});
    let batch = cluster.expect(one, 201, "POST", "/v1/batches", tasks);
    for task in batch["tasks"].as_array().unwrap() {
        cluster.ends_as(other, "completed", task["id"].as_str().unwrap());
    }
    let message = json!({"kind": "noop", "session": "room", "payload": {"message": "hi"}});
    cluster.ends_as(other, "completed", &cluster.submit(one, message));
    let schedule = json!({"name": "soon", "schedule": {"kind": "every", "everyMs": 1000}, "task": {"kind": "noop"}});
    cluster.expect(other, 201, "POST", "/v1/schedules", schedule);
    let has_run = || !nodes(&cluster.get(one, "/v1/schedules/soon/runs")).is_empty();
    wait_until(SOON, "the schedule fires", has_run);
}

#[test]
fn a_log_is_read_at_every_node_while_it_is_written_and_after() {
    let _turn = beside_others();
    let cluster = Cluster::of(3);
    let [one, other] = cluster.followers();
    let go = cluster.home().join("go");
    let shell = format!("echo first; while [ ! -e {} ]; do sleep 0.02; done; echo second", go.display());
    let id = cluster.submit(one, json!({"kind": "process", "payload": {"shell": shell}}));
    let path = format!("/v1/tasks/{id}/logs");
    let mut followed: Vec<_> =
        (0..3).map(|node| cluster.nodes[node].stream(&format!("{path}?follow=true"), &[])).collect();
    for stream in &mut followed {
        assert_eq!(stream.line().as_deref(), Some("first"));
    }
    cluster.until_state(other, &id, "running");
    std::fs::write(&go, "").unwrap();
    for stream in &mut followed {
        assert_eq!((stream.line().as_deref(), stream.line()), (Some("second"), None));
    }
    cluster.ends_as(one, "completed", &id);
    let is_whole = |node: usize| cluster.request(node, "GET", &path, "").body == "first\nsecond\n";
    wait_until(SOON, "every node has the log of what has ended", || (0..3).all(is_whole));
}

#[test]
fn a_wait_at_a_follower_ends_with_the_task() {
    let _turn = beside_others();
    let cluster = Cluster::of(3);
    let [one, other] = cluster.followers();
    let id = cluster.submit(one, json!({"kind": "noop", "payload": {"sleepMs": 600_000}}));
    cluster.until_state(one, &id, "running");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| cluster.ends_as(other, "cancelled", &id));
        cluster.expect(one, 202, "POST", &format!("/v1/tasks/{id}/cancel"), json!({}));
        waiter.join().unwrap();
    });
}

#[test]
fn a_worker_that_joined_at_a_follower_goes_on_through_a_change_of_holder() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(3);
    let [one, other] = cluster.followers();
    let key = cluster.expect(other, 201, "POST", "/v1/keys", json!({"name": "join", "scopes": ["worker"]}));
    let flags = ["--name", "field", "--labels", "zone=field", "--max-parallel", "4"];
    let (token, url) = (key["key"].as_str().unwrap(), cluster.nodes[one].url());
    let worker = Host::join(cluster.home(), "field", &flags, &url, token, &[]);
    let go = cluster.home().join("go");
    let shell = format!("while [ ! -e {} ]; do sleep 0.02; done; echo done", go.display());
    let place = json!({"require": {"zone": "field"}});
    let id = cluster.submit(other, json!({"kind": "process", "payload": {"shell": shell}, "place": place}));
    cluster.until_state(one, &id, "running");
    let holder = cluster.holder();
    cluster.nodes[holder].kill9();
    wait_until(SOON, "another node holds the lease", || cluster.holder_seen_by(one).is_some_and(|now| now != holder));
    std::fs::write(&go, "").unwrap();
    let task = cluster.ends_as(other, "completed", &id);
    assert_eq!(task["attempts"], 1, "it was not lost: {task:#}");
    let next = cluster.submit(one, json!({"kind": "process", "payload": {"shell": "true"}, "place": place}));
    cluster.ends_as(other, "completed", &next);
    drop(worker);
}

fn lane_task(kind: &str, payload: Value) -> Value {
    json!({"kind": kind, "lane": "narrow", "payload": payload})
}

fn nodes(view: &Value) -> &Vec<Value> {
    view["items"].as_array().unwrap_or_else(|| panic!("{view:#}"))
}

/// The client's command, at this node.
pub fn runyard(cluster: &Cluster, node: usize, arguments: &[&str]) -> String {
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_runyard"));
    command.args(["--url", &cluster.nodes[node].url(), "--api-key", cluster.admin()]).args(arguments);
    let output = command.timeout(Duration::from_secs(60)).assert().success();
    String::from_utf8(output.get_output().stdout.clone()).unwrap()
}
