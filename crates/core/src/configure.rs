//! New limits: gates are set anew and flows rewired; no row is touched. A lowered limit stops new starts and drains.

use std::sync::Arc;

use crate::config::Config;
use crate::core::{Core, Stand, answer};
use crate::event::{Answer, Command, HappeningKind, Release, Subject};
use crate::flows::lane_in_force;
use crate::gate::GateKey;
use crate::ids::Ticket;
use crate::now::Now;
use crate::session::SessionId;
use crate::slab::FlowIx;

impl Core {
    pub(crate) fn on_configure(
        &mut self,
        now: Now,
        ticket: Option<Ticket>,
        config: Arc<Config>,
        out: &mut Vec<Command>,
    ) {
        let old = std::mem::replace(&mut self.config, config);
        if old.sessions != self.config.sessions {
            self.review_sessions();
            self.review_new_sessions();
        }
        for ix in self.flows.indices() {
            self.rewire(ix);
        }
        for ix in self.gates.indices() {
            self.gate_configure(ix);
            self.gate_changed(ix);
            self.arm_rate(now, ix);
            self.wake_keepers(ix);
        }
        if old.placement != self.config.placement {
            self.fleet.set_rules(self.config.placement);
        }
        let patience = |config: &Config| (config.worker_offline_ms, config.worker_forget_ms);
        if patience(&old) != patience(&self.config) {
            self.rewatch_workers(now);
        }
        // A flow with a worker kept for it gets another look: it may be held back by something else now.
        self.room_changed();
        for ix in self.agents.indices() {
            let weight = self.config.agents.get(&self.agents[ix].name).map_or(1, |agent| agent.weight.max(1));
            self.agents[ix].weight = weight;
            self.agent_restands(ix, |_| {});
        }
        self.happen(now, HappeningKind::ConfigChanged, Subject::Config);
        if let Some(ticket) = ticket {
            answer(out, ticket, Answer::Done);
        }
    }

    /// The rules may have changed and the note of that was lost with a failed commit: every session is looked at again.
    pub fn review_sessions(&mut self) {
        self.add_release(Release::SessionReview { after: SessionId(0) });
    }

    /// Those of this very tick are not in the store, where the review finds all others.
    fn review_new_sessions(&mut self) {
        let mut new = self.tick.touched_sessions.clone();
        new.retain(|id| self.sessions[id].is_new);
        new.into_iter().for_each(|id| self.review(id));
    }

    /// Only a lane that came or went changes a flow's way.
    fn rewire(&mut self, ix: FlowIx) {
        let flow = &self.flows[ix];
        let lane = lane_in_force(&self.config, &flow.key.lane);
        let is_same = flow.gates.iter().any(|&gate| self.gates[gate].key == GateKey::Lane(lane.clone()));
        if is_same {
            return;
        }
        if flow.stand != Stand::Nowhere {
            self.stand(ix, Stand::Ready);
        }
        self.unwire(ix);
        self.wire(ix);
    }
}
