//! What a task may run: the allow-lists of `[exec]`, and the secrets it refers to.

use std::path::{Component, Path};

use runyard_exec::SecretError;
use runyard_exec::payload::ProcessPayload;
use runyard_exec::secret::{self, Reference};
use serde_json::value::RawValue;

use super::Intake;
use super::fields::{self, Checked};
use crate::config::Exec;
use crate::problem::{Error, Invalid};

/// Programs, directories and images that the configuration does not list are refused.
pub fn check_allowed(exec: &Exec, kind: &str, payload: &RawValue) -> Result<(), Error> {
    if !fields::runs_a_program(kind) {
        return Ok(());
    }
    if kind == "docker" {
        return check_image(exec, payload);
    }
    // It has been parsed before, so it can be.
    let Ok(process) = ProcessPayload::parse(Some(payload)) else { return Ok(()) };
    if let Some(commands) = &exec.commands {
        let program = process.argv[0].as_str();
        let climbs = Path::new(program).components().any(|part| part == Component::ParentDir);
        if climbs || !is_listed(commands, program) {
            return Err(refused("payload.argv", format!("program `{program}` is not in [exec] commands")));
        }
        // They decide which program a name stands for, and what is loaded into it.
        let steers = |name: &&String| *name == "PATH" || name.starts_with("LD_");
        if let Some(name) = process.env.keys().find(steers) {
            return Err(refused(format!("payload.env.{name}"), "may not be set while [exec] commands is".to_owned()));
        }
    }
    match (&exec.work_dirs, &process.cwd) {
        (Some(allowed), Some(cwd)) if !is_below(allowed, cwd) => {
            Err(refused("payload.cwd", format!("`{}` is in none of [exec] workDirs", cwd.display())))
        }
        _ => Ok(()),
    }
}

fn check_image(exec: &Exec, payload: &RawValue) -> Result<(), Error> {
    #[derive(serde::Deserialize)]
    struct Image {
        image: String,
    }
    let Some(images) = &exec.images else { return Ok(()) };
    match serde_json::from_str::<Image>(payload.get()) {
        Ok(Image { image }) if is_listed(images, &image) => Ok(()),
        Ok(Image { image }) => Err(refused("payload.image", format!("image `{image}` is not in [exec] images"))),
        Err(_) => Err(Invalid::new("payload.image", "is missing").into()),
    }
}

/// Each secret must be there, be for this agent and stand where it stays one, so that a mistake is seen now and not at the
/// start.
pub fn check_secrets(intake: &Intake, kind: &str, agent: &str, payload: &RawValue) -> Result<(), Error> {
    if kind == "http"
        && let Some((found, why)) = secret::misplaced_in_http(payload)
    {
        return Err(Invalid::new(found.field, why).into());
    }
    for Reference { name, field } in secret::references(payload) {
        check_place(kind, &field)?;
        let Some(vault) = intake.vault else { continue };
        match vault.check(&name, agent) {
            Ok(()) => {}
            Err(error @ SecretError::ForeignAgent { .. }) => return Err(refused(field, error.to_string())),
            Err(error) => {
                return Err(Invalid { code: "unknown_secret", ..Invalid::new(field, error.to_string()) }.into());
            }
        }
    }
    Ok(())
}

/// A request is ours alone. Of a process only its environment and its input are: everything else of it is on the command
/// line or on the disk.
fn check_place(kind: &str, field: &str) -> Checked<()> {
    let part = field.strip_prefix("payload.").unwrap_or_default().split(['.', '[']).next().unwrap_or_default();
    let message = match (kind, part) {
        ("http", _) | ("process", "env" | "stdin" | "message") | ("docker", "stdin" | "message") => return Ok(()),
        ("process", "argv" | "shell") => {
            "a command line is visible to every user of the machine: put secret://NAME in env, and use $VARIABLE here"
        }
        ("process", "files") => "a file stays on the disk: put secret://NAME in env or stdin",
        ("process", _) => "secret://NAME is replaced in env, stdin and message only",
        ("docker", "env") => "an engine writes the environment of a container to its disk: put secret://NAME in stdin",
        ("docker", _) => "secret://NAME is replaced in stdin and message only",
        _ => "secret://NAME works in tasks of kind http, process and docker only",
    };
    Err(Invalid::new(field, message))
}

fn refused(field: impl Into<String>, message: String) -> Error {
    Error::NotAllowed { field: field.into(), message }
}

fn is_listed(patterns: &[String], text: &str) -> bool {
    patterns.iter().any(|pattern| matches(pattern.as_bytes(), text.as_bytes()))
}

