//! Workers on other machines: they register, say everything in one call, and hear of it only by the answer. Processes are
//! replaced, calls come twice or too late, machines measure nonsense.

use std::sync::Arc;

use runyard_core::event::{Answer, Event, Held, Report};
use runyard_core::flow::Resources;
use runyard_core::ids::Ticket;
use runyard_core::task::Text;
use runyard_core::worker::{Sync, Vitals, WorkerAct, WorkerAnswer, WorkerRefusal, WorkerRow, WorkerSpec};

use crate::rng::Rng;
use crate::worker::Link;
use crate::world::World;

/// A call whose answer is awaited.
#[derive(Clone)]
pub struct Call {
    worker: usize,
    session: u64,
    ends: Vec<Held>,
}

impl World {
    /// A new process of this worker says who it is.
    pub(crate) fn register(&mut self, at: usize) {
        let ticket = self.ticket();
        let worker = &mut self.workers[at];
        worker.session = ticket.0;
        worker.registered = true;
        worker.link = Link::Unjoined;
        if self.rng.chance(30) {
            worker.spec = resized(&mut self.rng, &worker.spec);
        }
        let spec = worker.spec.clone();
        let row = WorkerRow { session: ticket.0, draining: false, registered_at: 0, about: Arc::default(), spec };
        let act = WorkerAct::Register(Box::new(row));
        self.inbox.push(Event::Worker { ticket, worker: self.workers[at].id(), act });
    }

    /// What a worker has to say, in the way it says it.
    pub(crate) fn hand_in(&mut self, at: usize, events: Vec<Event>, leaves: bool) {
        if !self.workers[at].is_remote() {
            self.inbox.extend(events);
            return;
        }
        if events.is_empty() && !leaves {
            return;
        }
        let joins = events.iter().any(|event| matches!(event, Event::WorkerJoined { .. }));
        let reports: Vec<(Held, Report)> = events.into_iter().filter_map(reported).collect();
        let ends = reports.iter().filter(|(_, report)| is_end(report)).map(|(held, _)| *held).collect();
        let ticket = self.ticket();
        let worker = &self.workers[at];
        let call = Call { worker: at, session: worker.session, ends };
        let (id, session, held) = (worker.id(), worker.session, worker.held());
        let vitals = Some(vitals(&mut self.rng, &self.workers[at].spec));
        let sync = Sync { session, joins, leaves, held, vitals, reports };
        self.calls.insert(ticket, call);
        self.inbox.push(Event::Worker { ticket, worker: id, act: WorkerAct::Sync(Box::new(sync)) });
    }

    /// A call that comes a second time.
    pub(crate) fn repeat_call(&mut self, event: &Event) {
        if let Event::Worker { ticket, worker, act: act @ WorkerAct::Sync(_) } = event {
            let again = self.ticket();
            let call = self.calls.get(ticket).cloned();
            self.calls.extend(call.map(|call| (again, call)));
            self.inbox.push(Event::Worker { ticket: again, worker: *worker, act: act.clone() });
        }
    }

    pub(crate) fn hear_answer(&mut self, ticket: Ticket, answer: &Answer) {
        let (Answer::Worker(result), Some(call)) = (answer, self.calls.remove(&ticket)) else { return };
        let now_ms = self.steady_ms;
        let worker = &mut self.workers[call.worker];
        match result {
            Ok(WorkerAnswer::Synced { refused }) => {
                for end in call.ends {
                    match refused.contains(&(end.task, end.attempt)) {
                        true => worker.revoke(now_ms, end.task, end.attempt, &mut self.rng),
                        false => worker.acknowledge(end),
                    }
                }
            }
            // Answers to an earlier process are nobody's business any more.
            Err(_) if call.session != worker.session => {}
            Err(WorkerRefusal::NotJoined) if worker.link == Link::Up => worker.link = Link::Unjoined,
            Err(WorkerRefusal::NotFound | WorkerRefusal::Fenced) => worker.registered = false,
            _ => {}
        }
    }

    /// Somebody drains a worker, lets it go on, or removes it.
    pub(crate) fn manage_worker(&mut self) {
        let remote: Vec<_> =
            self.workers.iter().filter(|worker| worker.is_remote()).map(|worker| worker.id()).collect();
        if remote.is_empty() {
            return;
        }
        let worker = *self.rng.pick(&remote);
        let act = match self.rng.below(6) {
            0..=1 => WorkerAct::Drain,
            2..=4 => WorkerAct::Resume,
            _ => WorkerAct::Remove,
        };
        let ticket = self.ticket();
        self.inbox.push(Event::Worker { ticket, worker, act });
    }
}

fn reported(event: Event) -> Option<(Held, Report)> {
    match event {
        Event::Report { task, attempt, token, report, .. } => Some((Held { task, attempt, token }, report)),
        _ => None,
    }
}

fn is_end(report: &Report) -> bool {
    !matches!(report, Report::Started | Report::Alive | Report::InputTaken { .. })
}

/// Mostly an honest measurement, sometimes none, sometimes a machine that others use too.
fn vitals(rng: &mut Rng, spec: &WorkerSpec) -> Vitals {
    let is_sample = rng.chance(60);
    let cpu_usage_milli = if rng.chance(15) { 90_000 + rng.below(10_001) } else { rng.below(80_000) };
    let ram_free_mb = if rng.chance(15) { rng.below(600) } else { u64::from(spec.capacity.ram_mb) };
    Vitals {
        cpu_usage_milli: is_sample.then_some(cpu_usage_milli as u32),
        ram_free_mb: is_sample.then_some(ram_free_mb as u32),
        trouble: rng.one_in(25).then_some(Text::Borrowed("the disk is full")),
        want: rng.one_in(12).then(|| rng.below(3) as u32),
    }
}

/// The next process offers more, or less.
fn resized(rng: &mut Rng, spec: &WorkerSpec) -> WorkerSpec {
    let cpu_milli = *rng.pick(&[1000, 2000, 4000, 8000]);
    let capacity = Resources { cpu_milli, ram_mb: *rng.pick(&[512, 2048, 4096]), named: spec.capacity.named.clone() };
    let parallel_max = rng.chance(50).then(|| rng.between(1, 4) as u32);
    WorkerSpec { capacity, parallel_max, ..spec.clone() }
}
