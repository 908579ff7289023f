//! Flows and agents come and go with their tasks; their queues' heads are windows; their gates follow the configuration.

use std::sync::Arc;

use crate::config::{Config, LANE_MAIN};
use crate::core::{Agent, Core, Flow, IDLE_FLOWS_MAX, Stand};
use crate::event::Rest;
use crate::fleet::is_nothing;
use crate::flow::FlowKey;
use crate::gate::{Gate, GateKey, Rate};
use crate::ids::{FlowId, TaskId, WorkerId};
use crate::line::{Candidate, Membership, Spot, Standing};
use crate::name::Name;
use crate::now::{Now, SteadyMs};
use crate::planted::Bug;
use crate::slab::{AgentIx, FlowIx, GateIx};
use crate::task::{State, Task, Tier};
use crate::window::{REFILL_ROWS_MAX, WINDOW_FLOW_MAX, Window};

impl Core {
    /// The flow of this key, made when there is none.
    pub(crate) fn flow_for(&mut self, key: &FlowKey) -> FlowIx {
        if let Some(&ix) = self.flow_by_key.get(key) {
            return ix;
        }
        let id = FlowId(self.meta.next_flow);
        self.meta.next_flow += 1;
        self.flow_insert(id, Arc::new(key.clone()), 0, 0)
    }

    pub(crate) fn flow_insert(&mut self, id: FlowId, key: Arc<FlowKey>, n_queued: u64, n_live: u64) -> FlowIx {
        let agent = self.agent_for(&key.agent);
        self.agents[agent].n_flows += 1;
        let flow = Flow {
            id,
            key: key.clone(),
            agent,
            gates: Arc::default(),
            window: Window::default(),
            n_queued,
            n_live,
            oldest: None,
            oldest_known: n_queued == 0,
            age: SteadyMs::MAX,
            stand: Stand::Nowhere,
            spot: Spot { rank: 0, seq: 0 },
            n_keeps: 0,
            keeps: Default::default(),
            worker_since: None,
            beside: Default::default(),
            idle: false,
        };
        let ix = self.flows.insert(flow);
        self.flow_by_id.insert(id, ix);
        self.flow_by_key.insert(key, ix);
        self.wire(ix);
        if n_queued > 0 {
            self.hungry.insert(ix);
        }
        ix
    }

    /// Drops the flows that have been without tasks for longest, when there are too many of them.
    pub(crate) fn retire_idle_flows(&mut self) {
        let n_surplus = self.idle.len().saturating_sub(IDLE_FLOWS_MAX);
        for _ in 0..n_surplus {
            let ix = self.idle.pop_front().expect("the length was just looked at");
            // What this tick touched is still to be written: a later one retires it.
            if self.flows[ix].n_live == 0 && self.tick.dirty_flows.contains(&ix) {
                self.idle.push_back(ix);
                continue;
            }
            self.flows[ix].idle = false;
            if self.flows[ix].n_live > 0 {
                continue;
            }
            self.unwire(ix);
            let flow = self.flows.remove(ix);
            self.flow_by_id.remove(&flow.id);
            self.flow_by_key.remove(&flow.key);
            self.hungry.remove(&ix);
            self.tick.dirty_flows.remove(&ix);
            self.tick.flows_removed.push(flow.id);
            self.agents[flow.agent].n_flows -= 1;
            if self.agents[flow.agent].n_flows == 0 {
                let agent = self.agents.remove(flow.agent);
                self.agent_by_name.remove(&agent.name);
                self.gate_leave(agent.gate);
            }
        }
    }

    fn agent_for(&mut self, name: &Name) -> AgentIx {
        if let Some(&ix) = self.agent_by_name.get(name) {
            return ix;
        }
        let gate = self.gate_for(GateKey::Agent(name.clone()));
        self.gates[gate].n_flows += 1;
        let weight = self.config.agents.get(name).map_or(1, |agent| agent.weight.max(1));
        let agent = Agent {
            name: name.clone(),
            gate,
            weight,
            standing: Standing::default(),
            n_unstarted: 0,
            n_live: 0,
            n_flows: 0,
            n_flows_live: 0,
            stands: Vec::new(),
        };
        let ix = self.agents.insert(agent);
        self.agent_by_name.insert(name.clone(), ix);
        ix
    }

