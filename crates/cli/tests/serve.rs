//! `runyard serve` as its supervisor sees it: what it logs, and how it ends.

#[allow(dead_code)]
mod yard;

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::Command as Cmd;
use tempfile::TempDir;

/// A server whose log is read.
struct Logged {
    child: Child,
    log: Lines<BufReader<ChildStderr>>,
    /// Open as long as it runs: it must not fail to speak.
    _said: BufReader<ChildStdout>,
    home: TempDir,
}

impl Logged {
    fn start(config: &str) -> Logged {
        let home = tempfile::tempdir().expect("a directory");
        let file = home.path().join("runyard.toml");
        std::fs::write(&file, config).expect("written");
        let mut child = Command::new(env!("CARGO_BIN_EXE_runyard"))
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(home.path().join("data"))
            .arg("--config")
            .arg(&file)
            .env_remove("NO_COLOR")
            .env("RUNYARD_LOG__LEVEL", "info")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let log = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        // It says so when the address is written, and not before.
        let mut said = BufReader::new(child.stdout.take().expect("it is piped"));
        said.read_line(&mut String::new()).expect("it says where it listens");
        let mut server = Logged { child, log, home, _said: said };
        server.log_until("worker.joined");
        server
    }

    /// The lines up to and with the first that contains `what`.
    fn log_until(&mut self, what: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for line in self.log.by_ref().map_while(Result::ok) {
            lines.push(line);
            if lines.last().is_some_and(|line| line.contains(what)) {
                return lines;
            }
        }
        panic!("the log ended without {what:?}: {lines:#?}");
    }

    fn submit(&self, arguments: &[&str]) {
        let mut submit = Cmd::new(env!("CARGO_BIN_EXE_runyard"));
        submit.env("RUNYARD_DATA", self.home.path().join("data")).env_remove("RUNYARD_URL").arg("submit");
        submit.args(arguments).timeout(Duration::from_secs(60)).assert().success();
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        yard::stop_supervised(&self.home.path().join("data"));
    }
}

#[test]
fn it_is_gone_as_soon_as_it_says_that_it_has_stopped() {
    let mut server = Logged::start("[server]\ndrainMs = 100\n[worker]\ngraceMs = 100\n");
    server.submit(&["--shell", "trap '' TERM; sleep 600"]);
    server.submit(&["--kind", "noop", "--payload", r#"{"sleepMs": 600000}"#]);
    server.log_until("started");
    server.log_until("started");
    yard::signal(server.child.id(), "TERM");
    server.log_until("stopped");
    let stopped = Instant::now();
    assert!(server.child.wait().expect("it ends").success());
    // A supervisor that restarts it wants the data directory free; a loaded machine may take its time.
    assert!(stopped.elapsed() < Duration::from_millis(1500), "it stayed for {:?}", stopped.elapsed());
}

#[test]
fn its_log_has_no_colours_in_a_file() {
    let mut server = Logged::start("");
    server.submit(&["--kind", "noop", "--wait"]);
    let lines = server.log_until("completed");
    assert!(!lines.iter().any(|line| line.contains('\x1b')), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.ends_with(' ')), "{lines:#?}");
}
