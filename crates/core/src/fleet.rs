//! Workers: what they offer, what is reserved on them, and which one a task goes to.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::WorkerSpec;
use crate::flow::{Resources, Shape};
use crate::ids::{TaskId, WorkerId};
use crate::name::Name;
use crate::now::SteadyMs;
use crate::slab::FlowIx;

#[derive(Debug)]
pub(crate) struct Worker {
    pub spec: WorkerSpec,
    /// A worker that the store knows of and that has not come back yet has leases but gets nothing.
    pub joined: bool,
    pub seen_ms: SteadyMs,
    /// When its silence has lasted too long; its timer stands under this moment.
    pub offline_at_ms: SteadyMs,
    pub cooling_until_ms: SteadyMs,
    pub held: BTreeSet<TaskId>,
    pub reserved: Resources,
    /// A flow that waits for room here: nobody else's resources are placed before it.
    pub kept_for: Option<FlowIx>,
}

#[derive(Debug, Default)]
pub(crate) struct Fleet {
    pub workers: BTreeMap<WorkerId, Worker>,
}

/// Why a worker does not take a shape now.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Unfit {
    NotThere,
    Kind,
    Labels,
    /// It would not fit even an idle worker of this size.
    TooBig,
    Cooling,
    Parallel,
    Kept,
    Full,
}

impl Unfit {
    pub fn as_str(self) -> &'static str {
        match self {
            Unfit::NotThere => "has not come back yet",
            Unfit::Kind => "does not offer the kind",
            Unfit::Labels => "lacks a required label",
            Unfit::TooBig => "is too small",
            Unfit::Cooling => "is cooling down after a fault",
            Unfit::Parallel => "runs as many as it may in parallel",
            Unfit::Kept => "is kept for a task that waits for it",
            Unfit::Full => "has no room now",
        }
    }
}

impl Fleet {
    /// The worker with the lowest score; ties by most free cores, then by id. `avoid` is where this task failed
    /// before: it is taken only when nobody else fits.
    pub fn place(&self, now_ms: SteadyMs, shape: &Shape, flow: FlowIx, avoid: Option<WorkerId>) -> Option<WorkerId> {
        self.workers
            .values()
            .filter(|worker| worker.unfit(now_ms, shape, Some(flow)).is_none())
            .min_by_key(|worker| {
                let free_cpu = worker.spec.capacity.cpu_milli.saturating_sub(worker.reserved.cpu_milli);
                (avoid == Some(worker.spec.id), worker.score(shape), u32::MAX - free_cpu, worker.spec.id)
            })
            .map(|worker| worker.spec.id)
    }

    /// Has some worker room for this shape, whoever asks?
    pub fn has_room(&self, now_ms: SteadyMs, shape: &Shape, flow: Option<FlowIx>) -> bool {
        self.workers.values().any(|worker| worker.unfit(now_ms, shape, flow).is_none())
    }

    pub fn reserve(&mut self, worker: WorkerId, task: TaskId, need: &Resources) {
        let worker = self.workers.get_mut(&worker).expect("a task is placed on a worker that is there");
        let new = worker.held.insert(task);
        assert!(new, "task {task:?} is placed once");
        add(&mut worker.reserved, need);
    }

    pub fn release(&mut self, worker: WorkerId, task: TaskId, need: &Resources) {
        let worker = self.workers.get_mut(&worker).expect("a lease names a worker that is known");
        let known = worker.held.remove(&task);
        assert!(known, "task {task:?} is released once");
        subtract(&mut worker.reserved, need);
    }
}

impl Worker {
    pub fn new(spec: WorkerSpec, now_ms: SteadyMs) -> Worker {
        Worker {
            spec,
            joined: true,
            seen_ms: now_ms,
            offline_at_ms: 0,
            cooling_until_ms: 0,
            held: BTreeSet::new(),
            reserved: Resources::default(),
            kept_for: None,
        }
    }

    /// One the store knows from a lease; it has a term to come back in.
    pub fn absent(id: WorkerId, now_ms: SteadyMs) -> Worker {
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
        Worker { joined: false, ..Worker::new(spec, now_ms) }
    }

    pub fn unfit(&self, now_ms: SteadyMs, shape: &Shape, flow: Option<FlowIx>) -> Option<Unfit> {
        let need = &shape.resources;
        if let Some(unfit) = self.unfit_ever(shape) {
            Some(unfit)
        } else if self.cooling_until_ms > now_ms {
            Some(Unfit::Cooling)
        } else if self.spec.parallel_max.is_some_and(|max| self.held.len() >= max as usize) {
            Some(Unfit::Parallel)
        } else if !is_nothing(need) && self.kept_for.is_some() && self.kept_for != flow {
            Some(Unfit::Kept)
        } else if !fits(&self.spec.capacity, &self.reserved, need) {
            Some(Unfit::Full)
        } else {
            None
        }
    }

    /// What no waiting changes.
    pub fn unfit_ever(&self, shape: &Shape) -> Option<Unfit> {
        if !self.joined {
            Some(Unfit::NotThere)
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

    /// 0.3 × reserved CPU % + 0.1 × reserved RAM %, ∓20 for preferred and avoided labels, in thousandths. (The term for
    /// measured CPU usage joins with workers that report it.)
    fn score(&self, shape: &Shape) -> i64 {
        let percent_milli = |used: u32, total: u32| i64::from(used) * 100_000 / i64::from(total.max(1));
        let base = percent_milli(self.reserved.cpu_milli, self.spec.capacity.cpu_milli) * 3 / 10
            + percent_milli(self.reserved.ram_mb, self.spec.capacity.ram_mb) / 10;
        let n = |labels: &[(Name, Name)]| labels.iter().filter(|label| self.spec.labels.contains(label)).count() as i64;
        base - 20_000 * n(&shape.place.prefer) + 20_000 * n(&shape.place.avoid)
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
