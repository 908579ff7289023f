//! The worker as the scheduler sees it: starts and stops in, reports out.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use runyard_core::event::{Event, Fault, Held, Report, Start};
use runyard_core::ids::{TaskId, Token, WorkerId};
use runyard_core::name::{Blob, Name};
use runyard_core::session::Context;
use runyard_core::task::{Class, Stop};
use runyard_worker::{Progress, Worker, WorkerOptions};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

const WORKER: WorkerId = WorkerId(7);
const SLEEPER: &str = "echo leader=$$; sleep 1000";

/// A worker with a scheduler's inbox. The tests themselves run outside the runtime, as the scheduler does.
struct Yard {
    runtime: Runtime,
    worker: Worker,
    inbox: Arc<Inbox>,
    _dir: TempDir,
}

#[derive(Default)]
struct Inbox {
    calls: Mutex<VecDeque<Vec<Event>>>,
    arrived: Condvar,
}

impl Inbox {
    fn next_call(&self) -> Vec<Event> {
        let calls = self.calls.lock().expect("the inbox's lock");
        let wait = self.arrived.wait_timeout_while(calls, Duration::from_secs(60), |calls| calls.is_empty());
        wait.expect("the inbox's lock").0.pop_front().expect("a report within a minute")
    }

    fn is_empty(&self) -> bool {
        self.calls.lock().expect("the inbox's lock").is_empty()
    }
}

impl Yard {
    fn new() -> Yard {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let runtime = Runtime::new().expect("a runtime");
        let inbox = Arc::new(Inbox::default());
        let link = {
            let inbox = inbox.clone();
            move |events| {
                inbox.calls.lock().expect("the inbox's lock").push_back(events);
                inbox.arrived.notify_all();
            }
        };
        let options = WorkerOptions {
            id: WORKER,
            data_dir: dir.path().to_owned(),
            grace_ms: 10_000,
            supervisor: None,
            process_defaults: Arc::new(Default::default),
            docker_defaults: Arc::new(Default::default),
            may_run: Arc::new(|_, _| Ok(())),
            guard: None,
            secrets: None,
            uploads: None,
            programs: Default::default(),
            runtime: runtime.handle().clone(),
        };
        let worker = Worker::new(options, link).expect("a worker");
        Yard { worker, runtime, inbox, _dir: dir }
    }

    /// The next report call, which must hold one report.
    fn next(&self) -> (Held, Report) {
        let mut events = self.inbox.next_call();
        assert_eq!(events.len(), 1, "{events:?}");
        unpack(events.remove(0))
    }

    fn expect(&self, start: &Start, what: &str) {
        let (held, report) = self.next();
        assert_eq!((held, name_of(&report)), (held_of(start), what), "{report:?}");
    }

    fn input(&self, start: &Start, message: u128, payload: Value) {
        let spec = blob(json!({"kind": "process", "payload": payload}));
        self.worker.input(start.task, start.attempt, start.token, TaskId(message), spec);
    }

    /// The next report says that this start has taken this message.
    fn expect_taken(&self, start: &Start, message: u128) {
        let (held, report) = self.next();
        let Report::InputTaken { message: taken } = report else { panic!("{report:?}") };
        assert_eq!((held, taken), (held_of(start), TaskId(message)));
    }

    /// The repeated reports of a start: the messages it has taken, or what else is said of it.
    fn repeated(&self, start: &Start) -> Vec<String> {
        let reports = self.worker.unacknowledged().into_iter().map(unpack);
        let reports = reports.filter(|(held, _)| *held == held_of(start));
        let text = |report| match report {
            Report::InputTaken { message } => format!("took {}", message.0),
            other => name_of(&other).to_owned(),
        };
        reports.map(|(_, report)| text(report)).collect()
    }

    fn stop(&self, start: &Start) {
        self.worker.stop(start.task, start.attempt, start.token, Stop::Cancel);
    }

