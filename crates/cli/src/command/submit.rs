//! `runyard submit`: one task, built from flags.

mod files;
mod session;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use runyard_wire::{
    Class, Dependency, Id, Json, OnDependencyFailure, Place, Priority, Resources, RetryRequest, TaskRequest, Timestamp,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::cli::Shared;
use crate::client::Client;
use crate::command::{logs, wait};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out;
use crate::span::{Moment, Span};

use self::files::FileOptions;
use self::session::SessionOptions;

/// Exactly one of: a command behind `--`, `--shell`, `--http`, `--kind`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  runyard submit -- echo hi
  runyard submit --wait --shell 'for i in 1 2 3; do echo $i; sleep 1; done'
  runyard submit --http POST http://127.0.0.1:8080/run --body '{\"a\": 1}' --agent crawler
  runyard submit --kind noop --payload '{\"sleepMs\": 500}' --after $(runyard submit -- make)

Without --wait the id of the new task is all that is printed on stdout.")]
#[group(skip)]
pub struct Args {
    #[command(flatten)]
    task: TaskOptions,
    /// Print its output as it comes, and exit with its outcome
    #[arg(long, short)]
    wait: bool,
}

/// A task as options.
#[derive(clap::Args, Default)]
#[group(skip)]
pub struct TaskOptions {
    #[command(flatten)]
    work: Work,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    files: FileOptions,
    #[command(flatten)]
    session: SessionOptions,
}

impl TaskOptions {
    /// Files of this machine are handed in on the way.
    pub async fn into_request(self, client: &Client) -> Result<TaskRequest> {
        let mut request = request(self.work, self.options, self.session)?;
        self.files.add_to(client, &mut request).await?;
        Ok(request)
    }

    /// Only what is named; `None` when nothing is.
    pub async fn into_patch(self, client: &Client) -> Result<Option<Value>> {
        let request = match self.work.is_empty() {
            true => changes(None, self.options, self.session)?,
            false => self.into_request(client).await?,
        };
        Ok(Some(json!(request)).filter(|patch| *patch != json!({})))
    }
}

/// What is to be done.
#[derive(clap::Args, Default)]
#[group(skip)]
struct Work {
    /// A line for `sh -c`
    #[arg(long, value_name = "LINE", conflicts_with_all = ["http", "kind", "command"], help_heading = "Work")]
    shell: Option<String>,
    /// An HTTP call
    #[arg(long, num_args = 2, value_names = ["METHOD", "URL"], conflicts_with_all = ["kind", "command"], help_heading = "Work")]
    http: Option<Vec<String>>,
    /// A header of the HTTP call; may be repeated
    #[arg(long, value_name = "NAME:VALUE", requires = "http", help_heading = "Work")]
    header: Vec<String>,
    /// The body of the HTTP call: text or JSON, @FILE, or - for stdin
    #[arg(long, value_name = "TEXT", requires = "http", help_heading = "Work")]
    body: Option<String>,
    /// Any kind, with --payload
    #[arg(long, value_name = "KIND", conflicts_with = "command", help_heading = "Work")]
    kind: Option<String>,
    /// The payload: JSON, @FILE, or - for stdin
    #[arg(long, value_name = "JSON", requires = "kind", help_heading = "Work")]
    payload: Option<String>,
    /// Working directory of the command [default: one of its own]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["http", "kind"], help_heading = "Work")]
    cwd: Option<PathBuf>,
    /// A variable for the command; may be repeated
    #[arg(long, value_name = "NAME=VALUE", conflicts_with_all = ["http", "kind"], help_heading = "Work")]
    env: Vec<String>,
    /// What the command reads on stdin: text, @FILE, or -
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["http", "kind"], help_heading = "Work")]
    stdin: Option<String>,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// How and when it is to be done.
