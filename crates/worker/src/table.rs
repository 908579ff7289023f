//! What a worker holds: runs that go on, and ends that the scheduler has not acknowledged. Pure bookkeeping.
//!
//! A task has at most one live run here. When a newer attempt arrives while the old one still dies (the scheduler gave
//! the old one up), the newer waits for that death: never two live copies on one host.

use std::sync::Arc;

use runyard_core::event::{Event, Held, Report, Start};
use runyard_core::hash::DetMap;
use runyard_core::ids::{TaskId, WorkerId};
use tokio_util::sync::CancellationToken;

use crate::input::Fate;
use crate::watch::{Watch, report_event};

pub(crate) struct Table {
    worker: WorkerId,
    pub(crate) intake: Intake,
    running: DetMap<TaskId, Run>,
    ended: DetMap<TaskId, Ended>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intake {
    Open,
    /// The worker shuts down: starts are handed back.
    Closed,
}

pub(crate) struct Run {
    pub(crate) lease: Held,
    pub(crate) stop: CancellationToken,
    pub(crate) watch: Arc<Watch>,
    pub(crate) ties: Ties,
    claim: Claim,
}

/// What binds a run to this worker?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ties {
    /// It ends with the worker.
    Bound,
    /// It goes on without, and leaves a record that is kept until its end is acknowledged.
    Loose,
}

/// Does the scheduler still believe in this run?
enum Claim {
    Live,
    /// It was given up: its end is nobody's news. A newer attempt may wait for it.
    GivenUp {
        next: Option<Box<Start>>,
    },
}

struct Ended {
    lease: Held,
    ties: Ties,
    /// Messages it took as input while it ran.
    taken: Vec<TaskId>,
    report: Report,
}

/// What a new start finds.
pub(crate) enum Arrival {
    /// Nothing of this task is here.
    Fresh(Start),
    /// It waits for an older attempt to die, or was here before and goes on.
    Settled,
    /// It ended already, or cannot be taken: this is the answer.
    Answer(Event),
}

impl Table {
    pub(crate) fn new(worker: WorkerId) -> Table {
        Table { worker, intake: Intake::Open, running: DetMap::default(), ended: DetMap::default() }
    }

    pub(crate) fn arrive(&mut self, start: Start) -> Arrival {
        let lease = lease_of(&start);
        if self.intake == Intake::Closed {
            let report = Report::NotStarted { reason: "the worker is shutting down".into() };
            return Arrival::Answer(self.end(lease, report));
        }
        if let Some(run) = self.running.get_mut(&start.task) {
            // Only a newer attempt supersedes; a repeated start of the same one finds it at work.
            if start.attempt > run.lease.attempt {
                run.give_up(Some(Box::new(start)));
            }
            return Arrival::Settled;
        }
        match self.ended.get(&start.task) {
            Some(ended) if ended.lease.attempt == start.attempt => {
                Arrival::Answer(report_event(self.worker, ended.lease, ended.report.clone()))
            }
            _ => Arrival::Fresh(start),
        }
    }

    pub(crate) fn begin(&mut self, lease: Held, stop: CancellationToken, watch: Arc<Watch>, ties: Ties) {
        let run = Run { lease, stop, watch, ties, claim: Claim::Live };
        let earlier = self.running.insert(lease.task, run);
        assert!(earlier.is_none(), "{:?} has one run at a time", lease.task);
    }

    /// Notes an end and gives the report of it.
    pub(crate) fn end(&mut self, lease: Held, report: Report) -> Event {
        self.end_after(lease, Ties::Bound, Vec::new(), report)
    }

    fn end_after(&mut self, lease: Held, ties: Ties, taken: Vec<TaskId>, report: Report) -> Event {
        self.ended.insert(lease.task, Ended { lease, ties, taken, report: report.clone() });
        report_event(self.worker, lease, report)
    }

    /// A run that ended before this worker was there. It is reported with everything else that is not acknowledged. Of
    /// two attempts only the newer can still be wanted; gives the record of the other.
    pub(crate) fn find_ended(&mut self, lease: Held, taken: Vec<TaskId>, report: Report) -> Option<Record> {
        match self.ended.get(&lease.task).map(|ended| ended.lease) {
            Some(newer) if newer.attempt > lease.attempt => record_of(lease, Ties::Loose),
            older => {
                self.end_after(lease, Ties::Loose, taken, report);
                older.and_then(|older| record_of(older, Ties::Loose))
            }
        }
    }

    /// A run is over. Gives its report, unless it was given up, and the attempt that waited for it.
    pub(crate) fn finish(&mut self, task: TaskId, report: Report) -> Finished {
        let run = self.running.remove(&task).expect("a run is in the table until it finishes");
        match run.claim {
            Claim::Live => {
                let event = self.end_after(run.lease, run.ties, run.watch.inbox.taken(), report);
                Finished { event: Some(event), next: None, record: None }
            }
            Claim::GivenUp { next } => Finished { event: None, next, record: record_of(run.lease, run.ties) },
        }
    }