    /// Finds the gates a flow passes under the configuration in force. Order is the order of `explain`.
    pub(crate) fn wire(&mut self, ix: FlowIx) {
        let key = self.flows[ix].key.clone();
        let lane = lane_in_force(&self.config, &key.lane);
        let mut keys = vec![GateKey::Global, GateKey::Agent(key.agent.clone()), GateKey::Lane(lane)];
        keys.push(GateKey::Kind(key.shape.kind.clone()));
        keys.extend(key.gates.iter().cloned().map(GateKey::Named));
        keys.push(GateKey::Worker(Box::new(key.shape.clone())));
        let gates: Arc<[GateIx]> = keys.into_iter().map(|key| self.gate_for(key)).collect();
        gates.iter().for_each(|&gate| self.gates[gate].n_flows += 1);
        self.flows[ix].gates = gates;
    }

    pub(crate) fn unwire(&mut self, ix: FlowIx) {
        self.drop_keeps(ix, 0);
        let gates = std::mem::take(&mut self.flows[ix].gates);
        gates.iter().for_each(|&gate| self.gate_leave(gate));
    }

    /// A flow, an agent or a holder has left this gate; a gate without any is dropped.
    pub(crate) fn gate_leave(&mut self, ix: GateIx) {
        self.gates[ix].n_flows -= 1;
        self.gate_drop_if_unused(ix);
    }

    pub(crate) fn gate_drop_if_unused(&mut self, ix: GateIx) {
        let gate = &self.gates[ix];
        if gate.n_flows > 0 || !gate.holders.is_empty() {
            return;
        }
        self.open.remove(&ix);
        let gate = self.gates.remove(ix);
        gate.shape.into_iter().for_each(|shape| self.fleet.unmention(shape));
        if let (GateKey::Named(name), Some(rate)) = (&gate.key, &gate.rate) {
            self.rates.insert(name.clone(), rate.state());
        }
        self.gate_by_key.remove(&gate.key);
    }

    fn gate_for(&mut self, key: GateKey) -> GateIx {
        if let Some(&ix) = self.gate_by_key.get(&key) {
            return ix;
        }
        let shape = match &key {
            GateKey::Worker(shape) => Some(self.fleet.mention(shape)),
            _ => None,
        };
        let ix = self.gates.insert(Gate { shape, ..Gate::new(key.clone()) });
        self.gate_by_key.insert(key, ix);
        self.gate_configure(ix);
        ix
    }

    /// Limit, pause and rate of one gate from the configuration in force.
    pub(crate) fn gate_configure(&mut self, ix: GateIx) {
        let has_one_more = self.has_bug(Bug::LimitOffByOne);
        let config = &self.config;
        let gate = &mut self.gates[ix];
        gate.paused = None;
        match &gate.key {
            GateKey::Global => {
                gate.limit = Some(config.inflight_max);
                gate.paused = (self.admit != crate::event::Admit::Open).then_some("draining");
            }
            GateKey::Agent(name) => {
                let agent = config.agents.get(name);
                gate.limit = agent.and_then(|agent| agent.inflight_max).or(config.inflight_per_agent_max);
                gate.paused = agent.is_some_and(|agent| agent.paused).then_some("paused");
            }
            GateKey::Lane(name) => {
                let lane = config.lanes.get(name);
                gate.limit = lane.map(|lane| lane.limit);
                gate.paused = lane.is_some_and(|lane| lane.paused).then_some("paused");
            }
            GateKey::Kind(name) => gate.limit = config.kinds.get(name).copied(),
            GateKey::Named(name) => {
                let named = config.gates.get(name);
                gate.limit = named.and_then(|gate| gate.inflight_max);
                let state = gate.rate.as_ref().map(Rate::state);
                let state = state.or_else(|| self.rates.get(name).copied()).unwrap_or(0);
                gate.rate = named.and_then(|config| Rate::new(config, state));
                if gate.rate.is_none() && state > 0 {
                    self.rates.insert(name.clone(), state);
                }
            }
            // Known only while somebody waits there; see `look_for_room`.
            GateKey::Worker(_) => {}
        }
        if has_one_more {
            gate.limit = gate.limit.map(|limit| limit + 1);
        }
    }

