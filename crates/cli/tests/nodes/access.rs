//! What is decided at one node holds at all of them.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::beside_others;
use crate::cluster::{Cluster, SOON};
use crate::support::{Client, wait_until};

/// The issue: a key that was revoked works nowhere any more after that.
const SPREAD_MAX: Duration = Duration::from_secs(2);

#[test]
fn a_key_works_at_every_node_and_once_revoked_at_none() {
    let _turn = beside_others();
    let cluster = Cluster::of(3);
    let [one, other] = cluster.followers();
    let made = cluster.expect(one, 201, "POST", "/v1/keys", json!({"name": "reader", "scopes": ["read"]}));
    let key = made["key"].as_str().unwrap();
    let clients: Vec<Client> = cluster.nodes.iter().map(|node| node.client().with_key(key)).collect();
    let status = |client: &Client| client.try_send("GET", "/v1/tasks", &[], b"").unwrap().status;
    wait_until(SPREAD_MAX, "every node knows the key", || clients.iter().all(|client| status(client) == 200));
    let refused = clients[other].try_send("POST", "/v1/tasks", &[], br#"{"kind":"noop"}"#).unwrap();
    assert_eq!(refused.status, 403, "every node knows what it may do: {}", refused.body);
    let id = made["id"].as_str().unwrap();
    let answer = cluster.request(other, "DELETE", &format!("/v1/keys/{id}"), "");
    assert_eq!(answer.status, 204, "{}", answer.body);
    let began = Instant::now();
    wait_until(SPREAD_MAX, "no node takes the key", || clients.iter().all(|client| status(client) == 401));
    println!("revoked everywhere after {:?}", began.elapsed());
}

#[test]
fn a_setting_that_is_put_at_one_node_holds_at_all() {
    let _turn = beside_others();
    let cluster = Cluster::of(3);
    let [one, other] = cluster.followers();
    cluster.expect(one, 200, "PUT", "/v1/lanes/narrow", json!({"limit": 7}));
    let limit = |node: usize| {
        let lanes = cluster.get(node, "/v1/lanes");
        let narrow = lanes["items"].as_array().unwrap().iter().find(|lane| lane["name"] == "narrow");
        narrow.map(|lane| lane["limit"].clone())
    };
    wait_until(SPREAD_MAX, "every node shows it", || (0..3).all(|node| limit(node) == Some(json!(7))));
    cluster.expect(other, 200, "PATCH", "/v1/config", json!({"limits": {"maxInflight": 77}}));
    let shown = |node: usize| cluster.get(node, "/v1/config")["values"]["limits"]["maxInflight"].clone();
    wait_until(SPREAD_MAX, "every node shows it", || (0..3).all(|node| shown(node) == json!(77)));
}

#[test]
fn who_has_no_key_joins_no_worker_and_cannot_pose_as_a_node_at_any_of_them() {
    let _turn = beside_others();
    let cluster = Cluster::of(3);
    let worker = json!({"name": "stray", "cpus": 1.0, "ramMb": 100, "kinds": ["noop"]}).to_string();
    let id = "01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11";
    let tries: [&[(&str, &str)]; 3] =
        [&[], &[("runyard-worker", id)], &[("runyard-worker", id), ("runyard-node", "00")]];
    for (node, headers) in (0..3).flat_map(|node| tries.map(|headers| (node, headers))) {
        let stranger = Client { key: None, ..cluster.nodes[node].client() };
        let answer = stranger.try_send("POST", "/v1/workers", headers, worker.as_bytes()).unwrap();
        assert_eq!(answer.status, 401, "at {node} with {headers:?}: {}", answer.body);
        let answer = stranger.try_send("GET", "/v1/nodes/sealing-key", headers, b"").unwrap();
        assert!([401, 404].contains(&answer.status), "at {node} with {headers:?}: {}", answer.body);
        // Nor does a node say for it what only nodes may say.
        let answer = stranger.try_send("POST", "/v1/nodes/used", headers, b"{}").unwrap();
        assert!([401, 404].contains(&answer.status), "at {node} with {headers:?}: {}", answer.body);
    }
    let workers = cluster.get(0, "/v1/workers");
    assert!(workers["items"].as_array().unwrap().iter().all(|worker| worker["name"] != "stray"), "{workers:#}");
}

#[test]
fn a_use_of_a_key_at_a_follower_is_known_at_the_holder() {
    let _turn = beside_others();
    let cluster = Cluster::of(2);
    let (holder, follower) = (cluster.holder(), 1 - cluster.holder());
    let made = cluster.expect(holder, 201, "POST", "/v1/keys", json!({"name": "reader", "scopes": ["read"]}));
    let reader = cluster.nodes[follower].client().with_key(made["key"].as_str().unwrap());
    let last_used = |node: usize| {
        let keys = cluster.get(node, "/v1/keys");
        let key = keys["items"].as_array().unwrap().iter().find(|key| key["id"] == made["id"]);
        key.map(|key| key["lastUsedAt"].clone()).unwrap_or_default()
    };
    wait_until(SPREAD_MAX, "the follower takes it", || {
        reader.try_send("GET", "/v1/tasks", &[], b"").unwrap().status == 200
    });
    wait_until(SOON, "the holder knows", || last_used(holder).is_string());
    assert_eq!(last_used(follower), last_used(holder));
    // What another one changes must not take it back.
    cluster.expect(holder, 201, "POST", "/v1/keys", json!({"name": "another", "scopes": ["read"]}));
    wait_until(SPREAD_MAX, "the follower has read the keys again", || {
        cluster.get(follower, "/v1/keys")["items"].as_array().unwrap().len() == 3
    });
    assert!(last_used(follower).is_string());
}
