//! What workers say: joined, alive, gone, and how an attempt went. Only the live lease is believed.

use crate::core::{Core, answer};
use crate::event::{Admit, Answer, Command, Fault, HappeningKind, HeartbeatAnswer, Report};
use crate::hash::mix;
use crate::ids::{TaskId, Ticket, Token, WorkerId};
use crate::lifecycle::Why;
use crate::now::Now;
use crate::planted::Bug;
use crate::submit::STOPPING_FOR_CANCEL;
use crate::task::{Class, Delay, Failure, Lease, Retry, State, Stop, Text};
use crate::trail::StepKind;

impl Core {
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn on_report(
        &mut self,
        now: Now,
        worker: WorkerId,
        id: TaskId,
        attempt: u32,
        token: Token,
        report: Report,
        out: &mut Vec<Command>,
    ) {
        let Some(lease) = self.live_lease(worker, id, attempt, token) else {
            out.push(Command::Revoke { worker, task: id, attempt });
            return;
        };
        match report {
            Report::Started => self.on_started(now, id, lease),
            Report::Alive => self.on_alive(now, id),
            Report::InputTaken { message } => self.on_input_taken(now, id, message),
            ended => self.on_ended(now, id, lease, ended),
        }
    }

    /// A stale token, attempt or worker is refused and changes nothing.
    pub(crate) fn live_lease(&self, worker: WorkerId, id: TaskId, attempt: u32, token: Token) -> Option<Lease> {
        let task = &self.tasks.get(&id)?.task;
        let lease = *task.state.lease()?;
        if self.has_bug(Bug::StaleTokenTaken) {
            return Some(lease);
        }
        (task.attempt == attempt && lease.token == token && lease.worker == worker).then_some(lease)
    }

    fn on_started(&mut self, now: Now, id: TaskId, lease: Lease) {
        if matches!(self.entry(id).task.state, State::Running(_)) {
            return;
        }
        self.entry_mut(id).task.n_runs += 1;
        let reason = self.entry(id).task.reason.clone();
        let lease = Lease { since_ms: now.steady_ms, ..lease };
        self.transition(now, id, State::Running(lease), Why::because(reason));
        self.look_for_input(id);
    }

    /// Only counts where silence is measured: not before the start, nor while it is stopped, nor, after a restart of the
    /// scheduler, before its worker is back.
    fn on_alive(&mut self, now: Now, id: TaskId) {
        let entry = self.entry(id);
        if let (Some(_), Some(stall_ms)) = (entry.stall, entry.task.policy.stall_ms) {
            self.set_silence(id, now.steady_ms.saturating_add(stall_ms));
        }
    }

    pub(crate) fn on_heartbeat(&mut self, now: Now, ticket: Ticket, id: TaskId, out: &mut Vec<Command>) {
        let task = self.tasks.get(&id).map(|entry| &entry.task);
        let result = match task.map(|task| (task.phase(), task.stop())) {
            None => HeartbeatAnswer::NotFound,
            Some((_, Some(_))) => HeartbeatAnswer::Stopping,
            // Work can be quicker than the report that it has begun.
            Some((phase, None)) if phase.is_held() => {
                if !self.has_bug(Bug::HeartbeatNotCounted) {
                    self.on_alive(now, id);
                }
                HeartbeatAnswer::Noted
            }
            Some((phase, None)) => HeartbeatAnswer::NotRunning(phase),
        };
        answer(out, ticket, Answer::Heartbeat(result));
    }

    fn on_ended(&mut self, now: Now, id: TaskId, lease: Lease, report: Report) {
        let ran = !matches!(report, Report::NotStarted { .. });
        if ran && matches!(self.entry(id).task.state, State::Assigned(_)) && !matches!(report, Report::Stopped) {
            // Its start report came with its end: one write for both.
            let entry = self.entry_mut(id);
            entry.task.n_runs += 1;
            entry.task.started_at = Some(entry.task.assigned_at.unwrap_or(now.wall_ms));
            let waited_ms = entry.waited_ms;
            let flow = self.flow_of(&self.entry(id).task);
            self.tell_one(now, HappeningKind::TaskStarted, id, flow, Why::default(), Some(waited_ms));
        }
        let is_lost = match report {
            Report::Failed { class: Class::Lost, .. } | Report::Failed { fault: Fault::Worker, .. } => true,
            // Nobody asked: the executor lost it.
            Report::Stopped => lease.stop.is_none(),
            _ => false,
        };
        if is_lost {
            self.cool(now, lease.worker);
        }
        if let Report::Completed { usage: Some(usage), .. } | Report::Failed { usage: Some(usage), .. } = &report {
            self.on_usage(id, usage);
        }
        let is_overridden = self.has_bug(Bug::CancelOverridden) && matches!(report, Report::Completed { .. });
        match lease.stop.filter(|_| !is_overridden) {
            Some(stop) => self.stopped(now, id, stop),
            None => self.ended_by_itself(now, id, report),
        }
    }

