//! The `process` executor with real processes.

mod support;

use std::time::Duration;

use runyard_exec::log::Stream;
use runyard_exec::outcome::Fault;
use runyard_exec::{Class, Kind, Outcome, Progress, Usage};
use serde_json::{Value, json};
use support::{TASK, TASK_TEXT, Yard, completed, failed, failed_as, is_alive, usage};

fn shell(line: &str) -> Value {
    json!({"shell": line})
}

#[tokio::test]
async fn exit_0_completes_with_exit_code_and_output() {
    let yard = Yard::new();
    let result = completed(yard.run(Kind::Process, json!({"argv": ["echo", "a  b", "$HOME"]})).await);
    assert_eq!(result, json!({"exitCode": 0, "stdout": "a  b $HOME\n"}));
}

#[tokio::test]
async fn both_streams_are_in_the_log_and_can_be_told_apart() {
    let yard = Yard::new();
    yard.run(Kind::Process, shell("echo out; echo err >&2; printf unfinished")).await;
    let mut lines: Vec<_> = yard.log_lines().into_iter().map(|line| (line.stream.as_str(), line.text)).collect();
    lines.sort();
    let expected = [("stderr", "err"), ("stdout", "out"), ("stdout", "unfinished")];
    assert_eq!(lines, expected.map(|(stream, text)| (stream, text.to_owned())));
}

#[tokio::test]
async fn every_exit_has_its_class() {
    let table = [
        ("exit 7", Class::Task, "exit code 7"),
        ("echo first >&2; echo second >&2; exit 7", Class::Task, "exit code 7: second"),
        ("exit 124", Class::Timeout, "exit code 124"),
        ("exit 130", Class::Task, "exit code 130"),
        ("kill -SEGV $$", Class::Task, "killed by SIGSEGV"),
        ("kill -TERM $$", Class::Task, "killed by SIGTERM"),
        ("kill -KILL $$", Class::Task, "killed by SIGKILL (possibly the machine was out of memory)"),
    ];
    for (line, class, message) in table {
        let yard = Yard::new();
        assert_eq!(failed_as(yard.run(Kind::Process, shell(line)).await), (class, message.to_owned()), "{line}");
    }
}

#[tokio::test]
async fn a_failure_carries_the_ends_of_both_streams() {
    let yard = Yard::new();
    let failure = failed(yard.run(Kind::Process, shell("echo o; echo e >&2; exit 7")).await);
    let result: Value = serde_json::from_slice(&failure.result.expect("a result")).expect("JSON");
    assert_eq!(result, json!({"exitCode": 7, "stdout": "o\n", "stderr": "e\n"}));
    assert_eq!(failure.fault, Fault::Work);
}

#[tokio::test]
async fn what_can_never_run_is_permanent_and_named() {
    let yard = Yard::new();
    let plain_file = yard.dir.path().join("plain");
    std::fs::write(&plain_file, "text").expect("a file");
    let plain_file = plain_file.to_str().expect("a path");
    let table = [
        (json!({"argv": ["/no/such/program"]}), "/no/such/program"),
        (json!({"argv": ["no-such-program-either"]}), "no-such-program-either"),
        (json!({"argv": [plain_file]}), plain_file),
        (json!({"argv": ["true"], "cwd": "/no/such/place"}), "/no/such/place"),
        (json!({"argv": ["true"], "cwd": plain_file}), "is not a directory"),
        (json!({"argv": ["true"], "surprise": 1}), "surprise"),
        (json!({}), "argv"),
    ];
    for (payload, named) in table {
        let (class, message) = failed_as(yard.run(Kind::Process, payload).await);
        assert_eq!(class, Class::Permanent, "{message}");
        assert!(message.contains(named), "{message}");
    }
}

#[tokio::test]
async fn stdin_is_written_and_closed() {
    let yard = Yard::new();
    let text = "line\n".repeat(50_000);
    let result = completed(yard.run(Kind::Process, json!({"argv": ["wc", "-c"], "stdin": text})).await);
    assert_eq!(result["stdout"].as_str().map(str::trim), Some("250000"));
    let ignored = json!({"argv": ["true"], "stdin": text});
    assert_eq!(completed(yard.run(Kind::Process, ignored).await)["exitCode"], 0);
    assert_eq!(completed(yard.run(Kind::Process, json!({"argv": ["cat"]})).await)["stdout"], "");
}

