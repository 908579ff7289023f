//! What workers do and what is asked of them: they register, come, say how they are, fall silent, are drained and removed.

use std::collections::BTreeSet;

use crate::core::{Core, answer};
use crate::event::{Admit, Answer, Command, HappeningKind, Held, Subject, WorkerSpec};
use crate::fleet::{Registered, Worker};
use crate::flow::Resources;
use crate::gate::GateKey;
use crate::ids::{TaskId, Ticket, WorkerId};
use crate::now::{Now, SteadyMs};
use crate::planted::Bug;
use crate::task::{State, Stop, Task, Text};
use crate::timers::Timer;
use crate::worker::{
    Demand, IdleWorker, Sync, Unmet, Vitals, WorkerAct, WorkerAnswer, WorkerRefusal, WorkerRow, WorkerStatus,
    WorkerView,
};

impl Core {
    pub(crate) fn on_worker(&mut self, now: Now, ticket: Ticket, id: WorkerId, act: WorkerAct, out: &mut Vec<Command>) {
        let result = match act {
            WorkerAct::Register(row) => self.on_register(now, *row),
            WorkerAct::Sync(sync) => self.on_sync(now, id, *sync, out),
            WorkerAct::Drain => self.on_drain(now, id, true),
            WorkerAct::Resume => self.on_drain(now, id, false),
            WorkerAct::Remove => self.on_remove(now, id, out),
        };
        answer(out, ticket, Answer::Worker(result));
    }

    // ── Registering ─────────────────────────────────────────────────────────────────────────────────────────────

    /// A new process speaks for this worker. Until it has said what it holds nothing is placed there, and what its
    /// predecessor held keeps the time it has.
    fn on_register(&mut self, now: Now, row: WorkerRow) -> Result<WorkerAnswer, WorkerRefusal> {
        let id = row.spec.id;
        let WorkerRow { spec, session, about, .. } = row;
        match self.fleet.workers.get_mut(&id) {
            Some(worker) if worker.is_here => return Err(WorkerRefusal::Embedded),
            Some(worker) if worker.registered.is_some() => {
                let at = worker.registered.as_ref().map_or(now.wall_ms, |registered| registered.at);
                worker.registered = Some(Registered { session, at, about, spec });
                self.becomes_absent(now, id, "has registered again and not come yet");
            }
            _ => {
                let limit = self.config.workers_max;
                if self.fleet.n_registered() >= limit {
                    return Err(WorkerRefusal::TooMany { limit });
                }
                // Its leases may be known before it is: the store keeps them apart.
                let known = self.fleet.remove(id);
                let row = WorkerRow { spec, session, draining: false, registered_at: now.wall_ms, about };
                let mut worker = Worker::of_row(row, now.steady_ms);
                if let Some(known) = known {
                    worker.watch_ms = known.watch_ms;
                    worker.inherit(known);
                }
                self.fleet.insert(worker);
                self.watch_absent(now, id);
                self.tell_worker(now, HappeningKind::WorkerRegistered, id, "");
            }
        }
        // Removed and back in one tick: its row is replaced.
        self.tick.workers_removed.retain(|removed| *removed != id);
        self.tick.workers_dirty.insert(id);
        let row = self.fleet.workers[&id].row().expect("it was just registered");
        Ok(WorkerAnswer::Registered(Box::new(row)))
    }

    /// As the store knows it: it has not come yet.
    pub(crate) fn recover_worker(&mut self, now: Now, row: WorkerRow) {
        let id = row.spec.id;
        self.fleet.insert(Worker::of_row(row, now.steady_ms));
        self.watch_absent(now, id);
    }

    // ── Coming and speaking ─────────────────────────────────────────────────────────────────────────────────────

    fn on_sync(
        &mut self,
        now: Now,
        id: WorkerId,
        sync: Sync,
        out: &mut Vec<Command>,
    ) -> Result<WorkerAnswer, WorkerRefusal> {
        let worker = self.fleet.workers.get(&id).ok_or(WorkerRefusal::NotFound)?;
        let registered = worker.registered.as_ref().ok_or(WorkerRefusal::NotFound)?;
        if registered.session != sync.session && !self.has_bug(Bug::FenceIgnored) {
            return Err(WorkerRefusal::Fenced);
        }
        match (worker.joined, sync.joins) {
            (false, false) => return Err(WorkerRefusal::NotJoined),
            (false, true) => {
                let spec = registered.spec.clone();
                self.worker_joins(now, Worker::new(spec, now.steady_ms), &sync.held, out);
            }
            (true, _) => {}
        }
        let mut refused = Vec::new();
        for (held, report) in sync.reports {
            if self.is_live(id, held) {
                self.on_report(now, id, held.task, held.attempt, held.token, report, out);
            } else {
                refused.push((held.task, held.attempt));
            }
        }
        // How many more it wants is said beside what it holds now, not beside what it has just ended.
        if let Some(vitals) = sync.vitals {
            self.on_worker_seen(now, id, vitals);
        }
        if sync.leaves {
            self.becomes_absent(now, id, "said goodbye");
        }
        Ok(WorkerAnswer::Synced { refused })
    }

