//! Why does this task wait? The answer is the list of its gates, each open or closed right now, and its place.

use std::collections::BTreeMap;

use crate::core::Core;
use crate::flow::Shape;
use crate::gate::{Gate, GateKey};
use crate::ids::TaskId;
use crate::now::{Now, SteadyMs, WallMs};
use crate::session::Member;
use crate::slab::{FlowIx, GateIx};
use crate::submit::uuid_text;
use crate::task::{Delay, Phase, State, Task, Text, Wait};

/// At most so many holders are named for one gate.
pub const HOLDERS_MAX: usize = 20;

#[derive(Clone, PartialEq, Debug)]
pub struct Explanation {
    pub task: TaskId,
    pub phase: Phase,
    pub reason: Text,
    /// In the order they are checked; data gates (dependencies, time, session, batch) first.
    pub gates: Vec<GateView>,
    /// Its place in its flow; only while it is queued. Counted by the loop, because memory holds only the head.
    pub ahead: Option<Ahead>,
    /// The task that would be served next over all flows, if one could start.
    pub next: Option<TaskId>,
}

impl Explanation {
    pub fn closed(&self) -> impl Iterator<Item = &GateView> {
        self.gates.iter().filter(|gate| !gate.open)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ahead {
    pub n: u32,
    /// Counting stopped here: there may be more.
    pub at_least: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub struct GateView {
    /// `global`, `agent`, `lane`, `kind`, `gate`, `worker`, `dependencies`, `time`, `session`, `batch`.
    pub kind: &'static str,
    /// Which one: the agent's name, the lane in force, …
    pub name: Text,
    pub open: bool,
    pub current: Option<u64>,
    pub limit: Option<u64>,
    pub holders: Vec<TaskId>,
    pub since_ms: Option<WallMs>,
    pub opens_at_ms: Option<WallMs>,
    pub detail: Text,
}

impl Core {
    /// Every gate of this task, in order, as it is right now. `None` for a task that is not in memory.
    pub fn explain(&self, now: Now, id: TaskId) -> Option<Explanation> {
        let task = self.task(id)?;
        let phase = task.phase();
        let mut gates = Vec::new();
        let mut next = None;
        if phase.is_unstarted() {
            gates.extend(self.data_gates(now, task));
            let ix = self.flow_of(task);
            gates.extend(self.flows[ix].gates.iter().map(|&gate| self.gate_view(now, gate, ix)));
            next = self.closed_gate(now, ix).and_then(|gate| self.served_next(gate));
        }
        Some(Explanation { task: id, phase, reason: task.reason.clone(), gates, ahead: None, next })
    }

    /// The head of the flow that would be served first when this gate opens.
    fn served_next(&self, gate: GateIx) -> Option<TaskId> {
        let best = self.gates[gate].line.best()?;
        self.flows[best.flow].window.first().map(|(_, id)| id)
    }

    fn data_gates(&self, now: Now, task: &Task) -> Vec<GateView> {
        let mut views = Vec::new();
        let is_waiting = matches!(task.state, State::Waiting(Wait::Dependencies));
        if task.n_deps_open > 0 || is_waiting {
            views.push(GateView {
                open: task.n_deps_open == 0,
                current: Some(u64::from(task.n_deps_open)),
                limit: Some(0),
                since_ms: Some(task.created_at),
                opens_at_ms: None,
                detail: format!("{} of its parents did not complete yet", task.n_deps_open).into(),
                ..GateView::named("dependencies", Text::default())
            });
        }
        if let State::Scheduled(delay) = task.state {
            let opens_at_ms = match delay {
                Delay::Until(at) => at,
                Delay::Backoff(at) | Delay::Debounce(at) => now.wall_ms + at.saturating_sub(now.steady_ms),
            };
            let name = match delay {
                Delay::Until(_) => "not before",
                Delay::Backoff(_) => "backoff",
                Delay::Debounce(_) => "debounce",
            };
            let view = GateView::named("time", name.into());
            views.push(GateView { open: false, opens_at_ms: Some(opens_at_ms), detail: task.reason.clone(), ..view });
        }
        views.extend(task.member.map(|member| self.session_view(task, member)));
        if let Some(batch) = task.batch.and_then(|batch| self.batches.get(&batch)).map(|entry| &entry.batch)
            && let Some(limit) = batch.parallelism
        {
            views.push(GateView {
                open: task.has_place || batch.has_free_place(),
                current: Some(u64::from(batch.n_places)),
                limit: Some(u64::from(limit)),
                ..GateView::named("batch", uuid_text(batch.id.0).into())
            });
        }
        views
    }

    fn session_view(&self, task: &Task, member: Member) -> GateView {
        let entry = &self.sessions[&member.session];
        let (session, rules) = (&entry.session, self.session_rules(member.session));
        let n_free = session.n_free(&rules);
        let open = match task.state {
            _ if member.seated => true,
            State::Waiting(Wait::Seat) => false,
            // The last in line before those in front of it have left, or not even there yet.
            _ => n_free > session.n_line - u32::from(member.in_line()),
        };
        let holders: Vec<TaskId> = entry.held.values().take(HOLDERS_MAX).collect();
        let detail = match task.steers {
            _ if open => Text::default(),
            Some(target) => format!("handed to {} as input, which has not taken it yet", uuid_text(target.0)).into(),
            None if session.is_draining => "the interrupted run has not stopped yet".into(),
            None => format!("{} in line", session.n_line).into(),
        };
        GateView {
            open,
            current: Some(u64::from(session.n_seated)),
            limit: Some(u64::from(rules.max_concurrent)),
            since_ms: holders.iter().filter_map(|&id| self.task(id)?.assigned_at).min().filter(|_| !open),
            holders: if open { Vec::new() } else { holders },
            detail,
            ..GateView::named("session", session.key.to_string().into())
        }
    }

    fn gate_view(&self, now: Now, ix: GateIx, flow: FlowIx) -> GateView {
        let gate = &self.gates[ix];
        let (kind, name): (&'static str, Text) = match &gate.key {
            GateKey::Global => ("global", Text::default()),
            GateKey::Agent(name) => ("agent", name.to_string().into()),
            GateKey::Lane(name) => ("lane", name.to_string().into()),
            GateKey::Kind(name) => ("kind", name.to_string().into()),
            GateKey::Named(name) => ("gate", name.to_string().into()),
            GateKey::Worker(shape) => ("worker", shape.kind.to_string().into()),
        };
        let open = self.is_open_for(now, ix, flow);
        let rate_opens = gate.rate.as_ref().and_then(|rate| rate.opens_at(now.steady_ms));
        let holders: Vec<TaskId> = gate.holders.iter().take(HOLDERS_MAX).collect();
        let since_ms = holders.iter().filter_map(|&id| self.task(id)?.assigned_at).min().filter(|_| !open);
        GateView {
            open,
            current: Some(u64::from(gate.n_used())),
            limit: gate.limit.map(u64::from),
            holders: if open { Vec::new() } else { holders },
            since_ms,
            opens_at_ms: rate_opens
                .filter(|&at| at < SteadyMs::MAX)
                .map(|at| now.wall_ms + at.saturating_sub(now.steady_ms)),
            detail: self.gate_detail(now, gate, flow, open),
            ..GateView::named(kind, name)
        }
    }

    fn gate_detail(&self, now: Now, gate: &Gate, flow: FlowIx, open: bool) -> Text {
        if open {
            return Text::default();
        }
        if let Some(paused) = gate.paused {
            return paused.into();
        }
        if let GateKey::Worker(shape) = &gate.key {
            return self.worker_detail(now, shape, flow);
        }
        if gate.rate.as_ref().is_some_and(|rate| rate.opens_at(now.steady_ms).is_some()) {
            return "rate used up".into();
        }
        match gate.n_kept() {
            0 => "full".into(),
            n => format!("full, {n} kept for critical tasks").into(),
        }
    }

    /// Workers in groups by the reason they do not fit.
    fn worker_detail(&self, now: Now, shape: &Shape, flow: FlowIx) -> Text {
        if !self.fleet.workers.values().any(|worker| worker.spec.kinds.contains(&shape.kind)) {
            return format!("no worker offers kind {}", shape.kind).into();
        }
        let mut groups: BTreeMap<&'static str, u32> = BTreeMap::new();
        for worker in self.fleet.workers.values() {
            if let Some(unfit) = worker.unfit(now.steady_ms, shape, Some(flow), self.fleet.rules()) {
                *groups.entry(unfit.as_str()).or_default() += 1;
            }
        }
        let groups: Vec<String> = groups.into_iter().map(|(why, n)| format!("{n} {why}")).collect();
        groups.join(", ").into()
    }
}

impl GateView {
    fn named(kind: &'static str, name: Text) -> GateView {
        GateView {
            kind,
            name,
            open: true,
            current: None,
            limit: None,
            holders: Vec::new(),
            since_ms: None,
            opens_at_ms: None,
            detail: Text::default(),
        }
    }
}