    /// The first line of a running task's log that starts with this, without the start.
    fn log_line(&self, task: TaskId, begin: &str) -> String {
        let mut follow = self.worker.follow_log(task).expect("the task runs");
        loop {
            let (lines, _) = runyard_exec::log::read(&follow.path, 0, 1 << 20).expect("the log can be read");
            if let Some(rest) = lines.iter().find_map(|line| line.text.strip_prefix(begin)) {
                return rest.to_owned();
            }
            self.runtime.block_on(follow.bytes.changed()).expect("the task still runs");
        }
    }
}

fn start(task: u128, attempt: u32, kind: &str, spec: Value) -> Start {
    Start {
        worker: WORKER,
        task: TaskId(task),
        seq: 1,
        attempt,
        token: Token(task as u64 * 100 + u64::from(attempt)),
        agent: Name::new("ada"),
        kind: Name::new(kind),
        deadline: None,
        timeout_ms: 1000,
        watch_silence: false,
        spec: Some(blob(spec)),
        session: None,
        n_merged: 0,
        told: None,
        merged: Vec::new(),
        dropped: Vec::new(),
    }
}

fn blob(spec: Value) -> Blob {
    Blob::from(spec.to_string().into_bytes())
}

fn shell(task: u128, attempt: u32, line: &str) -> Start {
    start(task, attempt, "process", json!({"kind": "process", "payload": {"shell": line}, "stallMs": 5}))
}

fn held_of(start: &Start) -> Held {
    Held { task: start.task, attempt: start.attempt, token: start.token }
}

fn unpack(event: Event) -> (Held, Report) {
    match event {
        Event::Report { worker, task, attempt, token, report } => {
            assert_eq!(worker, WORKER);
            (Held { task, attempt, token }, report)
        }
        other => panic!("a worker only reports, got {other:?}"),
    }
}

fn name_of(report: &Report) -> &'static str {
    match report {
        Report::Started => "started",
        Report::Alive => "alive",
        Report::InputTaken { .. } => "input taken",
        Report::Completed { .. } => "completed",
        Report::Failed { .. } => "failed",
        Report::Stopped => "stopped",
        Report::NotStarted { .. } => "not started",
    }
}

fn is_alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X'])))
}

#[test]
fn many_no_ops_are_one_report_of_their_ends() {
    let yard = Yard::new();
    let specs = [json!({"kind": "noop"}), json!({"payload": {}}), json!({"payload": null, "limits": {}})];
    let starts: Vec<_> = (0..500).map(|n| start(n, 1, "noop", specs[n as usize % 3].clone())).collect();
    yard.worker.start(starts.clone());
    let events = yard.inbox.next_call();
    assert_eq!(events.len(), 500);
    for (event, start) in events.into_iter().zip(&starts) {
        let (held, report) = unpack(event);
        assert_eq!(held, held_of(start));
        assert!(matches!(report, Report::Completed { result: None, usage: None }));
    }
    assert!(yard.inbox.is_empty());
    assert_eq!(yard.worker.held().len(), 500);
    yard.worker.acknowledge_all(starts.iter().map(|start| (start.task, start.attempt)));
    assert!(yard.worker.held().is_empty() && yard.worker.unacknowledged().is_empty());
}

#[test]
fn a_run_reports_its_start_and_then_its_end() {
    let yard = Yard::new();
    let start = shell(1, 3, "echo hi");
    yard.worker.start(vec![start.clone()]);
    yard.expect(&start, "started");
    let (held, report) = yard.next();
    let Report::Completed { result: Some(result), .. } = report else { panic!("{report:?}") };
    assert_eq!(held, held_of(&start));
    let result: Value = serde_json::from_slice(&result).expect("JSON");
    assert_eq!(result, json!({"exitCode": 0, "stdout": "hi\n"}));
}

#[test]
fn a_failure_keeps_its_class_and_wait() {
    let yard = Yard::new();
    yard.worker.start(vec![start(1, 1, "noop", json!({"payload": {"fail": "quota", "result": 5}}))]);
    yard.next();
    let (_, report) = yard.next();
    let Report::Failed { class, result, fault, retry_after_ms, .. } = report else { panic!("{report:?}") };
    assert_eq!((class, fault, retry_after_ms, result.as_deref()), (Class::Quota, Fault::Work, None, Some(&b"5"[..])));
}

