//! The README's tour and more, through the real binary and a real server.

mod yard;

use std::io::{BufRead, BufReader, Lines};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStderr, Command, Stdio};

use yard::Yard;

#[test]
fn a_command_is_run_and_its_output_comes_back() {
    let yard = Yard::start();
    assert_eq!(yard.out(0, &["submit", "--wait", "--", "echo", "hi"]), "hi");
    let id = yard.out(0, &["submit", "--", "sh", "-c", "echo out; echo err >&2"]);
    assert!(yard.out(0, &["wait", &id]).starts_with(&format!("{id} completed")));
    let logs = yard.out(0, &["logs", &id]);
    assert!(logs.contains("out") && logs.contains("err"), "{logs}");
    assert_eq!(yard.out(0, &["logs", "-f", &id]), "out");
    let task = yard.json(&["show", &id]);
    assert_eq!(task["state"], "completed");
    assert_eq!(task["result"]["exitCode"], 0);
    assert_eq!(task["agent"], "default");
}

#[test]
fn an_http_call_shows_its_answer() {
    let yard = Yard::start();
    let server: serde_json::Value =
        serde_json::from_slice(&std::fs::read(yard.data().join("server.json")).expect("it is there")).expect("JSON");
    let url = format!("{}/version", server["url"].as_str().expect("an address"));
    let answer: serde_json::Value =
        serde_json::from_str(&yard.out(0, &["submit", "--wait", "--http", "GET", &url])).expect("JSON");
    assert_eq!(answer["status"], 200);
    assert_eq!(answer["body"]["name"], "runyard");
    let keyless = yard.err(1, &["submit", "--wait", "--http", "GET", &url.replace("version", "v1/stats")]);
    assert!(keyless.contains("401") && keyless.contains("permanent"), "{keyless}");
}

#[test]
fn a_failure_is_the_exit_code() {
    let yard = Yard::start();
    let message = yard.err(1, &["submit", "--wait", "--retries", "0", "--shell", "echo no >&2; exit 7"]);
    assert!(message.contains("exit code 7") && message.contains("no"), "{message}");
    let again = yard.err(1, &["submit", "--wait", "--retries", "1", "--backoff", "1ms", "--shell", "exit 7"]);
    assert!(again.contains("failed"), "{again}");
}

