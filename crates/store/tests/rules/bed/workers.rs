//! Workers on other machines: a test speaks for each of them, and looks at them as an operator does.

use runyard_core::event::{Answer, Event, Held, Report, WorkerSpec};
use runyard_core::flow::Resources;
use runyard_core::ids::{TaskId, WorkerId};
use runyard_core::worker::{
    Demand, Sync, Vitals, WorkerAct, WorkerAnswer, WorkerRefusal, WorkerRow, WorkerStatus, WorkerView,
};

use super::new::worker;
use super::{Bed, FIRST, blob};

/// A worker of this size that is not the server's own.
pub fn remote(id: WorkerId, cpu_milli: u32, ram_mb: u32) -> WorkerSpec {
    WorkerSpec { capacity: Resources { cpu_milli, ram_mb, named: Vec::new() }, embedded: false, ..worker(id) }
}

/// What a machine says of itself: its CPU usage in percent, its free memory.
pub fn vitals(cpu_percent: u32, ram_free_mb: u32) -> Vitals {
    Vitals { cpu_usage_milli: Some(cpu_percent * 1000), ram_free_mb: Some(ram_free_mb), ..Vitals::default() }
}

pub fn labelled(key: &str, value: &str, spec: WorkerSpec) -> WorkerSpec {
    let mut labels = spec.labels.clone();
    labels.push((key.into(), value.into()));
    WorkerSpec { labels, ..spec }
}

// ── What they do ────────────────────────────────────────────────────────────────────────────────────────────────────

impl Bed {
    /// Only these workers, registered and there; the server has none of its own.
    pub fn remotes(workers: impl IntoIterator<Item = WorkerSpec>) -> Bed {
        let mut bed = Bed::new();
        bed.worker_gone(FIRST);
        workers.into_iter().for_each(|worker| bed.come(worker));
        bed
    }

    /// Registers and presents itself, holding nothing.
    pub fn come(&mut self, worker: WorkerSpec) {
        let id = worker.id;
        self.register(worker);
        self.present(id, &[]);
    }

    /// Gives the session in which this process is heard.
    pub fn register(&mut self, worker: WorkerSpec) -> u64 {
        self.try_register(worker).expect("there is room for the worker").session
    }

    pub fn try_register(&mut self, spec: WorkerSpec) -> Result<Box<WorkerRow>, WorkerRefusal> {
        let (id, session) = (spec.id, self.ticket().0);
        let row = WorkerRow {
            spec: spec.clone(),
            session,
            // Both are the core's to say.
            draining: true,
            registered_at: 0,
            about: blob("from the edge"),
        };
        match self.act_on_worker(id, WorkerAct::Register(Box::new(row)))? {
            WorkerAnswer::Registered(row) => {
                self.workers.insert(id, spec);
                self.sessions.insert(id, session);
                Ok(row)
            }
            other => panic!("a register is answered as one, not {other:?}"),
        }
    }

    /// Presents itself with the leases of these tasks.
    pub fn present(&mut self, id: WorkerId, held: &[TaskId]) {
        let held = held.iter().map(|&task| self.lease_of(task)).collect();
        let sync = Sync { joins: true, held, ..self.sync_of(id) };
        self.sync(id, sync).expect("who registered may present itself");
    }

    /// Everything it could say, and nothing said: in the session of its latest process.
    pub fn sync_of(&self, id: WorkerId) -> Sync {
        let session = self.sessions.get(&id).copied().unwrap_or(0);
        let vitals = Some(Vitals::default());
        Sync { session, joins: false, leaves: false, held: Vec::new(), vitals, reports: Vec::new() }
    }

    /// Gives the reports that were refused.
    pub fn sync(&mut self, id: WorkerId, sync: Sync) -> Result<Vec<(TaskId, u32)>, WorkerRefusal> {
        match self.act_on_worker(id, WorkerAct::Sync(Box::new(sync)))? {
            WorkerAnswer::Synced { refused } => Ok(refused),
            other => panic!("a sync is answered as one, not {other:?}"),
        }
    }

