//! The test bed: a yard over the store in memory, a clock that only tests move, and workers that tests speak for.
//!
//! Two conveniences keep the tests short. A worker reports that a task began as soon as it is handed one, unless it is
//! told to be [`Bed::idle_workers`]; and while time passes every worker shows its heartbeat, unless it is
//! [`Bed::silence`]d. Everything else happens only when a test says so.

mod new;
mod schedules;
mod sessions;
mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use runyard_core::batch::Batch;
use runyard_core::config::Config;
use runyard_core::event::{
    Accepted, Admit, Answer, Asked, CancelAnswer, Change, ChangeRefusal, Command, Event, Fault, Happening,
    HappeningKind, HeartbeatAnswer, Held, Idempotency, NewBatch, NewTask, Refusal, Report, SessionAct, Start, Subject,
    Submission, SubmitMode, TaskFacts, WorkerSpec,
};
use runyard_core::explain::{Explanation, GateView};
use runyard_core::ids::{BatchId, TaskId, Ticket, WorkerId};
use runyard_core::name::Blob;
use runyard_core::now::Now;
use runyard_core::outbox::Delivery;
use runyard_core::task::{Class, Phase, Stop, Task};
use runyard_core::write::CountDelta;
use runyard_store::memory::{FailCommit, MemoryStore};
use runyard_store::store::{DeliveryFilter, Filter, Purge, Reader, TaskDoc};
use runyard_store::yard::Yard;

pub use new::{New, NewBatchOf, agent, batch, lane, message, named_gate, task, worker};
pub use schedules::{every, schedule};
pub use workers::{labelled, remote, vitals};

pub const SECOND: u64 = 1000;
pub const MINUTE: u64 = 60 * SECOND;
pub const HOUR: u64 = 60 * MINUTE;
pub const DAY: u64 = 24 * HOUR;

/// When the clock of every bed starts.
pub const EPOCH_MS: u64 = 1_800_000_000_000;
/// The worker every bed starts with.
pub const FIRST: WorkerId = WorkerId(1);

const HEARTBEAT_MS: u64 = 10 * SECOND;
/// A yard that still has something to do after so many ticks without news goes round in circles.
const TICKS_MAX: usize = 20_000;

pub struct Bed {
    store: MemoryStore,
    yard: Yard,
    now: Now,
    config: Config,
    workers: BTreeMap<WorkerId, WorkerSpec>,
    /// Of those that registered: the session of the latest process.
    sessions: BTreeMap<WorkerId, u64>,
    silent: BTreeSet<WorkerId>,
    begins_at_once: bool,
    /// The latest start of each task: what its worker would report with.
    leases: BTreeMap<TaskId, Start>,
    starts: Vec<Start>,
    stops: Vec<(TaskId, Stop)>,
    revokes: Vec<(TaskId, u32)>,
    /// Messages handed to running tasks: to whom, which, and what it says.
    inputs: Vec<(TaskId, TaskId, String)>,
    happenings: Vec<Happening>,
    answers: BTreeMap<Ticket, Answer>,
    next_id: u128,
    next_ticket: u64,
    n_ticks: u64,
}

// ── Setting up ──────────────────────────────────────────────────────────────────────────────────────────────────────

impl Bed {
    /// Default limits, and one embedded worker with room for everything.
    pub fn new() -> Bed {
        let store = MemoryStore::new();
        let config = Config::default();
        let (yard, now) =
            Yard::open(Box::new(store.clone()), Arc::new(config.clone()), 7, EPOCH_MS).expect("a new store opens");
        let mut bed = Bed {
            store,
            yard,
            now,
            config,
            workers: BTreeMap::new(),
            sessions: BTreeMap::new(),
            silent: BTreeSet::new(),
            begins_at_once: true,
            leases: BTreeMap::new(),
            starts: Vec::new(),
            stops: Vec::new(),
            revokes: Vec::new(),
            inputs: Vec::new(),
            happenings: Vec::new(),
            answers: BTreeMap::new(),
            next_id: 0,
            next_ticket: 0,
            n_ticks: 0,
        };
        bed.join(worker(FIRST));
        bed
    }

