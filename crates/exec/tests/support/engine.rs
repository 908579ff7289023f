//! A Docker engine of the test's own: Debian's `dockerd` in a temporary directory, with one small image. An engine that
//! runs on the machine already is never spoken to.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Busybox and its names, and nothing else.
pub const IMAGE: &str = "runyard-test/box";
const START_MAX: Duration = Duration::from_secs(60);
const APPLETS: [&str; 22] = [
    "sh", "cat", "dd", "echo", "env", "false", "grep", "head", "id", "ls", "mkdir", "mv", "pwd", "rm", "seq", "sleep",
    "stat", "tail", "touch", "true", "wc", "yes",
];
/// It holds the engine, and outlives the test by as long as it takes to end it: when the test is gone, however it went, its
/// standard input ends. A line is a request to start the engine anew, and `starts` counts how often it was.
const GUARD: &str = r#"
trap '' INT TERM HUP
cd "$1"
start() {
    dockerd --iptables=false --bridge=none --storage-driver=vfs --shutdown-timeout 1 --data-root "$1/data" \
        --exec-root "$1/exec" -p "$1/pid" -H "unix://$1/sock" >"$1/log" 2>&1 </dev/null &
    engine=$!
    echo start >>"$1/starts"
}
stop() { kill $engine; wait $engine; }
start "$1"
while read -r word; do stop; start "$1"; done
stop
grep -o " $1/[^ ]*" /proc/mounts | sort -r | while read -r mount; do umount -l "$mount"; done
cd /
rm -rf "$1"
"#;

pub struct Engine {
    dir: PathBuf,
    guard: Child,
}

impl Engine {
    /// It needs root, as an engine does, and Debian's packages `docker.io` and `busybox-static`.
    pub fn start() -> Engine {
        // The address of a socket is short, so this is not below what cargo gives.
        let dir = tempfile::Builder::new().prefix("rye-").tempdir_in("/tmp").expect("a directory").keep();
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD, "guard"]).arg(&dir).process_group(0);
        guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let engine = Engine { guard: guard.spawn().expect("sh can be started"), dir };
        engine.await_answer();
        engine.import_image();
        engine
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.join("sock")
    }

    /// Ends it, with what runs in it, and starts it again.
    pub fn restart(&mut self) {
        let starts = || fs::read(self.dir.join("starts")).expect("it was started");
        let before = starts();
        self.guard.stdin.as_mut().expect("it is piped").write_all(b"restart\n").expect("the guard reads");
        while starts() == before {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.await_answer();
    }

    /// What the client prints. It must go well.
    pub fn docker(&self, args: &[&str]) -> String {
        let output = self.client(args).output().expect("docker can be started");
        assert!(output.status.success(), "docker {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }

    /// The names of all containers there are, whatever became of them.
    pub fn containers(&self) -> Vec<String> {
        self.docker(&["ps", "--all", "--format", "{{.Names}}"]).lines().map(str::to_owned).collect()
    }

    fn client(&self, args: &[&str]) -> Command {
        let mut command = Command::new("docker");
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", &self.dir);
        command.arg("--host").arg(format!("unix://{}", self.socket().display())).args(args).stdin(Stdio::null());
        command
    }

    fn await_answer(&self) {
        let give_up_at = Instant::now() + START_MAX;
        while !self.client(&["version"]).output().is_ok_and(|output| output.status.success()) {
            let log = || fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            assert!(Instant::now() < give_up_at, "dockerd (package docker.io, as root) does not start:\n{}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn import_image(&self) {
        let (root, tar) = (self.dir.join("root"), self.dir.join("box.tar"));
        make_root(&root);
        let packed = Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&tar).arg(".").status();
        assert!(packed.is_ok_and(|status| status.success()), "tar");
        self.docker(&["import", tar.to_str().expect("text"), IMAGE]);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

fn make_root(root: &Path) {
    for folder in ["bin", "tmp", "run", "proc", "sys", "dev", "etc", "workspace"] {
        fs::create_dir_all(root.join(folder)).expect("a directory");
    }
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
    fs::copy(busybox.expect("package busybox-static"), root.join("bin/busybox")).expect("copied");
    APPLETS.iter().for_each(|name| symlink("busybox", root.join("bin").join(name)).expect("a link"));
}
