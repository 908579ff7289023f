//! A change of holder, measured from outside.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::alone;
use crate::cluster::{Cluster, PAUSE, Press, Record, SOON, TAKEOVER_MAX, TTL, TakenOver};
use crate::support::wait_until;

const CLEAN_MAX: Duration = Duration::from_secs(1);
/// A request beyond the moment that it waited for: it was on its way, and is answered after a commit.
const ANSWER_MAX: Duration = Duration::from_secs(1);

#[test]
fn a_clean_stop_hands_over_within_a_second_and_a_client_sees_no_error() {
    let _turn = alone();
    let (mut cluster, mut known) = (Cluster::of(3), Vec::new());
    for round in 0..3 {
        let (holder, [one, other]) = (cluster.holder(), cluster.followers());
        let press = Press::once(vec![cluster.nodes[one].client()], PAUSE, |_| json!({"kind": "noop"}));
        wait_until(SOON, "there is a load", || press.n_accepted() >= 20);
        let began = Instant::now();
        cluster.nodes[holder].ask_to_stop();
        let TakenOver { by: next, first, took } = cluster.until_taken_over(other, holder, began);
        println!("round {round}: from {holder} to {next} in {took:?}");
        known.push(first);
        assert!(took < CLEAN_MAX, "it took {took:?}");
        finish(&cluster, press, &mut known, other, CLEAN_MAX + ANSWER_MAX);
        assert!(cluster.nodes[holder].ended().success());
        cluster.nodes[holder].start_again();
        cluster.nodes[holder].until_ready();
    }
}

#[test]
fn a_killed_holder_is_followed_within_its_lease_and_two_seconds_and_a_client_sees_no_error() {
    let _turn = alone();
    let (mut cluster, mut known) = (Cluster::of(3), Vec::new());
    for round in 0..2 {
        let (holder, [one, other]) = (cluster.holder(), cluster.followers());
        let epoch = cluster.epoch(one);
        let press = Press::once(vec![cluster.nodes[one].client()], PAUSE, |_| json!({"kind": "noop"}));
        wait_until(SOON, "there is a load", || press.n_accepted() >= 20);
        let began = Instant::now();
        cluster.nodes[holder].kill9();
        let TakenOver { by: next, first, took } = cluster.until_taken_over(other, holder, began);
        println!("round {round}: from {holder} to {next} in {took:?}");
        known.push(first);
        assert!(took < TTL + TAKEOVER_MAX, "it took {took:?}");
        assert!(cluster.epoch(one) > epoch, "a new holder has an epoch of its own");
        finish(&cluster, press, &mut known, other, TTL + TAKEOVER_MAX + ANSWER_MAX);
        cluster.nodes[holder].start_again();
        cluster.nodes[holder].until_ready();
        assert_eq!(cluster.holder(), next, "who comes back takes nothing from the one that holds");
    }
}

/// Some more, and then everything that was accepted ends, once, and there is nothing else. `known` are the tasks so far.
fn finish(cluster: &Cluster, press: Press, known: &mut Vec<String>, at: usize, longest_max: Duration) {
    let n_before = press.n_accepted();
    wait_until(SOON, "it goes on", || press.n_accepted() >= n_before + 20);
    let pressed = press.end();
    println!("{} tasks, the longest answer took {:?}", pressed.ids.len(), pressed.longest);
    assert_eq!(pressed.refusals, [], "a client sees a pause and not an error");
    assert!(pressed.longest < longest_max, "the longest answer took {:?}", pressed.longest);
    known.extend(pressed.ids);
    known.iter().for_each(|id| drop(cluster.ends_as(at, "completed", id)));
    let record = Record::read(cluster, at);
    record.each_ended_once(known);
    known.push(record.entries.last().unwrap().task.clone());
    record.nobody_else_ran(known, |_| false);
}
