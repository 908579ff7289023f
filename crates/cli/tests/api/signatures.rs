//! What a message is signed with, judged by the packages that receivers use.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::scene::{Asked, Peer, Scene, text};
use crate::webhooks::{LOCAL, taken, until_asked};

#[test]
fn signatures_verify_with_the_published_packages() {
    let scene = Scene::with(LOCAL);
    let peer = Peer::start(taken);
    scene.submit(json!({"kind": "noop", "payload": {"result": "ünïcode \u{1f980}"}, "callbackUrl": peer.url()}));
    let asked = until_asked(&peer, 1).remove(0);
    let secret = text(&scene.get("/v1/webhooks/secret")["secrets"][0]["secret"]);
    verify_with_packages(&asked, &secret);
    // Within the few minutes that both packages let a clock be wrong, so that only the signature can tell.
    let sent = asked.header("webhook-timestamp").unwrap();
    let later = (sent.trim().parse::<u64>().unwrap() + 1).to_string();
    let id = asked.header("webhook-id").unwrap();
    for forged in [
        Asked { body: asked.body.replace("completed", "cancelled"), ..asked.clone() },
        Asked { head: asked.head.replace(sent.trim(), &later), ..asked.clone() },
        Asked { head: asked.head.replace(id.trim(), "msg_other"), ..asked.clone() },
    ] {
        assert!(forged.head != asked.head || forged.body != asked.body);
        let [python, node] = verdicts(&forged, &secret);
        assert!(!python.0 && !node.0, "what was changed must not verify: {python:?} {node:?}");
    }
}

#[test]
fn a_rotated_secret_signs_beside_the_one_before() {
    let scene = Scene::with(LOCAL);
    let peer = Peer::start(taken);
    let before = text(&scene.get("/v1/webhooks/secret")["secrets"][0]["secret"]);
    let after = scene.expect(200, "POST", "/v1/webhooks/secret/rotate", json!({}));
    assert_eq!(after["secrets"][1]["secret"], json!(before));
    assert_ne!(after["secrets"][0]["secret"], json!(before));
    scene.submit(json!({"kind": "noop", "callbackUrl": peer.url()}));
    let asked = until_asked(&peer, 1).remove(0);
    let signatures = asked.header("webhook-signature").unwrap();
    assert_eq!(signatures.split(' ').count(), 2, "{signatures}");
    for secret in [before, text(&after["secrets"][0]["secret"])] {
        verify_with_packages(&asked, &secret);
    }
}

#[test]
fn a_subscription_that_changes_its_secret_signs_with_both() {
    let peer = Peer::start(taken);
    let scene = Scene::with(LOCAL);
    let (old, new) = ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD");
    let hook = json!({"url": peer.url(), "secret": format!("{new} {old}")});
    scene.expect(200, "PATCH", "/v1/config", json!({"webhooks": {"audit": hook}}));
    scene.submit(json!({"kind": "noop"}));
    let asked = until_asked(&peer, 1).remove(0);
    assert_eq!(asked.header("webhook-signature").unwrap().split(' ').count(), 2);
    [old, new].into_iter().for_each(|secret| verify_with_packages(&asked, secret));
}

pub fn verify_with_packages(asked: &Asked, secret: &str) {
    for (is_valid, said) in verdicts(asked, secret) {
        assert!(is_valid, "{said}");
    }
}

const PYTHON: &str = "
import json, sys
from standardwebhooks import Webhook
message = json.load(sys.stdin)
Webhook(message['secret']).verify(message['body'], message['headers'])
";

const NODE: &str = "
const { Webhook } = require('standardwebhooks');
const message = JSON.parse(require('fs').readFileSync(0, 'utf8'));
new Webhook(message.secret).verify(message.body, message.headers);
";

/// What the PyPI and the npm package say, each with its words.
pub fn verdicts(asked: &Asked, secret: &str) -> [(bool, String); 2] {
    let headers = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    let headers: serde_json::Map<String, Value> =
        headers.iter().map(|name| (name.to_string(), asked.header(name).unwrap().trim().into())).collect();
    let message = json!({"secret": secret, "body": asked.body, "headers": headers}).to_string();
    let verifiers = verifiers();
    let python = Command::new(verifiers.join("venv/bin/python")).args(["-c", PYTHON]).spawn_with(&message);
    let node = Command::new("node").args(["-e", NODE]).current_dir(verifiers).spawn_with(&message);
    [python, node]
}

trait SpawnWith {
    fn spawn_with(&mut self, input: &str) -> (bool, String);
}

impl SpawnWith for Command {
    fn spawn_with(&mut self, input: &str) -> (bool, String) {
        use std::io::Write;
        use std::process::Stdio;
        let mut child = self.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Both packages, installed by name at their first use and kept with the build.
fn verifiers() -> &'static Path {
    static INSTALLED: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    INSTALLED.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("standardwebhooks");
        std::fs::create_dir_all(&dir).unwrap();
        // Each test may be a process of its own: one installs, the others wait for it.
        let lock = std::fs::File::create(dir.join("lock")).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let run = |program: &str, args: &[&str]| {
            let output = Command::new(program).args(args).current_dir(&dir).output();
            let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
            assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        };
        if !dir.join("venv/done").exists() {
            run("python3", &["-m", "venv", "venv"]);
            run("venv/bin/pip", &["install", "--quiet", "standardwebhooks"]);
            std::fs::write(dir.join("venv/done"), "").unwrap();
        }
        if !dir.join("node_modules/done").exists() {
            run("npm", &["install", "--silent", "--no-audit", "--no-fund", "--prefix", ".", "standardwebhooks"]);
            std::fs::write(dir.join("node_modules/done"), "").unwrap();
        }
        dir
    })
}
