//! One PostgreSQL data directory: where the binaries are, who runs them, and the process that watches over the server.
//!
//! The server is the child of a small shell that reads from a pipe of ours. When the pipe closes, because the test is
//! done, panicked or was killed with SIGKILL, the shell ends the server and removes the directory. Should the shell
//! itself be killed, the kernel kills the server.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Ends the server when its input ends; `keep` leaves the data where it is.
const WATCH: &str = r#"
dir=$1; shift
"$@" >>"$dir/log" 2>&1 &
pid=$!
echo $pid
read -r word
kill -QUIT $pid 2>/dev/null
wait $pid
[ "$word" = keep ] || rm -rf "$dir"
"#;

const START_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

pub struct Cluster {
    pub dir: PathBuf,
    owner: Option<Owner>,
    server: Option<Server>,
}

struct Server {
    shell: Child,
    pid: Pid,
}

/// Whom the server runs as: it refuses to be root.
#[derive(Clone, Copy)]
struct Owner {
    uid: u32,
    gid: u32,
}

impl Cluster {
    /// An initialised data directory below this one, with its superuser reachable through the socket in it.
    pub fn new(below: &Path) -> Cluster {
        let cluster = Cluster::empty(below);
        let mut initdb = cluster.command(&binary("initdb"));
        initdb.args(["--username=postgres", "--auth-local=trust", "--auth-host=scram-sha-256", "--encoding=UTF8"]);
        initdb.args(["--locale=C", "--no-sync", "--pgdata"]).arg(cluster.data());
        succeed(initdb);
        cluster
    }

    /// A copy of one whose server runs at this port, and which follows it once it is started.
    pub fn following(other: &Cluster, port: u16) -> Cluster {
        let cluster = Cluster::empty(&std::env::temp_dir());
        let mut copy = cluster.command(&binary("pg_basebackup"));
        copy.args(["--username=postgres", "--write-recovery-conf", "--checkpoint=fast", "--no-sync"]);
        copy.arg("--host").arg(&other.dir).arg(format!("--port={port}")).arg("--pgdata").arg(cluster.data());
        succeed(copy);
        cluster
    }

    fn empty(below: &Path) -> Cluster {
        let dir =
            tempfile::Builder::new().prefix("runyard-pg-").tempdir_in(below).expect("a temporary directory").keep();
        let owner = rustix::process::getuid().is_root().then(unprivileged);
        let cluster = Cluster { dir, owner, server: None };
        cluster.own(&cluster.dir);
        cluster
    }

    /// It may have ended by itself.
    pub fn is_running(&self) -> bool {
        self.server.as_ref().is_some_and(Server::is_alive)
    }

    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Gives a file or directory to whom the server runs as.
    pub fn own(&self, path: &Path) {
        if let Some(Owner { uid, gid }) = self.owner {
            std::os::unix::fs::chown(path, Some(uid), Some(gid)).expect("root may give files away");
        }
    }

    /// Starts the server and waits until it takes connections.
    pub fn start(&mut self, settings: &[(String, String)]) {
        assert!(self.server.is_none(), "the server is running");
        let begin = Instant::now();
        while !self.try_start(settings) {
            assert!(begin.elapsed() < START_MAX, "postgres does not start: {}", self.log());
        }
    }

    /// Orderly: open transactions are rolled back, connections closed.
    pub fn stop(&mut self) {
        self.end(Signal::INT);
    }

