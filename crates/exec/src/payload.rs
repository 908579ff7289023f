//! The payloads of the built-in kinds, and the check that lets a submit be refused before anything is stored.

use std::collections::BTreeMap;
use std::path::PathBuf;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::job::Kind;
use crate::outcome::{Class, Failure};
use crate::said::Said;
use crate::workspace::{self, FileFields, FileSource, FileSpec, Outputs, WorkDir};

/// What is wrong with a payload, and where.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field}: {message}")]
pub struct PayloadError {
    /// A path such as `payload.headers.accept`.
    pub field: String,
    pub message: String,
}

/// Checks a payload as its executor will read it, and that everything in it is used. JSON `null` stands for a missing
/// one. Kinds of other workers are theirs to check, so they pass. A process that names no sandbox gets `sandbox`.
pub fn validate_payload(kind: &str, payload: &RawValue, sandbox: Sandbox) -> Result<(), PayloadError> {
    let (field, unsaid) = match Kind::parse(kind) {
        Some(Kind::Http) => ("body", HttpPayload::parse(Some(payload))?.unsaid),
        Some(Kind::Process) => {
            let payload = ProcessPayload::parse(Some(payload))?;
            payload.sandbox(sandbox)?;
            ("stdin", payload.unsaid)
        }
        Some(Kind::Noop) => return NoopPayload::parse(Some(payload)).map(drop),
        None => return Ok(()),
    };
    match unsaid {
        Some(beside) => Err(wrong(field, format!("is given beside {beside}; use one of them"))),
        None => Ok(()),
    }
}

/// Does a task with this payload read further lines while it runs?
pub fn takes_input(kind: &str, payload: Option<&RawValue>) -> bool {
    let is_open = |payload: ProcessPayload| matches!(payload.stdin, Stdin::Open(_));
    Kind::parse(kind) == Some(Kind::Process) && ProcessPayload::parse(payload).is_ok_and(is_open)
}

/// The uploads that a payload names, each with the field that does.
pub fn uploads_named(kind: &str, payload: Option<&RawValue>) -> Vec<(String, u128)> {
    let payload = Some(kind).filter(|kind| Kind::parse(kind) == Some(Kind::Process)).and(payload);
    let files = ProcessPayload::parse(payload).map(|payload| payload.files).unwrap_or_default();
    let named = files.iter().enumerate().filter_map(|(at, file)| match file.source {
        FileSource::Upload(id) => Some((format!("payload.files[{at}].upload"), id)),
        FileSource::Url(_) | FileSource::Inline(_) => None,
    });
    named.collect()
}

/// `http`: one request.
#[derive(Debug)]
pub struct HttpPayload {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    /// As given, else what there is to say.
    pub body: Option<HttpBody>,
    /// See [`ProcessPayload::unsaid`].
    pub unsaid: Option<&'static str>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum HttpBody {
    /// A JSON string is sent as its text.
    Text(String),
    /// Anything else is sent as the JSON it is, byte for byte.
    Json(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpFields {
    method: Option<String>,
    url: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<Box<RawValue>>,
    message: Option<String>,
    media: Option<Vec<Box<RawValue>>>,
    dropped: Option<Vec<String>>,
}

impl HttpPayload {
    pub fn parse(payload: Option<&RawValue>) -> Result<HttpPayload, PayloadError> {
        let fields: HttpFields = parse_fields(required(payload, "an object with a url")?)?;
        let said = Said { message: fields.message, media: fields.media, dropped: fields.dropped };
        let (body, unsaid) = match fields.body.as_deref() {
            Some(body) => (Some(parse_body(body)?), said.first_field()),
            None => (said.json().map(HttpBody::Json), None),
        };
        let method = match (fields.method, &body) {
            (Some(method), _) => parse_method(&method)?,
            (None, Some(_)) => Method::POST,
            (None, None) => Method::GET,
        };
        Ok(HttpPayload {
            method,
            url: parse_url("url", &fields.url)?,
            headers: parse_headers(&fields.headers)?,
            body,
            unsaid,
        })
    }
}

fn parse_body(body: &RawValue) -> Result<HttpBody, PayloadError> {
    if body.get().starts_with('"') {
        return serde_json::from_str(body.get())
            .map(HttpBody::Text)
            .map_err(|error| wrong("body", format!("is not a valid string: {error}")));
    }
    Ok(HttpBody::Json(body.get().to_owned()))
}

fn parse_method(method: &str) -> Result<Method, PayloadError> {
    Method::from_bytes(method.to_ascii_uppercase().as_bytes())
        .map_err(|_| wrong("method", format!("`{method}` is not an HTTP method")))
}

pub(crate) fn parse_url(field: &str, url: &str) -> Result<Url, PayloadError> {
    let parsed = Url::parse(url).map_err(|error| wrong(field, format!("`{url}` is not a URL: {error}")))?;
    match parsed.scheme() {
        "http" | "https" => Ok(parsed),
        scheme => Err(wrong(field, format!("scheme `{scheme}` is not supported, use http or https"))),
    }
}

fn parse_headers(headers: &BTreeMap<String, String>) -> Result<HeaderMap, PayloadError> {
    let mut map = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let field = || format!("headers.{name}");
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong(field(), "is not a header name"))?;
        let value = HeaderValue::from_str(value).map_err(|_| wrong(field(), "has a value no header can carry"))?;
        map.append(header, value);
    }
    Ok(map)
}

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