    /// Asks for a stop. An answer comes at once when there is nothing to stop.
    pub(crate) fn stop(&mut self, lease: Held) -> Option<Event> {
        if let Some(run) = self.running.get_mut(&lease.task) {
            if run.lease.attempt == lease.attempt {
                run.stop.cancel();
                return None;
            }
            run.drop_next(lease.attempt);
        }
        match self.ended.get(&lease.task) {
            Some(ended) if ended.lease.attempt == lease.attempt => {
                Some(report_event(self.worker, ended.lease, ended.report.clone()))
            }
            _ => Some(report_event(self.worker, lease, Report::Stopped)),
        }
    }

    /// The scheduler has given this attempt to somebody else, or to nobody: it must end, and its end is not reported.
    /// Gives the record that is of no use any more.
    pub(crate) fn revoke(&mut self, task: TaskId, attempt: u32) -> Option<Record> {
        let record = self.acknowledge(task, attempt);
        if let Some(run) = self.running.get_mut(&task) {
            if run.lease.attempt == attempt {
                run.give_up(None);
            } else {
                run.drop_next(attempt);
            }
        }
        record
    }

    /// Gives the record that is of no use any more.
    pub(crate) fn acknowledge(&mut self, task: TaskId, attempt: u32) -> Option<Record> {
        let is_it = self.ended.get(&task).is_some_and(|ended| ended.lease.attempt == attempt);
        let ended = is_it.then(|| self.ended.remove(&task)).flatten()?;
        record_of(ended.lease, ended.ties)
    }

    /// It is known that this attempt has taken this message.
    pub(crate) fn acknowledge_input(&mut self, task: TaskId, attempt: u32, message: TaskId) {
        if let Some(run) = self.running.get(&task).filter(|run| run.lease.attempt == attempt) {
            run.watch.inbox.acknowledge(message);
        }
        if let Some(ended) = self.ended.get_mut(&task).filter(|ended| ended.lease.attempt == attempt) {
            ended.taken.retain(|taken| *taken != message);
        }
    }

    /// Hands a message to a run. An answer comes at once when it has been taken before.
    pub(crate) fn input(&self, lease: Held, message: TaskId, text: String) -> Option<Event> {
        if let Some(run) = self.running.get(&lease.task).filter(|run| run.lease == lease) {
            let fate = run.watch.inbox.hand_in(message, text);
            return (fate == Fate::Taken).then(|| run.watch.taken_event(message));
        }
        let ended = self.ended.get(&lease.task).filter(|ended| ended.lease == lease);
        let was_taken = ended.is_some_and(|ended| ended.taken.contains(&message));
        was_taken.then(|| report_event(self.worker, lease, Report::InputTaken { message }))
    }

    /// All that would not go on without this worker.
    pub(crate) fn stop_bound(&self) {
        self.running.values().filter(|run| run.ties == Ties::Bound).for_each(|run| run.stop.cancel());
    }

    pub(crate) fn held(&self) -> Vec<Held> {
        let running = self.running.values().filter_map(Run::held);
        running.chain(self.ended.values().map(|ended| ended.lease)).collect()
    }

    pub(crate) fn unacknowledged(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for run in self.running.values().filter(|run| matches!(run.claim, Claim::Live)) {
            events.extend(run.watch.has_begun().then(|| report_event(self.worker, run.lease, Report::Started)));
            events.extend(run.watch.inbox.taken().into_iter().map(|message| run.watch.taken_event(message)));
        }
        for Ended { lease, taken, report, .. } in self.ended.values() {
            // First what it took: after its end the message would be run again.
            let taken = taken.iter().map(|message| Report::InputTaken { message: *message });
            let reports = taken.chain([report.clone()]);
            events.extend(reports.map(|report| report_event(self.worker, *lease, report)));
        }
        events
    }

    pub(crate) fn run(&self, task: TaskId) -> Option<&Run> {
        self.running.get(&task)
    }
}

impl Run {
    fn give_up(&mut self, next: Option<Box<Start>>) {
        self.stop.cancel();
        let earlier = match &mut self.claim {
            Claim::Live => None,
            Claim::GivenUp { next } => next.take(),
        };
        // Of two that wait only the newer is still wanted.
        let next = next.into_iter().chain(earlier).max_by_key(|start| start.attempt);
        self.claim = Claim::GivenUp { next };
    }

    fn drop_next(&mut self, attempt: u32) {
        if let Claim::GivenUp { next } = &mut self.claim {
            next.take_if(|start| start.attempt == attempt);
        }
    }

    fn held(&self) -> Option<Held> {
        match &self.claim {
            Claim::Live => Some(self.lease),
            Claim::GivenUp { next } => next.as_deref().map(lease_of),
        }
    }
}

/// What an ended run left on disk: of which task, and which attempt of it.
pub(crate) type Record = (TaskId, u32);

fn record_of(lease: Held, ties: Ties) -> Option<Record> {
    (ties == Ties::Loose).then_some((lease.task, lease.attempt))
}

/// What follows from the end of a run.
pub(crate) struct Finished {
    pub(crate) event: Option<Event>,
    pub(crate) next: Option<Box<Start>>,
    /// Nobody will ask for it.
    pub(crate) record: Option<Record>,
}

pub(crate) fn lease_of(start: &Start) -> Held {
    Held { task: start.task, attempt: start.attempt, token: start.token }
}
