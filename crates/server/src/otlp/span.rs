//! From a task that has ended to its spans: one for itself, one below it for each attempt.
//!
//! Ids follow from the task's id alone, so a task that is told twice is told with the same ones. There is no text of the
//! task in them but its names: payloads, results and messages may hold what nobody else should read.

use runyard_core::ids::WorkerId;
use runyard_core::now::WallMs;
use runyard_core::task::Class;
use runyard_core::trail::{Step, StepKind};
use runyard_store::store::TaskDoc;
use runyard_wire::Id;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::view;

#[derive(Serialize, Clone, PartialEq, Debug)]
#[serde(rename_all = "camelCase")]
pub struct Span {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    name: String,
    /// Internal.
    kind: u8,
    /// 64-bit numbers are texts in OTLP's JSON.
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<Attribute>,
    status: Status,
}

#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Attribute {
    key: &'static str,
    value: AttributeValue,
}

#[derive(Serialize, Clone, PartialEq, Debug)]
#[serde(rename_all = "camelCase")]
enum AttributeValue {
    StringValue(String),
    IntValue(String),
}

#[derive(Serialize, Clone, PartialEq, Debug)]
struct Status {
    code: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'static str>,
}

pub fn text(key: &'static str, value: impl ToString) -> Attribute {
    Attribute { key, value: AttributeValue::StringValue(value.to_string()) }
}

fn number(key: &'static str, value: u32) -> Attribute {
    Attribute { key, value: AttributeValue::IntValue(value.to_string()) }
}

/// None for a task whose submitter said that its trace is not recorded.
pub fn spans_of(doc: &TaskDoc, worker_name: impl Fn(WorkerId) -> String) -> Vec<Span> {
    let task = &doc.task;
    let given = doc.spec.as_deref().and_then(|spec| view::read_spec(spec).ok()?.traceparent);
    let Some(context) = Context::of(given.as_deref(), task.id.0) else { return Vec::new() };
    let own = span_id(task.id.0, 0);
    let class = task.error.as_ref().map(|failure| failure.class);
    let mut attributes = names(doc);
    attributes.push(text("runyard.state", task.state.phase().as_str()));
    attributes.push(number("runyard.attempts", task.n_runs));
    attributes.extend(class.map(|class| text("runyard.class", class.as_str())));
    let ended_at = task.finished_at.unwrap_or(task.created_at);
    let root = Span {
        trace_id: context.trace_id.clone(),
        span_id: own.clone(),
        parent_span_id: context.parent,
        name: format!("task {}", doc.kind),
        kind: 1,
        start_time_unix_nano: nanos(task.created_at),
        end_time_unix_nano: nanos(ended_at.max(task.created_at)),
        attributes,
        status: status(task.trail.steps().last().map(|step| step.kind), class),
    };
    let attempts = attempts(task.trail.steps());
    let last = attempts.last().map(|attempt| attempt.n);
    let below = attempts.into_iter().map(|attempt| {
        let worker = task.worker.filter(|_| Some(attempt.n) == last).map(&worker_name);
        attempt.span(doc, &context.trace_id, &own, worker)
    });
    std::iter::once(root).chain(below).collect()
}

struct Context {
    trace_id: String,
    parent: Option<String>,
}

impl Context {
    /// What the submitter's trace is; without one, the task's id is as good as any other.
    fn of(traceparent: Option<&str>, task: u128) -> Option<Context> {
        let Some(given) = traceparent else { return Some(Context { trace_id: format!("{task:032x}"), parent: None }) };
        let mut parts = given.split('-').skip(1);
        let (trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?);
        let is_recorded = u8::from_str_radix(flags, 16).is_ok_and(|flags| flags & 1 == 1);
        is_recorded.then(|| Context { trace_id: trace.to_owned(), parent: Some(parent.to_owned()) })
    }
}

#[derive(PartialEq, Debug)]
struct Attempt {
    n: u32,
    began_at: WallMs,
    ended_at: WallMs,
    outcome: StepKind,
    class: Option<Class>,
}

impl Attempt {
    fn span(self, doc: &TaskDoc, trace_id: &str, parent: &str, worker: Option<String>) -> Span {
        let mut attributes = names(doc);
        attributes.push(number("runyard.attempt", self.n));
        attributes.push(text("runyard.outcome", self.outcome.as_str()));
        attributes.extend(self.class.map(|class| text("runyard.class", class.as_str())));
        attributes.extend(worker.map(|worker| text("runyard.worker", worker)));
        Span {
            trace_id: trace_id.to_owned(),
            span_id: span_id(doc.task.id.0, self.n),
            parent_span_id: Some(parent.to_owned()),
            name: format!("attempt {}", self.n),
            kind: 1,
            start_time_unix_nano: nanos(self.began_at),
            end_time_unix_nano: nanos(self.ended_at),
            attributes,
            status: status(Some(self.outcome), self.class),
        }
    }
}