#[test]
fn a_running_task_is_cancelled() {
    let yard = Yard::start();
    let id = yard.out(0, &["submit", "--shell", "echo begun; sleep 1000"]);
    let mut logs = Command::new(env!("CARGO_BIN_EXE_runyard"))
        .args(["logs", "-f", &id])
        .env("RUNYARD_DATA", yard.data())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(logs.stdout.take().expect("it is piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("readable"), "begun");
    yard.out(0, &["cancel", &id, "--reason", "enough"]);
    assert!(yard.out(3, &["wait", &id]).contains("cancelled"));
    // Following ends with the task.
    assert!(lines.next().is_none());
    assert!(logs.wait().expect("it ends").success());
    assert!(yard.err(4, &["cancel", &id]).contains("already_terminal"));
}

#[test]
fn a_waiting_task_is_explained() {
    let yard = Yard::start_with("[lanes]\nmain = 1\n");
    let first = yard.out(0, &["submit", "--kind", "noop", "--payload", r#"{"sleepMs": 100000}"#]);
    let second = yard.out(0, &["submit", "--kind", "noop", "--payload", r#"{"sleepMs": 1}"#]);
    let why = yard.out(0, &["why", &second]);
    let lane =
        why.lines().position(|line| line.contains("closed") && line.contains("lane main") && line.contains("1/1"));
    assert!(lane.is_some() && why.contains(&format!("held by {first}")), "{why}");
    yard.out(0, &["cancel", &first]);
    yard.out(0, &["wait", &second]);
}

#[test]
fn a_finished_task_is_submitted_again() {
    let yard = Yard::start();
    let first = yard.out(0, &["submit", "--", "echo", "again"]);
    yard.out(0, &["wait", &first]);
    let second = yard.out(0, &["retry", &first]);
    assert_ne!(first, second);
    yard.out(0, &["wait", &second]);
    assert_eq!(yard.json(&["show", &second])["retryOf"], first.as_str());
    assert_eq!(yard.json(&["show", &first])["state"], "completed");
}

#[test]
fn a_batch_runs_in_the_order_of_its_names() {
    let yard = Yard::start();
    let file = yard.home().join("batch.jsonl");
    std::fs::write(
        &file,
        r##"{"name": "build", "kind": "noop", "payload": {"sleepMs": 20}}
            {"name": "test", "kind": "noop", "dependsOn": ["#build"]}
            {"kind": "noop", "dependsOn": ["#test"]}"##,
    )
    .expect("written");
    let file = file.to_str().expect("UTF-8");
    assert!(yard.out(0, &["batch", file, "--wait"]).contains("3 tasks, 3 completed"));
    std::fs::write(file, r##"{"kind": "noop", "dependsOn": ["#nobody"]}"##).expect("written");
    assert!(yard.err(4, &["batch", file]).contains("nobody"));
}

#[test]
fn lists_and_counts_agree() {
    let yard = Yard::start();
    for agent in ["a", "a", "b"] {
        let id = yard.out(0, &["submit", "--kind", "noop", "--agent", agent]);
        yard.out(0, &["wait", &id]);
    }
    assert_eq!(yard.json(&["list", "--agent", "a"])["items"].as_array().map(Vec::len), Some(2));
    assert_eq!(yard.json(&["list", "--all", "--limit", "1"])["items"].as_array().map(Vec::len), Some(3));
    assert_eq!(yard.json(&["list", "--state", "failed,running"])["items"].as_array().map(Vec::len), Some(0));
    assert!(yard.out(0, &["list"]).lines().next().is_some_and(|head| head.contains("STATE")));
    let stats = yard.json(&["stats"]);
    assert_eq!(stats["metrics"]["completed"], 3);
    assert!(yard.out(0, &["stats"]).contains("3 submitted"));
    assert!(yard.out(0, &["agents"]).lines().count() >= 3);
    assert!(yard.out(0, &["lanes"]).contains("main"));
    assert!(yard.out(0, &["config", "show"]).contains("limits.maxQueued"));
}

#[test]
fn lanes_and_agents_are_paused_and_resumed() {
    let yard = Yard::start();
    yard.out(0, &["lanes", "main", "--pause"]);
    let id = yard.out(0, &["submit", "--kind", "noop"]);
    let why = yard.out(0, &["why", &id]);
    assert!(why.contains("paused") && why.ends_with("it is the first to go when lane main opens"), "{why}");
    assert_eq!(yard.json(&["show", &id])["state"], "queued");
    yard.out(0, &["lanes", "main", "--resume", "--limit", "5"]);
    yard.out(0, &["wait", &id]);
    assert_eq!(yard.json(&["lanes", "main"])["limit"], 5);
    yard.out(0, &["agents", "default", "--max-inflight", "3", "--weight", "2"]);
    assert_eq!(yard.json(&["agents", "default"])["maxInflight"], 3);
    let table = yard.out(0, &["agents", "default", "--max-priority", "high"]);
    let columns = |line: &str| line.split("  ").map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned).collect();
    let [head, row]: [Vec<String>; 2] = table.lines().map(columns).collect::<Vec<_>>().try_into().expect("two lines");
    let value = |name: &str| row[head.iter().position(|column| column == name).expect(name)].as_str();
    assert_eq!((value("LIMIT"), value("WEIGHT"), value("MAX PRIORITY")), ("3", "2", "high"), "{table}");
}

#[test]
fn a_key_can_do_what_its_scopes_say() {
    let yard = Yard::start();
    let key = yard.out(0, &["key", "create", "reader", "--scope", "read"]);
    let with_key = |arguments: &[&str], code| {
        yard.runyard(arguments).env("RUNYARD_API_KEY", &key).assert().code(code);
    };
    with_key(&["list"], 0);
    with_key(&["submit", "--kind", "noop"], 4);
    let keys = yard.json(&["key", "list"]);
    let reader = keys["items"].as_array().into_iter().flatten().find(|key| key["name"] == "reader").expect("listed");
    yard.out(0, &["key", "revoke", reader["id"].as_str().expect("an id")]);
    with_key(&["list"], 4);
}

#[test]
fn a_backup_is_written_while_serving() {
    let yard = Yard::start();
    yard.out(0, &["submit", "--kind", "noop"]);
    let file = yard.home().join("copy.db");
    yard.out(0, &["backup", file.to_str().expect("UTF-8")]);
    let written = std::fs::metadata(&file).expect("it is there");
    assert!(written.len() > 0);
    assert_eq!(written.permissions().mode() & 0o777, 0o600, "it holds payloads and results");
}

#[test]
fn a_draining_server_takes_nothing_new() {
    let yard = Yard::start();
    assert!(yard.out(0, &["drain", "--wait"]).contains("draining"));
    assert!(yard.err(5, &["submit", "--kind", "noop"]).contains("draining"));
    yard.out(0, &["drain", "--off"]);
    yard.out(0, &["submit", "--kind", "noop"]);
}

/// `runyard drain --wait` as it goes on, and the lines it says meanwhile.
fn drain_and_wait(yard: &Yard) -> (Child, Lines<BufReader<ChildStderr>>) {
    let mut drain = Command::new(env!("CARGO_BIN_EXE_runyard"))
        .args(["drain", "--wait"])
        .env("RUNYARD_DATA", yard.data())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let notes = BufReader::new(drain.stderr.take().expect("it is piped")).lines();
    (drain, notes)
}

#[test]
fn a_drain_shows_what_is_left_and_ends_when_idle() {
    let yard = Yard::start_with("[lanes]\nmain = 1\n");
    let running = yard.out(0, &["submit", "--kind", "noop", "--payload", r#"{"sleepMs": 100000}"#]);
    let queued = yard.out(0, &["submit", "--kind", "noop"]);
    let (drain, mut notes) = drain_and_wait(&yard);
    let note = notes.next().expect("a line").expect("readable");
    assert_eq!(note, "1 still running; 1 queued stay for later");
    yard.out(0, &["cancel", &running]);
    let output = drain.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("0 running, 1 queued"), "{text}");
    yard.out(0, &["drain", "--off"]);
    yard.out(0, &["wait", &queued]);
}

#[test]
fn a_drain_that_is_ended_is_not_waited_for() {
    let yard = Yard::start();
    yard.out(0, &["submit", "--kind", "noop", "--payload", r#"{"sleepMs": 100000}"#]);
    let (mut drain, mut notes) = drain_and_wait(&yard);
    assert!(notes.next().expect("a line").expect("readable").starts_with("1 still running"));
    yard.out(0, &["drain", "--off"]);
    assert!(notes.next().expect("a line").expect("readable").contains("ended before the server was idle"));
    assert_eq!(drain.wait().expect("it ends").code(), Some(4));
}

#[test]
fn a_session_is_set_looked_at_and_stopped() {
    let yard = Yard::start();
    assert!(yard.err(6, &["session", "show", "chat:7"]).contains("chat:7"));
    assert!(yard.err(2, &["session", "set", "chat:7"]).contains("what is to be set"));
    yard.out(0, &["session", "set", "chat:7", "--mode", "collect", "--cap", "3"]);
    let shown = yard.out(0, &["session", "set", "chat:7", "--debounce", "0s", "--unset", "cap"]);
    assert!(shown.contains("mode      collect (its own)") && shown.lines().any(|it| it == "cap       10"), "{shown}");
    let first =
        yard.out(0, &["submit", "--session", "chat:7", "--kind", "noop", "--payload", r#"{"sleepMs": 100000}"#]);
    let second = yard.out(0, &["submit", "--session", "chat:7", "--shell", "cat"]);
    let note = yard.err(0, &["submit", "--session", "chat:7", "--shell", "cat"]);
    assert_eq!(note, format!("merged into task {second}, which carries 2 messages"));
    let why = yard.out(0, &["why", &second]);
    assert!(why.contains("closed  session chat:7") && why.contains(&format!("held by {first}")), "{why}");
    let table = yard.out(0, &["session", "list", "--prefix", "chat:", "--busy"]);
    let row: Vec<&str> = table.lines().nth(1).expect("a row").split_whitespace().collect();
    assert_eq!(row[..6], ["chat:7", "collect", "1", "1", "0", "3"], "{table}");
    assert_eq!(yard.json(&["session", "list"])["items"][0]["key"], "chat:7");
    let listed = yard.out(0, &["list", "--session", "chat:7"]);
    assert!(listed.lines().next().is_some_and(|head| head.contains("SESSION")) && listed.lines().count() == 3);
    let stopped = yard.out(0, &["session", "stop", "chat:7"]);
    assert_eq!(stopped, format!("{first} is being stopped"));
    assert!(yard.out(0, &["wait", &second]).contains("completed"));
    let shown = yard.out(0, &["show", &second]);
    assert!(shown.contains("session   chat:7") && shown.contains("merged    1 further message"), "{shown}");
    assert_eq!(yard.out(0, &["session", "stop", "chat:7"]), "nothing ran");
    assert_eq!(yard.out(0, &["session", "stopall", "chat:7"]), "stopped: 0 running, 0 waiting, 0 debouncing");
    assert_eq!(yard.json(&["session", "reset", "chat:7"])["session"]["generation"], 1);
    let late = ["submit", "--session", "chat:7", "--sent-at", "2026-01-01T00:00:00Z", "--kind", "noop"];
    assert!(yard.err(4, &late).contains("stale_message"));
}

#[test]
fn text_is_handed_to_a_running_task() {
    let yard = Yard::start();
    let listener = r#"{"shell": "read line; echo heard $line", "input": true}"#;
    let id = yard.out(0, &["submit", "--kind", "process", "--payload", listener]);
    let carrier = yard.out(0, &["input", &id, "-- hello"]);
    assert!(yard.out(0, &["wait", &carrier]).contains(&format!("handed to {id} as input")));
    assert_eq!(yard.out(0, &["logs", "-f", &id]), "heard -- hello");
    assert!(yard.out(0, &["show", &carrier]).contains(&format!("handed to {id}")));
    let held = yard.out(0, &["submit", "--kind", "noop", "--payload", r#"{"sleepMs": 100000}"#]);
    assert!(yard.err(0, &["input", &held, "later"]).contains("takes no input"));
    let ended = yard.runyard(&["input", &id, "-"]).write_stdin("too late\n").assert().code(4);
    assert!(String::from_utf8_lossy(&ended.get_output().stderr).contains("already_terminal"));
}

#[test]
fn events_are_watched_as_they_happen() {
    let yard = Yard::start();
    let mut watch = Command::new(env!("CARGO_BIN_EXE_runyard"))
        .args(["watch", "--type", "task.completed", "--after", "0-0"])
        .env("RUNYARD_DATA", yard.data())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let id = yard.out(0, &["submit", "--kind", "noop"]);
    let mut lines = BufReader::new(watch.stdout.take().expect("it is piped")).lines();
    let line = lines.next().expect("a line").expect("readable");
    watch.kill().expect("it runs");
    watch.wait().expect("it ends");
    assert!(line.contains("task.completed") && line.contains(&id), "{line}");
}

#[test]
fn progress_is_watched_in_words() {
    let yard = Yard::start();
    let mut watch = Command::new(env!("CARGO_BIN_EXE_runyard"))
        .args(["watch", "--type", "task.queued,task.progress", "--after", "0-0"])
        .env("RUNYARD_DATA", yard.data())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("it is piped")).lines();
    // Progress is only sent live: once the first event is here, the watch listens.
    yard.out(0, &["submit", "--kind", "noop"]);
    lines.next().expect("a line").expect("readable");
    let report = r#"echo '{"progress": 0.25, "message": "page 1 of 4"}' >> "$RUNYARD_REPORT""#;
    let id = yard.out(0, &["submit", "--shell", report]);
    let line = lines.by_ref().map_while(Result::ok).find(|line| line.contains("task.progress")).expect("progress");
    watch.kill().expect("it runs");
    watch.wait().expect("it ends");
    assert!(line.ends_with(&format!(" task.progress   {id} 25 % page 1 of 4")), "{line}");
}

#[test]
fn a_server_that_is_asked_to_stop_stops_well() {
    assert_eq!(Yard::start().stop(), Some(0));
}

#[test]
fn the_demo_shows_work_being_done() {
    let mut demo = assert_cmd::Command::new(env!("CARGO_BIN_EXE_runyard"));
    let assert = demo.args(["demo", "--seconds", "3"]).timeout(std::time::Duration::from_secs(60)).assert().success();
    let text = String::from_utf8_lossy(&assert.get_output().stdout).into_owned();
    assert!(text.contains("task.completed") && text.contains("tasks submitted"), "{text}");
}

#[test]
fn a_crontab_file_becomes_schedules_line_by_line() {
    let yard = Yard::start();
    let file = yard.home().join("old tab.cron");
    let text = "# old\nA=1\n\n15 2 * * * echo $A\n@reboot x\n0 25 * * * y\n@daily cat %hi\n";
    std::fs::write(&file, text).expect("written");
    let file = file.to_str().expect("UTF-8");
    let would = yard.out(4, &["cron", "import", "--dry-run", file]);
    assert!(would.contains("line 4: would add: old-tab-4: at 02:15, in the server's time zone"), "{would}");
    assert_eq!(yard.json(&["cron", "list"])["items"], serde_json::json!([]), "nothing was made");
    let said = yard.out(4, &["cron", "import", "--prefix", "tab", "--agent", "ops", file]);
    let expected = [
        "line 2: set: A for the commands below",
        "line 4: added: tab-4: at 02:15, in UTC",
        "line 5: refused: @reboot is no time: start it with the server, or submit a task",
        "line 6: refused: column 3: 25 is no hour: 0 to 23",
        "line 7: added: tab-7: at 00:00, in UTC",
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
    let made = yard.json(&["cron", "show", "tab-4"]);
    assert_eq!(made["task"]["payload"], serde_json::json!({"shell": "echo $A", "env": {"A": "1"}}));
    assert_eq!(made["task"]["agent"], "ops");
    let task = yard.out(0, &["cron", "run", "tab-7"]);
    yard.out(0, &["wait", &task]);
    assert_eq!(yard.out(0, &["logs", &task]), "hi");
    let again = yard.out(4, &["cron", "import", "--prefix", "tab", file]);
    assert!(again.contains("line 4: refused: tab-4: there is a schedule `tab-4` already"), "{again}");
}

#[test]
fn a_schedule_is_made_and_changed_from_the_command_line() {
    let yard = Yard::start();
    let id = yard
        .out(0, &["cron", "add", "a", "--every", "1h", "--max-runs", "3", "--catch-up", "2/10m", "--", "echo", "hi"]);
    let made = yard.json(&["cron", "show", &id]);
    assert_eq!((&made["name"], &made["schedule"]["everyMs"]), (&"a".into(), &3_600_000.into()));
    assert_eq!((&made["maxRuns"], &made["catchUp"]["expiryMs"]), (&3.into(), &600_000.into()));
    let edited = yard.json(&["cron", "edit", "a", "--rename", "b", "--unset", "max-runs", "--timeout", "5s"]);
    assert_eq!((&edited["name"], &edited["task"]["timeoutMs"]), (&"b".into(), &5000.into()));
    assert_eq!(edited["task"]["payload"], made["task"]["payload"], "what is not named stays");
    assert!(edited.get("maxRuns").is_none(), "{edited}");
    let task = yard.out(0, &["cron", "run", "b"]);
    assert!(yard.out(0, &["wait", &task]).contains("completed"));
    assert!(yard.err(2, &["cron", "add", "c", "--", "true"]).contains("--cron, --every or --at"));
    assert!(yard.err(2, &["cron", "edit", "b"]).contains("what is to be changed"));
    assert!(yard.err(2, &["cron", "next", "0 0 31 2 *"]).contains("column 5"));
    assert!(yard.err(4, &["cron", "add", "b", "--at", "1h", "--", "true"]).contains("name_taken"));
    yard.out(0, &["cron", "rm", "b"]);
    assert!(yard.err(6, &["cron", "show", "b"]).contains("there is no schedule b"));
    assert_eq!(yard.json(&["cron", "runs", &id])["items"][0]["taskId"], task.as_str());
}
