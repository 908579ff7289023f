//! The tick loop: one synchronous function over a blocking [`Store`], driven by the server and by the simulator alike.
//!
//! ```text
//! events ─► fetch what they name ─► handle each ─► releases ─► dispatch ─► one commit ─► effects out ─► refill windows
//!                                                                            │
//!                                                                            └─ fails: drop the core, reload, go on
//! ```
//!
//! The loop is the only writer, so what it fetched stays true until its commit. Nothing that a tick decided leaves it
//! before the commit. While a commit is in flight the next events gather: batches form by themselves.

use std::collections::BTreeSet;
use std::sync::Arc;

use runyard_core::Core;
use runyard_core::config::Config;
use runyard_core::event::{Admit, Answer, Command, Event, Happening, Release, Rest};
use runyard_core::explain::Ahead;
use runyard_core::ids::{ScheduleId, TaskId};
use runyard_core::name::Blob;
use runyard_core::now::Now;
use runyard_core::planted::Bug;
use runyard_core::session::SessionId;
use runyard_core::task::{Phase, Task};
use runyard_core::write::{Needs, Rows, WriteSet};

use crate::store::{Result, Store};

/// Rows that releases may touch in one tick; the rest goes on in the next, which follows at once.
pub const RELEASE_ROWS_MAX: usize = 1000;
/// Flows whose windows are read on after one commit.
pub const REFILL_FLOWS_MAX: usize = 1000;
/// `explain` counts who stands before a task up to here.
pub const AHEAD_MAX: u32 = 1000;

pub struct Yard {
    store: Box<dyn Store + Send>,
    core: Core,
    salt: u64,
    /// Where the last tick's releases ended for want of room: one that frees a hundred thousand must not keep the others
    /// from being worked on.
    release_after: Option<Release>,
}

/// What one tick lets out, after its commit.
#[derive(Debug, Default)]
pub struct Ticked {
    pub commands: Vec<Command>,
    pub happenings: Vec<Happening>,
    /// The commit's number in the event log; `None` when nothing was written.
    pub commit: Option<u64>,
    pub n_rows: usize,
    /// New messages in the outbox.
    pub n_posted: usize,
    /// More can be done without any outside event: tick again at once.
    pub again: bool,
}

impl Yard {
    /// Takes the store over. Gives also the moment the clocks go on from: elapsed time counts the time nobody was
    /// here, as far as the wall clock shows it.
    pub fn open(mut store: Box<dyn Store + Send>, config: Arc<Config>, salt: u64, wall_ms: u64) -> Result<(Yard, Now)> {
        let loaded = store.load(salt)?;
        let stored = loaded.meta.now;
        let away_ms = if stored.wall_ms == 0 { 0 } else { wall_ms.saturating_sub(stored.wall_ms) };
        let now = Now { wall_ms: wall_ms.max(stored.wall_ms), steady_ms: stored.steady_ms + away_ms };
        let core = Core::new(now, config, loaded);
        let mut yard = Yard { store, core, salt, release_after: None };
        yard.refill(now, &mut Vec::new())?;
        Ok((yard, now))
    }

    /// After a failed tick: what memory believed is dropped, what the store holds counts. Workers join again.
    pub fn recover(&mut self, now: Now) -> Result<()> {
        let (config, admit) = (self.core.config().clone(), self.core.admission());
        #[cfg(feature = "planted")]
        let planted = self.core.planted;
        let loaded = self.store.load(self.salt)?;
        self.core = Core::new(now, config, loaded);
        self.core.review_sessions();
        // The heads of the queues come first: else what the workers lost would start before a higher tier is known.
        self.refill(now, &mut Vec::new())?;
        #[cfg(feature = "planted")]
        {
            self.core.planted = planted;
        }
        if admit != Admit::Open {
            self.core.handle(now, Event::Admit { admit, ticket: None }, &mut Vec::new());
        }
        Ok(())
    }

    /// One turn of the loop. On an error nothing was let out and the core must be recovered.
    pub fn tick(&mut self, now: Now, events: &mut Vec<Event>) -> Result<Ticked> {
        let mut out = Vec::new();
        self.fetch(now, events)?;
        for event in events.drain(..) {
            self.core.handle(now, event, &mut out);
        }
        self.core.handle(now, Event::Wake, &mut out);
        self.release(now, &mut out)?;
        self.core.handle(now, Event::Dispatch, &mut out);
        let mut writes = self.core.flush();
        let commit = self.commit(&writes)?;
        self.fill_specs(&mut out)?;
        self.count_ahead(&mut out)?;
        self.core.end_tick();
        self.refill(now, &mut out)?;
        let happenings = std::mem::take(&mut writes.happenings);
        let again = self.core.has_work() || self.core.has_candidates();
        let n_posted = writes.deliveries_added.len();
        Ok(Ticked { commands: out, happenings, commit, n_rows: n_rows(&writes), n_posted, again })
    }