#[derive(clap::Args, Default)]
#[group(skip)]
struct Options {
    /// Whose work it is [default: default]
    #[arg(long, short)]
    agent: Option<String>,
    /// The lane it runs in [default: main]
    #[arg(long, short)]
    lane: Option<String>,
    /// critical, high, normal or low
    #[arg(long, short)]
    priority: Option<Priority>,
    /// Order inside the agent, lower first
    #[arg(long, allow_negative_numbers = true)]
    rank: Option<i32>,
    /// Run after this task has completed; may be repeated
    #[arg(long, value_name = "ID")]
    after: Vec<Id>,
    /// When a task before it ends badly: cancel, fail or run
    #[arg(long, value_name = "WHAT")]
    on_dependency_failure: Option<OnDependencyFailure>,
    /// Fail when the tasks before it have not ended after this long
    #[arg(long, value_name = "SPAN")]
    dependency_timeout: Option<Span>,
    /// Not before this long from now
    #[arg(long, value_name = "SPAN", conflicts_with = "run_at")]
    delay: Option<Span>,
    /// Not before this moment (RFC 3339, or a span from now)
    #[arg(long, value_name = "TIME")]
    run_at: Option<Moment>,
    /// Fail if it has not ended by then (RFC 3339, or a span from now)
    #[arg(long, value_name = "TIME")]
    deadline: Option<Moment>,
    /// How long each attempt may take [default: 2m]
    #[arg(long, value_name = "SPAN")]
    timeout: Option<Span>,
    /// Repeats after a failed first attempt [default: 3]
    #[arg(long, value_name = "N")]
    retries: Option<u32>,
    /// The wait before the first repeat [default: 1s]
    #[arg(long, value_name = "SPAN")]
    backoff: Option<Span>,
    /// The longest wait before a repeat [default: 1m]
    #[arg(long, value_name = "SPAN")]
    max_backoff: Option<Span>,
    /// Each wait is this many times the one before [default: 2]
    #[arg(long, value_name = "FACTOR")]
    multiplier: Option<f64>,
    /// The part of a wait it may vary by [default: 0.25]
    #[arg(long, value_name = "PART")]
    jitter: Option<f64>,
    /// Classes of failure that are repeated: task, timeout, lost, quota
    #[arg(long, value_name = "CLASS", value_delimiter = ',')]
    retry_on: Vec<Class>,
    /// A configured gate to pass; may be repeated
    #[arg(long, value_name = "NAME")]
    gate: Vec<String>,
    /// Cores to reserve
    #[arg(long, value_name = "CORES")]
    cpu: Option<f64>,
    /// Memory to reserve, in MiB
    #[arg(long, value_name = "MIB")]
    ram: Option<u32>,
    /// GPUs to reserve
    #[arg(long, value_name = "N")]
    gpu: Option<u32>,
    /// Another resource to reserve; may be repeated
    #[arg(long, value_name = "NAME=N")]
    resource: Vec<String>,
    /// A label the worker must have; may be repeated
    #[arg(long, value_name = "LABEL=VALUE")]
    require: Vec<String>,
    /// A label that makes a worker a better choice
    #[arg(long, value_name = "LABEL=VALUE")]
    prefer: Vec<String>,
    /// A label that makes a worker a worse choice
    #[arg(long, value_name = "LABEL=VALUE")]
    avoid: Vec<String>,
    /// Stop and repeat an attempt that gave no sign of life for this long
    #[arg(long, value_name = "SPAN")]
    stall: Option<Span>,
    /// May be stopped for a critical task and requeued [default: true for low]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    preemptible: Option<bool>,
    /// How long it stays readable after its end
    #[arg(long, value_name = "SPAN")]
    ttl: Option<Span>,
    /// Called with a signed message when it has ended
    #[arg(long, value_name = "URL")]
    callback_url: Option<String>,
    /// When it was sent (RFC 3339); refused if its session was stopped since
    #[arg(long, value_name = "TIME")]
    sent_at: Option<Timestamp>,
    /// A word to find it by; may be repeated
    #[arg(long)]
    tag: Vec<String>,
    /// A value to keep with it; JSON or text; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    meta: Vec<String>,
    /// A name for people
    #[arg(long)]
    name: Option<String>,
    /// A repeat with the same key gives the same task
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    #[derive(Deserialize)]
    struct Submitted {
        id: Id,
        #[serde(default)]
        merged: u32,
    }
    let client = shared.client()?;
    let request = args.task.into_request(&client).await?;
    let answer = client.task_submit(&request).await?;
    let Submitted { id, merged } = answer.read_as()?;
    if merged > 0 {
        out::note(format!("merged into task {id}, which carries {} messages", merged + 1));
    }
    match (args.wait, shared.json) {
        (false, false) => out::line(id.to_string())?,
        (false, true) => out::line(&answer.text)?,
        (true, true) => {
            let task = wait::until_ended(&client, id, None, |_| {}).await?;
            out::line(&task.text)?;
            return Ok(Exit::of_state(task.view.status.state));
        }
        (true, false) => {
            out::note(format!("task {id}"));
            return logs::follow_to_end(&client, id).await;
        }
    }
    Ok(Exit::Done)
}

