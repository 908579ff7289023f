//! The two ends of memory: what a core starts from, and what a tick leaves in the store. Crash-only: a start, a lost
//! leadership and a failed commit all come through here.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::Config;
use crate::core::{BatchEntry, Core, Entry, SessionEntry, Stored, Tick};
use crate::event::Admit;
use crate::fleet::Worker;
use crate::gate::GateKey;
use crate::now::Now;
use crate::slab::{FlowIx, Ix};
use crate::task::Task;
use crate::window::DueWindow;
use crate::write::{CountDelta, CountKey, Edge, FlowRow, Insert, Loaded, Update, WriteSet};

impl Core {
    /// A core over what the store holds. Flows come without their queues: those are read on, head by head.
    pub fn new(now: Now, config: Arc<Config>, loaded: Loaded) -> Core {
        let mut core = Core {
            config,
            meta: loaded.meta,
            admit: Admit::Open,
            tasks: Default::default(),
            flows: Default::default(),
            flow_by_id: Default::default(),
            flow_by_key: Default::default(),
            agents: Default::default(),
            agent_by_name: Default::default(),
            service: Default::default(),
            gates: Default::default(),
            gate_by_key: Default::default(),
            rates: loaded.rates.into_iter().collect(),
            ready: Default::default(),
            open: Default::default(),
            fleet: Default::default(),
            batches: Default::default(),
            sessions: Default::default(),
            session_by_key: Default::default(),
            wall_dues: DueWindow::unknown(),
            steady_dues: DueWindow::unknown(),
            schedule_dues: DueWindow::unknown(),
            schedules: BTreeMap::new(),
            n_schedules: loaded.n_schedules,
            timers: Default::default(),
            releases: loaded.releases.into_iter().map(|release| (release, Stored::Yes)).collect(),
            n_unstarted: 0,
            n_flows_live: 0,
            n_window: 0,
            n_starts: 0,
            n_starts_at_aged: 0,
            hungry: Default::default(),
            hungry_from: FlowIx::new(0),
            room_dirty: false,
            idle: Default::default(),
            unfinished: false,
            rejections: Default::default(),
            tick: Tick::default(),
            #[cfg(feature = "planted")]
            planted: None,
        };
        let now = core.advance(now);
        core.fleet.set_rules(core.config.placement);
        for row in loaded.workers {
            core.recover_worker(now, row);
        }
        for row in loaded.flows {
            core.recover_flow(row);
        }
        for (key, counts) in &loaded.counts {
            core.recover_counts(key, counts);
        }
        for batch in loaded.batches {
            core.batches.insert(batch.id, BatchEntry { batch, dirty: false, new_spec: None, n_refs: 0 });
        }
        for session in loaded.sessions {
            core.session_by_key.insert(session.key.clone(), session.id);
            core.sessions.insert(session.id, Box::new(SessionEntry::new(session, false)));
        }
        // In the order of their starts: each takes its slots behind the one before it.
        let mut held = loaded.held;
        held.sort_by_key(|task| task.state.lease().map(|lease| lease.order));
        for task in held {
            core.recover_held(now, task);
        }
        core.tick = Tick::default();
        core
    }

    fn recover_flow(&mut self, row: FlowRow) {
        let ix = self.flow_insert(row.id, Arc::new(row.key), row.n_queued, row.n_live);
        let agent = self.flows[ix].agent;
        if row.n_live == 0 {
            return;
        }
        self.n_flows_live += 1;
        let agent_state = &mut self.agents[agent];
        agent_state.n_flows_live += 1;
        agent_state.n_live += row.n_live;
        self.service.insert((agent_state.standing.service_ms, agent));
    }

    fn recover_counts(&mut self, key: &CountKey, counts: &CountDelta) {
        let n = counts.unstarted().max(0) as u64;
        self.n_unstarted += n;
        if let Some(&ix) = self.agent_by_name.get(&key.agent) {
            self.agents[ix].n_unstarted += n;
        }
    }

