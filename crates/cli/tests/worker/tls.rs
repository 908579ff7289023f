//! A worker and its server over HTTPS, with a certificate that nobody else trusts.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::site::SOON;
use crate::support::wait_until;

struct Secure {
    home: TempDir,
    url: String,
    children: Vec<Child>,
}

impl Secure {
    fn start() -> Secure {
        let home = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let (cert, key) = (home.path().join("cert.pem"), home.path().join("key.pem"));
        std::fs::write(&cert, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let config = home.path().join("runyard.toml");
        std::fs::write(&config, format!("[server.tls]\ncert = {cert:?}\nkey = {key:?}\n")).unwrap();
        let mut secure = Secure { home, url: String::new(), children: Vec::new() };
        let data = secure.path("server");
        let flags = ["serve", "--listen", "127.0.0.1:0", "--data"].map(PathBuf::from);
        secure.spawn("server", flags.into_iter().chain([data.clone(), "--config".into(), config]), "");
        wait_until(SOON, "the server says where it listens", || {
            let file = std::fs::read(data.join("server.json")).unwrap_or_default();
            let file: Value = serde_json::from_slice(&file).unwrap_or_default();
            secure.url = file["url"].as_str().unwrap_or_default().to_owned();
            secure.url.starts_with("https://")
        });
        secure
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn spawn(&mut self, name: &str, words: impl IntoIterator<Item = PathBuf>, token: &str) {
        let log = std::fs::File::create(self.path(&format!("{name}.log"))).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_runyard"));
        command.args(words).env_remove("RUNYARD_URL").env_remove("RUNYARD_CA_FILE");
        command.env("RUNYARD_WORKER_TOKEN", token).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.children.push(command.spawn().unwrap());
    }

    fn worker(&mut self, name: &str, ca_file: Option<&Path>, token: &str) {
        let data = self.path(&format!("worker-{name}"));
        let flags = ["worker", "--server", &self.url, "--name", name, "--kind", "echo=/bin/cat", "--data-dir"];
        let words: Vec<PathBuf> = flags.into_iter().map(PathBuf::from).chain([data]).collect();
        let trust = ca_file.into_iter().flat_map(|file| ["--ca-file".into(), file.to_owned()]);
        self.spawn(name, words.into_iter().chain(trust), token);
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default()
    }

    fn runyard(&self, arguments: &[&str]) -> String {
        let admin = std::fs::read_to_string(self.path("server/admin.key")).unwrap();
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_runyard"));
        command.args(["--url", &self.url, "--api-key", admin.trim(), "--ca-file"]).arg(self.path("cert.pem"));
        let output = command.args(arguments).timeout(SOON).assert().success();
        String::from_utf8(output.get_output().stdout.clone()).unwrap()
    }
}

impl Drop for Secure {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn a_worker_trusts_the_certificate_it_was_given_and_no_other() {
    let mut secure = Secure::start();
    let made = secure.runyard(&["--json", "key", "create", "join", "--scope", "worker"]);
    let token = serde_json::from_str::<Value>(&made).unwrap()["key"].as_str().unwrap().to_owned();
    let cert = secure.path("cert.pem");
    secure.worker("stranger", None, &token);
    secure.worker("friend", Some(&cert), &token);
    let result = secure.runyard(&["submit", "--kind", "echo", "--payload", r#"{"said":"over tls"}"#, "--wait"]);
    assert!(result.contains("over tls"), "{result}");
    wait_until(SOON, "the stranger has tried", || secure.log("stranger").contains("the server is not there"));
    let workers = secure.runyard(&["workers"]);
    assert!(workers.contains("friend") && !workers.contains("stranger"), "{workers}");
}
