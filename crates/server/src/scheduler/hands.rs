//! Between a tick and the worker: what the core wants done is done by somebody's hands, a worker's or a rehearsal's.

use runyard_core::event::{Answer, Command, Event, Held, Report, Start, WorkerSpec};
use runyard_core::ids::{TaskId, Ticket, Token};
use runyard_core::name::Blob;
use runyard_core::task::Stop;
use runyard_exec::process::supervise::{Stage, stage};
use runyard_worker::{Rehearsal, Worker};

pub(crate) trait Hands {
    fn held(&self) -> Vec<Held>;
    fn unacknowledged(&self) -> Vec<Event>;
    fn start(&self, starts: Vec<Start>);
    fn stop(&self, task: TaskId, attempt: u32, token: Token, stop: Stop);
    fn input(&self, task: TaskId, attempt: u32, token: Token, message: TaskId, spec: Blob);
    fn revoke(&self, task: TaskId, attempt: u32);
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

/// Hands on what a commit lets out. Gives the answers, which go out last.
pub(crate) fn carry_out(hands: &impl Hands, commands: Vec<Command>) -> Vec<(Ticket, Answer)> {
    let mut starts = Vec::new();
    let mut answers = Vec::new();
    for command in commands {
        // Order counts: a stop may be meant for a start of the same tick.
        if !matches!(command, Command::Start(_) | Command::Answer { .. }) {
            start(hands, &mut starts);
        }
        match command {
            Command::Start(start) => starts.push(start),
            Command::Answer { ticket, answer } => answers.push((ticket, answer)),
            Command::Stop { task, attempt, token, stop, .. } => hands.stop(task, attempt, token, stop),
            Command::Input { task, attempt, token, message, spec: Some(spec), .. } => {
                hands.input(task, attempt, token, message, spec);
            }
            // Its row is gone, so there is nothing to hand over.
            Command::Input { .. } => {}
            Command::Revoke { task, attempt, .. } => hands.revoke(task, attempt),
        }
    }
    start(hands, &mut starts);
    answers
}

fn start(hands: &impl Hands, starts: &mut Vec<Start>) {
    if !starts.is_empty() {
        hands.start(std::mem::take(starts));
    }
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

impl Hands for Worker {
    fn held(&self) -> Vec<Held> {
        Worker::held(self)
    }

    fn unacknowledged(&self) -> Vec<Event> {
        Worker::unacknowledged(self)
    }

    fn start(&self, starts: Vec<Start>) {
        Worker::start(self, starts);
    }

    fn stop(&self, task: TaskId, attempt: u32, token: Token, stop: Stop) {
        Worker::stop(self, task, attempt, token, stop);
    }

    fn input(&self, task: TaskId, attempt: u32, token: Token, message: TaskId, spec: Blob) {
        Worker::input(self, task, attempt, token, message, spec);
    }

    fn revoke(&self, task: TaskId, attempt: u32) {
        Worker::revoke(self, task, attempt);
    }

    fn acknowledge_told(&self, told: Told) {
        self.acknowledge_inputs(told.inputs);
        self.acknowledge_all(told.ends);
    }

    fn stage(&self, task: TaskId, attempt: u32) -> Stage {
        stage(self.places(), task.0, attempt)
    }
}

impl Hands for Rehearsal {
    fn held(&self) -> Vec<Held> {
        Rehearsal::held(self)
    }

    fn unacknowledged(&self) -> Vec<Event> {
        Rehearsal::unacknowledged(self)
    }

    fn start(&self, starts: Vec<Start>) {
        Rehearsal::start(self, &starts);
    }

    fn stop(&self, task: TaskId, attempt: u32, token: Token, _stop: Stop) {
        Rehearsal::stop(self, task, attempt, token);
    }

    /// Whether it would be taken, only the process could tell.
    fn input(&self, _: TaskId, _: u32, _: Token, _: TaskId, _: Blob) {}

    fn revoke(&self, _: TaskId, _: u32) {}

    fn acknowledge_told(&self, _: Told) {}

    fn stage(&self, _: TaskId, _: u32) -> Stage {
        Stage::Running
    }
}
