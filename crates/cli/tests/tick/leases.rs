//! Leases: what becomes of a task whose process dies, hangs, or outlives whoever started it. tinyscheduler's "T-leases".

use std::time::Duration;

use serde_json::{Value, json};

use crate::field::{Field, SOON, counts, messages, n, signal, sleeper, text, with};
use crate::support::{Server, is_alive, runs, wait_until};

/// tinyscheduler 22: in one pass the lease of a dead process is gone, and its task runs again.
#[test]
fn a_dead_process_is_reclaimed_and_runs_again_in_one_pass() {
    let field = Field::new("");
    let ids = field.submit(&[sleeper("ada"), sleeper("ada")]);
    field.tick();
    field.kill_supervisor(&ids[0]);
    let summary = field.tick();
    assert_eq!(counts(&summary, ["leasesScanned", "adopted", "reclaimed", "started"]), [2, 1, 1, 1]);
    assert!(messages(&summary)[0].contains("was killed or crashed while no server ran"), "{summary:#}");
    assert_eq!([0, 1].map(|place| n(&field.lease(&ids[place])["attempt"])), [2, 1]);
    let task = field.task(&ids[0]);
    assert_eq!((&task["state"], n(&task["retriesLeft"])), (&json!("running"), 3), "a loss uses no retry");
}

/// tinyscheduler 22: where it cannot run again there is no lease left, and nothing of it is alive.
#[test]
fn a_dead_process_that_may_not_run_again_leaves_nothing() {
    let field = Field::new("");
    let shell = "setsid sleep 1000 & echo $! > $RUNYARD_WORKDIR/../../escaped; exec sleep 1000";
    let body = json!({"kind": "process", "payload": {"shell": shell}, "retry": {"on": ["task"]}});
    let ids = field.submit(&[body]);
    field.tick();
    let escaped = field.data().join("escaped");
    let pid = || std::fs::read_to_string(&escaped).ok().and_then(|text| text.trim().parse::<u64>().ok());
    wait_until(SOON, "it has started its child", || pid().is_some());
    field.kill_supervisor(&ids[0]);
    assert_eq!(counts(&field.tick(), ["reclaimed", "started"]), [1, 0]);
    assert!(!is_alive(pid().unwrap()), "what left the session is dead too");
    assert!(field.leases().is_empty() && runs(&field.data()).is_empty());
    assert_eq!(field.states(&ids), ["failed"]);
}

/// Makes the last heartbeat older than any number of intervals.
fn age(field: &Field, id: &str) {
    let mut lease = field.lease(id);
    lease["heartbeat"] = json!("2020-01-01T00:00:00.000Z");
    std::fs::write(field.lease_file(id), lease.to_string()).unwrap();
}

/// tinyscheduler 24: no heartbeat for three intervals, and the supervisor is alive and does not answer: everything of it is
/// killed, and the task runs again, once. (A supervisor that does nothing cannot pass a request on, so nobody is asked.)
#[test]
fn a_process_whose_supervisor_hangs_is_killed_and_runs_again_once() {
    let field = Field::with_worker("heartbeatMs = 100", "");
    // Without a variable of its own and in another session: only its place below the supervisor tells whose it is.
    let shell =
        format!("env -i setsid sleep 1000 & echo $! > {}; exec sleep 1000", field.home().join("child").display());
    let ids = field.submit(&[with(sleeper("ada"), json!({"payload": {"shell": shell}}))]);
    field.tick();
    let child = || std::fs::read_to_string(field.home().join("child")).ok().and_then(|text| text.trim().parse().ok());
    wait_until(SOON, "it has started its child", || child().is_some_and(|pid: u64| is_alive(pid)));
    let lease = field.lease(&ids[0]);
    let pids = [n(&lease["pid"]), n(&lease["metadata"]["command_pid"]), child().unwrap()];
    signal("STOP", pids[0]);
    let beat = field.lease(&ids[0])["heartbeat"].clone();
    let is_old = || {
        jiff::Timestamp::now().as_millisecond() - text(&beat).parse::<jiff::Timestamp>().unwrap().as_millisecond() > 350
    };
    wait_until(SOON, "three heartbeats are missed", is_old);
    let summary = field.tick();
    assert_eq!(counts(&summary, ["adopted", "reclaimed", "started"]), [0, 1, 1]);
    let message = &messages(&summary)[0];
    assert!(message.contains("gave no sign of life for") && message.contains("and was killed"), "{message}");
    assert!(!pids.iter().any(|pid| is_alive(*pid)), "{pids:?}");
    assert_eq!(n(&field.lease(&ids[0])["attempt"]), 2);
    assert_eq!(counts(&field.tick(), ["adopted", "reclaimed", "started"]), [1, 0, 0]);
}

/// tinyscheduler 24: an old heartbeat alone proves nothing, because the machine may have slept: who answers goes on.
#[test]
fn a_supervisor_that_answers_goes_on_however_old_its_heartbeat() {
    let field = Field::with_worker("heartbeatMs = 600000", "");
    let ids = field.submit(&[sleeper("ada")]);
    field.tick();
    let pid = n(&field.lease(&ids[0])["metadata"]["command_pid"]);
    age(&field, &ids[0]);
    assert_eq!(counts(&field.tick(), ["adopted", "reclaimed"]), [1, 0]);
    std::fs::remove_file(field.lease_file(&ids[0])).unwrap();
    assert_eq!(counts(&field.tick(), ["leasesScanned", "adopted", "reclaimed"]), [1, 1, 0]);
    assert!(is_alive(pid));
}