    pub fn next_timeout(&self, now: Now) -> Option<u64> {
        self.core.next_timeout(now)
    }

    pub fn core(&self) -> &Core {
        &self.core
    }

    #[cfg(feature = "planted")]
    pub fn core_mut(&mut self) -> &mut Core {
        &mut self.core
    }

    pub fn store(&mut self) -> &mut dyn Store {
        &mut *self.store
    }

    /// Every row the events name that is not in memory, in one batched read.
    fn fetch(&mut self, now: Now, events: &[Event]) -> Result<()> {
        let mut needs = Needs::default();
        events.iter().for_each(|event| self.core.needs(event, &mut needs));
        self.core.needs_due(now, &mut needs);
        if needs.is_empty() {
            return Ok(());
        }
        needs.tasks.sort_unstable();
        needs.tasks.dedup();
        needs.session_keys.sort_unstable();
        needs.session_keys.dedup();
        let mut rows = self.store.fetch(&needs)?;
        needs.clear();
        self.core.needs_of_schedules(&rows.schedules, &mut needs);
        if !needs.is_empty() {
            rows.sessions.extend(self.store.fetch(&needs)?.sessions);
            needs.clear();
        }
        self.core.needs_of_keys(&rows.keys, &mut needs);
        self.core.needs_of_sessions(&rows.sessions, &mut needs);
        if !needs.is_empty() {
            rows.tasks.extend(self.store.fetch(&needs)?.tasks);
        }
        self.load(rows)
    }

    /// Puts rows into the core, with the batches and sessions they belong to.
    fn load(&mut self, rows: Rows) -> Result<()> {
        self.load_owners(&rows.tasks)?;
        self.core.load_rows(rows);
        Ok(())
    }

    fn load_owners(&mut self, tasks: &[Task]) -> Result<()> {
        let mut needs = Needs::default();
        self.core.needs_of_rows(tasks, &mut needs);
        if needs.is_empty() {
            return Ok(());
        }
        needs.batches.sort_unstable();
        needs.batches.dedup();
        needs.sessions.sort_unstable();
        needs.sessions.dedup();
        let rows = self.store.fetch(&needs)?;
        self.core.load_rows(rows);
        Ok(())
    }

    /// Works pending releases off, those that this tick makes on the way included, up to the tick's bound.
    fn release(&mut self, now: Now, out: &mut Vec<Command>) -> Result<()> {
        let mut budget = RELEASE_ROWS_MAX;
        let mut done: BTreeSet<Release> = BTreeSet::new();
        loop {
            let pending = self.core.pending_releases(&done, self.release_after, budget);
            if pending.is_empty() {
                self.release_after = None;
                return Ok(());
            }
            for release in pending {
                if budget == 0 {
                    self.release_after = done.last().copied();
                    return Ok(());
                }
                budget -= self.release_one(now, release, budget, out)?.clamp(1, budget);
                done.insert(release);
            }
        }
    }

    /// One chunk of one release; gives how many rows it touched.
    fn release_one(&mut self, now: Now, release: Release, limit: usize, out: &mut Vec<Command>) -> Result<usize> {
        if let Release::SessionReview { after } = release {
            return self.review_sessions(now, after, limit, out);
        }
        if let Release::RunEnded { schedule, run, task } = release {
            return self.end_run(now, release, schedule, run, task, out);
        }
        self.load_owner_of(&release)?;
        let limit = match release {
            // Who stands up is decided over all of them.
            Release::SessionShrink { .. } => RELEASE_ROWS_MAX,
            _ => limit.min(self.core.n_rows_of(release)),
        };
        let rows = self.store.released(&release, limit)?;
        let rest = if rows.len() == limit { Rest::More } else { Rest::Done };
        let mut tasks: Vec<TaskId> = rows.iter().map(|task| task.id).collect();
        if let Release::Parent { parent, .. } = release {
            tasks.extend(self.core.new_children(parent));
        }
        let n = tasks.len();
        let bound = bound(&release, &rows, rest);
        self.load(Rows { tasks: rows, ..Rows::default() })?;
        self.core.handle(now, Event::Released { release, tasks, rest, bound }, out);
        Ok(n)
    }

    /// The batch or session whose places a release is about.
    fn load_owner_of(&mut self, release: &Release) -> Result<()> {
        let mut needs = Needs::default();
        match *release {
            Release::BatchPlace { batch } => needs.batches.push(batch),
            Release::SessionStop { session, .. }
            | Release::SessionShrink { session }
            | Release::SessionSeat { session }
            | Release::SessionOverflow { session } => needs.sessions.push(session),
            Release::Parent { .. } | Release::SessionReview { .. } | Release::RunEnded { .. } => return Ok(()),
        }
        let fetched = self.store.fetch(&needs)?;
        self.core.load_rows(fetched);
        Ok(())
    }

