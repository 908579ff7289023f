//! Workers on other machines as they should be: who is registered, with which session, who is there, what each says of its
//! machine, and where a task goes.

use std::collections::BTreeMap;

use runyard_core::event::{Answer, Report};
use runyard_core::flow::{FlowKey, Shape};
use runyard_core::ids::{TaskId, Ticket, WorkerId};
use runyard_core::sanity::{Keep, KeptAt};
use runyard_core::task::{State, Task};
use runyard_core::worker::{Sync, Vitals, WorkerAct, WorkerAnswer, WorkerRefusal, WorkerRow};

use crate::arithmetic::{Load, Usage, minus};
use crate::foresee::{End, Forecast};
use crate::oracle::{Applied, Oracle, WorkerShadow};

/// How a call of a worker, or one about it, is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    Done,
    Synced(Vec<(TaskId, u32)>),
    Refused(WorkerRefusal),
}

impl Oracle {
    pub(crate) fn foresee_worker(&mut self, ticket: Ticket, id: WorkerId, act: &WorkerAct, forecast: &mut Forecast) {
        let reply = match act {
            WorkerAct::Register(row) => self.foresee_register(row),
            WorkerAct::Sync(sync) => self.foresee_sync(id, sync, forecast),
            WorkerAct::Drain | WorkerAct::Resume => self.foresee_drain(id, matches!(act, WorkerAct::Drain)),
            WorkerAct::Remove => self.foresee_remove(id, forecast),
        };
        forecast.replies.insert(ticket, reply);
    }

    fn foresee_register(&mut self, row: &WorkerRow) -> Reply {
        let id = row.spec.id;
        let limit = self.config.workers_max;
        let (registered_at, draining) = match self.registered.get(&id) {
            Some(known) => {
                if let Some(worker) = self.workers.get_mut(&id) {
                    worker.joined = false;
                }
                (known.registered_at, known.draining)
            }
            None if self.registered.len() as u32 >= limit => return Reply::Refused(WorkerRefusal::TooMany { limit }),
            None => (self.now.wall_ms, false),
        };
        self.registered.insert(id, WorkerRow { registered_at, draining, ..row.clone() });
        Reply::Done
    }

    fn foresee_sync(&mut self, id: WorkerId, sync: &Sync, forecast: &mut Forecast) -> Reply {
        let Some(row) = self.registered.get(&id) else { return Reply::Refused(WorkerRefusal::NotFound) };
        if row.session != sync.session {
            return Reply::Refused(WorkerRefusal::Fenced);
        }
        let spec = row.spec.clone();
        let is_here = self.workers.get(&id).is_some_and(|worker| worker.joined);
        if !is_here && !sync.joins {
            return Reply::Refused(WorkerRefusal::NotJoined);
        }
        if !is_here {
            self.foresee_joined(&spec, &sync.held, forecast);
        }
        let mut refused = Vec::new();
        for (held, report) in &sync.reports {
            match self.is_live(id, held.task, held.attempt, held.token, forecast) {
                true => self.foresee_report(id, held.task, report, forecast),
                false => refused.push((held.task, held.attempt)),
            }
        }
        let n_held = self.leases_of(id, forecast).len() as u32;
        if let Some(vitals) = &sync.vitals {
            self.hear_vitals(id, vitals, n_held);
        }
        if sync.leaves {
            self.workers.get_mut(&id).expect("it was just heard").joined = false;
        }
        Reply::Synced(refused)
    }

    fn hear_vitals(&mut self, id: WorkerId, vitals: &Vitals, n_held: u32) {
        self.n_samples += 1;
        let mark = self.n_samples;
        let worker = self.workers.get_mut(&id).expect("only one that is there is heard");
        worker.seen_ms = self.now.steady_ms;
        worker.heads_max = vitals.want.map(|want| n_held + want);
        worker.trouble = vitals.trouble.is_some();
        if vitals.cpu_usage_milli.is_some() || vitals.ram_free_mb.is_some() {
            worker.n_samples += 1;
            worker.sample = mark;
            worker.cpu_usage_milli = vitals.cpu_usage_milli;
            worker.ram_free_mb = vitals.ram_free_mb;
        }
    }

