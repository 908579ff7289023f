//! Workers: what they offer, what is reserved on them, and which one a task goes to.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::{Packing, PlacementConfig};
use crate::event::WorkerSpec;
use crate::flow::{Resources, Shape};
use crate::ids::{TaskId, WorkerId};
use crate::name::{Blob, Name};
use crate::now::{SteadyMs, WallMs};
use crate::placement::{News, Offer, Placement, label};
use crate::ranking::{Place, Rank, Room};
use crate::slab::{FlowIx, ShapeIx};
use crate::task::Text;
use crate::worker::{Vitals, WorkerRow};

#[derive(Debug)]
pub(crate) struct Worker {
    pub spec: WorkerSpec,
    /// As it registered; the embedded one did not, nor one that is known only from a lease.
    pub registered: Option<Registered>,
    /// One that is known and has not come, or gone, has leases at most, and gets nothing.
    pub joined: bool,
    /// It shares the scheduler's process. Another server's own joins from elsewhere, and may be this one at another time.
    pub is_here: bool,
    pub draining: bool,
    /// Why it is not there, and since when.
    pub absence: Text,
    pub absent_since_ms: SteadyMs,
    pub seen_ms: SteadyMs,
    pub seen_at: Option<WallMs>,
    /// When its silence has lasted too long, or, of one that is given up, when it is forgotten; its timer stands under it.
    pub watch_ms: Option<SteadyMs>,
    pub cooling_until_ms: SteadyMs,
    pub vitals: Vitals,
    /// Since it joined. The first measurement of a fresh process is noise.
    pub n_samples: u32,
    /// The sum of what its leases claim.
    pub claimed_mb: u32,
    /// It takes no more than so many for now.
    pub heads_wanted: Option<u32>,
    pub idle_since_ms: SteadyMs,
    /// Its leases, each with the memory that it claims: what was reserved since the last sample, of which the machine's
    /// report of free memory does not know yet.
    pub held: BTreeMap<TaskId, u32>,
    pub reserved: Resources,
    /// A flow that waits for room here: nobody else's resources are placed before it.
    pub kept_for: Option<FlowIx>,
}

#[derive(Clone, Debug)]
pub(crate) struct Registered {
    pub session: u64,
    pub at: WallMs,
    pub about: Blob,
    /// With the spec that it registered with; the one in force follows when it joins.
    pub spec: WorkerSpec,
}

#[derive(Debug, Default)]
pub(crate) struct Fleet {
    pub workers: BTreeMap<WorkerId, Worker>,
    /// Workers kept for a flow.
    kept: BTreeMap<FlowIx, BTreeSet<WorkerId>>,
    placement: Placement,
    rules: PlacementConfig,
    n_registered: u32,
}

/// Why a worker does not take a shape now.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Unfit {
    NotThere,
    Draining,
    Kind,
    Labels,
    /// It would not fit even an idle worker of this size.
    TooBig,
    Cooling,
    Trouble,
    Parallel,
    Kept,
    Full,
    Memory,
    Guard,
}

impl Unfit {
    pub fn as_str(self) -> &'static str {
        match self {
            Unfit::NotThere => "not there",
            Unfit::Draining => "draining",
            Unfit::Kind => "does not offer the kind",
            Unfit::Labels => "lacks a required label",
            Unfit::TooBig => "is too small",
            Unfit::Cooling => "is cooling down after a fault",
            Unfit::Trouble => "says that it is unhealthy",
            Unfit::Parallel => "runs as many as it may in parallel",
            Unfit::Kept => "is kept for a task that waits for it",
            Unfit::Full => "has no room now",
            Unfit::Memory => "reports too little free memory",
            Unfit::Guard => "is too busy: its CPU usage is above the guard",
        }
    }
}

/// What a place is looked for.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub shape: ShapeIx,
    /// A worker may be kept for it.
    pub flow: Option<FlowIx>,
    /// Where this task failed before: taken only when nobody else fits.
    pub avoid: &'a [WorkerId],
    /// Tasks of its flow by the value of the label that they are spread by.
    pub beside: Option<&'a BTreeMap<Name, u32>>,
}

