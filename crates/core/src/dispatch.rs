//! Who starts next. Flows that may start are candidates; the best one is tried; a closed gate parks it there; an open
//! way starts its head. A parked flow costs nothing until its gate opens.

use crate::core::{Core, Stand};
use crate::event::{Command, HappeningKind, Start};
use crate::fleet::Wanted;
use crate::gate::GateKey;
use crate::ids::{TaskId, WorkerId};
use crate::lifecycle::Why;
use crate::line::Candidate;
use crate::now::{Now, SteadyMs};
use crate::planted::Bug;
use crate::session::Member;
use crate::slab::{FlowIx, GateIx};
use crate::task::{Class, Lease, State, Tier};
use crate::timers::Timer;

/// Starts in one tick; more wait for the next, which follows at once.
const STARTS_PER_DISPATCH: usize = 4096;
/// Flows looked at in one tick, started or parked.
const LOOKS_PER_DISPATCH: usize = 16_384;
/// Aged flows looked at for one start: their recorded age may prove too old, or their tier still too low.
const AGED_LOOKS: usize = 16;

impl Core {
    pub(crate) fn dispatch(&mut self, now: Now, out: &mut Vec<Command>) {
        self.unfinished = false;
        self.send_inputs(out);
        self.plant_in_fleet();
        self.look_for_room();
        let mut n_starts = 0;
        for _ in 0..LOOKS_PER_DISPATCH {
            if n_starts == STARTS_PER_DISPATCH {
                self.unfinished = self.has_candidates();
                return;
            }
            let Some(flow) = self.aged_turn(now) else {
                let Some(best) = self.best() else { return };
                n_starts += usize::from(self.try_flow(now, best.flow, Turn::Head, out));
                continue;
            };
            n_starts += usize::from(self.try_flow(now, flow, Turn::Aged, out));
        }
        self.unfinished = self.has_candidates();
    }

    fn plant_in_fleet(&mut self) {
        let mut rules = self.config.placement;
        if self.has_bug(Bug::GuardIgnored) {
            rules.cpu_usage_milli_max = u32::MAX;
        } else if self.has_bug(Bug::ScoreIgnored) {
            (rules.cpu_usage_weight, rules.reserved_cpu_weight, rules.reserved_ram_weight) = (0, 0, 0);
        } else {
            return;
        }
        if rules != *self.fleet.rules() {
            self.fleet.set_rules(rules);
        }
    }

    /// The best over the ready flows and those parked at gates that are open.
    pub(crate) fn best(&self) -> Option<Candidate> {
        let parked = self.open.iter().filter_map(|&gate| self.gates[gate].line.best());
        self.ready.best().into_iter().chain(parked).min().copied()
    }

    /// One start in ten may go to the flow whose oldest task has waited longest, if its age lifts it at least as high as
    /// whoever would be served otherwise.
    fn aged_turn(&mut self, now: Now) -> Option<FlowIx> {
        if self.n_starts < self.n_starts_at_aged + u64::from(self.config.aged_one_in.max(1)) {
            return None;
        }
        let waits = self.longest_waits(now);
        if waits.is_empty() || self.has_bug(Bug::AgingDropped) {
            return None;
        }
        let best = self.best()?;
        for (age, flow) in waits {
            let Some(oldest) = self.oldest_of(flow) else {
                // Not known in memory: the next refill reads it. Until then the flow is served in its usual order.
                self.hungry.insert(flow);
                self.set_age(flow, now.steady_ms);
                continue;
            };
            let State::Queued { since_ms } = self.entry(oldest).task.state else {
                unreachable!("only queued tasks are in a queue")
            };
            if since_ms > age {
                self.set_age(flow, since_ms);
            }
            let is_aged = now.steady_ms.saturating_sub(since_ms) >= self.config.aging_ms;
            if is_aged && self.aged_tier(now, flow, since_ms) <= best.tier {
                return Some(flow);
            }
        }
        None
    }

    /// Flows that may have aged, longest wait first. Several, because the longest need not be lifted highest.
    fn longest_waits(&self, now: Now) -> Vec<(SteadyMs, FlowIx)> {
        let lines = self.open.iter().map(|&gate| &self.gates[gate].line).chain([&self.ready]);
        let is_aged = |(age, _): &(SteadyMs, FlowIx)| now.steady_ms.saturating_sub(*age) >= self.config.aging_ms;
        let mut waits: Vec<_> = lines.flat_map(|line| line.ages().take_while(is_aged).take(AGED_LOOKS)).collect();
        waits.sort_unstable();
        waits.truncate(AGED_LOOKS);
        waits
    }

