//! What the events of one tick must lead to. They are played through on the oracle's own copy of the leases, in order,
//! before the scheduler sees them; afterwards rows, commands and answers are compared with what was foreseen.

use std::collections::BTreeMap;

use runyard_core::event::{
    Admit, Answer, CancelAnswer, Change, ChangeRefusal, Command, Event, Fault, FirstAnswer, Refusal, Report, Submission,
    SubmitMode,
};
use runyard_core::ids::{TaskId, Ticket, Token, WorkerId};
use runyard_core::now::Now;
use runyard_core::sanity::{Keep, KeptAt};
use runyard_core::task::{Class, Delay, OnDependencyFailure, Phase, State, Stop, Task, Tier, Wait};
use runyard_store::yard::Ticked;

use crate::oracle::{Applied, Oracle, WorkerShadow};

/// One tick as it should go.
#[derive(Default)]
pub struct Forecast {
    tasks: BTreeMap<TaskId, Foreseen>,
    cancels: BTreeMap<Ticket, (TaskId, Option<CancelAnswer>)>,
    changes: BTreeMap<Ticket, (Change, Option<ChangeRefusal>)>,
    submissions: Vec<(Submission, Admit)>,
    revokes: Vec<(WorkerId, TaskId, u32)>,
}

/// A task that an event of the tick touched.
struct Foreseen {
    before: Task,
    /// As the events leave it; what follows in the tick (releases, times, starts) comes on top.
    task: Task,
    /// Ways its attempt may have ended. None: nothing ended it, and what is held stays held.
    fates: Vec<(Fate, Ledger)>,
    /// A change came on top: where it stands now is checked by the rows' own rules only.
    is_moved: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Ended(Phase, Option<Class>),
    /// Back in its queue, or handed out again.
    Requeued,
    /// A retry after so many milliseconds, from and to.
    Backoff(Class, u64, u64),
}

type Ledger = [u32; 4];

enum End {
    Completed,
    Failed { class: Class, retry_after_ms: Option<u64> },
    NotStarted,
    /// Stopped, and nobody asked for it.
    Dropped,
    /// Its worker is gone, or came back without it.
    Gone,
}

impl Foreseen {
    /// A retry that its deadline may forbid: only the row tells which it was.
    fn is_vague(&self) -> bool {
        self.task.deadline.is_some() && self.fates.iter().any(|(fate, _)| matches!(fate, Fate::Backoff(..)))
    }
}

impl Oracle {
    pub fn foresee(&mut self, now: Now, events: &[Event]) -> Forecast {
        self.advance(now);
        let mut forecast = Forecast::default();
        if std::mem::take(&mut self.is_stopping_anew) {
            self.stop_all(&mut forecast);
        }
        for event in events {
            self.foresee_one(event, &mut forecast);
        }
        self.foresee_silence(&mut forecast);
        forecast
    }