/// An attempt begins when it is handed to a worker, or starts there, and ends with what takes it away again.
fn attempts(steps: impl Iterator<Item = Step>) -> Vec<Attempt> {
    let mut ended = Vec::new();
    let mut open: Option<Step> = None;
    for step in steps {
        match step.kind {
            StepKind::Assigned | StepKind::Started => open = Some(step),
            StepKind::Retrying | StepKind::Preempted | StepKind::Lost | StepKind::Queued => {
                ended.extend(close(&mut open, step))
            }
            kind if kind.is_end() => ended.extend(close(&mut open, step)),
            _ => {}
        }
    }
    ended
}

fn close(open: &mut Option<Step>, step: Step) -> Option<Attempt> {
    let began = open.take()?;
    let class = step.detail.checked_sub(1).and_then(Class::from_code);
    let ended_at = step.at_ms.max(began.at_ms);
    Some(Attempt { n: began.attempt, began_at: began.at_ms, ended_at, outcome: step.kind, class })
}

fn names(doc: &TaskDoc) -> Vec<Attribute> {
    let batch = doc.task.batch.map(|batch| text("runyard.batch", Id(batch.0)));
    let named = [
        text("runyard.task", Id(doc.task.id.0)),
        text("runyard.agent", &doc.agent),
        text("runyard.lane", &doc.lane),
        text("runyard.kind", &doc.kind),
        text("runyard.priority", doc.tier.as_str()),
    ];
    named.into_iter().chain(batch).collect()
}

/// 1 is ok, 2 is an error, 0 says nothing: who cancels a task does not call it broken.
fn status(outcome: Option<StepKind>, class: Option<Class>) -> Status {
    match outcome {
        Some(StepKind::Completed) => Status { code: 1, message: None },
        Some(StepKind::Failed | StepKind::Rejected | StepKind::Retrying | StepKind::Lost) => {
            Status { code: 2, message: class.map(Class::as_str) }
        }
        _ => Status { code: 0, message: None },
    }
}

fn nanos(at_ms: WallMs) -> String {
    (u128::from(at_ms) * 1_000_000).to_string()
}

/// Of an attempt; 0 is the task itself.
fn span_id(task: u128, attempt: u32) -> String {
    let mut hash = Sha256::new();
    hash.update(task.to_be_bytes());
    hash.update(attempt.to_be_bytes());
    let digest = hash.finalize();
    let first = digest.first_chunk::<8>().expect("a digest has 32 bytes");
    // Zero means that there is none.
    format!("{:016x}", u64::from_be_bytes(*first).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(kind: StepKind, attempt: u32, at_ms: WallMs, class: Option<Class>) -> Step {
        Step { kind, detail: class.map_or(0, |class| class as u8 + 1), attempt, at_ms }
    }

    #[test]
    fn an_attempt_lasts_from_its_start_to_what_ended_it() {
        let trail = [
            step(StepKind::Created, 0, 1, None),
            step(StepKind::Queued, 0, 2, None),
            step(StepKind::Assigned, 1, 3, None),
            step(StepKind::Started, 1, 4, None),
            step(StepKind::Retrying, 1, 9, Some(Class::Timeout)),
            step(StepKind::Queued, 1, 20, None),
            step(StepKind::Assigned, 2, 21, None),
            step(StepKind::Stopping, 2, 22, None),
            step(StepKind::Cancelled, 2, 25, None),
        ];
        let attempt = |n, began_at, ended_at, outcome, class| Attempt { n, began_at, ended_at, outcome, class };
        let expected =
            [attempt(1, 4, 9, StepKind::Retrying, Some(Class::Timeout)), attempt(2, 21, 25, StepKind::Cancelled, None)];
        assert_eq!(attempts(trail.into_iter()), expected);
    }

    #[test]
    fn a_trace_is_the_submitters_or_follows_from_the_task() {
        let own = Context::of(None, 0xabc).expect("recorded");
        assert_eq!((own.trace_id.as_str(), own.parent), ("00000000000000000000000000000abc", None));
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let given = |flags: &str| Context::of(Some(&format!("00-{trace}-b7ad6b7169203331-{flags}")), 1);
        let recorded = given("01").expect("recorded");
        assert_eq!((recorded.trace_id.as_str(), recorded.parent.as_deref()), (trace, Some("b7ad6b7169203331")));
        assert!(given("00").is_none(), "its submitter does not record it");
        assert_ne!(span_id(7, 0), span_id(7, 1));
        assert_eq!(span_id(7, 1), span_id(7, 1));
    }
}