    fn aged_tier(&self, now: Now, flow: FlowIx, since_ms: u64) -> Tier {
        let lifts = now.steady_ms.saturating_sub(since_ms) / self.config.aging_ms.max(1);
        let code = (self.tier_of(flow) as u8).saturating_sub(lifts.min(3) as u8);
        Tier::from_code(code).expect("a lifted tier is a tier")
    }

    /// Starts one task of the flow, or parks the flow at the gate that is closed to it. True when something started.
    fn try_flow(&mut self, now: Now, ix: FlowIx, turn: Turn, out: &mut Vec<Command>) -> bool {
        let head = match self.has_bug(Bug::RankIgnored) {
            true => self.flows[ix].window.iter().min_by_key(|(spot, _)| spot.seq),
            false => self.flows[ix].window.first(),
        };
        let head = head.map(|(_, id)| id);
        let task = match turn {
            Turn::Head => head,
            Turn::Aged => self.oldest_of(ix),
        };
        let task = task.expect("a flow in line has a head");
        let is_late = self.entry(task).task.deadline.is_some_and(|deadline| deadline <= now.wall_ms);
        if is_late && !self.has_bug(Bug::DeadlineNotCheckedAtPick) {
            self.fail(now, task, Class::Deadline, "deadline exceeded while queued", "deadline");
            return false;
        }
        if self.is_stopped(task) {
            self.stop_waiting(now, task);
            return false;
        }
        let worker = match self.way_to_a_worker(now, ix, task) {
            Ok(worker) => worker,
            Err(gate) => {
                self.park(now, ix, gate);
                if self.tier_of(ix) == Tier::Critical {
                    self.preempt(now, ix, out);
                }
                return false;
            }
        };
        if turn == Turn::Aged {
            self.n_starts_at_aged = self.n_starts;
        }
        self.start(now, ix, task, worker, out);
        true
    }

    /// Where the task goes, or the gate that is closed to it. The worker gate is the last on every way, and open when a
    /// place is found: both are one look.
    fn way_to_a_worker(&self, now: Now, ix: FlowIx, task: TaskId) -> Result<WorkerId, GateIx> {
        let flow = &self.flows[ix];
        let (&last, before) = flow.gates.split_last().expect("the worker gate is the last on every way");
        if let Some(&closed) = before.iter().find(|&&gate| !self.is_open_for(now, gate, ix)) {
            return Err(closed);
        }
        let wanted = Wanted {
            shape: self.gates[last].wanted_shape(),
            flow: Some(ix),
            avoid: if self.has_bug(Bug::FailedPlaceForgotten) { &[] } else { &self.entry(task).task.failed_on },
            beside: Some(&flow.beside),
        };
        self.fleet.place(now.steady_ms, wanted).ok_or(last)
    }

    /// The first gate on the flow's way that is closed to it.
    pub(crate) fn closed_gate(&self, now: Now, ix: FlowIx) -> Option<GateIx> {
        self.flows[ix].gates.iter().copied().find(|&gate| !self.is_open_for(now, gate, ix))
    }

    pub(crate) fn is_open_for(&self, now: Now, gate: GateIx, ix: FlowIx) -> bool {
        match &self.gates[gate].key {
            // Room is asked again with the flow in hand: a worker may be kept for it.
            GateKey::Worker(_) => self.fleet.has_room(now.steady_ms, self.gates[gate].wanted_shape(), Some(ix)),
            _ => self.gates[gate].is_open_for(ix, now.steady_ms),
        }
    }

    fn park(&mut self, now: Now, ix: FlowIx, gate: GateIx) {
        if matches!(self.gates[gate].key, GateKey::Worker(_)) {
            self.gates[gate].has_room = false;
        }
        self.stand(ix, Stand::Parked(gate));
        self.arm_rate(now, gate);
        if matches!(self.gates[gate].key, GateKey::Worker(_)) && self.flows[ix].worker_since.is_none() {
            self.flows[ix].worker_since = Some(now.steady_ms);
            self.timers.insert(now.steady_ms.saturating_add(RESERVE_AFTER_MS), Timer::Reserve(ix));
        } else if !matches!(self.gates[gate].key, GateKey::Worker(_)) && self.flows[ix].n_keeps == 0 {
            // Something other than room holds it back: a worker kept for it would stand idle.
            self.unreserve(ix);
        }
    }

