//! How a task is shown: its row joined with what was stored of its request. Payload and result pass through as the
//! bytes they are.

use runyard_core::config::LANE_MAIN;
use runyard_core::event::{Happening, NewTask, Subject, TaskFacts};
use runyard_core::explain::Explanation;
use runyard_core::name::Name;
use runyard_core::task::{Class, OnDependencyFailure, Phase, Retry, Stop, Task, Tier};
use runyard_core::trail::{Step, StepKind};
use runyard_exec::Kind;
use runyard_exec::process::supervise::{ExitFacts, run_facts};
use runyard_store::store::TaskDoc;
use runyard_wire as wire;
use runyard_wire::{
    ErrorView, EventView, ExitView, ExplainView, GateView, Id, Json, PlaceInLine, RetrySpec, StepView, StoredSpec,
    TaskSchedule, TaskSpec, TaskStatus, TaskView, Timestamp,
};
use serde_json::json;

mod schedule;
mod session;

pub use schedule::{described, next_runs, run_view, schedule_cursor, schedule_view};
pub use session::session_view;

use crate::app::App;
use crate::config::to_process_defaults;
use crate::intake::runs_a_program;
use crate::problem::Error;

/// What is shown of a task beside its row: the names in its flow, and its session's.
pub struct Labels {
    pub agent: Name,
    pub lane: Name,
    pub kind: Name,
    pub tier: Tier,
    pub session: Option<Name>,
}

impl Labels {
    pub fn of(new: &NewTask) -> Labels {
        let flow = &new.flow;
        Labels {
            agent: flow.agent.clone(),
            lane: flow.lane.clone(),
            kind: flow.shape.kind.clone(),
            tier: flow.tier,
            session: new.session.as_ref().map(|member| member.key.clone()),
        }
    }
}

/// A task as the store has it.
pub fn doc_view(app: &App, doc: TaskDoc) -> Result<TaskView, Error> {
    let stored = stored_spec(&doc)?;
    let result = doc.result.as_deref().map(json_of).transpose()?;
    let TaskDoc { task, agent, lane, kind, tier, session, .. } = doc;
    let labels = Labels { agent, lane, kind, tier, session };
    Ok(task_view(app, &task, labels, stored, result))
}

/// A rejection was recorded without its payload.
pub fn stored_spec(doc: &TaskDoc) -> Result<StoredSpec, Error> {
    doc.spec.as_deref().map_or(Ok(StoredSpec::default()), read_spec)
}

pub fn read_spec(spec: &[u8]) -> Result<StoredSpec, Error> {
    serde_json::from_slice(spec).map_err(|_| Error::Internal("a stored task cannot be read".into()))
}

pub fn task_view(app: &App, task: &Task, labels: Labels, stored: StoredSpec, result: Option<Json>) -> TaskView {
    let config = app.config.current();
    let falls_back = !config.config.lanes.contains_key(&*labels.lane);
    let status = TaskStatus {
        id: Id(task.id.0),
        state: state(task.phase()),
        reason: reason(task, falls_back, &labels.lane),
        lane_in_force: falls_back.then(|| LANE_MAIN.to_owned()),
        attempts: task.n_runs,
        retries_left: task.retries_left(),
        worker: task.worker.map(|id| app.worker_name(id)),
        batch_id: task.batch.map(|id| Id(id.0)),
        retry_of: stored.retry_of,
        schedule: task.origin.map(|origin| TaskSchedule { id: Id(origin.schedule.0), run: origin.run }),
        traceparent: stored.traceparent.clone(),
        merged: task.member.map_or(0, |member| member.n_merged),
        steered_into: task.steers.map(|id| Id(id.0)),
        usage: task.usage.as_deref().map(session::usage_view),
        result,
        error: task
            .error
            .as_ref()
            .map(|error| ErrorView { class: class(error.class), message: error.message.to_string() }),
        execution_ms: task.finished_at.zip(task.started_at).map(|(end, start)| end.saturating_sub(start)),
        progress: progress(app, task),
        exit: None,
        not_enforced: expected_unmet(app, &labels.kind, stored.limits.as_ref()),
        created_at: Timestamp(task.created_at),
        queued_at: task.queued_at.map(Timestamp),
        assigned_at: task.assigned_at.map(Timestamp),
        started_at: task.started_at.map(Timestamp),
        finished_at: task.finished_at.map(Timestamp),
    };
    TaskView { status, spec: spec(task, labels, stored) }
}