impl Fleet {
    pub fn set_rules(&mut self, rules: PlacementConfig) {
        self.rules = rules;
        let all: Vec<WorkerId> = self.workers.keys().copied().collect();
        all.into_iter().for_each(|id| self.seat(id));
    }

    pub fn n_registered(&self) -> u32 {
        self.n_registered
    }

    pub fn insert(&mut self, worker: Worker) {
        let id = worker.spec.id;
        self.n_registered += u32::from(worker.registered.is_some());
        let old = self.workers.insert(id, worker);
        assert!(old.is_none(), "{id:?} is one worker");
        self.seat(id);
    }

    pub fn remove(&mut self, id: WorkerId) -> Option<Worker> {
        let mut worker = self.workers.remove(&id)?;
        self.n_registered -= u32::from(worker.registered.is_some());
        self.unkeep_worker(id, worker.kept_for.take());
        self.placement.seat(&worker.spec, None);
        Some(worker)
    }

    // ── Shapes ──────────────────────────────────────────────────────────────────────────────────────────────────

    pub fn mention(&mut self, shape: &Shape) -> ShapeIx {
        let (ix, news) = self.placement.mention(shape);
        if let News::Some(fresh) = news {
            let told_apart = self.workers.values().map(|worker| &worker.spec).filter(|spec| fresh.concerns(spec));
            let ids: Vec<WorkerId> = told_apart.map(|spec| spec.id).collect();
            ids.into_iter().for_each(|id| self.seat(id));
        }
        ix
    }

    pub fn unmention(&mut self, shape: ShapeIx) {
        self.placement.unmention(shape);
    }

    // ── Looking for a place ─────────────────────────────────────────────────────────────────────────────────────

    /// The worker with the lowest score; ties by most free cores, then by id.
    pub fn place(&self, now_ms: SteadyMs, wanted: Wanted) -> Option<WorkerId> {
        let elsewhere = self.best(now_ms, &wanted, |id| !wanted.avoid.contains(&id));
        let best = match wanted.avoid.is_empty() {
            true => elsewhere,
            false => elsewhere.or_else(|| self.best(now_ms, &wanted, |_| true)),
        };
        best.map(|offer| offer.rank.worker)
    }

    /// Has some worker room for this shape, whoever asks?
    pub fn has_room(&self, now_ms: SteadyMs, shape: ShapeIx, flow: Option<FlowIx>) -> bool {
        let wanted = Wanted { shape, flow, avoid: &[], beside: None };
        self.best(now_ms, &wanted, |_| true).is_some()
    }

    fn best(&self, now_ms: SteadyMs, wanted: &Wanted, may: impl Fn(WorkerId) -> bool) -> Option<Offer> {
        let shape = self.placement.shape(wanted.shape);
        let n_beside = |value: &str| wanted.beside.and_then(|beside| beside.get(value)).copied().unwrap_or(0);
        let need = Room { cpu_milli: shape.resources.cpu_milli, ram_mb: shape.resources.ram_mb, heads: 1 };
        // Who stands in a class that fits offers all that is asked for.
        let open = self.placement.best(wanted.shape, &need, n_beside, |id| {
            let unfit = self.workers[&id].unfit_now(now_ms, &shape.resources, wanted.flow, &self.rules);
            unfit.is_none() && may(id)
        });
        // One that is kept for it shows nobody else its room, so it is asked by itself.
        let kept = wanted.flow.and_then(|flow| self.kept.get(&flow)).into_iter().flatten().copied();
        let kept = kept.filter(|&id| may(id)).map(|id| &self.workers[&id]);
        let kept = kept.filter(|worker| worker.unfit(now_ms, shape, wanted.flow, &self.rules).is_none());
        let kept = kept.map(|worker| {
            let key = shape.place.spread_by.as_deref();
            let n_beside = key.map_or(0, |key| n_beside(label(&worker.spec.labels, key)));
            let rank = worker.rank(&self.rules);
            let score = rank.score + Placement::label_points(shape, &worker.spec.labels);
            Offer { n_beside, rank: Rank { score, ..rank } }
        });
        kept.chain(open).min()
    }