    fn review_sessions(&mut self, now: Now, after: SessionId, limit: usize, out: &mut Vec<Command>) -> Result<usize> {
        let rows = self.store.sessions_after(after, limit)?;
        let rest = if rows.len() == limit { Rest::More } else { Rest::Done };
        let sessions: Vec<SessionId> = rows.iter().map(|session| session.id).collect();
        let n = sessions.len();
        self.core.load_rows(Rows { sessions: rows, ..Rows::default() });
        self.core.handle(now, Event::SessionsReviewed { after, sessions, rest }, out);
        Ok(n)
    }

    fn end_run(
        &mut self,
        now: Now,
        release: Release,
        schedule: ScheduleId,
        run: u64,
        task: TaskId,
        out: &mut Vec<Command>,
    ) -> Result<usize> {
        let needs = Needs { schedules: vec![schedule], tasks: vec![task], ..Needs::default() };
        let rows = self.store.fetch(&needs)?;
        self.load(rows)?;
        let run = self.store.run(schedule, run)?.map(Box::new);
        self.core.handle(now, Event::RunEnded { release, run }, out);
        Ok(1)
    }

    fn commit(&mut self, writes: &WriteSet) -> Result<Option<u64>> {
        if writes.is_empty() {
            return Ok(None);
        }
        let result = self.store.commit(writes).map(Some);
        if result.is_err() && self.core.has_bug(Bug::EffectBeforeCommit) {
            return Ok(None);
        }
        result
    }

    /// Payloads are not in memory; those of tasks that were queued for a while are read now, in one go, and the messages
    /// of those that carry more than their own.
    fn fill_specs(&mut self, out: &mut [Command]) -> Result<()> {
        let missing: Vec<TaskId> = out.iter_mut().filter_map(missing_spec).map(|(task, _)| task).collect();
        let mut specs = match missing.is_empty() {
            true => Vec::new(),
            false => self.store.specs(&missing)?,
        }
        .into_iter();
        for command in out {
            if let Some((_, spec)) = missing_spec(command) {
                *spec = specs.next().flatten();
            }
            if let Command::Start(start) = command {
                if start.n_merged > 0 {
                    start.merged = self.store.merged(start.task)?;
                }
                if let Some((session, from, to)) = start.told {
                    start.dropped = self.store.dropped(session, from, to)?;
                }
            }
        }
        Ok(())
    }

    fn count_ahead(&mut self, out: &mut [Command]) -> Result<()> {
        for command in out {
            let Command::Answer { answer: Answer::Explained(Some(explanation)), .. } = command else { continue };
            if let Some(task) = self.core.task(explanation.task).filter(|task| task.phase() == Phase::Queued) {
                let n = self.store.n_ahead(task, AHEAD_MAX)?;
                explanation.ahead = Some(Ahead { n, at_least: n == AHEAD_MAX });
            }
        }
        Ok(())
    }

    fn refill(&mut self, now: Now, out: &mut Vec<Command>) -> Result<()> {
        let wants = self.core.wants(REFILL_FLOWS_MAX);
        if !wants.flows.is_empty() {
            for read in self.store.flow_rows(&wants.flows)? {
                self.load_owners(&read.rows)?;
                self.load_owners(read.oldest.as_deref().map_or(&[], std::slice::from_ref))?;
                let event =
                    Event::FlowRefilled { flow: read.flow, rows: read.rows, oldest: read.oldest, rest: read.rest };
                self.core.handle(now, event, out);
            }
        }
        for want in &wants.dues {
            let dues = self.store.dues(want.clock, want.after, want.limit)?;
            let rest = if dues.len() < want.limit { Rest::Done } else { Rest::More };
            self.core.handle(now, Event::DuesRefilled { clock: want.clock, dues, rest }, out);
        }
        if let Some((after, limit)) = wants.schedules {
            let dues = self.store.schedules_due(after, limit)?;
            let rest = if dues.len() < limit { Rest::Done } else { Rest::More };
            self.core.handle(now, Event::SchedulesRefilled { dues, rest }, out);
        }
        self.core.end_tick();
        Ok(())
    }
}

/// Behind this the store has not been read, in the order of the release's rows.
fn bound(release: &Release, rows: &[Task], rest: Rest) -> u64 {
    let last = rows.last().filter(|_| rest == Rest::More);
    let number = |task: &Task| match release {
        Release::SessionSeat { .. } | Release::SessionOverflow { .. } => task.member.map_or(0, |member| member.line),
        _ => task.seq,
    };
    last.map_or(u64::MAX, |task| number(task) + 1)
}

/// The task whose spec this command still needs, and where it goes.
fn missing_spec(command: &mut Command) -> Option<(TaskId, &mut Option<Blob>)> {
    match command {
        Command::Start(start) if start.spec.is_none() => Some((start.task, &mut start.spec)),
        Command::Input { message, spec, .. } if spec.is_none() => Some((*message, spec)),
        _ => None,
    }
}

fn n_rows(writes: &WriteSet) -> usize {
    writes.inserts.len() + writes.updates.len()
}