    fn foresee_drain(&mut self, id: WorkerId, drains: bool) -> Reply {
        match (self.registered.get_mut(&id), self.workers.contains_key(&id)) {
            (Some(row), _) => {
                row.draining = drains;
                Reply::Done
            }
            // Known from a lease only, after it was removed and before that lease is lost.
            (None, true) => Reply::Done,
            (None, false) => Reply::Refused(WorkerRefusal::NotFound),
        }
    }

    fn foresee_remove(&mut self, id: WorkerId, forecast: &mut Forecast) -> Reply {
        let is_known = self.registered.remove(&id).is_some() | self.workers.contains_key(&id);
        if !is_known {
            return Reply::Refused(WorkerRefusal::NotFound);
        }
        for (task, _) in self.leases_of(id, forecast) {
            self.end(task, End::Gone, forecast);
        }
        self.workers.remove(&id);
        self.cooling.remove(&id);
        Reply::Done
    }

    pub(crate) fn check_reply(&self, ticket: Ticket, answer: &Answer, forecast: &Forecast) {
        let (Some(expected), Answer::Worker(told)) = (forecast.replies.get(&ticket), answer) else { return };
        let told = match told {
            Ok(WorkerAnswer::Synced { refused }) => Reply::Synced(refused.clone()),
            Ok(WorkerAnswer::Registered(_) | WorkerAnswer::Done(_)) => Reply::Done,
            Err(refusal) => Reply::Refused(*refusal),
        };
        assert_eq!(told, *expected, "the answer to a worker's call");
    }

    /// What is stored of workers is what was answered.
    pub(crate) fn check_registered(&self) {
        assert_eq!(self.registered, self.registered_stored, "registered workers are stored");
    }

    // ── Where a task goes ───────────────────────────────────────────────────────────────────────────────────────

    /// Memory that the worker's last measurement did not know of yet.
    fn claimed_mb(&self, id: WorkerId, worker: &WorkerShadow) -> u32 {
        let mut claimed = 0;
        for task in self.held.keys() {
            let row = &self.rows[task];
            let is_here = row.state.lease().is_some_and(|lease| lease.worker == id);
            if is_here && self.claims.get(task) == Some(&(id, worker.sample)) {
                claimed += self.key_of(row).shape.resources.ram_mb;
            }
        }
        claimed
    }

