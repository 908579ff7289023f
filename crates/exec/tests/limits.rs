//! Limits on real processes. What this machine cannot enforce is named, and then that is what is checked: no test here
//! passes by not looking.

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use runyard_exec::process::{kill_group, not_enforced};
use runyard_exec::{Class, Job, Kind, Limits, Outcome};
use serde_json::{Value, json};
use support::{TASK, TASK_TEXT, Yard, completed, failed_as, is_alive};

fn limited(yard: &Yard, line: &str, limits: Limits) -> Job {
    Job { limits, ..yard.job(Kind::Process, json!({"shell": line})) }
}

/// The sentences in the log about limits that are not kept.
fn sentences(yard: &Yard) -> Vec<String> {
    yard.log_texts().into_iter().filter(|text| text.starts_with("limits.")).collect()
}

/// Control groups of this test's tasks, in every hierarchy.
fn groups(task: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    below(Path::new("/sys/fs/cgroup"), &mut |dir| {
        if dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with(task)) {
            found.push(dir.to_owned());
        }
    });
    found
}

fn below(dir: &Path, see: &mut dyn FnMut(&Path)) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        see(&entry.path());
        below(&entry.path(), see);
    }
}

#[tokio::test]
async fn who_uses_too_much_memory_is_told_so() {
    let yard = Yard::new();
    let line = "x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo ${#x}";
    let limits = Limits { ram_mb: Some(64), ..Limits::default() };
    let outcome = yard.start(limited(&yard, line, limits)).end().await;
    let (class, message) = failed_as(outcome);
    assert_eq!(class, Class::Task);
    match sentences(&yard).as_slice() {
        [] => assert_eq!(message, "out of memory: limit 64 MB"),
        // Each process by itself: the shell says it with its own words.
        [sentence] => assert!(sentence.contains("each process by itself"), "{sentence}"),
        more => panic!("{more:?}"),
    }
}

#[tokio::test]
async fn who_stays_below_the_limits_does_not_notice_them() {
    let yard = Yard::new();
    let limits = Limits { cpu: Some(1.5), ram_mb: Some(256), pids: Some(50) };
    let result = completed(yard.start(limited(&yard, "echo fine | cat", limits)).end().await);
    assert_eq!(result["stdout"], "fine\n");
}

#[tokio::test]
async fn a_process_more_than_allowed_cannot_be_started() {
    let yard = Yard::new();
    let limits = Limits { pids: Some(4), ..Limits::default() };
    let line = "for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; echo started";
    let outcome = yard.start(limited(&yard, line, limits)).end().await;
    match (sentences(&yard).as_slice(), outcome) {
        ([], Outcome::Failed(failure)) => assert!(failure.message.contains("fork"), "{}", failure.message),
        ([sentence], Outcome::Completed { .. }) => assert!(sentence.starts_with("limits.pids is not enforced: ")),
        (sentences, outcome) => panic!("{sentences:?} {outcome:?}"),
    }
}

/// One process is allowed to be one process: the launcher does not count.
#[tokio::test]
async fn a_limit_of_one_process_lets_it_start() {
    let yard = Yard::new();
    let limits = Limits { pids: Some(1), ..Limits::default() };
    let job = Job { limits, ..yard.job(Kind::Process, json!({"argv": ["echo", "alone"]})) };
    assert_eq!(completed(yard.start(job).end().await)["stdout"], "alone\n");
}

#[tokio::test]
async fn the_share_of_the_cpu_is_kept() {
    let yard = Yard::new();
    let limits = Limits { cpu: Some(0.2), ..Limits::default() };
    // Half a second of work takes two and a half at a fifth of a core.
    let line = "while :; do set -- $(cat /proc/$$/stat); [ $((${14} + ${15})) -ge 50 ] && break; i=0; \
                while [ $i -lt 20000 ]; do i=$((i+1)); done; done";
    let began = std::time::Instant::now();
    completed(yard.start(limited(&yard, line, limits)).end().await);
    match sentences(&yard).as_slice() {
        [] => assert!(began.elapsed() >= Duration::from_millis(1800), "{:?}", began.elapsed()),
        [sentence] => assert!(sentence.starts_with("limits.cpu is not enforced: "), "{sentence}"),
        more => panic!("{more:?}"),
    }
}

