//! The scheduler's state and its one door.
//!
//! A tick goes: `needs` for each event → the loop reads → `load_rows` → `handle` for each event → releases →
//! `handle(Dispatch)` → `flush` (writes) → commit → effects → `end_tick` → refills that `wants` asked for. Every row that
//! was read or changed in a tick stays in memory until `end_tick`, so that later events of the tick see what earlier
//! ones did.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use crate::batch::Batch;
use crate::config::Config;
use crate::event::{
    Admit, Answer, Asked, Command, Due, Event, FirstAnswer, Happening, HappeningKind, IdempotencyRow, Release, Report,
    Subject,
};
use crate::fleet::Fleet;
use crate::flow::FlowKey;
use crate::gate::{Gate, GateKey};
use crate::hash::{DetMap, DetSet, mix};
use crate::ids::{BatchId, FlowId, ScheduleId, TaskId, Ticket, Token, WorkerId};
use crate::line::{Line, Spot, Standing};
use crate::name::{Blob, Name};
use crate::now::{Clock, Now, SteadyMs};
use crate::outbox::{Delivery, DeliveryId, Progress};
use crate::roll::Roll;
use crate::schedule::{Run, ScheduleDue};
use crate::schedules::ScheduleEntry;
use crate::session::{Message, Session, SessionId};
use crate::slab::{AgentIx, FlowIx, GateIx, Slab, SlotIx};
use crate::task::{Phase, Task};
use crate::timers::Timers;
use crate::window::{DueWindow, Window};
use crate::worker::WorkerAct;
use crate::write::{CountDelta, Edge, Meta, Needs, Rows, SessionDrop};

pub struct Core {
    pub(crate) config: Arc<Config>,
    pub(crate) meta: Meta,
    pub(crate) admit: Admit,
    pub(crate) tasks: DetMap<TaskId, Box<Entry>>,
    pub(crate) flows: Slab<FlowIx, Flow>,
    pub(crate) flow_by_id: DetMap<FlowId, FlowIx>,
    pub(crate) flow_by_key: DetMap<Arc<FlowKey>, FlowIx>,
    pub(crate) agents: Slab<AgentIx, Agent>,
    pub(crate) agent_by_name: DetMap<Name, AgentIx>,
    /// Agents with live tasks, by service: who comes back from idleness starts at the least of them.
    pub(crate) service: BTreeSet<(u64, AgentIx)>,
    pub(crate) gates: Slab<GateIx, Gate>,
    pub(crate) gate_by_key: BTreeMap<GateKey, GateIx>,
    /// Rate states of named gates that no flow passes now.
    pub(crate) rates: BTreeMap<Name, u64>,
    pub(crate) ready: Line,
    /// Gates that are open and have flows parked at them: those flows are candidates too.
    pub(crate) open: BTreeSet<GateIx>,
    pub(crate) fleet: Fleet,
    pub(crate) batches: DetMap<BatchId, BatchEntry>,
    pub(crate) sessions: DetMap<SessionId, Box<SessionEntry>>,
    pub(crate) session_by_key: DetMap<Name, SessionId>,
    pub(crate) wall_dues: DueWindow,
    pub(crate) steady_dues: DueWindow,
    pub(crate) schedule_dues: DueWindow<ScheduleDue>,
    /// Those that this tick is about.
    pub(crate) schedules: BTreeMap<ScheduleId, Box<ScheduleEntry>>,
    pub(crate) n_schedules: u64,
    pub(crate) timers: Timers,
    /// Pending releases, and whether the store knows them already.
    pub(crate) releases: BTreeMap<Release, Stored>,
    pub(crate) n_unstarted: u64,
    pub(crate) n_flows_live: u32,
    /// Window entries beyond each flow's head.
    pub(crate) n_window: usize,
    pub(crate) n_starts: u64,
    pub(crate) n_starts_at_aged: u64,
    /// Flows whose window should be read on.
    pub(crate) hungry: BTreeSet<FlowIx>,
    /// Where the next refill goes on, so that a thousand busy flows cannot keep the others from being read.
    pub(crate) hungry_from: FlowIx,
    /// Something changed about workers: the next dispatch looks which parked shapes find room.
    pub(crate) room_dirty: bool,
    /// Flows without live tasks, oldest first; the surplus is retired.
    pub(crate) idle: VecDeque<FlowIx>,
    /// A dispatch stopped at its bound with candidates left.
    pub(crate) unfinished: bool,
    pub(crate) rejections: Rejections,
    pub(crate) tick: Tick,
    #[cfg(feature = "planted")]
    pub planted: Option<crate::planted::Bug>,
}

