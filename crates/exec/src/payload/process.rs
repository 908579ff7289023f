//! The payload of `process`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{PayloadError, parse_fields, required, wrong};
use crate::job::Job;
use crate::said::Said;
use crate::workspace::{self, FileFields, FileSpec, Outputs, WorkDir};

/// `process`: one command.
#[derive(Debug)]
pub struct ProcessPayload {
    /// Never empty; a shell line is `sh -c LINE`.
    pub argv: Vec<String>,
    /// Absolute. `None`: the task's own working directory.
    pub cwd: Option<PathBuf>,
    pub env: BTreeMap<String, String>,
    pub stdin: Stdin,
    /// `None`: as configured.
    sandbox: Option<Sandbox>,
    /// In a sandbox: does it reach the network?
    network: Option<bool>,
    /// In its working directory when it starts.
    pub(crate) files: Vec<FileSpec>,
    /// What is collected at its end.
    pub(crate) outputs: Outputs,
    /// `None`: as configured.
    pub work_dir: Option<WorkDir>,
    /// What is said beside an explicit `stdin`, and so reaches nobody. A submit with both is refused; a merge of messages
    /// that speak in different ways can still bring it about.
    pub unsaid: Option<&'static str>,
}

/// What a process is kept in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Sandbox {
    #[default]
    None,
    /// The machine read-only, its working directory writable.
    Bubblewrap,
}

/// What a process reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stdin {
    Nothing,
    /// This, and then the end.
    Text(String),
    /// This, and then what is handed over while it runs, a line at a time.
    Open(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ProcessFields {
    argv: Option<Vec<String>>,
    shell: Option<String>,
    cwd: Option<PathBuf>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    stdin: Option<String>,
    #[serde(default)]
    input: bool,
    sandbox: Option<String>,
    network: Option<bool>,
    #[serde(default)]
    files: Vec<FileFields>,
    #[serde(default)]
    outputs: Vec<String>,
    work_dir: Option<String>,
    message: Option<String>,
    media: Option<Vec<Box<RawValue>>>,
    dropped: Option<Vec<String>>,
}

impl ProcessPayload {
    /// What a job runs: what its payload says or, for a kind of the worker's own, the program that reads the payload.
    pub fn of(job: &Job) -> Result<ProcessPayload, PayloadError> {
        let Some(program) = &job.program else { return ProcessPayload::parse(job.payload.as_deref()) };
        let program = program.to_str().ok_or_else(|| wrong("argv", "the program's path is not UTF-8"))?;
        let text = job.payload.as_deref().map_or("null", RawValue::get);
        Ok(ProcessPayload {
            argv: vec![program.to_owned()],
            cwd: None,
            env: BTreeMap::new(),
            stdin: Stdin::Text(text.to_owned()),
            sandbox: None,
            network: None,
            files: Vec::new(),
            outputs: Outputs::default(),
            work_dir: None,
            unsaid: None,
        })
    }

    pub fn parse(payload: Option<&RawValue>) -> Result<ProcessPayload, PayloadError> {
        let fields: ProcessFields = parse_fields(required(payload, "an object with argv or shell")?)?;
        let argv = parse_command(fields.argv, fields.shell)?;
        if let Some(cwd) = fields.cwd.as_ref().filter(|cwd| !cwd.is_absolute()) {
            return Err(wrong("cwd", format!("`{}` is not an absolute path", cwd.display())));
        }
        if fields.cwd.as_ref().is_some_and(|cwd| cwd.as_os_str().as_encoded_bytes().contains(&0)) {
            return Err(wrong("cwd", "contains a NUL character"));
        }
        check_env(&fields.env)?;
        let said = Said { message: fields.message, media: fields.media, dropped: fields.dropped };
        let unsaid = fields.stdin.as_ref().and_then(|_| said.first_field());
        let stdin = parse_stdin(fields.stdin, fields.input, &said)?;
        let sandbox = parse_sandbox(fields.sandbox.as_deref())?;
        let files = workspace::parse_files(fields.files)?;
        let outputs = Outputs::parse(fields.outputs)?;
        let work_dir = workspace::parse_work_dir(fields.work_dir.as_deref())?;
        let (cwd, env, network) = (fields.cwd, fields.env, fields.network);
        Ok(ProcessPayload { argv, cwd, env, stdin, sandbox, network, files, outputs, work_dir, unsaid })
    }

    /// Its own word, or what is configured.
    pub fn sandbox(&self, configured: Sandbox) -> Result<Sandbox, PayloadError> {
        match (self.sandbox.unwrap_or(configured), self.network) {
            (Sandbox::None, Some(_)) => Err(wrong("network", "is given without a sandbox, which alone can cut it")),
            (sandbox, _) => Ok(sandbox),
        }
    }

    /// In a sandbox.
    pub(crate) fn has_network(&self) -> bool {
        self.network.unwrap_or(false)
    }
}

fn parse_sandbox(name: Option<&str>) -> Result<Option<Sandbox>, PayloadError> {
    match name {
        None => Ok(None),
        Some("none") => Ok(Some(Sandbox::None)),
        Some("bubblewrap") => Ok(Some(Sandbox::Bubblewrap)),
        Some(name) => Err(wrong("sandbox", format!("`{name}` is none of none, bubblewrap"))),
    }
}

pub(super) fn parse_stdin(stdin: Option<String>, input: bool, said: &Said) -> Result<Stdin, PayloadError> {
    match (stdin, input) {
        (Some(_), true) => Err(wrong("stdin", "is given beside input; use message for the first lines")),
        (Some(text), false) => Ok(Stdin::Text(text)),
        (None, true) => Ok(Stdin::Open(said.lines())),
        (None, false) if said.first_field().is_some() => Ok(Stdin::Text(said.lines())),
        (None, false) => Ok(Stdin::Nothing),
    }
}

fn parse_command(argv: Option<Vec<String>>, shell: Option<String>) -> Result<Vec<String>, PayloadError> {
    let argv = match (argv, shell) {
        (Some(argv), None) => argv,
        (None, Some(line)) if line.trim().is_empty() => return Err(wrong("shell", "is empty")),
        (None, Some(line)) => vec!["sh".to_owned(), "-c".to_owned(), line],
        (Some(_), Some(_)) => return Err(wrong("shell", "is given beside argv; use one of them")),
        (None, None) => return Err(wrong("argv", "is missing; give argv (a list) or shell (a line)")),
    };
    if argv.first().is_none_or(|program| program.is_empty()) {
        return Err(wrong("argv", "names no program"));
    }
    match argv.iter().position(|word| word.contains('\0')) {
        Some(at) => Err(wrong(format!("argv[{at}]"), "contains a NUL character")),
        None => Ok(argv),
    }
}

pub(super) fn check_env(env: &BTreeMap<String, String>) -> Result<(), PayloadError> {
    for (name, value) in env {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(wrong("env", format!("`{}` is not a variable name", name.escape_debug())));
        }
        if value.contains('\0') {
            return Err(wrong(format!("env.{name}"), "contains a NUL character"));
        }
    }
    Ok(())
}
