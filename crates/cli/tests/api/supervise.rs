//! Supervisors and lease files: what a person sees with `cat` and `ps`, and what becomes of a task whose supervisor dies.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::scene::{SOON, Scene, n, text};
use crate::support::{is_alive, runs, wait_until};

impl Scene {
    fn lease_file(&self, id: &str) -> PathBuf {
        self.data().join(format!("running/task_{id}.json"))
    }

    /// The lease of a task, once its command runs.
    fn lease(&self, id: &str) -> Value {
        let mut lease = Value::Null;
        wait_until(SOON, "the task has a lease", || {
            let bytes = std::fs::read(self.lease_file(id)).unwrap_or_default();
            lease = serde_json::from_slice(&bytes).unwrap_or_default();
            lease["metadata"]["command_pid"].is_u64()
        });
        lease
    }

    /// Waits for the second attempt, and until the server has stored that it began.
    fn runs_again(&self, id: &str) {
        wait_until(SOON, "it runs again", || n(&self.lease(id)["attempt"]) == 2);
        wait_until(SOON, "its start is stored", || n(&self.task(id)["attempts"]) == 2);
    }

    fn sleeper(&self) -> String {
        self.submit(json!({"kind": "process", "agent": "ada", "payload": {"shell": "exec sleep 1000"}}))
    }

    fn set_aside(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.data().join("running")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.contains(".bad-")).collect()
    }
}

/// Open files of a supervisor that are not its own.
fn foreign_files(pid: u64) -> Vec<String> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let targets = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    let targets = targets.map(|target| target.to_string_lossy().into_owned());
    let own = ["/runs/", "/logs/", "/dev/null", "socket:", "pipe:", "anon_inode:"];
    targets.filter(|target| !own.iter().any(|part| target.contains(part))).collect()
}