    pub fn config(mut self, change: impl FnOnce(&mut Config)) -> Bed {
        self.reconfigure(change);
        self
    }

    /// Only so many tasks at once: the usual way to make the others queue up.
    pub fn inflight(self, max: u32) -> Bed {
        self.config(|config| config.inflight_max = max)
    }

    pub fn with_lane(mut self, name: &str, limit: u32) -> Bed {
        self.set_lane(name, limit);
        self
    }

    pub fn set_lane(&mut self, name: &str, limit: u32) {
        self.reconfigure(|config| {
            config.lanes.insert(name.into(), lane(limit));
        });
    }

    /// Workers take what they are handed and say nothing until a test lets them [`Bed::begin`].
    pub fn idle_workers(mut self) -> Bed {
        self.begins_at_once = false;
        self
    }

    pub fn reconfigure(&mut self, change: impl FnOnce(&mut Config)) {
        let event = self.configure_event(change);
        self.send([event]);
    }

    pub fn configure_event(&mut self, change: impl FnOnce(&mut Config)) -> Event {
        change(&mut self.config);
        Event::Configure { ticket: None, config: Arc::new(self.config.clone()) }
    }

    pub fn join(&mut self, worker: WorkerSpec) {
        self.join_holding(worker, Vec::new());
    }

    pub fn join_holding(&mut self, worker: WorkerSpec, held: Vec<Held>) {
        self.workers.insert(worker.id, worker.clone());
        self.send([Event::WorkerJoined { worker, held }]);
    }

    pub fn worker_gone(&mut self, worker: WorkerId) {
        self.workers.remove(&worker);
        self.send([Event::WorkerGone { worker, reason: "its connection broke".into() }]);
    }

    /// It shows no heartbeat any more.
    pub fn silence(&mut self, worker: WorkerId) {
        self.silent.insert(worker);
    }

    pub fn pause_agent(&mut self, agent: &str, paused: bool) {
        self.reconfigure(|config| config.agents.entry(agent.into()).or_default().paused = paused);
    }

    pub fn pause_lane(&mut self, lane: &str, paused: bool) {
        self.reconfigure(|config| config.lanes.get_mut(lane).expect("the lane is configured").paused = paused);
    }

    pub fn admit(&mut self, admit: Admit) {
        self.send([Event::Admit { admit, ticket: None }]);
    }

    /// The process is gone, with everything it ran; a new one opens what the store holds.
    pub fn crash(&mut self) {
        self.reopen();
        for worker in self.workers.clone().into_values() {
            let event = self.join_event(worker, Vec::new());
            self.send([event]);
        }
    }

    /// Only the scheduler restarts; its workers come back with all they hold.
    pub fn restart(&mut self) {
        let held = self.held();
        self.reopen();
        for worker in self.workers.clone().into_values() {
            let held = held.iter().filter(|(id, _)| *id == worker.id).map(|(_, held)| *held).collect();
            let event = self.join_event(worker, held);
            self.send([event]);
        }
    }

    /// The scheduler alone is back; no worker has shown up yet.
    pub fn reopen(&mut self) {
        let config = Arc::new(self.config.clone());
        let (yard, now) =
            Yard::open(Box::new(self.store.clone()), config, 7, self.now.wall_ms).expect("a store opens again");
        self.yard = yard;
        self.now = now;
        self.send([]);
    }

    /// Submits in a tick whose commit fails; the yard recovers and its workers join again with what they hold.
    pub fn fail_commit_of(&mut self, fail: FailCommit, new: New) -> TaskId {
        let new = self.with_id(new);
        let id = new.id;
        let submission = self.submission(None, SubmitMode::All, vec![new], None);
        self.store.fail_next_commit(fail);
        let ticked = self.yard.tick(self.now, &mut vec![Event::Submit(submission)]);
        assert!(ticked.is_err(), "a tick whose commit failed lets nothing out");
        self.yard.recover(self.now).expect("the store is still there");
        let held = self.held();
        for worker in self.workers.clone().into_values() {
            let held = held.iter().filter(|(id, _)| *id == worker.id).map(|(_, held)| *held).collect();
            let event = self.join_event(worker, held);
            self.send([event]);
        }
        id
    }

