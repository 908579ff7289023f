//! What must be true of memory between two ticks, checked by looking at all of it. Too slow for a server; the simulator
//! asks after its steps. An assert that fails here names the first thing that does not add up, long before its
//! consequences would show.

use std::collections::{BTreeMap, BTreeSet};

use crate::core::{Core, Stand};
use crate::flow::FlowKey;
use crate::gate::{GateKey, Holder};
use crate::ids::{BatchId, WorkerId};
use crate::line::Spot;
use crate::name::Name;
use crate::session::SessionId;
use crate::slab::{AgentIx, FlowIx, GateIx};
use crate::task::{Phase, State};
use crate::timers::Timer;

/// A slot or a worker that is kept for one flow.
#[derive(Clone, PartialEq, Debug)]
pub struct Keep {
    pub flow: std::sync::Arc<FlowKey>,
    pub at: KeptAt,
    pub n: u32,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum KeptAt {
    Global,
    Agent(Name),
    Lane(Name),
    Kind(Name),
    Gate(Name),
    Worker(WorkerId),
}

impl Core {
    /// Everything that is kept for somebody now: the gates with names that only the scheduler itself can know of.
    pub fn keeps(&self) -> Vec<Keep> {
        let mut keeps = Vec::new();
        for (_, gate) in self.gates.iter() {
            let at = match &gate.key {
                GateKey::Global => KeptAt::Global,
                GateKey::Agent(name) => KeptAt::Agent(name.clone()),
                GateKey::Lane(name) => KeptAt::Lane(name.clone()),
                GateKey::Kind(name) => KeptAt::Kind(name.clone()),
                GateKey::Named(name) => KeptAt::Gate(name.clone()),
                GateKey::Worker(_) => continue,
            };
            let kept = gate.kept.iter().map(|(&ix, &n)| (self.flows[ix].key.clone(), n));
            keeps.extend(kept.map(|(flow, n)| Keep { flow, at: at.clone(), n }));
        }
        for worker in self.fleet.workers.values() {
            let flow = worker.kept_for.map(|ix| self.flows[ix].key.clone());
            keeps.extend(flow.map(|flow| Keep { flow, at: KeptAt::Worker(worker.spec.id), n: 1 }));
        }
        keeps
    }

    /// Asserts that what is kept twice says the same twice. To be asked between ticks.
    pub fn sanity_check(&self) {
        self.fleet.check();
        self.check_slots();
        self.check_gates();
        self.check_flows();
        self.check_agents();
        self.check_lines();
        self.check_timers();
        self.check_memory();
        self.check_sessions();
    }

    /// A slot is a live lease: holders of gates and leases of workers are the same set, counted from both ends.
    fn check_slots(&self) {
        let mut holders: BTreeMap<GateIx, BTreeSet<Holder>> = BTreeMap::new();
        let mut n_stopping: BTreeMap<GateIx, u32> = BTreeMap::new();
        for worker in self.fleet.workers.values() {
            let mut reserved = crate::flow::Resources::default();
            for id in worker.leases() {
                let entry = self.entry(id);
                let lease = *entry.task.state.lease().expect("what a worker holds has a lease");
                assert_eq!(lease.worker, worker.spec.id, "{id:?} is held by the worker of its lease");
                let flow = self.flow_of(&entry.task);
                crate::fleet::add(&mut reserved, &self.flows[flow].key.shape.resources);
                for &gate in entry.gates.iter() {
                    holders.entry(gate).or_default().insert(self.holder(id, flow, lease));
                    *n_stopping.entry(gate).or_default() += u32::from(lease.stop.is_some());
                }
            }
            assert_eq!(reserved.cpu_milli, worker.reserved.cpu_milli, "cpu of {:?}", worker.spec.id);
            assert_eq!(reserved.ram_mb, worker.reserved.ram_mb, "ram of {:?}", worker.spec.id);
            assert_eq!(worker.held.values().sum::<u32>(), worker.claimed_mb, "claims of {:?}", worker.spec.id);
        }
        for (ix, gate) in self.gates.iter() {
            let holders = holders.remove(&ix).unwrap_or_default();
            assert!(gate.holders.iter().eq(holders.iter().map(|holder| holder.task)), "holders of {:?}", gate.key);
            assert_eq!(gate.n_stopping, n_stopping.remove(&ix).unwrap_or(0), "stopping at {:?}", gate.key);
        }
        assert!(holders.is_empty(), "every gate that is held exists");
    }