fn parse_stdin(stdin: Option<String>, input: bool, said: &Said) -> Result<Stdin, PayloadError> {
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

fn check_env(env: &BTreeMap<String, String>) -> Result<(), PayloadError> {
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

/// `noop`: nothing, or what a demo or a test wants to see.
#[derive(Debug, Default)]
pub struct NoopPayload {
    pub sleep_ms: u64,
    pub fail: Option<Class>,
    pub result: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct NoopFields {
    #[serde(default)]
    sleep_ms: u64,
    fail: Option<String>,
    result: Option<Box<RawValue>>,
    // Nobody listens, but a session of no-ops must be able to speak.
    #[serde(rename = "message")]
    _message: Option<String>,
    #[serde(rename = "media")]
    _media: Option<Vec<IgnoredAny>>,
    #[serde(rename = "dropped")]
    _dropped: Option<Vec<String>>,
}

impl NoopPayload {
    pub fn parse(payload: Option<&RawValue>) -> Result<NoopPayload, PayloadError> {
        let Some(payload) = payload.filter(|payload| payload.get() != "null") else {
            return Ok(NoopPayload::default());
        };
        let fields: NoopFields = parse_fields(payload)?;
        let fail = fields.fail.as_deref().map(parse_class).transpose()?;
        Ok(NoopPayload { sleep_ms: fields.sleep_ms, fail, result: fields.result })
    }
}

fn parse_class(name: &str) -> Result<Class, PayloadError> {
    match name {
        "task" => Ok(Class::Task),
        "timeout" => Ok(Class::Timeout),
        "quota" => Ok(Class::Quota),
        "permanent" => Ok(Class::Permanent),
        _ => Err(wrong("fail", format!("`{name}` is none of task, timeout, quota, permanent"))),
    }
}

/// The server checks payloads at submit; one that is wrong all the same can never succeed.
impl From<PayloadError> for Failure {
    fn from(error: PayloadError) -> Failure {
        Failure::work(Class::Permanent, error.to_string())
    }
}

fn required<'a>(payload: Option<&'a RawValue>, what: &str) -> Result<&'a RawValue, PayloadError> {
    payload.filter(|payload| payload.get() != "null").ok_or_else(|| PayloadError {
        field: "payload".to_owned(),
        message: format!("is missing; this kind needs {what}"),
    })
}

fn parse_fields<'a, T: Deserialize<'a>>(payload: &'a RawValue) -> Result<T, PayloadError> {
    // serde would also take a list of all the fields in their order, which nobody means.
    if !payload.get().starts_with('{') {
        return Err(PayloadError { field: "payload".to_owned(), message: "must be an object".to_owned() });
    }
    let mut reader = serde_json::Deserializer::from_str(payload.get());
    serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let message = error.inner().to_string();
        // Line and column count inside the payload, which nobody sees as a text of its own.
        let message = message.split(" at line ").next().unwrap_or_default().to_owned();
        match error.path().to_string().as_str() {
            "." => PayloadError { field: "payload".to_owned(), message },
            path => wrong(path.to_owned(), message),
        }
    })
}

