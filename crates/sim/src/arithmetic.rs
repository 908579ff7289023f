//! The oracle's own arithmetic of gates: who holds what, what is closed to whom, what may not have started.

use std::collections::BTreeMap;

use runyard_core::event::Admit;
use runyard_core::explain::Explanation;
use runyard_core::flow::{FlowKey, Resources, Shape};
use runyard_core::ids::{TaskId, WorkerId};
use runyard_core::name::Name;
use runyard_core::sanity::{Keep, KeptAt};
use runyard_core::task::{Delay, Lease, Phase, State, Task, Tier, Wait};

use crate::oracle::{Applied, Oracle, WorkerShadow, lane_of};

/// Who holds what, counted from the leases.
#[derive(Default)]
pub struct Usage {
    n_held: u32,
    agents: BTreeMap<Name, u32>,
    lanes: BTreeMap<Name, u32>,
    kinds: BTreeMap<Name, u32>,
    gates: BTreeMap<Name, u32>,
    pub(crate) workers: BTreeMap<WorkerId, Load>,
}

#[derive(Default)]
pub(crate) struct Load {
    pub n_held: u32,
    pub reserved: Resources,
}

/// A gate by its kind and its name, as `explain` calls it.
pub type GateName = (&'static str, String);

impl Oracle {
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for (id, lane) in &self.held {
            let task = &self.rows[id];
            let key = self.key_of(task);
            usage.n_held += 1;
            *usage.agents.entry(key.agent.clone()).or_default() += 1;
            *usage.lanes.entry(lane.clone()).or_default() += 1;
            *usage.kinds.entry(key.shape.kind.clone()).or_default() += 1;
            for gate in &key.gates {
                *usage.gates.entry(gate.clone()).or_default() += 1;
            }
            let worker = task.state.lease().expect("held rows have leases").worker;
            let load = usage.workers.entry(worker).or_default();
            load.n_held += 1;
            add(&mut load.reserved, &key.shape.resources);
        }
        usage
    }

    fn agent_limit(&self, agent: &Name) -> Option<u32> {
        let own = self.config.agents.get(agent).and_then(|agent| agent.inflight_max);
        own.or(self.config.inflight_per_agent_max)
    }

    // ── After a commit ──────────────────────────────────────────────────────────────────────────────────────────

    /// Limits at this instant: within a tick ends come before starts, so a gate where something started is not over its
    /// limit afterwards. One that was lowered under what it holds drains and starts nothing.
    pub fn check_limits(&self, started: &[TaskId]) {
        if started.is_empty() {
            return;
        }
        let usage = self.usage();
        let config = &self.config;
        let check = |what: &str, name: &str, used: Option<&u32>, limit: Option<u32>| {
            let used = used.copied().unwrap_or(0);
            assert!(limit.is_none_or(|limit| used <= limit), "{what} {name} holds {used} of {limit:?}");
        };
        for id in started {
            let task = &self.rows[id];
            let key = self.key_of(task);
            check("global", "", Some(&usage.n_held), Some(config.inflight_max));
            check("agent", &key.agent, usage.agents.get(&key.agent), self.agent_limit(&key.agent));
            let lane = &self.held[id];
            check("lane", lane, usage.lanes.get(lane), config.lanes.get(lane).map(|lane| lane.limit));
            let kind = &key.shape.kind;
            check("kind", kind, usage.kinds.get(kind), config.kinds.get(kind).copied());
            for gate in &key.gates {
                let limit = config.gates.get(gate).and_then(|gate| gate.inflight_max);
                check("gate", gate, usage.gates.get(gate), limit);
            }
            let lease = task.state.lease().expect("a started task has a lease");
            self.check_room(&usage, key, lease);
            assert!(self.admit == Admit::Open, "{id:?} started while nothing may start");
            let paused = config.agents.get(&key.agent).is_some_and(|agent| agent.paused)
                || config.lanes.get(lane).is_some_and(|lane| lane.paused);
            assert!(!paused, "{id:?} started while its agent or lane is paused");
        }
    }

    fn check_room(&self, usage: &Usage, key: &FlowKey, lease: &Lease) {
        assert!(self.workers.contains_key(&lease.worker), "a task starts on a worker that is there");
        let load = &usage.workers[&lease.worker];
        let before = Load { n_held: load.n_held - 1, reserved: minus(&load.reserved, &key.shape.resources) };
        let own_mb = key.shape.resources.ram_mb;
        let unfit = self.unfit_with(lease.worker, &key.shape, &before, own_mb);
        assert_eq!(unfit, None, "a start on {:?}", lease.worker);
    }

    /// Starts take from rates, one after the other.
    pub fn take_rates(&mut self, started: &[TaskId]) {
        let now_us = self.now.steady_ms * 1000;
        for id in started {
            for gate in self.key_of(&self.rows[id]).gates.clone() {
                let Some((interval_us, room_us)) = self.rate(&gate) else { continue };
                let full_us = self.rates.entry(gate.clone()).or_default();
                assert!(
                    *full_us <= now_us.saturating_add(room_us),
                    "{id:?} started while the rate of {gate} was used up"
                );
                *full_us = (*full_us).max(now_us) + interval_us;
            }
        }
    }

    /// The interval between starts and how far a burst may run ahead, in µs. A rate of 0 has no interval.
    fn rate(&self, gate: &Name) -> Option<(u64, u64)> {
        let config = self.config.gates.get(gate)?;
        let interval_us = match config.per_minute? {
            0 => return Some((0, 0)),
            n => 60_000_000 / u64::from(n),
        };
        Some((interval_us, u64::from(config.burst.max(1) - 1) * interval_us))
    }

    fn rate_is_closed(&self, gate: &Name) -> bool {
        let is_zero = self.config.gates.get(gate).is_some_and(|gate| gate.per_minute == Some(0));
        let Some((_, room_us)) = self.rate(gate) else { return false };
        let full_us = self.rates.get(gate).copied().unwrap_or(0);
        is_zero || full_us > self.now.steady_ms * 1000 + room_us
    }

    /// Inside a flow the lowest rank goes first, then submit order; only an aged start may pass, and it is the oldest.
    pub fn check_order(&mut self, applied: &Applied) {
        for id in &applied.started {
            self.n_starts_since_aged += 1;
            let task = &self.rows[id];
            let Some(flow) = self.flows.get(&task.flow) else { continue };
            let passed = flow.queued.first().is_some_and(|&(rank, seq, _)| (rank, seq) < (task.rank, task.seq));
            if !passed {
                continue;
            }
            let oldest = flow.queued.iter().map(|&(_, seq, _)| seq).min();
            assert!(oldest.is_none_or(|seq| task.seq < seq), "{id:?} started before others of its flow");
            assert!(self.is_aged(*id, applied), "{id:?} started before others of its flow and is not old enough");
            let n = self.n_starts_since_aged;
            assert!(n >= u64::from(self.config.aged_one_in), "{id:?} is an aged start after {n} others");
            self.n_starts_since_aged = 0;
        }
    }

    /// Of two flows that differ in nothing but their tier the higher goes first, unless the other has aged. (Where
    /// windows are tiny a queue may have to be read first, and for one tick the lower one is all that is known.)
    pub fn check_tiers(&self, applied: &Applied) {
        for id in &applied.started {
            let key = self.key_of(&self.rows[id]);
            // A worker may be kept for one that asks for room and waited long: it is closed to the higher one.
            let asks = key.shape.resources != Resources::default();
            if key.tier == Tier::Critical || asks || self.is_aged(*id, applied) {
                continue;
            }
            let passed = self.flows.values().find(|flow| {
                let same = FlowKey { tier: key.tier, ..(*flow.key).clone() };
                !flow.queued.is_empty() && flow.key.tier < key.tier && same == **key
            });
            let passed = passed.map(|flow| flow.key.tier);
            assert_eq!(passed, None, "{id:?} of {key:?} started before a higher tier");
        }
    }

    /// Was it queued for so long, before this commit, that its age lifted it?
    fn is_aged(&self, id: TaskId, applied: &Applied) -> bool {
        let old = applied.changed.iter().find(|(other, _)| *other == id).and_then(|(_, old)| old.as_ref());
        let since_ms = old.and_then(|old| match old.state {
            State::Queued { since_ms } => Some(since_ms),
            _ => None,
        });
        since_ms.is_some_and(|since_ms| since_ms + self.config.aging_ms <= self.now.steady_ms)
    }

    // ── When nothing more can be done ───────────────────────────────────────────────────────────────────────────

    /// Work conserving: whatever is queued has at least one gate closed to it.
    pub fn check_conserving(&self, keeps: &[Keep]) {
        let usage = self.usage();
        for flow in self.flows.values() {
            if flow.queued.is_empty() {
                continue;
            }
            let closed = self.closed_gates(&flow.key, &usage, keeps);
            assert!(!closed.is_empty(), "{:?} could start, and the yard rests", flow.key);
        }
    }

    /// Nothing whose time has come is left, and nobody waits for what has happened.
    pub fn check_settled(&self) {
        let now = self.now;
        for id in &self.live {
            let task = &self.rows[id];
            let is_overdue = task.deadline.is_some_and(|deadline| deadline <= now.wall_ms);
            assert!(!is_overdue || task.stop().is_some(), "{id:?} is past its deadline: {:?}", task.state);
            match task.state {
                State::Waiting(Wait::Dependencies) => {
                    let overdue = task.dependency_deadline.is_some_and(|at| at <= now.wall_ms);
                    assert!(!overdue, "{id:?} waits for its dependencies beyond their time");
                    let waits = self.parents_of(*id).iter().any(|parent| self.is_open_parent(*parent));
                    assert!(waits, "{id:?} waits for parents that have all ended");
                }
                State::Waiting(Wait::BatchPlace) => {
                    let batch = task.batch.expect("only a member of a batch waits for its place");
                    let limit = self.batches[&batch].row.parallelism.unwrap_or(u32::MAX);
                    assert!(self.places_taken(batch) >= limit, "{id:?} waits for a place that is free");
                }
                State::Scheduled(Delay::Until(at)) => assert!(at > now.wall_ms, "{id:?} is due"),
                State::Scheduled(Delay::Backoff(at) | Delay::Debounce(at)) => {
                    assert!(at > now.steady_ms, "{id:?} is due")
                }
                State::Running(Lease { stop: None, since_ms, worker, .. }) => {
                    let joined = self.workers.get(&worker).is_some_and(|worker| worker.joined);
                    let overdue = since_ms + task.policy.timeout_ms <= now.steady_ms;
                    assert!(!overdue || !joined, "{id:?} runs longer than it may");
                    assert!(!self.is_silent(task), "{id:?} is silent for longer than it may");
                }
                _ => {}
            }
        }
        self.check_seats();
        for worker in self.workers.values() {
            assert!(
                worker.seen_ms + self.config.worker_offline_ms > now.steady_ms,
                "{:?} is silent and still believed in",
                worker.spec.id
            );
        }
        for batch in self.batches.values() {
            let taken = self.places_taken(batch.row.id);
            assert!(batch.row.parallelism.is_none_or(|limit| taken <= limit), "places of {:?}", batch.row.id);
        }
    }

    pub fn is_open_parent(&self, parent: TaskId) -> bool {
        self.rows.get(&parent).is_none_or(|task| !task.phase().is_terminal())
    }

    /// What is closed to a flow now.
    pub fn closed_gates(&self, key: &FlowKey, usage: &Usage, keeps: &[Keep]) -> Vec<GateName> {
        let config = &self.config;
        let mut closed = Vec::new();
        let mut note = |kind: &'static str, name: &str| closed.push((kind, name.to_owned()));
        let is_full = |at: KeptAt, used: Option<&u32>, limit: Option<u32>| {
            let kept: u32 = keeps.iter().filter(|keep| keep.at == at && *keep.flow != *key).map(|keep| keep.n).sum();
            limit.is_some_and(|limit| used.copied().unwrap_or(0) + kept >= limit)
        };
        if self.admit != Admit::Open || is_full(KeptAt::Global, Some(&usage.n_held), Some(config.inflight_max)) {
            note("global", "");
        }
        let agent = &key.agent;
        let is_paused = config.agents.get(agent).is_some_and(|agent| agent.paused);
        if is_paused || is_full(KeptAt::Agent(agent.clone()), usage.agents.get(agent), self.agent_limit(agent)) {
            note("agent", agent);
        }
        let lane = lane_of(config, &key.lane);
        let lane_config = config.lanes.get(&lane);
        let limit = lane_config.map(|lane| lane.limit);
        let is_paused = lane_config.is_some_and(|lane| lane.paused);
        if is_paused || is_full(KeptAt::Lane(lane.clone()), usage.lanes.get(&lane), limit) {
            note("lane", &lane);
        }
        let kind = &key.shape.kind;
        if is_full(KeptAt::Kind(kind.clone()), usage.kinds.get(kind), config.kinds.get(kind).copied()) {
            note("kind", kind);
        }
        for gate in &key.gates {
            let limit = config.gates.get(gate).and_then(|gate| gate.inflight_max);
            if self.rate_is_closed(gate) || is_full(KeptAt::Gate(gate.clone()), usage.gates.get(gate), limit) {
                note("gate", gate);
            }
        }
        if !self.has_room(key, usage, keeps) {
            note("worker", kind);
        }
        closed
    }

    fn has_room(&self, key: &FlowKey, usage: &Usage, keeps: &[Keep]) -> bool {
        let nothing = Load::default();
        self.workers.keys().any(|id| {
            let load = usage.workers.get(id).unwrap_or(&nothing);
            let asks = key.shape.resources != Resources::default();
            let is_kept = keeps.iter().any(|keep| keep.at == KeptAt::Worker(*id) && *keep.flow != *key);
            self.unfit_with(*id, &key.shape, load, 0).is_none() && !(asks && is_kept)
        })
    }

    /// `later_mb` as in `unwell`.
    pub(crate) fn unfit_with(&self, id: WorkerId, shape: &Shape, load: &Load, later_mb: u32) -> Option<&'static str> {
        let worker = &self.workers[&id];
        self.unfit(worker, shape, load).or_else(|| self.unwell(id, shape, load, later_mb))
    }

    fn unfit(&self, worker: &WorkerShadow, shape: &Shape, load: &Load) -> Option<&'static str> {
        let spec = &worker.spec;
        if !worker.joined {
            return Some("has not joined");
        }
        if !spec.kinds.contains(&shape.kind) {
            return Some("does not offer the kind");
        }
        if shape.place.require.iter().any(|label| !spec.labels.contains(label)) {
            return Some("lacks a label");
        }
        if self.cooling.get(&spec.id).is_some_and(|until_ms| *until_ms > self.now.steady_ms) {
            return Some("is cooling");
        }
        if spec.parallel_max.is_some_and(|max| load.n_held >= max) {
            return Some("runs as many as it may");
        }
        let (have, used, need) = (&spec.capacity, &load.reserved, &shape.resources);
        let fits = |have: u32, used: u32, need: u32| need == 0 || used + need <= have;
        let named = need.named.iter().all(|(name, n)| fits(named(have, name), named(used, name), *n));
        let is_big_enough = fits(have.cpu_milli, used.cpu_milli, need.cpu_milli)
            && fits(have.ram_mb, used.ram_mb, need.ram_mb)
            && named;
        (!is_big_enough).then_some("has no room")
    }

    /// The closed gates of an explanation are those, and only those, that are closed.
    pub fn check_explanation(&self, id: TaskId, said: &Explanation, keeps: &[Keep]) {
        let task = &self.rows[&id];
        assert_eq!(said.phase, task.phase(), "explain of {id:?}");
        if !task.phase().is_unstarted() {
            return;
        }
        let mut closed = self.closed_gates(self.key_of(task), &self.usage(), keeps);
        closed.extend(self.closed_data_gates(task));
        let is_session_closed = self.is_session_closed(task);
        if let (Some(key), Some(true)) = (self.session_of(task), is_session_closed) {
            closed.push(("session", key.to_string()));
        }
        let mut named: Vec<GateName> = said
            .closed()
            .map(|gate| (gate.kind, if gate.kind == "batch" { String::new() } else { gate.name.to_string() }))
            .collect();
        named.iter_mut().filter(|gate| matches!(gate.0, "time" | "dependencies")).for_each(|gate| gate.1.clear());
        named.retain(|gate| gate.0 != "session" || is_session_closed.is_some());
        closed.sort();
        named.sort();
        assert_eq!(named, closed, "closed gates of {id:?} ({:?})", task.state);
        assert!(!named.is_empty(), "{id:?} waits for nothing");
    }

    fn closed_data_gates(&self, task: &Task) -> Vec<GateName> {
        let mut closed = Vec::new();
        if task.state == State::Waiting(Wait::Dependencies) {
            closed.push(("dependencies", String::new()));
        }
        if task.phase() == Phase::Scheduled {
            closed.push(("time", String::new()));
        }
        let limit = task.batch.and_then(|batch| self.batches[&batch].row.parallelism);
        if let (Some(limit), Some(batch), false) = (limit, task.batch, task.has_place)
            && self.places_taken(batch) >= limit
        {
            closed.push(("batch", String::new()));
        }
        closed
    }

    /// Slots are kept for critical flows that have somebody waiting; a worker also for one that has waited long.
    pub fn check_keeps(&self, keeps: &[Keep]) {
        for keep in keeps {
            let is_critical = keep.flow.tier == Tier::Critical;
            assert!(is_critical || matches!(keep.at, KeptAt::Worker(_)), "{keep:?} is kept for a critical flow");
            let flows = self.flows.values().filter(|flow| flow.key == keep.flow);
            let n_queued: usize = flows.map(|flow| flow.queued.len()).sum();
            assert!(n_queued as u32 >= keep.n, "{keep:?} is more than can be used");
        }
    }
}

fn named(resources: &Resources, name: &Name) -> u32 {
    resources.named.iter().filter(|(other, _)| other == name).map(|(_, n)| n).sum()
}

fn add(total: &mut Resources, more: &Resources) {
    total.cpu_milli += more.cpu_milli;
    total.ram_mb += more.ram_mb;
    total.named.extend(more.named.iter().cloned());
}

pub(crate) fn minus(total: &Resources, less: &Resources) -> Resources {
    let mut rest = total.clone();
    rest.cpu_milli -= less.cpu_milli;
    rest.ram_mb -= less.ram_mb;
    for resource in &less.named {
        let at = rest.named.iter().position(|other| other == resource).expect("it was reserved");
        rest.named.remove(at);
    }
    rest
}