/// Programs run on this machine only, so it is known before they do.
fn expected_unmet(app: &App, kind: &str, limits: Option<&wire::Limits>) -> Vec<String> {
    if kind != Kind::Process.as_str() {
        return Vec::new();
    }
    let own = limits.map_or_else(Default::default, |limits| runyard_exec::Limits {
        cpu: limits.cpu,
        ram_mb: limits.ram_mb,
        pids: limits.pids,
    });
    let configured = to_process_defaults(&app.config.current().config).limits;
    runyard_exec::process::not_enforced(&own.or(configured))
}

/// One task, with what its files tell of how it runs or ran.
pub async fn whole_view(app: &App, doc: TaskDoc) -> Result<TaskView, Error> {
    let (id, attempt) = (doc.task.id, doc.task.attempt);
    let mut view = doc_view(app, doc)?;
    if runs_a_program(&view.spec.kind) && attempt > 0 {
        let places = app.worker.places().clone();
        let read = tokio::task::spawn_blocking(move || run_facts(&places, id.0, attempt)).await;
        let facts = read.map_err(|_| Error::Internal("a read ended without an answer".into()))?;
        view.status.exit = facts.exit.and_then(exit_view);
        view.status.not_enforced = facts.not_enforced.unwrap_or(view.status.not_enforced);
    }
    Ok(view)
}

/// A record whose time cannot be read is not one of ours.
fn exit_view(exit: ExitFacts) -> Option<ExitView> {
    Some(ExitView {
        attempt: exit.attempt,
        exit_code: exit.exit_code,
        signal: exit.signal,
        out_of_memory: exit.out_of_memory,
        cpu_seconds: exit.cpu_seconds,
        peak_rss_bytes: exit.peak_rss_bytes,
        wall_ms: exit.wall_ms,
        ended_at: exit.ended_at.parse().ok()?,
    })
}

fn spec(task: &Task, labels: Labels, stored: StoredSpec) -> TaskSpec {
    let policy = &task.policy;
    TaskSpec {
        kind: labels.kind.to_string(),
        payload: stored.payload,
        agent: labels.agent.to_string(),
        lane: labels.lane.to_string(),
        session: labels.session.map(|key| key.to_string()),
        sent_at: stored.sent_at,
        priority: priority(labels.tier),
        rank: task.rank,
        depends_on: stored.depends_on,
        on_dependency_failure: on_dependency_failure(policy.on_dependency_failure),
        dependency_timeout_ms: stored.dependency_timeout_ms,
        delay_ms: stored.delay_ms,
        run_at: task.run_at.map(Timestamp),
        deadline: task.deadline.map(Timestamp),
        timeout_ms: policy.timeout_ms,
        retry: retry_spec(&policy.retry),
        resources: stored.resources,
        limits: stored.limits,
        place: stored.place,
        gates: stored.gates,
        stall_ms: policy.stall_ms,
        preemptible: policy.preemptible,
        ttl_ms: policy.ttl_ms,
        callback_url: stored.callback_url,
        metadata: stored.metadata,
        tags: stored.tags,
        name: stored.name,
        idempotency_key: stored.idempotency_key,
    }
}

/// The first answer again, whatever became of the task since.
pub fn as_first_answered(mut view: TaskView, phase: Phase) -> TaskView {
    let status = &mut view.status;
    status.state = state(phase);
    status.reason = String::new();
    status.attempts = 0;
    status.retries_left = view.spec.retry.max_retries;
    status.worker = None;
    status.usage = None;
    status.result = None;
    status.error = None;
    status.execution_ms = None;
    status.progress = None;
    status.exit = None;
    status.queued_at = status.queued_at.filter(|_| phase == Phase::Queued);
    status.assigned_at = None;
    status.started_at = None;
    status.finished_at = None;
    view
}

fn reason(task: &Task, falls_back: bool, lane: &str) -> String {
    if task.reason.is_empty() && falls_back && !task.phase().is_terminal() {
        return format!("lane `{lane}` is not configured: it runs in `{LANE_MAIN}`");
    }
    task.reason.to_string()
}

fn progress(app: &App, task: &Task) -> Option<wire::Progress> {
    if !task.phase().is_held() {
        return None;
    }
    app.progress(task.id, task.attempt).map(wire_progress)
}

