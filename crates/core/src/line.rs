//! Service order: who is next among the flows that stand in one place (ready, or parked at one gate).
//!
//! Tier first; inside a tier the agent with the fewest running tasks per weight, then least service, then least
//! recently served; inside the agent rank, then submit order. Agents move when they start or end something, so a line
//! keeps agents and, under each, its flows.

use std::collections::{BTreeMap, BTreeSet};

use crate::now::SteadyMs;
use crate::slab::{AgentIx, FlowIx};
use crate::task::Tier;

/// What an agent is compared by; smaller is served first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Standing {
    /// Running tasks per weight, in millionths.
    pub load: u64,
    /// Worker-milliseconds used since it was last idle.
    pub service_ms: u64,
    /// The start counter at its latest start.
    pub served: u64,
}

/// Where in a line a flow stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Spot {
    pub rank: i32,
    pub seq: u64,
}

/// A flow with all it is compared by, across lines.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Candidate {
    pub tier: Tier,
    pub standing: Standing,
    pub agent: AgentIx,
    pub spot: Spot,
    pub flow: FlowIx,
}

#[derive(Debug, Default)]
pub(crate) struct Line {
    agents: [BTreeSet<(Standing, AgentIx)>; 4],
    flows: BTreeMap<(Tier, AgentIx), BTreeSet<(Spot, FlowIx)>>,
    /// By the moment the flow's oldest task was queued: a lower bound, made exact when it is looked at.
    ages: BTreeSet<(SteadyMs, FlowIx)>,
    /// Who would be served first. Every start asks every line that is open, and few lines change in between.
    first: Option<Candidate>,
}

/// Did the agent come to, or leave, this tier of the line?
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Membership {
    Same,
    Changed,
}

impl Line {
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    pub fn len(&self) -> usize {
        self.flows.values().map(BTreeSet::len).sum()
    }

    pub fn holds(&self, c: Candidate, age: SteadyMs) -> bool {
        let flows = self.flows.get(&(c.tier, c.agent));
        flows.is_some_and(|flows| flows.contains(&(c.spot, c.flow)))
            && self.agents[c.tier as usize].contains(&(c.standing, c.agent))
            && self.ages.contains(&(age, c.flow))
    }

    pub fn insert(&mut self, c: Candidate, age: SteadyMs) -> Membership {
        self.ages.insert((age, c.flow));
        self.first = self.first.into_iter().chain([c]).min();
        let flows = self.flows.entry((c.tier, c.agent)).or_default();
        flows.insert((c.spot, c.flow));
        if flows.len() > 1 {
            return Membership::Same;
        }
        self.agents[c.tier as usize].insert((c.standing, c.agent));
        Membership::Changed
    }

    pub fn remove(&mut self, c: Candidate, age: SteadyMs) -> Membership {
        let known = self.ages.remove(&(age, c.flow));
        debug_assert!(known, "a flow stands under the age it was entered with");
        let flows = self.flows.get_mut(&(c.tier, c.agent)).expect("a flow's agent is in its line");
        let known = flows.remove(&(c.spot, c.flow));
        assert!(known, "flow {:?} stands at {:?}", c.flow, c.spot);
        let is_last = flows.is_empty();
        if is_last {
            self.flows.remove(&(c.tier, c.agent));
            self.agents[c.tier as usize].remove(&(c.standing, c.agent));
        }
        if self.first == Some(c) {
            self.first = self.find_first();
        }
        if is_last { Membership::Changed } else { Membership::Same }
    }

    pub fn agent_moved(&mut self, tier: Tier, agent: AgentIx, from: Standing, to: Standing) {
        let agents = &mut self.agents[tier as usize];
        let known = agents.remove(&(from, agent));
        assert!(known, "agent {agent:?} stands at {from:?}");
        agents.insert((to, agent));
        let leads = agents.first() == Some(&(to, agent));
        match &mut self.first {
            // The usual case: whoever was first stays it.
            Some(first) if (first.tier, first.agent) == (tier, agent) && leads => first.standing = to,
            Some(first) if first.agent != agent && (first.tier, first.standing, first.agent) < (tier, to, agent) => {}
            _ => self.first = self.find_first(),
        }
    }

    pub fn set_age(&mut self, flow: FlowIx, from: SteadyMs, to: SteadyMs) {
        if self.ages.remove(&(from, flow)) {
            self.ages.insert((to, flow));
        }
    }

    pub fn best(&self) -> Option<&Candidate> {
        debug_assert_eq!(self.first, self.find_first());
        self.first.as_ref()
    }

    fn find_first(&self) -> Option<Candidate> {
        Tier::ALL.into_iter().find_map(|tier| {
            let &(standing, agent) = self.agents[tier as usize].first()?;
            let &(spot, flow) = self.flows[&(tier, agent)].first()?;
            Some(Candidate { tier, standing, agent, spot, flow })
        })
    }

    pub fn flows(&self) -> impl Iterator<Item = FlowIx> + '_ {
        self.flows.values().flatten().map(|(_, flow)| *flow)
    }

    /// Longest wait first.
    pub fn ages(&self) -> impl Iterator<Item = (SteadyMs, FlowIx)> + '_ {
        self.ages.iter().copied()
    }
}
