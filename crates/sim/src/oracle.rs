//! What must be true, by bookkeeping of its own: rows as they were committed, events as they were given, and arithmetic
//! that shares nothing with the scheduler's. A contradiction is a panic that says what does not agree.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use runyard_core::batch::Batch;
use runyard_core::config::Config;
use runyard_core::event::{Admit, Happening, HappeningKind, IdempotencyRow, NewTask, Subject, WorkerSpec};
use runyard_core::flow::FlowKey;
use runyard_core::hash::{DetMap, DetSet};
use runyard_core::ids::{BatchId, FlowId, ScheduleId, TaskId, WorkerId};
use runyard_core::name::{Blob, Name};
use runyard_core::now::Now;
use runyard_core::schedule::Run;
use runyard_core::session::{Message, SessionId};
use runyard_core::task::{Phase, State, Task, Wait};
use runyard_core::worker::WorkerRow;
use runyard_core::write::{CountDelta, CountKey, SessionDrop, WriteSet};

use crate::mail::Mail;
use crate::schedules::{Book, Told};
use crate::sessions::SessionShadow;

pub struct Oracle {
    pub config: Arc<Config>,
    pub admit: Admit,
    /// The greatest times given so far: what the scheduler must take for now.
    pub now: Now,
    pub rows: DetMap<TaskId, Task>,
    pub specs: DetMap<TaskId, Blob>,
    /// What was asked for, by the id it was asked for under.
    pub births: DetMap<TaskId, NewTask>,
    /// Items that were answered with another, earlier task.
    pub aliases: DetMap<TaskId, TaskId>,
    pub flows: BTreeMap<FlowId, FlowShadow>,
    pub live: BTreeSet<TaskId>,
    /// Leases, with the lane that was in force when each began.
    pub held: BTreeMap<TaskId, Name>,
    pub batches: BTreeMap<BatchId, BatchShadow>,
    pub sessions: BTreeMap<Name, SessionShadow>,
    pub session_keys: BTreeMap<SessionId, Name>,
    /// Merged messages by the task that carries them.
    pub messages: DetMap<TaskId, Vec<Blob>>,
    /// The generation of its session that each message came in.
    pub generations: DetMap<TaskId, u32>,
    /// Beyond this moment a task in line may not be held back for more messages.
    pub gathers_until: DetMap<TaskId, u64>,
    /// Start order of the latest attempts.
    pub turns: DetMap<TaskId, u64>,
    n_turns: u64,
    /// When each running task last gave a sign of life. Absent while nobody listens: after a restart, until its worker
    /// is back.
    pub heard_ms: BTreeMap<TaskId, u64>,
    /// Sessions that were stopped or joined while there is still something to do.
    pub unrested: BTreeMap<Name, (BTreeSet<&'static str>, bool)>,
    /// Tasks that were there when their session was stopped.
    pub stopped: BTreeSet<TaskId>,
    /// Nothing was left to do before this tick.
    pub is_rested: bool,
    pub workers: BTreeMap<WorkerId, WorkerShadow>,
    /// Until when each cools after a fault, be it there or not.
    pub cooling: BTreeMap<WorkerId, u64>,
    /// Those on other machines, as they should be stored, and as they are.
    pub registered: BTreeMap<WorkerId, WorkerRow>,
    pub registered_stored: BTreeMap<WorkerId, WorkerRow>,
    pub n_samples: u64,
    /// After which measurement of its worker each held task was placed.
    pub claims: DetMap<TaskId, (WorkerId, u64)>,
    /// For each named gate the moment, in µs, at which its bucket is full again.
    pub rates: BTreeMap<Name, u64>,
    pub keys: BTreeMap<(Name, Name), IdempotencyRow>,
    pub mail: Mail,
    pub book: Book,
    /// Cancels that were answered: the end must be `cancelled`.
    pub promised: DetSet<TaskId>,
    /// Starts in order, since the last start of an aged task.
    pub n_starts_since_aged: u64,
    counts: BTreeMap<CountKey, CountDelta>,
    told_ms: u64,
    stored_now: Now,
    /// The core was dropped while everything was to stop: it asks for that again, before the next events.
    pub is_stopping_anew: bool,
}

pub struct FlowShadow {
    pub key: Arc<FlowKey>,
    pub queued: BTreeSet<(i32, u64, TaskId)>,
    n_queued: u64,
    n_live: u64,
}

pub struct BatchShadow {
    pub row: Batch,
    pub members: Vec<TaskId>,
    n_told: u32,
}

#[derive(Clone, Debug)]
pub struct WorkerShadow {
    pub spec: WorkerSpec,
    pub joined: bool,
    pub seen_ms: u64,
    /// What its machine said last, and how often it has spoken since it came.
    pub cpu_usage_milli: Option<u32>,
    pub ram_free_mb: Option<u32>,
    pub n_samples: u32,
    /// The number of its last measurement, or of its coming, over all workers.
    pub sample: u64,
    pub trouble: bool,
    /// It wants no more than so many.
    pub heads_max: Option<u32>,
}

impl WorkerShadow {
    pub fn new(spec: WorkerSpec, joined: bool, seen_ms: u64, sample: u64) -> WorkerShadow {
        WorkerShadow {
            spec,
            joined,
            seen_ms,
            cpu_usage_milli: None,
            ram_free_mb: None,
            n_samples: 0,
            sample,
            trouble: false,
            heads_max: None,
        }
    }
}

/// What one commit changed.
#[derive(Default)]
pub struct Applied {
    /// Rows as they were before; `None` for new ones.
    pub changed: Vec<(TaskId, Option<Task>)>,
    /// In the order of their starts.
    pub started: Vec<TaskId>,
    pub created: BTreeSet<TaskId>,
    pub keys: Vec<IdempotencyRow>,
    /// Sessions whose rows were written, with the numbers in line that they had given before.
    pub sessions: BTreeMap<Name, u64>,
    pub messages: Vec<(Message, Blob)>,
    pub drops: Vec<SessionDrop>,
    /// Tasks that were told to be dropped.
    pub dropped: BTreeSet<TaskId>,
    pub runs_added: Vec<Run>,
    pub runs_put: Vec<Run>,
    /// In order.
    pub(crate) schedules_told: BTreeMap<ScheduleId, Vec<Told>>,
}

impl Oracle {
    pub fn new(config: Arc<Config>, now: Now) -> Oracle {
        Oracle {
            config,
            admit: Admit::Open,
            now,
            rows: DetMap::default(),
            specs: DetMap::default(),
            births: DetMap::default(),
            aliases: DetMap::default(),
            flows: BTreeMap::new(),
            live: BTreeSet::new(),
            held: BTreeMap::new(),
            batches: BTreeMap::new(),
            sessions: BTreeMap::new(),
            session_keys: BTreeMap::new(),
            messages: DetMap::default(),
            generations: DetMap::default(),
            gathers_until: DetMap::default(),
            turns: DetMap::default(),
            n_turns: 0,
            heard_ms: BTreeMap::new(),
            unrested: BTreeMap::new(),
            stopped: BTreeSet::new(),
            is_rested: false,
            workers: BTreeMap::new(),
            cooling: BTreeMap::new(),
            registered: BTreeMap::new(),
            registered_stored: BTreeMap::new(),
            n_samples: 0,
            claims: DetMap::default(),
            rates: BTreeMap::new(),
            keys: BTreeMap::new(),
            mail: Mail::default(),
            book: Book::default(),
            promised: DetSet::default(),
            n_starts_since_aged: 0,
            counts: BTreeMap::new(),
            told_ms: 0,
            stored_now: Now::default(),
            is_stopping_anew: false,
        }
    }

