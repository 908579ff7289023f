//! One run: a yard over a store in memory, simulated workers, a clock that jumps, and faults.
//!
//! The yard is driven as the server drives it: it ticks when events came, when the last tick said `again`, and when the
//! time it named has come; never otherwise, so that a lost wake-up shows.

use std::collections::BTreeMap;
use std::sync::Arc;

use runyard_core::config::Config;
use runyard_core::event::{Admit, Answer, Command, Event, Held, Idempotency, Report};
use runyard_core::ids::{TaskId, Ticket, Token};
use runyard_core::now::Now;
use runyard_core::planted::Bug;
use runyard_core::write::WriteSet;
use runyard_store::store::Store;
use runyard_store::yard::{Ticked, Yard};

use crate::generate::{self, Universe};
use crate::oracle::{Applied, Oracle};
use crate::remote::Call;
use crate::rng::Rng;
use crate::tap::Tap;
use crate::worker::{Link, Mood, SimWorker};

pub struct World {
    pub rng: Rng,
    pub oracle: Oracle,
    pub universe: Universe,
    pub workers: Vec<SimWorker>,
    pub inbox: Vec<Event>,
    pub mood: Mood,
    pub n_steps: u64,
    /// What was started, in order.
    pub starts: Vec<TaskId>,
    yard: Option<Yard>,
    pub(crate) tap: Tap,
    /// The wall clock is steady time plus this; it jumps.
    pub(crate) wall_ahead_ms: u64,
    pub(crate) steady_ms: u64,
    pub(crate) wake_ms: Option<u64>,
    again: bool,
    pub(crate) known: Vec<TaskId>,
    pub(crate) keys: Vec<Idempotency>,
    /// Leases that were handed out once, for reports that come too late.
    pub(crate) old_leases: Vec<(runyard_core::ids::WorkerId, TaskId, u32, Token)>,
    /// Calls of workers on other machines.
    pub(crate) calls: BTreeMap<Ticket, Call>,
    ticket: u64,
    bug: Option<Bug>,
    digest: Option<u64>,
}

impl World {
    pub fn new(seed: u64, bug: Option<Bug>) -> World {
        let mut rng = Rng::new(seed);
        let universe = Universe::draw(&mut rng);
        let config = Arc::new(generate::config(&mut rng, &universe));
        let workers = generate::workers(&mut rng, &universe);
        World::with(rng, universe, config, workers.into_iter().map(SimWorker::new).collect(), bug)
    }

    pub fn with(rng: Rng, universe: Universe, config: Arc<Config>, workers: Vec<SimWorker>, bug: Option<Bug>) -> World {
        let wall_ahead_ms = 1_700_000_000_000;
        let now = Now { wall_ms: wall_ahead_ms, steady_ms: 0 };
        let mut world = World {
            rng,
            oracle: Oracle::new(config, now),
            universe,
            workers,
            inbox: Vec::new(),
            mood: Mood::Wild,
            n_steps: 0,
            starts: Vec::new(),
            yard: None,
            tap: Tap::default(),
            wall_ahead_ms,
            steady_ms: 0,
            wake_ms: Some(0),
            again: true,
            known: Vec::new(),
            keys: Vec::new(),
            old_leases: Vec::new(),
            calls: BTreeMap::new(),
            ticket: 0,
            bug,
            digest: None,
        };
        world.open();
        world
    }

    /// From here on everything that is decided is folded into one number.
    pub fn record(&mut self) {
        self.digest = Some(0);
    }

    pub fn digest(&self) -> Option<u64> {
        self.digest
    }

    pub fn now(&self) -> Now {
        Now { wall_ms: self.steady_ms + self.wall_ahead_ms, steady_ms: self.steady_ms }
    }

    pub fn pass(&mut self, ms: u64) {
        self.steady_ms += ms;
    }

    pub fn ticket(&mut self) -> Ticket {
        self.ticket += 1;
        Ticket(self.ticket)
    }

    fn open(&mut self) {
        let config = self.oracle.config.clone();
        let wall_ms = self.now().wall_ms;
        let (yard, now) = Yard::open(Box::new(self.tap.clone()), config, 7, wall_ms).expect("memory is readable");
        // Time that nobody was here counts as far as the wall clock shows it.
        self.wall_ahead_ms = now.wall_ms.saturating_sub(now.steady_ms);
        self.steady_ms = now.steady_ms;
        self.yard = Some(yard);
        self.plant();
        (self.again, self.wake_ms) = (true, Some(self.steady_ms));
    }

    #[cfg(feature = "planted")]
    fn plant(&mut self) {
        let bug = self.bug;
        self.yard_mut().core_mut().planted = bug;
    }