pub fn wire_progress(progress: runyard_worker::Progress) -> wire::Progress {
    wire::Progress { fraction: progress.fraction, message: progress.message }
}

fn json_of(bytes: &[u8]) -> Result<Json, Error> {
    let text = String::from_utf8(bytes.to_vec()).map_err(|_| Error::Internal("a stored result is no text".into()))?;
    Json::from_text(text).map_err(|_| Error::Internal("a stored result is no JSON".into()))
}

pub fn state(phase: Phase) -> wire::TaskState {
    match phase {
        Phase::Waiting => wire::TaskState::Waiting,
        Phase::Scheduled => wire::TaskState::Scheduled,
        Phase::Queued => wire::TaskState::Queued,
        Phase::Assigned => wire::TaskState::Assigned,
        Phase::Running => wire::TaskState::Running,
        Phase::Completed => wire::TaskState::Completed,
        Phase::Failed => wire::TaskState::Failed,
        Phase::Cancelled => wire::TaskState::Cancelled,
        Phase::Rejected => wire::TaskState::Rejected,
    }
}

pub fn phase(state: wire::TaskState) -> Phase {
    Phase::ALL.into_iter().find(|phase| self::state(*phase) == state).expect("each state has its phase")
}

pub fn priority(tier: Tier) -> wire::Priority {
    match tier {
        Tier::Critical => wire::Priority::Critical,
        Tier::High => wire::Priority::High,
        Tier::Normal => wire::Priority::Normal,
        Tier::Low => wire::Priority::Low,
    }
}

pub fn class(class: Class) -> wire::Class {
    match class {
        Class::Task => wire::Class::Task,
        Class::Timeout => wire::Class::Timeout,
        Class::Lost => wire::Class::Lost,
        Class::Quota => wire::Class::Quota,
        Class::Permanent => wire::Class::Permanent,
        Class::Deadline => wire::Class::Deadline,
    }
}

pub fn on_dependency_failure(asked: OnDependencyFailure) -> wire::OnDependencyFailure {
    match asked {
        OnDependencyFailure::Cancel => wire::OnDependencyFailure::Cancel,
        OnDependencyFailure::Fail => wire::OnDependencyFailure::Fail,
        OnDependencyFailure::Run => wire::OnDependencyFailure::Run,
    }
}

pub fn retry_spec(retry: &Retry) -> RetrySpec {
    RetrySpec {
        max_retries: retry.max_retries,
        backoff_ms: retry.backoff_ms,
        multiplier: f64::from(retry.multiplier_milli) / 1000.0,
        max_backoff_ms: retry.backoff_ms_max,
        jitter: f64::from(retry.jitter_milli) / 1000.0,
        on: Class::ALL.into_iter().filter(|class| retry.on & class.bit() != 0).map(class).collect(),
    }
}

pub fn step_view(step: Step) -> StepView {
    let code = step.detail.checked_sub(1);
    let detail = code.and_then(|code| match step.kind {
        StepKind::Stopping => Stop::from_code(code).map(Stop::as_str),
        _ => Class::from_code(code).map(Class::as_str),
    });
    StepView {
        step: step.kind.as_str().to_owned(),
        at: Timestamp(step.at_ms),
        attempt: step.attempt,
        detail: detail.map(str::to_owned),
    }
}

pub fn event_view(id: String, happening: &Happening) -> EventView {
    let mut view = EventView { id: Some(id), ..bare_event(happening.kind.as_str(), happening.at_ms) };
    match &happening.subject {
        Subject::Task(facts) => add_facts(&mut view, facts),
        Subject::Batch(batch) => {
            view.batch = Some(Id(batch.id.0));
            let counts = json!({
                "total": batch.n_total,
                "completed": batch.n_completed,
                "failed": batch.n_failed,
                "cancelled": batch.n_cancelled,
            });
            view.data = Some(counts.into());
        }
        Subject::Session(session) => {
            view.session = Some(session.key.to_string());
            let counts = session::counts(session);
            view.data = Some(json!({ "generation": session.generation, "counts": counts }).into());
        }
        Subject::Worker { worker, name, reason } => {
            view.data = Some(json!({ "worker": Id(worker.0), "name": name.as_str() }).into());
            view.reason = Some(reason.to_string()).filter(|reason| !reason.is_empty());
        }
        Subject::Schedule(facts) => schedule::add_schedule_facts(&mut view, facts),
        Subject::Config => {}
        Subject::Node { name } => view.data = Some(json!({ "node": name.as_str() }).into()),
    }
    view
}