pub(crate) fn wrong(field: impl Into<String>, message: impl Into<String>) -> PayloadError {
    PayloadError { field: format!("payload.{}", field.into()), message: message.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field_of(kind: &str, payload: &str) -> String {
        let raw = RawValue::from_string(payload.to_owned()).expect("the test's JSON is valid");
        match validate_payload(kind, &raw, Sandbox::None) {
            Ok(()) => "ok".to_owned(),
            Err(error) => error.field,
        }
    }

    #[test]
    fn each_wrong_payload_names_its_field() {
        let table = [
            ("http", r#"{"url":"http://x/"}"#, "ok"),
            ("http", r#"{"url":"https://x/","method":"put","headers":{"a":"b"},"body":[1]}"#, "ok"),
            ("http", "null", "payload"),
            ("http", "{}", "payload"),
            ("http", r#"{"url":"http://x/","surprise":1}"#, "payload.surprise"),
            ("http", r#"{"url":7}"#, "payload.url"),
            ("http", r#"{"url":"ftp://x/"}"#, "payload.url"),
            ("http", r#"{"url":"nonsense"}"#, "payload.url"),
            ("http", r#"{"url":"http://x/","method":"G T"}"#, "payload.method"),
            ("http", r#"{"url":"http://x/","headers":{"a b":"c"}}"#, "payload.headers.a b"),
            ("http", r#"{"url":"http://x/","headers":{"a":"\n"}}"#, "payload.headers.a"),
            ("http", r#"{"url":"http://x/","headers":{"a":1}}"#, "payload.headers.a"),
            ("process", r#"{"argv":["true"]}"#, "ok"),
            ("process", r#"{"shell":"true","cwd":"/","env":{"A":"b"},"stdin":"x"}"#, "ok"),
            ("process", "{}", "payload.argv"),
            ("process", r#"{"argv":[]}"#, "payload.argv"),
            ("process", r#"{"argv":["a",3]}"#, "payload.argv[1]"),
            ("process", r#"{"argv":["a","\u0000"]}"#, "payload.argv[1]"),
            ("process", r#"{"argv":["a"],"shell":"b"}"#, "payload.shell"),
            ("process", r#"{"shell":" "}"#, "payload.shell"),
            ("process", r#"{"shell":"x","cwd":"here"}"#, "payload.cwd"),
            ("process", r#"{"shell":"x","env":{"A=B":"c"}}"#, "payload.env"),
            ("process", r#"{"shell":"x","files":{}}"#, "payload.files"),
            (
                "process",
                r#"{"shell":"x","files":[{"inline":"a","path":"a/b"},{"url":"http://x/","path":"c","unzip":true}]}"#,
                "ok",
            ),
            (
                "process",
                r#"{"shell":"x","files":[{"upload":"01912345-6789-7abc-8def-0123456789ab","path":".","unzip":true}]}"#,
                "ok",
            ),
            ("process", r#"{"shell":"x","files":[{"path":"a"}]}"#, "payload.files[0]"),
            ("process", r#"{"shell":"x","files":[{"inline":"a","url":"http://x/","path":"a"}]}"#, "payload.files[0]"),
            ("process", r#"{"shell":"x","files":[{"inline":"a"}]}"#, "payload.files[0]"),
            ("process", r#"{"shell":"x","files":[{"inline":"a","path":7}]}"#, "payload.files[0].path"),
            ("process", r#"{"shell":"x","files":[{"inline":"a","path":"a","mode":7}]}"#, "payload.files[0].mode"),
            ("process", r#"{"shell":"x","files":[{"url":"ftp://x/","path":"a"}]}"#, "payload.files[0].url"),
            ("process", r#"{"shell":"x","files":[{"inline":"a","path":"a","unzip":true}]}"#, "payload.files[0].unzip"),
            ("process", r#"{"shell":"x","files":[{"inline":"a","path":""}]}"#, "payload.files[0].path"),
            ("process", r#"{"shell":"x","files":[{"inline":"a","path":"."}]}"#, "payload.files[0].path"),
            ("process", r#"{"shell":"x","files":[{"inline":"a","path":".."}]}"#, "payload.files[0].path"),
            ("process", r#"{"shell":"x","files":[{"inline":"a","path":"/a"}]}"#, "payload.files[0].path"),
            ("process", r#"{"shell":"x","files":[{"inline":"a","path":"../a"}]}"#, "payload.files[0].path"),
            ("process", r#"{"shell":"x","files":[{"inline":"a","path":"a/../b"}]}"#, "payload.files[0].path"),
            ("process", r#"{"shell":"x","files":[{"inline":"a","path":"a/"}]}"#, "payload.files[0].path"),
            ("process", r#"{"shell":"x","files":[{"inline":"a","path":"a\\b"}]}"#, "payload.files[0].path"),
            ("process", r#"{"shell":"x","files":[{"inline":"a","path":"a\u0000b"}]}"#, "payload.files[0].path"),
            ("process", r#"{"shell":"x","files":[{"inline":"a","path":"task.json"}]}"#, "payload.files[0].path"),
            ("process", r#"{"shell":"x","files":[{"inline":"a","path":"./task.json"}]}"#, "payload.files[0].path"),
            (
                "process",
                r#"{"shell":"x","files":[{"inline":"a","path":".runyard-report.jsonl"}]}"#,
                "payload.files[0].path",
            ),
            ("process", r#"{"shell":"x","files":[{"inline":"a","path":"sub/task.json"}]}"#, "ok"),
            (
                "process",
                r#"{"shell":"x","files":[{"url":"http://x/","path":"","unzip":true}]}"#,
                "payload.files[0].path",
            ),
            (
                "process",
                r#"{"shell":"x","files":[{"url":"http://x/","path":"../a","unzip":true}]}"#,
                "payload.files[0].path",
            ),
            (
                "process",
                r#"{"shell":"x","files":[{"url":"http://x/","path":"task.json","unzip":true}]}"#,
                "payload.files[0].path",
            ),
            (
                "process",
                r#"{"shell":"x","files":[{"inline":"a","path":"a"},{"inline":"b","path":"./a"}]}"#,
                "payload.files[1].path",
            ),
            (
                "process",
                r#"{"shell":"x","files":[{"inline":"a","path":"a/b"},{"inline":"b","path":"a"}]}"#,
                "payload.files[0].path",
            ),
            (
                "process",
                r#"{"shell":"x","files":[{"inline":"a","path":"a"},{"url":"http://x/","path":"a","unzip":true}]}"#,
                "payload.files[1].path",
            ),
            (
                "process",
                r#"{"shell":"x","files":[{"url":"http://x/","path":"a","unzip":true},{"url":"http://x/","path":"a","unzip":true}]}"#,
                "ok",
            ),
            (
                "process",
                r#"{"shell":"x","files":[{"inline":"a","path":"a/b"},{"url":"http://x/","path":"a","unzip":true}]}"#,
                "ok",
            ),
            ("process", r#"{"shell":"x","files":[{"upload":"../x","path":"a"}]}"#, "payload.files[0].upload"),
            ("process", r#"{"shell":"x","files":[{"upload":"..%2fx","path":"a"}]}"#, "payload.files[0].upload"),
            ("process", r#"{"shell":"x","files":[{"upload":"","path":"a"}]}"#, "payload.files[0].upload"),
            (
                "process",
                r#"{"shell":"x","files":[{"upload":"01912345-6789-7abc-8def-0123456789ab/../x","path":"a"}]}"#,
                "payload.files[0].upload",
            ),
            (
                "process",
                r#"{"shell":"x","files":[{"upload":"01912345-6789-7ABC-8DEF-0123456789AB","path":"a"}]}"#,
                "payload.files[0].upload",
            ),
            (
                "process",
                r#"{"shell":"x","files":[{"upload":"0191234567897abc8def0123456789ab","path":"a"}]}"#,
                "payload.files[0].upload",
            ),
            (
                "process",
                r#"{"shell":"x","files":[{"upload":"{01912345-6789-7abc-8def-0123456789ab}","path":"a"}]}"#,
                "payload.files[0].upload",
            ),
            (
                "process",
                r#"{"shell":"x","files":[{"upload":"urn:uuid:01912345-6789-7abc-8def-0123456789ab","path":"a"}]}"#,
                "payload.files[0].upload",
            ),
            ("process", r#"{"shell":"x","files":[{"upload":"/etc/passwd","path":"a"}]}"#, "payload.files[0].upload"),
            (
                "process",
                r#"{"shell":"x","files":[{"upload":"01912345-6789-7abc-8def-0123456789ab\u0000","path":"a"}]}"#,
                "payload.files[0].upload",
            ),
            ("process", r#"{"shell":"x","outputs":["*"]}"#, "ok"),
            ("process", r#"{"shell":"x","outputs":["a/**/*.{md,txt}","[a-c]?"]}"#, "ok"),
            ("process", r#"{"shell":"x","outputs":[7]}"#, "payload.outputs[0]"),
            ("process", r#"{"shell":"x","outputs":["a",""]}"#, "payload.outputs[1]"),
            ("process", r#"{"shell":"x","outputs":["/a"]}"#, "payload.outputs[0]"),
            ("process", r#"{"shell":"x","outputs":["../a"]}"#, "payload.outputs[0]"),
            ("process", r#"{"shell":"x","outputs":["a/../b"]}"#, "payload.outputs[0]"),
            ("process", r#"{"shell":"x","outputs":["[a"]}"#, "payload.outputs[0]"),
            ("process", r#"{"shell":"x","outputs":["{a"]}"#, "payload.outputs[0]"),
            ("process", r#"{"shell":"x","workDir":"keep"}"#, "ok"),
            ("process", r#"{"shell":"x","workDir":"remove"}"#, "ok"),
            ("process", r#"{"shell":"x","workDir":"keepOnFailure"}"#, "ok"),
            ("process", r#"{"shell":"x","workDir":"always"}"#, "payload.workDir"),
            ("http", r#"{"url":"http://x/","files":[]}"#, "payload.files"),
            ("process", r#"{"shell":"x","message":"hi","media":[{"a":1}],"dropped":["b"],"input":true}"#, "ok"),
            ("process", r#"{"shell":"x","input":false,"stdin":"y"}"#, "ok"),
            ("process", r#"{"shell":"x","input":1}"#, "payload.input"),
            ("process", r#"{"shell":"x","sandbox":"none"}"#, "ok"),
            ("process", r#"{"shell":"x","sandbox":"bubblewrap","network":true}"#, "ok"),
            ("process", r#"{"shell":"x","sandbox":"docker"}"#, "payload.sandbox"),
            ("process", r#"{"shell":"x","network":true}"#, "payload.network"),
            ("process", r#"{"shell":"x","sandbox":"none","network":false}"#, "payload.network"),
            ("process", r#"{"shell":"x","sandbox":"bubblewrap","network":"yes"}"#, "payload.network"),
            ("process", r#"{"shell":"x","message":["hi"]}"#, "payload.message"),
            ("process", r#"{"shell":"x","media":{}}"#, "payload.media"),
            ("process", r#"{"shell":"x","dropped":[1]}"#, "payload.dropped[0]"),
            ("process", r#"{"shell":"x","stdin":"y","message":"hi"}"#, "payload.stdin"),
            ("process", r#"{"shell":"x","stdin":"y","input":true}"#, "payload.stdin"),
            ("http", r#"{"url":"http://x/","message":"hi","media":[],"dropped":[]}"#, "ok"),
            ("http", r#"{"url":"http://x/","message":"hi","body":"y"}"#, "payload.body"),
            ("http", r#"{"url":"http://x/","media":[],"body":"y"}"#, "payload.body"),
            ("http", r#"{"url":"http://x/","input":true}"#, "payload.input"),
            ("noop", r#"{"message":"hi","media":[1],"dropped":["a"]}"#, "ok"),
            ("noop", r#"{"message":1}"#, "payload.message"),
            ("noop", r#"{"input":true}"#, "payload.input"),
            ("noop", "null", "ok"),
            ("noop", "{}", "ok"),
            ("noop", r#"{"sleepMs":5,"fail":"quota","result":{"a":1}}"#, "ok"),
            ("noop", r#"{"sleepMs":-5}"#, "payload.sleepMs"),
            ("noop", r#"{"fail":"lost"}"#, "payload.fail"),
            ("noop", "[]", "payload"),
            ("noop", "[5,null,null]", "payload"),
            ("process", r#"[["true"],null,null,{},null]"#, "payload"),
            ("somebody.elses", r#"{"anything":true}"#, "ok"),
        ];
        for (kind, payload, field) in table {
            assert_eq!(field_of(kind, payload), field, "{kind} {payload}");
        }
    }

    #[test]
    fn a_process_that_names_no_sandbox_gets_the_configured_one() {
        let sandbox = |json: &str, configured| {
            let raw = RawValue::from_string(json.to_owned()).expect("the test's JSON is valid");
            ProcessPayload::parse(Some(&raw)).expect("the payload is valid").sandbox(configured)
        };
        let (none, bubblewrap) = (Sandbox::None, Sandbox::Bubblewrap);
        assert_eq!(sandbox(r#"{"shell":"x"}"#, none), Ok(none));
        assert_eq!(sandbox(r#"{"shell":"x"}"#, bubblewrap), Ok(bubblewrap));
        assert_eq!(sandbox(r#"{"shell":"x","network":true}"#, bubblewrap), Ok(bubblewrap));
        assert_eq!(sandbox(r#"{"shell":"x","sandbox":"none"}"#, bubblewrap), Ok(none), "its own word wins");
        assert_eq!(sandbox(r#"{"shell":"x","sandbox":"bubblewrap"}"#, none), Ok(bubblewrap));
        assert!(sandbox(r#"{"shell":"x","sandbox":"none","network":true}"#, bubblewrap).is_err());
    }

    #[test]
    fn the_uploads_of_a_payload_are_named_with_their_fields() {
        let id = "01912345-6789-7abc-8def-0123456789ab";
        let payload =
            format!(r#"{{"shell":"x","files":[{{"inline":"a","path":"a"}},{{"upload":"{id}","path":"b"}}]}}"#);
        let raw = RawValue::from_string(payload).expect("the test's JSON is valid");
        let named = uploads_named("process", Some(&raw));
        assert_eq!(named, [("payload.files[1].upload".to_owned(), 0x0191_2345_6789_7abc_8def_0123_4567_89ab)]);
        assert_eq!((uploads_named("somebody.elses", Some(&raw)), uploads_named("process", None)), (vec![], vec![]));
    }

    #[test]
    fn a_body_makes_the_request_a_post() {
        let parse = |json: &str| {
            let raw = RawValue::from_string(json.to_owned()).expect("the test's JSON is valid");
            HttpPayload::parse(Some(&raw)).expect("the payload is valid")
        };
        assert_eq!(parse(r#"{"url":"http://x/"}"#).method, Method::GET);
        let post = parse(r#"{"url":"http://x/","body":{"a": 1}}"#);
        assert_eq!((post.method, post.body), (Method::POST, Some(HttpBody::Json(r#"{"a": 1}"#.to_owned()))));
        let text = parse(r#"{"url":"http://x/","body":"a\nb"}"#);
        assert_eq!(text.body, Some(HttpBody::Text("a\nb".to_owned())));
    }

    #[test]
    fn a_message_is_the_body_where_none_is_given() {
        let parse = |json: &str| {
            let raw = RawValue::from_string(json.to_owned()).expect("the test's JSON is valid");
            HttpPayload::parse(Some(&raw)).expect("the payload is valid")
        };
        let said = parse(r#"{"url":"http://x/","message":"hi","media":[1]}"#);
        let body = HttpBody::Json(r#"{"message":"hi","media":[1]}"#.to_owned());
        assert_eq!((said.method, said.body, said.unsaid), (Method::POST, Some(body), None));
        let both = parse(r#"{"url":"http://x/","message":"hi","body":"own"}"#);
        assert_eq!((both.body, both.unsaid), (Some(HttpBody::Text("own".to_owned())), Some("message")));
    }

    #[test]
    fn only_a_process_that_asks_for_it_takes_input() {
        let table = [
            ("process", r#"{"shell":"x","input":true}"#, true),
            ("process", r#"{"shell":"x","input":false}"#, false),
            ("process", r#"{"shell":"x","message":"hi"}"#, false),
            ("process", r#"{"input":true}"#, false),
            ("http", r#"{"url":"http://x/"}"#, false),
            ("noop", "{}", false),
            ("somebody.elses", r#"{"input":true}"#, false),
        ];
        for (kind, payload, takes) in table {
            let raw = RawValue::from_string(payload.to_owned()).expect("the test's JSON is valid");
            assert_eq!(takes_input(kind, Some(&raw)), takes, "{kind} {payload}");
        }
        assert!(!takes_input("process", None));
    }
}