/// What one tick gathers and `flush` and `end_tick` empty.
#[derive(Default)]
pub(crate) struct Tick {
    pub touched: Vec<TaskId>,
    pub touched_batches: Vec<BatchId>,
    pub touched_sessions: Vec<SessionId>,
    pub messages: Vec<(Message, Blob)>,
    pub drops: Vec<SessionDrop>,
    /// Messages to be handed to running tasks: to whom, which.
    pub inputs: Vec<(TaskId, TaskId)>,
    pub dirty_flows: DetSet<FlowIx>,
    pub flows_removed: Vec<FlowId>,
    pub deltas: DetMap<FlowIx, CountDelta>,
    pub rejected: BTreeMap<(Name, Name), i64>,
    /// Recorded rejections: rows that never were tasks in memory.
    pub rejections: Vec<crate::write::Insert>,
    pub edges_new: DetMap<TaskId, Vec<TaskId>>,
    pub edges_removed: Vec<Edge>,
    pub releases_removed: Vec<Release>,
    pub keys: DetMap<(Name, Name), IdempotencyRow>,
    pub keys_new: Vec<IdempotencyRow>,
    pub rates_dirty: BTreeSet<Name>,
    pub settings: Vec<(Name, Blob)>,
    pub happenings: Vec<Happening>,
    pub deliveries: Vec<Delivery>,
    pub deliveries_put: Vec<(DeliveryId, Progress)>,
    pub runs_added: Vec<Run>,
    pub runs_put: Vec<Run>,
    pub schedules_removed: Vec<ScheduleId>,
    pub workers_dirty: BTreeSet<WorkerId>,
    pub workers_removed: Vec<WorkerId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stored {
    No,
    Yes,
}

/// A task in memory: at the head of its flow, held, or touched in this tick.
#[derive(Debug)]
pub(crate) struct Entry {
    pub task: Task,
    /// What the row in the store is; `None` for a new task.
    pub stored: Option<(Phase, u32)>,
    pub dirty: bool,
    /// It is among the tick's touched ones.
    pub touched: bool,
    pub in_window: bool,
    /// Kept in memory as the oldest of its flow though it is beyond the window.
    pub pinned: bool,
    pub key_changed: bool,
    pub spec: Option<Blob>,
    pub result: Option<Blob>,
    /// When its assign or attempt timeout is due, and its silence.
    pub timer: Option<SteadyMs>,
    pub stall: Option<SteadyMs>,
    /// How long it was queued before its latest start.
    pub waited_ms: SteadyMs,
    /// Where it counts among those that are spread.
    pub spread_at: Option<Name>,
    /// The slots it holds; fixed at the start, so that a reload in between changes nothing about their release.
    pub gates: Arc<[GateIx]>,
    /// Which slot of each.
    pub slots: Box<[SlotIx]>,
}

#[derive(Debug)]
pub(crate) struct Flow {
    pub id: FlowId,
    pub key: Arc<FlowKey>,
    pub agent: AgentIx,
    pub gates: Arc<[GateIx]>,
    pub window: Window,
    pub n_queued: u64,
    pub n_live: u64,
    /// The queued task with the least seq, while memory holds only the head of the queue.
    pub oldest: Option<TaskId>,
    /// `false` after the oldest left: the next refill says who it is now. Only aging asks.
    pub oldest_known: bool,
    /// Lower bound of the moment its oldest task was queued.
    pub age: SteadyMs,
    pub stand: Stand,
    pub spot: Spot,
    /// Preemptions that are under way for it.
    pub n_keeps: u32,
    pub keeps: VecDeque<Vec<GateIx>>,
    /// Since when it is parked for want of a worker with room.
    pub worker_since: Option<SteadyMs>,
    /// Its held tasks by the value of the label that they are to be spread by.
    pub beside: BTreeMap<Name, u32>,
    pub idle: bool,
}

/// Where a flow stands: nowhere (nothing known to start), ready, or parked at one closed gate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Stand {
    Nowhere,
    Ready,
    Parked(GateIx),
}