/// Not in the log, so it has no id: a client that comes back goes on behind the last event that has one.
pub fn progress_event(kind: &str, at_ms: u64, event: runyard_worker::ProgressEvent) -> EventView {
    EventView {
        task: Some(Id(event.task.0)),
        attempt: Some(event.attempt),
        data: Some(json!(wire_progress(event.progress)).into()),
        ..bare_event(kind, at_ms)
    }
}

fn bare_event(kind: &str, at_ms: u64) -> EventView {
    EventView {
        id: None,
        kind: kind.to_owned(),
        at: Timestamp(at_ms),
        task: None,
        agent: None,
        lane: None,
        task_kind: None,
        priority: None,
        batch: None,
        session: None,
        schedule: None,
        attempt: None,
        class: None,
        reason: None,
        data: None,
    }
}

fn add_facts(view: &mut EventView, facts: &TaskFacts) {
    view.task = Some(Id(facts.task.0));
    view.agent = Some(facts.agent.to_string());
    view.lane = Some(facts.lane.to_string());
    view.task_kind = Some(facts.kind.to_string());
    view.priority = Some(priority(facts.tier));
    view.batch = facts.batch.map(|id| Id(id.0));
    view.session = facts.session.as_ref().map(|key| key.to_string());
    view.attempt = Some(facts.attempt).filter(|attempt| *attempt > 0);
    view.class = facts.class.map(class);
    view.reason = Some(facts.reason.to_string()).filter(|reason| !reason.is_empty());
    view.data = facts.elapsed_ms.map(|ms| json!({ "elapsedMs": ms }).into());
}

pub fn explain_view(explanation: &Explanation) -> ExplainView {
    let gates = explanation.gates.iter().map(|gate| GateView {
        kind: gate.kind.to_owned(),
        name: gate.name.to_string(),
        open: gate.open,
        current: gate.current,
        limit: gate.limit,
        holders: gate.holders.iter().map(|id| Id(id.0)).collect(),
        since: gate.since_ms.map(Timestamp),
        opens_at: gate.opens_at_ms.map(Timestamp),
        detail: gate.detail.to_string(),
    });
    let place = explanation.ahead.map(|ahead| PlaceInLine {
        ahead: ahead.n,
        at_least: ahead.at_least,
        next_served: explanation.next.map(|id| Id(id.0)),
    });
    ExplainView {
        task: Id(explanation.task.0),
        state: state(explanation.phase),
        reason: explanation.reason.to_string(),
        summary: summary(explanation),
        gates: gates.collect(),
        place,
    }
}

/// The answer in one sentence: the first closed gate decides, the others are in the list.
fn summary(explanation: &Explanation) -> String {
    let phase = explanation.phase;
    if phase.is_terminal() {
        return format!("It has ended: {}.", phase.as_str());
    }
    if phase.is_held() {
        return match explanation.reason.as_ref() {
            "" => format!("It is {}.", phase.as_str()),
            reason => format!("It is {}: {reason}.", phase.as_str()),
        };
    }
    let closed: Vec<_> = explanation.closed().collect();
    let Some(first) = closed.first() else {
        return match explanation.ahead {
            Some(ahead) if ahead.n > 0 => {
                format!(
                    "It waits for its turn: {}{} go before it.",
                    if ahead.at_least { "at least " } else { "" },
                    ahead.n
                )
            }
            _ => "Nothing holds it back: it starts as soon as it is its turn.".to_owned(),
        };
    };
    let what = if first.name.is_empty() { first.kind.to_owned() } else { format!("{} `{}`", first.kind, first.name) };
    let used = match (first.current, first.limit) {
        (Some(current), Some(limit)) => format!(" ({current} of {limit})"),
        _ => String::new(),
    };
    let detail = if first.detail.is_empty() { String::new() } else { format!(": {}", first.detail) };
    let more = if closed.len() > 1 { format!("; {} more closed", closed.len() - 1) } else { String::new() };
    format!("It waits for {what}{used}{detail}{more}.")
}
