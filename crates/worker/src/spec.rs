//! From a start to a job. The spec is the submitted task as JSON; only what an executor needs is read, and the payload
//! is passed on unparsed.

use std::sync::Arc;
use std::time::Duration;

use runyard_core::event::{Fault, Report, Start};
use runyard_core::task::Class;
use runyard_exec::log::LOG_BYTES_MAX;
use runyard_exec::{Job, Kind, noop};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct Spec<'a> {
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    limits: Option<Limits>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Limits {
    output_bytes: Option<u64>,
}

/// What becomes of a start.
pub(crate) enum Prepared {
    Run(Box<Job>),
    /// It ends where it starts.
    Ended(Report),
}

pub(crate) fn prepare(start: &Start, grace: Duration) -> Prepared {
    let Some(kind) = Kind::parse(&start.kind) else {
        let message = format!("this worker has no executor for kind `{}`", start.kind);
        return Prepared::Ended(broken(Class::Permanent, message));
    };
    let Some(blob) = &start.spec else {
        return Prepared::Ended(broken(Class::Task, "the task's spec did not come with its start".to_owned()));
    };
    match serde_json::from_slice::<Spec>(blob) {
        Ok(spec) if kind == Kind::Noop && noop::is_empty(spec.payload) => {
            Prepared::Ended(Report::Completed { result: None })
        }
        Ok(spec) => Prepared::Run(Box::new(job(start, kind, &spec, grace))),
        Err(error) => Prepared::Ended(broken(Class::Permanent, format!("the task's spec cannot be read: {error}"))),
    }
}

fn job(start: &Start, kind: Kind, spec: &Spec, grace: Duration) -> Job {
    let output_bytes = spec.limits.as_ref().and_then(|limits| limits.output_bytes);
    Job {
        task: start.task.0,
        attempt: start.attempt,
        agent: Arc::from(start.agent.as_str()),
        kind,
        payload: spec.payload.map(RawValue::to_owned),
        deadline: start.deadline,
        output_bytes_max: output_bytes.unwrap_or(LOG_BYTES_MAX).min(LOG_BYTES_MAX),
        grace,
    }
}

fn broken(class: Class, message: String) -> Report {
    Report::Failed { class, message: message.into(), retry_after_ms: None, result: None, fault: Fault::Worker }
}
