//! From a start to a job. A spec is a submitted task as JSON; only what an executor needs is read, and a payload that
//! stands alone is passed on unparsed.

use std::sync::Arc;
use std::time::Duration;

use runyard_core::event::{Fault, Report, Start};
use runyard_core::task::Class;
use runyard_exec::log::LOG_BYTES_MAX;
use runyard_exec::{Job, Kind, noop};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::defaults::{Defaults, Rules};
use crate::merge::{input_text, merge};

#[derive(Deserialize)]
struct Spec<'a> {
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    limits: Option<Limits>,
    traceparent: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Limits {
    output_bytes: Option<u64>,
    #[serde(flatten)]
    of_process: runyard_exec::Limits,
}

/// What becomes of a start.
pub(crate) enum Prepared {
    Run(Box<Job>),
    /// It ends where it starts.
    Ended(Report),
}

pub(crate) fn prepare(start: &Start, grace: Duration, rules: &Rules) -> Prepared {
    // A program that was offered by this name is meant, whatever else the name could mean.
    let program = rules.programs.get(start.kind.as_str());
    let Some(kind) = program.map(|_| Kind::Process).or_else(|| Kind::parse(&start.kind)) else {
        let message = format!("this worker has no executor for kind `{}`", start.kind);
        return Prepared::Ended(broken(Class::Permanent, message));
    };
    let Some(blob) = &start.spec else {
        return Prepared::Ended(broken(Class::Task, "the task's spec did not come with its start".to_owned()));
    };
    match read(blob, start) {
        Ok(task) if kind == Kind::Noop && noop::is_empty(task.payload.as_deref()) => {
            Prepared::Ended(Report::Completed { result: None, usage: None })
        }
        // It was allowed when it was submitted; that may be long ago.
        Ok(task) => match task.payload.as_deref().map_or(Ok(()), |payload| (rules.may_run)(&start.kind, payload)) {
            Ok(()) => {
                let job = job(start, kind, task, grace, &rules.defaults);
                Prepared::Run(Box::new(Job { program: program.cloned(), ..job }))
            }
            Err(rule) => Prepared::Ended(broken(Class::Permanent, rule)),
        },
        Err(error) => Prepared::Ended(broken(Class::Permanent, format!("the task's spec cannot be read: {error}"))),
    }
}

/// The text of a message for a task that runs.
pub fn input_of(spec: &[u8]) -> serde_json::Result<String> {
    let spec: Spec = serde_json::from_slice(spec)?;
    Ok(input_text(spec.payload))
}

/// What the executor needs of a task and the messages it carries.
struct Carried {
    payload: Option<Box<RawValue>>,
    output_bytes: Option<u64>,
    limits: runyard_exec::Limits,
    traceparent: Option<String>,
}

fn read(own: &[u8], start: &Start) -> serde_json::Result<Carried> {
    let messages = std::iter::once(own).chain(start.merged.iter().map(|blob| &**blob));
    let messages = messages.map(serde_json::from_slice).collect::<serde_json::Result<Vec<Spec>>>()?;
    let dropped = start.dropped.iter().map(|blob| serde_json::from_slice(blob));
    let dropped = dropped.collect::<serde_json::Result<Vec<Spec>>>()?;
    // As with the payload, the last message's word counts.
    let limits = messages.last().and_then(|spec| spec.limits.as_ref());
    let output_bytes = limits.and_then(|limits| limits.output_bytes);
    let limits = limits.map_or_else(Default::default, |limits| limits.of_process);
    let traceparent = messages.last().and_then(|spec| spec.traceparent.clone());
    Ok(Carried { traceparent, payload: merge(&payloads(&messages), &payloads(&dropped)), output_bytes, limits })
}

fn payloads<'a>(specs: &[Spec<'a>]) -> Vec<Option<&'a RawValue>> {
    specs.iter().map(|spec| spec.payload).collect()
}

fn job(start: &Start, kind: Kind, task: Carried, grace: Duration, defaults: &Defaults) -> Job {
    let given = defaults.of(kind);
    let output_bytes = task.output_bytes.or(given.output_bytes);
    Job {
        task: start.task.0,
        attempt: start.attempt,
        token: start.token.0,
        agent: Arc::from(start.agent.as_str()),
        session: start.session.as_deref().map(Arc::from),
        traceparent: task.traceparent,
        kind,
        program: None,
        payload: task.payload,
        deadline: start.deadline,
        timeout_ms: start.timeout_ms,
        watch_silence: start.watch_silence,
        output_bytes_max: output_bytes.unwrap_or(LOG_BYTES_MAX).min(LOG_BYTES_MAX),
        limits: task.limits.or(given.limits),
        sandbox: given.sandbox,
        workspace: given.workspace,
        docker: given.docker,
        grace,
    }
}

fn broken(class: Class, message: String) -> Report {
    Report::Failed {
        class,
        message: message.into(),
        retry_after_ms: None,
        result: None,
        usage: None,
        fault: Fault::Worker,
    }
}