#[derive(Debug)]
pub(crate) struct Agent {
    pub name: Name,
    pub gate: GateIx,
    pub weight: u32,
    pub standing: Standing,
    pub n_unstarted: u64,
    pub n_live: u64,
    /// All its flows, and those with live tasks: the second is what the limit means.
    pub n_flows: u32,
    pub n_flows_live: u32,
    /// The lines it stands in.
    pub stands: Vec<(Stand, crate::task::Tier)>,
}

#[derive(Debug)]
pub(crate) struct BatchEntry {
    pub batch: Batch,
    pub dirty: bool,
    pub new_spec: Option<Blob>,
    /// Tasks in memory that refer to it.
    pub n_refs: u32,
}

#[derive(Debug)]
pub(crate) struct SessionEntry {
    pub session: Session,
    pub dirty: bool,
    pub is_new: bool,
    /// Members in memory by their sequence numbers.
    pub members: Roll,
    /// Those of them that stand in line. Others may stand there too, in the store.
    pub line: Roll,
    /// Those that are held, in the order they were started; these are all.
    pub held: Roll,
    /// It is among the tick's touched ones.
    pub touched: bool,
}

impl SessionEntry {
    pub fn new(session: Session, is_new: bool) -> SessionEntry {
        let (members, line, held) = Default::default();
        SessionEntry { session, dirty: is_new, is_new, members, line, held, touched: false }
    }
}

/// Refusals recorded in the hour that runs.
#[derive(Debug, Default)]
pub(crate) struct Rejections {
    pub hour: u64,
    pub by_agent: DetMap<Name, u32>,
}

/// What the loop should read after its commit.
#[derive(Clone, Debug, Default)]
pub struct Wants {
    pub flows: Vec<FlowWant>,
    pub dues: Vec<DueWant>,
    /// Schedules in the order of their due moments, after this one, so many.
    pub schedules: Option<(Option<ScheduleDue>, usize)>,
}

/// Queued tasks of one flow in (rank, seq) order, after `after`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowWant {
    pub flow: FlowId,
    pub after: Option<(i32, u64)>,
    pub limit: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DueWant {
    pub clock: Clock,
    pub after: Option<Due>,
    pub limit: usize,
}

