//! Random commits, purges and restarts, applied to memory and to each database; every read must agree after every step. A
//! failure names its seed; `RUNYARD_LOCKSTEP_SEED` runs that one alone, `RUNYARD_LOCKSTEP_SEEDS` sets how many.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Debug;

use runyard_core::batch::Batch;
use runyard_core::event::{Due, FirstAnswer, Happening, HappeningKind, ParentEnd, Release, Rest, StopWhy, Subject};
use runyard_core::hash::mix;
use runyard_core::ids::{BatchId, FlowId, ScheduleId, TaskId};
use runyard_core::name::Name;
use runyard_core::now::{Clock, Now};
use runyard_core::outbox::{Delivery, DeliveryId, DeliveryState, Progress, Recipient, Try};
use runyard_core::schedule::{Cause, Outcome, Run, Schedule, ScheduleDue, Standing};
use runyard_core::session::{Member, Session, SessionId};
use runyard_core::task::{Delay, Phase, Policy, State, Task, Tier, Wait};
use runyard_core::write::{
    CountDelta, CountKey, Edge, FlowRow, Insert, Meta, Needs, ScheduleRow, SessionDrop, Update, WriteSet,
};
use runyard_store::memory::MemoryStore;
use runyard_store::postgres::{self, PgStore};
use runyard_store::sqlite::{self, SqliteStore};
use runyard_store::store::{
    DeliveryFilter, DeliveryPhase, Error, Filter, FlowWant, Purge, Reader, ScheduleFilter, SessionFilter, Store,
};
use runyard_store::suite::{Harness, fixture};
use runyard_testbed::shared;
use tempfile::TempDir;

const STEPS: usize = 60;

#[test]
fn memory_and_sqlite_agree_on_every_read() {
    agree(Sqlite::default, 12);
}

#[test]
fn memory_and_postgres_agree_on_every_read() {
    // A seed asks some forty thousand questions, each with a way to the server and back.
    agree(Postgres::default, 4);
}

fn agree<H: Harness + 'static>(make: fn() -> H, n_seeds: u64) {
    if let Ok(seed) = std::env::var("RUNYARD_LOCKSTEP_SEED") {
        return Lockstep::new(seed.parse().unwrap(), make()).run();
    }
    let n_seeds = std::env::var("RUNYARD_LOCKSTEP_SEEDS").map_or(n_seeds, |n| n.parse().unwrap());
    for seed in 0..n_seeds {
        let run = std::panic::catch_unwind(|| Lockstep::new(seed, make()).run());
        assert!(run.is_ok(), "they disagree: RUNYARD_LOCKSTEP_SEED={seed} shows it again");
    }
}

#[derive(Default)]
struct Sqlite {
    dir: Option<TempDir>,
}

impl Harness for Sqlite {
    fn fresh(&mut self) -> Box<dyn Store> {
        let dir = self.dir.insert(tempfile::tempdir().unwrap());
        let options = sqlite::Options { durability: sqlite::Durability::Normal, ..sqlite::Options::default() };
        Box::new(SqliteStore::open(&dir.path().join("runyard.db"), options).unwrap())
    }

    fn reopen(&mut self, store: Box<dyn Store>) -> Box<dyn Store> {
        drop(store);
        let path = self.dir.as_ref().unwrap().path().join("runyard.db");
        let options = sqlite::Options { durability: sqlite::Durability::Normal, ..sqlite::Options::default() };
        Box::new(SqliteStore::open(&path, options).unwrap())
    }
}

#[derive(Default)]
struct Postgres {
    url: String,
}

impl Harness for Postgres {
    fn fresh(&mut self) -> Box<dyn Store> {
        self.url = shared().fresh_database();
        Box::new(PgStore::open(postgres::Options::new(&*self.url)).unwrap())
    }

    fn reopen(&mut self, store: Box<dyn Store>) -> Box<dyn Store> {
        drop(store);
        Box::new(PgStore::open(postgres::Options::new(&*self.url)).unwrap())
    }
}

struct Lockstep {
    dice: Dice,
    driver: Box<dyn Harness>,
    memory: MemoryStore,
    store: Option<Box<dyn Store>>,
    meta: Meta,
    /// What the writer believes, as a core would.
    tasks: BTreeMap<u64, Task>,
    batches: BTreeMap<BatchId, Batch>,
    sessions: BTreeMap<SessionId, Session>,
    n_keys: u64,
    n_messages: u32,
    n_drops: u64,
    schedules: BTreeMap<ScheduleId, Schedule>,
    n_schedules: u64,
    n_runs: u64,
}