    /// What workers have at hand: live leases whose start really reached them.
    fn held(&self) -> Vec<(WorkerId, Held)> {
        let live = self.yard.core().held().filter_map(|task| {
            let start = self.leases.get(&task.id).filter(|start| start.attempt == task.attempt)?;
            Some((start.worker, Held { task: task.id, attempt: start.attempt, token: start.token }))
        });
        live.collect()
    }
}

// ── Time ────────────────────────────────────────────────────────────────────────────────────────────────────────────

impl Bed {
    pub fn wall_ms(&self) -> u64 {
        self.now.wall_ms
    }

    /// So much from now, on the wall clock.
    pub fn after_ms(&self, ms: u64) -> u64 {
        self.now.wall_ms + ms
    }

    /// Lets time pass as the loop of a server would see it: it wakes up when the yard asked to be woken, and not in
    /// between but for heartbeats.
    pub fn advance_ms(&mut self, ms: u64) {
        let mut left_ms = ms;
        loop {
            let step_ms = self.yard.next_timeout(self.now).unwrap_or(u64::MAX).min(HEARTBEAT_MS).min(left_ms);
            left_ms -= step_ms;
            self.now.wall_ms += step_ms;
            self.now.steady_ms += step_ms;
            let seen = self.workers.keys().filter(|id| !self.silent.contains(id));
            let seen: Vec<Event> =
                seen.map(|&worker| Event::WorkerSeen { worker, vitals: Default::default() }).collect();
            self.send(seen);
            if left_ms == 0 {
                return;
            }
        }
    }

    /// So much time passes before the loop comes round, and it finds this event.
    pub fn send_after_ms(&mut self, ms: u64, event: Event) {
        self.now.wall_ms += ms;
        self.now.steady_ms += ms;
        self.send([event]);
    }

    /// Somebody sets the wall clock; no time passes.
    pub fn set_wall_clock(&mut self, wall_ms: u64) {
        self.now.wall_ms = wall_ms;
        self.send([]);
    }

    /// One tick with these events, and the ticks that follow from it without more news.
    pub fn send(&mut self, events: impl IntoIterator<Item = Event>) {
        let mut events: Vec<Event> = events.into_iter().collect();
        for _ in 0..TICKS_MAX {
            let ticked = self.yard.tick(self.now, &mut events).expect("the store in memory does not fail by itself");
            self.check();
            self.happenings.extend(ticked.happenings);
            for command in ticked.commands {
                events.extend(self.obey(command));
            }
            let is_due = self.yard.next_timeout(self.now) == Some(0);
            if !ticked.again && !is_due && events.is_empty() {
                self.check_lines();
                return;
            }
        }
        panic!("the yard still had something to do after {TICKS_MAX} ticks");
    }

    /// What memory keeps twice says the same twice: after each of the first ticks, then now and then, because in a long
    /// test that is most of the time it takes.
    fn check(&mut self) {
        self.n_ticks += 1;
        if self.n_ticks < 200 || self.n_ticks.is_multiple_of(50) {
            self.yard.core().sanity_check();
            self.check_sessions();
        }
    }

