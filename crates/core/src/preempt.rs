//! A critical task with no free slot may take one, only if ending its victims opens every gate that is closed to it.
//! Victims hold that gate, are preemptible and of a lower tier: lowest tier first, then latest start. The slots so freed
//! are kept for the preemptor.

use std::collections::BTreeSet;

use crate::core::Core;
use crate::event::Command;
use crate::fleet::{fits, subtract};
use crate::gate::GateKey;
use crate::ids::{TaskId, WorkerId};
use crate::now::Now;
use crate::planted::Bug;
use crate::slab::{FlowIx, GateIx};
use crate::task::{Stop, Tier};

/// Holders looked at for one gate before preemption gives up.
const HOLDERS_LOOKED_AT: usize = 256;

/// Keeps made in one call. The flow is looked at again when a victim has ended, and goes on from there.
const PLANS_PER_CALL: usize = 32;

/// What would have to end, and where room would come from.
#[derive(Default)]
struct Plan {
    victims: BTreeSet<TaskId>,
    gates: Vec<GateIx>,
    worker: Option<WorkerId>,
}

impl Core {
    /// Makes room for as many waiting tasks of this critical flow as it can, one keep for each.
    pub(crate) fn preempt(&mut self, now: Now, ix: FlowIx, out: &mut Vec<Command>) {
        for _ in 0..PLANS_PER_CALL {
            if u64::from(self.flows[ix].n_keeps) >= self.flows[ix].n_queued {
                return;
            }
            let Some(mut plan) = self.plan(now, ix) else { return };
            if self.has_bug(Bug::KeepForgotten) {
                plan = Plan { victims: plan.victims, ..Plan::default() };
            }
            for &gate in &plan.gates {
                self.gates[gate].keep(ix);
                self.gate_changed(gate);
            }
            self.flows[ix].n_keeps += 1;
            self.flows[ix].keeps.push_back(plan.gates);
            if let Some(worker) = plan.worker {
                self.fleet.keep(worker, ix);
                self.room_changed();
            }
            for victim in plan.victims {
                self.ask_stop(now, victim, Stop::Preempted, out);
            }
        }
    }

    fn plan(&self, now: Now, ix: FlowIx) -> Option<Plan> {
        let mut plan = Plan::default();
        let flow = &self.flows[ix];
        // The narrowest gates first: who holds one of those holds the wide ones too, and one victim is enough for all.
        for &gate in flow.gates.iter().rev() {
            if let GateKey::Worker(_) = self.gates[gate].key {
                continue;
            }
            if !self.gates[gate].is_open_but_slots(now.steady_ms) {
                return None;
            }
            if self.gates[gate].limit.is_some() {
                self.plan_slot(gate, &mut plan)?;
                plan.gates.push(gate);
            }
        }
        self.plan_room(now, ix, &mut plan)?;
        // Nothing to end and nothing closed: it is not preemption that this flow waits for.
        (!plan.victims.is_empty()).then_some(plan)
    }

    /// Enough victims among the gate's holders that one slot is free beyond what is already promised.
    fn plan_slot(&self, ix: GateIx, plan: &mut Plan) -> Option<()> {
        let gate = &self.gates[ix];
        let limit = gate.limit.expect("asked only for a gate with a limit");
        if limit == 0 {
            return None;
        }
        let already = plan.victims.iter().filter(|victim| self.entry(**victim).gates.contains(&ix)).count() as u32;
        let promised = gate.n_used() - gate.n_stopping + gate.n_kept();
        let mut missing = (promised + 1).saturating_sub(limit.saturating_add(already));
        for holder in gate.holders.iter().take(HOLDERS_LOOKED_AT) {
            if missing == 0 {
                break;
            }
            if self.may_be_victim(holder) && plan.victims.insert(holder) {
                missing -= 1;
            }
        }
        (missing == 0).then_some(())
    }

    fn may_be_victim(&self, id: TaskId) -> bool {
        let task = &self.entry(id).task;
        task.policy.preemptible
            && task.stop().is_none()
            && task.n_preempted < self.config.preempted_max
            && self.tier_of(self.flow_of(task)) > Tier::Critical
    }

    /// A worker on which the shape fits once the victims so far, and if need be more of its own, are gone.
    fn plan_room(&self, now: Now, ix: FlowIx, plan: &mut Plan) -> Option<()> {
        let shape = &self.flows[ix].key.shape;
        for worker in self.fleet.workers.values() {
            if worker.unfit_ever(shape).is_some()
                || worker.is_closed_to(now.steady_ms, shape, self.fleet.rules())
                || worker.kept_for.is_some_and(|flow| flow != ix)
            {
                continue;
            }
            let mut used = worker.reserved.clone();
            let mut n_held = worker.held.len();
            let mut victims = plan.victims.clone();
            let mut holders: Vec<_> = worker.leases().map(|id| self.holder_of(id)).collect();
            holders.sort();
            let has_room = |used: &_, n_held: usize| {
                fits(&worker.spec.capacity, used, &shape.resources)
                    && worker.heads_max().is_none_or(|max| n_held < max as usize)
            };
            // What is ending anyway, or was chosen at a gate, is as good as gone.
            for holder in holders.iter().filter(|h| plan.victims.contains(&h.task) || self.is_stopping(h.task)) {
                subtract(&mut used, &self.resources_of(holder.task));
                n_held -= 1;
            }
            for holder in holders.iter().take(HOLDERS_LOOKED_AT) {
                if has_room(&used, n_held) {
                    break;
                }
                if self.may_be_victim(holder.task) && victims.insert(holder.task) {
                    subtract(&mut used, &self.resources_of(holder.task));
                    n_held -= 1;
                }
            }
            if has_room(&used, n_held) {
                let needs_keep = victims.len() > plan.victims.len();
                plan.victims = victims;
                plan.worker = needs_keep.then_some(worker.spec.id);
                return Some(());
            }
        }
        None
    }

    fn is_stopping(&self, id: TaskId) -> bool {
        self.entry(id).task.stop().is_some()
    }

    fn holder_of(&self, id: TaskId) -> crate::gate::Holder {
        let task = &self.entry(id).task;
        let lease = task.state.lease().expect("what a worker holds has a lease");
        self.holder(id, self.flow_of(task), *lease)
    }

    fn resources_of(&self, id: TaskId) -> crate::flow::Resources {
        self.flows[self.flow_of(&self.entry(id).task)].key.shape.resources.clone()
    }
}
