//! `noop`: completes at once; for demos and tests it can take a while, fail, or give a result.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::job::Job;
use crate::outcome::{Class, Failure, Outcome};
use crate::payload::NoopPayload;

/// Does this payload ask for nothing at all? Such a task ends where it starts, without a run of its own.
pub fn is_empty(payload: Option<&RawValue>) -> bool {
    payload.is_none_or(|payload| matches!(payload.get(), "{}" | "null"))
}

pub async fn run(job: &Job, stop: &CancellationToken) -> Outcome {
    let payload = match NoopPayload::parse(job.payload.as_deref()) {
        Ok(payload) => payload,
        Err(error) => return Failure::from(error).into(),
    };
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(payload.sleep_ms)) => end(payload),
        () = stop.cancelled() => Outcome::Stopped,
    }
}

fn end(payload: NoopPayload) -> Outcome {
    let result = payload.result.map(|result| String::from(Box::<str>::from(result)).into_bytes());
    let Some(class) = payload.fail else { return Outcome::Completed { result, usage: None } };
    let message = match class {
        Class::Task => "the no-op was told to fail",
        Class::Timeout => "the no-op was told to time out",
        Class::Quota => "the no-op was told to meet a limit",
        Class::Permanent => "the no-op was told to fail for good",
    };
    Failure { result, ..Failure::work(class, message) }.into()
}