fn signal(name: &str, pid: u64) {
    let status = Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

/// Design 8: a lease file that a person can read, and that is true.
#[test]
fn a_lease_file_says_who_runs_what() {
    let scene = Scene::with("[worker]\nheartbeatMs = 100\n");
    let id = scene.sleeper();
    let lease = scene.lease(&id);
    let names: Vec<&str> = lease.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
        "agent",
        "attempt",
        "boot_id",
        "heartbeat",
        "host",
        "metadata",
        "pid",
        "process_start",
        "recipe",
        "started_at",
        "state",
        "task_id",
    ];
    assert_eq!(names, expected);
    assert_eq!((&lease["task_id"], &lease["agent"], n(&lease["attempt"])), (&json!(id), &json!("ada"), 1));
    assert_eq!((&lease["recipe"], &lease["state"]), (&json!("exec sleep 1000"), &json!("running")));
    let mode = std::fs::metadata(scene.lease_file(&id)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (supervisor, command) = (n(&lease["pid"]), n(&lease["metadata"]["command_pid"]));
    let line = |pid| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap().replace('\0', " ");
    assert!(line(supervisor).starts_with("runyard supervise --run "), "{}", line(supervisor));
    wait_until(SOON, "the shell has become the command", || line(command) == "sleep 1000 ");
    let beat = text(&lease["heartbeat"]);
    wait_until(SOON, "its heart beats", || text(&scene.lease(&id)["heartbeat"]) > beat);
    scene.cancel(&id);
    scene.ends_as("cancelled", &id);
    wait_until(SOON, "the lease is gone", || !scene.lease_file(&id).exists());
    assert!(!is_alive(supervisor) && !is_alive(command));
}

/// The supervisor has a session of its own and nothing of the server's: no terminal, no open file, no variable.
#[test]
fn a_supervisor_has_nothing_of_its_server() {
    let scene = Scene::new();
    let id = scene.sleeper();
    let pid = n(&scene.lease(&id)["pid"]);
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let session: u64 = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(3).unwrap().parse().unwrap();
    assert_eq!(session, pid);
    // What it inherited stays open; what it has open for a moment, to look at something, does not.
    wait_until(SOON, "it has no file of its server open", || foreign_files(pid).is_empty());
    let environ = std::fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    let is_known = |name: &str| ["PATH", "HOME", "LANG", "TZ", "USER", "TMPDIR"].contains(&name);
    let names = environ.split('\0').filter_map(|variable| variable.split_once('=')).map(|(name, _)| name);
    assert_eq!(names.filter(|name| !is_known(name)).collect::<Vec<_>>(), [""; 0]);
}

/// tinyscheduler 22: a supervisor that dies takes its command with it; the task is lost, says why, and runs again, when
/// nothing of the old attempt is alive.
#[test]
fn a_task_whose_supervisor_is_killed_is_lost_and_runs_again() {
    let scene = Scene::new();
    let marks = scene.home().join("marks");
    // What leaves the session is what only the sweep can find. A zombie is dead: it only waits for init to take note of it.
    let shell = format!(
        "for old in $(cat {0} 2>/dev/null); do s=$(cut -d' ' -f3 /proc/$old/stat 2>/dev/null); \
         case $s in ''|Z|X) ;; *) echo $old is $s ;; esac; done; \
         setsid sleep 1000 & echo $! >> {0}; echo $$ >> {0}; exec sleep 1000",
        marks.display()
    );
    let id = scene.submit(json!({"kind": "process", "payload": {"shell": shell}}));
    let first = scene.lease(&id);
    signal("KILL", n(&first["pid"]));
    scene.runs_again(&id);
    assert!(!is_alive(n(&first["metadata"]["command_pid"])));
    assert_eq!(n(&scene.task(&id)["retriesLeft"]), 3, "a loss uses no retry");
    assert!(scene.steps(&id).contains(&"lost".to_owned()), "{:?}", scene.steps(&id));
    let log = scene.request("GET", &format!("/v1/tasks/{id}/logs?attempt=2"), "").body;
    assert_eq!(log, "", "nothing of the first attempt was alive when the second began");
    scene.cancel(&id);
    scene.ends_as("cancelled", &id);
}

/// tinyscheduler 30: three times, and it is parked as failed.
#[test]
fn a_task_that_takes_its_supervisor_down_three_times_is_failed() {
    let scene = Scene::new();
    // Its parent is the supervisor.
    let id = scene.submit(json!({"kind": "process", "payload": {"shell": "kill -9 $PPID; sleep 1000"}}));
    let task = scene.ends_as("failed", &id);
    assert_eq!((n(&task["attempts"]), &task["error"]["class"]), (3, &json!("lost")), "{task:#}");
    let message = text(&task["error"]["message"]);
    assert!(message.contains("supervisor") && message.contains("killed or crashed"), "{message}");
    assert_eq!(task["reason"], "lost 3 times");
    wait_until(SOON, "the directories of its runs are removed", || runs(&scene.data()).is_empty());
}

/// tinyscheduler 24: a supervisor that hangs is killed with its tree, and its task runs again.
#[test]
fn a_task_whose_supervisor_hangs_is_stopped_and_runs_again() {
    let scene = Scene::with("[worker]\nheartbeatMs = 100\n");
    let id = scene.sleeper();
    let lease = scene.lease(&id);
    signal("STOP", n(&lease["pid"]));
    scene.runs_again(&id);
    assert!(!is_alive(n(&lease["pid"])) && !is_alive(n(&lease["metadata"]["command_pid"])));
    assert!(text(&scene.task(&id)["error"]["message"]).contains("no sign of life"));
}

/// As on a full disk: the heartbeat stands still, and the supervisor answers.
#[test]
fn a_supervisor_that_cannot_write_its_heartbeat_and_answers_goes_on() {
    let scene = Scene::with("[worker]\nheartbeatMs = 50\n");
    let id = scene.submit(json!({"kind": "process", "payload": {"shell": "sleep 2"}}));
    let lease = scene.lease(&id);
    // Where the next heartbeat is drafted.
    let draft = scene.lease_file(&id).with_extension(format!("json.{}.tmp", n(&lease["pid"])));
    wait_until(SOON, "it is between two heartbeats", || std::fs::create_dir(&draft).is_ok());
    let stands_at = scene.lease(&id)["heartbeat"].clone();
    let task = scene.ends_as("completed", &id);
    let still_ms = n(&task["executionMs"]);
    assert!(still_ms > 10 * 50, "its heartbeat was missed more than three times: {still_ms} ms since {stands_at}");
    assert_eq!(n(&task["attempts"]), 1, "{task:#}");
    std::fs::remove_dir(draft).unwrap();
}

/// Whether its command had been started, nobody can tell; so nothing of it may be left before it runs again.
#[test]
fn a_run_whose_supervisor_does_not_say_who_it_is_is_killed_as_a_whole() {
    let mut scene = Scene::with("[worker]\nheartbeatMs = 100\n");
    let shell = "setsid sleep 1000 & echo $!; exec sleep 1000";
    let id = scene.submit(json!({"kind": "process", "payload": {"shell": shell}}));
    let lease = scene.lease(&id);
    let mut escaped = None;
    wait_until(SOON, "the escaped one has said its pid", || {
        let log = std::fs::read_to_string(text(&lease["metadata"]["log"])).unwrap_or_default();
        escaped = log.split_whitespace().last().and_then(|pid| pid.parse().ok());
        escaped.is_some()
    });
    scene.server_mut().kill9();
    std::fs::write(scene.data().join(format!("runs/{id}-1/supervisor.json")), "").unwrap();
    scene.start_again();
    scene.runs_again(&id);
    for pid in [n(&lease["pid"]), n(&lease["metadata"]["command_pid"]), escaped.unwrap()] {
        assert!(!is_alive(pid), "{pid} of {lease:#}");
    }
    let task = scene.task(&id);
    assert!(text(&task["error"]["message"]).contains("did not say who it is"), "{task:#}");
}

/// Hundreds of runs need more open files than most systems give at first. Tasks get what they would have had.
#[test]
fn a_server_may_open_all_the_files_it_can_have_and_its_tasks_as_many_as_before() {
    let data = tempfile::tempdir().unwrap();
    let line = "ulimit -Sn 300; exec \"$0\" serve --no-auth --listen 127.0.0.1:0 --data \"$1\"";
    let program = env!("CARGO_BIN_EXE_runyard");
    let mut server =
        Command::new("sh").args(["-c", line, program]).arg(data.path()).stdout(Stdio::null()).spawn().unwrap();
    wait_until(SOON, "the server is there", || data.path().join("server.json").exists());
    let submit = ["submit", "--wait", "--shell", "ulimit -Sn", "--data"];
    let submitted = Command::new(program).args(submit).arg(data.path()).output().unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.id())).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let open_files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let words: Vec<&str> = open_files.split_whitespace().collect();
    assert!(words[3] == words[4] && words[3] != "300", "{open_files}");
    assert!(submitted.stdout.split(|byte| *byte == b'\n').any(|line| line == b"300"), "{submitted:?}");
}