impl Lockstep {
    fn new(seed: u64, mut driver: impl Harness + 'static) -> Lockstep {
        let (store, memory) = (Some(driver.fresh()), MemoryStore::new());
        let mut lockstep = Lockstep {
            dice: Dice(mix(seed)),
            driver: Box::new(driver),
            memory,
            store,
            meta: Meta::default(),
            tasks: BTreeMap::new(),
            batches: BTreeMap::new(),
            sessions: BTreeMap::new(),
            n_keys: 0,
            n_messages: 0,
            n_drops: 0,
            schedules: BTreeMap::new(),
            n_schedules: 0,
            n_runs: 0,
        };
        lockstep.meta.now.wall_ms = 1000;
        lockstep.reload();
        lockstep
    }

    fn run(mut self) {
        for _ in 0..STEPS {
            match self.dice.below(20) {
                0 => self.reload(),
                1 => {
                    self.store = self.store.take().map(|store| self.driver.reopen(store));
                    self.reload();
                }
                2 | 3 => self.purge(),
                4 => self.refused(),
                _ => self.commit(),
            }
            self.compare();
        }
    }

    fn stores(&mut self) -> [&mut dyn Store; 2] {
        [&mut self.memory, &mut **self.store.as_mut().expect("it is only closed to be opened again")]
    }

    /// Asks both and gives the one answer.
    fn both<T: Debug>(&mut self, what: &str, ask: impl Fn(&mut dyn Store) -> T) -> T {
        let [memory, store] = self.stores();
        let (expected, answer) = (ask(memory), ask(store));
        assert_eq!(format!("{answer:?}"), format!("{expected:?}"), "{what}");
        expected
    }

    fn both_readers<T: Debug>(&mut self, what: &str, ask: impl Fn(&dyn Reader) -> T) -> T {
        self.both(what, |store| ask(&*store.reader()))
    }

    fn reload(&mut self) {
        let salt = self.dice.next();
        let loaded = self.both("load", |store| store.load(salt).unwrap());
        self.meta.epoch = loaded.meta.epoch;
        self.meta.salt = loaded.meta.salt;
    }

    fn commit(&mut self) {
        self.meta.now.wall_ms += self.dice.below(500);
        let writes = self.writes();
        self.both("commit", |store| store.commit(&writes).unwrap());
        for task in writes.inserts.iter().map(|i| &i.task).chain(writes.updates.iter().map(|u| &u.task)) {
            self.tasks.insert(task.seq, task.clone());
        }
        for batch in writes.batches_added.iter().map(|(batch, _)| batch).chain(&writes.batches_put) {
            self.batches.insert(batch.id, batch.clone());
        }
        for session in writes.sessions_added.iter().chain(&writes.sessions_put) {
            self.sessions.insert(session.id, session.clone());
        }
        self.schedules.retain(|id, _| !writes.schedules_removed.contains(id));
        for ScheduleRow { schedule, .. } in &writes.schedules_put {
            self.schedules.insert(schedule.id, schedule.clone());
        }
    }

    /// A commit with one thing wrong in it.
    fn refused(&mut self) {
        let (meta, n_keys) = (self.meta, self.n_keys);
        let mut writes = self.writes();
        (self.meta, self.n_keys) = (meta, n_keys);
        let known = self.some_task();
        match (self.dice.below(5), known) {
            (4, _) => writes.runs_added.extend([fixture::run(99, 1, 5), fixture::run(99, 2, 5)]),
            (3, _) if !self.sessions.is_empty() => writes.sessions_added.extend(self.some_session()),
            (0, Some(task)) => writes.inserts.push(fixture::insert(task)),
            (1, Some(task)) => {
                // Far from what another update of the same row in this commit could have made of it.
                let from = (task.phase(), task.attempt + 100);
                writes.updates.push(fixture::update(task, from));
            }
            _ => writes.meta.epoch -= 1,
        }
        self.both("refusal", |store| match store.commit(&writes) {
            Err(Error::Conflict { task, .. }) => format!("conflict {task:?}"),
            Err(Error::Fenced { ours, theirs }) => format!("fenced {ours} {theirs}"),
            other => panic!("this commit must be refused: {other:?}"),
        });
    }

