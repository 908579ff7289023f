//! Servers, supervisors and commands are killed at random, and supervisors hung, while hundreds of processes are under
//! way on one data directory.
//!
//! Each task writes what it does to a diary of its own and holds a lock, which everything below it inherits; beside that
//! a watcher looks at the process table all the time. In the end every task that was accepted has ended once and as it
//! should, whatever completed was done to its end at least once, never were two copies of one task alive, and nothing is
//! left: no process, no record, no control group.
//!
//! `RUNYARD_CHAOS_SECONDS` for a longer run, `RUNYARD_CHAOS_SEED` for the plan of an earlier one.

#![allow(clippy::unwrap_used)]

mod support;

#[allow(dead_code, reason = "each test file uses its own part")]
#[path = "api/scene.rs"]
mod scene;

#[path = "chaos/dice.rs"]
mod dice;
#[path = "chaos/killer.rs"]
mod killer;
#[path = "chaos/ledger.rs"]
mod ledger;
#[path = "chaos/process.rs"]
mod process;
#[path = "chaos/watcher.rs"]
mod watcher;
#[path = "chaos/work.rs"]
mod work;

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;

use dice::Dice;
use ledger::Accepted;
use process::Grounds;
use scene::Scene;
use work::Work;

/// So many that two cores are busy with them and not buried under them.
const TASKS_PER_SECOND: u64 = 8;
/// Who hangs is found after three heartbeats. Losses do not end a task here: chance must not decide how it ends.
const CONFIG: &str = r#"
[lanes]
main = 30

[worker]
cpu = 1000
ramMb = 1000000
heartbeatMs = 300
graceMs = 300

[scheduling]
maxLost = 1000

[workers]
assignTimeoutMs = 5000

[sessions]
cap = 1000
"#;

#[test]
fn every_task_is_done_and_never_by_two_at_a_time_whatever_is_killed() {
    let seconds = number("RUNYARD_CHAOS_SECONDS").unwrap_or(60);
    let seed = number("RUNYARD_CHAOS_SEED").unwrap_or_else(any_seed);
    eprintln!("RUNYARD_CHAOS_SEED={seed} RUNYARD_CHAOS_SECONDS={seconds}");
    let scene = Scene::with(CONFIG);
    let grounds = Grounds { home: scene.home().to_owned(), data: scene.data() };
    prepare(&grounds);
    let _guard = Guard(grounds.clone());
    let scene = RwLock::new(scene);
    let accepted = storm(&scene, &grounds, seed, Duration::from_secs(seconds));
    let scene = scene.into_inner().unwrap();
    let ends = ledger::check_tasks(&scene, &grounds, &accepted);
    eprintln!("{} tasks: {ends:?}", accepted.len());
    ledger::check_list(&scene, &accepted);
    ledger::check_events(&scene, &accepted);
    ledger::check_nothing_is_left(&scene, &grounds, &accepted);
}

/// The time in which everything is killed, and then until every task has ended.
fn storm(scene: &RwLock<Scene>, grounds: &Grounds, seed: u64, length: Duration) -> Vec<Accepted> {
    let until = Instant::now() + length;
    let is_over = AtomicBool::new(false);
    let dice = |stream| Dice::new(seed, stream);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watcher::watch(grounds, &is_over));
        let (to_cancel, cancels) = channel();
        let submitter = scope.spawn(move || submit_all(scene, grounds, dice(1), length, to_cancel));
        let canceller = scope.spawn(move || cancel_all(scene, dice(2), &cancels));
        let servers = scope.spawn(move || killer::kill_servers(scene, dice(3), until));
        let processes = scope.spawn(move || killer::kill_processes(grounds, dice(4), until));
        let _over = Over(&is_over);
        let accepted = submitter.join().unwrap();
        eprintln!("{:?}\n{:?}", servers.join().unwrap(), processes.join().unwrap());
        canceller.join().unwrap();
        ledger::wait_for_ends(&scene.read().unwrap(), grounds, &accepted);
        is_over.store(true, Ordering::Relaxed);
        let seen = watcher.join().unwrap();
        eprintln!("{} looks, {} commands at most", seen.n_looks, seen.n_commands_max);
        assert_eq!(seen.doubles, [""; 0], "two copies were alive at once");
        assert!(seen.n_commands_max > 4, "there was something to see: {}", seen.n_commands_max);
        accepted
    })
}

/// A failure must not keep the watcher looking.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A test that fails must not leave processes behind, also not those that it has stopped.
struct Guard(Grounds);

impl Drop for Guard {
    fn drop(&mut self) {
        process::all(&self.0).iter().for_each(|process| process.signal(Signal::KILL));
    }
}

fn prepare(grounds: &Grounds) {
    std::fs::create_dir_all(grounds.locks()).unwrap();
    std::fs::create_dir_all(grounds.diaries()).unwrap();
    std::fs::write(grounds.script(), include_str!("chaos/work.sh")).unwrap();
}

/// Spread over the whole time. Each is submitted until it is acknowledged; its key keeps it one task.
fn submit_all(
    scene: &RwLock<Scene>,
    grounds: &Grounds,
    mut dice: Dice,
    length: Duration,
    to_cancel: Sender<String>,
) -> Vec<Accepted> {
    let n_tasks = length.as_secs().max(1) * TASKS_PER_SECOND;
    let pause_ms = length.as_millis() as u64 / n_tasks;
    let mut accepted = Vec::new();
    for number in 0..n_tasks as usize {
        let work = Work::draw(number, &mut dice);
        let id = submit(scene, grounds, &work);
        if work.way.is_to_be_cancelled() {
            to_cancel.send(id.clone()).unwrap();
        }
        accepted.push(Accepted { id, work });
        std::thread::park_timeout(dice.ms(0..2 * pause_ms + 1));
    }
    accepted
}

fn submit(scene: &RwLock<Scene>, grounds: &Grounds, work: &Work) -> String {
    let key = format!("chaos-{}", work.number);
    let body = work.body(grounds).to_string();
    until_answered(scene, |scene| {
        let answer = scene.try_request("POST", "/v1/tasks", &[("idempotency-key", &key)], &body)?;
        assert!(matches!(answer.status, 201 | 503), "{}: {}", answer.status, answer.body);
        (answer.status == 201).then(|| scene::text(&answer.json()["id"]))
    })
}

/// Each a while after it was submitted. A task that has ended refuses, and stays as it is.
fn cancel_all(scene: &RwLock<Scene>, mut dice: Dice, to_cancel: &Receiver<String>) {
    for id in to_cancel {
        std::thread::park_timeout(dice.ms(0..500));
        until_answered(scene, |scene| {
            let answer = scene.try_request("POST", &format!("/v1/tasks/{id}/cancel"), &[], "")?;
            assert!(matches!(answer.status, 200 | 202 | 409 | 503), "{}: {}", answer.status, answer.body);
            (answer.status != 503).then_some(())
        });
    }
}

/// Asks again and again, of whichever server is there.
fn until_answered<T>(scene: &RwLock<Scene>, ask: impl Fn(&Scene) -> Option<T>) -> T {
    loop {
        if let Some(answer) = ask(&scene.read().unwrap()) {
            return answer;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

fn any_seed() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    since.as_nanos() as u64
}
