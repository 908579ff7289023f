//! How fast does the core find places? In this process and without a disk: the real tick loop over the store in memory,
//! ten thousand workers of all sizes, a million queued tasks of a hundred shapes. Tasks end as fast as others start, so
//! the fleet stays full and every start looks for the little room there is.

mod fleet;
mod timed;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use runyard_core::config::Config;
use runyard_core::event::{Asked, Command, Event, Report, Start, Submission, SubmitMode};
use runyard_core::hash::mix;
use runyard_core::ids::Ticket;
use runyard_core::now::Now;
use runyard_core::worker::{Sync, Vitals, WorkerAct};
use runyard_store::memory::MemoryStore;
use runyard_store::yard::{Ticked, Yard};

use self::timed::{Timed, Watch, processor_time};
use super::report::{Figure, Report as Figures};

pub struct Size {
    pub workers: u64,
    pub queued: u64,
    /// Placed on a full fleet before the figure is taken.
    pub placed: u64,
}

const SHAPES: u64 = 100;
/// What one tick brings, of submits, registers or ends: as many as gather while a commit is on its way.
const PER_TICK: u64 = 2000;
const PLACED_PER_S: f64 = 50_000.0;

pub fn measure(size: &Size, figures: &mut Figures) -> anyhow::Result<()> {
    eprintln!("{} workers, {} queued tasks of {SHAPES} shapes …", size.workers, size.queued);
    let mut bed = Bed::open()?;
    let took = bed.submit(size.queued)?;
    figures.add(Figure::new("placement: tasks submitted, core alone", rate(size.queued, took.core()), "tasks/s"));
    let took = bed.fill(size.workers)?;
    let n_filled = bed.n_started;
    figures.add(Figure::new(format!("  {} workers come and take", size.workers), n_filled as f64, "tasks"));
    figures.add(Figure::new("  placed meanwhile, core alone", rate(n_filled, took.core()), "tasks/s"));
    let (took, reports) = bed.turn_over(size.placed)?;
    let n = bed.n_started - n_filled;
    figures.add(
        Figure::new(
            "placement on a full fleet, core alone: some end, others take their place",
            rate(n, took.core()),
            "tasks/s",
        )
        .target(PLACED_PER_S, true),
    );
    figures.add(Figure::new("  and workers report each start", rate(n, took.core() + reports.core()), "tasks/s"));
    figures.add(Figure::new("  with the store in memory", rate(n, took.processor + reports.processor), "tasks/s"));
    figures.add(Figure::new("  the same by the clock on the wall", rate(n, took.wall + reports.wall), "tasks/s"));
    figures.add(Figure::new("  still queued", (size.queued - bed.n_started) as f64, "tasks"));
    Ok(())
}

/// A yard and everyone around it.
struct Bed {
    yard: Yard,
    now: Now,
    watch: Watch,
    running: VecDeque<Start>,
    /// What workers will say of the latest starts.
    begun: Vec<Event>,
    n_started: u64,
    n_tickets: u64,
}

/// Time of some ticks: by the clock on the wall, of the processor, and the part of the latter that the store took.
#[derive(Default)]
struct Took {
    wall: Duration,
    processor: Duration,
    store: Duration,
}

impl Took {
    fn core(&self) -> Duration {
        self.processor - self.store
    }
}

fn rate(n: u64, took: Duration) -> f64 {
    n as f64 / took.as_secs_f64()
}

impl Bed {
    fn open() -> anyhow::Result<Bed> {
        let mut config = Config { queued_max: u64::MAX, queued_per_agent_max: u64::MAX, ..Config::default() };
        config.inflight_max = u32::MAX;
        config.workers_max = u32::MAX;
        config.lanes.values_mut().for_each(|lane| lane.limit = u32::MAX);
        let watch = Watch::default();
        let store = Timed::new(MemoryStore::new(), watch.clone());
        let (yard, now) = Yard::open(Box::new(store), Arc::new(config), 7, 1_800_000_000_000)?;
        Ok(Bed { yard, now, watch, running: VecDeque::new(), begun: Vec::new(), n_started: 0, n_tickets: 0 })
    }