    fn check_gates(&self) {
        let mut n_flows: BTreeMap<GateIx, u32> = BTreeMap::new();
        let mut kept: BTreeMap<GateIx, BTreeMap<FlowIx, u32>> = BTreeMap::new();
        for (ix, flow) in self.flows.iter() {
            flow.gates.iter().for_each(|&gate| *n_flows.entry(gate).or_default() += 1);
            for &gate in flow.keeps.iter().flatten() {
                *kept.entry(gate).or_default().entry(ix).or_default() += 1;
            }
        }
        for (_, agent) in self.agents.iter() {
            *n_flows.entry(agent.gate).or_default() += 1;
        }
        let now_ms = self.meta.now.steady_ms;
        for (ix, gate) in self.gates.iter() {
            assert_eq!(self.gate_by_key.get(&gate.key), Some(&ix), "{:?} is found by its key", gate.key);
            assert_eq!(gate.n_flows, n_flows.get(&ix).copied().unwrap_or(0), "flows through {:?}", gate.key);
            assert_eq!(gate.kept, kept.remove(&ix).unwrap_or_default(), "kept at {:?}", gate.key);
            if let GateKey::Worker(shape) = &gate.key {
                // Known while somebody waits there, once a dispatch has looked.
                if !gate.line.is_empty() && !self.room_dirty && !self.unfinished {
                    assert_eq!(
                        gate.has_room,
                        self.fleet.has_room(now_ms, gate.wanted_shape(), None),
                        "room for {shape:?}"
                    );
                }
            }
            let is_candidate = gate.is_open(now_ms) && !gate.line.is_empty();
            assert_eq!(self.open.contains(&ix), is_candidate, "{:?} is among the open gates", gate.key);
        }
        assert!(kept.is_empty(), "what is kept is kept at gates that exist");
    }

    fn check_flows(&self) {
        let mut n_window = 0;
        let mut n_live = 0;
        for (ix, flow) in self.flows.iter() {
            let name = &flow.key;
            assert_eq!(self.flow_by_id.get(&flow.id), Some(&ix));
            assert_eq!(self.flow_by_key.get(name), Some(&ix));
            n_window += flow.window.len().saturating_sub(1);
            n_live += u32::from(flow.n_live > 0);
            for (spot, id) in flow.window.iter() {
                let entry = self.entry(id);
                assert!(entry.in_window && !entry.pinned, "{id:?} knows that it is in the window of {name:?}");
                assert_eq!(entry.task.phase(), Phase::Queued, "{id:?} stands in the window of {name:?}");
                assert_eq!((entry.task.flow, spot), (flow.id, Spot { rank: entry.task.rank, seq: entry.task.seq }));
            }
            assert!(flow.window.len() as u64 <= flow.n_queued && flow.n_queued <= flow.n_live, "counts of {name:?}");
            if flow.window.is_empty() && flow.n_queued > 0 {
                assert!(self.hungry.contains(&ix), "{name:?} has a queue and is not read on");
            }
            self.check_oldest(ix);
            assert_eq!(flow.n_keeps as usize, flow.keeps.len(), "keeps of {name:?}");
            assert!(u64::from(flow.n_keeps) <= flow.n_queued, "{name:?} keeps no more than it can use");
            assert_eq!(flow.stand == Stand::Nowhere, flow.window.is_empty(), "the stand of {name:?}");
            if let Some((spot, _)) = flow.window.first() {
                assert_eq!(spot, flow.spot, "the spot of {name:?}");
            }
            assert!(flow.n_live > 0 || flow.idle, "{name:?} has no tasks and is kept for ever");
        }
        assert_eq!(self.n_window, n_window, "window entries beyond the heads");
        assert_eq!(self.n_flows_live, n_live, "flows with live tasks");
        for worker in self.fleet.workers.values() {
            if let Some(ix) = worker.kept_for {
                assert!(self.flows[ix].n_queued > 0, "{:?} is kept for a flow that waits", worker.spec.id);
            }
        }
    }

