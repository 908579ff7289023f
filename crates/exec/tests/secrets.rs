//! Secrets reach a process through its environment and its input, and come out of it nowhere.

mod support;

use std::sync::Arc;

use runyard_exec::{Class, Kind, Outcome, SecretError, Secrets};
use serde_json::{Value, json};
use support::{Yard, completed, failed, failed_as};

const CANARY: &str = "canary \"7d1f\"/ö";

struct Vault;

impl Secrets for Vault {
    fn reveal(&self, name: &str, agent: &str) -> Result<String, SecretError> {
        match name {
            "token" => Ok(CANARY.to_owned()),
            "theirs" => Err(SecretError::ForeignAgent { name: name.to_owned(), agent: agent.to_owned() }),
            _ => Err(SecretError::Unknown(name.to_owned())),
        }
    }
}

fn yard() -> Yard {
    Yard::with(Some(Arc::new(Vault)))
}

fn with_token(shell: &str) -> Value {
    json!({"shell": shell, "env": {"TOKEN": "secret://token"}, "stdin": "in=secret://token."})
}

/// Everything below the data directory, names included.
fn everything(yard: &Yard) -> String {
    fn gather(dir: &std::path::Path, all: &mut String) {
        for entry in std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path()) {
            all.push_str(&entry.display().to_string());
            match entry.is_dir() {
                true => gather(&entry, all),
                false => all.push_str(&String::from_utf8_lossy(&std::fs::read(&entry).unwrap_or_default())),
            }
        }
    }
    let mut all = String::new();
    gather(yard.dir.path(), &mut all);
    all
}

fn is_clean(text: &str) -> bool {
    !text.contains("7d1f") && !text.contains("N2QxZ")
}

#[tokio::test]
async fn a_process_has_the_values_and_shows_none() {
    let yard = yard();
    let shell = r#"read line; [ "$line" = "in=$TOKEN." ] && printf 'ok %s' "$TOKEN"; echo "$TOKEN" >&2; cat task.json"#;
    let result = completed(yard.run(Kind::Process, with_token(shell)).await);
    let stdout = result["stdout"].as_str().expect("text");
    assert!(stdout.starts_with("ok (secret){") && stdout.contains("in=secret://token."), "{stdout}");
    assert!(yard.log_texts().contains(&"(secret)".to_owned()), "{:?}", yard.log_texts());
    assert!(is_clean(&result.to_string()) && is_clean(&everything(&yard)), "{}", everything(&yard));
}

#[tokio::test]
async fn what_it_reports_is_cleared() {
    let yard = yard();
    let script = r"import os, json
t = os.environ['TOKEN']
lines = [{'progress': 0.5, 'message': t}, {'message': 'x' * 495 + t}, {'usage': t}, {'progress': t}, {'result': {'a': t, t: 1.5}}]
open(os.environ['RUNYARD_REPORT'], 'w').writelines(json.dumps(line) + '\n' for line in lines)";
    let payload = json!({"argv": ["python3", "-c", script], "env": {"TOKEN": "secret://token"}, "workDir": "keep"});
    let running = yard.start(yard.job(Kind::Process, payload));
    let signs = running.signs.clone();
    let result = completed(running.end().await);
    assert_eq!(result, json!({"a": "(secret)", "(secret)": 1.5}));
    let progress = signs.progress.lock().expect("the recorder's lock").clone();
    let messages: Vec<_> = progress.into_iter().map(|progress| progress.message.unwrap_or_default()).collect();
    assert_eq!(messages, ["(secret)".to_owned(), format!("{}(secr", "x".repeat(495))]);
    let notes = yard.log_texts().join("\n");
    assert!(notes.contains("not understood") && notes.contains("(secret)"), "{notes}");
    assert!(is_clean(&everything(&yard)), "the report itself too: {}", everything(&yard));
}

#[tokio::test]
async fn failures_and_tails_are_cleared() {
    let yard = yard();
    let many = r#"i=0; while [ $i -lt 900 ]; do printf '%s' "$TOKEN"; i=$((i+1)); done; echo "no: $TOKEN" >&2; exit 3"#;
    let failure = failed(yard.run(Kind::Process, with_token(many)).await);
    assert_eq!((failure.class, failure.message.as_str()), (Class::Task, "exit code 3: no: (secret)"));
    let result = String::from_utf8(failure.result.expect("a result")).expect("text");
    assert!(is_clean(&result) && result.matches("(secret)").count() > 500, "{result}");
    assert!(is_clean(&everything(&yard)));
}

#[tokio::test]
async fn without_its_secrets_nothing_is_started() {
    let yard = yard();
    for (name, message) in [("nope", "there is no secret `nope`"), ("theirs", "secret `theirs` is not for agent `ada`")]
    {
        let payload =
            json!({"shell": "touch started", "cwd": yard.dir.path(), "env": {"X": format!("secret://{name}")}});
        assert_eq!(failed_as(yard.run(Kind::Process, payload).await), (Class::Permanent, message.to_owned()));
    }
    assert!(!yard.dir.path().join("started").exists());
    // On a command line they are left as they are: a submit refuses them there.
    let echoed = yard.run(Kind::Process, json!({"argv": ["echo", "secret://token"]})).await;
    assert!(matches!(&echoed, Outcome::Completed { .. }), "{echoed:?}");
    assert_eq!(completed(echoed)["stdout"], "secret://token\n");
}

#[tokio::test]
async fn a_request_names_no_value_in_what_it_tells() {
    let yard = yard();
    let url = format!("http://127.0.0.1:1/p/secret://{0}/../x?q=secret://{0}", "token");
    let failure = failed(yard.run(Kind::Http, json!({"url": url, "method": "put"})).await);
    assert!(failure.message.starts_with(&format!("PUT {url}: error sending request: ")), "{}", failure.message);
    assert!(is_clean(&failure.message) && is_clean(&everything(&yard)));
    // A submit refuses these; one of an earlier version may have taken them.
    for payload in [json!({"url": "http://secret://token/"}), json!({"url": "http://h/", "method": "secret://token"})] {
        let (class, message) = failed_as(yard.run(Kind::Http, payload).await);
        assert!(class == Class::Permanent && message.contains("told to people"), "{message}");
    }
}