fn request(work: Work, options: Options, session: SessionOptions) -> Result<TaskRequest> {
    changes(Some(work.into_payload()?), options, session)
}

/// Without the work, only what else is said of it.
fn changes(work: Option<(String, Option<Json>)>, options: Options, session: SessionOptions) -> Result<TaskRequest> {
    let (kind, payload) = work.map_or((None, None), |(kind, payload)| (Some(kind), payload));
    let retry = options.retry();
    let resources = Resources {
        cpu: options.cpu,
        ram_mb: options.ram,
        gpu: options.gpu,
        named: pairs(&options.resource, '=', "--resource")?
            .into_iter()
            .map(|(name, n)| {
                Ok((name, n.parse().map_err(|_| Error::usage(format!("--resource: `{n}` is no number")))?))
            })
            .collect::<Result<_>>()?,
    };
    let place = Place {
        require: pairs(&options.require, '=', "--require")?,
        prefer: pairs(&options.prefer, '=', "--prefer")?,
        avoid: pairs(&options.avoid, '=', "--avoid")?,
        spread_by: None,
    };
    let metadata: Map<String, Value> =
        pairs(&options.meta, '=', "--meta")?.into_iter().map(|(key, text)| (key, json_or_text(text))).collect();
    Ok(TaskRequest {
        kind,
        payload,
        agent: options.agent,
        lane: options.lane,
        session: session.into_request(),
        sent_at: options.sent_at,
        priority: options.priority,
        rank: options.rank,
        depends_on: options.after.into_iter().map(Dependency::Id).collect(),
        on_dependency_failure: options.on_dependency_failure,
        dependency_timeout_ms: options.dependency_timeout.map(Span::as_ms),
        delay_ms: options.delay.map(Span::as_ms),
        run_at: options.run_at.map(|moment| moment.0),
        deadline: options.deadline.map(|moment| moment.0),
        timeout_ms: options.timeout.map(Span::as_ms),
        retry: Some(retry).filter(|retry| *retry != RetryRequest::default()),
        resources: Some(resources).filter(|resources| !resources.is_empty()),
        place: Some(place).filter(|place| !place.is_empty()),
        gates: options.gate,
        stall_ms: options.stall.map(Span::as_ms),
        preemptible: options.preemptible,
        ttl_ms: options.ttl.map(Span::as_ms),
        callback_url: options.callback_url,
        metadata: Some(metadata).filter(|metadata| !metadata.is_empty()),
        tags: options.tag,
        name: options.name,
        idempotency_key: options.idempotency_key,
        ..TaskRequest::default()
    })
}

impl Options {
    fn retry(&self) -> RetryRequest {
        RetryRequest {
            max_retries: self.retries,
            backoff_ms: self.backoff.map(Span::as_ms),
            multiplier: self.multiplier,
            max_backoff_ms: self.max_backoff.map(Span::as_ms),
            jitter: self.jitter,
            on: Some(self.retry_on.clone()).filter(|classes| !classes.is_empty()),
        }
    }
}

impl Work {
    fn is_empty(&self) -> bool {
        self.shell.is_none() && self.http.is_none() && self.kind.is_none() && self.command.is_empty()
    }