/// A supervisor that dies while no server is there to see it.
#[test]
fn a_supervisor_that_died_without_a_server_is_found_and_its_task_runs_again() {
    let mut scene = Scene::new();
    let id = scene.sleeper();
    let lease = scene.lease(&id);
    scene.server_mut().kill9();
    signal("KILL", n(&lease["pid"]));
    wait_until(SOON, "the command dies with it", || !is_alive(n(&lease["metadata"]["command_pid"])));
    scene.start_again();
    scene.runs_again(&id);
    let task = scene.task(&id);
    assert!(text(&task["error"]["message"]).contains("while no server ran"), "{task:#}");
}

/// tinyscheduler A3: an unreadable lease file is set aside and told of. Whose supervisor lives goes on, whose supervisor
/// is dead runs again.
#[test]
fn an_unreadable_lease_file_is_set_aside_and_its_task_recovered() {
    let mut scene = Scene::with("[worker]\nheartbeatMs = 200\n");
    let (live, dead) = (scene.sleeper(), scene.sleeper());
    let (live_lease, dead_lease) = (scene.lease(&live), scene.lease(&dead));
    scene.server_mut().kill9();
    signal("KILL", n(&dead_lease["pid"]));
    // It must not beat in between.
    signal("STOP", n(&live_lease["pid"]));
    wait_until(SOON, "it has died", || !is_alive(n(&dead_lease["pid"])));
    std::fs::write(scene.lease_file(&live), "{").unwrap();
    std::fs::write(scene.lease_file(&dead), b"\xff\xfe").unwrap();
    scene.start_again();
    signal("CONT", n(&live_lease["pid"]));
    scene.runs_again(&dead);
    assert_eq!(scene.lease(&live)["pid"], live_lease["pid"], "the live one has written its lease anew");
    assert_eq!((scene.state(&live).as_str(), n(&scene.task(&live)["attempts"])), ("running", 1));
    let mut expected = [format!("task_{live}.json.bad-1"), format!("task_{dead}.json.bad-1")];
    expected.sort();
    let mut aside = scene.set_aside();
    aside.sort();
    assert_eq!(aside, expected);
    assert!(scene.server_log().contains("set aside"));
}

/// A second supervisor for the same run does nothing.
#[test]
fn a_run_has_one_supervisor() {
    let scene = Scene::new();
    let id = scene.sleeper();
    scene.lease(&id);
    let run = &runs(&scene.data())[0];
    let second = Command::new(env!("CARGO_BIN_EXE_runyard")).args(["supervise", "--run"]).arg(run).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let told = String::from_utf8(second.stderr).unwrap();
    assert!(told.contains("another process supervises"), "{told}");
    let line: Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
    assert_eq!(line["level"], "ERROR");
}