    /// The worker of this process.
    pub(crate) fn on_worker_joined(&mut self, now: Now, spec: WorkerSpec, held: &[Held], out: &mut Vec<Command>) {
        let is_here = spec.embedded;
        self.worker_joins(now, Worker { is_here, ..Worker::new(spec, now.steady_ms) }, held, out);
    }

    fn worker_joins(&mut self, now: Now, worker: Worker, held: &[Held], out: &mut Vec<Command>) {
        let id = worker.spec.id;
        let mut worker = Worker { joined: true, absence: Text::default(), ..worker };
        if self.has_bug(Bug::ParallelIgnored) {
            worker.spec.parallel_max = None;
        }
        self.free_worker(id);
        if let Some(old) = self.fleet.remove(id) {
            self.unwatch(id, old.watch_ms);
            worker.draining = old.draining;
            worker.registered = old.registered.clone();
            worker.inherit(old);
        }
        worker.seen_at = Some(now.wall_ms);
        let leases: Vec<TaskId> = worker.leases().collect();
        let presented: BTreeSet<(TaskId, u32)> = held.iter().map(|held| (held.task, held.attempt)).collect();
        self.fleet.insert(worker);
        self.watch_worker(id);
        self.tell_worker(now, HappeningKind::WorkerJoined, id, "");
        for presented in held {
            if !self.is_live(id, *presented) {
                out.push(Command::Revoke { worker: id, task: presented.task, attempt: presented.attempt });
            }
        }
        for task in leases {
            let entry = &self.entry(task).task;
            let is_held = presented.contains(&(task, entry.attempt));
            if is_held {
                self.rearm(now, task, out);
            } else {
                self.lost(now, task, "its worker came back without it");
            }
        }
        if self.admit == Admit::Stopping {
            self.stop_with_server(now, id, out);
        }
        self.room_changed();
    }

    /// The server stops, and with it everything that this worker does not keep.
    pub(crate) fn stop_with_server(&mut self, now: Now, id: WorkerId, out: &mut Vec<Command>) {
        let held = self.fleet.workers[&id].leases();
        let ending: Vec<TaskId> = held.filter(|task| !self.is_kept(&self.entry(*task).task)).collect();
        ending.into_iter().for_each(|task| self.ask_stop(now, task, Stop::Shutdown, out));
    }

    /// A lease that survived a restart of the scheduler: its stop is asked for again, or its time goes on.
    fn rearm(&mut self, now: Now, id: TaskId, out: &mut Vec<Command>) {
        let task = &self.entry(id).task;
        let lease = *task.state.lease().expect("a worker's leases are held");
        if let Some(stop) = lease.stop {
            let attempt = task.attempt;
            out.push(Command::Stop { worker: lease.worker, task: id, attempt, token: lease.token, stop });
        } else if self.entry(id).timer.is_none() {
            self.look_for_input(id);
            let task = &self.entry(id).task;
            let term_ms = match task.state {
                State::Running(_) => lease.since_ms.saturating_add(task.policy.timeout_ms),
                _ => now.steady_ms.saturating_add(self.config.assign_timeout_ms),
            };
            self.set_timer(id, term_ms.max(now.steady_ms));
            let Task { policy, state, .. } = &self.entry(id).task;
            // What has not begun has nothing to say yet.
            if let (Some(stall_ms), State::Running(_)) = (policy.stall_ms, state) {
                self.set_silence(id, now.steady_ms.saturating_add(stall_ms));
            }
        }
    }

    pub(crate) fn on_worker_seen(&mut self, now: Now, id: WorkerId, mut vitals: Vitals) {
        if self.has_bug(Bug::FreeMemoryIgnored) {
            vitals.ram_free_mb = None;
        }
        let Some(worker) = self.fleet.workers.get_mut(&id).filter(|worker| worker.joined) else { return };
        worker.seen_ms = now.steady_ms;
        worker.seen_at = Some(now.wall_ms);
        let says_nothing = vitals == Vitals::default() && worker.vitals == vitals;
        if !says_nothing {
            worker.hear(vitals);
            self.fleet.seat(id);
            self.room_changed();
        }
        let old = self.fleet.workers[&id].watch_ms;
        self.unwatch(id, old);
        self.watch_worker(id);
    }