#[test]
fn what_cannot_be_read_or_run_is_the_workers_fault() {
    let yard = Yard::new();
    let mut without_spec = start(3, 1, "noop", Value::Null);
    without_spec.spec = None;
    let table = [
        (start(1, 1, "somebody.elses", json!({})), Class::Permanent, "somebody.elses"),
        (start(2, 1, "noop", json!([])), Class::Permanent, "spec"),
        (without_spec, Class::Task, "spec"),
    ];
    for (start, expected, named) in table {
        yard.worker.start(vec![start]);
        let (_, report) = yard.next();
        let Report::Failed { class, message, fault, .. } = report else { panic!("{report:?}") };
        assert_eq!((class, fault), (expected, Fault::Worker));
        assert!(message.contains(named), "{message}");
    }
}

#[test]
fn a_stop_is_confirmed_when_the_process_is_dead() {
    let yard = Yard::new();
    let start = shell(1, 1, SLEEPER);
    yard.worker.start(vec![start.clone()]);
    yard.expect(&start, "started");
    let leader = yard.log_line(start.task, "leader=");
    yard.stop(&start);
    yard.stop(&start);
    yard.expect(&start, "stopped");
    assert!(!is_alive(&leader));
    assert!(yard.inbox.is_empty());
}

#[test]
fn a_stop_of_what_is_not_here_is_confirmed_at_once() {
    let yard = Yard::new();
    let start = shell(1, 1, "true");
    yard.stop(&start);
    yard.expect(&start, "stopped");
}

#[test]
fn a_stop_of_what_has_ended_repeats_the_end_until_it_is_acknowledged() {
    let yard = Yard::new();
    let start = start(1, 1, "noop", json!({}));
    yard.worker.start(vec![start.clone()]);
    yard.expect(&start, "completed");
    yard.stop(&start);
    yard.expect(&start, "completed");
    yard.worker.acknowledge(start.task, start.attempt);
    yard.stop(&start);
    yard.expect(&start, "stopped");
}

#[test]
fn a_scheduler_that_reloads_gets_everything_again() {
    let yard = Yard::new();
    let (ended, running) = (start(1, 1, "noop", json!({})), shell(2, 4, SLEEPER));
    yard.worker.start(vec![ended.clone(), running.clone()]);
    assert_eq!(yard.inbox.next_call().len(), 2);
    let mut held = yard.worker.held();
    held.sort_by_key(|held| held.task);
    assert_eq!(held, [held_of(&ended), held_of(&running)]);
    let mut reports: Vec<_> = yard.worker.unacknowledged().into_iter().map(unpack).collect();
    reports.sort_by_key(|(held, _)| held.task);
    let reports: Vec<_> = reports.iter().map(|(held, report)| (*held, name_of(report))).collect();
    assert_eq!(reports, [(held_of(&ended), "completed"), (held_of(&running), "started")]);
    // A start that is repeated is not run twice.
    yard.worker.start(vec![ended.clone(), running.clone()]);
    yard.expect(&ended, "completed");
    // An acknowledgement of another attempt is not for this one.
    yard.worker.acknowledge(ended.task, 2);
    assert_eq!(yard.worker.held().len(), 2);
    yard.stop(&running);
    yard.expect(&running, "stopped");
}

#[test]
fn a_newer_attempt_starts_only_when_the_old_one_is_dead() {
    let yard = Yard::new();
    let old = shell(1, 1, SLEEPER);
    yard.worker.start(vec![old.clone()]);
    yard.expect(&old, "started");
    let old_leader = yard.log_line(old.task, "leader=");
    let new = shell(1, 2, &format!("kill -0 {old_leader} && exit 1; exit 0"));
    yard.worker.start(vec![new.clone()]);
    yard.expect(&new, "started");
    yard.expect(&new, "completed");
    assert!(!is_alive(&old_leader));
    assert_eq!(yard.worker.held(), [held_of(&new)]);
}