#[tokio::test]
async fn the_environment_of_the_server_is_not_inherited() {
    // Cargo sets this for the test itself, as a stand-in for a server's secret.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let yard = Yard::new();
    let payload = json!({"argv": ["env"], "env": {"MINE": "1", "RUNYARD_AGENT": "forged"}});
    let result = completed(yard.run(Kind::Process, payload).await);
    let text = result["stdout"].as_str().expect("a text");
    let work_dir = yard.executors.places().work_dir(TASK);
    for line in text.lines() {
        let name = line.split('=').next().unwrap_or_default();
        let known = ["PATH", "HOME", "LANG", "TZ", "USER", "TMPDIR", "MINE", "PWD"];
        assert!(name.starts_with("RUNYARD_") || known.contains(&name), "{line}");
    }
    for line in [
        "MINE=1".to_owned(),
        "RUNYARD_AGENT=ada".to_owned(),
        format!("RUNYARD_TASK_ID={TASK_TEXT}"),
        "RUNYARD_SESSION=".to_owned(),
        "RUNYARD_ATTEMPT=1".to_owned(),
        "RUNYARD_DEADLINE=2026-11-15T21:00:00.123Z".to_owned(),
        format!("RUNYARD_WORKDIR={}", work_dir.display()),
        format!("RUNYARD_REPORT={}/.runyard-report.jsonl", work_dir.display()),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
}

#[tokio::test]
async fn the_working_directory_is_its_own_and_removed_at_the_end() {
    let yard = Yard::new();
    let work_dir = yard.executors.places().work_dir(TASK);
    let result = completed(yard.run(Kind::Process, shell("pwd; mkdir deep; touch deep/file")).await);
    assert_eq!(result["stdout"], format!("{}\n", work_dir.display()));
    assert!(!work_dir.exists());
    let elsewhere = yard.dir.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("a directory");
    completed(yard.run(Kind::Process, json!({"shell": "touch kept", "cwd": elsewhere})).await);
    assert!(elsewhere.join("kept").exists() && !work_dir.exists());
}

#[tokio::test]
async fn output_is_capped_but_the_process_goes_on() {
    let yard = Yard::new();
    let mut job = yard.job(Kind::Process, shell("yes 0123456789 | head -c 300000; echo; echo the end"));
    job.output_bytes_max = 1000;
    let result = completed(yard.start(job).end().await);
    assert!(result["stdout"].as_str().expect("a text").ends_with("\nthe end\n"));
    let lines = yard.log_lines();
    let stored: usize = lines.iter().filter(|line| line.stream == Stream::Stdout).map(|line| line.text.len() + 1).sum();
    assert!(stored <= 1001, "{stored}");
    let notes: Vec<_> = lines.into_iter().filter(|line| line.stream == Stream::System).map(|line| line.text).collect();
    assert_eq!(notes, ["… output truncated at 1000 bytes", "… 299009 more bytes of output were not stored"]);
}

#[tokio::test]
async fn a_stop_ends_the_whole_group() {
    let yard = Yard::new();
    let run = yard.start(yard.job(Kind::Process, shell("sleep 1000 & echo child=$!; echo leader=$$; sleep 1000")));
    let (child, leader) = (run.line("child=").await, run.line("leader=").await);
    assert!(is_alive(&child) && is_alive(&leader));
    assert_eq!(run.stop_and_end().await, Outcome::Stopped);
    assert!(!is_alive(&child) && !is_alive(&leader));
}

#[tokio::test]
async fn what_ignores_the_request_is_killed_after_the_grace() {
    let yard = Yard::new();
    let line =
        "trap '' TERM; sh -c 'trap \"\" TERM; sleep 1000' & echo child=$!; echo leader=$$; sleep 1000; sleep 1000";
    let mut job = yard.job(Kind::Process, shell(line));
    job.grace = Duration::from_millis(100);
    let run = yard.start(job);
    let (child, leader) = (run.line("child=").await, run.line("leader=").await);
    assert_eq!(run.stop_and_end().await, Outcome::Stopped);
    assert!(!is_alive(&child) && !is_alive(&leader));
}

#[tokio::test]
async fn the_grace_is_for_the_whole_group_not_only_its_leader() {
    let yard = Yard::new();
    let line =
        "sh -c 'trap \"sleep 0.2; echo cleaned up; exit 0\" TERM; echo ready=; while :; do sleep 0.02; done' & wait";
    let run = yard.start(yard.job(Kind::Process, shell(line)));
    run.line("ready=").await;
    assert_eq!(run.stop_and_end().await, Outcome::Stopped);
    assert!(yard.log_texts().contains(&"cleaned up".to_owned()), "{:?}", yard.log_texts());
}

#[tokio::test]
async fn a_stop_also_ends_what_left_the_group() {
    let yard = Yard::new();
    let line = "setsid sleep 1000 >/dev/null 2>&1 & echo escaped=$!; sleep 1000";
    let run = yard.start(yard.job(Kind::Process, shell(line)));
    let escaped = run.line("escaped=").await;
    assert_eq!(run.stop_and_end().await, Outcome::Stopped);
    assert!(!is_alive(&escaped));
}

#[tokio::test]
async fn children_left_in_the_group_die_with_a_normal_exit() {
    let yard = Yard::new();
    let result = completed(yard.run(Kind::Process, shell("sleep 1000 & echo $!")).await);
    assert!(!is_alive(result["stdout"].as_str().expect("a text").trim()));
}

#[tokio::test]
async fn an_escaped_child_that_holds_the_output_open_does_not_hang_the_outcome() {
    let yard = Yard::new();
    let run = yard.start(yard.job(Kind::Process, shell("setsid sleep 1000 & echo escaped=$!")));
    let escaped = run.line("escaped=").await;
    assert_eq!(completed(run.end().await)["exitCode"], 0);
    assert!(!is_alive(&escaped));
}

#[tokio::test]
async fn an_escaped_child_that_closed_its_output_dies_with_a_normal_exit() {
    let yard = Yard::new();
    // The leader does not wait to see them started: they may still be in the middle of an `exec` when it has ended.
    let line = "setsid sleep 7311 >/dev/null 2>&1 </dev/null & echo $!
        (setsid sh -c 'sleep 7311 & sleep 7311' >/dev/null 2>&1 </dev/null &)
        exit 0";
    for _ in 0..20 {
        let result = completed(yard.run(Kind::Process, shell(line)).await);
        assert!(!is_alive(result["stdout"].as_str().expect("a text").trim()));
        assert_eq!(marked_by(&yard), Vec::<String>::new());
    }
}

/// Processes on this machine that were started for a task of this yard.
fn marked_by(yard: &Yard) -> Vec<String> {
    let work_root = yard.executors.places().work_dir(TASK).parent().expect("a folder").to_owned();
    let mark = format!("RUNYARD_WORKDIR={}", work_root.display());
    let pids = std::fs::read_dir("/proc").expect("a process table").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().into_string().ok());
    let has_mark = |pid: &String| {
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|bytes| bytes.windows(mark.len()).any(|part| part == mark.as_bytes()))
    };
    pids.filter(has_mark).collect()
}