    // ── Reserving ───────────────────────────────────────────────────────────────────────────────────────────────

    pub fn reserve(&mut self, worker: WorkerId, task: TaskId, need: &Resources) {
        let known = self.workers.get_mut(&worker).expect("a task is placed on a worker that is there");
        let earlier = known.held.insert(task, need.ram_mb);
        assert!(earlier.is_none(), "task {task:?} is placed once");
        add(&mut known.reserved, need);
        known.claimed_mb += need.ram_mb;
        self.moved(worker);
    }

    pub fn release(&mut self, now_ms: SteadyMs, worker: WorkerId, task: TaskId, need: &Resources) {
        let known = self.workers.get_mut(&worker).expect("a lease names a worker that is known");
        let claim_mb = known.held.remove(&task).unwrap_or_else(|| panic!("task {task:?} is released once"));
        subtract(&mut known.reserved, need);
        known.claimed_mb -= claim_mb;
        if known.held.is_empty() {
            known.idle_since_ms = now_ms;
        }
        self.moved(worker);
    }

    /// Keeps a worker for a flow.
    pub fn keep(&mut self, worker: WorkerId, flow: FlowIx) {
        let earlier = self.workers.get_mut(&worker).and_then(|known| known.kept_for.replace(flow));
        self.unkeep_worker(worker, earlier);
        self.kept.entry(flow).or_default().insert(worker);
        self.moved(worker);
    }

    pub fn has_kept(&self, flow: FlowIx) -> bool {
        self.kept.contains_key(&flow)
    }

    /// Flows with a worker kept for them.
    pub fn keepers(&self) -> Vec<FlowIx> {
        self.kept.keys().copied().collect()
    }

    /// Workers kept for this flow are free for everyone again. True when there were any.
    pub fn unkeep(&mut self, flow: FlowIx) -> bool {
        let Some(workers) = self.kept.remove(&flow) else { return false };
        for id in workers {
            self.workers.get_mut(&id).expect("who is kept is known").kept_for = None;
            self.moved(id);
        }
        true
    }

    /// This worker is kept for nobody any more. Gives the flow that it was kept for.
    pub fn free(&mut self, id: WorkerId) -> Option<FlowIx> {
        let flow = self.workers.get_mut(&id).and_then(|worker| worker.kept_for.take());
        self.unkeep_worker(id, flow);
        flow
    }

    fn unkeep_worker(&mut self, id: WorkerId, flow: Option<FlowIx>) {
        let Some(flow) = flow else { return };
        let workers = self.kept.get_mut(&flow).expect("who is kept for a flow is among its own");
        workers.remove(&id);
        if workers.is_empty() {
            self.kept.remove(&flow);
        }
    }

    // ── Standing ────────────────────────────────────────────────────────────────────────────────────────────────

    /// Something about this worker changed: it stands where it belongs now.
    pub fn seat(&mut self, id: WorkerId) {
        let worker = &self.workers[&id];
        let place = worker.is_candidate().then(|| worker.place(&self.rules));
        self.placement.seat(&worker.spec, place);
    }

    /// As [`Self::seat`], when only its load changed.
    fn moved(&mut self, id: WorkerId) {
        let (workers, rules) = (&self.workers, &self.rules);
        self.placement.reseat(id, || workers[&id].place(rules));
    }

    pub fn rules(&self) -> &PlacementConfig {
        &self.rules
    }

    /// What stands in the index is what each worker would say now.
    pub fn check(&self) {
        for worker in self.workers.values() {
            let place = worker.is_candidate().then(|| worker.place(&self.rules));
            assert_eq!(self.placement.place_of(worker.spec.id), place, "the place of {:?}", worker.spec.id);
            let is_kept = worker.kept_for.is_none_or(|flow| self.kept[&flow].contains(&worker.spec.id));
            assert!(is_kept, "{:?} is known to be kept", worker.spec.id);
        }
        let n_kept = self.workers.values().filter(|worker| worker.kept_for.is_some()).count();
        assert_eq!(self.kept.values().map(BTreeSet::len).sum::<usize>(), n_kept, "workers kept");
    }
}