#[test]
fn a_waiting_newer_attempt_can_be_stopped_and_never_runs() {
    let yard = Yard::new();
    // It takes its time to die: the newer attempt has to wait.
    let old = shell(1, 1, "trap 'sleep 0.3; exit' TERM; echo leader=$$; while :; do sleep 0.02; done");
    yard.worker.start(vec![old.clone()]);
    yard.expect(&old, "started");
    yard.log_line(old.task, "leader=");
    let new = shell(1, 2, "echo never");
    yard.worker.start(vec![new.clone()]);
    assert_eq!(yard.worker.held(), [held_of(&new)]);
    yard.stop(&new);
    yard.expect(&new, "stopped");
    yard.runtime.block_on(yard.worker.shutdown(Duration::from_secs(60)));
    assert!(yard.inbox.is_empty() && yard.worker.held().is_empty());
}

#[test]
fn a_revoked_attempt_dies_without_a_report() {
    let yard = Yard::new();
    let start = shell(1, 1, SLEEPER);
    yard.worker.start(vec![start.clone()]);
    yard.expect(&start, "started");
    let leader = yard.log_line(start.task, "leader=");
    yard.worker.revoke(start.task, start.attempt);
    assert!(yard.worker.held().is_empty() && yard.worker.unacknowledged().is_empty());
    yard.runtime.block_on(yard.worker.shutdown(Duration::from_secs(60)));
    assert!(!is_alive(&leader) && yard.inbox.is_empty());
}

#[test]
fn shutdown_waits_for_what_ends_and_stops_the_rest() {
    let yard = Yard::new();
    let (short, long) = (start(1, 1, "noop", json!({"payload": {"sleepMs": 50}})), shell(2, 1, SLEEPER));
    yard.worker.start(vec![short.clone(), long.clone()]);
    assert_eq!(yard.inbox.next_call().len(), 2);
    let leader = yard.log_line(long.task, "leader=");
    yard.runtime.block_on(yard.worker.shutdown(Duration::from_millis(500)));
    yard.expect(&short, "completed");
    yard.expect(&long, "stopped");
    assert!(!is_alive(&leader));
    let late = start(3, 1, "noop", json!({}));
    yard.worker.start(vec![late.clone()]);
    yard.expect(&late, "not started");
}

#[test]
fn signs_of_life_are_told_when_silence_is_watched_but_not_with_every_line() {
    let yard = Yard::new();
    let mut watched = shell(1, 1, "for n in 1 2 3 4 5 6 7 8 9; do echo $n; sleep 0.01; done");
    watched.watch_silence = true;
    yard.worker.start(vec![watched.clone()]);
    yard.expect(&watched, "started");
    yard.expect(&watched, "alive");
    // Under a second of work: one sign is all there is, unless the machine is very slow.
    let mut n_alive = 1;
    let end = loop {
        match name_of(&yard.next().1) {
            "alive" => n_alive += 1,
            end => break end,
        }
    };
    assert_eq!(end, "completed");
    assert!(n_alive < 9, "{n_alive}");
}

#[test]
fn progress_can_be_asked_for_and_followed() {
    let yard = Yard::new();
    let mut events = yard.worker.subscribe_progress();
    let line =
        r#"echo '{"progress":0.5}' >> "$RUNYARD_REPORT"; echo '{"message":"half"}' >> "$RUNYARD_REPORT"; sleep 1000"#;
    let start = shell(1, 1, line);
    assert_eq!(yard.worker.progress(start.task), None);
    yard.worker.start(vec![start.clone()]);
    yard.expect(&start, "started");
    let half = Progress { fraction: Some(0.5), message: Some("half".to_owned()) };
    let first = yard.runtime.block_on(events.recv()).expect("progress");
    assert_eq!((first.task, first.attempt, first.progress.fraction), (start.task, 1, Some(0.5)));
    let second = yard.runtime.block_on(events.recv()).expect("progress");
    assert_eq!(second.progress, half);
    assert_eq!(yard.worker.progress(start.task), Some(half));
    yard.stop(&start);
    yard.expect(&start, "stopped");
    assert_eq!(yard.worker.progress(start.task), None);
}

#[test]
fn a_follower_of_the_log_learns_that_the_attempt_has_ended() {
    let yard = Yard::new();
    let start = shell(1, 1, SLEEPER);
    yard.worker.start(vec![start.clone()]);
    yard.expect(&start, "started");
    yard.log_line(start.task, "leader=");
    let mut follow = yard.worker.follow_log(start.task).expect("the task runs");
    yard.stop(&start);
    yard.runtime.block_on(async { while follow.bytes.changed().await.is_ok() {} });
    assert!(yard.worker.follow_log(start.task).is_none());
}