    // ── Silence ─────────────────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn watch_worker(&mut self, id: WorkerId) {
        let worker = self.fleet.workers.get(&id).expect("only a known worker is watched");
        let at_ms = worker.seen_ms.saturating_add(self.config.worker_offline_ms);
        self.watch_until(id, at_ms);
    }

    /// One that is not there is watched as long as it has leases, and then until it is forgotten.
    fn watch_absent(&mut self, now: Now, id: WorkerId) {
        let worker = &self.fleet.workers[&id];
        match worker.held.is_empty() {
            true => {
                let forget_ms = worker.absent_since_ms.saturating_add(self.config.worker_forget_ms);
                self.watch_until(id, forget_ms.max(now.steady_ms));
            }
            false if worker.watch_ms.is_none() => self.watch_worker(id),
            false => {}
        }
    }

    /// How long silence may last has changed, also of that which lasts already.
    pub(crate) fn rewatch_workers(&mut self, now: Now) {
        let ids: Vec<WorkerId> = self.fleet.workers.keys().copied().collect();
        for id in ids {
            let worker = &self.fleet.workers[&id];
            match worker.joined || !worker.held.is_empty() {
                true => self.watch_worker(id),
                false => self.watch_absent(now, id),
            }
        }
    }

    fn watch_until(&mut self, id: WorkerId, at_ms: SteadyMs) {
        let old = self.fleet.workers.get_mut(&id).and_then(|worker| worker.watch_ms.replace(at_ms));
        self.unwatch(id, old);
        self.timers.insert(at_ms, Timer::Worker(id));
    }

    fn unwatch(&mut self, id: WorkerId, at_ms: Option<SteadyMs>) {
        if let Some(at_ms) = at_ms {
            self.timers.remove(at_ms, Timer::Worker(id));
        }
    }

    /// Its time is over: what it held is lost, or, when it held nothing and is not there, it is forgotten.
    pub(crate) fn worker_overdue(&mut self, now: Now, id: WorkerId, out: &mut Vec<Command>) {
        let worker = self.fleet.workers.get_mut(&id).expect("only a known worker is watched");
        worker.watch_ms = None;
        let absent_ms = now.steady_ms.saturating_sub(worker.absent_since_ms);
        if worker.joined || !worker.held.is_empty() || worker.registered.is_none() {
            self.on_worker_gone(now, id, "its worker fell silent", out);
        } else if absent_ms >= self.config.worker_forget_ms {
            self.forget_worker(now, id, "has been away for too long");
        } else {
            // It was watched for its leases, and they ended without it.
            self.watch_absent(now, id);
        }
    }

    /// Its leases are lost: requeued or ended, each by its own ledger. One that registered stays known.
    pub(crate) fn on_worker_gone(&mut self, now: Now, id: WorkerId, reason: &str, out: &mut Vec<Command>) {
        if !self.fleet.workers.contains_key(&id) {
            return;
        }
        let n_lost = self.lose_leases(now, id, reason, out);
        let told = match n_lost {
            0 => reason.to_owned(),
            n => format!("{reason}; {n} of its tasks were taken back"),
        };
        self.tell_worker(now, HappeningKind::WorkerLost, id, told);
        self.becomes_absent(now, id, reason);
        if self.fleet.workers[&id].registered.is_some() {
            self.watch_absent(now, id);
        } else {
            let worker = self.fleet.remove(id);
            self.unwatch(id, worker.and_then(|worker| worker.watch_ms));
        }
    }

    fn lose_leases(&mut self, now: Now, id: WorkerId, reason: &str, out: &mut Vec<Command>) -> usize {
        let leases: Vec<TaskId> = self.fleet.workers[&id].leases().collect();
        for &task in &leases {
            let attempt = self.entry(task).task.attempt;
            out.push(Command::Revoke { worker: id, task, attempt });
            self.lost(now, task, reason);
        }
        leases.len()
    }

    /// It gets nothing until it presents itself again.
    fn becomes_absent(&mut self, now: Now, id: WorkerId, reason: &str) {
        let worker = self.fleet.workers.get_mut(&id).expect("only a known worker leaves");
        if !worker.joined {
            return;
        }
        worker.joined = false;
        worker.absence = reason.to_owned().into();
        worker.absent_since_ms = now.steady_ms;
        self.free_worker(id);
        self.fleet.seat(id);
        self.room_changed();
    }

    // ── Draining, removing, cooling ─────────────────────────────────────────────────────────────────────────────

    fn on_drain(&mut self, now: Now, id: WorkerId, drains: bool) -> Result<WorkerAnswer, WorkerRefusal> {
        let worker = self.fleet.workers.get_mut(&id).ok_or(WorkerRefusal::NotFound)?;
        let is_new = std::mem::replace(&mut worker.draining, drains) != drains;
        if self.has_bug(Bug::DrainForgotten) {
            self.fleet.workers.get_mut(&id).expect("it was just found").draining = false;
        }
        let worker = &self.fleet.workers[&id];
        if is_new {
            let kind = if drains { HappeningKind::WorkerDraining } else { HappeningKind::WorkerResumed };
            if worker.registered.is_some() {
                self.tick.workers_dirty.insert(id);
            }
            self.free_worker(id);
            self.fleet.seat(id);
            self.tell_worker(now, kind, id, "");
            self.room_changed();
        }
        Ok(WorkerAnswer::Done(Box::new(self.worker_view(now, &self.fleet.workers[&id]))))
    }

    fn on_remove(&mut self, now: Now, id: WorkerId, out: &mut Vec<Command>) -> Result<WorkerAnswer, WorkerRefusal> {
        let worker = self.fleet.workers.get(&id).ok_or(WorkerRefusal::NotFound)?;
        if worker.is_here {
            return Err(WorkerRefusal::Embedded);
        }
        self.lose_leases(now, id, "its worker was removed", out);
        let mut view = self.worker_view(now, &self.fleet.workers[&id]);
        (view.status, view.reason) = (WorkerStatus::Offline, "removed".into());
        self.forget_worker(now, id, "removed");
        Ok(WorkerAnswer::Done(Box::new(view)))
    }

    fn forget_worker(&mut self, now: Now, id: WorkerId, reason: &str) {
        self.tell_worker(now, HappeningKind::WorkerRemoved, id, reason.to_owned());
        self.free_worker(id);
        let worker = self.fleet.remove(id).expect("only a known worker is forgotten");
        self.unwatch(id, worker.watch_ms);
        self.tick.workers_dirty.remove(&id);
        self.tick.workers_removed.push(id);
        self.room_changed();
    }

    pub(crate) fn cool(&mut self, now: Now, id: WorkerId) {
        let until_ms = now.steady_ms.saturating_add(self.config.worker_cooldown_ms);
        let Some(worker) = self.fleet.workers.get_mut(&id).filter(|worker| !worker.spec.embedded) else { return };
        worker.cooling_until_ms = until_ms;
        self.fleet.seat(id);
        self.timers.insert(until_ms, Timer::Cooled(id));
        let reason = format!("cooling down for {} ms after a fault", self.config.worker_cooldown_ms);
        self.tell_worker(now, HappeningKind::WorkerCooled, id, reason);
        self.room_changed();
    }

    pub(crate) fn cooled(&mut self, now: Now, id: WorkerId) {
        let is_over = |worker: &&mut Worker| worker.cooling_until_ms > 0 && worker.cooling_until_ms <= now.steady_ms;
        if let Some(worker) = self.fleet.workers.get_mut(&id).filter(is_over) {
            worker.cooling_until_ms = 0;
            self.fleet.seat(id);
            self.room_changed();
        }
    }

    /// Whoever waited for room here has waited long enough to have another worker kept for it, at once.
    fn free_worker(&mut self, id: WorkerId) {
        if let Some(flow) = self.fleet.free(id) {
            self.timers.insert(self.meta.now.steady_ms, Timer::Reserve(flow));
        }
    }

    fn tell_worker(&mut self, now: Now, kind: HappeningKind, id: WorkerId, reason: impl Into<Text>) {
        let name = self.fleet.workers[&id].spec.name.clone();
        self.happen(now, kind, Subject::Worker { worker: id, name, reason: reason.into() });
    }

    // ── For whoever looks ───────────────────────────────────────────────────────────────────────────────────────

    pub fn worker_views(&self, now: Now, only: Option<WorkerId>) -> Vec<WorkerView> {
        let wanted = self.fleet.workers.values().filter(|worker| only.is_none_or(|id| worker.spec.id == id));
        wanted.map(|worker| self.worker_view(now, worker)).collect()
    }

    fn worker_view(&self, now: Now, worker: &Worker) -> WorkerView {
        let (status, reason) = self.status_of(now, worker);
        let capacity = &worker.spec.capacity;
        let named = |(name, n): &(_, u32)| {
            let used = worker.reserved.named.iter().find(|(other, _)| other == name).map_or(0, |(_, used)| *used);
            (crate::name::Name::clone(name), n.saturating_sub(used))
        };
        let free = Resources {
            cpu_milli: capacity.cpu_milli.saturating_sub(worker.reserved.cpu_milli),
            ram_mb: worker.ram_free_mb(),
            named: capacity.named.iter().map(named).collect(),
        };
        let cooling_ms = worker.cooling_until_ms.saturating_sub(now.steady_ms);
        // What the one here registered with was for the holder before.
        let registered = worker.registered.as_ref().filter(|_| !worker.is_here);
        WorkerView {
            spec: registered.map_or(&worker.spec, |registered| &registered.spec).clone(),
            status,
            reason,
            draining: worker.draining,
            reserved: worker.reserved.clone(),
            free,
            held: worker.leases().collect(),
            vitals: worker.vitals.clone(),
            seen_at: worker.seen_at,
            cooling_until: (cooling_ms > 0).then(|| now.wall_ms.saturating_add(cooling_ms)),
            is_kept: worker.kept_for.is_some(),
            registered_at: worker.registered.as_ref().map(|registered| registered.at),
            about: worker.registered.as_ref().map(|registered| registered.about.clone()).unwrap_or_default(),
        }
    }

    fn status_of(&self, now: Now, worker: &Worker) -> (WorkerStatus, Text) {
        if !worker.joined {
            (WorkerStatus::Offline, worker.absence.clone())
        } else if let Some(trouble) = &worker.vitals.trouble {
            (WorkerStatus::Unhealthy, trouble.clone())
        } else if worker.cooling_until_ms > now.steady_ms {
            (WorkerStatus::Unhealthy, "cooling down after a fault".into())
        } else if worker.draining {
            (WorkerStatus::Draining, format!("{} still running", worker.held.len()).into())
        } else if worker.held.is_empty() {
            (WorkerStatus::Idle, Text::default())
        } else {
            (WorkerStatus::Busy, Text::default())
        }
    }

    /// Shapes that somebody waits for and no worker has room for, and workers that have nothing to do.
    pub fn demand(&self, now: Now) -> Demand {
        let waiting = self.gates.iter().filter(|(_, gate)| !gate.line.is_empty() && !gate.has_room);
        let unmet = waiting.filter_map(|(ix, gate)| {
            let GateKey::Worker(shape) = &gate.key else { return None };
            let flows = gate.line.flows().map(|flow| &self.flows[flow]);
            let (mut n_queued, mut since_ms) = (0, now.steady_ms);
            for flow in flows {
                debug_assert!(flow.gates.contains(&ix), "who stands in a line passes its gate");
                n_queued += flow.n_queued;
                since_ms = since_ms.min(flow.worker_since.unwrap_or(now.steady_ms));
            }
            let fits_some = self.fleet.workers.values().any(|worker| worker.unfit_ever(shape).is_none());
            let waited_ms = now.steady_ms.saturating_sub(since_ms);
            Some(Unmet { shape: (**shape).clone(), n_queued, waited_ms, fits_some })
        });
        let here = || self.fleet.workers.values().filter(|worker| worker.joined && !worker.spec.embedded);
        let idle = here().filter(|worker| worker.held.is_empty()).map(|worker| IdleWorker {
            id: worker.spec.id,
            name: worker.spec.name.clone(),
            idle_ms: now.steady_ms.saturating_sub(worker.idle_since_ms),
        });
        Demand { unmet: unmet.collect(), idle: idle.collect(), n_workers: here().count() as u32 }
    }

    pub(crate) fn flush_workers(&mut self, writes: &mut crate::write::WriteSet) {
        if self.has_bug(Bug::RegistrationNotKept) {
            self.tick.workers_dirty.clear();
        }
        for id in std::mem::take(&mut self.tick.workers_dirty) {
            writes.workers_put.extend(self.fleet.workers.get(&id).and_then(Worker::row));
        }
        writes.workers_removed = std::mem::take(&mut self.tick.workers_removed);
    }

    fn is_live(&self, worker: WorkerId, held: Held) -> bool {
        self.live_lease(worker, held.task, held.attempt, held.token).is_some()
    }
}