impl Worker {
    pub fn new(spec: WorkerSpec, now_ms: SteadyMs) -> Worker {
        Worker {
            spec,
            registered: None,
            joined: false,
            is_here: false,
            draining: false,
            absence: "has not come yet".into(),
            absent_since_ms: now_ms,
            seen_ms: now_ms,
            seen_at: None,
            watch_ms: None,
            cooling_until_ms: 0,
            vitals: Vitals::default(),
            n_samples: 0,
            claimed_mb: 0,
            heads_wanted: None,
            idle_since_ms: now_ms,
            held: BTreeMap::new(),
            reserved: Resources::default(),
            kept_for: None,
        }
    }

    /// One the store knows from a lease; it has a term to come back in.
    pub fn unknown(id: WorkerId, now_ms: SteadyMs) -> Worker {
        let spec = WorkerSpec {
            id,
            name: Name::new(""),
            kinds: Vec::new(),
            keeps: Vec::new(),
            capacity: Resources::default(),
            parallel_max: None,
            labels: Vec::new(),
            embedded: false,
        };
        Worker::new(spec, now_ms)
    }

    pub fn of_row(row: WorkerRow, now_ms: SteadyMs) -> Worker {
        let WorkerRow { spec, session, draining, registered_at, about } = row;
        let registered = Some(Registered { session, at: registered_at, about, spec: spec.clone() });
        Worker { registered, draining, ..Worker::new(spec, now_ms) }
    }

    pub fn row(&self) -> Option<WorkerRow> {
        let Registered { session, at, about, spec } = self.registered.clone()?;
        Some(WorkerRow { spec, session, draining: self.draining, registered_at: at, about })
    }

    /// What it says of itself now.
    pub fn hear(&mut self, vitals: Vitals) {
        let is_sample = vitals.cpu_usage_milli.is_some() || vitals.ram_free_mb.is_some();
        self.heads_wanted = vitals.want.map(|n| (self.held.len() as u32).saturating_add(n));
        if is_sample {
            self.n_samples = self.n_samples.saturating_add(1);
            self.forget_claims();
            self.vitals = vitals;
        } else {
            // Silence about the machine takes nothing back.
            self.vitals.trouble = vitals.trouble;
            self.vitals.want = vitals.want;
        }
    }

    /// Takes over what a worker of this id held before. A fault is not undone by coming again.
    pub fn inherit(&mut self, old: Worker) {
        (self.held, self.reserved) = (old.held, old.reserved);
        self.cooling_until_ms = old.cooling_until_ms;
        self.forget_claims();
    }

    fn forget_claims(&mut self) {
        self.held.values_mut().for_each(|claim_mb| *claim_mb = 0);
        self.claimed_mb = 0;
    }

    pub fn leases(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.held.keys().copied()
    }

    /// May anything be placed here at all?
    fn is_candidate(&self) -> bool {
        self.joined && !self.draining && self.cooling_until_ms == 0 && self.vitals.trouble.is_none()
    }

    pub fn unfit(
        &self,
        now_ms: SteadyMs,
        shape: &Shape,
        flow: Option<FlowIx>,
        rules: &PlacementConfig,
    ) -> Option<Unfit> {
        self.unfit_ever(shape).or_else(|| self.unfit_now(now_ms, &shape.resources, flow, rules))
    }

    /// As [`Self::unfit`] for one that offers all that is asked for, be it to spare or not.
    fn unfit_now(
        &self,
        now_ms: SteadyMs,
        need: &Resources,
        flow: Option<FlowIx>,
        rules: &PlacementConfig,
    ) -> Option<Unfit> {
        let is_weighty = need.cpu_milli > 0 || need.ram_mb > 0;
        if self.cooling_until_ms > now_ms {
            Some(Unfit::Cooling)
        } else if self.vitals.trouble.is_some() {
            Some(Unfit::Trouble)
        } else if self.n_heads_free() == 0 {
            Some(Unfit::Parallel)
        } else if !is_nothing(need) && self.kept_for.is_some() && self.kept_for != flow {
            Some(Unfit::Kept)
        } else if !fits(&self.spec.capacity, &self.reserved, need) {
            Some(Unfit::Full)
        } else if is_weighty && self.ram_free_mb() < need.ram_mb {
            Some(Unfit::Memory)
        } else if is_weighty && self.is_guarded(rules) {
            Some(Unfit::Guard)
        } else {
            None
        }
    }