    /// As a crash does.
    pub fn kill(&mut self) {
        self.end(Signal::KILL);
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// False when the server ended at once: after a crash its last children may still hold the memory it needs.
    fn try_start(&mut self, settings: &[(String, String)]) -> bool {
        let postgres = binary("postgres");
        let mut server = self.command(&postgres);
        server.arg("-D").arg(self.data()).arg("-k").arg(&self.dir);
        for (name, value) in settings {
            server.arg("-c").arg(format!("{name}={value}"));
        }
        let mut shell = Command::new("sh");
        shell.args(["-c", WATCH, "watch"]).arg(&self.dir).arg(server.get_program()).args(server.get_args());
        // A group of its own: Ctrl-C is for the test, and the end of the test is enough for the shell.
        shell.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).current_dir("/");
        let mut shell = shell.spawn().expect("sh starts");
        let mut line = String::new();
        BufReader::new(shell.stdout.take().expect("it is piped"))
            .read_line(&mut line)
            .expect("the shell names the pid");
        let pid = line.trim().parse().ok().and_then(Pid::from_raw).expect("the shell names the pid");
        let server = Server { shell, pid };
        if self.is_ready(&server) {
            self.server = Some(server);
            return true;
        }
        server.finish(Fate::Keep);
        false
    }

    /// As `pg_ctl` sees it: the server writes into its pid file how far it is.
    fn is_ready(&self, server: &Server) -> bool {
        let begin = Instant::now();
        let file = self.data().join("postmaster.pid");
        while server.is_alive() && begin.elapsed() < START_MAX {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            let mut lines = text.lines();
            let is_its = lines.next().and_then(|line| line.parse().ok()) == Some(server.pid.as_raw_nonzero().get());
            if is_its && lines.nth(6).is_some_and(|line| line.starts_with("ready")) {
                return true;
            }
            std::thread::sleep(POLL);
        }
        false
    }

    fn end(&mut self, signal: Signal) {
        let server = self.server.take().expect("the server is running");
        let _ = kill_process(server.pid, signal);
        let begin = Instant::now();
        while server.is_alive() {
            assert!(begin.elapsed() < START_MAX, "postgres does not end: {}", self.log());
            std::thread::sleep(POLL);
        }
        server.finish(Fate::Keep);
    }

    /// A command run as the owner, which dies with whoever starts it.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.arg("--pdeathsig=KILL");
        if let Some(Owner { uid, gid }) = self.owner {
            command.arg(format!("--reuid={uid}")).arg(format!("--regid={gid}")).arg("--clear-groups");
        }
        command.arg("--").arg(program).current_dir("/");
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        match self.server.take() {
            Some(server) => server.finish(Fate::Remove),
            None => drop(std::fs::remove_dir_all(&self.dir)),
        }
    }
}

#[derive(PartialEq)]
enum Fate {
    Keep,
    Remove,
}

impl Server {
    /// Its parent is the shell, which reaps it only when it is told to: until then a dead one is a zombie.
    fn is_alive(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid.as_raw_nonzero())).unwrap_or_default();
        let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start().starts_with('Z'));
        state == Some(false)
    }

    fn finish(mut self, fate: Fate) {
        let mut input = self.shell.stdin.take().expect("it is piped");
        if fate == Fate::Keep {
            let _ = input.write_all(b"keep\n");
        }
        drop(input);
        let _ = self.shell.wait();
    }
}

fn succeed(mut command: Command) {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
}

/// On the path, or where Debian keeps the versions of a server that may stand beside each other: the latest of them.
pub fn binary(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
        .unwrap_or_default();
    versions.sort_by_key(|dir| dir.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()));
    let versions = versions.into_iter().rev().map(|dir| dir.join("bin"));
    std::env::split_paths(&path).chain(versions).map(|dir| dir.join(name)).find(|file| file.is_file()).unwrap_or_else(
        || panic!("there is no {name} on the path nor in /usr/lib/postgresql/*/bin: install Debian's postgresql"),
    )
}

/// The system's own user for it, or nobody.
fn unprivileged() -> Owner {
    let users = std::fs::read_to_string("/etc/passwd").expect("a list of users");
    let named = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some(Owner { uid: fields.next()?.parse().ok()?, gid: fields.next()?.parse().ok()? })
    };
    named("postgres").or_else(|| named("nobody")).expect("a user that is not root")
}