    fn purge(&mut self) {
        let purge = Purge {
            retention_ms: self.dice.below(6000),
            keys_ms_min: self.dice.below(6000),
            happenings_ms: self.dice.below(8000),
            happenings_bytes_max: self.dice.below(6000),
            deliveries_ms: self.dice.below(6000),
            runs_ms: self.dice.below(6000),
            runs_max: self.dice.below(6),
            limit: 1 + self.dice.below(7) as usize,
        };
        let now = Now { wall_ms: self.meta.now.wall_ms, steady_ms: 0 };
        // A driver may walk through its sessions and its runs some at a time: after so many purges it has been all around.
        let n_purges = self.sessions.len().max(self.n_schedules as usize) / purge.limit + 2;
        let gone = self.both("purge", |store| {
            let mut gone = Vec::new();
            for _ in 0..n_purges {
                gone.extend(purged_to_the_end(store, now, &purge));
            }
            gone.sort();
            gone
        });
        self.tasks.retain(|_, task| !gone.contains(&task.id));
        // A batch that went cannot be changed any more.
        let memory = self.memory.reader();
        self.batches.retain(|&id, _| memory.batch(id).unwrap().is_some());
        self.sessions.retain(|_, session| memory.session(&session.key).unwrap().is_some());
    }

    fn writes(&mut self) -> WriteSet {
        let mut writes = WriteSet::default();
        if self.dice.one_in(4) {
            let id = BatchId(u128::from(self.dice.next()));
            writes.batches_added.push((fixture::batch(id), fixture::blob("batch spec")));
        }
        if self.dice.one_in(3) {
            writes.sessions_added.push(self.new_session());
        }
        for _ in 0..self.dice.below(6) {
            let mut insert = self.insert(&writes.batches_added);
            insert.task.member = self.new_member(&writes.sessions_added);
            writes.inserts.push(insert);
        }
        for task in self.some_tasks(5) {
            writes.updates.push(self.update(task));
        }
        self.write_links(&mut writes);
        self.write_sessions(&mut writes);
        self.write_rest(&mut writes);
        self.write_outbox(&mut writes);
        self.write_schedules(&mut writes);
        writes.meta = self.meta;
        writes
    }

    fn insert(&mut self, new_batches: &[(Batch, runyard_core::name::Blob)]) -> Insert {
        let seq = self.meta.next_seq;
        self.meta.next_seq += 1 + self.dice.below(2);
        let mut task = fixture::task(seq);
        task.id = TaskId(u128::from(self.dice.next()) << 64 | u128::from(seq));
        task.created_at = self.meta.now.wall_ms;
        task.flow = FlowId(1 + self.dice.below(4));
        task.rank = if self.dice.one_in(2) { 0 } else { self.dice.below(5) as i32 - 2 };
        task.batch = new_batches.first().map(|(batch, _)| batch.id).or_else(|| self.some_batch().map(|batch| batch.id));
        task.deadline = self.dice.some(9000);
        if self.dice.one_in(3) {
            task.policy = Policy { ttl_ms: self.dice.some(4000), preemptible: true, ..task.policy };
        }
        task.state = self.state();
        let task = self.dated(task);
        let mut key = fixture::key(["ada", "bob", "cy"][self.dice.below(3) as usize]);
        key.tier = Tier::ALL[self.dice.below(4) as usize];
        let result = self.dice.one_in(4).then(|| fixture::blob("early"));
        let spec = (task.phase() != Phase::Rejected).then(|| fixture::blob(format!("spec {seq}")));
        Insert { task, key: key.into(), spec, result }
    }

    fn update(&mut self, task: Task) -> Update {
        let from = (task.phase(), task.attempt);
        let member = task.member.map(|member| self.moved(member));
        let mut task = Task { state: self.state(), member, ..task };
        task.attempt += self.dice.below(2) as u32;
        task.reason = if self.dice.one_in(3) { "because".into() } else { "".into() };
        let mut key = None;
        if self.dice.one_in(5) {
            task.flow = FlowId(1 + self.dice.below(4));
            task.rank = self.dice.below(3) as i32;
            key = Some(fixture::key("moved").into());
        }
        let result = self.dice.one_in(3).then(|| fixture::blob(format!("result {}", task.attempt)));
        Update { task: self.dated(task), from, key, result }
    }