    fn into_payload(self) -> Result<(String, Option<Json>)> {
        if let Some(kind) = self.kind {
            return Ok((kind, self.payload.as_deref().map(payload_text).transpose()?));
        }
        if let Some(call) = &self.http {
            return Ok(("http".into(), Some(self.http_payload(&call[0], &call[1])?.into())));
        }
        let mut payload = match (&self.shell, self.command.as_slice()) {
            (Some(shell), _) => json!({ "shell": shell }),
            (None, []) => {
                return Err(Error::usage("there is nothing to do; try `runyard submit -- echo hi` or see --help"));
            }
            (None, argv) => json!({ "argv": argv }),
        };
        if let Some(cwd) = &self.cwd {
            payload["cwd"] = json!(absolute(cwd)?);
        }
        if !self.env.is_empty() {
            payload["env"] = json!(pairs(&self.env, '=', "--env")?);
        }
        if let Some(stdin) = &self.stdin {
            payload["stdin"] = json!(text_of(stdin)?);
        }
        Ok(("process".into(), Some(payload.into())))
    }

    fn http_payload(&self, method: &str, url: &str) -> Result<Value> {
        let mut payload = json!({ "method": method.to_uppercase(), "url": url });
        if !self.header.is_empty() {
            payload["headers"] = json!(pairs(&self.header, ':', "--header")?);
        }
        if let Some(body) = &self.body {
            payload["body"] = json_or_text(text_of(body)?);
        }
        Ok(payload)
    }
}

fn payload_text(argument: &str) -> Result<Json> {
    Json::from_text(text_of(argument)?).map_err(|error| {
        Error::usage(format!("--payload is not JSON: {error}; it looks like '{{\"key\": 1}}', @FILE or -"))
    })
}

/// The argument itself, or what `@FILE` or `-` (stdin) holds.
fn text_of(argument: &str) -> Result<String> {
    match argument.strip_prefix('@') {
        Some(file) => std::fs::read_to_string(file).map_err(|source| Error::File {
            doing: "read",
            path: PathBuf::from(file),
            source,
        }),
        None if argument == "-" => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            read.map_err(|source| Error::File { doing: "read", path: PathBuf::from("stdin"), source })?;
            Ok(text)
        }
        None => Ok(argument.to_owned()),
    }
}

