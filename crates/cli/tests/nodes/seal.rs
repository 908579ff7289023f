//! The key that secrets are sealed with: a node that lacks it neither makes another one nor holds the lease.

use serde_json::json;

use crate::beside_others;
use crate::cluster::{CONFIG, Cluster, Node, SOON, Site};
use crate::support::wait_until;

/// The only node that has the key is killed, and a new one has been there for longer than its lease.
fn left_to_a_newcomer() -> Cluster {
    let mut cluster = Cluster::of(1);
    cluster.expect(0, 204, "PUT", "/v1/secrets/tok", json!({"value": "a secret of twenty!!"}));
    cluster.nodes[0].kill9();
    let name = "node-2";
    let mut node = Node::start(Site::on_loopback(name), cluster.url(), cluster.home().join(name), CONFIG);
    node.give_key(cluster.admin());
    cluster.nodes.push(node);
    until_it_could_hold(&cluster, name);
    cluster
}

/// The lease is over, and this node has said twice since that it is here.
fn until_it_could_hold(cluster: &Cluster, name: &str) {
    let sql = format!(
        "SELECT count(*) FROM nodes n, lease l WHERE n.name = '{name}' AND n.seen_at > l.until + interval '1 second'"
    );
    wait_until(SOON, "it could take the lease", || cluster.sql(&sql) == "1");
}

#[test]
fn a_new_node_waits_for_one_that_has_the_key_of_the_secrets() {
    let _turn = beside_others();
    let mut cluster = left_to_a_newcomer();
    assert_eq!(cluster.nodes[1].ready_status(), Some(503));
    assert!(!cluster.nodes[1].data().join("secrets.key").exists());
    let says = || cluster.nodes[1].last_lines().contains("has no secrets.key");
    wait_until(SOON, "it says what it lacks", says);
    cluster.nodes[0].start_again();
    cluster.until_all_ready();
    // Now it has the key, and can go on alone.
    cluster.nodes[0].kill9();
    cluster.nodes[1].until_ready();
    let payload = json!({"shell": "echo ${#T}", "env": {"T": "secret://tok"}});
    let id = cluster.submit(1, json!({"kind": "process", "payload": payload}));
    assert_eq!(cluster.ends_as(1, "completed", &id)["result"]["stdout"], "20\n");
}

#[test]
fn a_key_that_is_lost_for_good_can_be_given_up() {
    let _turn = beside_others();
    let mut cluster = left_to_a_newcomer();
    cluster.nodes[1].kill9();
    assert_cmd::Command::new(env!("CARGO_BIN_EXE_runyard"))
        .args(["migrate", "--give-up-secrets", "--store", cluster.url()])
        .assert()
        .success();
    cluster.nodes[1].start_again();
    cluster.nodes[1].until_ready();
    let id = cluster.submit(1, json!({"kind": "noop"}));
    cluster.ends_as(1, "completed", &id);
    cluster.expect(1, 204, "PUT", "/v1/secrets/tok", json!({"value": "another one, as long"}));
    // Who has the old one after all is not let in with it.
    cluster.nodes[0].start_again();
    wait_until(SOON, "it ends", || cluster.nodes[0].has_ended());
    assert!(cluster.nodes[0].last_lines().contains("is not the key of the other nodes"));
}