    /// An ended task says when.
    fn dated(&mut self, task: Task) -> Task {
        let finished_at = task.phase().is_terminal().then_some(self.meta.now.wall_ms);
        Task { finished_at, ..task }
    }

    fn state(&mut self) -> State {
        match self.dice.below(14) {
            12 => State::Waiting(Wait::Seat),
            13 => State::Scheduled(Delay::Debounce(self.dice.below(9000))),
            0 => State::Waiting(Wait::Dependencies),
            1 => State::Waiting(Wait::BatchPlace),
            2 => State::Scheduled(Delay::Until(self.dice.below(9000))),
            3 => State::Scheduled(Delay::Backoff(self.dice.below(9000))),
            4 => State::Assigned(fixture::lease()),
            5 => State::Running(fixture::lease()),
            6 => State::Completed,
            7 => State::Failed,
            8 => State::Rejected,
            _ => State::Queued { since_ms: self.dice.below(9000) },
        }
    }

    fn write_links(&mut self, writes: &mut WriteSet) {
        let parents = self.some_tasks(2).into_iter().map(|task| task.id).chain([TaskId(77)]);
        for (parent, insert) in parents.zip(&writes.inserts) {
            writes.edges_added.push(Edge { parent, child: insert.task.id });
        }
        let children = self.some_tasks(3);
        let parents = self.some_tasks(3).into_iter().map(|task| task.id).chain([TaskId(77)]);
        for (parent, child) in parents.zip(&children) {
            let edges = if self.dice.one_in(2) { &mut writes.edges_added } else { &mut writes.edges_removed };
            edges.push(Edge { parent, child: child.id });
        }
        for task in self.some_tasks(2) {
            let ended = if self.dice.one_in(2) { ParentEnd::Well } else { ParentEnd::Badly };
            let release = match task.batch {
                Some(batch) if self.dice.one_in(2) => Release::BatchPlace { batch },
                _ => Release::Parent { parent: task.id, ended },
            };
            let add = self.dice.one_in(3);
            let releases = if add { &mut writes.releases_added } else { &mut writes.releases_removed };
            releases.push(release);
        }
    }

    fn new_session(&mut self) -> Session {
        let id = SessionId(self.meta.next_seq);
        self.meta.next_seq += 1;
        // The id in the key: a key is never used again, so no refused commit can be in the way.
        let key = format!("{} {}", ["chat", "mail"][self.dice.below(2) as usize], id.0);
        let new = Session::new(id, key.into(), "main".into(), self.meta.now.wall_ms);
        Session { n_live: self.dice.below(2) as u32, live_from: 0, ..new }
    }

    fn new_member(&mut self, new: &[Session]) -> Option<Member> {
        let session = new.first().map(|session| session.id).or_else(|| self.some_session().map(|session| session.id));
        session.filter(|_| !self.dice.one_in(3)).map(|session| self.moved(Member::new(session)))
    }

    /// To another place in the line, to a seat, or out of the line.
    fn moved(&mut self, member: Member) -> Member {
        Member { line: self.dice.below(4), seated: self.dice.one_in(3), ..member }
    }

    fn write_sessions(&mut self, writes: &mut WriteSet) {
        if let Some(session) = self.some_session() {
            let (n_live, last_at) = (self.dice.below(2) as u32, self.meta.now.wall_ms);
            writes.sessions_put.push(Session { n_live, last_at, ..session });
        }
        for task in self.some_tasks(3) {
            let Some(member) = task.member else { continue };
            self.n_messages += 1;
            writes.messages_added.push(fixture::message(&task, self.n_messages));
            if self.dice.one_in(2) {
                self.n_drops += 1;
                let (session, n) = (member.session, self.n_drops);
                writes.drops_added.push(SessionDrop { session, n, task: task.id, task_seq: task.seq });
            }
            let release = self.release_of(member.session);
            let add = self.dice.one_in(2);
            let releases = if add { &mut writes.releases_added } else { &mut writes.releases_removed };
            releases.push(release);
        }
    }

    fn release_of(&mut self, session: SessionId) -> Release {
        let before = self.meta.next_seq - self.dice.below(2);
        match self.dice.below(5) {
            0 => Release::SessionSeat { session },
            1 => Release::SessionOverflow { session },
            2 => Release::SessionShrink { session },
            3 => Release::SessionReview { after: session },
            _ => {
                let why = StopWhy::ALL[self.dice.below(3) as usize];
                Release::SessionStop { session, before, from: self.dice.below(before + 1), why }
            }
        }
    }