    #[cfg(not(feature = "planted"))]
    fn plant(&mut self) {
        assert!(self.bug.is_none(), "bugs are planted only in a build with the feature");
    }

    pub fn yard_mut(&mut self) -> &mut Yard {
        self.yard.as_mut().expect("a yard is open between crashes")
    }

    pub fn yard(&self) -> &Yard {
        self.yard.as_ref().expect("a yard is open between crashes")
    }

    // ── Steps ───────────────────────────────────────────────────────────────────────────────────────────────────

    /// Something happens, or nothing, and the yard does what it must.
    pub fn step(&mut self) {
        self.n_steps += 1;
        self.time();
        self.let_workers_work();
        for _ in 0..self.rng.below(3) {
            self.act();
        }
        self.fault();
        // While a commit is slow the events gather.
        if self.rng.chance(85) {
            self.run();
        }
        if self.rng.one_in(8) {
            self.explain_one();
        }
        if self.n_steps.is_multiple_of(16) {
            self.yard().core().sanity_check();
            self.oracle.recount();
        }
    }

    pub fn let_workers_work(&mut self) {
        for at in 0..self.workers.len() {
            let worker = &self.workers[at];
            if worker.is_remote() && !worker.registered && (self.mood == Mood::Calm || self.rng.chance(40)) {
                self.register(at);
            }
            if self.workers[at].link != Link::Silent {
                let mail = std::mem::take(&mut self.workers[at].mail);
                mail.into_iter().for_each(|command| self.carry_out(command));
            }
            let mut said = Vec::new();
            let worker = &mut self.workers[at];
            let may_join = worker.spec.embedded || (worker.registered && self.rng.chance(30));
            if worker.link == Link::Unjoined && may_join {
                worker.join(self.steady_ms, &mut said);
            }
            worker.pass(self.steady_ms, self.mood, &mut self.rng, &mut said);
            self.hand_in(at, said, false);
        }
    }

    /// The server is stopped and started again, as an upgrade does it: what does not go on without it has time to end.
    pub fn restart(&mut self) {
        self.inbox.push(Event::Admit { admit: Admit::Stopping, ticket: None });
        for _ in 0..STOP_MS / STOP_STEP_MS {
            self.run();
            self.pass(STOP_STEP_MS);
            self.let_workers_work();
        }
        self.run();
        self.crash();
    }

    /// The whole process dies: memory and inbox are gone, and of the embedded worker all that does not go on by itself.
    pub fn crash(&mut self) {
        self.yard = None;
        self.inbox.clear();
        self.calls.clear();
        for worker in &mut self.workers {
            worker.mail.clear();
            match worker.spec.embedded {
                true => worker.lose_unkept(),
                false => worker.link = Link::Unjoined,
            }
        }
        self.oracle.admit = Admit::Open;
        self.pass(self.rng.clone().below(3000));
        self.open();
        self.oracle.recovered(self.now());
    }

    // ── The loop ────────────────────────────────────────────────────────────────────────────────────────────────

    /// Ticks for as long as there is something to do.
    pub fn run(&mut self) {
        let mut n_ticks = 0;
        while self.again || !self.inbox.is_empty() || self.wake_ms.is_some_and(|wake_ms| wake_ms <= self.steady_ms) {
            let mut events = std::mem::take(&mut self.inbox);
            self.tick(&mut events);
            n_ticks += 1;
            assert!(n_ticks < TICKS_AT_ONCE_MAX, "the yard does not come to rest");
        }
    }

    fn tick(&mut self, events: &mut Vec<Event>) {
        let now = self.now();
        self.oracle.is_rested = !self.again;
        let forecast = self.oracle.foresee(now, events);
        let keeps_before = self.yard().core().keeps();
        let ends: Vec<(usize, Held)> = events.iter().filter_map(|event| self.end_of(event)).collect();
        let result = self.yard_mut().tick(now, events);
        let committed = self.tap.committed();
        let is_lost = result.is_err() && committed.is_empty();
        let applied = self.applied(committed);
        if !is_lost {
            self.oracle.note_repeats(&forecast, &applied);
            let seen = self.oracle.follow(&forecast, &applied);
            self.oracle.follow_ends(&applied);
            self.oracle.check_rows(&forecast, &applied, &seen);
            self.oracle.check_sessions(&forecast, &applied);
        }
        self.oracle.note_claims(&applied.started);
        self.oracle.check_limits(&applied.started);
        self.oracle.take_rates(&applied.started);
        self.oracle.check_order(&applied);
        if !self.universe.is_tiny {
            self.oracle.check_tiers(&applied);
        }
        match result {
            Ok(ticked) => {
                let keeps = self.yard().core().keeps();
                self.oracle.check_commands(&forecast, &ticked, &applied, &keeps);
                self.oracle.check_registered();
                self.oracle.check_places(&applied, &keeps_before, &keeps);
                self.oracle.merge_keys(&applied);
                for (worker, lease) in ends {
                    self.workers[worker].acknowledge(lease);
                }
                self.note(&ticked);
                self.let_out(ticked);
                let now = self.now();
                self.wake_ms = self.yard().next_timeout(now).map(|ms| now.steady_ms + ms);
                self.check_rest();
            }
            Err(error) => {
                assert!(self.tap.has_failed(), "a tick failed by itself: {error}");
                self.oracle.merge_keys(&applied);
                events.clear();
                self.recover();
            }
        }
    }

