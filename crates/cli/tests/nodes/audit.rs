//! Who changed what is one list, whoever held the lease and whichever node is asked.

use serde_json::{Value, json};

use crate::beside_others;
use crate::cluster::{Cluster, SOON};
use crate::support::wait_until;

#[test]
fn every_node_shows_what_was_changed_under_every_holder() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(3);
    let [one, other] = cluster.followers();
    let make_key = |cluster: &Cluster, name: &str| {
        drop(cluster.expect(one, 201, "POST", "/v1/keys", json!({"name": name, "scopes": ["read"]})))
    };
    make_key(&cluster, "under-the-first");
    let holder = cluster.holder();
    cluster.nodes[holder].kill9();
    wait_until(SOON, "another node holds the lease", || cluster.holder_seen_by(one).is_some_and(|now| now != holder));
    make_key(&cluster, "under-the-second");
    let shown = cluster.get(one, "/v1/audit");
    let entries = shown["items"].as_array().unwrap();
    let names: Vec<&Value> =
        entries.iter().filter(|entry| entry["action"] == "key.created").map(|entry| &entry["after"]["name"]).collect();
    assert_eq!(names, ["under-the-second", "under-the-first"], "{shown:#}");
    let numbers: Vec<u64> = entries.iter().map(|entry| entry["n"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=entries.len() as u64).rev().collect::<Vec<_>>());
    assert_eq!(cluster.get(other, "/v1/audit"), shown);
    let first = cluster.get(other, "/v1/audit?limit=1");
    let next = cluster.get(one, &format!("/v1/audit?limit=1&cursor={}", first["nextCursor"].as_str().unwrap()));
    assert_eq!([&first["items"][0], &next["items"][0]], [&entries[0], &entries[1]]);
}

#[test]
fn what_a_node_changed_by_itself_names_the_node() {
    let _turn = beside_others();
    let cluster = Cluster::of(2);
    let follower = 1 - cluster.holder();
    let node = &cluster.nodes[follower];
    node.add_to_config("[limits]\nmaxInflight = 77\n");
    let told = format!("file change at {}", node.name());
    let is_told = |entry: &Value| entry["action"] == "config.reloaded" && entry["by"]["name"] == *told;
    wait_until(SOON, "every node shows it", || {
        (0..2).all(|at| cluster.get(at, "/v1/audit")["items"].as_array().unwrap().iter().any(is_told))
    });
}