    fn some_session(&mut self) -> Option<Session> {
        let n = self.sessions.len() as u64;
        if n == 0 { None } else { self.sessions.values().nth(self.dice.below(n) as usize).cloned() }
    }

    fn write_rest(&mut self, writes: &mut WriteSet) {
        let flow = FlowRow {
            id: FlowId(1 + self.dice.below(5)),
            key: fixture::key("ada"),
            n_queued: self.dice.below(3),
            n_live: self.dice.below(3),
        };
        if self.dice.one_in(5) {
            writes.flows_removed.push(flow.id);
        } else {
            writes.flows_put.push(flow);
        }
        if let Some(mut batch) = self.some_batch() {
            batch.n_completed = self.dice.below(9) as u32;
            batch.finished_at = self.dice.one_in(2).then_some(self.meta.now.wall_ms);
            writes.batches_put.push(batch);
        }
        if let Some(insert) = writes.inserts.first() {
            self.n_keys += 1;
            let answer = match insert.task.batch {
                Some(id) => FirstAnswer::Batch { id, tasks: vec![(insert.task.id, insert.task.phase())] },
                None => FirstAnswer::Task { id: insert.task.id, phase: insert.task.phase() },
            };
            let name = format!("key {}", self.n_keys);
            writes.idempotency_added.push(fixture::idempotency(&name, answer, self.meta.now.wall_ms));
        }
        let agent = ["ada", "bob"][self.dice.below(2) as usize];
        let delta = CountDelta { queued: self.dice.below(9) as i64 - 4, retried: 1, ..CountDelta::default() };
        writes.counts.push((CountKey { agent: agent.into(), lane: "main".into() }, delta));
        if self.dice.one_in(3) {
            writes.rates.push((agent.into(), self.dice.next()));
            writes.settings.push((agent.into(), fixture::blob(format!("{}", self.dice.next()))));
        }
        let tasks = writes.inserts.iter().map(|insert| &insert.task).chain(writes.updates.iter().map(|u| &u.task));
        let kind = HappeningKind::ALL[self.dice.below(10) as usize];
        writes.happenings = tasks.map(|task| fixture::happening(kind, task)).collect();
        writes.happenings.extend(writes.sessions_put.iter().map(|session| Happening {
            kind: HappeningKind::SessionChanged,
            at_ms: session.last_at,
            subject: Subject::Session(Box::new(session.clone())),
        }));
    }

    /// New messages about this commit's tasks and others, and progress of earlier ones.
    fn write_outbox(&mut self, writes: &mut WriteSet) {
        for task in self.some_tasks(3) {
            let kind = HappeningKind::ALL[self.dice.below(10) as usize];
            let happening = Happening { at_ms: self.meta.now.wall_ms, ..fixture::happening(kind, &task) };
            let id = DeliveryId(self.meta.next_delivery);
            self.meta.next_delivery += 1;
            let hook = self.dice.one_in(2).then(|| "audit".into());
            writes.deliveries_added.push(Delivery { id, hook, happening, progress: self.progress() });
        }
        for _ in 0..self.dice.below(4) {
            let id = DeliveryId(self.dice.below(self.meta.next_delivery + 1));
            writes.deliveries_put.push((id, self.progress()));
        }
    }

    /// New ones, edits that give names away, changes, removals; new runs and the ends of some.
    fn write_schedules(&mut self, writes: &mut WriteSet) {
        let known: Vec<Schedule> = self.schedules.values().cloned().collect();
        let mut names: Vec<Name> = known.iter().map(|schedule| schedule.name.clone()).collect();
        names.rotate_left(1.min(known.len()));
        let swaps = self.dice.one_in(6);
        for (schedule, name) in known.into_iter().zip(names) {
            let mut row = ScheduleRow { schedule, body: None };
            row.schedule.next_for = self.dice.some(9000);
            row.schedule.n_runs += 1;
            if swaps {
                row.schedule.name = name;
                row.body = fixture::schedule_row(self.n_schedules, 5).body;
                writes.schedules_put.push(row);
            } else if self.dice.one_in(6) {
                writes.schedules_removed.push(row.schedule.id);
            } else if self.dice.one_in(2) {
                writes.schedules_put.push(row);
            }
        }
        if self.dice.one_in(3) {
            self.n_schedules += 1;
            let mut row = fixture::schedule_row(self.n_schedules, self.dice.below(9000));
            if self.dice.one_in(3) {
                row.schedule.standing = Standing::Paused { reason: "no".into() };
            }
            writes.schedules_put.push(row);
        }
        for schedule in 1..=self.n_schedules {
            self.write_runs(schedule, writes);
        }
    }

