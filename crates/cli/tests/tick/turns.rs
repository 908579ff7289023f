//! One at a time: ticks and servers on one data directory exclude each other. tinyscheduler 31.

use std::process::{Child, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::field::{Field, SOON, n, sleeper, text_of, with};
use crate::support::wait_until;

/// tinyscheduler 31: a tick that finds a server says who it is, and does nothing.
#[test]
fn a_tick_beside_a_server_says_so_and_does_nothing() {
    let field = Field::new("");
    let mut server = field.idle_server();
    server.submit(&sleeper("ada").to_string());
    for arguments in [&[][..], &["--dry-run"], &["--json"]] {
        let output = field.run(arguments);
        let told = text_of(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{told}");
        assert!(
            told.contains(&format!("a server runs on {} (pid {})", field.data().display(), server.pid())),
            "{told}"
        );
    }
    assert!(field.leases().is_empty());
    assert!(server.terminate().success());
    assert_eq!(n(&field.tick()["started"]), 1);
}

/// A tick that takes its time: it stops a process that does not want to.
fn long_tick(field: &Field) -> Child {
    let stubborn = json!({"shell": "trap '' TERM; while :; do sleep 0.05; done"});
    let body = with(sleeper("ada"), json!({"payload": stubborn, "timeoutMs": 500, "retry": {"maxRetries": 0}}));
    let ids = field.submit(&[body]);
    field.tick();
    let began = Instant::now();
    wait_until(SOON, "its time is over", || began.elapsed().as_millis() > 700);
    let child = field.command(&["--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let is_its = format!("tick {}\n", child.id());
    wait_until(SOON, "it has the lock", || {
        std::fs::read_to_string(field.data().join("runyard.lock")).unwrap() == is_its
    });
    assert!(field.is_running(&ids[0]));
    child
}

/// tinyscheduler 31: a second tick says that one is at work.
#[test]
fn a_tick_beside_a_tick_says_so_and_does_nothing() {
    let field = Field::with_worker("graceMs = 4000", "");
    let first = long_tick(&field);
    let output = field.run(&[]);
    let told = text_of(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("another tick is at work on") && told.contains(&format!("(pid {})", first.id())), "{told}");
    let first = first.wait_with_output().unwrap();
    let summary: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!((first.status.success(), n(&summary["reclaimed"])), (true, 1), "{summary:#}");
}

/// tinyscheduler 31: a server waits for a tick, which is soon over.
#[test]
fn a_server_that_meets_a_tick_waits_for_it() {
    let field = Field::with_worker("graceMs = 2500", "");
    let mut tick = long_tick(&field);
    let mut server = field.idle_server();
    assert!(tick.try_wait().unwrap().is_some_and(|status| status.success()), "the tick is over when the server serves");
    assert!(server.terminate().success());
}

/// tinyscheduler 31: however many come at once, every task is started once.
#[test]
fn many_ticks_at_once_start_every_task_once() {
    let field = Field::new("");
    let ids = field.submit(&vec![sleeper("ada"); 5]);
    let ticks: Vec<Child> = (0..6)
        .map(|_| field.command(&["--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
        .collect();
    let mut n_started = 0;
    for tick in ticks {
        let output = tick.wait_with_output().unwrap();
        match output.status.code() {
            Some(0) => n_started += n(&serde_json::from_slice::<Value>(&output.stdout).unwrap()["started"]),
            _ => assert!(text_of(&output.stderr).contains("another tick is at work"), "{output:?}"),
        }
    }
    assert_eq!((n_started, field.running(&ids)), (5, vec![0, 1, 2, 3, 4]));
    assert!(field.leases().iter().all(|lease| n(&lease["attempt"]) == 1));
}
