//! One letter and one answer: what is told, and what becomes of what is heard.

use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt;
use runyard_core::event::Held;
use runyard_core::ids::TaskId;
use runyard_exec::Places;
use runyard_exec::process::supervise::run_facts;
use runyard_wire::{LogChunk, SyncAnswer, SyncRequest, Token, WorkDone};

use super::super::files;
use super::super::ledger::{Attempt, Letter, LogPart, attempt_of};
use super::super::words;
use super::{Call, LEAVING, LOOK_EVERY, NOTHING_NEW_PAUSE, Speaker, WAIT_MS_MAX};

/// Of one answer, by task and attempt.
#[derive(Default, PartialEq)]
pub(super) struct Orders {
    starts: Vec<Attempt>,
    stops: Vec<Attempt>,
    inputs: Vec<TaskId>,
    revokes: Vec<Attempt>,
}

impl Speaker {
    pub(super) async fn write(&mut self, session: Token) -> Call {
        let (letter, request) = self.compose(session).await;
        let waits = letter.is_empty() && request.wait_ms != Some(0);
        let client = self.client.clone();
        let answer = async move { client.sync(&request).await }.boxed();
        Call { letter, answer, waits }
    }

    pub(super) async fn compose(&mut self, session: Token) -> (Arc<Letter>, SyncRequest) {
        let letter = Arc::new(self.desk.lock().letter(Instant::now()));
        let logs = read_logs(self.worker.places().clone(), letter.clone()).await;
        let done = read_ends(self.worker.places().clone(), letter.clone()).await;
        if self.looked_at.is_none_or(|at| at.elapsed() >= LOOK_EVERY) {
            self.sample = self.machine.look();
            self.looked_at = Some(Instant::now());
        }
        self.n_syncs += 1;
        let request = SyncRequest {
            session,
            seq: Some(self.n_syncs),
            metrics: Some(self.sample.clone().into()),
            unhealthy: self.is_leaving.then(|| LEAVING.to_owned()),
            leaving: false,
            want: self.is_leaving.then_some(0),
            held: self.worker.held().into_iter().map(words::held_lease).collect(),
            started: letter.started.iter().copied().map(words::held_lease).collect(),
            alive: letter.alive.iter().copied().map(words::held_lease).collect(),
            inputs: letter.inputs.iter().map(|(lease, message)| words::input_taken(*lease, *message)).collect(),
            done,
            progress: letter.progress.iter().map(|(lease, said)| words::progress_note(*lease, said)).collect(),
            logs,
            wait_ms: Some(if letter.is_empty() { self.wait_ms } else { 0 }),
        };
        (letter, request)
    }

    pub(super) async fn hear(&mut self, letter: &Letter, answer: SyncAnswer) {
        self.wait_ms = answer.heartbeat_ms.clamp(1, WAIT_MS_MAX);
        let ordered = Orders::of(&answer);
        let is_old = ordered != Orders::default() && ordered == self.ordered;
        self.rest_until = is_old.then(|| Instant::now() + NOTHING_NEW_PAUSE);
        self.ordered = ordered;
        let taken: Vec<(Attempt, u64)> =
            answer.logged.iter().map(|log| ((TaskId(log.task.0), log.attempt), log.offset)).collect();
        self.desk.lock().delivered(letter, &taken);
        self.acknowledge(letter).await;
        let refused = answer.refused.iter().map(|refused| (TaskId(refused.task.0), refused.attempt));
        let revoked = answer.revoked.iter().map(|revoked| (TaskId(revoked.task.0), revoked.attempt));
        refused.chain(revoked).for_each(|attempt| self.give_up(attempt));
        let worker = self.worker.id();
        let starts = answer.start.into_iter().map(|order| {
            let start = words::start(worker, &order);
            self.secrets.put((start.task, start.attempt), &order.agent, order.secrets.0);
            start
        });
        let starts: Vec<_> = starts.collect();
        if !starts.is_empty() {
            self.worker.start(starts);
        }
        for order in answer.stop {
            let lease = words::lease(order.task, order.attempt, order.token);
            tracing::debug!(task = %order.task, attempt = order.attempt, reason = order.reason, "is to stop");
            self.worker.stop_for(lease);
        }
        for order in answer.input {
            let lease = words::lease(order.task, order.attempt, order.token);
            self.worker.hand_in(lease, TaskId(order.message.0), order.text);
        }
    }

    /// What the letter told is stored: nothing of it is needed here any more. Done before anything new begins, which may
    /// be the next attempt of the same task.
    async fn acknowledge(&self, letter: &Letter) {
        let inputs = letter.inputs.iter().map(|(lease, message)| (lease.task, lease.attempt, *message));
        self.worker.acknowledge_inputs(inputs);
        if letter.done.is_empty() {
            return;
        }
        let ends: Vec<Held> = letter.done.iter().map(|(lease, _)| *lease).collect();
        self.worker.acknowledge_all(ends.iter().map(|lease| attempt_of(*lease)));
        ends.iter().for_each(|lease| self.secrets.drop_of(attempt_of(*lease)));
        let places = self.worker.places().clone();
        let removal = move || ends.iter().for_each(|lease| files::remove_told(&places, *lease));
        let _ = tokio::task::spawn_blocking(removal).await;
    }

    fn give_up(&self, attempt: Attempt) {
        tracing::info!(task = ?attempt.0, attempt = attempt.1, "is not this worker's any more");
        self.worker.revoke(attempt.0, attempt.1);
        self.desk.lock().forget(attempt);
        self.secrets.drop_of(attempt);
    }
}

impl Orders {
    fn of(answer: &SyncAnswer) -> Orders {
        Orders {
            starts: answer.start.iter().map(|it| (TaskId(it.task.0), it.attempt)).collect(),
            stops: answer.stop.iter().map(|it| (TaskId(it.task.0), it.attempt)).collect(),
            inputs: answer.input.iter().map(|it| TaskId(it.message.0)).collect(),
            revokes: answer.revoked.iter().map(|it| (TaskId(it.task.0), it.attempt)).collect(),
        }
    }
}

/// Ends, with what is recorded of their exits.
async fn read_ends(places: Places, letter: Arc<Letter>) -> Vec<WorkDone> {
    if letter.done.is_empty() {
        return Vec::new();
    }
    let read = move || {
        let end = |(lease, report): &(Held, _)| {
            let exit = run_facts(&places, lease.task.0, lease.attempt).exit;
            words::work_done(*lease, report, exit.filter(|exit| exit.attempt == lease.attempt))
        };
        letter.done.iter().map(end).collect()
    };
    tokio::task::spawn_blocking(read).await.expect("reading a record does not panic")
}

async fn read_logs(places: Places, letter: Arc<Letter>) -> Vec<LogChunk> {
    if letter.logs.is_empty() {
        return Vec::new();
    }
    let read = move || {
        let chunk = |part: &LogPart| {
            let path = places.log_file(part.lease.task.0, part.lease.attempt);
            match files::read_part(&path, part.offset, part.bytes) {
                Ok(bytes) => Some(words::log_chunk(*part, &bytes)),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "a log cannot be read");
                    None
                }
            }
        };
        letter.logs.iter().filter_map(chunk).collect()
    };
    tokio::task::spawn_blocking(read).await.unwrap_or_default()
}
