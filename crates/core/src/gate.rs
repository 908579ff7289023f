//! Anything of limited capacity that can hold a task back. Every gate can say its name, its limit and who holds it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::config::GateConfig;
use crate::flow::Shape;
use crate::holders::Holders;
use crate::ids::TaskId;
use crate::line::Line;
use crate::name::Name;
use crate::now::SteadyMs;
use crate::slab::{FlowIx, ShapeIx};
use crate::task::Tier;

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum GateKey {
    Global,
    Agent(Name),
    Lane(Name),
    Kind(Name),
    Named(Name),
    /// Some worker has room for this shape.
    Worker(Box<Shape>),
}

/// A task that holds something, in the order victims are taken: lowest tier, then latest start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Holder {
    pub tier: Reverse<Tier>,
    pub order: Reverse<u64>,
    pub task: TaskId,
}

#[derive(Debug)]
pub(crate) struct Gate {
    pub key: GateKey,
    pub limit: Option<u32>,
    /// Closed by hand; the text says by what.
    pub paused: Option<&'static str>,
    pub rate: Option<Rate>,
    /// A worker gate is closed when no worker has room; the fleet says so.
    pub has_room: bool,
    /// Live leases. Their number *is* what is in use.
    pub holders: Holders,
    /// How many of the holders were already asked to stop.
    pub n_stopping: u32,
    /// Slots kept for flows that preempted for them.
    pub kept: BTreeMap<FlowIx, u32>,
    /// Flows parked here.
    pub line: Line,
    /// Flows that pass this gate at all; a gate nobody passes is dropped.
    pub n_flows: u32,
    /// How the fleet knows the shape of a worker gate.
    pub shape: Option<ShapeIx>,
}

impl Gate {
    pub fn new(key: GateKey) -> Gate {
        Gate {
            key,
            limit: None,
            paused: None,
            rate: None,
            has_room: true,
            holders: Holders::default(),
            n_stopping: 0,
            kept: BTreeMap::new(),
            line: Line::default(),
            n_flows: 0,
            shape: None,
        }
    }

    /// What a worker gate asks the fleet for.
    pub fn wanted_shape(&self) -> ShapeIx {
        self.shape.expect("a worker gate's shape is known to the fleet")
    }

    pub fn n_used(&self) -> u32 {
        self.holders.len() as u32
    }

    pub fn n_kept(&self) -> u32 {
        self.kept.values().sum()
    }

    /// Open for a flow that has nothing kept here.
    pub fn is_open(&self, now_ms: SteadyMs) -> bool {
        self.is_open_but_slots(now_ms) && self.has_slot(self.n_kept())
    }

    pub fn is_open_for(&self, flow: FlowIx, now_ms: SteadyMs) -> bool {
        let kept_for_others = self.n_kept() - self.kept.get(&flow).copied().unwrap_or(0);
        self.is_open_but_slots(now_ms) && self.has_slot(kept_for_others)
    }

    /// Nothing but a free slot is missing, so ending a holder would open it.
    pub fn is_open_but_slots(&self, now_ms: SteadyMs) -> bool {
        self.paused.is_none() && self.has_room && self.rate.as_ref().is_none_or(|rate| rate.opens_at(now_ms).is_none())
    }

    fn has_slot(&self, n_kept: u32) -> bool {
        self.limit.is_none_or(|limit| self.n_used() + n_kept < limit)
    }

    pub fn keep(&mut self, flow: FlowIx) {
        *self.kept.entry(flow).or_default() += 1;
    }

    /// Gives one kept slot back; a flow without one has nothing to give.
    pub fn unkeep(&mut self, flow: FlowIx) {
        if let Some(n) = self.kept.get_mut(&flow) {
            *n -= 1;
            if *n == 0 {
                self.kept.remove(&flow);
            }
        }
    }
}

/// Starts per minute with a burst, as one number: the moment at which the bucket is full again (GCRA).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Rate {
    interval_us: u64,
    burst: u64,
    full_at_us: u64,
}

impl Rate {
    pub fn new(config: &GateConfig, state: u64) -> Option<Rate> {
        let per_minute = u64::from(config.per_minute?);
        // 0 a minute never opens; an interval beyond any uptime says the same.
        let interval_us = 60_000_000u64.checked_div(per_minute).unwrap_or(u64::MAX / 4);
        Some(Rate { interval_us, burst: u64::from(config.burst.max(1)), full_at_us: state })
    }

    pub fn state(&self) -> u64 {
        self.full_at_us
    }

    pub fn take(&mut self, now_ms: SteadyMs) {
        self.full_at_us = self.full_at_us.max(now_ms * 1000).saturating_add(self.interval_us);
    }

    /// `None` when one may start now.
    pub fn opens_at(&self, now_ms: SteadyMs) -> Option<SteadyMs> {
        if self.interval_us == u64::MAX / 4 {
            return Some(SteadyMs::MAX);
        }
        let room_us = (self.burst - 1).saturating_mul(self.interval_us);
        let at_ms = self.full_at_us.saturating_sub(room_us).div_ceil(1000);
        (at_ms > now_ms).then_some(at_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(per_minute: u32, burst: u32) -> Rate {
        Rate::new(&GateConfig { inflight_max: None, per_minute: Some(per_minute), burst }, 0).expect("a rate is set")
    }

    #[test]
    fn a_burst_may_start_at_once_and_then_one_an_interval() {
        let mut rate = rate(60, 3);
        for _ in 0..3 {
            assert_eq!(rate.opens_at(10_000), None);
            rate.take(10_000);
        }
        assert_eq!(rate.opens_at(10_000), Some(11_000));
        assert_eq!(rate.opens_at(11_000), None);
        rate.take(11_000);
        assert_eq!(rate.opens_at(11_000), Some(12_000));
    }

    #[test]
    fn a_rate_of_zero_never_opens() {
        assert_eq!(rate(0, 1).opens_at(u64::from(u32::MAX)), Some(SteadyMs::MAX));
    }
}