/// `*` stands for any number of characters. Linear in both: each star is settled when the next one is met.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(byte) if *byte == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, from)) = star else { return false };
                star = Some((at, from + 1));
                p = at + 1;
                t = from + 1;
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// As it is written: whoever may run a program can follow a link by itself.
fn is_below(allowed: &[String], path: &Path) -> bool {
    let climbs = path.components().any(|part| part == Component::ParentDir);
    !climbs && allowed.iter().any(|allowed| path.starts_with(allowed))
}

pub fn check_lists(exec: &Exec) -> Checked<()> {
    let relative = |dir: &&String| !Path::new(dir.as_str()).is_absolute();
    match exec.work_dirs.iter().flatten().find(relative) {
        Some(dir) => Err(Invalid::new("exec.workDirs", format!("`{dir}` is not an absolute path"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::problem::problem;

    fn checked(exec: Value, kind: &str, payload: Value) -> Option<String> {
        let exec: Exec = serde_json::from_value(exec).expect("a section");
        let payload = serde_json::value::to_raw_value(&payload).expect("plain JSON");
        let error = check_allowed(&exec, kind, &payload).err()?;
        let problem = problem(&error);
        assert_eq!((problem.status, problem.code.as_str()), (403, "not_allowed"), "{problem:?}");
        problem.field
    }

    #[test]
    fn only_what_is_listed_may_be_run() {
        let lists = json!({"commands": ["git", "/opt/tools/*"], "workDirs": ["/srv/agents"], "images": ["alpine:*"]});
        let table = [
            (json!({"argv": ["git", "status"]}), None),
            (json!({"argv": ["/opt/tools/deploy"]}), None),
            (json!({"argv": ["git"], "cwd": "/srv/agents/a/b"}), None),
            (json!({"argv": ["git"], "cwd": "/srv/agents"}), None),
            (json!({"argv": ["git"], "env": {"GIT_DIR": "x"}}), None),
            (json!({"argv": ["/usr/bin/git"]}), Some("payload.argv")),
            (json!({"argv": ["./git"]}), Some("payload.argv")),
            (json!({"argv": ["/opt/tools/../../bin/sh"]}), Some("payload.argv")),
            (json!({"shell": "git status"}), Some("payload.argv")),
            (json!({"argv": ["git"], "cwd": "/srv/agents2"}), Some("payload.cwd")),
            (json!({"argv": ["git"], "cwd": "/srv/agents/../x"}), Some("payload.cwd")),
            (json!({"argv": ["git"], "env": {"PATH": "/tmp"}}), Some("payload.env.PATH")),
            (json!({"argv": ["git"], "env": {"LD_PRELOAD": "x"}}), Some("payload.env.LD_PRELOAD")),
        ];
        for (payload, field) in table {
            assert_eq!(checked(lists.clone(), "process", payload.clone()).as_deref(), field, "{payload}");
            assert_eq!(checked(json!({}), "process", payload.clone()), None, "{payload}");
            assert_eq!(checked(json!({"commands": []}), "process", payload).as_deref(), Some("payload.argv"));
        }
        assert_eq!(checked(json!({"commands": ["sh"]}), "process", json!({"shell": "x"})), None);
        assert_eq!(checked(lists.clone(), "docker", json!({"image": "alpine:3"})), None);
        assert_eq!(
            checked(lists.clone(), "docker", json!({"image": "evil/alpine:3"})).as_deref(),
            Some("payload.image")
        );
        assert_eq!(checked(lists, "http", json!({"url": "http://x/"})), None);
    }

    #[test]
    fn secrets_stand_where_they_stay_secret() {
        for (kind, field, is_fine) in [
            ("http", "payload.url", true),
            ("http", "payload.headers.authorization", true),
            ("process", "payload.env.TOKEN", true),
            ("process", "payload.stdin", true),
            ("process", "payload.message", true),
            ("process", "payload.argv[1]", false),
            ("process", "payload.shell", false),
            ("process", "payload.cwd", false),
            ("process", "payload.files[0].url", false),
            ("process", "payload.files[0].inline", false),
            ("process", "payload.outputs[0]", false),
            ("process", "payload.media[0]", false),
            ("process", "payload", false),
            ("docker", "payload.env.TOKEN", false),
            ("docker", "payload.stdin", true),
            ("docker", "payload.message", true),
            ("docker", "payload.command[0]", false),
            ("noop", "payload.message", false),
            ("own", "payload.x", false),
        ] {
            let refused = check_place(kind, field).err();
            assert_eq!(refused.is_none(), is_fine, "{kind} {field}");
            assert!(refused.is_none_or(|refused| refused.field == field && refused.message.contains("secret://NAME")));
        }
    }

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("*:*", "a:b", true),
            ("a**b", "ab", true),
            ("", "", true),
            ("", "a", false),
            ("a", "ab", false),
            ("*ab*ab", "abab", true),
            ("*ab*ab", "ab", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }
}