    /// A lease gets one fresh term: its worker comes back with it, or it is lost.
    fn recover_held(&mut self, now: Now, task: Task) {
        let ix = self.flow_of(&task);
        let lease = *task.state.lease().expect("held rows have leases");
        // Who is stopped, steered or preempted first goes by the order of the starts: what starts from now on comes behind
        // what is held, whichever core started it. Times cannot tell: a wall clock that was set back makes them equal.
        self.n_starts = self.n_starts.max(lease.order);
        if !self.fleet.workers.contains_key(&lease.worker) {
            self.fleet.insert(Worker::unknown(lease.worker, now.steady_ms));
        }
        self.watch_worker(lease.worker);
        if let Some(entry) = task.batch.and_then(|batch| self.batches.get_mut(&batch)) {
            entry.n_refs += 1;
        }
        let id = task.id;
        self.member_loaded(&task);
        let stored = Some((task.phase(), task.attempt));
        self.tasks.insert(id, Box::new(Entry::new(task, stored)));
        self.take_slot(id, ix, lease);
        self.agent_restands(self.flows[ix].agent, |_| {});
        if lease.stop.is_some() {
            let gates = self.entry(id).gates.clone();
            gates.iter().for_each(|&gate| self.gates[gate].n_stopping += 1);
        }
    }

    // ── Writes ──────────────────────────────────────────────────────────────────────────────────────────────────

    /// Everything this tick changed, folded to one write for each row. Rows stay in memory until `end_tick`.
    pub fn flush(&mut self) -> WriteSet {
        self.retire_idle_flows();
        // A busy tick is followed by others like it.
        let happenings = Vec::with_capacity(self.tick.happenings.len());
        let happenings = std::mem::replace(&mut self.tick.happenings, happenings);
        let mut writes = WriteSet { happenings, ..WriteSet::default() };
        self.flush_tasks(&mut writes);
        self.flush_edges(&mut writes);
        self.flush_releases(&mut writes);
        self.flush_flows(&mut writes);
        self.flush_batches(&mut writes);
        self.flush_sessions(&mut writes);
        self.flush_schedules(&mut writes);
        self.flush_counts(&mut writes);
        self.flush_rates(&mut writes);
        self.flush_workers(&mut writes);
        writes.idempotency_added = std::mem::take(&mut self.tick.keys_new);
        writes.settings = std::mem::take(&mut self.tick.settings);
        writes.deliveries_added = std::mem::take(&mut self.tick.deliveries);
        writes.deliveries_put = std::mem::take(&mut self.tick.deliveries_put);
        writes.meta = self.meta;
        writes
    }

    fn flush_tasks(&mut self, writes: &mut WriteSet) {
        writes.inserts.append(&mut self.tick.rejections);
        writes.updates.reserve(self.tick.touched.len());
        for id in &self.tick.touched {
            let Some(entry) = self.tasks.get_mut(id).filter(|entry| entry.dirty) else { continue };
            entry.dirty = false;
            let task = entry.task.clone();
            let now = (task.phase(), task.attempt);
            let result = entry.result.take();
            let key = || self.flows[self.flow_by_id[&entry.task.flow]].key.clone();
            match entry.stored {
                None => {
                    let (key, spec) = (key(), entry.spec.take());
                    writes.inserts.push(Insert { task, key, spec, result });
                }
                Some(from) => {
                    let key = entry.key_changed.then(key);
                    writes.updates.push(Update { task, from, key, result });
                }
            }
            entry.key_changed = false;
            entry.spec = None;
            entry.stored = Some(now);
        }
        // Rows go in by submit order, whatever order this tick touched them in: the table grows at its end.
        writes.inserts.sort_unstable_by_key(|insert| insert.task.seq);
    }

    fn flush_edges(&mut self, writes: &mut WriteSet) {
        let mut added: Vec<Edge> = Vec::new();
        for (parent, children) in self.tick.edges_new.drain() {
            added.extend(children.into_iter().map(|child| Edge { parent, child }));
        }
        added.sort_unstable();
        writes.edges_added = added;
        writes.edges_removed = std::mem::take(&mut self.tick.edges_removed);
    }

    fn flush_releases(&mut self, writes: &mut WriteSet) {
        for (release, stored) in &mut self.releases {
            if *stored == Stored::No {
                *stored = Stored::Yes;
                writes.releases_added.push(*release);
            }
        }
        writes.releases_removed = std::mem::take(&mut self.tick.releases_removed);
    }