    pub fn advance(&mut self, now: Now) {
        self.now.wall_ms = self.now.wall_ms.max(now.wall_ms);
        self.now.steady_ms = self.now.steady_ms.max(now.steady_ms);
    }

    /// Everything in memory was dropped and read again: workers are known by their leases only, and slots are taken
    /// anew on the way that is in force now.
    pub fn recovered(&mut self, now: Now) {
        // Times that were seen and not stored are forgotten too.
        self.now = self.stored_now;
        self.is_stopping_anew = self.admit == Admit::Stopping;
        self.advance(now);
        self.workers.clear();
        self.registered = self.registered_stored.clone();
        self.cooling.clear();
        self.heard_ms.clear();
        // The count of starts begins anew with the core.
        self.n_starts_since_aged = u64::from(u32::MAX);
        for (id, lane) in &mut self.held {
            let task = &self.rows[id];
            let worker = task.state.lease().expect("held rows have leases").worker;
            *lane = lane_of(&self.config, &self.flows[&task.flow].key.lane);
            let spec = WorkerSpec {
                id: worker,
                name: Name::new(""),
                kinds: Vec::new(),
                keeps: Vec::new(),
                capacity: Default::default(),
                parallel_max: None,
                labels: Vec::new(),
                embedded: false,
            };
            let absent = WorkerShadow::new(spec, false, self.now.steady_ms, 0);
            self.workers.insert(worker, absent);
        }
    }

