//! A supervisor's end of a run: nothing that it ever started is alive, however it tried to get away.
//!
//! This program is the supervisor here, so everything below it belongs to one run: the tests take turns.

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use runyard_exec::process::{not_enforced, own_descendants};
use runyard_exec::{Class, Job, Kind, Limits, Outcome};
use serde_json::{Value, json};
use support::{Yard, completed, failed_as, is_alive};
use tokio::sync::{Mutex, MutexGuard};

static TURN: Mutex<()> = Mutex::const_new(());

async fn supervisor() -> MutexGuard<'static, ()> {
    let turn = TURN.lock().await;
    own_descendants().expect("a subreaper");
    turn
}

fn shell(line: &str) -> Value {
    json!({"shell": line})
}

/// Everything below this process that is more than a zombie.
fn descendants() -> Vec<String> {
    let mut parents = BTreeSet::from([std::process::id().to_string()]);
    let mut found = Vec::new();
    loop {
        let pids = std::fs::read_dir("/proc").expect("a process table").flatten();
        let pids = pids.filter_map(|entry| entry.file_name().into_string().ok());
        let fresh: Vec<String> = pids
            .filter(|pid| !parents.contains(pid) && parent_of(pid).is_some_and(|parent| parents.contains(&parent)))
            .collect();
        if fresh.is_empty() {
            return found;
        }
        parents.extend(fresh.iter().cloned());
        found.extend(fresh.into_iter().filter(|pid| is_alive(pid)));
    }
}

fn parent_of(pid: &str) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.to_owned())
}

/// Each leaves the group, the session, the environment, the output, or all of them.
const ESCAPES: [&str; 6] = [
    "setsid sleep 7411 &",
    "setsid sleep 7411 >/dev/null 2>&1 </dev/null &",
    "(setsid sh -c 'sleep 7411 & sleep 7411' >/dev/null 2>&1 </dev/null &)",
    "env -i setsid sleep 7411 >/dev/null 2>&1 </dev/null &",
    "(env -i setsid sh -c '(setsid sleep 7411 &) ; exec sleep 7411' >&- 2>&- <&- &)",
    "setsid sh -c 'trap \"\" TERM HUP INT; while :; do (sleep 0.01 &); sleep 0.01; done' >/dev/null 2>&1 &",
];

/// How many times all of them; `RUNYARD_TREE_ROUNDS` for more.
fn rounds() -> usize {
    std::env::var("RUNYARD_TREE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4)
}

#[tokio::test]
async fn nothing_outlives_a_normal_exit() {
    let _turn = supervisor().await;
    for _ in 0..rounds() {
        for escape in ESCAPES {
            let yard = Yard::new();
            let result = completed(yard.run(Kind::Process, shell(&format!("{escape}\nexit 0"))).await);
            assert_eq!(result["exitCode"], 0, "{escape}");
            assert_eq!(descendants(), Vec::<String>::new(), "{escape}");
        }
    }
}

#[tokio::test]
async fn nothing_outlives_a_stop() {
    let _turn = supervisor().await;
    for _ in 0..rounds() {
        for escape in ESCAPES {
            let yard = Yard::new();
            let mut job = yard.job(Kind::Process, shell(&format!("{escape}\necho ready=; sleep 7411")));
            job.grace = Duration::from_millis(20);
            let run = yard.start(job);
            run.line("ready=").await;
            assert_eq!(run.stop_and_end().await, Outcome::Stopped, "{escape}");
            assert_eq!(descendants(), Vec::<String>::new(), "{escape}");
        }
    }
}

/// A daemon is asked like everybody else, and has the same time to clean up.
#[tokio::test]
async fn who_left_the_session_gets_the_grace_too() {
    let _turn = supervisor().await;
    let yard = Yard::new();
    let daemon = "trap 'sleep 0.2; echo cleaned up; exit 0' TERM; echo ready=; while :; do sleep 0.02; done";
    let run = yard.start(yard.job(Kind::Process, shell(&format!("(setsid sh -c \"{daemon}\" &); sleep 7411"))));
    run.line("ready=").await;
    assert_eq!(run.stop_and_end().await, Outcome::Stopped);
    assert!(yard.log_texts().contains(&"cleaned up".to_owned()), "{:?}", yard.log_texts());
}

/// Somebody who starts processes as fast as he can is stopped before he is killed.
#[tokio::test]
async fn who_forks_all_the_time_dies_too() {
    let _turn = supervisor().await;
    let yard = Yard::new();
    let bomb =
        "n() { (setsid sh -c 'sleep 7411' >/dev/null 2>&1 &) ; }; i=0; while [ $i -lt 300 ]; do n; i=$((i+1)); done";
    let mut job = yard.job(Kind::Process, shell(&format!("{bomb} & {bomb} & echo ready=; wait; sleep 7411")));
    job.grace = Duration::ZERO;
    let run = yard.start(job);
    run.line("ready=").await;
    assert_eq!(run.stop_and_end().await, Outcome::Stopped);
    assert_eq!(descendants(), Vec::<String>::new());
}

/// As without a supervisor, but it is the whole process that goes in and out of the groups.
#[tokio::test]
async fn limits_are_kept_and_the_supervisor_is_not_in_them() {
    let _turn = supervisor().await;
    let yard = Yard::new();
    let limits = Limits { cpu: Some(1.0), ram_mb: Some(64), pids: Some(16) };
    let limited = |line: &str| Job { limits, ..yard.job(Kind::Process, shell(line)) };
    let hungry = "x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo ${#x}";
    let (class, message) = failed_as(yard.start(limited(hungry)).end().await);
    let sentences = not_enforced(&limits);
    assert_eq!(class, Class::Task);
    if !sentences.iter().any(|sentence| sentence.starts_with("limits.ramMb")) {
        assert_eq!(message, "out of memory: limit 64 MB");
    }
    let result = completed(yard.start(limited("cat /proc/self/cgroup")).end().await);
    let inside = result["stdout"].as_str().expect("a text").matches("/runyard/").count();
    assert!(inside + sentences.len() >= 3, "{result} {sentences:?}");
    let own = std::fs::read_to_string("/proc/self/cgroup").expect("a membership");
    assert!(!own.contains("/runyard/"), "{own}");
}

/// The orphans of a long run are reaped while it goes on.
#[tokio::test]
async fn orphans_that_end_do_not_stay_zombies() {
    let _turn = supervisor().await;
    let yard = Yard::new();
    let line = "for i in 1 2 3 4 5; do (setsid sh -c 'exit 0' &); done; echo ready=; sleep 7411";
    let run = yard.start(yard.job(Kind::Process, shell(line)));
    run.line("ready=").await;
    while zombies() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(run.stop_and_end().await, Outcome::Stopped);
}

fn zombies() -> usize {
    let own = std::process::id().to_string();
    let pids = std::fs::read_dir("/proc").expect("a process table").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().into_string().ok());
    pids.filter(|pid| parent_of(pid).as_ref() == Some(&own) && !is_alive(pid)).count()
}