    fn applied(&mut self, committed: Vec<WriteSet>) -> Applied {
        let mut all = Applied::default();
        assert!(committed.len() <= 1, "one tick, one commit");
        for writes in committed {
            if let Some(digest) = &mut self.digest {
                *digest = fold(*digest, &format!("{writes:?}"));
            }
            all = self.oracle.apply(&writes);
        }
        all
    }

    fn note(&mut self, ticked: &Ticked) {
        if let Some(digest) = &mut self.digest {
            *digest = fold(*digest, &format!("{:?}", ticked.commands));
        }
    }

    fn recover(&mut self) {
        let now = self.now();
        self.yard_mut().recover(now).expect("memory is readable");
        self.oracle.recovered(now);
        self.inbox.retain(|event| !matches!(event, Event::Submit(_)));
        for worker in &mut self.workers {
            worker.mail.clear();
            if worker.link == Link::Up {
                worker.link = Link::Unjoined;
            }
            if worker.spec.embedded {
                worker.join(self.steady_ms, &mut self.inbox);
            }
        }
        (self.again, self.wake_ms) = (true, Some(self.steady_ms));
    }

    /// The attempt whose end this event reports, and the worker that waits for the acknowledgement.
    fn end_of(&self, event: &Event) -> Option<(usize, Held)> {
        match event {
            Event::Report { report: Report::Started | Report::Alive | Report::InputTaken { .. }, .. } => None,
            Event::Report { worker, task, attempt, token, .. } => {
                let at = self.workers.iter().position(|other| other.id() == *worker)?;
                Some((at, Held { task: *task, attempt: *attempt, token: *token }))
            }
            _ => None,
        }
    }

    fn let_out(&mut self, ticked: Ticked) {
        self.again = ticked.again;
        for command in ticked.commands {
            if let Command::Start(start) = &command {
                self.starts.push(start.task);
                self.old_leases.push((start.worker, start.task, start.attempt, start.token));
                let surplus = self.old_leases.len().saturating_sub(40);
                self.old_leases.drain(..surplus);
            }
            self.carry_out(command);
        }
    }

    pub(crate) fn carry_out(&mut self, command: Command) {
        let now_ms = self.steady_ms;
        let worker = match &command {
            Command::Start(start) => start.worker,
            Command::Stop { worker, .. } | Command::Input { worker, .. } | Command::Revoke { worker, .. } => *worker,
            Command::Answer { ticket, answer } => return self.hear_answer(*ticket, answer),
        };
        let Some(at) = self.workers.iter().position(|other| other.id() == worker) else { return };
        let worker = &mut self.workers[at];
        if worker.is_remote() && worker.link == Link::Silent {
            // It lies at the server until the worker asks again.
            worker.mail.push(command);
            return;
        }
        match command {
            Command::Start(start) => worker.start(now_ms, start, self.mood, &mut self.rng),
            Command::Stop { task, attempt, token, .. } => {
                let mut said = Vec::new();
                worker.stop(now_ms, Held { task, attempt, token }, &mut self.rng, &mut said);
                self.hand_in(at, said, false);
            }
            Command::Input { task, attempt, token, message, .. } => {
                worker.input(now_ms, Held { task, attempt, token }, message, &mut self.rng);
            }
            Command::Revoke { task, attempt, .. } => {
                // Refused for its token alone: that is for the impostor, not for the worker that holds the lease.
                let row = self.oracle.rows.get(&task).filter(|row| row.attempt == attempt);
                let lease = row.and_then(|row| row.state.lease()).filter(|lease| lease.worker == worker.id());
                if lease.is_none() {
                    worker.revoke(now_ms, task, attempt, &mut self.rng);
                }
            }
            Command::Answer { .. } => {}
        }
    }