fn json_or_text(text: String) -> Value {
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

fn pairs(arguments: &[String], separator: char, flag: &str) -> Result<BTreeMap<String, String>> {
    let pair = |argument: &String| match argument.split_once(separator) {
        Some((name, value)) if !name.is_empty() => Ok((name.trim().to_owned(), value.trim_start().to_owned())),
        _ => Err(Error::usage(format!("{flag}: `{argument}` is no pair; it looks like NAME{separator}VALUE"))),
    };
    arguments.iter().map(pair).collect()
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|source| Error::File { doing: "find", path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn built(line: &[&str]) -> Value {
        let line =
            Line::try_parse_from(std::iter::once(&"submit").chain(line)).unwrap_or_else(|error| panic!("{error}"));
        serde_json::to_value(request(line.args.task.work, line.args.task.options, line.args.task.session).unwrap())
            .unwrap()
    }

    #[test]
    fn a_command_becomes_a_process() {
        assert_eq!(
            built(&["--", "echo", "hi", "-n"]),
            json!({"kind": "process", "payload": {"argv": ["echo", "hi", "-n"]}})
        );
        let shell = built(&["--shell", "echo $A", "--env", "A=1=2", "--cwd", "/tmp", "--stdin", "x"]);
        assert_eq!(shell["payload"], json!({"shell": "echo $A", "env": {"A": "1=2"}, "cwd": "/tmp", "stdin": "x"}));
    }

    #[test]
    fn an_http_call_takes_json_or_text() {
        let call = built(&["--http", "post", "http://localhost/x", "--header", "A: b", "--body", "{\"n\":1}"]);
        assert_eq!(call["kind"], "http");
        assert_eq!(
            call["payload"],
            json!({"method": "POST", "url": "http://localhost/x", "headers": {"A": "b"}, "body": {"n": 1}})
        );
        assert_eq!(built(&["--http", "PUT", "http://localhost/", "--body", "plain"])["payload"]["body"], "plain");
    }

    #[test]
    fn every_option_reaches_the_request() {
        let task = built(&[
            "--kind",
            "noop",
            "--payload",
            "{\"sleepMs\": 1}",
            "--agent",
            "a",
            "--lane",
            "l",
            "--priority",
            "low",
            "--rank",
            "-2",
            "--after",
            "00000000-0000-0000-0000-000000000001",
            "--delay",
            "5s",
            "--deadline",
            "2030-01-01T00:00:00Z",
            "--timeout",
            "1m",
            "--retries",
            "0",
            "--backoff",
            "2s",
            "--retry-on",
            "task,lost",
            "--gate",
            "api",
            "--cpu",
            "0.5",
            "--ram",
            "64",
            "--resource",
            "licence=2",
            "--require",
            "zone=a",
            "--tag",
            "t",
            "--meta",
            "k=1",
            "--meta",
            "s=text",
            "--name",
            "n",
            "--idempotency-key",
            "key",
            "--ttl",
            "1h",
            "--callback-url",
            "https://example.com/done",
            "--preemptible",
            "--stall",
            "1s",
            "--on-dependency-failure",
            "run",
            "--dependency-timeout",
            "9s",
            "--sent-at",
            "2026-01-01T01:00:00+01:00",
            "--session",
            "chat:7",
            "--session-mode",
            "collect",
            "--session-cap",
            "5",
            "--session-drop",
            "summarize",
            "--session-debounce",
            "800ms",
            "--session-max-wait",
            "3s",
            "--session-max-concurrent",
            "2",
        ]);
        assert_eq!(
            task,
            json!({
                "kind": "noop", "payload": {"sleepMs": 1}, "agent": "a", "lane": "l", "priority": "low", "rank": -2,
                "dependsOn": ["00000000-0000-0000-0000-000000000001"], "onDependencyFailure": "run",
                "dependencyTimeoutMs": 9000, "delayMs": 5000, "deadline": "2030-01-01T00:00:00.000Z",
                "timeoutMs": 60_000, "retry": {"maxRetries": 0, "backoffMs": 2000, "on": ["task", "lost"]},
                "resources": {"cpu": 0.5, "ramMb": 64, "licence": 2}, "place": {"require": {"zone": "a"}},
                "gates": ["api"], "stallMs": 1000, "preemptible": true, "ttlMs": 3_600_000, "callbackUrl": "https://example.com/done",
                "metadata": {"k": 1, "s": "text"}, "tags": ["t"], "name": "n", "idempotencyKey": "key",
                "sentAt": "2026-01-01T00:00:00.000Z",
                "session": {"key": "chat:7", "mode": "collect", "cap": 5, "drop": "summarize", "debounceMs": 800,
                    "maxWaitMs": 3000, "maxConcurrent": 2}
            })
        );
    }

    #[test]
    fn a_session_alone_is_only_its_key() {
        assert_eq!(built(&["--session", "chat:7", "--", "a"])["session"], "chat:7");
    }

    #[test]
    fn contradictions_are_refused() {
        for line in [
            &["submit", "--shell", "a", "--", "b"][..],
            &["submit", "--kind", "noop", "--shell", "a"],
            &["submit", "--payload", "{}"],
            &["submit", "--delay", "1s", "--run-at", "5s", "--", "a"],
            &["submit", "--delay", "5", "--", "a"],
            &["submit", "--session-mode", "collect", "--", "a"],
            &["submit", "--kind", "noop", "--file", "a=b"],
            &["submit", "--http", "GET", "http://localhost/", "--output", "*"],
        ] {
            assert!(Line::try_parse_from(line).is_err(), "{line:?}");
        }
        let nothing = request(Work::default(), Options::default(), SessionOptions::default()).unwrap_err();
        assert!(nothing.to_string().contains("nothing to do"));
    }
}
