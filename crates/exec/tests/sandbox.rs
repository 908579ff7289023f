//! Real bubblewrap. Where it is missing these tests fail: `cargo xtask` installs it.

mod support;

use std::time::Duration;

use runyard_exec::{Class, Kind, Outcome};
use serde_json::{Value, json};
use support::{TASK, Yard, completed, failed_as, is_alive};

fn inside(line: &str) -> Value {
    json!({"shell": line, "sandbox": "bubblewrap"})
}

async fn stdout(yard: &Yard, payload: Value) -> String {
    completed(yard.run(Kind::Process, payload).await)["stdout"].as_str().expect("a text").to_owned()
}

#[tokio::test]
async fn only_the_working_directory_is_writable() {
    let yard = Yard::new();
    let line = "touch here && echo here
        for dir in / /etc /usr /home \"$RUNYARD_WORKDIR/..\" \"$RUNYARD_WORKDIR/../..\"; do
            touch \"$dir/x\" 2>/dev/null && echo \"wrote to $dir\"
        done; echo end";
    assert_eq!(stdout(&yard, inside(line)).await, "here\nend\n");
}

#[tokio::test]
async fn tmp_is_its_own() {
    let yard = Yard::new();
    let mark = tempfile::NamedTempFile::new().expect("a file");
    let line =
        format!("test -e {} && echo seen; touch /tmp/mine && ls /tmp | grep mine; echo $TMPDIR", mark.path().display());
    assert_eq!(stdout(&yard, inside(&line)).await, "mine\n/tmp\n");
    assert!(!std::path::Path::new("/tmp/mine").exists());
}

#[tokio::test]
async fn the_data_directory_is_hidden() {
    let yard = Yard::new();
    std::fs::write(yard.dir.path().join("admin.key"), "secret").expect("a file");
    let data_dir = yard.executors.places().data_dir().to_owned();
    let line = format!("ls -A {0}; ls -A {0}/work", data_dir.display());
    let task = runyard_exec::job::task_text(TASK);
    assert_eq!(stdout(&yard, inside(&line)).await, format!("work\n{task}\n"));
}

#[tokio::test]
async fn no_capability_is_left_and_none_can_be_regained() {
    let yard = Yard::new();
    let line = "grep -E '^(CapPrm|CapEff|CapAmb|NoNewPrivs)' /proc/self/status | tr -d '[:space:]'";
    let expected = "CapPrm:0000000000000000CapEff:0000000000000000CapAmb:0000000000000000NoNewPrivs:1";
    assert_eq!(stdout(&yard, inside(line)).await, expected);
}

#[tokio::test]
async fn the_network_is_there_only_when_it_is_asked_for() {
    let yard = Yard::new();
    let line = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | sort | tr '\\n' ' '";
    assert_eq!(stdout(&yard, inside(line)).await, "lo ");
    let mut asked = inside(line);
    asked["network"] = json!(true);
    let outside = stdout(&yard, json!({"shell": line})).await;
    assert_eq!(stdout(&yard, asked).await, outside);
}

#[tokio::test]
async fn its_processes_see_only_each_other() {
    let yard = Yard::new();
    let n = stdout(&yard, inside("ls /proc | grep -c '^[0-9]'")).await;
    assert!(n.trim().parse::<u32>().expect("a number") < 8, "{n}");
    let ids = stdout(&yard, inside("cut -d' ' -f1,6 /proc/self/stat; echo $$")).await;
    assert!(ids.lines().last().expect("a line").parse::<u32>().expect("a number") < 8, "{ids}");
}

#[tokio::test]
async fn another_cwd_is_there_and_read_only() {
    let yard = Yard::new();
    let elsewhere = tempfile::tempdir().expect("a directory");
    std::fs::write(elsewhere.path().join("file"), "read me").expect("a file");
    let mut payload =
        inside("cat file; touch new 2>/dev/null || echo , read-only; touch \"$RUNYARD_WORKDIR/x\" && echo written");
    payload["cwd"] = json!(elsewhere.path());
    assert_eq!(stdout(&yard, payload).await, "read me, read-only\nwritten\n");
    assert!(!elsewhere.path().join("new").exists());
}

#[tokio::test]
async fn environment_report_and_input_work_as_outside() {
    let yard = Yard::new();
    let mut payload = inside(r#"read -r line; echo "{\"result\":\"$line $MINE\"}" >> "$RUNYARD_REPORT"; exit 0"#);
    payload["stdin"] = json!("hello\n");
    payload["env"] = json!({"MINE": "1"});
    assert_eq!(completed(yard.run(Kind::Process, payload).await), json!("hello 1"));
}

#[tokio::test]
async fn exit_codes_come_through_and_a_missing_program_is_named() {
    let yard = Yard::new();
    let (class, message) = failed_as(yard.run(Kind::Process, inside("echo why >&2; exit 7")).await);
    assert_eq!((class, message.as_str()), (Class::Task, "exit code 7: why"));
    let missing = json!({"argv": ["no-such-program"], "sandbox": "bubblewrap"});
    let (class, message) = failed_as(yard.run(Kind::Process, missing).await);
    assert_eq!(class, Class::Permanent);
    assert!(message.contains("no-such-program"), "{message}");
}

/// The command gets its grace though it is in a session of its own, behind the process that holds the sandbox.
#[tokio::test]
async fn a_stop_asks_the_command_and_then_nothing_is_left() {
    let yard = Yard::new();
    let line = "trap 'sleep 0.2; echo cleaned up; exit 0' TERM; echo ready=; while :; do sleep 0.02; done";
    let run = yard.start(yard.job(Kind::Process, inside(line)));
    run.line("ready=").await;
    assert_eq!(run.stop_and_end().await, Outcome::Stopped);
    assert!(yard.log_texts().contains(&"cleaned up".to_owned()), "{:?}", yard.log_texts());
}

#[tokio::test]
async fn who_ignores_the_stop_dies_with_the_sandbox() {
    let yard = Yard::new();
    let line = "trap '' TERM; setsid sleep 7511 & echo ready=; while :; do sleep 0.02; done";
    let mut job = yard.job(Kind::Process, inside(line));
    job.grace = Duration::from_millis(50);
    let run = yard.start(job);
    run.line("ready=").await;
    let sleeper = pid_of("sleep\x007511\0");
    assert_eq!(run.stop_and_end().await, Outcome::Stopped);
    assert!(sleeper.is_none_or(|pid| !is_alive(&pid)));
}

fn pid_of(command_line: &str) -> Option<String> {
    let pids = std::fs::read_dir("/proc").expect("a process table").flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().into_string().ok());
    pids.find(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == command_line.as_bytes()))
}