    fn check_rest(&mut self) {
        let is_at_rest = !self.again && self.wake_ms.is_none_or(|wake_ms| wake_ms > self.steady_ms);
        if is_at_rest {
            let keeps = self.yard().core().keeps();
            self.oracle.check_settled();
            self.oracle.check_stopped();
            self.oracle.check_book_rested();
            self.oracle.check_conserving(&keeps);
            self.oracle.check_keeps(&keeps);
        }
    }

    /// Asks why some task waits, while the yard is at rest, and compares.
    fn explain_one(&mut self) {
        let is_at_rest = !self.again
            && self.inbox.is_empty()
            && self.wake_ms.is_none_or(|wake_ms| wake_ms > self.steady_ms)
            && self.oracle.now == self.yard().core().meta().now;
        let n_live = self.oracle.live.len() as u64;
        if !is_at_rest || n_live == 0 {
            return;
        }
        let at = self.rng.below(n_live) as usize;
        let task = *self.oracle.live.iter().nth(at).expect("it was just counted");
        let keeps = self.yard().core().keeps();
        let now = self.oracle.now;
        let ticket = self.ticket();
        let ticked = self.yard_mut().tick(now, &mut vec![Event::Explain { ticket, task }]).expect("nothing is written");
        assert!(ticked.commit.is_none(), "a question changes nothing");
        let said = ticked.commands.iter().find_map(|command| match command {
            Command::Answer { answer: Answer::Explained(said), .. } => said.as_deref(),
            _ => None,
        });
        let said = said.unwrap_or_else(|| panic!("{task:?} is live and cannot be explained"));
        self.oracle.check_explanation(task, said, &keeps);
    }

    // ── The end ─────────────────────────────────────────────────────────────────────────────────────────────────

    /// With faults off everything ends within a bounded time.
    pub fn drain(&mut self) {
        self.mood = Mood::Calm;
        self.tap.has_failed();
        let mut calm = SimWorker::new(generate::calm_worker());
        calm.join(self.steady_ms, &mut self.inbox);
        self.workers.push(calm);
        for worker in &mut self.workers {
            if worker.link == Link::Silent {
                worker.link = Link::Unjoined;
            }
        }
        let config = generate::calm_config(&self.oracle.config);
        self.inbox.push(Event::Configure { ticket: None, config: Arc::new(config) });
        self.inbox.push(Event::Admit { admit: Admit::Open, ticket: None });
        let until_ms = self.steady_ms + DRAIN_MS_MAX;
        for _ in 0..DRAIN_STEPS_MAX {
            if self.oracle.live.is_empty() && self.workers.iter().all(SimWorker::is_empty) && self.inbox.is_empty() {
                self.yard().core().sanity_check();
                self.oracle.recount();
                let reader = self.tap.reader();
                self.oracle.recount_mail(&*reader);
                self.oracle.recount_book(&*reader);
                return;
            }
            self.cancel_orphans();
            self.let_workers_work();
            self.run();
            let next = self.workers.iter().filter_map(SimWorker::next_ms).chain(self.wake_ms).min();
            let next = next.map_or(50, |at_ms| at_ms.saturating_sub(self.steady_ms)).clamp(1, 900);
            self.pass(next);
            assert!(self.steady_ms < until_ms, "after {DRAIN_MS_MAX} ms without faults tasks live on: {}", self.left());
        }
        panic!("after {DRAIN_STEPS_MAX} steps without faults tasks live on: {}", self.left());
    }

    /// A parent that was never stored is waited for without end; only a person can tell that it will not come.
    fn cancel_orphans(&mut self) {
        let is_orphan = |id: &&TaskId| {
            let parents = self.oracle.parents_of(**id);
            self.oracle.rows[*id].n_deps_open > 0 && parents.iter().any(|parent| !self.oracle.rows.contains_key(parent))
        };
        let orphans: Vec<TaskId> = self.oracle.live.iter().filter(is_orphan).copied().collect();
        for task in orphans {
            let ticket = self.ticket();
            self.inbox.push(Event::Cancel { ticket, task, reason: "its parent never came".into() });
        }
    }

    fn left(&self) -> String {
        let states = self.oracle.live.iter().take(3).map(|id| {
            let row = &self.oracle.rows[id];
            format!("{id:?} {:?} of {:?}; ", row.state, self.oracle.key_of(row))
        });
        states.collect()
    }
}

fn fold(digest: u64, text: &str) -> u64 {
    text.bytes().fold(digest, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

/// More than a simulated run takes to stop.
const STOP_MS: u64 = 600;
const STOP_STEP_MS: u64 = 100;
/// A yard that has something to do for longer than this is going in circles.
const TICKS_AT_ONCE_MAX: u32 = 2000;
const DRAIN_MS_MAX: u64 = 3 * 3_600_000;
const DRAIN_STEPS_MAX: u64 = 50_000;