    pub fn key_of(&self, task: &Task) -> &Arc<FlowKey> {
        &self.flows[&task.flow].key
    }

    // ── Commits ─────────────────────────────────────────────────────────────────────────────────────────────────

    pub fn apply(&mut self, writes: &WriteSet) -> Applied {
        assert_eq!(writes.meta.now, self.now, "the clocks that were stored are the greatest that were seen");
        self.stored_now = writes.meta.now;
        let mut applied = Applied::default();
        for row in &writes.flows_put {
            let shadow = self.flows.entry(row.id).or_insert_with(|| FlowShadow {
                key: Arc::new(row.key.clone()),
                queued: BTreeSet::new(),
                n_queued: 0,
                n_live: 0,
            });
            assert_eq!(*shadow.key, row.key, "a flow's key never changes");
            (shadow.n_queued, shadow.n_live) = (row.n_queued, row.n_live);
        }
        for (batch, _) in &writes.batches_added {
            let shadow = BatchShadow { row: batch.clone(), members: Vec::new(), n_told: 0 };
            assert!(self.batches.insert(batch.id, shadow).is_none(), "{:?} is new", batch.id);
        }
        for batch in &writes.batches_put {
            self.batches.get_mut(&batch.id).expect("a changed batch is known").row = batch.clone();
        }
        applied.sessions = self.apply_sessions(writes);
        for insert in &writes.inserts {
            assert!(!self.rows.contains_key(&insert.task.id), "{:?} is new", insert.task.id);
            self.specs.extend(insert.spec.clone().map(|spec| (insert.task.id, spec)));
            if let Some(batch) = insert.task.batch {
                self.batches.get_mut(&batch).expect("its batch is known").members.push(insert.task.id);
            }
            applied.created.insert(insert.task.id);
            self.put(&insert.task, &mut applied);
        }
        for update in &writes.updates {
            let old = &self.rows[&update.task.id];
            assert_eq!(update.from, (old.phase(), old.attempt), "the guard of {:?}", update.task.id);
            self.put(&update.task, &mut applied);
        }
        for id in &writes.flows_removed {
            let flow = self.flows.remove(id);
            assert!(flow.is_none_or(|flow| flow.queued.is_empty()), "{id:?} is removed and has a queue");
        }
        for (key, delta) in &writes.counts {
            let count = self.counts.entry(key.clone()).or_default();
            let (a, b) = (count.values(), delta.values());
            *count = CountDelta::from_values(std::array::from_fn(|n| a[n] + b[n]));
        }
        let order = |id: &TaskId| self.rows[id].state.lease().map_or(u64::MAX, |lease| lease.order);
        applied.started.sort_by_key(order);
        for id in &applied.started {
            self.n_turns += 1;
            self.turns.insert(*id, self.n_turns);
        }
        applied.keys = writes.idempotency_added.clone();
        applied.messages = writes.messages_added.clone();
        applied.drops = writes.drops_added.clone();
        self.apply_messages(&writes.messages_added, &writes.drops_added);
        let dropped = writes.happenings.iter().filter(|happening| happening.kind == HappeningKind::TaskDropped);
        applied.dropped = dropped
            .filter_map(|happening| match &happening.subject {
                Subject::Task(facts) => Some(facts.task),
                _ => None,
            })
            .collect();
        self.registered_stored.extend(writes.workers_put.iter().map(|row| (row.spec.id, row.clone())));
        writes.workers_removed.iter().for_each(|id| drop(self.registered_stored.remove(id)));
        self.hear(&writes.happenings, &applied);
        self.apply_mail(writes, &applied);
        self.apply_schedules(writes, &mut applied);
        applied
    }

