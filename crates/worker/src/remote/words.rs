//! Between the words of the protocol and those of the scheduler.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use runyard_core::event::{Fault, Held, Report, Start};
use runyard_core::ids::{TaskId, Token, WorkerId};
use runyard_core::name::Name;
use runyard_core::session::Usage;
use runyard_core::task::Class;
use runyard_exec::process::supervise::ExitFacts;
use runyard_wire::{
    self as wire, FaultOf, HeldLease, Id, InputTaken, Json, LogChunk, ProgressNote, StartOrder, UsageView, WorkDone,
    WorkEnd, WorkExit, WorkOutcome,
};
use serde::Serialize;

use super::ledger::LogPart;

pub(super) fn held_lease(lease: Held) -> HeldLease {
    HeldLease { task: Id(lease.task.0), attempt: lease.attempt, token: wire::Token(lease.token.0) }
}

pub(super) fn lease(task: Id, attempt: u32, token: wire::Token) -> Held {
    Held { task: TaskId(task.0), attempt, token: Token(token.0) }
}

pub(super) fn input_taken(lease: Held, message: TaskId) -> InputTaken {
    let HeldLease { task, attempt, token } = held_lease(lease);
    InputTaken { task, attempt, token, message: Id(message.0) }
}

pub(super) fn progress_note(lease: Held, progress: &runyard_exec::Progress) -> ProgressNote {
    let HeldLease { task, attempt, token } = held_lease(lease);
    ProgressNote { task, attempt, token, fraction: progress.fraction, message: progress.message.clone() }
}

pub(super) fn log_chunk(part: LogPart, bytes: &[u8]) -> LogChunk {
    let HeldLease { task, attempt, token } = held_lease(part.lease);
    LogChunk { task, attempt, token, offset: part.offset, data: BASE64_STANDARD.encode(bytes) }
}

pub(super) fn work_done(lease: Held, report: &Report, exit: Option<ExitFacts>) -> WorkDone {
    let HeldLease { task, attempt, token } = held_lease(lease);
    WorkDone { task, attempt, token, outcome: WorkOutcome { exit: exit.map(work_exit), ..outcome(report) } }
}

fn work_exit(exit: ExitFacts) -> WorkExit {
    let ExitFacts { exit_code, signal, out_of_memory, cpu_seconds, peak_rss_bytes, wall_ms, .. } = exit;
    WorkExit { exit_code, signal, out_of_memory, cpu_seconds, peak_rss_bytes, wall_ms }
}

fn outcome(report: &Report) -> WorkOutcome {
    let of = |state| WorkOutcome { state, ..WorkOutcome::default() };
    match report {
        Report::Completed { result, usage } => WorkOutcome {
            result: result.as_deref().and_then(json),
            usage: usage.map(usage_view),
            ..of(WorkEnd::Completed)
        },
        Report::Failed { class, message, retry_after_ms, result, usage, fault } => WorkOutcome {
            class: Some(class_word(*class)),
            message: Some(message.to_string()),
            retry_after_ms: *retry_after_ms,
            result: result.as_deref().and_then(json),
            usage: usage.map(usage_view),
            fault: Some(match fault {
                Fault::Work => FaultOf::Work,
                Fault::Worker => FaultOf::Worker,
            }),
            ..of(WorkEnd::Failed)
        },
        Report::Stopped => of(WorkEnd::Stopped),
        Report::NotStarted { reason } => WorkOutcome { message: Some(reason.to_string()), ..of(WorkEnd::NotStarted) },
        Report::Started | Report::Alive | Report::InputTaken { .. } => unreachable!("only ends are done"),
    }
}

/// Executors give JSON; what is none after all is told as a text.
fn json(bytes: &[u8]) -> Option<Json> {
    let text = String::from_utf8_lossy(bytes);
    Json::from_text(text.to_string()).or_else(|_| Json::of(&text)).ok()
}

fn class_word(class: Class) -> wire::Class {
    match class {
        Class::Task => wire::Class::Task,
        Class::Timeout => wire::Class::Timeout,
        Class::Lost => wire::Class::Lost,
        Class::Quota => wire::Class::Quota,
        Class::Permanent => wire::Class::Permanent,
        Class::Deadline => wire::Class::Deadline,
    }
}

fn usage_view(usage: Usage) -> UsageView {
    UsageView {
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        context_tokens: usage.context_tokens,
        context_window: usage.context_window,
    }
}

/// As the scheduler's own would be: the spec says what only executors read.
pub(super) fn start(worker: WorkerId, order: &StartOrder) -> Start {
    #[derive(Serialize)]
    struct Spec<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        payload: Option<&'a Json>,
        #[serde(skip_serializing_if = "Option::is_none")]
        limits: Option<&'a wire::Limits>,
        #[serde(skip_serializing_if = "Option::is_none")]
        traceparent: Option<&'a str>,
    }
    let spec = Spec {
        payload: order.payload.as_ref(),
        limits: order.limits.as_ref(),
        traceparent: order.traceparent.as_deref(),
    };
    let spec = serde_json::to_vec(&spec).expect("wire types can always be written");
    Start {
        worker,
        task: TaskId(order.task.0),
        seq: 0,
        attempt: order.attempt,
        token: Token(order.token.0),
        agent: Name::new(&order.agent),
        kind: Name::new(&order.kind),
        deadline: order.deadline.map(|at| at.as_ms()),
        timeout_ms: order.timeout_ms,
        watch_silence: order.watch_silence,
        spec: Some(spec.into()),
        session: order.session.as_deref().map(Name::new),
        n_merged: 0,
        told: None,
        merged: Vec::new(),
        dropped: Vec::new(),
    }
}