    // ── Queues ──────────────────────────────────────────────────────────────────────────────────────────────────

    /// Entries a flow may take from the budget at a refill.
    pub(crate) fn window_share(&self) -> usize {
        let n_flows = self.flows.len().max(1);
        (self.config.window_max as usize / n_flows).clamp(1, REFILL_ROWS_MAX)
    }

    pub(crate) fn enqueue(&mut self, ix: FlowIx, id: TaskId) {
        let task = &self.entry(id).task;
        let spot = Spot { rank: task.rank, seq: task.seq };
        let State::Queued { since_ms } = task.state else { panic!("{:?} is queued before it is lined up", task.state) };
        let has_budget = self.n_window < self.config.window_max as usize;
        let flow = &mut self.flows[ix];
        let was_complete = flow.is_complete();
        flow.n_queued += 1;
        let has_room = flow.window.is_empty() || (has_budget && flow.window.len() < WINDOW_FLOW_MAX);
        let before_last = flow.window.last().is_some_and(|(last, _)| spot < last);
        if (was_complete && has_room) || before_last {
            self.window_insert(ix, spot, id);
        }
        let spilled = (before_last && !(was_complete && has_room)).then(|| self.window_spill(ix));
        if was_complete && !self.flows[ix].is_complete() {
            // From here on memory cannot tell the oldest by looking, so it is remembered.
            let window = self.flows[ix].window.iter().map(|(spot, id)| (spot.seq, id));
            let oldest = window.chain([(spot.seq, id)]).chain(spilled).min();
            self.flows[ix].oldest_known = true;
            self.set_oldest(ix, oldest.map(|(_, id)| id));
        }
        self.lower_age(ix, since_ms);
        spilled.into_iter().for_each(|(_, last)| self.note_oldest(ix, last));
        self.note_oldest(ix, id);
        self.note_hunger(ix);
        self.restand(ix);
        if self.tier_of(ix) == Tier::Critical && matches!(self.flows[ix].stand, Stand::Parked(_)) {
            // Each waiting critical task may take a victim of its own, so the flow gets another look.
            self.stand(ix, Stand::Ready);
        }
    }

    /// Takes a task that is still counted as queued out of its flow.
    pub(crate) fn dequeue(&mut self, ix: FlowIx, id: TaskId) {
        let task = &self.entry(id).task;
        let spot = Spot { rank: task.rank, seq: task.seq };
        self.flows[ix].n_queued -= 1;
        if self.entry(id).in_window {
            self.window_remove(ix, spot, id);
        }
        if self.flows[ix].oldest == Some(id) {
            self.set_oldest(ix, None);
            self.flows[ix].oldest_known = false;
        }
        if self.flows[ix].is_complete() {
            self.set_oldest(ix, None);
        }
        self.note_hunger(ix);
        let n_queued = self.flows[ix].n_queued;
        if u64::from(self.flows[ix].n_keeps) > n_queued || n_queued == 0 {
            self.drop_keeps(ix, n_queued as u32);
        }
        self.restand(ix);
    }

    fn window_insert(&mut self, ix: FlowIx, spot: Spot, id: TaskId) {
        let flow = &mut self.flows[ix];
        self.n_window -= flow.window.len().saturating_sub(1);
        flow.window.insert(spot, id);
        self.n_window += flow.window.len().saturating_sub(1);
        self.entry_mut(id).in_window = true;
    }

    fn window_remove(&mut self, ix: FlowIx, spot: Spot, id: TaskId) {
        let flow = &mut self.flows[ix];
        self.n_window -= flow.window.len().saturating_sub(1);
        let known = flow.window.remove(spot);
        assert!(known, "task {id:?} is at {spot:?} in its flow's window");
        self.n_window += flow.window.len().saturating_sub(1);
        self.note(id).in_window = false;
    }