impl Core {
    /// Handles one event. Never fails, never blocks; work per call is bounded by the event's own size and by named limits.
    pub fn handle(&mut self, now: Now, event: Event, out: &mut Vec<Command>) {
        let now = self.advance(now);
        match event {
            Event::Submit(submission) => self.on_submit(now, submission, out),
            Event::TurnedAway(turned_away) => self.on_turned_away(now, turned_away),
            Event::Cancel { ticket, task, reason } => self.on_cancel(now, ticket, task, reason, out),
            Event::Change { ticket, task, change } => self.on_change(now, ticket, task, &change, out),
            Event::Heartbeat { ticket, task } => self.on_heartbeat(now, ticket, task, out),
            Event::Explain { ticket, task } => {
                let explanation = self.explain(now, task).map(Box::new);
                answer(out, ticket, Answer::Explained(explanation));
            }
            Event::Session { ticket, key, act } => self.on_session(now, ticket, key, act, out),
            Event::WorkerJoined { worker, held } => self.on_worker_joined(now, worker, &held, out),
            Event::WorkerSeen { worker, vitals } => self.on_worker_seen(now, worker, vitals),
            Event::WorkerGone { worker, reason } => self.on_worker_gone(now, worker, &reason, out),
            Event::Report { worker, task, attempt, token, report } => {
                self.on_report(now, worker, task, attempt, token, report, out);
            }
            Event::Worker { ticket, worker, act } => self.on_worker(now, ticket, worker, act, out),
            Event::Workers { ticket, only } => answer(out, ticket, Answer::Workers(self.worker_views(now, only))),
            Event::Demand { ticket } => answer(out, ticket, Answer::Demand(Box::new(self.demand(now)))),
            Event::NodeHolds { name } => self.happen(now, HappeningKind::NodeHolds, Subject::Node { name }),
            Event::Configure { ticket, config } => self.on_configure(now, ticket, config, out),
            Event::Remember { ticket, name, value } => {
                self.tick.settings.push((name, value));
                ticket.into_iter().for_each(|ticket| answer(out, ticket, Answer::Done));
            }
            Event::Schedule { ticket, id, act } => self.on_schedule(now, ticket, id, act, out),
            Event::RunEnded { release, run } => self.on_run_ended(now, release, run.map(|run| *run)),
            Event::SchedulesRefilled { dues, rest } => self.schedule_dues.refill(dues, rest),
            Event::Deliveries { ticket, changes } => self.on_deliveries(ticket, changes, out),
            Event::Admit { admit, ticket } => self.on_admit(now, admit, ticket, out),
            Event::Once { ticket, key, command } => self.on_once(now, ticket, key, *command, out),
            Event::WasDone { ticket, key } => {
                let known = self.replay(Some(&key));
                answer(out, ticket, known.unwrap_or(Answer::NotDone));
            }
            Event::Wake => self.on_wake(now, out),
            Event::Released { release, tasks, rest, bound } => {
                self.on_released(now, release, &tasks, rest, bound, out);
            }
            Event::SessionsReviewed { after, sessions, rest } => self.on_sessions_reviewed(after, &sessions, rest),
            Event::FlowRefilled { flow, rows, oldest, rest } => self.on_flow_refilled(now, flow, rows, oldest, rest),
            Event::DuesRefilled { clock, dues, rest } => self.dues_of(clock).refill(dues, rest),
            Event::Dispatch => self.dispatch(now, out),
        }
    }

    /// Rows an event names that are not in memory. Asked before the event is handled.
    pub fn needs(&self, event: &Event, needs: &mut Needs) {
        match event {
            Event::Submit(submission) => {
                needs.keys.extend(submission.idempotency.iter().cloned());
                for item in &submission.items {
                    needs.keys.extend(item.idempotency.iter().cloned());
                    if submission.asked == Asked::Again {
                        self.need_tasks(&[item.id], needs);
                    }
                    self.need_tasks(&item.depends_on, needs);
                    item.session.iter().for_each(|member| self.need_session(&member.key, needs));
                }
            }
            Event::Once { key, command, .. } => {
                needs.keys.push(key.clone());
                self.needs(command, needs);
            }
            Event::WasDone { key, .. } => needs.keys.push(key.clone()),
            Event::Session { key, .. } => self.need_session(key, needs),
            Event::Schedule { id, act, .. } => self.need_schedule(*id, act, needs),
            Event::Report { report: Report::InputTaken { message }, .. } => self.need_tasks(&[*message], needs),
            Event::Worker { act: WorkerAct::Sync(sync), .. } => {
                for (_, report) in &sync.reports {
                    if let Report::InputTaken { message } = report {
                        self.need_tasks(&[*message], needs);
                    }
                }
            }
            Event::Cancel { task, .. }
            | Event::Change { task, .. }
            | Event::Heartbeat { task, .. }
            | Event::Explain { task, .. } => self.need_tasks(&[*task], needs),
            _ => {}
        }
    }

    /// Rows whose time has come, for the next `Event::Wake`.
    pub fn needs_due(&self, now: Now, needs: &mut Needs) {
        let now = self.later(now);
        for (window, at_ms) in [(&self.wall_dues, now.wall_ms), (&self.steady_dues, now.steady_ms)] {
            let due = window.iter().take_while(|due| due.at_ms <= at_ms).take(DUES_PER_WAKE);
            due.for_each(|due| self.need_tasks(&[due.task], needs));
        }
        needs.schedules.extend(self.schedules_due(now).map(|(_, id)| id));
    }

