//! One pass: what it takes in, what it starts, and where it ends.

use serde_json::json;

use crate::field::{Field, SOON, counts, n, sleeper, text, text_of, with};
use crate::support::{is_alive, runs, wait_until};

fn ends_on_record(field: &Field, n_ends: usize) {
    let has_ended = || runs(&field.data()).iter().filter(|run| run.join("exit.json").exists()).count() == n_ends;
    wait_until(SOON, "their ends are on record", has_ended);
    wait_until(SOON, "their leases are gone", || field.leases().is_empty());
}

/// A pass that finds nothing new does nothing, however often.
#[test]
fn a_pass_is_idempotent() {
    let field = Field::new("");
    let ids = field.submit(&[sleeper("ada"), sleeper("bob")]);
    field.tick();
    let leases = field.leases();
    for _ in 0..3 {
        let names = ["leasesScanned", "adopted", "finished", "reclaimed", "started", "errors"];
        assert_eq!(counts(&field.tick(), names), [2, 2, 0, 0, 0, 0]);
    }
    let pids = |leases: &[serde_json::Value]| leases.iter().map(|lease| lease["pid"].clone()).collect::<Vec<_>>();
    assert_eq!(pids(&field.leases()), pids(&leases));
    assert_eq!(field.running(&ids), [0, 1]);
}

/// Design 8: the outcome is what the exit record says, and it is one attempt.
#[test]
fn an_end_between_two_passes_is_taken_from_its_record() {
    let field = Field::new("");
    let shell = |line: &str| json!({"kind": "process", "payload": {"shell": line}, "retry": {"maxRetries": 0}});
    let ids = field.submit(&[shell("echo well"), shell("echo sorry >&2; exit 3"), shell("kill -SEGV $$")]);
    assert_eq!(n(&field.tick()["started"]), 3);
    ends_on_record(&field, 3);
    assert_eq!(counts(&field.tick(), ["leasesScanned", "finished", "reclaimed", "started"]), [3, 3, 0, 0]);
    assert!(runs(&field.data()).is_empty(), "what is known needs no record");
    assert_eq!(n(&field.tick()["leasesScanned"]), 0);
    let tasks = ids.iter().map(|id| field.task(id)).collect::<Vec<_>>();
    let states: Vec<_> = tasks.iter().map(|task| text(&task["state"])).collect();
    assert_eq!(states, ["completed", "failed", "failed"]);
    assert_eq!(text(&tasks[0]["result"]["stdout"]), "well\n");
    assert_eq!(text(&tasks[1]["error"]["message"]), "exit code 3: sorry");
    assert!(text(&tasks[2]["error"]["message"]).contains("SIGSEGV"), "{:#}", tasks[2]);
    assert!(tasks.iter().all(|task| n(&task["attempts"]) == 1));
}

/// A pass does not wait for ends: what it has started keeps its slot until the next one, however short it was.
#[test]
fn a_pass_over_many_short_tasks_starts_what_there_is_room_for_and_ends() {
    let field = Field::new("[lanes]\nmain = 2\n");
    field.submit(&vec![json!({"kind": "process", "payload": {"argv": ["true"]}}); 6]);
    for turn in 0..3 {
        let summary = field.tick();
        assert_eq!(
            counts(&summary, ["finished", "started", "queued"]),
            [if turn == 0 { 0 } else { 2 }, 2, 4 - 2 * turn]
        );
        ends_on_record(&field, 2);
    }
    assert_eq!(counts(&field.tick(), ["finished", "started"]), [2, 0]);
}

/// Only what goes on when nobody stays: the rest waits for a server, which has lost nothing by it.
#[test]
fn only_processes_are_started() {
    let field = Field::new("");
    let noop = json!({"kind": "noop", "payload": {"sleepMs": 1}});
    let http = json!({"kind": "http", "payload": {"url": "http://127.0.0.1:9/"}});
    let ids = field.submit(&[noop, http, sleeper("ada")]);
    assert_eq!(counts(&field.tick(), ["started", "queued", "errors"]), [1, 2, 0]);
    assert_eq!(field.states(&ids), ["queued", "queued", "running"]);
}

/// Delays and retries whose time has come start, the others are counted.
#[test]
fn what_is_due_starts_and_what_is_not_is_scheduled() {
    let field = Field::new("");
    let later = |ms: u64| with(sleeper("ada"), json!({"delayMs": ms}));
    let ids = field.submit(&[later(1), later(600_000)]);
    assert_eq!(counts(&field.tick(), ["started", "scheduled"]), [1, 1]);
    assert_eq!(field.running(&ids), [0]);
}

/// A failed attempt is retried by its policy, as by a server.
#[test]
fn a_failed_attempt_waits_for_its_retry() {
    let field = Field::new("");
    let failing = |ms: u64| {
        let retry = json!({"maxRetries": 1, "backoffMs": ms, "maxBackoffMs": ms});
        json!({"kind": "process", "payload": {"shell": "exit 1"}, "retry": retry})
    };
    let ids = field.submit(&[failing(1), failing(600_000)]);
    assert_eq!(n(&field.tick()["started"]), 2);
    ends_on_record(&field, 2);
    assert_eq!(counts(&field.tick(), ["finished", "reclaimed"]), [2, 0]);
    wait_until(SOON, "the first is due", || n(&field.tick()["scheduled"]) == 1);
    let attempts = ids.iter().map(|id| n(&field.task(id)["attempts"])).collect::<Vec<_>>();
    assert_eq!(attempts, [2, 1]);
}