    /// Forgets the last entry; its row stays in the store.
    fn window_spill(&mut self, ix: FlowIx) -> (u64, TaskId) {
        let flow = &mut self.flows[ix];
        self.n_window -= flow.window.len().saturating_sub(1);
        let (spot, last) = flow.window.pop_last().expect("a window that was just filled is not empty");
        self.n_window += flow.window.len().saturating_sub(1);
        self.note(last).in_window = false;
        (spot.seq, last)
    }

    /// The task stands in a queue that memory holds only the head of: is it the oldest of that queue?
    fn note_oldest(&mut self, ix: FlowIx, id: TaskId) {
        let flow = &self.flows[ix];
        if flow.is_complete() || !flow.oldest_known {
            return;
        }
        let known = flow.oldest.expect("a queue that is known to have an oldest task has one");
        if self.entry(id).task.seq < self.entry(known).task.seq {
            self.set_oldest(ix, Some(id));
        } else if known == id {
            let in_window = self.entry(id).in_window;
            self.entry_mut(id).pinned = !in_window;
        }
    }

    /// Beyond the window it is kept in memory all the same, because aging starts it whatever its rank.
    fn set_oldest(&mut self, ix: FlowIx, id: Option<TaskId>) {
        if let Some(known) = self.flows[ix].oldest.take() {
            self.note(known).pinned = false;
        }
        if let Some(id) = id {
            let entry = self.entry_mut(id);
            entry.pinned = !entry.in_window;
        }
        self.flows[ix].oldest = id;
    }

    pub(crate) fn note_hunger(&mut self, ix: FlowIx) {
        let share = self.window_share();
        let flow = &self.flows[ix];
        let is_low = flow.window.len() <= share / 4;
        if !flow.is_complete() && is_low && !self.has_bug(Bug::HungerNotNoted) {
            self.hungry.insert(ix);
        } else {
            self.hungry.remove(&ix);
        }
    }

    pub(crate) fn on_flow_refilled(
        &mut self,
        _now: Now,
        flow: FlowId,
        rows: Vec<Task>,
        oldest: Option<Box<Task>>,
        rest: Rest,
    ) {
        let Some(&ix) = self.flow_by_id.get(&flow) else { return };
        self.hungry.remove(&ix);
        for task in rows {
            let (id, spot) = (task.id, Spot { rank: task.rank, seq: task.seq });
            let State::Queued { since_ms } = task.state else { continue };
            self.load_task(task);
            if !self.entry(id).in_window && self.entry(id).task.phase() == crate::task::Phase::Queued {
                self.window_insert(ix, spot, id);
                self.lower_age(ix, since_ms);
            }
        }
        let flow = &self.flows[ix];
        assert!(
            rest == Rest::More || flow.is_complete(),
            "flow {:?} counts {} queued tasks, and its whole queue has {}",
            flow.id,
            flow.n_queued,
            flow.window.len()
        );
        let oldest =
            oldest.filter(|_| !self.flows[ix].is_complete()).map(|oldest| (oldest.id, self.load_task(*oldest)).0);
        self.set_oldest(ix, oldest);
        self.flows[ix].oldest_known = oldest.is_some();
        if let Some(State::Queued { since_ms }) = oldest.map(|id| self.entry(id).task.state) {
            self.lower_age(ix, since_ms);
        }
        self.note_hunger(ix);
        self.restand(ix);
    }

    // ── Standing in line ────────────────────────────────────────────────────────────────────────────────────────

    /// Puts the flow where its head belongs after its window changed.
    pub(crate) fn restand(&mut self, ix: FlowIx) {
        let flow = &self.flows[ix];
        match (flow.window.first(), flow.stand) {
            (None, Stand::Nowhere) => {}
            (None, _) => self.stand(ix, Stand::Nowhere),
            (Some(_), Stand::Nowhere) => self.stand(ix, Stand::Ready),
            (Some((spot, _)), stand) if spot != flow.spot => self.stand(ix, stand),
            (Some(_), _) => {}
        }
    }

