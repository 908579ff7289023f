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

/// It says something each time that the test wants it to.
struct Talker {
    id: String,
    says: std::path::PathBuf,
}

impl Talker {
    /// On the worker of this node, the only one that takes anything.
    fn start(cluster: &Cluster, node: usize) -> Talker {
        let says = cluster.folder(&format!("says-{node}"));
        let shell = format!(
            "for n in 1 2 3; do while [ ! -e {says}/$n ]; do sleep 0.02; done; \
             echo '{{\"progress\":0.'$n',\"message\":\"step '$n'\"}}' >> $RUNYARD_REPORT; done; \
             while [ ! -e {says}/4 ]; do sleep 0.02; done",
            says = says.display()
        );
        let id = cluster.submit(node, json!({"kind": "process", "payload": {"shell": shell}}));
        cluster.until_state(node, &id, "running");
        Talker { id, says }
    }

    fn says(&self, n: usize) {
        std::fs::write(self.says.join(n.to_string()), "").unwrap();
    }
}

/// Nothing new for the workers of the other nodes.
fn only_at(cluster: &Cluster, node: usize) {
    let mut workers = Vec::new();
    wait_until(SOON, "every node has its worker there", || {
        workers.clone_from(cluster.get(0, "/v1/workers")["items"].as_array().unwrap());
        workers.len() == 3
    });
    let name = cluster.nodes[node].name();
    for worker in workers {
        let (id, act) = (worker["id"].as_str().unwrap(), if worker["name"] == *name { "resume" } else { "drain" });
        cluster.expect(0, 200, "POST", &format!("/v1/workers/{id}/{act}"), json!({}));
    }
}

#[test]
fn progress_is_told_at_every_node_wherever_the_task_runs() {
    let _turn = beside_others();
    let cluster = Cluster::of(3);
    let [one, _] = cluster.followers();
    for runs_at in [cluster.holder(), one] {
        only_at(&cluster, runs_at);
        let talker = Talker::start(&cluster, runs_at);
        let path = format!("/v1/events?types=task.progress&task={}", talker.id);
        let mut streams: Vec<_> = cluster.nodes.iter().map(|node| node.stream(&path, &[])).collect();
        for n in 1..=3 {
            talker.says(n);
            let said = format!("step {n}");
            for (node, stream) in streams.iter_mut().enumerate() {
                wait_until(SOON, "a task is shown with what it said", || {
                    cluster.get(node, &format!("/v1/tasks/{}", talker.id))["progress"]["message"] == *said
                });
                let (name, _, event) = stream.sse().expect("the stream goes on");
                assert_eq!((&*name, &event["task"]), ("task.progress", &json!(talker.id)));
                // Each once: the next is the next.
                assert_eq!(event["data"]["message"], said, "at {node}, runs at {runs_at}: {event:#}");
            }
        }
        talker.says(4);
        let task = cluster.ends_as(one, "completed", &talker.id);
        assert!(task["progress"].is_null(), "{task:#}");
    }
}
