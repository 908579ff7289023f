//! `task.json` in the working directory: what a program may want to know of the task it runs for.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::environment::deadline_text;
use crate::job::Job;
use crate::places::TASK_FILE;

/// Its JSON. The variables of the payload are left out: they are where secrets are handed over, and a file is copied and
/// collected more easily than an environment. So are its files, which lie beside this one; an address may have a secret
/// in it too.
pub(crate) fn content(job: &Job) -> Vec<u8> {
    let deadline = Some(deadline_text(job.deadline)).filter(|text| !text.is_empty());
    let task = json!({
        "id": job.task_text(),
        "agent": &*job.agent,
        "kind": job.kind.as_str(),
        "attempt": job.attempt,
        "session": job.session.as_deref(),
        "deadline": deadline,
        "limits": job.limits,
        "payload": job.payload.as_deref().map(public_payload),
    });
    let mut bytes = serde_json::to_vec_pretty(&task).expect("a JSON value can always be written");
    bytes.push(b'\n');
    bytes
}

pub(crate) fn write(work_dir: &Path, content: &[u8]) -> io::Result<()> {
    let path = work_dir.join(TASK_FILE);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)
}

fn public_payload(payload: &RawValue) -> Value {
    match serde_json::from_str::<Map<String, Value>>(payload.get()) {
        Ok(mut fields) => {
            fields.remove("env");
            fields.remove("files");
            Value::Object(fields)
        }
        Err(_) => Value::Null,
    }
}
