//! What users do to schedules, and what can be seen of them.

use runyard_core::event::{Answer, Event, NewMember};
use runyard_core::ids::ScheduleId;
use runyard_core::schedule::{
    CatchUp, NewSchedule, Overlap, Rules, Run, Schedule, ScheduleAct, ScheduleAnswer, ScheduleBody, ScheduleRefusal,
    Standing, Template, Timing,
};
use runyard_core::session::Settings;
use runyard_core::write::{ScheduleRow, WriteSet};
use runyard_store::memory::FailCommit;
use runyard_store::store::{Reader, Store};

use super::new::task;
use super::{Bed, New, blob};

/// Tasks of agent `a` in a session of its own, with every default.
pub fn schedule(timing: Timing) -> NewSchedule {
    let rules = Rules {
        timing,
        overlap: Overlap::Skip,
        catch_up: CatchUp::Skip,
        stagger_ms: 0,
        jitter_ms: 0,
        from: None,
        until: None,
        runs_max: None,
        delete_after_run: false,
        alert_after: None,
        pause_after: None,
    };
    let New(made) = task("a").max_retries(0);
    let session = NewMember { key: "cron".into(), settings: Settings::default(), as_mode: None, sent_at: None };
    let template =
        Template { flow: made.flow, rank: 0, policy: made.policy, session: Some(session), spec: blob("a task") };
    let body = ScheduleBody { template, spec: blob("a schedule") };
    NewSchedule { name: "nightly".into(), rules, standing: Standing::Enabled, body }
}

/// Anchored at the beginning of all time.
pub fn every(every_ms: u64) -> NewSchedule {
    schedule(Timing::Every { every_ms, anchor: 0 })
}

impl Bed {
    pub fn act_on(&mut self, id: ScheduleId, act: ScheduleAct) -> Result<ScheduleAnswer, ScheduleRefusal> {
        let event = self.schedule_event(id, act);
        let Event::Schedule { ticket, .. } = event else { unreachable!("it was just made") };
        self.send([event]);
        match self.answer(ticket) {
            Answer::Schedule(answer) => answer,
            other => panic!("a request to a schedule is answered as one, not {other:?}"),
        }
    }

    pub fn schedule_event(&mut self, id: ScheduleId, act: ScheduleAct) -> Event {
        Event::Schedule { ticket: self.ticket(), id, act }
    }

    pub fn create(&mut self, id: ScheduleId, new: NewSchedule) -> Schedule {
        self.row_of(id, ScheduleAct::Create(Box::new(new)))
    }

    pub fn edit(&mut self, id: ScheduleId, new: NewSchedule) -> Schedule {
        self.row_of(id, ScheduleAct::Edit(Box::new(new)))
    }

    fn row_of(&mut self, id: ScheduleId, act: ScheduleAct) -> Schedule {
        match self.act_on(id, act) {
            Ok(ScheduleAnswer::Row(row)) => {
                assert_eq!(self.find_schedule(id).as_ref(), Some(&*row), "what is answered is what is stored");
                *row
            }
            other => panic!("it is answered with its row, not {other:?}"),
        }
    }

    /// Puts a row into the store as it is, past the core.
    pub fn put_schedule(&mut self, schedule: Schedule) {
        // It takes the store over, as a restart does.
        let meta = self.store.load(1).expect("memory loads").meta;
        let row = ScheduleRow { schedule, body: None };
        let writes = WriteSet { meta, schedules_put: vec![row], ..WriteSet::default() };
        self.store.commit(&writes).expect("memory commits");
    }

    pub fn run_now(&mut self, id: ScheduleId) -> Run {
        match self.act_on(id, ScheduleAct::Run) {
            Ok(ScheduleAnswer::Ran(run)) => *run,
            other => panic!("it is answered with its run, not {other:?}"),
        }
    }

    pub fn find_schedule(&self, id: ScheduleId) -> Option<Schedule> {
        self.store.schedule(id).expect("memory reads").map(|(schedule, _)| schedule)
    }

    pub fn schedule(&self, id: ScheduleId) -> Schedule {
        self.find_schedule(id).expect("the schedule is stored")
    }

    /// Earliest first.
    pub fn runs(&self, id: ScheduleId) -> Vec<Run> {
        let mut runs = self.store.runs(id, None, 1_000_000).expect("memory reads");
        runs.reverse();
        runs
    }

    pub fn last_run(&self, id: ScheduleId) -> Run {
        self.runs(id).pop().expect("it has a run")
    }

    /// So much time passes, the commit of the next tick fails, and the yard recovers.
    pub fn fail_commit_after_ms(&mut self, fail: FailCommit, ms: u64) {
        self.now.wall_ms += ms;
        self.now.steady_ms += ms;
        self.store.fail_next_commit(fail);
        let ticked = self.yard.tick(self.now, &mut Vec::new());
        assert!(ticked.is_err(), "a tick whose commit failed lets nothing out");
        self.yard.recover(self.now).expect("the store is still there");
        self.restart();
    }
}