#[tokio::test]
async fn a_stop_before_the_start_starts_nothing() {
    let yard = Yard::new();
    let mark = yard.dir.path().join("mark");
    let run = yard.start(yard.job(Kind::Process, json!({"argv": ["touch", mark]})));
    // The run has not been polled yet: nothing was awaited since.
    assert_eq!(run.stop_and_end().await, Outcome::Stopped);
    assert!(!mark.exists());
}

#[tokio::test]
async fn a_run_that_is_dropped_takes_its_processes_with_it() {
    let yard = Yard::new();
    let run = yard.start(yard.job(Kind::Process, shell("echo leader=$$; sleep 1000")));
    let leader = run.line("leader=").await;
    run.outcome.abort();
    while is_alive(&leader) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_report_file_gives_progress_and_result() {
    let yard = Yard::new();
    let line = r#"
        echo '{"progress":0.4,"message":"page 4"}' >> "$RUNYARD_REPORT"
        echo 'nonsense' >> "$RUNYARD_REPORT"
        echo '{"progress":7,"new":"field"}' >> "$RUNYARD_REPORT"
        echo '{"result":{"pages": 9}}' >> "$RUNYARD_REPORT"
        printf '{"result":{"pages": 10}}' >> "$RUNYARD_REPORT""#;
    let run = yard.start(yard.job(Kind::Process, shell(line)));
    let signs = run.signs.clone();
    assert_eq!(completed(run.end().await), json!({"pages": 10}));
    let expected = [
        Progress { fraction: Some(0.4), message: Some("page 4".to_owned()) },
        Progress { fraction: Some(1.0), message: None },
    ];
    assert_eq!(*signs.progress.lock().expect("the recorder's lock"), expected);
    assert!(yard.log_texts()[0].starts_with("line 2 of RUNYARD_REPORT is not understood"));
}

#[tokio::test]
async fn progress_is_seen_while_the_process_runs() {
    let yard = Yard::new();
    let line = r#"echo '{"message":"half way"}' >> "$RUNYARD_REPORT"; read -r go; echo ended"#;
    let fifo_free = json!({"shell": format!("sleep 1000 | {{ {line}; }}")});
    let run = yard.start(yard.job(Kind::Process, fifo_free));
    while run.signs.progress.lock().expect("the recorder's lock").is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(run.stop_and_end().await, Outcome::Stopped);
}

#[tokio::test]
async fn a_pipe_or_a_link_in_place_of_the_report_file_holds_nobody() {
    let yard = Yard::new();
    // One thread runs everything here: were it held by the pipe, the process could not even be waited for.
    let line = r#"rm "$RUNYARD_REPORT"; mkfifo "$RUNYARD_REPORT""#;
    assert_eq!(completed(yard.run(Kind::Process, shell(line)).await)["exitCode"], 0);
    let line = r#"echo '{"result":"not mine"}' > other; rm "$RUNYARD_REPORT"; ln -s "$PWD/other" "$RUNYARD_REPORT""#;
    assert_eq!(completed(yard.run(Kind::Process, shell(line)).await)["exitCode"], 0);
}

#[tokio::test]
async fn usage_is_kept_beside_the_default_result() {
    let yard = Yard::new();
    let line = r#"echo '{"usage":{"inputTokens":812}}' >> "$RUNYARD_REPORT""#;
    let result = completed(yard.run(Kind::Process, shell(line)).await);
    assert_eq!(result, json!({"exitCode": 0, "stdout": "", "usage": {"inputTokens": 812}}));
}

#[tokio::test]
async fn usage_is_told_however_the_process_ends() {
    let yard = Yard::new();
    let expected = Usage { input_tokens: Some(812), context_tokens: Some(9), ..Usage::default() };
    let report = r#"echo '{"usage":{"inputTokens":812,"contextTokens":9,"cost":1}}' >> "$RUNYARD_REPORT""#;
    let result = r#"echo '{"result":1}' >> "$RUNYARD_REPORT""#;
    for end in ["true", result, "exit 3", "kill -KILL $$"] {
        let outcome = yard.run(Kind::Process, shell(&format!("{report}; {end}"))).await;
        assert_eq!(usage(&outcome), Some(expected), "{end}");
    }
}

#[tokio::test]
async fn the_last_usage_that_is_understood_counts_and_another_is_noted() {
    let yard = Yard::new();
    let line = r#"
        echo '{"usage":{"inputTokens":1}}' >> "$RUNYARD_REPORT"
        echo '{"usage":{"inputTokens":2,"outputTokens":3}}' >> "$RUNYARD_REPORT"
        echo '{"usage":{"inputTokens":"many"}}' >> "$RUNYARD_REPORT"
        echo '{"usage":7}' >> "$RUNYARD_REPORT""#;
    let outcome = yard.run(Kind::Process, shell(line)).await;
    let expected = Usage { input_tokens: Some(2), output_tokens: Some(3), ..Usage::default() };
    assert_eq!(usage(&outcome), Some(expected));
    let notes = yard.log_texts();
    assert!(notes[0].starts_with("line 3 of RUNYARD_REPORT is not understood"), "{notes:?}");
    assert!(notes[1].ends_with("usage must be an object"), "{notes:?}");
}

#[tokio::test]
async fn a_reported_result_over_the_limit_is_refused() {
    let yard = Yard::new();
    let line = r#"{ printf '{"result":"'; head -c 1100000 /dev/zero | tr '\0' x; echo '"}'; } >> "$RUNYARD_REPORT""#;
    let (class, message) = failed_as(yard.run(Kind::Process, shell(line)).await);
    assert_eq!(class, Class::Permanent);
    assert!(message.contains("1048576"), "{message}");
}

#[tokio::test]
async fn a_lease_names_the_process_while_it_runs() {
    let yard = Yard::new();
    let lease_file = yard.executors.places().running_file(TASK);
    let run = yard.start(yard.job(Kind::Process, shell("echo leader=$$; sleep 1000")));
    let leader = run.line("leader=").await;
    let lease: Value = serde_json::from_slice(&std::fs::read(&lease_file).expect("a lease")).expect("JSON");
    assert_eq!(lease["task_id"], TASK_TEXT);
    assert_eq!((&lease["pid"], lease["metadata"]["command_pid"].to_string()), (&json!(std::process::id()), leader));
    assert_eq!((&lease["agent"], &lease["attempt"]), (&json!("ada"), &json!(1)));
    assert!(lease["process_start"].as_u64().expect("a number") > 0);
    assert_eq!(run.stop_and_end().await, Outcome::Stopped);
    assert!(!lease_file.exists());
}

#[tokio::test]
async fn many_at_once_all_end() {
    let yard = Yard::new();
    let runs: Vec<_> = (0..50u32)
        .map(|n| {
            let mut job = yard.job(Kind::Process, shell("echo $RUNYARD_ATTEMPT; sleep 0.1 & exit 0"));
            job.task = TASK + u128::from(n);
            job.attempt = n;
            yard.start(job)
        })
        .collect();
    for (n, run) in runs.into_iter().enumerate() {
        assert_eq!(completed(run.end().await)["stdout"], format!("{n}\n"));
    }
}
