//! What the event log says of a whole run: each entry in its order, as any node serves it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::Cluster;

pub struct Record {
    pub entries: Vec<Entry>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Of the commit, and of the event in it.
    pub id: (u64, u64),
    pub kind: String,
    pub task: String,
    pub lane: String,
}

const FINAL: [&str; 4] = ["task.completed", "task.failed", "task.cancelled", "task.rejected"];

impl Record {
    /// From the first event to that of a task made for this purpose.
    pub fn read(cluster: &Cluster, node: usize) -> Record {
        let last = cluster.submit(node, json!({"kind": "noop", "agent": "marker"}));
        Record::until(cluster, node, "0-0", &last)
    }

    /// From behind an event to the end of a task.
    pub fn until(cluster: &Cluster, node: usize, after: &str, last: &str) -> Record {
        let mut stream = cluster.nodes[node].stream("/v1/events", &[("last-event-id", after)]);
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let (kind, id, event) = stream.sse().expect("the stream goes on");
            assert_ne!(kind, "reset", "the log is whole");
            let Some(id) = id else { continue };
            let entry = Entry { id: position(&id), kind, task: text(&event["task"]), lane: text(&event["lane"]) };
            let earlier = entries.last().map(|entry| entry.id);
            assert!(earlier.is_none_or(|earlier| earlier < entry.id), "{earlier:?} stands before {entry:?}");
            let is_last = entry.task == last && FINAL.contains(&entry.kind.as_str());
            entries.push(entry);
            if is_last {
                return Record { entries };
            }
        }
    }

    /// Each of these was created once and has one end.
    pub fn each_ended_once(&self, ids: &[String]) {
        let mut counts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for entry in &self.entries {
            let count = counts.entry(&entry.task).or_default();
            count.0 += u64::from(entry.kind == "task.created");
            count.1 += u64::from(FINAL.contains(&entry.kind.as_str()));
        }
        for id in ids {
            let count = counts.get(id.as_str()).copied().unwrap_or_default();
            assert_eq!(count, (1, 1), "created and ended, of {id}: {:#?}", self.of(id));
        }
    }

    /// Nothing was made that nobody submitted.
    pub fn nobody_else_ran(&self, ids: &[String], is_known: impl Fn(&Entry) -> bool) {
        let ids: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
        let made = self.entries.iter().filter(|entry| entry.kind == "task.created");
        let strange: Vec<&Entry> =
            made.filter(|entry| !ids.contains(entry.task.as_str()) && !is_known(entry)).collect();
        assert!(strange.is_empty(), "{strange:#?}");
    }

    /// Never did more tasks of this lane run at once. Gives the most that did.
    pub fn most_at_once(&self, lane: &str) -> usize {
        let mut running: BTreeSet<&str> = BTreeSet::new();
        let mut most = 0;
        for entry in self.entries.iter().filter(|entry| entry.lane == lane) {
            match entry.kind.as_str() {
                "task.started" => drop(running.insert(&entry.task)),
                // Whoever runs no more is queued again, repeated, or at its end.
                "task.queued" | "task.retrying" | "task.preempted" => drop(running.remove(entry.task.as_str())),
                kind if FINAL.contains(&kind) => drop(running.remove(entry.task.as_str())),
                _ => {}
            }
            most = most.max(running.len());
        }
        most
    }

    pub fn of(&self, task: &str) -> Vec<&Entry> {
        self.entries.iter().filter(|entry| entry.task == task).collect()
    }
}

fn position(id: &str) -> (u64, u64) {
    let (seq, index) = id.split_once('-').unwrap_or_else(|| panic!("{id}"));
    (seq.parse().unwrap(), index.parse().unwrap())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
