//! After a crash of the server: nothing of the old runs is alive, and nobody else is harmed.

mod support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use runyard_exec::process::reap_leftovers;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use support::is_alive;

/// A process as a crashed server leaves it behind: in its own group, not reaped by anybody here.
struct Orphan {
    leader: Child,
    /// What it printed as `name=pid`.
    pids: BTreeMap<String, String>,
}

impl Orphan {
    /// `line` prints `name=pid` lines and at last `ready`.
    fn spawn(line: &str, work_dir: Option<&Path>) -> Orphan {
        let mut command = Command::new("sh");
        command.args(["-c", line]).process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
        if let Some(work_dir) = work_dir {
            command.env("RUNYARD_WORKDIR", work_dir);
        }
        let mut leader = command.spawn().expect("sh can be started");
        let output = BufReader::new(leader.stdout.take().expect("a pipe"));
        let lines = output.lines().map(|line| line.expect("a line"));
        let pairs = lines.take_while(|line| line != "ready");
        let pids = pairs.filter_map(|line| line.split_once('=').map(|(name, pid)| (name.to_owned(), pid.to_owned())));
        Orphan { pids: pids.collect(), leader }
    }

    fn is_alive(&self, name: &str) -> bool {
        is_alive(&self.pids[name])
    }

    /// A lease file with this one as the command of somebody who is dead.
    fn lease(&self, data_dir: &Path, change: impl FnOnce(&mut Value)) {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.leader.id())).unwrap_or_default();
        let start = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19)?.parse::<u64>().ok());
        let line_of = |path| std::fs::read_to_string(path).expect("a kernel file").trim().to_owned();
        let mut lease = json!({
            "task_id": "x", "agent": "ada", "attempt": 1, "pid": 1 << 30, "process_start": 1, "recipe": "sh",
            "boot_id": line_of("/proc/sys/kernel/random/boot_id"), "host": line_of("/proc/sys/kernel/hostname"),
            "started_at": "2026-11-15T21:00:00.000Z", "heartbeat": "2026-11-15T21:00:00.000Z",
            "metadata": {"command_pid": self.leader.id(), "command_start": start.unwrap_or_default()},
        });
        change(&mut lease);
        let folder = data_dir.join("running");
        std::fs::create_dir_all(&folder).expect("a directory");
        std::fs::write(folder.join(format!("task_{}.json", self.leader.id())), lease.to_string()).expect("a lease");
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        // The whole group: a child that outlives its test would hold the test's own output open.
        let _ = kill_process_group(Pid::from_child(&self.leader), Signal::KILL);
        let _ = self.leader.wait();
    }
}

#[test]
fn nothing_to_do_is_no_error() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    assert_eq!(reap_leftovers(dir.path()).expect("reaped"), 0);
}

#[test]
fn a_group_whose_leader_is_dead_and_a_daemon_that_left_it_are_killed() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let work_dir = dir.path().canonicalize().expect("a path").join("work/some-task");
    std::fs::create_dir_all(&work_dir).expect("a directory");
    // The member stays in the group, the daemon is in a session of its own, and the leader is gone.
    let line =
        "sleep 1000 >/dev/null & echo member=$!; setsid sh -c 'sleep 1000 & echo daemon=$!; echo ready' & exit 0";
    let mut orphan = Orphan::spawn(line, Some(&work_dir));
    orphan.lease(dir.path(), |_| {});
    orphan.leader.wait().expect("the leader is gone");
    assert!(orphan.is_alive("member") && orphan.is_alive("daemon"));
    assert!(reap_leftovers(dir.path()).expect("reaped") >= 2);
    assert!(!orphan.is_alive("member") && !orphan.is_alive("daemon"));
    assert!(!work_dir.exists());
    assert_eq!(std::fs::read_dir(dir.path().join("running")).expect("a directory").count(), 0);
}

#[test]
fn a_live_leader_is_killed_by_its_lease_alone() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut orphan = Orphan::spawn("sleep 1000 >/dev/null & echo member=$!; echo ready; sleep 1000", None);
    orphan.lease(dir.path(), |_| {});
    reap_leftovers(dir.path()).expect("reaped");
    orphan.leader.wait().expect("the leader is dead");
    while orphan.is_alive("member") {
        std::thread::yield_now();
    }
}

#[test]
fn a_lease_that_does_not_fit_the_process_harms_nobody() {
    let changes: [fn(&mut Value); 3] = [
        |lease| lease["metadata"]["command_start"] = json!(1),
        |lease| lease["boot_id"] = json!("another boot"),
        |lease| lease["host"] = json!("another host"),
    ];
    for change in changes {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let orphan = Orphan::spawn("echo leader=$$; echo ready; sleep 1000", None);
        orphan.lease(dir.path(), change);
        assert_eq!(reap_leftovers(dir.path()).expect("reaped"), 0);
        assert!(orphan.is_alive("leader"));
    }
}

#[test]
fn a_supervisor_that_nobody_knows_of_is_killed() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut orphan = Orphan::spawn("echo ready; sleep 1000", None);
    orphan.lease(dir.path(), |lease| {
        lease["pid"] = lease["metadata"]["command_pid"].take();
        lease["process_start"] = lease["metadata"]["command_start"].take();
    });
    reap_leftovers(dir.path()).expect("reaped");
    orphan.leader.wait().expect("it is dead");
}

#[test]
fn what_does_not_belong_among_the_leases_stops_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let running = dir.path().join("running");
    std::fs::create_dir_all(running.join("dir.json/deep")).expect("a directory");
    std::fs::write(running.join("task_1.json"), "{").expect("a file");
    std::os::unix::fs::symlink("loop.json", running.join("loop.json")).expect("a link");
    rustix::fs::mkfifoat(rustix::fs::CWD, running.join("pipe.json"), rustix::fs::Mode::RWXU).expect("a pipe");
    let mut orphan = Orphan::spawn("echo ready; sleep 1000", None);
    orphan.lease(dir.path(), |_| {});
    assert_eq!(reap_leftovers(dir.path()).expect("reaped"), 0);
    orphan.leader.wait().expect("its lease was read all the same");
    let entries = std::fs::read_dir(&running).expect("a directory");
    let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    assert_eq!(names, ["dir.json", "loop.json", "pipe.json", "task_1.json.bad-1"]);
}

#[test]
fn a_task_of_another_data_directory_is_left_alone() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let other = tempfile::tempdir().expect("a temporary directory");
    let work_dir = other.path().canonicalize().expect("a path").join("work/some-task");
    let orphan = Orphan::spawn("echo leader=$$; echo ready; sleep 1000", Some(&work_dir));
    assert_eq!(reap_leftovers(dir.path()).expect("reaped"), 0);
    assert!(orphan.is_alive("leader"));
}
