//! Traces for a collector: OTLP over HTTP, as JSON.
//!
//! A span is made when a task has ended, from its row and its trail, so nothing is kept in memory while it runs and a
//! restart loses nothing of it. Whoever is too slow to take the spans is not waited for: they are dropped and counted.
//!
//! The endpoint is the operator's own word, so the guard of outgoing connections does not apply to it.

mod send;
mod span;

use std::sync::{Arc, Weak};
use std::time::Duration;

use runyard_core::event::Subject;
use runyard_core::ids::TaskId;
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::config::Telemetry;
use crate::feed::Commit;
use send::Collector;
use span::{Span, spans_of};

/// Ended tasks that may wait for the collector.
const ENDS_MAX: usize = 16_384;
/// Spans in one request.
const SPANS_MAX: usize = 512;
/// The first of a request waits no longer for others.
const GATHER_MAX: Duration = Duration::from_secs(5);
/// Tasks read at once.
const READ_MAX: usize = 128;

/// Ends after `stop`, when all that was committed by then has been sent.
pub fn spawn(app: Arc<App>, commits: broadcast::Receiver<Weak<Commit>>, stop: CancellationToken) -> JoinHandle<()> {
    let (ends, ended) = mpsc::channel(ENDS_MAX);
    tokio::spawn(follow(app.clone(), commits, ends, stop));
    tokio::spawn(export(app, ended))
}

/// Only ids are queued: a burst of ends costs 16 bytes for each.
async fn follow(
    app: Arc<App>,
    mut commits: broadcast::Receiver<Weak<Commit>>,
    ends: mpsc::Sender<TaskId>,
    stop: CancellationToken,
) {
    loop {
        let commit = tokio::select! {
            // First what has been committed, then the stop.
            biased;
            commit = commits.recv() => commit,
            () = stop.cancelled() => return,
        };
        match commit.map(|commit| commit.upgrade()) {
            Err(broadcast::error::RecvError::Closed) => return,
            _ if !is_on(&app) => {}
            Ok(Some(commit)) => queue(&app, &commit, &ends),
            // How many ended in them nobody knows; each had something in it.
            Ok(None) => app.metrics.spans_dropped(1),
            Err(broadcast::error::RecvError::Lagged(n)) => app.metrics.spans_dropped(n),
        }
    }
}

fn is_on(app: &App) -> bool {
    !app.config.current().config.telemetry.otlp_endpoint.is_empty()
}

fn queue(app: &App, commit: &Commit, ends: &mpsc::Sender<TaskId>) {
    for happening in commit.happenings.iter().filter(|happening| happening.kind.ends_a_task()) {
        if let Subject::Task(facts) = &happening.subject
            && ends.try_send(facts.task).is_err()
        {
            app.metrics.spans_dropped(1);
        }
    }
}

async fn export(app: Arc<App>, mut ended: mpsc::Receiver<TaskId>) {
    let mut collector = Collector::default();
    let mut waiting: Vec<Span> = Vec::new();
    let mut until = None;
    loop {
        let mut tasks = Vec::new();
        let gathered = async {
            match until {
                Some(until) => tokio::time::timeout_at(until, ended.recv_many(&mut tasks, READ_MAX)).await,
                None => Ok(ended.recv_many(&mut tasks, READ_MAX).await),
            }
        };
        let is_over = gathered.await == Ok(0);
        waiting.extend(read(&app, tasks).await);
        if until.is_none() && !waiting.is_empty() {
            until = Some(Instant::now() + GATHER_MAX);
        }
        while waiting.len() >= SPANS_MAX || (!waiting.is_empty() && (is_over || until.is_some_and(is_past))) {
            let rest = waiting.split_off(waiting.len().min(SPANS_MAX));
            let n = waiting.len() as u64;
            if !collector.send(&settings(&app), std::mem::replace(&mut waiting, rest)).await {
                app.metrics.spans_dropped(n);
            }
        }
        if waiting.is_empty() {
            until = None;
        }
        if is_over {
            return;
        }
    }
}

fn is_past(until: Instant) -> bool {
    Instant::now() >= until
}

fn settings(app: &App) -> Telemetry {
    app.config.current().config.telemetry.clone()
}

async fn read(app: &Arc<App>, tasks: Vec<TaskId>) -> Vec<Span> {
    if tasks.is_empty() {
        return Vec::new();
    }
    let n = tasks.len() as u64;
    let docs =
        app.read(move |reader| tasks.into_iter().map(|task| reader.task(task)).collect::<Result<Vec<_>, _>>()).await;
    match docs {
        Ok(docs) => docs.iter().flatten().flat_map(|doc| spans_of(doc, |id| app.worker_name(id))).collect(),
        Err(error) => {
            tracing::warn!(target: "runyard::otlp", %error, "ended tasks cannot be read");
            app.metrics.spans_dropped(n);
            Vec::new()
        }
    }
}