    fn check_oldest(&self, ix: FlowIx) {
        let flow = &self.flows[ix];
        if flow.is_complete() {
            assert_eq!(flow.oldest, None, "a whole queue in memory needs no note of its oldest");
            return;
        }
        assert!(!flow.oldest_known || flow.oldest.is_some(), "the known oldest of {:?} is somebody", flow.key);
        if let Some(oldest) = flow.oldest {
            let entry = self.entry(oldest);
            assert_eq!(entry.task.phase(), Phase::Queued, "the oldest of {:?}", flow.key);
            assert!(entry.in_window != entry.pinned, "the oldest of {:?} stays in memory", flow.key);
            let least = flow.window.iter().map(|(spot, _)| spot.seq).min();
            assert!(least.is_none_or(|seq| entry.task.seq <= seq), "nobody of {:?} is older", flow.key);
        }
    }

    fn check_agents(&self) {
        #[derive(Default, PartialEq, Debug)]
        struct Sums {
            n_flows: u32,
            n_flows_live: u32,
            n_live: u64,
            stands: Vec<(Stand, crate::task::Tier)>,
        }
        let mut sums: BTreeMap<AgentIx, Sums> = BTreeMap::new();
        for (_, flow) in self.flows.iter() {
            let sum = sums.entry(flow.agent).or_default();
            sum.n_flows += 1;
            sum.n_flows_live += u32::from(flow.n_live > 0);
            sum.n_live += flow.n_live;
            if flow.stand != Stand::Nowhere && !sum.stands.contains(&(flow.stand, flow.key.tier)) {
                sum.stands.push((flow.stand, flow.key.tier));
            }
        }
        let mut n_unstarted = 0;
        for (ix, agent) in self.agents.iter() {
            let mut sum = sums.remove(&ix).unwrap_or_default();
            let mut stands = agent.stands.clone();
            sum.stands.sort();
            stands.sort();
            let said = Sums { n_flows: agent.n_flows, n_flows_live: agent.n_flows_live, n_live: agent.n_live, stands };
            assert_eq!(said, sum, "agent {}", agent.name);
            assert_eq!(agent.standing.load, self.agent_load(ix), "load of {}", agent.name);
            let is_served = self.service.contains(&(agent.standing.service_ms, ix));
            assert_eq!(is_served, agent.n_live > 0, "{} is among the active agents", agent.name);
            assert!(agent.n_unstarted <= agent.n_live, "unstarted tasks of {}", agent.name);
            n_unstarted += agent.n_unstarted;
        }
        assert!(sums.is_empty(), "every flow's agent exists");
        assert_eq!(self.n_unstarted, n_unstarted, "unstarted tasks");
    }

    fn check_lines(&self) {
        let mut n_ready = 0;
        let mut n_parked: BTreeMap<GateIx, usize> = BTreeMap::new();
        for (ix, flow) in self.flows.iter() {
            let (line, n) = match flow.stand {
                Stand::Nowhere => continue,
                Stand::Ready => (&self.ready, &mut n_ready),
                Stand::Parked(gate) => {
                    assert!(flow.gates.contains(&gate), "{:?} is parked at a gate on its way", flow.key);
                    (&self.gates[gate].line, n_parked.entry(gate).or_default())
                }
            };
            *n += 1;
            assert!(line.holds(self.candidate(ix), flow.age), "{:?} stands where it says it does", flow.key);
        }
        assert_eq!(self.ready.len(), n_ready, "flows in the ready line");
        for (ix, gate) in self.gates.iter() {
            assert_eq!(gate.line.len(), n_parked.remove(&ix).unwrap_or(0), "flows parked at {:?}", gate.key);
        }
    }