    /// Batches and sessions that rows refer to and that are not in memory.
    pub fn needs_of_rows(&self, rows: &[Task], needs: &mut Needs) {
        let batches = rows.iter().filter_map(|task| task.batch);
        needs.batches.extend(batches.filter(|batch| !self.batches.contains_key(batch)));
        let live = rows.iter().filter(|task| !task.phase().is_terminal());
        let sessions = live.filter_map(Task::session);
        needs.sessions.extend(sessions.filter(|session| !self.sessions.contains_key(session)));
    }

    /// Tasks that a message to these sessions may be merged into.
    pub fn needs_of_sessions(&self, sessions: &[Session], needs: &mut Needs) {
        sessions.iter().filter_map(|session| session.gatherer).for_each(|task| self.need_tasks(&[task], needs));
    }

    /// Tasks that repeated keys name: an item of the same submission may depend on one.
    pub fn needs_of_keys(&self, keys: &[IdempotencyRow], needs: &mut Needs) {
        for row in keys {
            if let FirstAnswer::Task { id, .. } = row.answer {
                self.need_tasks(&[id], needs);
            }
        }
    }

    pub(crate) fn need_session(&self, key: &Name, needs: &mut Needs) {
        match self.session_by_key.get(key) {
            Some(id) => {
                let gatherer = self.sessions[id].session.gatherer;
                gatherer.into_iter().for_each(|task| self.need_tasks(&[task], needs));
            }
            None => needs.session_keys.push(key.clone()),
        }
    }

    fn need_tasks(&self, tasks: &[TaskId], needs: &mut Needs) {
        needs.tasks.extend(tasks.iter().filter(|task| !self.tasks.contains_key(task)));
    }

    /// Puts rows into memory until the end of the tick. What is in memory already is newer and stays. Batches and sessions
    /// must come before, or with, the tasks that refer to them.
    pub fn load_rows(&mut self, rows: Rows) {
        for batch in rows.batches {
            self.tick.touched_batches.push(batch.id);
            self.batches.entry(batch.id).or_insert(BatchEntry { batch, dirty: false, new_spec: None, n_refs: 0 });
        }
        for session in rows.sessions {
            let id = session.id;
            if !self.sessions.contains_key(&id) {
                self.session_by_key.insert(session.key.clone(), id);
                self.sessions.insert(id, Box::new(SessionEntry::new(session, false)));
            }
            self.note_session(id);
        }
        for task in rows.tasks {
            self.load_task(task);
        }
        for row in rows.schedules {
            self.load_schedule(row);
        }
        for row in rows.keys {
            self.tick.keys.entry((row.key.agent.clone(), row.key.key.clone())).or_insert(row);
        }
    }

    pub(crate) fn load_task(&mut self, task: Task) {
        if self.tasks.contains_key(&task.id) {
            return;
        }
        if let Some(entry) = task.batch.and_then(|batch| self.batches.get_mut(&batch)) {
            entry.n_refs += 1;
        }
        self.member_loaded(&task);
        let (id, stored) = (task.id, Some((task.phase(), task.attempt)));
        self.tasks.insert(id, Box::new(Entry::new(task, stored)));
        self.note(id);
    }

    /// When the loop must wake up if nothing else happens; milliseconds from `now`.
    pub fn next_timeout(&self, now: Now) -> Option<u64> {
        if self.has_work() {
            return Some(0);
        }
        let given = now;
        let now = self.later(now);
        let steady = [self.steady_dues.first().map(|due| due.at_ms), self.timers.next_ms()];
        let steady = steady.into_iter().flatten().min().map(|at_ms| at_ms.saturating_sub(now.steady_ms));
        let wall_dues = self.wall_dues.first().map(|due| due.at_ms).into_iter().chain(self.next_schedule_due());
        let wall = wall_dues.min().map(|at_ms| match at_ms.saturating_sub(now.wall_ms) {
            0 => 0,
            // A wall clock that was set back must first come there again: to be woken before that helps nobody.
            _ => at_ms.saturating_sub(given.wall_ms),
        });
        steady.into_iter().chain(wall).min()
    }

