//! What is true in the end, whatever happened: of every task, of the event log, and of what is left.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::process::{self, Grounds};
use crate::scene::{Scene, n, text};
use crate::support::is_terminal;
use crate::work::{Diary, Work};

/// For all of them together; the last ones may have to be found hung, stopped, and run again.
const END_MAX: Duration = Duration::from_secs(120);
const LEFT_MAX: Duration = Duration::from_secs(30);

/// A task that the server has acknowledged.
pub struct Accepted {
    pub id: String,
    pub work: Work,
}

pub fn wait_for_ends(scene: &Scene, grounds: &Grounds, accepted: &[Accepted]) {
    let began = Instant::now();
    for task in accepted {
        while !is_terminal(&scene.state(&task.id)) {
            assert!(began.elapsed() < END_MAX, "not within {END_MAX:?}: {}", told(scene, grounds, task));
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
}

/// Gives how many ended in each state.
pub fn check_tasks(scene: &Scene, grounds: &Grounds, accepted: &[Accepted]) -> BTreeMap<String, usize> {
    let mut ends = BTreeMap::new();
    for task in accepted {
        let end = check_task(scene, grounds, task);
        *ends.entry(end).or_default() += 1;
    }
    ends
}

fn check_task(scene: &Scene, grounds: &Grounds, accepted: &Accepted) -> String {
    let Accepted { id, work } = accepted;
    let task = scene.task(id);
    let state = text(&task["state"]);
    let diary = Diary::read(grounds, work.number);
    let told = || told(scene, grounds, accepted);
    assert!(work.way.may_end_as(&state), "a wrong end: {}", told());
    assert!(state != "completed" || diary.has("end"), "completed, and was never done: {}", told());
    assert!(!diary.has("twice"), "it began while an earlier copy of it was alive: {}", told());
    assert!(!diary.has("beside"), "it began while another of its session was alive: {}", told());
    let starts = diary.starts();
    assert!(starts.values().all(|n| *n == 1), "an attempt began more than once: {}", told());
    // An attempt that is stopped on its way may have come as far as that, and is not counted.
    let n_unseen_max = u64::from(state == "cancelled");
    assert!(starts.len() as u64 <= n(&task["attempts"]) + n_unseen_max, "it ran unseen: {}", told());
    state
}

/// All that can be known of a task: the directory is gone before anybody could look.
fn told(scene: &Scene, grounds: &Grounds, Accepted { id, work }: &Accepted) -> String {
    let mut told = format!("{work:?} {:#}\n{:?}\n", scene.task(id), scene.steps(id));
    let number = work.number.to_string();
    let processes =
        process::all(grounds).into_iter().filter(|process| process.task().is_none_or(|task| task == number));
    processes.for_each(|process| told += &format!("{process:?}\n"));
    let runs = entries(&grounds.data.join("runs")).into_iter().filter(|run| run.display().to_string().contains(id));
    let mut files: Vec<PathBuf> = runs.flat_map(|run| entries(&run)).collect();
    files.extend([grounds.diaries().join(number), grounds.data.join(format!("running/task_{id}.json"))]);
    for file in files {
        told += &format!("── {}\n{}\n", file.display(), std::fs::read_to_string(&file).unwrap_or_default());
    }
    told + &mentions(scene, id)
}

/// What the servers' log says of a task.
fn mentions(scene: &Scene, id: &str) -> String {
    let log = scene.server_log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(id)).collect();
    lines.join("\n")
}

/// Nothing was accepted that is not known here, and nothing twice.
pub fn check_list(scene: &Scene, accepted: &[Accepted]) {
    let mut listed = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = scene.get(&format!("/v1/tasks?limit=100{cursor}"));
        listed.extend(page["items"].as_array().unwrap().iter().map(|task| text(&task["id"])));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    listed.sort();
    let mut known: Vec<String> = accepted.iter().map(|task| task.id.clone()).collect();
    known.sort();
    assert_eq!(listed, known);
}

/// Each task was created once, started as often as it says, and ended once, as it says.
pub fn check_events(scene: &Scene, accepted: &[Accepted]) {
    let marker = scene.noop(json!({}));
    let events = scene.events_until(|event| event["type"] == "task.completed" && event["task"] == marker.as_str());
    let mut counts: BTreeMap<(String, String), u64> = BTreeMap::new();
    for event in events {
        *counts.entry((text(&event["task"]), text(&event["type"]))).or_default() += 1;
    }
    for Accepted { id, work } in accepted {
        let task = scene.task(id);
        let count = |name: &str| counts.get(&(id.clone(), format!("task.{name}"))).copied().unwrap_or(0);
        let ends = ["completed", "failed", "cancelled", "rejected"].map(|name| (name, count(name)));
        let expected = ends.map(|(name, _)| (name, u64::from(task["state"] == name)));
        assert_eq!(ends, expected, "{work:?} {task:#}");
        let started = (count("created"), count("started"));
        assert_eq!(started, (1, n(&task["attempts"])), "{work:?} {task:#} {:?}", scene.steps(id));
    }
}

/// No process, no record of one, no control group.
pub fn check_nothing_is_left(scene: &Scene, grounds: &Grounds, accepted: &[Accepted]) {
    let ids: Vec<&str> = accepted.iter().map(|task| task.id.as_str()).collect();
    let left = || {
        let processes = process::all(grounds).into_iter().map(|process| format!("{process:?}"));
        let folders = ["runs", "running", "work"].map(|name| grounds.data.join(name));
        let files = folders.iter().flat_map(|folder| entries(folder)).map(|path| path.display().to_string());
        let groups =
            control_groups(Path::new("/sys/fs/cgroup"), &ids).into_iter().map(|path| path.display().to_string());
        processes.chain(files).chain(groups).collect::<Vec<_>>()
    };
    let began = Instant::now();
    while !left().is_empty() && began.elapsed() < LEFT_MAX {
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let left = left();
    let lines =
        |what: &String| ids.iter().filter(|id| what.contains(**id)).map(|id| mentions(scene, id)).collect::<String>();
    assert!(left.is_empty(), "left behind: {left:#?}\n{}", left.iter().map(lines).collect::<String>());
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).map_or_else(|_| Vec::new(), |all| all.flatten().map(|entry| entry.path()).collect())
}

/// Groups of these tasks, in every hierarchy: their names begin with the id, which nobody else has.
fn control_groups(folder: &Path, ids: &[&str]) -> Vec<PathBuf> {
    let folders = entries(folder).into_iter().filter(|path| path.is_dir() && !path.is_symlink());
    folders
        .flat_map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let below = control_groups(&path, ids);
            let is_ours = ids.iter().any(|id| name.starts_with(id));
            below.into_iter().chain(is_ours.then_some(path))
        })
        .collect()
}