    pub fn says(&mut self, id: WorkerId, vitals: Vitals) {
        let sync = Sync { vitals: Some(vitals), ..self.sync_of(id) };
        self.sync(id, sync).expect("it is there");
    }

    /// The same twice: the first sample of a fresh process counts for little.
    pub fn says_again(&mut self, id: WorkerId, vitals: Vitals) {
        self.says(id, vitals.clone());
        self.says(id, vitals);
    }

    pub fn reports(&mut self, id: WorkerId, held: Held, report: Report) -> Vec<(TaskId, u32)> {
        let sync = Sync { reports: vec![(held, report)], ..self.sync_of(id) };
        self.sync(id, sync).expect("it is there")
    }

    pub fn leaves(&mut self, id: WorkerId) {
        let sync = Sync { leaves: true, ..self.sync_of(id) };
        self.sync(id, sync).expect("it is there");
    }

    /// The latest lease of this task, as its worker would present it.
    pub fn lease_of(&self, task: TaskId) -> Held {
        let start = self.start_of(task);
        Held { task, attempt: start.attempt, token: start.token }
    }

    pub(super) fn join_event(&mut self, worker: WorkerSpec, held: Vec<Held>) -> Event {
        if !self.sessions.contains_key(&worker.id) {
            return Event::WorkerJoined { worker, held };
        }
        let sync = Sync { joins: true, held, ..self.sync_of(worker.id) };
        Event::Worker { ticket: self.ticket(), worker: worker.id, act: WorkerAct::Sync(Box::new(sync)) }
    }

    // ── What operators do, and see ──────────────────────────────────────────────────────────────────────────────────

    pub fn act_on_worker(&mut self, worker: WorkerId, act: WorkerAct) -> Result<WorkerAnswer, WorkerRefusal> {
        let ticket = self.ticket();
        self.send([Event::Worker { ticket, worker, act }]);
        match self.answer(ticket) {
            Answer::Worker(answer) => answer,
            other => panic!("a request to a worker is answered as one, not {other:?}"),
        }
    }

    pub fn drain(&mut self, worker: WorkerId) -> WorkerView {
        self.act_done(worker, WorkerAct::Drain)
    }

    pub fn resume(&mut self, worker: WorkerId) -> WorkerView {
        self.act_done(worker, WorkerAct::Resume)
    }

    pub fn remove_worker(&mut self, worker: WorkerId) -> WorkerView {
        self.workers.remove(&worker);
        self.act_done(worker, WorkerAct::Remove)
    }

    fn act_done(&mut self, worker: WorkerId, act: WorkerAct) -> WorkerView {
        match self.act_on_worker(worker, act) {
            Ok(WorkerAnswer::Done(view)) => *view,
            other => panic!("it is done, not {other:?}"),
        }
    }

    pub fn worker_views(&mut self, only: Option<WorkerId>) -> Vec<WorkerView> {
        let ticket = self.ticket();
        self.send([Event::Workers { ticket, only }]);
        match self.answer(ticket) {
            Answer::Workers(views) => views,
            other => panic!("who asks for workers gets them, not {other:?}"),
        }
    }

    pub fn find_worker(&mut self, worker: WorkerId) -> Option<WorkerView> {
        self.worker_views(Some(worker)).pop()
    }

    pub fn view(&mut self, worker: WorkerId) -> WorkerView {
        self.find_worker(worker).expect("the worker is known")
    }

    /// With its reason.
    pub fn status(&mut self, worker: WorkerId) -> (WorkerStatus, String) {
        let view = self.view(worker);
        (view.status, view.reason.to_string())
    }

    pub fn demand(&mut self) -> Demand {
        let ticket = self.ticket();
        self.send([Event::Demand { ticket }]);
        match self.answer(ticket) {
            Answer::Demand(demand) => *demand,
            other => panic!("demand is answered with it, not {other:?}"),
        }
    }

    /// Where the latest attempt of each of these went.
    pub fn places(&self, ids: &[TaskId]) -> Vec<WorkerId> {
        ids.iter().map(|&id| self.start_of(id).worker).collect()
    }
}