#[test]
fn the_output_limit_of_the_spec_is_kept() {
    let yard = Yard::new();
    let spec = json!({"payload": {"shell": "echo 123456789"}, "limits": {"outputBytes": 4}});
    yard.worker.start(vec![start(1, 1, "process", spec)]);
    yard.next();
    yard.next();
    let path = yard.worker.places().log_file(1, 1);
    let (lines, _) = runyard_exec::log::read(&path, 0, 1 << 20).expect("the log can be read");
    assert_eq!(lines[0].text, "1234");
}

/// Says each line that it reads, and ends after `quit`.
fn reader(task: u128, attempt: u32) -> Start {
    let line = "while read -r line; do echo \"got: $line\"; [ \"$line\" = quit ] && exit 0; done";
    start(task, attempt, "process", json!({"payload": {"shell": line, "input": true, "message": "hello"}}))
}

#[test]
fn a_running_process_takes_messages_and_each_is_reported() {
    let yard = Yard::new();
    let start = reader(1, 2);
    yard.worker.start(vec![start.clone()]);
    yard.expect(&start, "started");
    yard.input(&start, 10, json!({"message": "one\ntwo"}));
    yard.expect_taken(&start, 10);
    yard.input(&start, 11, json!({"n": [1, 2]}));
    yard.expect_taken(&start, 11);
    yard.input(&start, 12, json!({"message": "quit"}));
    yard.expect_taken(&start, 12);
    let (_, report) = yard.next();
    let Report::Completed { result: Some(result), .. } = report else { panic!("{report:?}") };
    let result: Value = serde_json::from_slice(&result).expect("JSON");
    assert_eq!(result["stdout"], "got: hello\ngot: one\ngot: two\ngot: {\"n\":[1,2]}\ngot: quit\n");
}

#[test]
fn a_message_is_written_once_and_told_until_it_is_acknowledged() {
    let yard = Yard::new();
    let start = reader(1, 1);
    yard.worker.start(vec![start.clone()]);
    yard.expect(&start, "started");
    for message in [10, 11] {
        yard.input(&start, message, json!({"message": "once"}));
        yard.expect_taken(&start, message);
    }
    // A scheduler that has reloaded hands it over again, and only hears of it again.
    yard.input(&start, 10, json!({"message": "once"}));
    yard.expect_taken(&start, 10);
    assert_eq!(yard.repeated(&start), ["started", "took 10", "took 11"]);
    yard.worker.acknowledge_inputs([(start.task, 2, TaskId(11)), (start.task, 1, TaskId(10))]);
    assert_eq!(yard.repeated(&start), ["started", "took 11"]);
    yard.input(&start, 12, json!({"message": "quit"}));
    yard.expect_taken(&start, 12);
    let (_, report) = yard.next();
    let Report::Completed { result: Some(result), .. } = report else { panic!("{report:?}") };
    assert_eq!(String::from_utf8_lossy(&result).matches("once").count(), 2);
    assert_eq!(yard.repeated(&start), ["took 11", "took 12", "completed"]);
    yard.input(&start, 11, json!({"message": "once"}));
    yard.expect_taken(&start, 11);
    yard.worker.acknowledge_inputs([(start.task, 1, TaskId(11)), (start.task, 1, TaskId(12))]);
    assert_eq!(yard.repeated(&start), ["completed"]);
    yard.worker.acknowledge(start.task, start.attempt);
    assert!(yard.worker.unacknowledged().is_empty());
}