    fn obey(&mut self, command: Command) -> Option<Event> {
        match command {
            Command::Answer { ticket, answer } => {
                let earlier = self.answers.insert(ticket, answer);
                assert!(earlier.is_none(), "each caller is answered once");
                None
            }
            Command::Start(start) => {
                let begun = self.begins_at_once.then(|| report_of(&start, Report::Started));
                self.leases.insert(start.task, start.clone());
                self.starts.push(start);
                begun
            }
            Command::Stop { task, stop, .. } => {
                self.stops.push((task, stop));
                None
            }
            Command::Revoke { task, attempt, .. } => {
                self.revokes.push((task, attempt));
                None
            }
            Command::Input { task, message, spec, .. } => {
                let spec = spec.expect("a message is handed over with what it says");
                self.inputs.push((task, message, text(&spec)));
                None
            }
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    fn answer(&mut self, ticket: Ticket) -> Answer {
        self.answers.remove(&ticket).expect("every request is answered in its tick")
    }
}

// ── What users do ───────────────────────────────────────────────────────────────────────────────────────────────────

impl Bed {
    /// Ids for tasks that refer to each other before they exist.
    pub fn ids<const N: usize>(&mut self) -> [TaskId; N] {
        std::array::from_fn(|_| self.new_id())
    }

    fn new_id(&mut self) -> TaskId {
        self.next_id += 1;
        TaskId(self.next_id)
    }

    pub fn submit(&mut self, new: New) -> TaskId {
        self.try_submit(new).expect("there is room for the task").id
    }

    pub fn submit_n(&mut self, n: usize, new: &New) -> Vec<TaskId> {
        (0..n).map(|_| self.submit(new.clone())).collect()
    }

    pub fn try_submit(&mut self, new: New) -> Result<Accepted, Refusal> {
        match self.submit_answer(new, None) {
            Answer::Submitted { items } => items.into_iter().next().expect("one item, one answer"),
            Answer::Refused(refusal) => Err(refusal),
            other => panic!("a submit without a key is taken or refused, not {other:?}"),
        }
    }

    /// A single submit with its key, as the header gives it.
    pub fn submit_with_key(&mut self, new: New, key: &str, hash: u64) -> Answer {
        let key = Idempotency { agent: new.0.flow.agent.clone(), key: key.into(), hash };
        self.submit_answer(new, Some(key))
    }

    fn submit_answer(&mut self, new: New, key: Option<Idempotency>) -> Answer {
        let new = self.with_id(new);
        let submission = self.submission(None, SubmitMode::All, vec![new], key);
        let ticket = submission.ticket;
        self.send([Event::Submit(submission)]);
        self.answer(ticket)
    }

    /// Several callers at the same moment: one tick, in this order.
    pub fn submit_in_one_tick(&mut self, news: impl IntoIterator<Item = (New, Option<Idempotency>)>) -> Vec<Answer> {
        let submissions: Vec<Submission> = news
            .into_iter()
            .map(|(new, key)| {
                let new = self.with_id(new);
                self.submission(None, SubmitMode::All, vec![new], key)
            })
            .collect();
        let tickets: Vec<Ticket> = submissions.iter().map(|submission| submission.ticket).collect();
        self.send(submissions.into_iter().map(Event::Submit));
        tickets.into_iter().map(|ticket| self.answer(ticket)).collect()
    }

    pub fn submit_batch(&mut self, batch: NewBatchOf) -> (BatchId, Answer) {
        let NewBatchOf { mode, parallelism, key, calls_back, items } = batch;
        let items: Vec<NewTask> = items.into_iter().map(|item| self.with_id(item)).collect();
        let id = BatchId(self.new_id().0 | 1 << 64);
        let new = NewBatch { id, parallelism, calls_back, spec: blob("batch") };
        let submission = self.submission(Some(new), mode, items, key);
        let ticket = submission.ticket;
        self.send([Event::Submit(submission)]);
        (id, self.answer(ticket))
    }

    /// A batch that is taken as a whole.
    pub fn batch(&mut self, batch: NewBatchOf) -> (BatchId, Vec<TaskId>) {
        match self.submit_batch(batch) {
            (id, Answer::Submitted { items }) => {
                (id, items.into_iter().map(|item| item.expect("the item is taken").id).collect())
            }
            (_, other) => panic!("the batch is taken, not {other:?}"),
        }
    }

    /// The same submission again, under the same ids: nobody heard the answer to an earlier one, or there was none.
    pub fn ask_again(&mut self, batch: Option<BatchId>, ids: &[TaskId], item: impl Fn() -> New) -> Answer {
        let items = ids.iter().map(|id| NewTask { id: *id, ..item().0 }).collect();
        let batch = batch.map(|id| NewBatch { id, parallelism: None, calls_back: false, spec: blob("batch") });
        let submission = self.submission(batch, SubmitMode::All, items, None);
        let ticket = submission.ticket;
        self.send([Event::Submit(Submission { asked: Asked::Again, ..submission })]);
        self.answer(ticket)
    }

    fn submission(
        &mut self,
        batch: Option<NewBatch>,
        mode: SubmitMode,
        items: Vec<NewTask>,
        idempotency: Option<Idempotency>,
    ) -> Submission {
        Submission { ticket: self.ticket(), batch, mode, items, idempotency, asked: Asked::Once }
    }

    fn with_id(&mut self, New(mut new): New) -> NewTask {
        if new.id == TaskId(0) {
            new.id = self.new_id();
        }
        new
    }

    pub fn cancel(&mut self, task: TaskId) -> CancelAnswer {
        let ticket = self.ticket();
        self.send([Event::Cancel { ticket, task, reason: "asked by a test".into() }]);
        match self.answer(ticket) {
            Answer::Cancel(answer) => answer,
            other => panic!("a cancel is answered as one, not {other:?}"),
        }
    }

    pub fn heartbeat(&mut self, task: TaskId) -> HeartbeatAnswer {
        let ticket = self.ticket();
        self.send([Event::Heartbeat { ticket, task }]);
        match self.answer(ticket) {
            Answer::Heartbeat(answer) => answer,
            other => panic!("a heartbeat is answered as one, not {other:?}"),
        }
    }

    pub fn change(&mut self, task: TaskId, change: Change) -> Result<Box<Task>, ChangeRefusal> {
        let ticket = self.ticket();
        self.send([Event::Change { ticket, task, change }]);
        match self.answer(ticket) {
            Answer::Change(answer) => answer,
            other => panic!("a change is answered as one, not {other:?}"),
        }
    }

    /// A command under a key: done at most once.
    pub fn once(&mut self, key: &str, command: impl FnOnce(Ticket) -> Event) -> Answer {
        let ticket = self.ticket();
        self.send([Event::Once { ticket, key: once_key(key), command: Box::new(command(ticket)) }]);
        self.answer(ticket)
    }

    pub fn was_done(&mut self, key: &str) -> Answer {
        let ticket = self.ticket();
        self.send([Event::WasDone { ticket, key: once_key(key) }]);
        self.answer(ticket)
    }

    pub fn try_explain(&mut self, task: TaskId) -> Option<Box<Explanation>> {
        let ticket = self.ticket();
        self.send([Event::Explain { ticket, task }]);
        match self.answer(ticket) {
            Answer::Explained(explanation) => explanation,
            other => panic!("why is answered with gates, not {other:?}"),
        }
    }

    pub fn explain(&mut self, task: TaskId) -> Box<Explanation> {
        self.try_explain(task).expect("the task is known")
    }

    /// The gates that are closed to this task: kind and name.
    pub fn closed(&mut self, task: TaskId) -> Vec<(&'static str, String)> {
        self.explain(task).closed().map(|gate| (gate.kind, gate.name.to_string())).collect()
    }

    pub fn closed_gate(&mut self, task: TaskId, kind: &str) -> GateView {
        let explanation = self.explain(task);
        let gate = explanation.closed().find(|gate| gate.kind == kind).cloned();
        gate.unwrap_or_else(|| panic!("the {kind} gate is closed: {explanation:?}"))
    }
}

// ── Events for one tick ─────────────────────────────────────────────────────────────────────────────────────────────

impl Bed {
    /// Answers to requests that are sent by hand are not looked at.
    pub fn submit_event(&mut self, new: New) -> Event {
        let new = self.with_id(new);
        Event::Submit(self.submission(None, SubmitMode::All, vec![new], None))
    }

    pub fn cancel_event(&mut self, task: TaskId) -> Event {
        Event::Cancel { ticket: self.ticket(), task, reason: "asked by a test".into() }
    }

    pub fn change_event(&mut self, task: TaskId, change: Change) -> Event {
        Event::Change { ticket: self.ticket(), task, change }
    }

    pub fn session_event(&mut self, key: &str, act: SessionAct) -> Event {
        Event::Session { ticket: self.ticket(), key: key.into(), act }
    }

    pub fn complete_event(&self, task: TaskId) -> Event {
        report_of(&self.start_of(task), Report::Completed { result: None, usage: None })
    }

    pub fn fail_event(&self, task: TaskId, class: Class) -> Event {
        report_of(&self.start_of(task), failed(class, None))
    }
}

// ── What workers do ─────────────────────────────────────────────────────────────────────────────────────────────────

impl Bed {
    pub fn report(&mut self, task: TaskId, report: Report) {
        let start = self.start_of(task);
        self.report_as(&start, report);
    }

    /// Reports with the lease of one particular start, which may be an old one.
    pub fn report_as(&mut self, start: &Start, report: Report) {
        self.send([report_of(start, report)]);
    }

    pub fn begin(&mut self, task: TaskId) {
        self.report(task, Report::Started);
    }

    pub fn alive(&mut self, task: TaskId) {
        self.report(task, Report::Alive);
    }

    pub fn complete(&mut self, task: TaskId) {
        self.report(task, Report::Completed { result: Some(blob("done")), usage: None });
    }

    pub fn fail(&mut self, task: TaskId, class: Class) {
        self.report(task, failed(class, None));
    }

    pub fn fail_with_retry_after(&mut self, task: TaskId, class: Class, retry_after_ms: u64) {
        self.report(task, failed(class, Some(retry_after_ms)));
    }

    /// The executor itself broke.
    pub fn fail_by_worker(&mut self, task: TaskId) {
        let Report::Failed { class, message, retry_after_ms, result, usage, .. } = failed(Class::Task, None) else {
            unreachable!("a failure was just made")
        };
        self.report(task, Report::Failed { class, message, retry_after_ms, result, usage, fault: Fault::Worker });
    }

    /// Nothing of it is alive any more.
    pub fn confirm_stop(&mut self, task: TaskId) {
        self.report(task, Report::Stopped);
    }

    pub fn hand_back(&mut self, task: TaskId) {
        self.report(task, Report::NotStarted { reason: "no room after all".into() });
    }

    /// Completes whatever is held, earliest start first, until nothing is; gives the tasks that started on the way, in
    /// order, those that were held at the beginning included.
    pub fn run_all(&mut self) -> Vec<TaskId> {
        let mut order = self.held_in_start_order();
        let mut n_seen = self.starts.len();
        let mut n_done = 0;
        while n_done < order.len() {
            self.complete(order[n_done]);
            n_done += 1;
            order.extend(self.starts[n_seen..].iter().map(|start| start.task));
            n_seen = self.starts.len();
        }
        order
    }

    pub fn held_in_start_order(&self) -> Vec<TaskId> {
        let mut held: Vec<(u64, TaskId)> = self
            .yard
            .core()
            .held()
            .map(|task| (task.state.lease().expect("a held task has a lease").order, task.id))
            .collect();
        held.sort_unstable();
        held.into_iter().map(|(_, id)| id).collect()
    }
}

// ── What can be seen ────────────────────────────────────────────────────────────────────────────────────────────────

impl Bed {
    pub fn doc(&self, id: TaskId) -> TaskDoc {
        self.find(id).expect("the task is stored")
    }

    pub fn find(&self, id: TaskId) -> Option<TaskDoc> {
        self.store.task(id).expect("memory reads")
    }

    pub fn task(&self, id: TaskId) -> Task {
        self.doc(id).task
    }

    pub fn state(&self, id: TaskId) -> Phase {
        self.task(id).phase()
    }

    pub fn states(&self, ids: &[TaskId]) -> Vec<Phase> {
        ids.iter().map(|&id| self.state(id)).collect()
    }

    pub fn class(&self, id: TaskId) -> Option<Class> {
        self.task(id).error.map(|error| error.class)
    }

    /// What a reader of the store sees.
    pub fn store(&self) -> &MemoryStore {
        &self.store
    }

    pub fn n_stored(&self) -> usize {
        self.store.tasks(&Filter::default(), None, 1_000_000).expect("memory reads").items.len()
    }

    pub fn batch_row(&self, id: BatchId) -> Batch {
        self.store.batch(id).expect("memory reads").expect("the batch is stored").0
    }

    pub fn has_batch(&self, id: BatchId) -> bool {
        self.store.batch(id).expect("memory reads").is_some()
    }

    /// Kept counts, over all lanes; of one agent, or of all.
    pub fn counts(&self, agent: Option<&str>) -> CountDelta {
        let rows = self.store.counts().expect("memory reads");
        let rows = rows.into_iter().filter(|(key, _)| agent.is_none_or(|agent| &*key.agent == agent));
        rows.fold(CountDelta::default(), |sum, (_, row)| {
            let (a, b) = (sum.values(), row.values());
            CountDelta::from_values(std::array::from_fn(|n| a[n] + b[n]))
        })
    }

    pub fn n_held(&self) -> usize {
        self.yard.core().n_held()
    }

    pub fn start_of(&self, id: TaskId) -> Start {
        self.leases.get(&id).unwrap_or_else(|| panic!("{id:?} was started")).clone()
    }

    /// Every start so far, in order; a task that ran twice is there twice.
    pub fn started(&self) -> Vec<TaskId> {
        self.starts.iter().map(|start| start.task).collect()
    }

    pub fn n_starts_of(&self, id: TaskId) -> usize {
        self.starts.iter().filter(|start| start.task == id).count()
    }

    /// Stops asked for since the last look.
    pub fn take_stops(&mut self) -> Vec<(TaskId, Stop)> {
        std::mem::take(&mut self.stops)
    }

    pub fn take_revokes(&mut self) -> Vec<(TaskId, u32)> {
        std::mem::take(&mut self.revokes)
    }

    /// The outbox in its order: whose, what, about whom.
    pub fn outbox(&self) -> Vec<Delivery> {
        let mut all = self.store.deliveries(&DeliveryFilter::default(), None, 1_000_000).expect("memory reads").items;
        all.reverse();
        all
    }

    pub fn happenings(&self) -> &[Happening] {
        &self.happenings
    }

    pub fn happenings_of(&self, id: TaskId) -> Vec<HappeningKind> {
        self.facts_of(id).into_iter().map(|(kind, _)| kind).collect()
    }

    pub fn facts_of(&self, id: TaskId) -> Vec<(HappeningKind, TaskFacts)> {
        let facts = self.happenings.iter().filter_map(|happening| match &happening.subject {
            Subject::Task(facts) if facts.task == id => Some((happening.kind, facts.clone())),
            _ => None,
        });
        facts.collect()
    }

    pub fn n_finals_of(&self, id: TaskId) -> usize {
        self.happenings_of(id).into_iter().filter(|kind| kind.is_final()).count()
    }

    pub fn n_happenings(&self, kind: HappeningKind) -> usize {
        self.happenings.iter().filter(|happening| happening.kind == kind).count()
    }

    /// Retention at this moment; gives the tasks that are gone.
    pub fn purge(&mut self, retention_ms: u64) -> Vec<TaskId> {
        let purge = Purge {
            retention_ms,
            keys_ms_min: DAY,
            happenings_ms: DAY,
            happenings_bytes_max: 1 << 30,
            deliveries_ms: DAY,
            runs_ms: DAY,
            runs_max: 200,
            limit: 1000,
        };
        let now = self.now;
        self.yard.store().purge(now, &purge).expect("memory purges").tasks
    }
}

fn report_of(start: &Start, report: Report) -> Event {
    let Start { worker, task, attempt, token, .. } = *start;
    Event::Report { worker, task, attempt, token, report }
}

fn failed(class: Class, retry_after_ms: Option<u64>) -> Report {
    let message = format!("failed as {}", class.as_str()).into();
    Report::Failed { class, message, retry_after_ms, result: None, usage: None, fault: Fault::Work }
}

pub fn blob(text: &str) -> Blob {
    text.as_bytes().into()
}

fn text(blob: &Blob) -> String {
    String::from_utf8(blob.to_vec()).expect("tests say everything in words")
}

fn once_key(key: &str) -> Idempotency {
    Idempotency { agent: "".into(), key: key.into(), hash: 0 }
}
