//! The payloads of the built-in kinds, and the check that lets a submit be refused before anything is stored.

mod docker;
mod http;
mod noop;
mod process;

pub use docker::{DockerPayload, Root, User};
pub(crate) use http::parse_url;
pub use http::{HttpBody, HttpPayload};
pub use noop::NoopPayload;
pub use process::{ProcessPayload, Sandbox, Stdin};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::job::{Job, Kind};
use crate::outcome::{Class, Failure};
use crate::workspace::{FileSource, FileSpec, Outputs, WorkDir};

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
        Some(Kind::Docker) => ("stdin", DockerPayload::parse(Some(payload))?.unsaid),
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
    let stdin = match Kind::parse(kind) {
        Some(Kind::Process) => ProcessPayload::parse(payload).map(|payload| payload.stdin),
        Some(Kind::Docker) => DockerPayload::parse(payload).map(|payload| payload.stdin),
        Some(Kind::Http | Kind::Noop) | None => return false,
    };
    stdin.is_ok_and(|stdin| matches!(stdin, Stdin::Open(_)))
}

/// What a payload says of its working directory.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    pub files: Vec<FileSpec>,
    pub outputs: Outputs,
    /// `None`: as configured.
    pub work_dir: Option<WorkDir>,
}

/// Nothing, for a kind that has no working directory.
pub(crate) fn staging(kind: Kind, payload: Option<&RawValue>) -> Result<Staging, PayloadError> {
    Ok(match kind {
        Kind::Process => {
            let ProcessPayload { files, outputs, work_dir, .. } = ProcessPayload::parse(payload)?;
            Staging { files, outputs, work_dir }
        }
        Kind::Docker => {
            let DockerPayload { files, outputs, work_dir, .. } = DockerPayload::parse(payload)?;
            Staging { files, outputs, work_dir }
        }
        Kind::Http | Kind::Noop => Staging::default(),
    })
}

/// As [`staging`], for a job: one of the worker's own kinds has its program instead of a payload of the usual form.
pub(crate) fn staging_of(job: &Job) -> Result<Staging, PayloadError> {
    match &job.program {
        Some(_) => {
            let ProcessPayload { files, outputs, work_dir, .. } = ProcessPayload::of(job)?;
            Ok(Staging { files, outputs, work_dir })
        }
        None => staging(job.kind, job.payload.as_deref()),
    }
}

/// The uploads that a payload names, each with the field that does.
pub fn uploads_named(kind: &str, payload: Option<&RawValue>) -> Vec<(String, u128)> {
    let staging = Kind::parse(kind).and_then(|kind| staging(kind, payload).ok());
    let files = staging.unwrap_or_default().files;
    let named = files.iter().enumerate().filter_map(|(at, file)| match file.source {
        FileSource::Upload(id) => Some((format!("payload.files[{at}].upload"), id)),
        FileSource::Url(_) | FileSource::Inline(_) => None,
    });
    named.collect()
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
    use reqwest::Method;

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
            ("docker", r#"{"image":"alpine:3","command":["true"]}"#, "ok"),
            (
                "docker",
                r#"{"image":"a/b@sha256:0a","entrypoint":["x"],"command":["y"],"network":"host","user":"7"}"#,
                "ok",
            ),
            ("docker", r#"{"image":"a","shell":"x","readOnly":false,"pull":true,"workDir":"keep","user":"7:8"}"#, "ok"),
            ("docker", r#"{"image":"a"}"#, "ok"),
            ("docker", r#"{"image":"a","files":[{"inline":"a","path":"b"}],"outputs":["*"],"message":"hi"}"#, "ok"),
            ("docker", r#"{"command":["true"]}"#, "payload"),
            ("docker", r#"{"image":""}"#, "payload.image"),
            ("docker", r#"{"image":"-v"}"#, "payload.image"),
            ("docker", r#"{"image":"a b"}"#, "payload.image"),
            ("docker", r#"{"image":"a/../../containers/json"}"#, "payload.image"),
            ("docker", r#"{"image":"a?b"}"#, "payload.image"),
            ("docker", r#"{"image":"a//b"}"#, "payload.image"),
            ("docker", r#"{"image":"a","command":[]}"#, "payload.command"),
            ("docker", r#"{"image":"a","command":["a","\u0000"]}"#, "payload.command[1]"),
            ("docker", r#"{"image":"a","entrypoint":[""]}"#, "payload.entrypoint"),
            ("docker", r#"{"image":"a","shell":" "}"#, "payload.shell"),
            ("docker", r#"{"image":"a","shell":"x","command":["y"]}"#, "payload.shell"),
            ("docker", r#"{"image":"a","shell":"x","entrypoint":["y"]}"#, "payload.shell"),
            ("docker", r#"{"image":"a","argv":["x"]}"#, "payload.argv"),
            ("docker", r#"{"image":"a","privileged":true}"#, "payload.privileged"),
            ("docker", r#"{"image":"a","network":"container:b"}"#, "payload.network"),
            ("docker", r#"{"image":"a","network":""}"#, "payload.network"),
            ("docker", r#"{"image":"a","user":"root"}"#, "payload.user"),
            ("docker", r#"{"image":"a","user":"1:"}"#, "payload.user"),
            ("docker", r#"{"image":"a","user":"+1"}"#, "payload.user"),
            ("docker", r#"{"image":"a","env":{"A=B":"c"}}"#, "payload.env"),
            ("docker", r#"{"image":"a","stdin":"y","message":"hi"}"#, "payload.stdin"),
            ("docker", r#"{"image":"a","files":[{"inline":"a","path":"../b"}]}"#, "payload.files[0].path"),
            ("docker", r#"{"image":"a","workDir":"always"}"#, "payload.workDir"),
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
        let payload = format!(r#"{{"image":"a","files":[{{"upload":"{id}","path":"b"}}]}}"#);
        let raw_docker = RawValue::from_string(payload).expect("the test's JSON is valid");
        assert_eq!(uploads_named("docker", Some(&raw_docker))[0].0, "payload.files[0].upload");
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
            ("docker", r#"{"image":"a","input":true}"#, true),
            ("docker", r#"{"image":"a"}"#, false),
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
