//! What the events of one tick must lead to. They are played through on the oracle's own copy of the leases, in order,
//! before the scheduler sees them.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::sync::Arc;

use runyard_core::config::Config;
use runyard_core::event::{
    Admit, CancelAnswer, Change, ChangeRefusal, Event, Fault, HeartbeatAnswer, Held, Report, SessionAct, Submission,
    WorkerSpec,
};
use runyard_core::ids::{TaskId, Ticket, Token, WorkerId};
use runyard_core::name::Name;
use runyard_core::now::Now;
use runyard_core::session::Context;
use runyard_core::task::{Class, Delay, Lease, Phase, State, Stop, Task};

use crate::fleet::Reply;
use crate::oracle::{Oracle, WorkerShadow};
use crate::quiet::Expected;
use crate::schedules::Wish;
use crate::sessions::Step;

/// One tick as it should go.
#[derive(Default)]
pub struct Forecast {
    pub(crate) tasks: BTreeMap<TaskId, Foreseen>,
    pub(crate) cancels: BTreeMap<Ticket, (TaskId, Option<CancelAnswer>)>,
    pub(crate) changes: BTreeMap<Ticket, (Change, Option<ChangeRefusal>)>,
    pub(crate) heartbeats: BTreeMap<Ticket, (TaskId, Option<HeartbeatAnswer>)>,
    pub(crate) submissions: Vec<(Submission, Admit)>,
    pub(crate) revokes: Vec<(WorkerId, TaskId, u32)>,
    pub(crate) acts: Vec<(Ticket, Name, SessionAct)>,
    /// Whom a stop of the oldest is for, and how many run when a whole session is stopped.
    pub(crate) stops: BTreeMap<Ticket, Option<TaskId>>,
    pub(crate) n_running: BTreeMap<Ticket, u32>,
    /// What sessions take note of, in order, and the configuration it began with.
    pub(crate) steps: Vec<Step>,
    pub(crate) config_before: Arc<Config>,
    pub(crate) expected: Vec<Expected>,
    /// Messages that some running task says it has taken in.
    pub(crate) taken: BTreeSet<TaskId>,
    /// How workers on other machines are answered.
    pub(crate) replies: BTreeMap<Ticket, Reply>,
}

/// A task that an event of the tick touched.
pub(crate) struct Foreseen {
    pub(crate) before: Task,
    /// As the events leave it; what follows in the tick (releases, times, starts) comes on top.
    pub(crate) task: Task,
    /// Ways its attempt may have ended. None: nothing ended it, and what is held stays held.
    pub(crate) fates: Vec<(Fate, Ledger)>,
    /// A change came on top: where it stands now is checked by the rows' own rules only.
    pub(crate) is_moved: bool,
    /// It was moved and taken in: only the row tells which came first.
    pub(crate) is_unsure: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Ended(Phase, Option<Class>),
    /// Back in its queue, or handed out again.
    Requeued,
    /// A retry after so many milliseconds, from and to.
    Backoff(Class, u64, u64),
}

pub(crate) type Ledger = [u32; 4];

pub(crate) enum End {
    Completed,
    Failed {
        class: Class,
        retry_after_ms: Option<u64>,
    },
    NotStarted,
    /// Stopped, and nobody asked for it.
    Dropped,
    /// Its worker is gone, or came back without it.
    Gone,
}

impl Foreseen {
    /// A retry that its deadline may forbid, or a message that was moved, and may have joined its session and ended there:
    /// only the row tells which it was.
    pub(crate) fn is_vague(&self) -> bool {
        self.is_unsure
            || self.is_moved && self.task.member.is_some()
            || self.task.deadline.is_some() && self.fates.iter().any(|(fate, _)| matches!(fate, Fate::Backoff(..)))
    }
}

impl Oracle {
    pub fn foresee(&mut self, now: Now, events: &[Event]) -> Forecast {
        self.advance(now);
        let mut forecast = Forecast { config_before: self.config.clone(), ..Forecast::default() };
        if std::mem::take(&mut self.is_stopping_anew) {
            self.stop_all(&mut forecast);
        }
        for event in events {
            self.foresee_one(event, &mut forecast);
        }
        self.foresee_lines(events, &mut forecast);
        self.foresee_silence(&mut forecast);
        forecast
    }

