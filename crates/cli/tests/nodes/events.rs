//! One event log, whichever node serves it.

use serde_json::json;

use crate::beside_others;
use crate::cluster::{Cluster, PAUSE, Press, Record, SOON};
use crate::support::wait_until;

#[test]
fn every_node_tells_the_same_events_in_the_same_order() {
    let _turn = beside_others();
    let cluster = Cluster::of(3);
    let [one, other] = cluster.followers();
    let press = Press::start(vec![cluster.nodes[one].client()], |_| json!({"kind": "noop"}));
    wait_until(SOON, "there is something to tell", || press.n_accepted() >= 100);
    let ids = press.end().ids;
    ids.iter().for_each(|id| drop(cluster.ends_as(other, "completed", id)));
    let record = Record::read(&cluster, one);
    record.each_ended_once(&ids);
    let last = record.entries.last().unwrap().task.clone();
    for node in 0..3 {
        assert_eq!(Record::until(&cluster, node, "0-0", &last).entries, record.entries, "node {node}");
    }
    // From the middle, at another node than the one that said how far it was.
    let (half, rest) = record.entries.split_at(record.entries.len() / 2);
    let (seq, index) = half.last().unwrap().id;
    assert_eq!(Record::until(&cluster, other, &format!("{seq}-{index}"), &last).entries, rest);
}

#[test]
fn a_live_stream_at_a_follower_misses_nothing_through_a_change_of_holder() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(3);
    let [one, other] = cluster.followers();
    let holder = cluster.holder();
    let mut stream = cluster.nodes[one].stream("/v1/events?types=task.completed", &[]);
    let press = Press::once(vec![cluster.nodes[other].client()], PAUSE, |_| json!({"kind": "noop"}));
    wait_until(SOON, "there is a load", || press.n_accepted() >= 20);
    cluster.nodes[holder].kill9();
    wait_until(SOON, "another node holds the lease", || cluster.holder_seen_by(one).is_some_and(|now| now != holder));
    let n_before = press.n_accepted();
    wait_until(SOON, "it goes on", || press.n_accepted() >= n_before + 20);
    let mut awaited = press.end().ids;
    let mut last = (0, 0);
    while !awaited.is_empty() {
        let (_, id, event) = stream.sse().expect("the stream goes on");
        let id = id.unwrap();
        let (seq, index) = id.split_once('-').unwrap();
        let at = (seq.parse().unwrap(), index.parse::<u64>().unwrap());
        assert!(last < at, "{last:?} {at:?}");
        last = at;
        let n_awaited = awaited.len();
        awaited.retain(|id| event["task"] != id.as_str());
        assert_eq!(awaited.len() + 1, n_awaited, "an end that was told before, or of nobody: {event:#}");
    }
}
