//! A worker that touches nothing: it holds what a real one would find, and says of every start and stop at once that it is
//! done. With it the scheduler can be asked what it would do.

use std::path::Path;

use runyard_core::event::{Event, Held, Report, Start};
use runyard_core::ids::{TaskId, Token, WorkerId};
use runyard_exec::Places;
use runyard_exec::process::supervise::rehearse;

use crate::found::Found;
use crate::link::Link;
use crate::table::lease_of;
use crate::watch::report_event;
use crate::worker::{Error, held_of, report_of};

pub struct Rehearsal {
    id: WorkerId,
    link: Box<dyn Link>,
    found: Found,
    held: Vec<Held>,
    ends: Vec<Event>,
}

impl Rehearsal {
    pub fn new(id: WorkerId, data_dir: &Path, link: impl Link) -> Result<Rehearsal, Error> {
        let places = Places::new(data_dir).map_err(Error::Executors)?;
        let mut survey = rehearse(&places)?;
        let found = Found::of(&mut survey);
        let jobs = survey.live.iter().map(|run| &run.job).chain(survey.ended.iter().map(|run| &run.job));
        let held = jobs.map(held_of).collect();
        let mut ends = Vec::new();
        for run in survey.ended {
            let lease = held_of(&run.job);
            let taken = run.taken.into_iter().map(|id| Report::InputTaken { message: TaskId(id) });
            ends.extend(taken.chain(report_of(run.outcome)).map(|report| report_event(id, lease, report)));
        }
        Ok(Rehearsal { id, link: Box::new(link), found, held, ends })
    }

    pub fn id(&self) -> WorkerId {
        self.id
    }

    pub fn found(&self) -> &Found {
        &self.found
    }

    pub fn held(&self) -> Vec<Held> {
        self.held.clone()
    }

    pub fn unacknowledged(&self) -> Vec<Event> {
        self.ends.clone()
    }

    pub fn start(&self, starts: &[Start]) {
        let begun = |start: &Start| report_event(self.id, lease_of(start), Report::Started);
        self.link.report(starts.iter().map(begun).collect());
    }

    pub fn stop(&self, task: TaskId, attempt: u32, token: Token) {
        self.link.report(vec![report_event(self.id, Held { task, attempt, token }, Report::Stopped)]);
    }
}
