//! A real server in a directory of its own, gone with its test.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

#[path = "../support/supervised.rs"]
#[allow(dead_code)]
mod supervised;

pub use supervised::stop_supervised;

pub struct Yard {
    child: Child,
    home: TempDir,
}

impl Yard {
    pub fn start() -> Yard {
        Yard::start_with("")
    }

    /// Starts the server with this configuration file and waits until it says where it listens.
    pub fn start_with(config: &str) -> Yard {
        let home = tempfile::tempdir().expect("a directory");
        let file = home.path().join("runyard.toml");
        std::fs::write(&file, config).expect("written");
        let mut child = Command::new(env!("CARGO_BIN_EXE_runyard"))
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(home.path().join("data"))
            .arg("--config")
            .arg(&file)
            .env("RUNYARD_LOG__LEVEL", "off")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let stdout = child.stdout.take().expect("it is piped");
        let mut lines = BufReader::new(stdout).lines();
        let listens = lines.by_ref().map_while(Result::ok).any(|line| line.contains("http://"));
        assert!(listens, "the server ended before it listened");
        // Whatever else it prints must not block it.
        std::thread::spawn(move || lines.for_each(drop));
        Yard { child, home }
    }

    pub fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The client finds the address and the key in the data directory.
    pub fn runyard(&self, arguments: &[&str]) -> assert_cmd::Command {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_runyard"));
        command.env("RUNYARD_DATA", self.data()).env_remove("RUNYARD_URL").env_remove("RUNYARD_API_KEY");
        command.args(arguments).timeout(std::time::Duration::from_secs(60));
        command
    }

    /// Runs a command that must exit with `code`; gives its stdout without the last line's end.
    pub fn out(&self, code: i32, arguments: &[&str]) -> String {
        let assert = self.runyard(arguments).assert().code(code);
        String::from_utf8(assert.get_output().stdout.clone()).expect("UTF-8").trim_end().to_owned()
    }

    pub fn err(&self, code: i32, arguments: &[&str]) -> String {
        let assert = self.runyard(arguments).assert().code(code);
        String::from_utf8(assert.get_output().stderr.clone()).expect("UTF-8").trim_end().to_owned()
    }

    pub fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let text = self.out(0, &[arguments, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Asks the server to stop and gives its exit code.
    pub fn stop(mut self) -> Option<i32> {
        signal(self.pid(), "TERM");
        self.child.wait().expect("it ends").code()
    }
}

pub fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().expect("kill runs");
    assert!(status.success());
}

impl Drop for Yard {
    fn drop(&mut self) {
        // It may have ended already, which is what was wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
        stop_supervised(&self.data());
    }
}