    fn flush_flows(&mut self, writes: &mut WriteSet) {
        let mut dirty: Vec<_> = self.tick.dirty_flows.drain().collect();
        dirty.sort_unstable();
        for ix in dirty {
            let flow = &self.flows[ix];
            let row = FlowRow { id: flow.id, key: (*flow.key).clone(), n_queued: flow.n_queued, n_live: flow.n_live };
            writes.flows_put.push(row);
        }
        writes.flows_removed = std::mem::take(&mut self.tick.flows_removed);
    }

    fn flush_batches(&mut self, writes: &mut WriteSet) {
        for id in &self.tick.touched_batches {
            let Some(entry) = self.batches.get_mut(id).filter(|entry| entry.dirty) else { continue };
            entry.dirty = false;
            match entry.new_spec.take() {
                Some(spec) => writes.batches_added.push((entry.batch.clone(), spec)),
                None => writes.batches_put.push(entry.batch.clone()),
            }
        }
    }

    fn flush_sessions(&mut self, writes: &mut WriteSet) {
        for id in &self.tick.touched_sessions {
            let Some(entry) = self.sessions.get_mut(id).filter(|entry| entry.dirty) else { continue };
            entry.dirty = false;
            match std::mem::replace(&mut entry.is_new, false) {
                true => writes.sessions_added.push(entry.session.clone()),
                false => writes.sessions_put.push(entry.session.clone()),
            }
        }
        writes.messages_added = std::mem::take(&mut self.tick.messages);
        writes.drops_added = std::mem::take(&mut self.tick.drops);
    }

    fn flush_counts(&mut self, writes: &mut WriteSet) {
        let mut sums: BTreeMap<CountKey, CountDelta> = BTreeMap::new();
        for (ix, delta) in self.tick.deltas.drain() {
            let key = &self.flows[ix].key;
            let sum = sums.entry(CountKey { agent: key.agent.clone(), lane: key.lane.clone() }).or_default();
            let (a, b) = (sum.values(), delta.values());
            *sum = CountDelta::from_values(std::array::from_fn(|n| a[n] + b[n]));
        }
        for ((agent, lane), n) in std::mem::take(&mut self.tick.rejected) {
            sums.entry(CountKey { agent, lane }).or_default().rejected += n;
        }
        writes.counts = sums.into_iter().filter(|(_, delta)| *delta != CountDelta::default()).collect();
    }

    fn flush_rates(&mut self, writes: &mut WriteSet) {
        for name in std::mem::take(&mut self.tick.rates_dirty) {
            let gate = self.gate_by_key.get(&GateKey::Named(name.clone())).map(|&ix| &self.gates[ix]);
            let state = gate.and_then(|gate| gate.rate.as_ref()).map(|rate| rate.state());
            if let Some(state) = state.or_else(|| self.rates.get(&name).copied()) {
                writes.rates.push((name, state));
            }
        }
    }

    /// After the commit: forgets the rows that are neither at a flow's head nor held.
    pub fn end_tick(&mut self) {
        for id in std::mem::take(&mut self.tick.touched) {
            let Some(entry) = self.tasks.get_mut(&id) else { continue };
            entry.touched = false;
            if entry.is_resident() {
                continue;
            }
            let entry = self.tasks.remove(&id).expect("it was just looked at");
            if let Some(batch) = entry.task.batch.and_then(|batch| self.batches.get_mut(&batch)) {
                batch.n_refs -= 1;
                self.tick.touched_batches.push(batch.batch.id);
            }
            self.member_forgotten(&entry.task);
        }
        for id in std::mem::take(&mut self.tick.touched_batches) {
            if self.batches.get(&id).is_some_and(|entry| entry.n_refs == 0) {
                self.batches.remove(&id);
            }
        }
        for id in std::mem::take(&mut self.tick.touched_sessions) {
            let Some(entry) = self.sessions.get_mut(&id) else { continue };
            entry.touched = false;
            if entry.members.is_empty() {
                let entry = self.sessions.remove(&id).expect("it was just looked at");
                self.session_by_key.remove(&entry.session.key);
            }
        }
        self.schedules.clear();
        self.tick.inputs.clear();
        self.tick.keys.clear();
    }
}