    /// Closed for a reason that the end of what it runs would not change, as far as anybody knows.
    pub fn is_closed_to(&self, now_ms: SteadyMs, shape: &Shape, rules: &PlacementConfig) -> bool {
        let is_weighty = shape.resources.cpu_milli > 0 || shape.resources.ram_mb > 0;
        self.cooling_until_ms > now_ms || self.vitals.trouble.is_some() || (is_weighty && self.is_guarded(rules))
    }

    /// What no waiting changes.
    pub fn unfit_ever(&self, shape: &Shape) -> Option<Unfit> {
        if !self.joined {
            Some(Unfit::NotThere)
        } else if self.draining {
            Some(Unfit::Draining)
        } else if !self.spec.kinds.contains(&shape.kind) {
            Some(Unfit::Kind)
        } else if !shape.place.require.iter().all(|label| self.spec.labels.contains(label)) {
            Some(Unfit::Labels)
        } else if !fits(&self.spec.capacity, &Resources::default(), &shape.resources) {
            Some(Unfit::TooBig)
        } else {
            None
        }
    }

    pub fn heads_max(&self) -> Option<u32> {
        self.spec.parallel_max.into_iter().chain(self.heads_wanted).min()
    }

    fn n_heads_free(&self) -> u32 {
        self.heads_max().map_or(u32::MAX, |max| max.saturating_sub(self.held.len() as u32))
    }

    /// What is neither reserved nor, as the machine says, used by somebody else.
    pub fn ram_free_mb(&self) -> u32 {
        let unreserved = self.spec.capacity.ram_mb.saturating_sub(self.reserved.ram_mb);
        let reported = self.vitals.ram_free_mb.filter(|_| !self.spec.embedded);
        reported.map_or(unreserved, |free| unreserved.min(free.saturating_sub(self.claimed_mb)))
    }

    fn is_guarded(&self, rules: &PlacementConfig) -> bool {
        !self.spec.embedded && self.cpu_usage_milli() > rules.cpu_usage_milli_max
    }

    /// Not before the second sample: the first one of a fresh process measures its own start.
    pub fn cpu_usage_milli(&self) -> u32 {
        self.vitals.cpu_usage_milli.filter(|_| self.n_samples > 1).unwrap_or(0)
    }

    fn place(&self, rules: &PlacementConfig) -> Place {
        let is_closed = self.kept_for.is_some() || self.is_guarded(rules);
        let room = Room {
            cpu_milli: if is_closed { 0 } else { self.cpu_free_milli() },
            ram_mb: if is_closed { 0 } else { self.ram_free_mb() },
            heads: self.n_heads_free(),
        };
        Place { rank: self.rank(rules), room }
    }

    fn cpu_free_milli(&self) -> u32 {
        self.spec.capacity.cpu_milli.saturating_sub(self.reserved.cpu_milli)
    }

    /// 0.6 × CPU usage + 0.3 × reserved CPU % + 0.1 × reserved RAM %, or as configured, in millionths of a point.
    pub fn score(&self, rules: &PlacementConfig) -> i64 {
        let percent = |used: u32, total: u32, weight: u32| {
            i64::from(used) * 100_000 * i64::from(weight) / i64::from(total.max(1))
        };
        let capacity = &self.spec.capacity;
        i64::from(self.cpu_usage_milli()) * i64::from(rules.cpu_usage_weight)
            + percent(self.reserved.cpu_milli, capacity.cpu_milli, rules.reserved_cpu_weight)
            + percent(self.reserved.ram_mb, capacity.ram_mb, rules.reserved_ram_weight)
    }