    fn write_runs(&mut self, schedule: u64, writes: &mut WriteSet) {
        if self.dice.one_in(2) {
            self.n_runs += 1;
            let mut run = fixture::run(schedule, self.n_runs, self.n_runs);
            run.cause = [Cause::Time, Cause::CatchUp, Cause::Hand][self.dice.below(3) as usize];
            run.ended_at = self.dice.one_in(3).then_some(self.meta.now.wall_ms);
            writes.runs_added.push(run);
        }
        let live = self.memory.reader().runs(fixture::schedule_id(schedule), None, 9).unwrap();
        for run in live.into_iter().filter(|run| run.ended_at.is_none()) {
            if self.dice.one_in(3) {
                let (outcome, ended_at) = (Outcome::Failed, Some(self.meta.now.wall_ms));
                writes.runs_put.push(Run { outcome, ended_at, tail: Some(fixture::blob("end")), ..run });
            }
        }
        if self.dice.one_in(4)
            && let Some(task) = self.some_task()
        {
            let release = Release::RunEnded { schedule: fixture::schedule_id(schedule), run: 1, task: task.id };
            let add = self.dice.one_in(2);
            let releases = if add { &mut writes.releases_added } else { &mut writes.releases_removed };
            releases.push(release);
        }
    }

    fn compare_schedules(&mut self) {
        let limit = 1 + self.dice.below(4) as usize;
        self.both("schedules due", |store| {
            let mut dues: Vec<ScheduleDue> = Vec::new();
            loop {
                let page = store.schedules_due(dues.last().copied(), limit).unwrap();
                if page.is_empty() {
                    return dues;
                }
                dues.extend(page);
            }
        });
        let filter = ScheduleFilter { enabled: self.dice.one_in(2).then_some(true), agent: None };
        let n_schedules = self.n_schedules;
        self.both_readers("schedules", |reader| {
            let (mut listed, mut after) = (Vec::new(), None);
            loop {
                let page = reader.schedules(&filter, after, limit).unwrap();
                listed.extend(page.items);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            let runs = |n| reader.runs(fixture::schedule_id(n), None, 99).unwrap();
            (listed, (1..=n_schedules).map(runs).collect::<Vec<_>>())
        });
    }

    fn progress(&mut self) -> Progress {
        let to = [Recipient::Own, Recipient::Everyone, Recipient::Merged(3)][self.dice.below(3) as usize];
        let state = match self.dice.below(3) {
            0 => DeliveryState::Delivered,
            1 => DeliveryState::GivenUp,
            _ => DeliveryState::Pending { next_at: self.dice.below(9000) },
        };
        let tries = vec![Try { at_ms: self.dice.below(9000), took_ms: 5, status: Some(500), error: "x".into() }];
        Progress { to, state, since_ms: self.dice.below(9000), n_tries: 1, tries }
    }

    fn some_task(&mut self) -> Option<Task> {
        let n = self.tasks.len() as u64;
        if n == 0 { None } else { self.tasks.values().nth(self.dice.below(n) as usize).cloned() }
    }

    /// Different ones, at most `max`.
    fn some_tasks(&mut self, max: u64) -> Vec<Task> {
        let n = self.dice.below(max + 1);
        let tasks: BTreeMap<u64, Task> = (0..n).filter_map(|_| self.some_task()).map(|task| (task.seq, task)).collect();
        tasks.into_values().collect()
    }

    fn some_batch(&mut self) -> Option<Batch> {
        let n = self.batches.len() as u64;
        if n == 0 || self.dice.one_in(2) {
            return None;
        }
        self.batches.values().nth(self.dice.below(n) as usize).cloned()
    }

    fn compare(&mut self) {
        self.compare_rows();
        self.compare_flows();
        self.compare_dues();
        self.compare_releases();
        self.compare_sessions();
        self.compare_lists();
        self.compare_documents();
        self.compare_outbox();
        self.compare_schedules();
    }

    fn compare_rows(&mut self) {
        let tasks: Vec<TaskId> = self.tasks.values().map(|task| task.id).collect();
        let keys = (1..=self.n_keys).map(|n| {
            let any = FirstAnswer::Task { id: TaskId(0), phase: Phase::Queued };
            fixture::idempotency(&format!("key {n}"), any, 0).key
        });
        let needs = Needs {
            tasks: tasks.clone(),
            batches: self.batches.keys().copied().collect(),
            sessions: self.sessions.keys().copied().collect(),
            session_keys: self.sessions.values().map(|session| session.key.clone()).collect(),
            keys: keys.collect(),
            schedules: self.schedules.keys().copied().collect(),
            schedule_names: self.schedules.values().map(|row| row.name.clone()).collect(),
        };
        let rows = self.both("fetch", |store| store.fetch(&needs).unwrap());
        let sessions: Vec<Session> = self.sessions.values().chain(self.sessions.values()).cloned().collect();
        let schedules: Vec<&Schedule> = self.schedules.values().chain(self.schedules.values()).collect();
        let fetched: Vec<&Schedule> = rows.schedules.iter().map(|(schedule, _)| schedule).collect();
        assert_eq!(fetched, schedules, "both agree, and not with what was written");
        assert_eq!(rows.sessions, sessions, "both agree, and not with what was written");
        let known: Vec<Task> = self.tasks.values().cloned().collect();
        assert_eq!(rows.tasks, known, "both agree, and not with what was written");
        self.both("specs", |store| store.specs(&tasks).unwrap());
    }

    fn compare_flows(&mut self) {
        let limit = self.dice.below(5) as usize;
        let after = self.some_task().filter(|_| limit > 2).map(|task| (task.rank, task.seq));
        let wants: Vec<FlowWant> = (1..6).map(|flow| FlowWant { flow: FlowId(flow), after, limit }).collect();
        self.both("flow_rows", |store| store.flow_rows(&wants).unwrap());
        for task in self.some_tasks(4) {
            let limit = self.dice.below(9) as u32;
            self.both("n_ahead", |store| store.n_ahead(&task, limit).unwrap());
        }
    }

    fn compare_dues(&mut self) {
        for clock in [Clock::Wall, Clock::Steady] {
            let limit = 1 + self.dice.below(6) as usize;
            self.both("dues", |store| {
                let mut dues: Vec<Due> = Vec::new();
                loop {
                    let page = store.dues(clock, dues.last().copied(), limit).unwrap();
                    if page.is_empty() {
                        return dues;
                    }
                    dues.extend(page);
                }
            });
        }
    }

    fn compare_releases(&mut self) {
        let parents = self.tasks.values().map(|task| task.id).chain([TaskId(77)]);
        let mut releases: Vec<Release> =
            parents.map(|parent| Release::Parent { parent, ended: ParentEnd::Well }).collect();
        releases.extend(self.batches.keys().map(|&batch| Release::BatchPlace { batch }));
        for session in self.sessions.keys().copied().collect::<Vec<_>>() {
            releases.push(self.release_of(session));
            releases.push(Release::SessionSeat { session });
        }
        let limit = self.dice.below(5) as usize;
        for release in releases {
            self.both("released", |store| store.released(&release, limit).unwrap());
        }
    }

    fn compare_sessions(&mut self) {
        let after = self.some_session().map_or(SessionId(0), |session| session.id);
        let (from, to) = (self.dice.below(9), self.dice.below(self.n_drops + 2));
        let limit = 1 + self.dice.below(5) as usize;
        let tasks: Vec<TaskId> = self.tasks.values().map(|task| task.id).collect();
        let sessions: Vec<SessionId> = self.sessions.keys().copied().collect();
        self.both("sessions", |store| {
            let merged: Vec<_> = tasks.iter().map(|&task| store.merged(task).unwrap()).collect();
            let dropped: Vec<_> = sessions.iter().map(|&id| store.dropped(id, from, to).unwrap()).collect();
            (store.sessions_after(after, limit).unwrap(), merged, dropped)
        });
        let filter = SessionFilter { prefix: self.dice.one_in(2).then(|| "chat".into()), busy: self.dice.one_in(2) };
        self.both_readers(&format!("list {filter:?}"), |reader| {
            let messages: Vec<_> = tasks.iter().map(|&task| reader.messages(task).unwrap()).collect();
            let (mut sessions, mut after) = (Vec::new(), None);
            loop {
                let page = reader.sessions(&filter, after, limit).unwrap();
                sessions.extend(page.items);
                after = page.next;
                if after.is_none() {
                    return (sessions, messages);
                }
            }
        });
    }

    fn compare_lists(&mut self) {
        for _ in 0..3 {
            let filter = self.filter();
            let limit = 1 + self.dice.below(5) as usize;
            self.both_readers(&format!("list {filter:?}"), |reader| {
                let (mut seqs, mut after) = (Vec::new(), None);
                loop {
                    let page = reader.tasks(&filter, after, limit).unwrap();
                    seqs.extend(page.items);
                    match page.next {
                        Some(next) => after = Some(next),
                        None => return seqs,
                    }
                }
            });
        }
    }

    fn filter(&mut self) -> Filter {
        let mut phases: Vec<Phase> = Phase::ALL.into_iter().filter(|_| self.dice.one_in(4)).collect();
        if self.dice.one_in(2) {
            phases.retain(|phase| !phase.is_terminal());
        }
        let now = self.meta.now.wall_ms;
        Filter {
            phases,
            agent: self.dice.one_in(4).then(|| "ada".into()),
            lane: self.dice.one_in(8).then(|| "main".into()),
            kind: self.dice.one_in(8).then(|| "noop".into()),
            tier: self.dice.one_in(4).then_some(Tier::Normal),
            batch: self.some_batch().filter(|_| self.dice.one_in(2)).map(|batch| batch.id),
            session: self.some_session().filter(|_| self.dice.one_in(4)).map(|session| session.key),
            created_after: self.dice.one_in(4).then(|| now.saturating_sub(self.dice.below(5000))),
            created_before: self.dice.one_in(4).then(|| now.saturating_sub(self.dice.below(5000))),
        }
    }

    fn compare_outbox(&mut self) {
        let limit = 1 + self.dice.below(5) as usize;
        let filter = DeliveryFilter {
            state: self.dice.one_in(3).then_some(DeliveryPhase::Pending),
            hook: self.dice.one_in(4).then(|| "audit".into()),
            event: self.dice.one_in(6).then_some(HappeningKind::TaskFailed),
            subject: self.some_task().filter(|_| self.dice.one_in(3)).map(|task| task.id.0),
        };
        self.both_readers(&format!("outbox {filter:?}"), |reader| {
            let mut due: Vec<Delivery> = Vec::new();
            loop {
                let last = due.last().map(|last| (last.next_at().unwrap(), last.id));
                let page = reader.deliveries_due(last, limit).unwrap();
                if page.is_empty() {
                    break;
                }
                due.extend(page);
            }
            let (mut listed, mut after) = (Vec::new(), None);
            loop {
                let page = reader.deliveries(&filter, after, limit).unwrap();
                listed.extend(page.items);
                after = page.next;
                if after.is_none() {
                    return (due, listed);
                }
            }
        });
    }

    fn compare_documents(&mut self) {
        let ids: Vec<TaskId> = self.tasks.values().map(|task| task.id).collect();
        let batches: Vec<BatchId> = self.batches.keys().copied().collect();
        let after = self.dice.below(50);
        self.both_readers("documents", |reader| {
            let tasks: Vec<_> = ids.iter().map(|&id| reader.task(id).unwrap()).collect();
            let batches: Vec<_> = batches.iter().map(|&id| reader.batch(id).unwrap()).collect();
            (tasks, batches, reader.counts().unwrap(), reader.flows().unwrap(), reader.setting("ada").unwrap())
        });
        self.both_readers("happenings", |reader| {
            (reader.happenings(after, 7).unwrap(), reader.happenings_range().unwrap())
        });
    }
}

/// The same numbers for the same seed, on every machine.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn some(&mut self, below: u64) -> Option<u64> {
        self.one_in(2).then(|| self.below(below))
    }
}

fn purged_to_the_end(store: &mut dyn Store, now: Now, purge: &Purge) -> Vec<TaskId> {
    let mut gone = Vec::new();
    for _ in 0..fixture::CHUNKS_MAX {
        let purged = store.purge(now, purge).unwrap();
        gone.extend(purged.tasks);
        if purged.rest == Rest::Done {
            return gone;
        }
    }
    panic!("the purge does not end");
}