    /// Something is left to do that needs no outside event: another tick, at once.
    pub fn has_work(&self) -> bool {
        self.unfinished || self.room_dirty || !self.releases.is_empty() || !self.hungry.is_empty()
    }

    /// Releases to work off in this tick, those in `done` apart; first those behind `after`.
    pub fn pending_releases(&self, done: &BTreeSet<Release>, after: Option<Release>, max: usize) -> Vec<Release> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let first = self.releases.range((from, Bound::Unbounded));
        let rest = after.map(|after| self.releases.range(..=after)).into_iter().flatten();
        first.chain(rest).map(|(release, _)| *release).filter(|release| !done.contains(release)).take(max).collect()
    }

    /// Children this tick added to a parent that are not in the store yet.
    pub fn new_children(&self, parent: TaskId) -> &[TaskId] {
        self.tick.edges_new.get(&parent).map_or(&[], Vec::as_slice)
    }

    /// Reads that would let more start, or make the next due moments known.
    pub fn wants(&mut self, flows_max: usize) -> Wants {
        let mut wants = Wants::default();
        let share = self.window_share();
        let from = self.hungry_from;
        let turn: Vec<FlowIx> =
            self.hungry.range(from..).chain(self.hungry.range(..from)).take(flows_max).copied().collect();
        self.hungry_from = turn.last().map_or(from, |last| last.next());
        for ix in turn {
            let flow = &self.flows[ix];
            let after = flow.window.last().map(|(spot, _)| (spot.rank, spot.seq));
            wants.flows.push(FlowWant { flow: flow.id, after, limit: share });
        }
        let max = self.config.dues_max as usize;
        for (clock, window) in [(Clock::Wall, &self.wall_dues), (Clock::Steady, &self.steady_dues)] {
            if let Some(after) = window.wants(max) {
                wants.dues.push(DueWant { clock, after, limit: (max / 2).max(1) });
            }
        }
        wants.schedules = self.schedule_dues.wants(max).map(|after| (after, (max / 2).max(1)));
        wants
    }

    /// Is there a flow that could start something now, as far as memory knows?
    pub fn has_candidates(&self) -> bool {
        !self.ready.is_empty() || !self.open.is_empty()
    }

    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    pub fn admission(&self) -> Admit {
        self.admit
    }

    pub fn task(&self, id: TaskId) -> Option<&Task> {
        self.tasks.get(&id).map(|entry| &entry.task)
    }

    /// Leases that live now, with their workers.
    pub fn held(&self) -> impl Iterator<Item = &Task> {
        self.fleet.workers.values().flat_map(|worker| worker.leases()).filter_map(|id| self.task(id))
    }

    /// Is this worker known, and has it joined? One that was given up must present itself again.
    pub fn has_worker(&self, id: WorkerId) -> bool {
        self.fleet.workers.get(&id).is_some_and(|worker| worker.joined)
    }

    pub fn n_held(&self) -> usize {
        self.fleet.workers.values().map(|worker| worker.held.len()).sum()
    }

    /// What is held and does not outlive the server: a stop waits for these.
    pub fn n_held_unkept(&self) -> usize {
        self.held().filter(|task| !self.is_kept(task)).count()
    }

    /// Does this held task go on when the server stops? On other machines everything does; of the server's own worker, what
    /// it keeps. One that has not come back has said nothing of the kind.
    pub(crate) fn is_kept(&self, task: &Task) -> bool {
        let worker = task.state.lease().and_then(|lease| self.fleet.workers.get(&lease.worker));
        let kind = &self.flows[self.flow_of(task)].key.shape.kind;
        worker.is_some_and(|worker| worker.registered.is_some() || worker.spec.keeps.contains(kind))
            && !self.has_bug(crate::planted::Bug::KeptIsStopped)
    }

    pub(crate) fn advance(&mut self, now: Now) -> Now {
        self.meta.now = self.later(now);
        self.meta.now
    }

    fn later(&self, now: Now) -> Now {
        if self.has_bug(crate::planted::Bug::WallClockBack) {
            return Now { steady_ms: now.steady_ms.max(self.meta.now.steady_ms), ..now };
        }
        Now { wall_ms: now.wall_ms.max(self.meta.now.wall_ms), steady_ms: now.steady_ms.max(self.meta.now.steady_ms) }
    }

    pub(crate) fn dues_of(&mut self, clock: Clock) -> &mut DueWindow {
        match clock {
            Clock::Wall => &mut self.wall_dues,
            Clock::Steady => &mut self.steady_dues,
        }
    }

    /// The token of one attempt. Derived, so that it needs no column and no random number.
    pub(crate) fn token(&self, task: TaskId, attempt: u32) -> Token {
        let id = mix(task.0 as u64) ^ mix((task.0 >> 64) as u64);
        Token(mix(id ^ mix(self.meta.salt ^ u64::from(attempt))))
    }

    pub(crate) fn entry(&self, id: TaskId) -> &Entry {
        self.tasks.get(&id).expect("a task that is spoken of is in memory")
    }

    pub(crate) fn entry_mut(&mut self, id: TaskId) -> &mut Entry {
        self.tasks.get_mut(&id).expect("a task that is spoken of is in memory")
    }

    /// Marks a row as changed: it is written, and stays in memory, in this tick.
    pub(crate) fn touch(&mut self, id: TaskId) -> &mut Entry {
        let entry = self.note(id);
        entry.dirty = true;
        entry
    }

    /// The end of this tick looks whether the row stays in memory.
    pub(crate) fn note(&mut self, id: TaskId) -> &mut Entry {
        let entry = self.tasks.get_mut(&id).expect("a task that is spoken of is in memory");
        if !std::mem::replace(&mut entry.touched, true) {
            self.tick.touched.push(id);
        }
        entry
    }

    pub(crate) fn touch_batch(&mut self, id: BatchId) -> &mut Batch {
        self.tick.touched_batches.push(id);
        let entry = self.batches.get_mut(&id).expect("the batch of a task in memory is in memory");
        entry.dirty = true;
        &mut entry.batch
    }

    pub(crate) fn flow_of(&self, task: &Task) -> FlowIx {
        *self.flow_by_id.get(&task.flow).expect("a live task's flow is in memory")
    }

    pub(crate) fn delta(&mut self, flow: FlowIx) -> &mut CountDelta {
        self.tick.dirty_flows.insert(flow);
        self.tick.deltas.entry(flow).or_default()
    }

    pub(crate) fn happen(&mut self, now: Now, kind: HappeningKind, subject: Subject) {
        let happening = Happening { kind, at_ms: now.wall_ms, subject };
        self.call_back(&happening);
        self.tell_hooks(&happening);
        self.tick.happenings.push(happening);
    }
}

impl Entry {
    pub fn new(task: Task, stored: Option<(Phase, u32)>) -> Entry {
        Entry {
            task,
            stored,
            dirty: false,
            touched: false,
            in_window: false,
            pinned: false,
            key_changed: false,
            spec: None,
            result: None,
            timer: None,
            stall: None,
            waited_ms: 0,
            spread_at: None,
            gates: Arc::default(),
            slots: Box::default(),
        }
    }

    pub fn is_resident(&self) -> bool {
        self.in_window || self.pinned || self.task.phase().is_held()
    }
}

pub(crate) fn answer(out: &mut Vec<Command>, ticket: Ticket, answer: Answer) {
    out.push(Command::Answer { ticket, answer });
}

/// Due rows of one clock worked on in one tick.
pub(crate) const DUES_PER_WAKE: usize = 1000;
/// Flows without live tasks that stay in memory, so that a quiet agent's next task finds its flow.
pub(crate) const IDLE_FLOWS_MAX: usize = 1024;