    fn foresee_one(&mut self, event: &Event, forecast: &mut Forecast) {
        match event {
            Event::Submit(submission) => {
                for item in &submission.items {
                    self.births.insert(item.id, item.clone());
                }
                forecast.steps.push(Step::Submit(submission.clone()));
                forecast.submissions.push((submission.clone(), self.admit));
            }
            Event::Schedule { ticket, id, act } => {
                let (admit, schedules_max) = (self.admit, self.config.schedules_max);
                let wish = Wish { ticket: *ticket, id: *id, act: act.clone(), admit, schedules_max };
                forecast.steps.push(Step::Wish(Box::new(wish)));
            }
            Event::Session { ticket, key, act } => self.foresee_act(*ticket, key, *act, forecast),
            Event::Cancel { ticket, task, .. } => self.foresee_cancel(*ticket, *task, forecast),
            Event::Change { ticket, task, change } => {
                let Some(foreseen) = self.touch(*task, forecast) else {
                    if !self.births.contains_key(task) {
                        forecast.changes.insert(*ticket, (change.clone(), Some(ChangeRefusal::NotFound)));
                    }
                    return;
                };
                if foreseen.is_vague() {
                    foreseen.is_moved = true;
                    return;
                }
                let phase = foreseen.task.phase();
                let refusal = if phase.is_terminal() {
                    Some(ChangeRefusal::Terminal(phase))
                } else if phase.is_held() {
                    Some(ChangeRefusal::Started(phase))
                } else if change.deadline.flatten().is_some_and(|deadline| deadline <= self.now.wall_ms) {
                    Some(ChangeRefusal::DeadlinePassed)
                } else {
                    foreseen.is_moved = true;
                    None
                };
                forecast.changes.insert(*ticket, (change.clone(), refusal));
            }
            Event::Heartbeat { ticket, task } => self.foresee_heartbeat(*ticket, *task, forecast),
            Event::WorkerJoined { worker, held } => self.foresee_joined(worker, held, forecast),
            Event::Worker { ticket, worker, act } => self.foresee_worker(*ticket, *worker, act, forecast),
            Event::WorkerSeen { worker, .. } => {
                if let Some(worker) = self.workers.get_mut(worker) {
                    worker.seen_ms = self.now.steady_ms;
                }
            }
            Event::WorkerGone { worker, .. } => self.foresee_gone(*worker, forecast),
            Event::Report { worker, task, attempt, token, report } => {
                if self.is_live(*worker, *task, *attempt, *token, forecast) {
                    self.foresee_report(*worker, *task, report, forecast);
                } else {
                    forecast.revokes.push((*worker, *task, *attempt));
                }
            }
            Event::Configure { config, .. } => {
                self.config = config.clone();
                forecast.steps.push(Step::Config(config.clone()));
            }
            Event::Admit { admit, .. } => {
                self.admit = *admit;
                if *admit == Admit::Stopping {
                    self.stop_all(forecast);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn foresee_joined(&mut self, spec: &WorkerSpec, held: &[Held], forecast: &mut Forecast) {
        self.n_samples += 1;
        let id = spec.id;
        let shadow = WorkerShadow::new(spec.clone(), true, self.now.steady_ms, self.n_samples);
        self.workers.insert(id, shadow);
        for (task, attempt) in self.leases_of(id, forecast) {
            if !held.iter().any(|held| held.task == task && held.attempt == attempt) {
                self.end(task, End::Gone, forecast);
            }
        }
        for held in held {
            if !self.is_live(id, held.task, held.attempt, held.token, forecast) {
                forecast.revokes.push((id, held.task, held.attempt));
            }
        }
        self.listen_again(id, forecast);
        if self.admit == Admit::Stopping {
            self.stop_with_server(id, forecast);
        }
    }

    fn touch<'a>(&self, id: TaskId, forecast: &'a mut Forecast) -> Option<&'a mut Foreseen> {
        match forecast.tasks.entry(id) {
            btree_map::Entry::Occupied(known) => Some(known.into_mut()),
            btree_map::Entry::Vacant(place) => {
                let task = self.rows.get(&id)?.clone();
                Some(place.insert(Foreseen {
                    before: task.clone(),
                    task,
                    fates: Vec::new(),
                    is_moved: false,
                    is_unsure: false,
                }))
            }
        }
    }

    fn foresee_cancel(&self, ticket: Ticket, id: TaskId, forecast: &mut Forecast) {
        let Some(foreseen) = self.touch(id, forecast) else {
            // Asked for in this very tick: whether it is there depends on its admission.
            let is_unknown = !self.births.contains_key(&id);
            forecast.cancels.insert(ticket, (id, is_unknown.then_some(CancelAnswer::NotFound)));
            return;
        };
        if foreseen.is_vague() {
            let ledger = foreseen.fates.first().map_or(ledger(&foreseen.task), |fate| fate.1);
            foreseen.fates.push((Fate::Ended(Phase::Cancelled, None), ledger));
            forecast.cancels.insert(ticket, (id, None));
            return;
        }
        let phase = foreseen.task.phase();
        let answer = if phase.is_terminal() {
            CancelAnswer::Terminal(phase)
        } else if phase.is_held() {
            self.stop(id, Stop::Cancel, forecast);
            CancelAnswer::Stopping
        } else {
            foreseen.task.state = State::Cancelled;
            foreseen.is_moved = false;
            foreseen.fates = vec![(Fate::Ended(Phase::Cancelled, None), ledger(&foreseen.task))];
            CancelAnswer::Ended
        };
        forecast.cancels.insert(ticket, (id, Some(answer)));
    }

    /// What runs is asked to stop at once; the rest of a session follows after the events.
    fn foresee_act(&self, ticket: Ticket, key: &Name, act: SessionAct, forecast: &mut Forecast) {
        let task = |id| forecast.tasks.get(id).map_or(&self.rows[id], |foreseen| &foreseen.task);
        let held = self.held.keys().map(task).filter(|task| task.phase().is_held());
        let running: Vec<&Task> = held.filter(|task| self.session_of(task) == Some(key)).collect();
        let oldest = running.iter().filter(|task| task.stop() != Some(Stop::Cancel));
        let oldest = oldest.min_by_key(|task| self.turns[&task.id]).map(|task| task.id);
        match act {
            SessionAct::Stop => {
                oldest.into_iter().for_each(|id| self.stop(id, Stop::Cancel, forecast));
                forecast.stops.insert(ticket, oldest);
            }
            SessionAct::StopAll | SessionAct::Reset => {
                let running: Vec<TaskId> = running.iter().map(|task| task.id).collect();
                forecast.n_running.insert(ticket, running.len() as u32);
                running.into_iter().for_each(|id| self.stop(id, Stop::Cancel, forecast));
            }
            SessionAct::Set(_) | SessionAct::Context(_) => {}
        }
        forecast.acts.push((ticket, key.clone(), act));
        forecast.steps.push(Step::Act(key.clone(), act));
    }

    fn foresee_taken(&self, target: TaskId, message: TaskId, forecast: &mut Forecast) {
        let Some(foreseen) = self.touch(message, forecast) else { return };
        let is_meant = foreseen.task.steers == Some(target);
        if is_meant && foreseen.is_moved {
            foreseen.is_unsure = true;
        } else if is_meant && foreseen.task.phase() == Phase::Waiting {
            foreseen.task.state = State::Completed;
            foreseen.fates = vec![(Fate::Ended(Phase::Completed, None), ledger(&foreseen.task))];
        }
        if is_meant {
            forecast.taken.insert(message);
        }
    }

    fn stop_all(&self, forecast: &mut Forecast) {
        self.workers.keys().for_each(|&worker| self.stop_with_server(worker, forecast));
    }

    /// A worker that is there lets go of everything but the kinds that it keeps.
    fn stop_with_server(&self, worker: WorkerId, forecast: &mut Forecast) {
        if !self.workers[&worker].joined {
            return;
        }
        for (task, _) in self.leases_of(worker, forecast) {
            if !self.is_kept(&self.rows[&task]) {
                self.stop(task, Stop::Shutdown, forecast);
            }
        }
    }

    fn is_kept(&self, task: &Task) -> bool {
        let worker = task.state.lease().and_then(|lease| self.workers.get(&lease.worker));
        worker.is_some_and(|worker| {
            // What runs elsewhere does not end with the server.
            let is_elsewhere = self.registered.contains_key(&worker.spec.id);
            is_elsewhere || worker.spec.keeps.contains(&self.key_of(task).shape.kind)
        })
    }

    /// The first stop fixes what comes after; only a cancel overrides it.
    fn stop(&self, id: TaskId, stop: Stop, forecast: &mut Forecast) {
        let Some(foreseen) = self.touch(id, forecast) else { return };
        if let State::Assigned(lease) | State::Running(lease) = &mut foreseen.task.state
            && (lease.stop.is_none() || stop == Stop::Cancel)
        {
            lease.stop = Some(stop);
        }
    }

    pub(crate) fn foresee_report(&mut self, worker: WorkerId, id: TaskId, report: &Report, forecast: &mut Forecast) {
        let end = match report {
            Report::Started => {
                let since_ms = self.now.steady_ms;
                let foreseen = self.touch(id, forecast).expect("a live lease is in a row");
                if let State::Assigned(lease) = foreseen.task.state {
                    foreseen.task.state = State::Running(Lease { since_ms, ..lease });
                    self.heard_ms.insert(id, since_ms);
                }
                return;
            }
            Report::Alive => return self.note_sign(id),
            Report::InputTaken { message } => return self.foresee_taken(id, *message, forecast),
            Report::Completed { .. } => End::Completed,
            Report::Failed { class, retry_after_ms, fault, .. } => {
                if *fault == Fault::Worker || *class == Class::Lost {
                    self.cool(worker);
                }
                End::Failed { class: *class, retry_after_ms: *retry_after_ms }
            }
            Report::Stopped => {
                let foreseen = self.touch(id, forecast).expect("a live lease is in a row");
                if foreseen.task.stop().is_none() {
                    self.cool(worker);
                }
                End::Dropped
            }
            Report::NotStarted { .. } => End::NotStarted,
        };
        if let Report::Completed { usage: Some(usage), .. } | Report::Failed { usage: Some(usage), .. } = report {
            let context = usage.context_tokens.zip(usage.context_window);
            let context = context.map(|(tokens, window)| Context { tokens, window });
            forecast.steps.extend(context.map(|context| Step::Usage(id, context)));
            let foreseen = self.touch(id, forecast).expect("a live lease is in a row");
            foreseen.task.usage = Some(Box::new(*usage));
        }
        self.end(id, end, forecast);
    }

    fn cool(&mut self, worker: WorkerId) {
        let until_ms = self.now.steady_ms + self.config.worker_cooldown_ms;
        if self.workers.get(&worker).is_some_and(|worker| !worker.spec.embedded) {
            self.cooling.insert(worker, until_ms);
        }
    }

    /// One that never registered is forgotten when it is gone, and its faults with it.
    fn worker_gone(&mut self, worker: WorkerId) {
        self.workers.remove(&worker);
        if !self.registered.contains_key(&worker) {
            self.cooling.remove(&worker);
        }
    }

    pub(crate) fn leases_of(&self, worker: WorkerId, forecast: &Forecast) -> Vec<(TaskId, u32)> {
        let task = |id| forecast.tasks.get(id).map_or(&self.rows[id], |foreseen| &foreseen.task);
        let held = self.held.keys().map(task);
        let held = held.filter(|task| task.state.lease().is_some_and(|lease| lease.worker == worker));
        held.map(|task| (task.id, task.attempt)).collect()
    }

    pub(crate) fn is_live(
        &self,
        worker: WorkerId,
        id: TaskId,
        attempt: u32,
        token: Token,
        forecast: &Forecast,
    ) -> bool {
        let task = forecast.tasks.get(&id).map(|foreseen| &foreseen.task).or_else(|| self.rows.get(&id));
        task.is_some_and(|task| {
            let lease = task.state.lease();
            task.attempt == attempt && lease.is_some_and(|lease| lease.token == token && lease.worker == worker)
        })
    }

    fn foresee_gone(&mut self, worker: WorkerId, forecast: &mut Forecast) {
        for (task, _) in self.leases_of(worker, forecast) {
            self.end(task, End::Gone, forecast);
        }
        self.worker_gone(worker);
    }

    /// Workers whose silence has lasted too long. A timeout of the task itself may have come first.
    fn foresee_silence(&mut self, forecast: &mut Forecast) {
        let is_silent = |worker: &WorkerShadow| worker.seen_ms + self.config.worker_offline_ms <= self.now.steady_ms;
        let silent: Vec<WorkerId> =
            self.workers.iter().filter(|(_, worker)| is_silent(worker)).map(|(id, _)| *id).collect();
        for worker in silent {
            for (id, _) in self.leases_of(worker, forecast) {
                let foreseen = self.touch(id, forecast).expect("a lease is in a row");
                let own = foreseen.task.stop();
                let mut fates = Vec::new();
                for stop in
                    [own, Some(Stop::Timeout), Some(Stop::Stalled), Some(Stop::Deadline), Some(Stop::NotStarted)]
                {
                    if stop == own || (own.is_none() && self.may_stop(&foreseen.task, stop)) {
                        fates.push(self.fate(&foreseen.task, stop, &End::Gone));
                    }
                }
                foreseen.task.state = State::Queued { since_ms: self.now.steady_ms };
                foreseen.fates = fates;
            }
            self.worker_gone(worker);
        }
    }

    /// Has the time come at which the scheduler asks this one to stop by itself?
    pub(crate) fn may_stop(&self, task: &Task, stop: Option<Stop>) -> bool {
        let now = self.now;
        let Some(lease) = task.state.lease() else { return false };
        match stop {
            Some(Stop::Timeout) => {
                task.phase() == Phase::Running && lease.since_ms + task.policy.timeout_ms <= now.steady_ms
            }
            Some(Stop::Stalled) => self.is_silent(task),
            Some(Stop::Deadline) => task.deadline.is_some_and(|deadline| deadline <= now.wall_ms),
            Some(Stop::NotStarted) => {
                task.phase() == Phase::Assigned && lease.since_ms + self.config.assign_timeout_ms <= now.steady_ms
            }
            Some(Stop::Shutdown) => self.admit == Admit::Stopping && !self.is_kept(task),
            _ => false,
        }
    }

    pub(crate) fn end(&self, id: TaskId, end: End, forecast: &mut Forecast) {
        let foreseen = self.touch(id, forecast).expect("a lease is in a row");
        let stop = foreseen.task.stop();
        let (fate, ledger) = self.fate(&foreseen.task, stop, &end);
        [foreseen.task.retries_used, foreseen.task.n_lost, foreseen.task.n_quota, foreseen.task.n_preempted] = ledger;
        foreseen.task.state = match fate {
            Fate::Ended(Phase::Completed, _) => State::Completed,
            Fate::Ended(Phase::Cancelled, _) => State::Cancelled,
            Fate::Ended(..) => State::Failed,
            Fate::Requeued => State::Queued { since_ms: self.now.steady_ms },
            // Whether its deadline leaves room for the retry is seen in the row.
            Fate::Backoff(_, min_ms, _) => State::Scheduled(Delay::Backoff(self.now.steady_ms + min_ms)),
        };
        foreseen.fates = vec![(fate, ledger)];
    }

    fn fate(&self, task: &Task, stop: Option<Stop>, end: &End) -> (Fate, Ledger) {
        let mut ledger = ledger(task);
        let fate = match (stop, end) {
            (Some(Stop::Cancel), _) => Fate::Ended(Phase::Cancelled, None),
            (Some(Stop::Timeout | Stop::Stalled), _) => self.failed(task, Class::Timeout, None, &mut ledger),
            (Some(Stop::Deadline), _) => Fate::Ended(Phase::Failed, Some(Class::Deadline)),
            (Some(Stop::Preempted), _) => {
                ledger[3] += 1;
                Fate::Requeued
            }
            (Some(Stop::Shutdown | Stop::NotStarted), _) | (None, End::NotStarted) => Fate::Requeued,
            (None, End::Completed) => Fate::Ended(Phase::Completed, None),
            (None, End::Failed { class, retry_after_ms }) => self.failed(task, *class, *retry_after_ms, &mut ledger),
            // As far as anybody knows it never began: that costs nothing.
            (None, End::Gone) if task.phase() == Phase::Assigned => Fate::Requeued,
            (None, End::Gone | End::Dropped) => self.failed(task, Class::Lost, None, &mut ledger),
        };
        (fate, ledger)
    }

    fn failed(&self, task: &Task, class: Class, retry_after_ms: Option<u64>, ledger: &mut Ledger) -> Fate {
        let retry = &task.policy.retry;
        let over = Fate::Ended(Phase::Failed, Some(class));
        let is_retried = retry.on & class.bit() != 0 && !matches!(class, Class::Permanent | Class::Deadline);
        if !is_retried {
            return over;
        }
        let (n, limit) = match class {
            Class::Lost => {
                ledger[1] += 1;
                return if ledger[1] >= self.config.lost_max { over } else { Fate::Requeued };
            }
            Class::Quota => {
                ledger[2] += 1;
                (ledger[2], self.config.quota_max)
            }
            _ => (ledger[0] + 1, retry.max_retries),
        };
        if n > limit {
            return over;
        }
        if class != Class::Quota {
            ledger[0] = n;
        }
        let factor = (f64::from(retry.multiplier_milli) / 1000.0).powi(n as i32 - 1);
        let wait_ms = (retry.backoff_ms as f64 * factor).min(retry.backoff_ms_max as f64);
        let span_ms = wait_ms * f64::from(retry.jitter_milli) / 1000.0;
        let (min_ms, max_ms) = ((wait_ms - span_ms - 2.0).max(0.0) as u64, (wait_ms + span_ms + 2.0) as u64);
        match (class, retry_after_ms) {
            (Class::Quota, Some(ms)) => {
                let ms = ms.max(retry.backoff_ms).min(self.config.quota_wait_ms_max);
                Fate::Backoff(class, ms, ms)
            }
            (Class::Quota, None) => {
                let most_ms = self.config.quota_wait_ms_max;
                Fate::Backoff(class, min_ms.min(most_ms), max_ms.min(most_ms))
            }
            _ => Fate::Backoff(class, min_ms, max_ms),
        }
    }
}

pub(crate) fn ledger(task: &Task) -> Ledger {
    [task.retries_used, task.n_lost, task.n_quota, task.n_preempted]
}
