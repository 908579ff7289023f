//! The API against its own description: schemathesis reads `/openapi.json` of a running server and tries what it says,
//! with all its checks. How, and what it must know beside the description, is in `xtask/conform/`.
//!
//! The server runs in a sandbox that can write to its data directory only, and may start no program: what is submitted is
//! made up. Left out are the one answer that never ends, and the one request that makes every submit a 503.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::setup::run;
use crate::step::Outcome;

/// The same program each time finds the same things.
const SCHEMATHESIS: &str = "schemathesis==4.32.5";
const SEED: &str = "7";
/// Made-up requests for each operation, beside those at the edges of its schema. More in `cargo xtask soak`.
const EXAMPLES: &str = "5";
pub const EXAMPLES_ENV: &str = "RUNYARD_CONFORM_EXAMPLES";
const LEFT_OUT: [&str; 2] = ["GET /v1/events", "POST /v1/drain"];
/// A server that is not there by then is broken.
const START_MAX: Duration = Duration::from_secs(60);

pub fn conform() -> ExitCode {
    match try_conform() {
        Ok(outcome) => {
            // In the words of a test binary, so that the operations count as tests.
            let word = if outcome.n_failed == 0 { "ok" } else { "FAILED" };
            println!("test result: {word}. {} passed; {} failed;", outcome.n_passed, outcome.n_failed);
            if outcome.n_failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(problem) => {
            eprintln!("xtask: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn try_conform() -> Result<Outcome, String> {
    let target = PathBuf::from(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    let target = std::path::absolute(target).map_err(|error| error.to_string())?;
    let schemathesis = installed(&target.join("schemathesis"))?;
    run("cargo", &["build", "--quiet", "--package", "runyard"])?;
    let data = target.join(format!("conform-{}", std::process::id()));
    std::fs::create_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
    let server = Server::start(&target.join("debug/runyard"), &data);
    let outcome = server.and_then(|mut server| server.checked_by(&schemathesis));
    let _ = std::fs::remove_dir_all(&data);
    outcome
}

/// In a virtual environment of its own, by name.
fn installed(venv: &Path) -> Result<PathBuf, String> {
    let program = venv.join("bin/schemathesis");
    if !program.exists() {
        run("python3", &["-m", "venv", &venv.display().to_string()])?;
        run(&venv.join("bin/pip").display().to_string(), &["install", "--quiet", SCHEMATHESIS])?;
    }
    Ok(program)
}

struct Server {
    child: Child,
    url: String,
    key: String,
}

impl Server {
    fn start(program: &Path, data: &Path) -> Result<Server, String> {
        let child = Command::new("bwrap")
            .args(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--die-with-parent"])
            .arg("--bind")
            .args([data, data])
            .arg(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .env("RUNYARD_EXEC__COMMANDS", "[]")
            .env("RUNYARD_LOG__LEVEL", "error")
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("bwrap cannot be started: {error}"))?;
        let mut server = Server { child, url: String::new(), key: String::new() };
        let began = Instant::now();
        while server.url.is_empty() || server.key.is_empty() {
            if began.elapsed() > START_MAX || server.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Err("the server did not start".into());
            }
            std::thread::sleep(Duration::from_millis(50));
            let read = |name: &str| std::fs::read_to_string(data.join(name)).unwrap_or_default();
            server.key = read("admin.key").trim().to_owned();
            server.url = url_in(&read("server.json")).unwrap_or_default();
        }
        Ok(server)
    }

    fn checked_by(&mut self, schemathesis: &Path) -> Result<Outcome, String> {
        let examples = std::env::var(EXAMPLES_ENV).unwrap_or_else(|_| EXAMPLES.to_owned());
        let mut run = Command::new(schemathesis)
            .args(["--config-file", "schemathesis.toml", "run"])
            .arg(format!("{}/openapi.json", self.url))
            .args(["--header", &format!("Authorization: Bearer {}", self.key)])
            .args(["--checks", "all", "--max-examples", &examples, "--seed", SEED, "--no-color"])
            .args(LEFT_OUT.iter().flat_map(|name| ["--exclude-name", name]))
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/conform"))
            .env("RUNYARD_URL", &self.url)
            .env("RUNYARD_KEY", &self.key)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("schemathesis cannot be started: {error}"))?;
        let stdout = run.stdout.take().expect("stdout is piped");
        let mut said = Vec::new();
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            println!("{line}");
            said.push(line);
        }
        let is_ok = run.wait().is_ok_and(|status| status.success());
        if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return Err("the server ended meanwhile".into());
        }
        Ok(outcome(&said, is_ok))
    }
}

/// Each operation that was tried is a test. `Tested: 54`, and `❌ ST201 …: 3` for each kind of failure.
fn outcome(said: &[String], is_ok: bool) -> Outcome {
    let number = |line: &String| line.rsplit(' ').next().and_then(|word| word.parse::<u64>().ok());
    let n_tested = said.iter().find(|line| line.trim().starts_with("Tested: ")).and_then(number).unwrap_or(0);
    let n_found = said.iter().filter(|line| line.trim().starts_with("❌ ")).filter_map(number).sum::<u64>();
    let n_failed = if is_ok && n_tested > 0 { 0 } else { n_found.max(1) };
    Outcome { n_passed: n_tested.saturating_sub(n_failed), n_failed }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `{"url":"http://127.0.0.1:4711","pid":1}`
fn url_in(server_file: &str) -> Option<String> {
    let (_, rest) = server_file.split_once("\"url\":\"")?;
    rest.split('"').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_in_the_servers_file() {
        let file = r#"{"pid":7,"url":"http://127.0.0.1:4711"}"#;
        assert_eq!(url_in(file).as_deref(), Some("http://127.0.0.1:4711"));
        assert_eq!(url_in(""), None);
    }

    #[test]
    fn operations_count_as_tests() {
        let said =
            ["  Tested: 54", "  ❌ Fuzzing", "  ❌ ST201 Schema-violating request accepted: 3"].map(str::to_owned);
        let failed = outcome(&said, false);
        assert_eq!((failed.n_passed, failed.n_failed), (51, 3));
        let passed = outcome(&said[..1], true);
        assert_eq!((passed.n_passed, passed.n_failed), (54, 0));
        let nothing = outcome(&[], true);
        assert_eq!((nothing.n_passed, nothing.n_failed), (0, 1), "what tried nothing has failed");
    }
}