    fn put(&mut self, task: &Task, applied: &mut Applied) {
        let id = task.id;
        let old = self.rows.insert(id, task.clone());
        if let Some(old) = &old {
            check_step(old, task);
            if old.phase() == Phase::Queued
                && let Some(flow) = self.flows.get_mut(&old.flow)
            {
                flow.queued.remove(&(old.rank, old.seq, id));
            }
        }
        let is_start = task.phase().is_held() && old.as_ref().is_none_or(|old| old.attempt != task.attempt);
        if is_start {
            applied.started.push(id);
            let lane = lane_of(&self.config, &self.flows[&task.flow].key.lane);
            self.held.insert(id, lane);
        } else if !task.phase().is_held() {
            self.held.remove(&id);
        }
        if task.phase() == Phase::Queued {
            let flow = self.flows.get_mut(&task.flow).expect("a queued task's flow is stored");
            flow.queued.insert((task.rank, task.seq, id));
        }
        let session = task.member.and_then(|member| self.session_keys.get(&member.session));
        let session = session.and_then(|key| self.sessions.get_mut(key));
        if task.phase().is_terminal() {
            self.live.remove(&id);
            session.map(|session| session.live.remove(&id));
        } else {
            self.live.insert(id);
            session.map(|session| session.live.insert(id));
        }
        applied.changed.push((id, old));
    }

    /// Each end is told once, in the commit that made it; a batch's too.
    fn hear(&mut self, happenings: &[Happening], applied: &Applied) {
        let mut ends: DetMap<TaskId, HappeningKind> = DetMap::default();
        for happening in happenings {
            assert!(happening.at_ms >= self.told_ms, "{happening:?} is told with a time before the last one's");
            self.told_ms = happening.at_ms;
            match &happening.subject {
                Subject::Task(facts) if happening.kind.is_final() => {
                    let earlier = ends.insert(facts.task, happening.kind);
                    assert!(earlier.is_none(), "the end of {:?} is told twice", facts.task);
                }
                Subject::Batch(batch) => {
                    let shadow = self.batches.get_mut(&batch.id).expect("a finished batch is known");
                    shadow.n_told += 1;
                    assert_eq!(shadow.n_told, 1, "the end of {:?} is told once", batch.id);
                    let live = shadow.members.iter().find(|id| self.live.contains(id));
                    assert_eq!(live, None, "{:?} is finished and has live members", batch.id);
                }
                _ => {}
            }
        }
        for (id, old) in &applied.changed {
            let phase = self.rows[id].phase();
            let ended = phase.is_terminal() && old.as_ref().is_none_or(|old| !old.phase().is_terminal());
            let told = ends.remove(id);
            let kind = match phase {
                Phase::Completed => HappeningKind::TaskCompleted,
                Phase::Failed => HappeningKind::TaskFailed,
                Phase::Cancelled => HappeningKind::TaskCancelled,
                _ => HappeningKind::TaskRejected,
            };
            let is_dropped = applied.dropped.contains(id);
            assert!(
                !is_dropped || kind == HappeningKind::TaskCancelled,
                "{id:?} is told to be dropped and is {phase:?}"
            );
            let expected = ended.then_some(kind);
            assert_eq!(told, expected, "the end of {id:?} is told in the commit that made it");
            if ended && self.promised.contains(id) {
                assert_eq!(phase, Phase::Cancelled, "the cancel of {id:?} was answered, so its end is cancelled");
            }
        }
        assert!(ends.is_empty(), "ends are told of tasks that did not end: {ends:?}");
    }

    // ── Recounts ────────────────────────────────────────────────────────────────────────────────────────────────

    /// Kept counts against counted ones.
    pub fn recount(&self) {
        let mut counts: BTreeMap<CountKey, CountDelta> = BTreeMap::new();
        let mut flows: BTreeMap<FlowId, (u64, u64)> = BTreeMap::new();
        for id in &self.live {
            let task = &self.rows[id];
            let key = self.key_of(task);
            let count = counts.entry(CountKey { agent: key.agent.clone(), lane: key.lane.clone() }).or_default();
            *count.gauge(task.phase()).expect("a live phase has a gauge") += 1;
            let flow = flows.entry(task.flow).or_default();
            flow.0 += u64::from(task.phase() == Phase::Queued);
            flow.1 += 1;
        }
        for (key, kept) in &self.counts {
            let counted = counts.remove(key).unwrap_or_default();
            assert_eq!(kept.values()[..5], counted.values()[..5], "gauges of {key:?}");
        }
        assert!(counts.is_empty(), "every agent and lane with tasks is counted");
        for (id, flow) in &self.flows {
            let counted = flows.remove(id).unwrap_or_default();
            assert_eq!((flow.n_queued, flow.n_live), counted, "counts of flow {id:?}");
        }
        self.batches.values().for_each(|batch| self.recount_batch(batch));
        self.sessions.keys().for_each(|key| self.recount_session(key));
        self.recount_drops();
    }