    fn foresee_one(&mut self, event: &Event, forecast: &mut Forecast) {
        match event {
            Event::Submit(submission) => {
                for item in &submission.items {
                    self.births.insert(item.id, item.clone());
                }
                forecast.submissions.push((submission.clone(), self.admit));
            }
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
            Event::WorkerJoined { worker, held } => {
                let shadow = WorkerShadow {
                    spec: worker.clone(),
                    joined: true,
                    seen_ms: self.now.steady_ms,
                    cooling_until_ms: 0,
                };
                self.workers.insert(worker.id, shadow);
                for (task, attempt) in self.leases_of(worker.id, forecast) {
                    if !held.iter().any(|held| held.task == task && held.attempt == attempt) {
                        self.end(task, End::Gone, forecast);
                    }
                }
                for held in held {
                    if !self.is_live(worker.id, held.task, held.attempt, held.token, forecast) {
                        forecast.revokes.push((worker.id, held.task, held.attempt));
                    }
                }
            }
            Event::WorkerSeen { worker } => {
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
            Event::Configure { config, .. } => self.config = config.clone(),
            Event::Admit { admit, .. } => {
                self.admit = *admit;
                if *admit == Admit::Stopping {
                    self.stop_all(forecast);
                }
            }
            _ => {}
        }
    }

    fn touch<'a>(&self, id: TaskId, forecast: &'a mut Forecast) -> Option<&'a mut Foreseen> {
        if !forecast.tasks.contains_key(&id) {
            let task = self.rows.get(&id)?.clone();
            let foreseen = Foreseen { before: task.clone(), task, fates: Vec::new(), is_moved: false };
            forecast.tasks.insert(id, foreseen);
        }
        forecast.tasks.get_mut(&id)
    }

    fn foresee_cancel(&self, ticket: Ticket, id: TaskId, forecast: &mut Forecast) {
        let Some(foreseen) = self.touch(id, forecast) else {
            // Asked for in this very tick: whether it is there depends on its admission.
            let is_unknown = !self.births.contains_key(&id);
            forecast.cancels.insert(ticket, (id, is_unknown.then_some(CancelAnswer::NotFound)));
            return;
        };
        if foreseen.is_vague() {
            let ledger = foreseen.fates[0].1;
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

    fn stop_all(&self, forecast: &mut Forecast) {
        self.held.keys().for_each(|&task| self.stop(task, Stop::Shutdown, forecast));
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

    fn foresee_report(&mut self, worker: WorkerId, id: TaskId, report: &Report, forecast: &mut Forecast) {
        let end = match report {
            Report::Started => {
                let foreseen = self.touch(id, forecast).expect("a live lease is in a row");
                if let State::Assigned(lease) = foreseen.task.state {
                    foreseen.task.state = State::Running(lease);
                }
                return;
            }
            Report::Alive => return,
            Report::Completed { .. } => End::Completed,
            Report::Failed { class, retry_after_ms, fault, .. } => {
                let cooldown_ms = self.config.worker_cooldown_ms;
                let shadow = self.workers.get_mut(&worker).filter(|worker| !worker.spec.embedded);
                if let (Fault::Worker, Some(shadow)) = (fault, shadow) {
                    shadow.cooling_until_ms = self.now.steady_ms + cooldown_ms;
                }
                End::Failed { class: *class, retry_after_ms: *retry_after_ms }
            }
            Report::Stopped => End::Dropped,
            Report::NotStarted { .. } => End::NotStarted,
        };
        self.end(id, end, forecast);
    }

    fn leases_of(&self, worker: WorkerId, forecast: &Forecast) -> Vec<(TaskId, u32)> {
        let task = |id| forecast.tasks.get(id).map_or(&self.rows[id], |foreseen| &foreseen.task);
        let held = self.held.keys().map(task);
        let held = held.filter(|task| task.state.lease().is_some_and(|lease| lease.worker == worker));
        held.map(|task| (task.id, task.attempt)).collect()
    }

    fn is_live(&self, worker: WorkerId, id: TaskId, attempt: u32, token: Token, forecast: &Forecast) -> bool {
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
        self.workers.remove(&worker);
    }

    /// Workers whose silence has lasted too long. A timeout of the task itself may have come first.
    fn foresee_silence(&mut self, forecast: &mut Forecast) {
        let is_silent =
            |worker: &WorkerShadow| worker.seen_ms + self.config.worker_offline_ms <= self.now.steady_ms;
        let silent: Vec<WorkerId> =
            self.workers.iter().filter(|(_, worker)| is_silent(worker)).map(|(id, _)| *id).collect();
        for worker in silent {
            for (id, _) in self.leases_of(worker, forecast) {
                let foreseen = self.touch(id, forecast).expect("a lease is in a row");
                let own = foreseen.task.stop();
                let mut fates = Vec::new();
                for stop in [own, Some(Stop::Timeout), Some(Stop::Deadline), Some(Stop::NotStarted)] {
                    if stop == own || (own.is_none() && self.may_stop(&foreseen.task, stop)) {
                        fates.push(self.fate(&foreseen.task, stop, &End::Gone));
                    }
                }
                foreseen.task.state = State::Queued { since_ms: self.now.steady_ms };
                foreseen.fates = fates;
            }
            self.workers.remove(&worker);
        }
    }

    /// Has the time come at which the scheduler asks this one to stop by itself?
    fn may_stop(&self, task: &Task, stop: Option<Stop>) -> bool {
        let now = self.now;
        let Some(lease) = task.state.lease() else { return false };
        match stop {
            Some(Stop::Timeout) => {
                let stalls = task.policy.stall_ms.is_some();
                task.phase() == Phase::Running && (stalls || lease.since_ms + task.policy.timeout_ms <= now.steady_ms)
            }
            Some(Stop::Stalled) => task.phase() == Phase::Running && task.policy.stall_ms.is_some(),
            Some(Stop::Deadline) => task.deadline.is_some_and(|deadline| deadline <= now.wall_ms),
            Some(Stop::NotStarted) => {
                task.phase() == Phase::Assigned && lease.since_ms + self.config.assign_timeout_ms <= now.steady_ms
            }
            Some(Stop::Shutdown) => self.admit == Admit::Stopping,
            _ => false,
        }
    }

    fn end(&self, id: TaskId, end: End, forecast: &mut Forecast) {
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
                let ms = ms.min(self.config.quota_wait_ms_max);
                Fate::Backoff(class, ms, ms)
            }
            (Class::Quota, None) => {
                let most_ms = self.config.quota_wait_ms_max;
                Fate::Backoff(class, min_ms.min(most_ms), max_ms.min(most_ms))
            }
            _ => Fate::Backoff(class, min_ms, max_ms),
        }
    }

    // ── Afterwards ──────────────────────────────────────────────────────────────────────────────────────────────

    /// An item whose key was used before is answered with that key's task: who depends on it depends on that one.
    pub fn note_repeats(&mut self, forecast: &Forecast, applied: &Applied) {
        for item in forecast.submissions.iter().flat_map(|(submission, _)| &submission.items) {
            let Some(key) = item.idempotency.as_ref().filter(|_| !self.rows.contains_key(&item.id)) else { continue };
            let known = self.keys.get(&(key.agent.clone(), key.key.clone()));
            let known = known.or_else(|| applied.keys.iter().find(|row| row.key == *key));
            if let Some(FirstAnswer::Task { id, .. }) = known.map(|row| &row.answer) {
                self.aliases.insert(item.id, *id);
            }
        }
    }

    /// Rows are as foreseen: those the events touched, those that were held, and those nobody touched.
    pub fn check_rows(&self, forecast: &Forecast, applied: &Applied) {
        for (id, foreseen) in &forecast.tasks {
            self.check_foreseen(*id, foreseen);
        }
        for (id, old) in applied.changed.iter().filter(|(id, _)| !forecast.tasks.contains_key(id)) {
            let row = &self.rows[id];
            match old {
                Some(old) if old.phase().is_held() => self.check_held_row(old, row),
                Some(old) if old.phase().is_terminal() => {}
                _ => self.check_unstarted(row, old.is_none()),
            }
        }
    }

    fn check_foreseen(&self, id: TaskId, foreseen: &Foreseen) {
        let row = &self.rows[&id];
        let before = &foreseen.before;
        if before.phase().is_terminal() {
            return;
        }
        if foreseen.fates.is_empty() {
            if foreseen.task.phase().is_held() {
                self.check_held_row(&foreseen.task, row);
            } else {
                self.check_unstarted(row, false);
            }
        } else if !foreseen.is_moved {
            let fits = |(fate, expected): &(Fate, Ledger)| *expected == ledger(row) && self.fits(*fate, before, row);
            assert!(
                foreseen.fates.iter().any(fits),
                "{id:?} was {:?} {:?} and may be {:?}, and is {:?} {:?} ({:?})",
                before.state,
                ledger(before),
                foreseen.fates,
                row.state,
                ledger(row),
                row.error
            );
        }
    }

    fn fits(&self, fate: Fate, before: &Task, row: &Task) -> bool {
        let now = self.now;
        let class = row.error.as_ref().map(|error| error.class);
        let is_expired = row.phase() == Phase::Failed
            && class == Some(Class::Deadline)
            && row.deadline.is_some_and(|deadline| deadline <= now.wall_ms);
        let is_back = (row.phase() == Phase::Queued && row.attempt == before.attempt)
            || (row.phase() == Phase::Assigned && row.attempt == before.attempt + 1)
            || is_expired;
        match fate {
            Fate::Ended(phase, expected) => row.phase() == phase && (expected.is_none() || class == expected),
            Fate::Requeued => is_back,
            Fate::Backoff(expected, min_ms, max_ms) => {
                let at_most = row.deadline.map(|deadline| deadline.saturating_sub(now.wall_ms));
                match row.state {
                    State::Scheduled(Delay::Backoff(at)) => {
                        let wait_ms = at.saturating_sub(now.steady_ms);
                        (min_ms..=max_ms).contains(&wait_ms) && at_most.is_none_or(|most_ms| wait_ms < most_ms)
                    }
                    State::Failed => {
                        is_expired || (class == Some(expected) && at_most.is_some_and(|most_ms| most_ms <= max_ms))
                    }
                    // Without a wait it is due in the same tick, and may have another time to wait for.
                    State::Scheduled(Delay::Until(at)) => min_ms == 0 && at > now.wall_ms,
                    _ => min_ms == 0 && is_back,
                }
            }
        }
    }

    /// A lease that no event ended lives on; a stop may have come on top, for a reason.
    fn check_held_row(&self, foreseen: &Task, row: &Task) {
        let id = row.id;
        if !row.phase().is_held() || row.attempt != foreseen.attempt {
            // Handed out, not begun, asked back, and no answer: the worker is not asked any more.
            let is_given_up = foreseen.stop() == Some(Stop::NotStarted) && self.fits(Fate::Requeued, foreseen, row);
            assert!(is_given_up, "{id:?} lost its lease without a cause: {:?}", row.state);
            return;
        }
        assert_eq!(row.phase(), foreseen.phase(), "the phase of {id:?}");
        match (foreseen.stop(), row.stop()) {
            (None, None | Some(Stop::Preempted)) => {}
            (None, Some(stop)) => assert!(self.may_stop(foreseen, Some(stop)), "{id:?} is stopped for {stop:?}"),
            (Some(stop), now) => assert_eq!(now, Some(stop), "the stop of {id:?}"),
        }
    }

    /// An unstarted task ends only for a reason: it was cancelled, its time is over, or a parent ended badly.
    fn check_unstarted(&self, row: &Task, is_new: bool) {
        let id = row.id;
        let now = self.now;
        let bad_parent = || {
            let phase = |parent: &TaskId| self.rows.get(parent).map(Task::phase);
            self.parents_of(id).iter().filter_map(phase).any(|phase| phase.is_terminal() && phase != Phase::Completed)
        };
        let policy = row.policy.on_dependency_failure;
        match row.phase() {
            Phase::Cancelled => {
                let by_parent = policy == OnDependencyFailure::Cancel && bad_parent();
                assert!(by_parent || is_new, "{id:?} is cancelled and nobody asked for it");
            }
            Phase::Failed => {
                let is_over = |at: Option<u64>| at.is_some_and(|at| at <= now.wall_ms);
                let class = row.error.as_ref().map(|error| error.class);
                let in_time = class == Some(Class::Deadline) && (is_over(row.deadline) || is_over(row.dependency_deadline));
                let by_parent = class == Some(Class::Permanent) && policy == OnDependencyFailure::Fail && bad_parent();
                assert!(in_time || by_parent, "{id:?} failed without a cause: {:?}", row.error);
            }
            phase => assert!(!matches!(phase, Phase::Running | Phase::Completed), "{id:?} never started"),
        }
    }

    // ── Commands ────────────────────────────────────────────────────────────────────────────────────────────────

    pub fn check_commands(&mut self, forecast: &Forecast, ticked: &Ticked, applied: &Applied, keeps: &[Keep]) {
        let mut revokes = forecast.revokes.clone();
        let mut n_starts = 0;
        for command in &ticked.commands {
            match command {
                Command::Start(start) => {
                    n_starts += 1;
                    let row = self.rows.get(&start.task).expect("what starts is stored");
                    let lease = row.state.lease().copied();
                    let named = lease.map(|lease| (row.attempt, lease.worker, lease.token));
                    let told = Some((start.attempt, start.worker, start.token));
                    assert_eq!(told, named, "the start of {:?} is committed: {:?}", start.task, row.state);
                    assert_eq!(start.spec.as_ref(), self.specs.get(&start.task), "the payload of {:?}", start.task);
                    assert!(row.deadline.is_none_or(|at| at > self.now.wall_ms), "{:?} is past its deadline", row.id);
                    self.check_parents(row);
                }
                Command::Stop { task, attempt, stop, .. } => {
                    let row = &self.rows[task];
                    let is_stopping = row.attempt == *attempt && row.stop().is_some();
                    // Its end may have come in the same tick as the wish to stop it.
                    let is_over = forecast.tasks.get(task).is_some_and(|foreseen| !foreseen.fates.is_empty());
                    let before = applied.changed.iter().find(|(id, _)| id == task).and_then(|(_, old)| old.as_ref());
                    let is_over = is_over || before.is_some_and(|old| old.stop() == Some(Stop::NotStarted));
                    assert!(is_stopping || is_over, "the stop of {task:?} is committed");
                    // Asked for again after a recovery, it is nobody's victim any more.
                    let is_first = applied.changed.iter().any(|(id, old)| {
                        id == task && old.as_ref().and_then(Task::stop) != Some(Stop::Preempted)
                    });
                    if is_first && *stop == Stop::Preempted && row.stop() == Some(Stop::Preempted) {
                        self.check_victim(row, keeps, &applied.started);
                    }
                }
                Command::Revoke { worker, task, attempt } => {
                    if let Some(at) = revokes.iter().position(|revoke| revoke == &(*worker, *task, *attempt)) {
                        revokes.swap_remove(at);
                    }
                    let row = self.rows.get(task);
                    let lease = row.filter(|row| row.attempt == *attempt).and_then(|row| row.state.lease());
                    let is_live = lease.is_some_and(|lease| lease.worker == *worker);
                    // A wrong token is refused too, and the lease it does not belong to lives on.
                    assert!(!is_live || forecast.revokes.contains(&(*worker, *task, *attempt)), "{task:?} is held");
                }
                Command::Answer { .. } => {}
            }
        }
        assert!(revokes.is_empty(), "stale reports are refused: {revokes:?}");
        assert_eq!(n_starts, applied.started.len(), "every committed start is told");
        self.check_answers(forecast, ticked, applied);
    }

    fn check_parents(&self, row: &Task) {
        let runs_anyway = row.policy.on_dependency_failure == OnDependencyFailure::Run;
        for parent in self.parents_of(row.id) {
            let phase = self.rows.get(&parent).map(Task::phase);
            let is_over = phase.is_some_and(|phase| phase == Phase::Completed || (runs_anyway && phase.is_terminal()));
            assert!(is_over, "{:?} started while its parent {parent:?} is {phase:?}", row.id);
        }
        assert!(row.run_at.is_none_or(|at| at <= self.now.wall_ms), "{:?} started before its time", row.id);
    }

    fn check_victim(&self, row: &Task, keeps: &[Keep], started: &[TaskId]) {
        let key = self.key_of(row);
        assert!(row.policy.preemptible && key.tier > Tier::Critical, "{:?} may not be preempted", row.id);
        assert!(row.n_preempted < self.config.preempted_max, "{:?} was preempted often enough", row.id);
        let lane = &self.held[&row.id];
        let worker = row.state.lease().map(|lease| lease.worker);
        let frees = |keep: &Keep| match &keep.at {
            KeptAt::Global => true,
            KeptAt::Agent(agent) => *agent == key.agent,
            KeptAt::Lane(name) => name == lane,
            KeptAt::Kind(kind) => *kind == key.shape.kind,
            KeptAt::Gate(gate) => key.gates.contains(gate),
            KeptAt::Worker(id) => Some(*id) == worker,
        };
        let is_kept = keeps.iter().any(|keep| keep.flow.tier == Tier::Critical && frees(keep));
        // The preemptor may have found another slot before the tick was over.
        let is_used = started.iter().any(|id| self.key_of(&self.rows[id]).tier == Tier::Critical);
        assert!(is_kept || is_used, "{:?} of {key:?} is preempted and its slot is kept for nobody: {keeps:?}", row.id);
    }

    fn check_answers(&mut self, forecast: &Forecast, ticked: &Ticked, applied: &Applied) {
        let mut answers: BTreeMap<Ticket, &Answer> = BTreeMap::new();
        for command in &ticked.commands {
            if let Command::Answer { ticket, answer } = command {
                assert!(answers.insert(*ticket, answer).is_none(), "{ticket:?} is answered once");
            }
        }
        for (ticket, (task, expected)) in &forecast.cancels {
            let Some(Answer::Cancel(answer)) = answers.get(ticket) else { panic!("{ticket:?} is not answered") };
            assert!(expected.is_none_or(|expected| *answer == expected), "a cancel of {task:?}: {answer:?}, {expected:?}");
            if matches!(answer, CancelAnswer::Ended | CancelAnswer::Stopping) {
                self.promised.insert(*task);
            }
        }
        for (ticket, (change, expected)) in &forecast.changes {
            let Some(Answer::Change(answer)) = answers.get(ticket) else { panic!("{ticket:?} is not answered") };
            if let Ok(task) = answer {
                let is_done = change.rank.is_none_or(|rank| task.rank == rank)
                    && change.deadline.is_none_or(|deadline| task.deadline == deadline)
                    && change.run_at.is_none_or(|run_at| task.run_at == Some(run_at));
                assert!(is_done, "{change:?} was accepted and is not made: {task:?}");
            }
            let refusal = answer.as_ref().err().cloned();
            let is_crowded = matches!(refusal, Some(ChangeRefusal::TooManyFlows { .. }));
            assert!(refusal == *expected || is_crowded, "the answer to a change is {refusal:?}, not {expected:?}");
        }
        for (submission, admit) in &forecast.submissions {
            let Some(answer) = answers.get(&submission.ticket) else { panic!("{:?} is not answered", submission.ticket) };
            self.check_submitted(submission, *admit, answer, applied);
        }
    }

    fn check_submitted(&mut self, submission: &Submission, admit: Admit, answer: &Answer, applied: &Applied) {
        let known = submission.idempotency.as_ref().and_then(|key| {
            let row = self.keys.get(&(key.agent.clone(), key.key.clone()))?;
            Some((row.key.hash == key.hash, row.answer.clone()))
        });
        match (known, answer) {
            (Some((true, first)), Answer::Replayed(again)) => assert_eq!(first, *again, "the first answer again"),
            (Some((false, _)), Answer::Refused(Refusal::KeyReused { .. })) => {}
            (Some(_), other) => panic!("a key that was used before is answered with {other:?}"),
            (None, Answer::Refused(Refusal::Draining)) => assert_ne!(admit, Admit::Open),
            (None, Answer::Refused(_)) => {
                assert_eq!(submission.mode, SubmitMode::All);
                let stored = submission.items.iter().find(|item| {
                    self.rows.get(&item.id).is_some_and(|row| row.phase() != Phase::Rejected)
                });
                assert!(stored.is_none(), "a refused submission left {stored:?}");
            }
            (None, Answer::Submitted { items }) => {
                assert_eq!(admit, Admit::Open, "nothing is taken in while draining");
                self.check_items(submission, items, applied);
            }
            (None, other) => panic!("a submission is answered with {other:?}"),
        }
        if matches!(answer, Answer::Submitted { .. }) {
            self.remember(submission, applied);
        }
    }

    fn check_items(
        &mut self,
        submission: &Submission,
        items: &[Result<runyard_core::event::Accepted, Refusal>],
        applied: &Applied,
    ) {
        assert_eq!(items.len(), submission.items.len());
        for (asked, answer) in submission.items.iter().zip(items) {
            let Ok(accepted) = answer else {
                assert_eq!(submission.mode, SubmitMode::Partial, "one bad item, nothing stored");
                continue;
            };
            let key = asked.idempotency.as_ref().map(|key| (key.agent.clone(), key.key.clone()));
            let known = key.and_then(|key| self.keys.get(&key));
            if let Some(FirstAnswer::Task { id, .. }) = known.map(|row| &row.answer) {
                assert_eq!(accepted.id, *id, "a key that was used before names its first task");
            }
            if accepted.id == asked.id {
                let row = self.rows.get(&asked.id).expect("an accepted task is stored");
                assert!(applied.changed.iter().any(|(id, old)| *id == row.id && old.is_none()), "{:?} is new", row.id);
                assert_eq!(self.specs.get(&row.id), Some(&asked.spec), "the payload of {:?}", row.id);
                self.check_born(asked, row);
            }
            self.remember_item(asked, applied);
        }
    }

    fn check_born(&self, asked: &runyard_core::event::NewTask, row: &Task) {
        assert_eq!(asked.policy, row.policy, "the policy of {:?}", row.id);
        if row.state == State::Waiting(Wait::Dependencies) {
            assert!(!asked.depends_on.is_empty(), "{:?} waits for parents it does not have", row.id);
        }
    }

    /// Keys of this tick count for the submissions after it.
    fn remember(&mut self, submission: &Submission, applied: &Applied) {
        let Some(key) = &submission.idempotency else { return };
        let row = applied.keys.iter().find(|row| row.key == *key);
        if let Some(row) = row {
            self.keys.insert((key.agent.clone(), key.key.clone()), row.clone());
        }
    }

    fn remember_item(&mut self, item: &runyard_core::event::NewTask, applied: &Applied) {
        let Some(key) = &item.idempotency else { return };
        if let Some(row) = applied.keys.iter().find(|row| row.key == *key) {
            self.keys.entry((key.agent.clone(), key.key.clone())).or_insert_with(|| row.clone());
        }
    }

    /// After the answers were compared: what was committed counts, whoever was told.
    pub fn merge_keys(&mut self, applied: &Applied) {
        for row in &applied.keys {
            self.keys.entry((row.key.agent.clone(), row.key.key.clone())).or_insert_with(|| row.clone());
        }
    }
}

fn ledger(task: &Task) -> Ledger {
    [task.retries_used, task.n_lost, task.n_quota, task.n_preempted]
}