    fn check_timers(&self) {
        for (id, entry) in &self.tasks {
            if let Some(at_ms) = entry.timer {
                assert!(self.timers.contains(at_ms, Timer::Attempt(*id)), "the timer of {id:?} is set");
            }
            if let Some(at_ms) = entry.stall {
                assert!(self.timers.contains(at_ms, Timer::Silence(*id)), "the silence of {id:?} is watched");
            }
            let Some(lease) = entry.task.state.lease() else {
                assert!(entry.timer.is_none() && entry.stall.is_none(), "{id:?} is not held and has timers");
                continue;
            };
            let worker = &self.fleet.workers[&lease.worker];
            assert!(worker.held.contains_key(id), "{id:?} is among its worker's leases");
            if worker.joined && lease.stop.is_none() {
                assert!(entry.timer.is_some(), "{id:?} would never time out");
            }
        }
        for (at_ms, timer) in self.timers.iter() {
            match timer {
                Timer::Attempt(id) => assert_eq!(self.entry(id).timer, Some(at_ms), "timer of {id:?}"),
                Timer::Silence(id) => assert_eq!(self.entry(id).stall, Some(at_ms), "silence of {id:?}"),
                Timer::Worker(id) => assert_eq!(self.fleet.workers[&id].watch_ms, Some(at_ms), "timer of {id:?}"),
                Timer::Cooled(_) | Timer::Rate(_) | Timer::Reserve(_) => {}
            }
        }
        for (id, worker) in &self.fleet.workers {
            let watch_ms = worker.watch_ms.expect("every worker is watched");
            assert!(self.timers.contains(watch_ms, Timer::Worker(*id)), "{id:?} is watched");
        }
        for (ix, gate) in self.gates.iter() {
            let now_ms = self.meta.now.steady_ms;
            let opens_at = gate.rate.as_ref().and_then(|rate| rate.opens_at(now_ms));
            if let Some(at_ms) = opens_at.filter(|_| !gate.line.is_empty()) {
                let is_watched = self.timers.iter().any(|(at, timer)| timer == Timer::Rate(ix) && at <= at_ms);
                assert!(is_watched, "somebody looks when the rate of {:?} opens", gate.key);
            }
        }
    }

    /// Memory is O(flows + held): what is neither at a head nor held is forgotten after its tick.
    fn check_memory(&self) {
        let mut n_refs: BTreeMap<BatchId, u32> = BTreeMap::new();
        for (id, entry) in &self.tasks {
            assert!(entry.is_resident(), "{id:?} ({:?}) is in memory for no reason", entry.task.state);
            assert!(!entry.dirty, "{id:?} was changed and not written");
            if entry.task.phase().is_held() {
                assert!(!entry.in_window && !entry.pinned && !entry.gates.is_empty(), "{id:?} is held");
            }
            if let State::Queued { .. } = entry.task.state {
                assert!(entry.gates.is_empty(), "{id:?} is queued and holds slots");
            }
            if let Some(batch) = entry.task.batch {
                *n_refs.entry(batch).or_default() += 1;
            }
        }
        for (id, entry) in &self.batches {
            assert_eq!(entry.n_refs, n_refs.remove(id).unwrap_or(0), "references to {id:?}");
            assert!(entry.n_refs > 0, "{id:?} is in memory for no reason");
        }
        assert!(n_refs.is_empty(), "the batch of every task in memory is there too: {n_refs:?}");
    }

    /// What a session's entry says of its members in memory is what they say themselves.
    fn check_sessions(&self) {
        let mut n_members: BTreeMap<SessionId, usize> = BTreeMap::new();
        for (id, entry) in &self.tasks {
            let task = &entry.task;
            let Some(member) = task.member else { continue };
            *n_members.entry(member.session).or_default() += 1;
            let session = &self.sessions[&member.session];
            assert_eq!(session.members.get(task.seq), Some(*id), "{id:?} is known to its session");
            assert!(member.seated, "{id:?} ({:?}) is queued or held and has a seat", task.state);
            let is_held = task.state.lease().map(|lease| session.held.get(lease.order) == Some(*id));
            assert_ne!(is_held, Some(false), "{id:?} is held, and its session knows it");
        }
        for (id, entry) in &self.sessions {
            let session = &entry.session;
            assert!(!entry.dirty, "{id:?} was changed and not written");
            assert_eq!(entry.members.len(), n_members.get(id).copied().unwrap_or(0), "members of {id:?} in memory");
            assert!(!entry.members.is_empty(), "{id:?} is in memory for no reason");
            assert!(entry.line.is_empty(), "who stands in line is not kept in memory: {id:?}");
            assert_eq!(entry.held.len(), session.n_held as usize, "held members of {id:?}");
            assert_eq!(self.session_by_key.get(&session.key), Some(id), "{id:?} is found by its key");
            assert!(session.n_held <= session.n_seated, "{session:?}");
            assert!(session.n_debouncing <= session.n_line, "{session:?}");
            assert!(session.n_seated + session.n_line <= session.n_live, "{session:?}");
        }
        assert_eq!(self.session_by_key.len(), self.sessions.len(), "each session once by its key");
    }
}