/// The issue: beyond its time a process is stopped with its whole tree, confirmed dead, and only then judged.
#[test]
fn a_process_that_is_over_its_time_is_stopped_by_the_pass() {
    let field = Field::with_worker("graceMs = 300", "[agents.ada]\nmaxInflight = 1\n");
    let stubborn = json!({"shell": "trap '' TERM; while :; do sleep 0.05; done"});
    let body = with(sleeper("ada"), json!({"payload": stubborn, "timeoutMs": 1000, "retry": {"maxRetries": 0}}));
    let ids = field.submit(&[body, sleeper("ada")]);
    field.tick();
    let lease = field.lease(&ids[0]);
    let began = text(&lease["started_at"]).parse::<jiff::Timestamp>().unwrap().as_millisecond();
    wait_until(SOON, "its time is over", || jiff::Timestamp::now().as_millisecond() > began + 1200);
    let summary = field.tick();
    assert_eq!(counts(&summary, ["leasesScanned", "adopted", "reclaimed", "started"]), [1, 0, 1, 1], "{summary:#}");
    assert!(!is_alive(n(&lease["pid"])) && !is_alive(n(&lease["metadata"]["command_pid"])));
    assert_eq!(field.running(&ids), [1], "its slot is the next one's in the same pass");
    let task = field.task(&ids[0]);
    assert_eq!((&task["state"], &task["error"]["class"]), (&json!("failed"), &json!("timeout")), "{task:#}");
}

/// A deadline is kept by the pass that finds it over, before anything starts.
#[test]
fn a_task_whose_deadline_has_passed_does_not_start() {
    let field = Field::new("");
    let deadline = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(1500);
    let ids = field.submit(&[with(sleeper("ada"), json!({"deadline": deadline.to_string()}))]);
    wait_until(SOON, "it is over", || jiff::Timestamp::now() > deadline);
    assert_eq!(counts(&field.tick(), ["started", "queued"]), [0, 0]);
    assert_eq!(field.task(&ids[0])["error"]["class"], "deadline");
}

/// A cancel that its server could not see to the end is seen to its end.
#[test]
fn a_stop_that_was_asked_for_before_is_asked_for_again() {
    let field = Field::with_worker("graceMs = 100", "");
    let ids = field.submit(&[sleeper("ada")]);
    field.tick();
    let lease = field.lease(&ids[0]);
    // Its supervisor hears of the stop only when the server is gone.
    signal_stop(&lease);
    let mut server = field.idle_server();
    assert_eq!(server.post(&format!("/v1/tasks/{}/cancel", ids[0]), "").status, 202);
    server.kill9();
    crate::field::signal("CONT", n(&lease["pid"]));
    field.tick();
    assert!(!is_alive(n(&lease["metadata"]["command_pid"])));
    assert_eq!(field.states(&ids), ["cancelled"]);
}

fn signal_stop(lease: &serde_json::Value) {
    crate::field::signal("STOP", n(&lease["pid"]));
}

/// A person reads numbers on standard output, and what to look at on standard error; cron mails only the latter.
#[test]
fn numbers_and_messages_go_separate_ways() {
    let field = Field::new("");
    let ids = field.submit(&[sleeper("ada")]);
    let output = field.run(&[]);
    let (out, err) = (text_of(&output.stdout), text_of(&output.stderr));
    assert_eq!((out.lines().count(), err.as_str()), (2, ""), "{out}");
    assert!(out.contains("0 leases scanned") && out.contains("1 started"), "{out}");
    field.kill_supervisor(&ids[0]);
    let output = field.run(&[]);
    let (out, err) = (text_of(&output.stdout), text_of(&output.stderr));
    assert!(output.status.success() && out.contains("1 reclaimed"), "{out}{err}");
    assert!(err.starts_with(&format!("task {} of ada: its supervisor", ids[0])), "{err}");
    let output = field.run(&["--dry-run"]);
    let out = text_of(&output.stdout);
    assert!(out.lines().all(|line| line.starts_with("would be: ")), "{out}");
}

/// Retention goes on where no server ever runs.
#[test]
fn finished_tasks_go_when_their_time_has_come() {
    let field = Field::new("");
    let body = json!({"kind": "process", "payload": {"shell": "echo x"}, "ttlMs": 1});
    let ids = field.submit(&[body]);
    field.tick();
    ends_on_record(&field, 1);
    let log = field.data().join(format!("logs/{}/{}.1.log", &ids[0][34..], ids[0]));
    assert!(log.exists(), "{}", log.display());
    field.tick();
    wait_until(SOON, "its log is removed", || {
        field.tick();
        !log.exists()
    });
    let mut server = field.idle_server();
    assert_eq!(server.request("GET", &format!("/v1/tasks/{}", ids[0]), "").status, 404);
    server.terminate();
}

/// A pass stays until the files of what it starts are there, however slow they come: else every pass would begin anew.
#[test]
fn a_pass_waits_for_the_files_of_what_it_starts() {
    let field = Field::new("");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/in.txt", listener.local_addr().unwrap());
    let slow = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        let _ = std::io::Read::read(&mut stream, &mut request).unwrap();
        // It is asked while the tick waits, and takes its time.
        std::thread::park_timeout(std::time::Duration::from_millis(600));
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";
        std::io::Write::write_all(&mut stream, answer).unwrap();
    });
    let files = json!([{"path": "in.txt", "url": url}]);
    let ids = field.submit(&[json!({"kind": "process", "payload": {"shell": "cat in.txt", "files": files}})]);
    assert_eq!(counts(&field.tick(), ["started", "queued", "errors"]), [1, 0, 0]);
    slow.join().unwrap();
    ends_on_record(&field, 1);
    assert_eq!(n(&field.tick()["finished"]), 1);
    let task = field.task(&ids[0]);
    assert_eq!((n(&task["attempts"]), text(&task["result"]["stdout"])), (1, "hello".to_owned()), "{task:#}");
}