    fn rank(&self, rules: &PlacementConfig) -> Rank {
        let score = match rules.packing {
            Packing::Spread => self.score(rules),
            Packing::Binpack => -self.score(rules),
        };
        Rank { score, cpu_short_milli: u32::MAX - self.cpu_free_milli(), worker: self.spec.id }
    }
}

pub(crate) fn is_nothing(need: &Resources) -> bool {
    need.cpu_milli == 0 && need.ram_mb == 0 && need.named.is_empty()
}

pub(crate) fn fits(capacity: &Resources, used: &Resources, need: &Resources) -> bool {
    let named = |resources: &Resources, name: &Name| {
        resources.named.iter().find(|(other, _)| other == name).map_or(0, |&(_, n)| n)
    };
    used.cpu_milli.saturating_add(need.cpu_milli) <= capacity.cpu_milli.max(used.cpu_milli)
        && used.ram_mb.saturating_add(need.ram_mb) <= capacity.ram_mb.max(used.ram_mb)
        && need.named.iter().all(|(name, n)| named(used, name).saturating_add(*n) <= named(capacity, name))
}

pub(crate) fn add(total: &mut Resources, more: &Resources) {
    total.cpu_milli += more.cpu_milli;
    total.ram_mb += more.ram_mb;
    for (name, n) in &more.named {
        match total.named.iter_mut().find(|(other, _)| other == name) {
            Some((_, sum)) => *sum += n,
            None => total.named.push((name.clone(), *n)),
        }
    }
}

pub(crate) fn subtract(total: &mut Resources, less: &Resources) {
    let minus = |a: u32, b: u32| a.checked_sub(b).expect("no more is released than was reserved");
    total.cpu_milli = minus(total.cpu_milli, less.cpu_milli);
    total.ram_mb = minus(total.ram_mb, less.ram_mb);
    for (name, n) in &less.named {
        let (_, sum) = total.named.iter_mut().find(|(other, _)| other == name).expect("what is released was reserved");
        *sum = minus(*sum, *n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Load {
        usage_percent: u32,
        reserved_cpu: u32,
        reserved_ram_mb: u32,
    }

    const IDLE: Load = Load { usage_percent: 0, reserved_cpu: 0, reserved_ram_mb: 0 };

    fn score(load: Load) -> f64 {
        let mut worker = Worker::unknown(WorkerId(1), 0);
        worker.spec.capacity = Resources { cpu_milli: 4000, ram_mb: 8192, named: Vec::new() };
        let vitals = Vitals { cpu_usage_milli: Some(load.usage_percent * 1000), ..Vitals::default() };
        // The first sample of a fresh process does not count.
        worker.hear(vitals.clone());
        worker.hear(vitals);
        worker.reserved.cpu_milli = load.reserved_cpu * 1000;
        worker.reserved.ram_mb = load.reserved_ram_mb;
        worker.score(&PlacementConfig::default()) as f64 / 1e6
    }

    /// 4 cores and 8192 MB; the vectors of the conformance notes with their first three terms.
    #[test]
    fn the_score_is_the_weighted_sum_of_usage_reserved_cores_and_reserved_memory() {
        let cases = [
            (IDLE, 0.0),
            (Load { usage_percent: 50, ..IDLE }, 30.0),
            (Load { reserved_cpu: 2, ..IDLE }, 15.0),
            (Load { reserved_ram_mb: 4096, ..IDLE }, 5.0),
            (Load { usage_percent: 35, reserved_cpu: 2, reserved_ram_mb: 512 }, 36.625),
        ];
        for (load, expected) in cases {
            let score = score(load);
            assert!((score - expected).abs() <= 1e-6, "{score} is not {expected}");
        }
    }

    #[test]
    fn a_worker_without_cores_or_memory_has_a_score_all_the_same() {
        let mut worker = Worker::unknown(WorkerId(1), 0);
        assert_eq!(worker.score(&PlacementConfig::default()), 0);
        worker.reserved.cpu_milli = 1;
        assert!(worker.score(&PlacementConfig::default()) > 0);
    }
}