    /// The next state was fixed when the stop was asked for, whatever the work made of it.
    fn stopped(&mut self, now: Now, id: TaskId, stop: Stop) {
        let flow = self.flow_of(&self.entry(id).task);
        let policy = self.entry(id).task.policy;
        match stop {
            Stop::Cancel => {
                let reason = self.entry(id).task.reason.clone();
                let reason = reason.strip_prefix(STOPPING_FOR_CANCEL).unwrap_or("cancelled").to_owned();
                self.cancel(now, id, reason);
            }
            Stop::Timeout => {
                let message = format!("timed out after {} ms", policy.timeout_ms);
                self.attempt_failed(now, id, Class::Timeout, message.into(), None);
            }
            Stop::Stalled => {
                let message = format!("no sign of life for {} ms", policy.stall_ms.unwrap_or(0));
                self.attempt_failed(now, id, Class::Timeout, message.into(), None);
            }
            Stop::Deadline => self.fail(now, id, Class::Deadline, "deadline exceeded while running", "deadline"),
            Stop::Preempted => {
                self.entry_mut(id).task.n_preempted += 1;
                self.tell_preempted(now, id, flow);
                self.requeue(now, id, "preempted by a critical task", StepKind::Preempted);
            }
            Stop::Shutdown => self.requeue(now, id, "the server stopped", StepKind::Queued),
            Stop::NotStarted => {
                // A worker that does not get round to it is the best place by its score, again and again.
                self.entry_mut(id).task.note_failed_place();
                self.requeue(now, id, "not started in time, taken back", StepKind::Queued);
            }
        }
    }

    fn ended_by_itself(&mut self, now: Now, id: TaskId, report: Report) {
        match report {
            Report::Completed { result, .. } => {
                let entry = self.entry_mut(id);
                entry.result = result;
                entry.task.error = None;
                self.transition(now, id, State::Completed, Why::default());
            }
            Report::Failed { class, message, retry_after_ms, result, .. } => {
                self.entry_mut(id).result = result;
                self.attempt_failed(now, id, class, message, retry_after_ms);
            }
            Report::NotStarted { reason } => self.requeue(now, id, reason, StepKind::Queued),
            // Stopped without being asked: the executor lost it.
            Report::Stopped => {
                self.attempt_failed(now, id, Class::Lost, "stopped without being asked to".into(), None);
            }
            Report::Started | Report::Alive | Report::InputTaken { .. } => unreachable!("only ends come here"),
        }
    }

    /// Back to its old place, without delay and without using a retry.
    pub(crate) fn requeue(&mut self, now: Now, id: TaskId, reason: impl Into<Text>, step: StepKind) {
        let to = State::Queued { since_ms: now.steady_ms };
        self.transition(now, id, to, Why { reason: reason.into(), class: None, step: Some(step) });
    }

    /// One attempt failed: again later, or for good.
    pub(crate) fn attempt_failed(
        &mut self,
        now: Now,
        id: TaskId,
        class: Class,
        message: Text,
        retry_after_ms: Option<u64>,
    ) {
        let entry = self.entry_mut(id);
        entry.task.error = Some(Box::new(Failure { class, message: message.clone() }));
        entry.task.note_failed_place();
        let policy = entry.task.policy;
        if policy.retry.on & class.bit() == 0 || matches!(class, Class::Permanent | Class::Deadline) {
            return self.fail(now, id, class, message, "");
        }
        match class {
            Class::Lost => self.attempt_lost(now, id, message),
            Class::Quota => {
                let task = &mut self.entry_mut(id).task;
                task.n_quota += 1;
                if task.n_quota > self.config.quota_max {
                    let reason = format!("the provider's limit was met {} times", self.config.quota_max);
                    return self.fail(now, id, class, message, reason);
                }
                let n = self.entry(id).task.n_quota;
                // A provider that says "at once" and then refuses again must not be hammered.
                let asked_ms = retry_after_ms.map(|ms| ms.max(policy.retry.backoff_ms));
                let wait_ms = asked_ms.unwrap_or_else(|| backoff_ms(&policy.retry, id, n));
                self.retry(now, id, class, message, wait_ms.min(self.config.quota_wait_ms_max));
            }
            _ => {
                let retries_max = policy.retry.max_retries + u32::from(self.has_bug(Bug::RetryOverMax));
                let task = &mut self.entry_mut(id).task;
                if task.retries_used >= retries_max {
                    return self.fail(now, id, class, message, "no retries left");
                }
                task.retries_used += 1;
                let n = task.retries_used;
                self.retry(now, id, class, message, backoff_ms(&policy.retry, id, n));
            }
        }
    }