#[tokio::test]
async fn the_command_is_born_inside_and_nothing_of_the_group_stays() {
    let yard = Yard::new();
    let task = TASK + (77 << 64);
    let limits = Limits { cpu: Some(1.0), ram_mb: Some(128), pids: Some(20) };
    let job = Job { task, ..limited(&yard, "cat /proc/self/cgroup", limits) };
    let name = format!("/runyard/{}-1-", runyard_exec::job::task_text(task));
    let result = completed(yard.start(job).end().await);
    let text = result["stdout"].as_str().expect("a text");
    let inside = |controller: &str| {
        let line = text
            .lines()
            .find(|line| line.split(':').nth(1).is_some_and(|list| list.split(',').any(|one| one == controller)));
        line.is_some_and(|line| line.contains(&name))
    };
    let log = std::fs::read_to_string(yard.executors.places().log_file(task, 1)).expect("a log");
    for (controller, limit) in [("cpu", "limits.cpu"), ("memory", "limits.ramMb"), ("pids", "limits.pids")] {
        assert!(inside(controller) != log.contains(limit), "{controller} in\n{text}\n{log}");
    }
    assert_eq!(groups(&runyard_exec::job::task_text(task)), Vec::<PathBuf>::new());
    let own = std::fs::read_to_string("/proc/self/cgroup").expect("a membership");
    assert!(!own.contains("/runyard/"), "{own}");
}

/// After the supervisor has died, the name of the group is enough.
#[tokio::test]
async fn a_group_without_its_supervisor_is_killed_by_name() {
    let yard = Yard::new();
    let task = TASK + (78 << 64);
    let line = "env -i setsid sh -c 'echo pid=$$; exec sleep 1000 >/dev/null 2>&1 </dev/null'; sleep 1000";
    let job = Job { task, ..yard.job(Kind::Process, json!({"shell": line})) };
    let run = yard.start(job);
    let pid = loop {
        let log = std::fs::read_to_string(yard.executors.places().log_file(task, 1)).unwrap_or_default();
        if let Some(pid) = log.lines().find_map(|line| Some(line.split_once("pid=")?.1.to_owned())) {
            break pid;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let has_groups = !groups(&runyard_exec::job::task_text(task)).is_empty();
    assert!(is_alive(&pid));
    let places = yard.executors.places().clone();
    let killed = tokio::task::spawn_blocking(move || kill_group(&places, task, 1)).await.expect("no panic");
    assert_eq!(killed.expect("killed") >= 2, has_groups);
    assert_eq!(is_alive(&pid), !has_groups);
    run.stop.cancel();
    run.end().await;
    assert!(!is_alive(&pid));
    assert_eq!(groups(&runyard_exec::job::task_text(task)), Vec::<PathBuf>::new());
}

#[test]
fn what_cannot_be_enforced_is_known_beforehand() {
    // A program that was killed while it tried has left its own.
    let before = groups("try-");
    assert_eq!(not_enforced(&Limits::default()), Vec::<String>::new());
    let sentences = not_enforced(&Limits { cpu: Some(1.0), ram_mb: Some(64), pids: Some(9) });
    for (controller, limit) in [("cpu", "limits.cpu"), ("memory", "limits.ramMb"), ("pids", "limits.pids")] {
        if can_make_one(controller) {
            assert!(!sentences.iter().any(|sentence| sentence.starts_with(limit)), "{sentences:?}");
        }
    }
    assert!(
        sentences.iter().all(|sentence| sentence.starts_with("limits.") && sentence.contains(": ")),
        "{sentences:?}"
    );
    assert!(groups("try-").iter().all(|group| before.contains(group)));
}

/// Does this machine let this test make a control group of version 1?
fn can_make_one(controller: &str) -> bool {
    let dir = Path::new("/sys/fs/cgroup").join(controller).join(format!("runyard-test-{}", std::process::id()));
    let is_made = std::fs::create_dir(&dir).is_ok();
    let is_group = dir.join("tasks").exists();
    is_made && std::fs::remove_dir(&dir).is_ok() && is_group
}

#[tokio::test]
async fn task_json_tells_who_it_is_and_no_secret() {
    let yard = Yard::new();
    let payload = json!({"shell": "cat task.json; stat -c %a task.json", "env": {"KEY": "hidden"}, "message": "hello"});
    let limits = Limits { pids: Some(50), ..Limits::default() };
    let job = Job { limits, session: Some("chat:7".into()), ..yard.job(Kind::Process, payload) };
    let result = completed(yard.start(job).end().await);
    let (text, mode) = result["stdout"].as_str().expect("a text").trim().rsplit_once('\n').expect("two parts");
    let task: Value = serde_json::from_str(text).expect("JSON");
    let expected = json!({
        "id": TASK_TEXT, "agent": "ada", "kind": "process", "attempt": 1, "session": "chat:7",
        "deadline": "2026-11-15T21:00:00.123Z", "limits": {"pids": 50},
        "payload": {"shell": "cat task.json; stat -c %a task.json", "message": "hello"},
    });
    assert_eq!((task, mode), (expected, "600"));
}