    fn submit(&mut self, n_tasks: u64) -> anyhow::Result<Took> {
        let mut took = Took::default();
        let mut next = 0;
        while next < n_tasks {
            let items = (next..n_tasks.min(next + PER_TICK)).map(|n| fleet::task(n, SHAPES)).collect();
            let submission = Submission {
                ticket: self.ticket(),
                batch: None,
                mode: SubmitMode::All,
                items,
                idempotency: None,
                asked: Asked::Once,
            };
            self.tick(vec![Event::Submit(submission)], &mut took)?;
            next += PER_TICK;
        }
        Ok(took)
    }

    /// Workers register and come, each tick a number of them, until all are there and none has room for anything.
    fn fill(&mut self, n_workers: u64) -> anyhow::Result<Took> {
        let mut took = Took::default();
        let mut next = 0;
        while next < n_workers {
            let coming = next..n_workers.min(next + PER_TICK);
            let events = coming.flat_map(|n| self.comes(n)).collect();
            self.tick(events, &mut took)?;
            next += PER_TICK;
        }
        while self.tick(Vec::new(), &mut took)? {}
        ensure!(self.n_started > 0, "nothing was placed");
        Ok(took)
    }

    fn comes(&mut self, n: u64) -> [Event; 2] {
        let row = fleet::worker(n);
        let (worker, session) = (row.spec.id, row.session);
        let sync = Sync {
            session,
            joins: true,
            leaves: false,
            held: Vec::new(),
            vitals: Some(Vitals::default()),
            reports: Vec::new(),
        };
        [WorkerAct::Register(Box::new(row)), WorkerAct::Sync(Box::new(sync))].map(|act| Event::Worker {
            ticket: self.ticket(),
            worker,
            act,
        })
    }

    /// Tasks end, here and there, and others start in their place.
    fn turn_over(&mut self, n_tasks: u64) -> anyhow::Result<(Took, Took)> {
        let (mut took, mut reports) = (Took::default(), Took::default());
        let goal = self.n_started + n_tasks;
        let mut draw = 1;
        while self.n_started < goal {
            let mut ends = Vec::new();
            for _ in 0..PER_TICK.min(self.running.len() as u64) {
                draw = mix(draw);
                let at = draw as usize % self.running.len();
                let start = self.running.swap_remove_back(at).expect("it is one of those that run");
                ends.push(report(&start, Report::Completed { result: None, usage: None }));
            }
            ensure!(!ends.is_empty(), "all work is done; more must be queued for this figure");
            self.tick(ends, &mut took)?;
            let begun = std::mem::take(&mut self.begun);
            self.timed(begun, &mut reports)?;
        }
        Ok((took, reports))
    }

    /// One tick, with the reports of the starts that the one before it gave. True when there is more to do at once.
    fn tick(&mut self, mut events: Vec<Event>, took: &mut Took) -> anyhow::Result<bool> {
        events.append(&mut self.begun);
        let ticked = self.timed(events, took)?;
        for command in ticked.commands {
            if let Command::Start(start) = command {
                self.begun.push(report(&start, Report::Started));
                self.running.push_back(start);
                self.n_started += 1;
            }
        }
        Ok(ticked.again || !self.begun.is_empty())
    }

    fn timed(&mut self, mut events: Vec<Event>, took: &mut Took) -> anyhow::Result<Ticked> {
        self.now.steady_ms += 1;
        self.now.wall_ms += 1;
        let (store_before, processor_before) = (self.watch.elapsed(), processor_time());
        let began = Instant::now();
        let ticked = self.yard.tick(self.now, &mut events)?;
        took.wall += began.elapsed();
        took.processor += processor_time() - processor_before;
        took.store += self.watch.elapsed() - store_before;
        Ok(ticked)
    }

    fn ticket(&mut self) -> Ticket {
        self.n_tickets += 1;
        Ticket(self.n_tickets)
    }
}

fn report(start: &Start, report: Report) -> Event {
    let Start { worker, task, attempt, token, .. } = *start;
    Event::Report { worker, task, attempt, token, report }
}