    /// Moves a flow to another place, or to its new spot in the same one.
    pub(crate) fn stand(&mut self, ix: FlowIx, to: Stand) {
        self.leave_line(ix);
        let flow = &mut self.flows[ix];
        flow.stand = to;
        if !matches!(to, Stand::Parked(gate) if matches!(self.gates[gate].key, GateKey::Worker(_))) {
            flow.worker_since = None;
        }
        if to == Stand::Nowhere {
            return;
        }
        flow.spot = flow.window.first().expect("only a flow with a head stands in line").0;
        let candidate = self.candidate(ix);
        let age = self.flows[ix].age;
        let line = match to {
            Stand::Ready => &mut self.ready,
            Stand::Parked(gate) => &mut self.gates[gate].line,
            Stand::Nowhere => return,
        };
        if line.insert(candidate, age) == Membership::Changed {
            self.agents[candidate.agent].stands.push((to, candidate.tier));
        }
        if let Stand::Parked(gate) = to {
            self.gate_changed(gate);
        }
    }

    fn leave_line(&mut self, ix: FlowIx) {
        let candidate = self.candidate(ix);
        let flow = &mut self.flows[ix];
        let from = std::mem::replace(&mut flow.stand, Stand::Nowhere);
        let age = flow.age;
        let line = match from {
            Stand::Nowhere => return,
            Stand::Ready => &mut self.ready,
            Stand::Parked(gate) => &mut self.gates[gate].line,
        };
        if line.remove(candidate, age) == Membership::Changed {
            let stands = &mut self.agents[candidate.agent].stands;
            let at = stands.iter().position(|&stand| stand == (from, candidate.tier));
            stands.swap_remove(at.expect("an agent knows the lines it stands in"));
        }
        if let Stand::Parked(gate) = from {
            self.gate_changed(gate);
        }
    }

    pub(crate) fn candidate(&self, ix: FlowIx) -> Candidate {
        let flow = &self.flows[ix];
        let standing = self.agents[flow.agent].standing;
        Candidate { tier: flow.key.tier, standing, agent: flow.agent, spot: flow.spot, flow: ix }
    }

    fn lower_age(&mut self, ix: FlowIx, since_ms: SteadyMs) {
        if since_ms < self.flows[ix].age {
            self.set_age(ix, since_ms);
        }
    }

    pub(crate) fn set_age(&mut self, ix: FlowIx, to: SteadyMs) {
        let flow = &mut self.flows[ix];
        let from = std::mem::replace(&mut flow.age, to);
        match flow.stand {
            Stand::Nowhere => {}
            Stand::Ready => self.ready.set_age(ix, from, to),
            Stand::Parked(gate) => self.gates[gate].line.set_age(ix, from, to),
        }
    }

    /// The queued task of this flow that was submitted first; `None` when memory does not know it.
    pub(crate) fn oldest_of(&self, ix: FlowIx) -> Option<TaskId> {
        let flow = &self.flows[ix];
        if !flow.is_complete() {
            return flow.oldest.filter(|_| flow.oldest_known);
        }
        let (first, id) = flow.window.first()?;
        let (last, _) = flow.window.last()?;
        // Inside one rank the window is in submit order already.
        if first.rank == last.rank {
            return Some(id);
        }
        flow.window.iter().min_by_key(|(spot, _)| spot.seq).map(|(_, id)| id)
    }

    /// Moves the agent in every line it stands in.
    pub(crate) fn agent_moves(&mut self, ix: AgentIx, to: Standing) {
        let agent = &mut self.agents[ix];
        let from = std::mem::replace(&mut agent.standing, to);
        if from == to {
            return;
        }
        for &(stand, tier) in &agent.stands {
            match stand {
                Stand::Ready => self.ready.agent_moved(tier, ix, from, to),
                Stand::Parked(gate) => self.gates[gate].line.agent_moved(tier, ix, from, to),
                Stand::Nowhere => {}
            }
        }
    }

    pub(crate) fn agent_load(&self, ix: AgentIx) -> u64 {
        let agent = &self.agents[ix];
        u64::from(self.gates[agent.gate].n_used()) * 1_000_000 / u64::from(agent.weight)
    }