#[test]
fn a_message_nobody_can_take_is_not_reported() {
    let yard = Yard::new();
    let (deaf, other) = (shell(1, 1, SLEEPER), reader(2, 5));
    yard.worker.start(vec![deaf.clone(), other.clone()]);
    assert_eq!(yard.inbox.next_call().len(), 2);
    let (mut stale, mut forged, ended) = (other.clone(), other.clone(), start(3, 1, "noop", json!({})));
    stale.attempt = 4;
    forged.token = Token(1);
    yard.worker.start(vec![ended.clone()]);
    yard.expect(&ended, "completed");
    for target in [&deaf, &stale, &forged, &ended, &shell(4, 1, "true")] {
        yard.input(target, 10, json!({"message": "anybody?"}));
    }
    yard.worker.input(other.task, other.attempt, other.token, TaskId(11), Blob::from(&b"no JSON"[..]));
    // What comes next is the answer to this: nothing was said of those before it.
    yard.input(&other, 12, json!({"message": "quit"}));
    yard.expect_taken(&other, 12);
    yard.expect(&other, "completed");
    yard.input(&other, 13, json!({"message": "too late"}));
    assert!(yard.inbox.is_empty());
    yard.stop(&deaf);
    yard.expect(&deaf, "stopped");
}

#[test]
fn a_process_that_never_reads_can_still_be_stopped() {
    let yard = Yard::new();
    let payload = json!({"shell": SLEEPER, "input": true, "message": "x".repeat(1 << 20)});
    let start = start(1, 1, "process", json!({"payload": payload}));
    yard.worker.start(vec![start.clone()]);
    yard.expect(&start, "started");
    let leader = yard.log_line(start.task, "leader=");
    for message in 10..200 {
        yard.input(&start, message, json!({"message": "anybody?"}));
    }
    yard.stop(&start);
    yard.expect(&start, "stopped");
    assert!(!is_alive(&leader) && yard.inbox.is_empty());
    assert_eq!(yard.repeated(&start), ["stopped"]);
}

#[test]
fn merged_and_dropped_messages_reach_the_run() {
    let yard = Yard::new();
    let cat = |message: &str| json!({"payload": {"shell": "cat; echo \"in $RUNYARD_SESSION\"", "message": message}});
    let mut start = start(1, 1, "process", cat("one"));
    start.session = Some("chat:7".into());
    let mut last = cat("three");
    last["limits"] = json!({"outputBytes": 4});
    start.merged = vec![blob(cat("two")), blob(last)];
    start.dropped = vec![blob(cat("lost\nfor good")), blob(json!({"payload": {"n": 1}}))];
    yard.worker.start(vec![start.clone()]);
    yard.expect(&start, "started");
    let (_, report) = yard.next();
    let Report::Completed { result: Some(result), .. } = report else { panic!("{report:?}") };
    let result: Value = serde_json::from_slice(&result).expect("JSON");
    assert_eq!(result["stdout"], "dropped: lost\ndropped: {\"n\":1}\none\ntwo\nthree\nin chat:7\n");
    let (lines, _) = runyard_exec::log::read(&yard.worker.places().log_file(1, 1), 0, 1 << 20).expect("a log");
    assert_eq!(lines[0].text, "drop");
}

#[test]
fn no_ops_that_were_merged_or_told_of_others_end_well() {
    let yard = Yard::new();
    let (mut empty, mut told) = (start(1, 1, "noop", json!({})), start(2, 1, "noop", json!({})));
    empty.merged = vec![blob(json!({"payload": {}})), blob(json!({}))];
    told.dropped = vec![blob(json!({"payload": {"message": "gone"}}))];
    yard.worker.start(vec![empty.clone()]);
    yard.expect(&empty, "completed");
    yard.worker.start(vec![told.clone()]);
    yard.expect(&told, "started");
    yard.expect(&told, "completed");
}

#[test]
fn usage_is_in_the_report_of_a_good_end_and_of_a_bad_one() {
    let yard = Yard::new();
    let line = r#"echo '{"usage":{"contextTokens":6,"contextWindow":10}}' >> "$RUNYARD_REPORT""#;
    for (task, end) in [(1, "true"), (2, "exit 3")] {
        let start = shell(task, 1, &format!("{line}; {end}"));
        yard.worker.start(vec![start.clone()]);
        yard.expect(&start, "started");
        let (Report::Completed { usage, .. } | Report::Failed { usage, .. }) = yard.next().1 else { panic!("no end") };
        assert_eq!(usage.and_then(|usage| usage.context()), Some(Context { tokens: 6, window: 10 }));
    }
}
