//! Between a tick and the workers: what the core wants done is done by somebody's hands, the embedded worker's or a
//! rehearsal's, or lies ready for a worker on another machine.

use std::time::Instant;

use runyard_core::event::{Answer, Command, Event, Held, Report, Start, WorkerSpec};
use runyard_core::ids::{TaskId, Ticket, WorkerId};
use runyard_core::name::Blob;
use runyard_core::task::Stop;
use runyard_exec::process::supervise::{Stage, stage};
use runyard_worker::{Rehearsal, Worker};

/// What a commit asks of workers.
pub(crate) trait Orders {
    /// None of them begins after `not_after`.
    fn start(&self, starts: Vec<Start>, not_after: Option<Instant>);
    fn stop(&self, worker: WorkerId, held: Held, stop: Stop);
    fn input(&self, worker: WorkerId, held: Held, message: TaskId, spec: Blob);
    fn revoke(&self, worker: WorkerId, task: TaskId, attempt: u32);
}

/// The worker that shares a process with the scheduler.
pub(crate) trait Hands: Orders {
    fn held(&self) -> Vec<Held>;
    fn unacknowledged(&self) -> Vec<Event>;
    fn acknowledge_told(&self, told: Told);
    /// How far an attempt has come that it was told to start.
    fn stage(&self, task: TaskId, attempt: u32) -> Stage;

    /// Presents itself as any other worker does: what it holds goes on, what it does not is lost.
    fn arrival(&self, spec: &WorkerSpec) -> Event {
        Event::WorkerJoined { worker: spec.clone(), held: self.held() }
    }
}

/// What a tick's events told that a worker would repeat until it is committed.
#[derive(Default)]
pub(crate) struct Told {
    ends: Vec<(TaskId, u32)>,
    inputs: Vec<(TaskId, u32, TaskId)>,
}

impl Told {
    pub(crate) fn by(events: &[Event]) -> Told {
        let ends = events.iter().filter_map(end).collect();
        Told { ends, inputs: events.iter().filter_map(taken_input).collect() }
    }
}

/// Who does what is asked: the worker here, and whoever keeps it for the others.
pub(crate) struct Crew<'a> {
    pub own: WorkerId,
    pub hands: &'a dyn Orders,
    pub desk: &'a dyn Orders,
    /// When whoever gives these orders may not be the one to give them any more.
    pub not_after: Option<Instant>,
}

impl Crew<'_> {
    fn of(&self, worker: WorkerId) -> &dyn Orders {
        if worker == self.own { self.hands } else { self.desk }
    }

    fn start(&self, starts: &mut Vec<Start>) {
        let (own, away): (Vec<Start>, Vec<Start>) =
            std::mem::take(starts).into_iter().partition(|start| start.worker == self.own);
        for (orders, starts) in [(self.hands, own), (self.desk, away)] {
            if !starts.is_empty() {
                orders.start(starts, self.not_after);
            }
        }
    }
}

/// For a pass without a server: workers on other machines hear nothing until there is one, and it asks again.
pub(crate) struct Nobody;

impl Orders for Nobody {
    fn start(&self, _: Vec<Start>, _: Option<Instant>) {}
    fn stop(&self, _: WorkerId, _: Held, _: Stop) {}
    fn input(&self, _: WorkerId, _: Held, _: TaskId, _: Blob) {}
    fn revoke(&self, _: WorkerId, _: TaskId, _: u32) {}
}

/// Hands on what a commit lets out. Gives the answers, which go out last.
pub(crate) fn carry_out(crew: &Crew<'_>, commands: Vec<Command>) -> Vec<(Ticket, Answer)> {
    let mut starts = Vec::new();
    let mut answers = Vec::new();
    for command in commands {
        // Order counts: a stop may be meant for a start of the same tick.
        if !matches!(command, Command::Start(_) | Command::Answer { .. }) {
            crew.start(&mut starts);
        }
        match command {
            Command::Start(start) => starts.push(start),
            Command::Answer { ticket, answer } => answers.push((ticket, answer)),
            Command::Stop { worker, task, attempt, token, stop } => {
                crew.of(worker).stop(worker, Held { task, attempt, token }, stop);
            }
            Command::Input { worker, task, attempt, token, message, spec: Some(spec) } => {
                crew.of(worker).input(worker, Held { task, attempt, token }, message, spec);
            }
            // Its row is gone, so there is nothing to hand over.
            Command::Input { .. } => {}
            Command::Revoke { worker, task, attempt } => crew.of(worker).revoke(worker, task, attempt),
        }
    }
    crew.start(&mut starts);
    answers
}

/// The attempt whose end this event reports.
pub(crate) fn end(event: &Event) -> Option<(TaskId, u32)> {
    match event {
        Event::Report { report: Report::Started | Report::Alive | Report::InputTaken { .. }, .. } => None,
        Event::Report { task, attempt, .. } => Some((*task, *attempt)),
        _ => None,
    }
}

/// The attempt that has taken a message, and the message.
fn taken_input(event: &Event) -> Option<(TaskId, u32, TaskId)> {
    match event {
        Event::Report { task, attempt, report: Report::InputTaken { message }, .. } => {
            Some((*task, *attempt, *message))
        }
        _ => None,
    }
}

impl Orders for Worker {
    fn start(&self, starts: Vec<Start>, not_after: Option<Instant>) {
        self.start_before(starts, not_after);
    }

    fn stop(&self, _: WorkerId, held: Held, stop: Stop) {
        Worker::stop(self, held.task, held.attempt, held.token, stop);
    }

    fn input(&self, _: WorkerId, held: Held, message: TaskId, spec: Blob) {
        Worker::input(self, held.task, held.attempt, held.token, message, spec);
    }

    fn revoke(&self, _: WorkerId, task: TaskId, attempt: u32) {
        Worker::revoke(self, task, attempt);
    }
}

impl Hands for Worker {
    fn held(&self) -> Vec<Held> {
        Worker::held(self)
    }

    fn unacknowledged(&self) -> Vec<Event> {
        Worker::unacknowledged(self)
    }

    fn acknowledge_told(&self, told: Told) {
        self.acknowledge_inputs(told.inputs);
        self.acknowledge_all(told.ends);
    }

    fn stage(&self, task: TaskId, attempt: u32) -> Stage {
        stage(self.places(), task.0, attempt)
    }
}

impl Orders for Rehearsal {
    fn start(&self, starts: Vec<Start>, _: Option<Instant>) {
        Rehearsal::start(self, &starts);
    }

    fn stop(&self, _: WorkerId, held: Held, _stop: Stop) {
        Rehearsal::stop(self, held.task, held.attempt, held.token);
    }

    /// Whether it would be taken, only the process could tell.
    fn input(&self, _: WorkerId, _: Held, _: TaskId, _: Blob) {}

    fn revoke(&self, _: WorkerId, _: TaskId, _: u32) {}
}

impl Hands for Rehearsal {
    fn held(&self) -> Vec<Held> {
        Rehearsal::held(self)
    }

    fn unacknowledged(&self) -> Vec<Event> {
        Rehearsal::unacknowledged(self)
    }

    fn acknowledge_told(&self, _: Told) {}

    fn stage(&self, _: TaskId, _: u32) -> Stage {
        Stage::Running
    }
}