    /// Keeps `open` true: gates that are open and have someone parked.
    pub(crate) fn gate_changed(&mut self, ix: GateIx) {
        let now_ms = self.meta.now.steady_ms;
        let gate = &self.gates[ix];
        if gate.is_open(now_ms) && !gate.line.is_empty() {
            self.open.insert(ix);
        } else {
            self.open.remove(&ix);
        }
    }

    /// Flows with slots kept at this gate that are parked anywhere get another look.
    pub(crate) fn wake_keepers(&mut self, gate: GateIx) {
        let keepers: Vec<FlowIx> = self.gates[gate].kept.keys().copied().collect();
        for ix in keepers {
            // One whose head is just leaving is stood anew by whoever takes it out.
            if matches!(self.flows[ix].stand, Stand::Parked(_)) && !self.flows[ix].window.is_empty() {
                self.stand(ix, Stand::Ready);
            }
        }
    }

    /// Gives up preemption's kept slots beyond `n`.
    pub(crate) fn drop_keeps(&mut self, ix: FlowIx, n: u32) {
        while self.flows[ix].n_keeps > n {
            self.flows[ix].n_keeps -= 1;
            let gates = self.flows[ix].keeps.pop_back().expect("each keep knows its gates");
            for gate in gates {
                self.gates[gate].unkeep(ix);
                self.gate_changed(gate);
                // Free for others who keep here, though not for everyone.
                self.wake_keepers(gate);
            }
        }
        if n == 0 {
            self.unreserve(ix);
        }
    }

    /// Workers kept for this flow are free for everyone again.
    pub(crate) fn unreserve(&mut self, ix: FlowIx) {
        if self.fleet.unkeep(ix) {
            self.room_changed();
        }
    }

    /// A task of this flow came to the worker or left it. One that reserves nothing leaves everyone's room as it was.
    pub(crate) fn room_used(&mut self, worker: WorkerId, flow: FlowIx) {
        let counts_heads = self.fleet.workers.get(&worker).is_some_and(|worker| worker.heads_max().is_some());
        if counts_heads || !is_nothing(&self.flows[flow].key.shape.resources) {
            self.room_changed();
        }
    }

    /// Something about workers changed. Looked at once, at the next dispatch, however often it changes before.
    pub(crate) fn room_changed(&mut self) {
        self.room_dirty = true;
    }

    /// Which of the shapes that somebody waits for find room now? A start only takes room away, and whoever then finds
    /// none is parked again; so this is asked after releases, not after starts.
    pub(crate) fn look_for_room(&mut self) {
        if !std::mem::take(&mut self.room_dirty) {
            return;
        }
        let now_ms = self.meta.now.steady_ms;
        let first = self.gate_by_key.range(GateKey::Named(Name::new("\u{10FFFF}"))..);
        let gates: Vec<GateIx> = first.map(|(_, &ix)| ix).filter(|&ix| !self.gates[ix].line.is_empty()).collect();
        for ix in gates {
            self.gates[ix].has_room = self.fleet.has_room(now_ms, self.gates[ix].wanted_shape(), None);
            self.gate_changed(ix);
        }
        for ix in self.fleet.keepers() {
            if matches!(self.flows[ix].stand, Stand::Parked(_)) {
                // Another look ends no wait: it is still the same one if there is no room.
                let since = self.flows[ix].worker_since;
                self.stand(ix, Stand::Ready);
                self.flows[ix].worker_since = since;
            }
        }
    }

    pub(crate) fn tier_of(&self, ix: FlowIx) -> Tier {
        self.flows[ix].key.tier
    }
}

impl Flow {
    /// Memory holds the whole queue, not only its head.
    pub fn is_complete(&self) -> bool {
        self.window.len() as u64 == self.n_queued
    }
}

/// A lane that is not configured is the main one.
pub fn lane_in_force(config: &Config, lane: &Name) -> Name {
    if config.lanes.contains_key(lane) { lane.clone() } else { Name::new(LANE_MAIN) }
}