    fn recount_batch(&self, batch: &BatchShadow) {
        let tasks = || batch.members.iter().map(|id| &self.rows[id]);
        let count = |phase| tasks().filter(|task| task.phase() == phase).count() as u32;
        let row = &batch.row;
        assert_eq!(row.n_total as usize, batch.members.len(), "members of {:?}", row.id);
        let ended = (count(Phase::Completed), count(Phase::Failed), count(Phase::Cancelled));
        assert_eq!((row.n_completed, row.n_failed, row.n_cancelled), ended, "ends in {:?}", row.id);
        let places = tasks().filter(|task| task.has_place).count() as u32;
        assert_eq!(row.n_places, places, "places of {:?}", row.id);
        let waiting = tasks().filter(|task| task.state == State::Waiting(Wait::BatchPlace)).count() as u32;
        assert_eq!(row.n_waiting, waiting, "members that wait for a place of {:?}", row.id);
        assert_eq!(row.finished_at.is_some(), row.n_ended() == row.n_total, "{:?} is finished", row.id);
        assert_eq!(batch.n_told, u32::from(row.finished_at.is_some()), "{:?} was told to be finished", row.id);
    }

    pub fn places_taken(&self, batch: BatchId) -> u32 {
        let members = &self.batches[&batch].members;
        members.iter().filter(|id| self.rows[*id].has_place).count() as u32
    }

    /// Parents of a task, by the ids they live under.
    pub fn parents_of(&self, id: TaskId) -> Vec<TaskId> {
        let Some(birth) = self.births.get(&id) else { return Vec::new() };
        let parents: BTreeSet<TaskId> =
            birth.depends_on.iter().map(|parent| self.aliases.get(parent).copied().unwrap_or(*parent)).collect();
        parents.into_iter().collect()
    }
}

/// The state machine, as far as one commit shows it: what happened to a row in one tick is folded into one write.
fn check_step(old: &Task, new: &Task) {
    let (from, to) = (old.phase(), new.phase());
    let id = new.id;
    if from.is_terminal() {
        // Only a note that it has children may follow; nothing that a user sees.
        let same = Task { has_children: old.has_children, ..new.clone() };
        assert_eq!(&same, old, "{id:?} has ended and changes");
        return;
    }
    assert!(new.attempt == old.attempt || new.attempt == old.attempt + 1, "{id:?} is handed out once in a tick");
    assert_eq!((old.seq, old.created_at, old.session()), (new.seq, new.created_at, new.session()), "{id:?} is itself");
    let n_merged = |task: &Task| task.member.map_or(0, |member| member.n_merged);
    assert!(old.policy == new.policy || n_merged(old) < n_merged(new), "the policy of {id:?} changes");
    if new.attempt > old.attempt {
        assert!(to == Phase::Assigned, "{id:?} went from {from:?} to {to:?} in its first tick with a worker");
    } else if !from.is_held() {
        // A message may be taken in by another task that runs.
        let is_input = from == Phase::Waiting && old.steers.is_some();
        let is_done = to == Phase::Completed && !is_input;
        assert!(!to.is_held() && !is_done, "{id:?} went from {from:?} to {to:?} without a worker");
    }
    let grows = |a: u32, b: u32| b == a || b == a + 1;
    assert!(grows(old.n_lost, new.n_lost) && grows(old.n_quota, new.n_quota), "ledgers of {id:?}");
    assert!(grows(old.retries_used, new.retries_used) && grows(old.n_preempted, new.n_preempted), "ledgers of {id:?}");
    assert!(new.retries_used <= new.policy.retry.max_retries, "{id:?} used {} retries", new.retries_used);
}

/// A lane that is not configured is the main one.
pub fn lane_of(config: &Config, lane: &Name) -> Name {
    if config.lanes.contains_key(lane) { lane.clone() } else { Name::new("main") }
}