    /// A loss has a ledger of its own, so that a crash-looping task ends, and goes back without delay.
    fn attempt_lost(&mut self, now: Now, id: TaskId, message: Text) {
        let counts = !self.has_bug(Bug::LossNotCounted);
        let task = &mut self.entry_mut(id).task;
        task.n_lost += u32::from(counts);
        let n = task.n_lost;
        if n >= self.config.lost_max {
            return self.fail(now, id, Class::Lost, message, format!("lost {n} times"));
        }
        self.tell_retrying(now, id, Class::Lost, message.clone());
        self.requeue(now, id, message, StepKind::Lost);
    }

    fn retry(&mut self, now: Now, id: TaskId, class: Class, message: Text, wait_ms: u64) {
        let deadline = self.entry(id).task.deadline;
        if deadline.is_some_and(|deadline| now.wall_ms.saturating_add(wait_ms) >= deadline) {
            return self.fail(now, id, class, message, "a retry could only start after the deadline");
        }
        self.tell_retrying(now, id, class, message.clone());
        let to = State::Scheduled(Delay::Backoff(now.steady_ms.saturating_add(wait_ms)));
        let reason = format!("retries in {wait_ms} ms: {message}");
        self.transition(now, id, to, Why { reason: reason.into(), class: Some(class), step: Some(StepKind::Retrying) });
    }

    fn tell_retrying(&mut self, now: Now, id: TaskId, class: Class, reason: Text) {
        let flow = self.flow_of(&self.entry(id).task);
        self.delta(flow).retried += 1;
        let why = Why { reason, class: Some(class), step: None };
        self.tell_one(now, HappeningKind::TaskRetrying, id, flow, why, None);
    }

    /// The attempt is gone without a word. A stop that was asked for is thereby done.
    pub(crate) fn lost(&mut self, now: Now, id: TaskId, reason: &str) {
        match self.entry(id).task.state {
            State::Assigned(Lease { stop: Some(stop), .. }) | State::Running(Lease { stop: Some(stop), .. }) => {
                self.stopped(now, id, stop);
            }
            // Handed out and, as far as anybody knows, never begun: that costs nothing.
            State::Assigned(_) => self.requeue(now, id, reason.to_owned(), StepKind::Lost),
            _ => self.attempt_failed(now, id, Class::Lost, reason.to_owned().into(), None),
        }
    }

    pub(crate) fn on_admit(&mut self, now: Now, admit: Admit, ticket: Option<Ticket>, out: &mut Vec<Command>) {
        self.admit = admit;
        if let Some(&gate) = self.gate_by_key.get(&crate::gate::GateKey::Global) {
            self.gate_configure(gate);
            self.gate_changed(gate);
            self.wake_keepers(gate);
        }
        if admit == Admit::Stopping {
            let here: Vec<WorkerId> = self.fleet.workers.values().filter(|w| w.joined).map(|w| w.spec.id).collect();
            here.into_iter().for_each(|worker| self.stop_with_server(now, worker, out));
        }
        if let Some(ticket) = ticket {
            answer(out, ticket, Answer::Done);
        }
    }
}

/// backoffMs, then × multiplier, capped, ± jitter derived from the task and the count.
pub fn backoff_ms(retry: &Retry, task: TaskId, n: u32) -> u64 {
    let mut wait_ms = retry.backoff_ms.min(retry.backoff_ms_max);
    for _ in 1..n {
        if wait_ms >= retry.backoff_ms_max {
            break;
        }
        wait_ms = wait_ms.saturating_mul(u64::from(retry.multiplier_milli)) / 1000;
    }
    let wait_ms = wait_ms.min(retry.backoff_ms_max);
    let span = wait_ms.saturating_mul(u64::from(retry.jitter_milli)) / 1000;
    let draw = mix(task.0 as u64 ^ mix((task.0 >> 64) as u64 ^ u64::from(n))) % (2 * span + 1);
    wait_ms - span + draw
}
