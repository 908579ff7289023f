//! The server's own log: one structured line for each submit, start, finish, retry, cancel, rejection, expiry, reload.

use std::io::IsTerminal;
use std::sync::Weak;

use runyard_core::event::{Happening, HappeningKind, Subject, TaskFacts};
use runyard_core::task::Class;
use runyard_wire::Id;
use tokio::sync::broadcast;
use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};
use crate::feed::Commit;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("[log] level `{level}` is none of error, warn, info, debug, trace, nor a list of target=level")]
    Level {
        level: String,
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
}

/// Sets the process's log up, on standard error. A second call (tests start many servers) changes nothing.
pub fn init(log: &Log) -> Result<(), Error> {
    let filter = EnvFilter::try_new(&log.level).map_err(|source| Error::Level { level: log.level.clone(), source })?;
    // <https://no-color.org>: any value that is not empty turns colours off.
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colours = std::io::stderr().is_terminal() && !no_color;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr);
    let _ = match log.format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder.try_init(),
    };
    Ok(())
}

/// Writes the lines of tasks on a thread of their own: a log that is slow to write holds nobody up. What comes faster
/// than it can be written is counted instead; the event log has it all. Does nothing when nobody reads these lines.
pub fn spawn_task_log(commits: broadcast::Receiver<Weak<Commit>>) {
    if !tracing::enabled!(target: "runyard::task", tracing::Level::INFO) {
        return;
    }
    let thread = std::thread::Builder::new().name("task-log".into()).spawn(move || log_commits(commits));
    if let Err(error) = thread {
        tracing::warn!(target: "runyard::task", %error, "tasks are not logged");
    }
}

fn log_commits(mut commits: broadcast::Receiver<Weak<Commit>>) {
    let mut n_missed = 0;
    loop {
        match commits.blocking_recv().map(|commit| commit.upgrade()) {
            Ok(Some(commit)) => {
                if n_missed > 0 {
                    tracing::warn!(target: "runyard::task", commits = n_missed, "too much happened to log each of it");
                    n_missed = 0;
                }
                log_happenings(&commit.happenings);
            }
            Ok(None) => n_missed += 1,
            Err(broadcast::error::RecvError::Lagged(n)) => n_missed += n,
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}

fn log_happenings(happenings: &[Happening]) {
    for happening in happenings {
        match &happening.subject {
            Subject::Task(facts) => log_task(happening.kind, facts),
            Subject::Batch(batch) => tracing::info!(
                target: "runyard::task",
                batch = %Id(batch.id.0),
                total = batch.n_total,
                completed = batch.n_completed,
                failed = batch.n_failed,
                cancelled = batch.n_cancelled,
                "batch finished"
            ),
            Subject::Session(session) => tracing::info!(
                target: "runyard::session",
                session = %session.key,
                generation = session.generation,
                "{}",
                happening.kind.as_str()
            ),
            Subject::Worker { name, reason, .. } => tracing::info!(
                target: "runyard::worker",
                worker = %name,
                reason = Some(reason.as_ref()).filter(|reason| !reason.is_empty()),
                "{}",
                happening.kind.as_str()
            ),
            Subject::Schedule(facts) => tracing::info!(
                target: "runyard::schedule",
                schedule = %facts.name,
                run = facts.run,
                task = facts.task.map(|task| Id(task.0)).map(tracing::field::display),
                reason = Some(facts.reason.as_ref()).filter(|reason| !reason.is_empty()),
                "{}",
                happening.kind.as_str()
            ),
            // The reload itself is logged where it is done, with what changed.
            Subject::Config => {}
            Subject::Node { name } => {
                tracing::info!(target: "runyard::nodes", node = %name, "{}", happening.kind.as_str());
            }
        }
    }
}

fn log_task(kind: HappeningKind, facts: &TaskFacts) {
    let what = match (kind, facts.class) {
        (HappeningKind::TaskCreated, _) => "submitted",
        (HappeningKind::TaskStarted, _) => "started",
        (HappeningKind::TaskRetrying, _) => "retrying",
        (HappeningKind::TaskPreempted, _) => "preempted",
        (HappeningKind::TaskStalled, _) => "stalled",
        (HappeningKind::TaskCompleted, _) => "completed",
        (HappeningKind::TaskFailed, Some(Class::Deadline)) => "expired",
        (HappeningKind::TaskFailed, _) => "failed",
        (HappeningKind::TaskCancelled, _) => "cancelled",
        (HappeningKind::TaskRejected, _) => "rejected",
        (HappeningKind::TaskMerged, _) => "merged",
        // Its end follows at once and says the same.
        (HappeningKind::TaskDropped, _) => return,
        // Queued follows from submitted, retrying or a parent's end: a line of its own would say nothing new.
        _ => return,
    };
    tracing::info!(
        target: "runyard::task",
        task = %Id(facts.task.0),
        agent = %facts.agent,
        lane = %facts.lane,
        kind = %facts.kind,
        session = facts.session.as_deref(),
        attempt = Some(facts.attempt).filter(|attempt| *attempt > 0),
        class = facts.class.map(Class::as_str),
        elapsed_ms = facts.elapsed_ms,
        reason = Some(facts.reason.as_ref()).filter(|reason| !reason.is_empty()),
        "{what}"
    );
}