/// tinyscheduler 24: a server that starts judges as a tick does.
#[test]
fn a_server_that_starts_finds_a_hung_supervisor_too() {
    let field = Field::with_worker("heartbeatMs = 600000", "");
    let ids = field.submit(&[sleeper("ada")]);
    field.tick();
    let lease = field.lease(&ids[0]);
    signal("STOP", n(&lease["pid"]));
    age(&field, &ids[0]);
    let task = field.task(&ids[0]);
    assert_eq!(task["state"], "queued", "{task:#}");
    assert!(text(&task["error"]["message"]).contains("gave no sign of life"), "{task:#}");
    assert!(!is_alive(n(&lease["pid"])) && !is_alive(n(&lease["metadata"]["command_pid"])));
}

/// tinyscheduler 26: a crashed child of a server is reaped, and its slot is free within one interval.
#[test]
fn a_crashed_child_of_a_server_is_reaped_and_its_slot_is_free_again() {
    let field = Field::with_worker("heartbeatMs = 20000", "[lanes]\nmain = 1\n");
    let config = std::fs::read_to_string(field.config_file()).unwrap();
    let server = Server::start_with(&field.data(), &["--no-auth"], &config);
    let lost = with(sleeper("ada"), json!({"retry": {"on": ["task"]}}));
    let first = server.submit(&lost.to_string());
    let next = server.submit(&sleeper("ada").to_string());
    wait_until(SOON, "the first one runs", || field.is_running(&first));
    let crashed = n(&field.lease(&first)["pid"]);
    assert_eq!(server.state(&next), "queued");
    signal("KILL", crashed);
    wait_until(Duration::from_secs(20), "its slot is used by the next one", || server.state(&next) == "running");
    assert_eq!(server.state(&first), "failed");
    assert!(!std::path::Path::new(&format!("/proc/{crashed}")).exists(), "it is not even a zombie");
}

/// tinyscheduler 30: a task that loses its supervisor three times is parked as failed, with a reason for people.
#[test]
fn a_task_that_is_lost_three_times_is_failed() {
    let field = Field::new("");
    let ids = field.submit(&[sleeper("ada")]);
    for attempt in 1..=3 {
        let summary = field.tick();
        assert_eq!(counts(&summary, ["started", "reclaimed"]), [1, u64::from(attempt > 1)], "{summary:#}");
        assert_eq!(n(&field.lease(&ids[0])["attempt"]), attempt);
        field.kill_supervisor(&ids[0]);
    }
    let summary = field.tick();
    assert_eq!(counts(&summary, ["started", "reclaimed", "errors"]), [0, 1, 0]);
    assert!(messages(&summary)[0].ends_with("it has failed"), "{summary:#}");
    let task = field.task(&ids[0]);
    assert_eq!((&task["state"], &task["reason"], n(&task["attempts"])), (&json!("failed"), &json!("lost 3 times"), 3));
    assert!(text(&task["error"]["message"]).contains("was killed or crashed while no server ran"), "{task:#}");
    assert_eq!(counts(&field.tick(), ["leasesScanned", "started"]), [0, 0]);
}

/// tinyscheduler 30: the same for one that does it itself, while the tick still looks.
#[test]
fn a_task_that_kills_its_supervisor_is_failed_after_three_times() {
    let field = Field::new("");
    let ids = field.submit(&[json!({"kind": "process", "payload": {"shell": "kill -9 $PPID; sleep 1000"}})]);
    let started: u64 = (0..4).map(|_| n(&field.tick()["started"])).sum();
    let task = field.task(&ids[0]);
    assert_eq!((started, &task["state"], &task["reason"]), (3, &json!("failed"), &json!("lost 3 times")), "{task:#}");
}

/// A supervisor that somebody asks to stop by hand stops its run; nobody has asked the scheduler, so the task runs again.
#[test]
fn a_run_that_is_stopped_by_hand_is_lost() {
    let field = Field::new("");
    let ids = field.submit(&[sleeper("ada")]);
    field.tick();
    let lease = field.lease(&ids[0]);
    signal("TERM", n(&lease["pid"]));
    wait_until(SOON, "it has ended", || !is_alive(n(&lease["pid"])));
    assert!(!is_alive(n(&lease["metadata"]["command_pid"])));
    assert_eq!(counts(&field.tick(), ["finished", "reclaimed", "started"]), [0, 1, 1]);
}

/// tinyscheduler 32: a server that is asked to stop leaves its processes alone; a tick takes them over, and so does the
/// next server.
#[test]
fn a_process_goes_from_a_server_to_a_tick_and_to_the_next_server() {
    let field = Field::new("");
    let config = std::fs::read_to_string(field.config_file()).unwrap();
    let serve = || Server::start_with(&field.data(), &["--no-auth"], &config);
    let mut server = serve();
    let id = server.submit(&field.until("ada", "go").to_string());
    wait_until(SOON, "it runs", || field.is_running(&id));
    let pid = field.lease(&id)["metadata"]["command_pid"].clone();
    assert!(server.terminate().success());
    assert_eq!(counts(&field.tick(), ["adopted", "started", "reclaimed"]), [1, 0, 0]);
    let server = serve();
    assert_eq!((server.state(&id).as_str(), &field.lease(&id)["metadata"]["command_pid"]), ("running", &pid));
    std::fs::write(field.home().join("go"), "").unwrap();
    let task: Value = server.wait(&id);
    assert_eq!((&task["state"], n(&task["attempts"])), (&json!("completed"), 1), "{task:#}");
}
