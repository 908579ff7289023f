//! What is true in the end, whatever happened.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::{Cluster, Record};
use crate::moments::{moments, nominal};
use crate::support::wait_until;
use crate::{EVERY_MS, LANE};

/// The last ones may have to be found lost, and run again.
const END_MAX: Duration = Duration::from_secs(120);

/// `n_unanswered` tasks were sent and may have been accepted.
pub fn check(cluster: &Cluster, ids: &[String], n_unanswered: usize, marks: &Path) {
    cluster.expect(0, 200, "POST", "/v1/schedules/pulse/pause", json!({}));
    until_quiet(cluster);
    let states = states(cluster);
    for id in ids {
        assert_eq!(states.get(id).map(String::as_str), Some("completed"), "{id}");
    }
    // The same log at each node, read from its beginning.
    let record = Record::read(cluster, 1);
    let last = &record.entries.last().unwrap().task;
    assert!(Record::until(cluster, 2, "0-0", last).entries == record.entries, "two nodes tell two stories");
    record.each_ended_once(ids);
    let fired = each_moment_fired_once(cluster);
    record.each_ended_once(&fired);
    let n_made = record.entries.iter().filter(|entry| entry.kind == "task.created").count();
    let n_known = ids.len() + fired.len() + 1;
    let n_asked = n_known..=n_known + n_unanswered;
    assert!(n_asked.contains(&n_made), "nothing was made that nobody asked for: {n_made} of {n_asked:?}");
    let most = record.most_at_once("narrow");
    assert!((1..=LANE).contains(&most), "{most} of the lane ran at once");
    each_attempt_ran_once(marks);
    eprintln!("{n_made} tasks, {} events, {} moments, {most} at once at most", record.entries.len(), fired.len());
}

fn until_quiet(cluster: &Cluster) {
    wait_until(END_MAX, "everything has ended", || {
        let queue = cluster.get(0, "/v1/stats")["queue"].clone();
        queue["totalQueued"] == 0 && queue["totalRunning"] == 0
    });
}

fn states(cluster: &Cluster) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut path = "/v1/tasks?limit=1000".to_owned();
    loop {
        let page = cluster.get(2, &path);
        for task in page["items"].as_array().unwrap() {
            let text = |key: &str| task[key].as_str().unwrap().to_owned();
            assert!(all.insert(text("id"), text("state")).is_none(), "listed twice: {task:#}");
        }
        let Some(cursor) = page["nextCursor"].as_str() else { return all };
        path = format!("/v1/tasks?limit=1000&cursor={cursor}");
    }
}

/// Gives the tasks that were made for them.
fn each_moment_fired_once(cluster: &Cluster) -> Vec<String> {
    let all = moments(|path| cluster.get(1, path), "pulse");
    let schedule = cluster.get(1, "/v1/schedules/pulse");
    let times: Vec<i64> = all.keys().copied().collect();
    assert_eq!(times, nominal(&schedule, EVERY_MS, all.len()), "none is left out");
    let task = |run: &Value| {
        assert_eq!(run["outcome"], "completed", "{run:#}");
        run["taskId"].as_str().unwrap().to_owned()
    };
    all.values().map(task).collect()
}

/// An attempt that two nodes had handed out would have left two marks.
fn each_attempt_ran_once(marks: &Path) {
    assert!(std::fs::read_dir(marks).unwrap().count() > 0, "processes ran");
    for entry in std::fs::read_dir(marks).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "x\n", "{}", path.display());
    }
}