    fn start(&mut self, now: Now, ix: FlowIx, id: TaskId, worker: WorkerId, out: &mut Vec<Command>) {
        let State::Queued { since_ms } = self.entry(id).task.state else {
            unreachable!("only queued tasks are in a queue")
        };
        let attempt = self.entry(id).task.attempt + 1;
        let token = self.token(id, attempt);
        self.n_starts += 1;
        let lease = Lease { worker, token, order: self.n_starts, since_ms: now.steady_ms, stop: None };
        let entry = self.entry_mut(id);
        entry.task.attempt = attempt;
        entry.task.worker = Some(worker);
        entry.task.started_at = None;
        entry.waited_ms = now.steady_ms.saturating_sub(since_ms);
        self.transition(now, id, State::Assigned(lease), Why::default());
        self.use_keep(ix);
        self.take_slot(id, ix, lease);
        self.take_rates(now, ix);
        self.delta(ix).started += 1;
        let agent = self.flows[ix].agent;
        let served = self.n_starts;
        self.agent_restands(agent, |standing| standing.served = served);
        let gates = self.flows[ix].gates.clone();
        for &gate in gates.iter() {
            self.gate_changed(gate);
            // Flows that stay parked here are not looked at again before the rate opens.
            self.arm_rate(now, gate);
        }
        self.set_timer(id, now.steady_ms.saturating_add(self.config.assign_timeout_ms));
        let entry = self.entry(id);
        let key = &self.flows[ix].key;
        let member = entry.task.member;
        out.push(Command::Start(Start {
            worker,
            task: id,
            seq: entry.task.seq,
            attempt,
            token,
            agent: key.agent.clone(),
            kind: key.shape.kind.clone(),
            deadline: entry.task.deadline,
            timeout_ms: entry.task.policy.timeout_ms,
            watch_silence: entry.task.policy.stall_ms.is_some(),
            spec: entry.spec.clone(),
            session: member.map(|member| self.sessions[&member.session].session.key.clone()),
            n_merged: member.map_or(0, |member| member.n_merged),
            told: member
                .filter(|member| member.told.0 < member.told.1)
                .map(|Member { session, told, .. }| (session, told.0, told.1)),
            merged: Vec::new(),
            dropped: Vec::new(),
        }));
    }

    fn take_rates(&mut self, now: Now, ix: FlowIx) {
        if self.has_bug(Bug::RateNotTaken) {
            return;
        }
        for &gate in self.flows[ix].gates.iter() {
            let gate = &mut self.gates[gate];
            if let (Some(rate), GateKey::Named(name)) = (&mut gate.rate, &gate.key) {
                rate.take(now.steady_ms);
                self.tick.rates_dirty.insert(name.clone());
            }
        }
    }

    /// The slot that was kept for this flow becomes the started task's own.
    fn use_keep(&mut self, ix: FlowIx) {
        if self.flows[ix].n_keeps == 0 {
            self.unreserve(ix);
            return;
        }
        self.flows[ix].n_keeps -= 1;
        let gates = self.flows[ix].keeps.pop_front().expect("each keep knows its gates");
        for gate in gates {
            self.gates[gate].unkeep(ix);
        }
        if self.flows[ix].n_keeps == 0 {
            self.unreserve(ix);
        }
    }

    /// A task that fits some worker but has waited long for room has that worker kept for it: small ones stop passing.
    pub(crate) fn reserve_worker(&mut self, now: Now, ix: FlowIx) {
        let flow = &self.flows[ix];
        let waited = flow.worker_since.is_some_and(|since| since + RESERVE_AFTER_MS <= now.steady_ms);
        if !waited || self.fleet.has_kept(ix) {
            return;
        }
        let shape = &flow.key.shape;
        let workers = self.fleet.workers.values();
        let free = workers
            .filter(|worker| worker.kept_for.is_none() && worker.unfit_ever(shape).is_none())
            .max_by_key(|worker| worker.spec.capacity.cpu_milli.saturating_sub(worker.reserved.cpu_milli));
        match free.map(|worker| worker.spec.id) {
            Some(worker) => {
                self.fleet.keep(worker, ix);
                self.room_changed();
            }
            // Every worker that would do is kept for another: it asks again.
            None => {
                self.timers.insert(now.steady_ms.saturating_add(RESERVE_AFTER_MS), Timer::Reserve(ix));
            }
        }
    }

    /// Its own event, before the one that says it is queued again.
    pub(crate) fn tell_preempted(&mut self, now: Now, id: TaskId, ix: FlowIx) {
        self.tell_one(now, HappeningKind::TaskPreempted, id, ix, Why::default(), None);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Head,
    Aged,
}

/// So long a task waits for a worker that is big enough before small ones stop passing it.
const RESERVE_AFTER_MS: u64 = 30_000;