    /// What the machine says against it. `later_mb`: memory claimed there by tasks that were placed afterwards.
    pub(crate) fn unwell(&self, id: WorkerId, shape: &Shape, load: &Load, later_mb: u32) -> Option<&'static str> {
        let worker = &self.workers[&id];
        let need = &shape.resources;
        if self.registered.get(&id).is_some_and(|row| row.draining) {
            return Some("is draining");
        }
        if worker.trouble {
            return Some("says that it is unwell");
        }
        if worker.heads_max.is_some_and(|max| load.n_held >= max) {
            return Some("wants no more");
        }
        if need.cpu_milli == 0 && need.ram_mb == 0 {
            return None;
        }
        let claimed_mb = self.claimed_mb(id, worker).saturating_sub(later_mb);
        if worker.ram_free_mb.is_some_and(|free| free.saturating_sub(claimed_mb) < need.ram_mb) {
            return Some("has too little memory");
        }
        (self.cpu_usage_milli(worker) > self.config.placement.cpu_usage_milli_max).then_some("is too busy")
    }

    fn cpu_usage_milli(&self, worker: &WorkerShadow) -> u32 {
        worker.cpu_usage_milli.filter(|_| worker.n_samples > 1).unwrap_or(0)
    }

    pub(crate) fn note_claims(&mut self, started: &[TaskId]) {
        for id in started {
            let worker = self.rows[id].state.lease().expect("a started task has a lease").worker;
            let sample = self.workers.get(&worker).map_or(0, |worker| worker.sample);
            self.claims.insert(*id, (worker, sample));
        }
    }

    /// Each start of a tick went to the best worker that had room at its turn. The last is looked at first, and then taken
    /// away, so that the one before it sees the room that there was.
    pub(crate) fn check_places(&self, applied: &Applied, keeps_before: &[Keep], keeps: &[Keep]) {
        let mut usage = self.usage();
        let mut later_mb: BTreeMap<WorkerId, u32> = BTreeMap::new();
        // One that has waited so long may have had a worker kept for it and used it, all in this tick.
        let is_old = |row: &Task| match row.state {
            State::Queued { since_ms } => since_ms + RESERVE_AFTER_MS <= self.now.steady_ms,
            _ => false,
        };
        let before = applied.changed.iter().filter(|(id, _)| applied.started.contains(id));
        let has_old = before.filter_map(|(_, row)| row.as_ref()).any(is_old);
        for id in applied.started.iter().rev() {
            let task = &self.rows[id];
            let key = self.key_of(task).clone();
            let chosen = task.state.lease().expect("a started task has a lease").worker;
            let need = key.shape.resources.clone();
            let load = usage.workers.get_mut(&chosen).expect("who was started is counted");
            *load = Load { n_held: load.n_held - 1, reserved: minus(&load.reserved, &need) };
            *later_mb.entry(chosen).or_default() += need.ram_mb;
            // Who is kept for whom changes within a tick; such ticks are left to the other checks.
            if has_old || keeps_before.iter().chain(keeps).any(|keep| matches!(keep.at, KeptAt::Worker(_))) {
                continue;
            }
            self.check_choice(*id, &key, chosen, &usage, &later_mb);
        }
    }

    fn check_choice(
        &self,
        id: TaskId,
        key: &FlowKey,
        chosen: WorkerId,
        usage: &Usage,
        later_mb: &BTreeMap<WorkerId, u32>,
    ) {
        let failed_on = &self.rows[&id].failed_on;
        let nothing = Load::default();
        let load = |id: &WorkerId| usage.workers.get(id).unwrap_or(&nothing);
        let fits = |other: &WorkerId| {
            let later_mb = later_mb.get(other).copied().unwrap_or(0);
            self.unfit_with(*other, &key.shape, load(other), later_mb).is_none()
        };
        let rank = |other: &WorkerId| {
            let worker = &self.workers[other];
            let capacity = &worker.spec.capacity;
            let percent = |used: u32, total: u32| f64::from(used) * 100.0 / f64::from(total.max(1));
            let load = load(other);
            let labels = |wanted: &[(_, _)]| wanted.iter().filter(|label| worker.spec.labels.contains(label)).count();
            let points = labels(&key.shape.place.avoid) as f64 - labels(&key.shape.place.prefer) as f64;
            let score = 0.6 * f64::from(self.cpu_usage_milli(worker)) / 1000.0
                + 0.3 * percent(load.reserved.cpu_milli, capacity.cpu_milli)
                + 0.1 * percent(load.reserved.ram_mb, capacity.ram_mb)
                + 20.0 * points;
            let free = f64::from(capacity.cpu_milli.saturating_sub(load.reserved.cpu_milli));
            (failed_on.contains(other), score, -free)
        };
        let mine = rank(&chosen);
        for other in self.workers.keys().filter(|other| **other != chosen && fits(other)) {
            let theirs = rank(other);
            let is_better = (theirs.0 as u8, mine.1 - theirs.1 > 1e-4) == (mine.0 as u8, true) || (mine.0 && !theirs.0);
            assert!(!is_better, "{id:?} went to {chosen:?} ({mine:?}) and not to {other:?} ({theirs:?})");
        }
    }

    pub(crate) fn is_sign(report: &Report) -> bool {
        matches!(report, Report::Started | Report::Alive)
    }
}

/// After this long without room a task has a worker kept for it.
const RESERVE_AFTER_MS: u64 = 30_000;
