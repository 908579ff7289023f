//! Messages that wait, by who caused them and then by where they go: a submitter with a hundred receivers that never
//! answer has one turn like everybody else, and no more than its share of the tries.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};

use super::window::Job;

/// Rows in memory for one owner.
pub const ROWS_PER_OWNER_MAX: usize = 256;
/// Tries of one owner that are on their way.
pub const INFLIGHT_PER_OWNER_MAX: usize = 32;

#[derive(Default)]
pub struct Owners {
    owners: BTreeMap<String, Owner>,
    /// Who was served last, so that the others come first.
    last: String,
}

#[derive(Default)]
struct Owner {
    waiting: BTreeMap<String, VecDeque<Job>>,
    n_waiting: usize,
    n_inflight: usize,
    n_postponed: usize,
    last: String,
}

impl Owners {
    pub fn is_full(&self, owner: &str) -> bool {
        self.owners.get(owner).is_some_and(|owner| owner.n_waiting + owner.n_inflight >= ROWS_PER_OWNER_MAX)
    }

    /// One more that is turned away; gives how many were before it.
    pub fn postpone(&mut self, owner: &str) -> usize {
        self.owners.get_mut(owner).map_or(0, |owner| {
            owner.n_postponed += 1;
            owner.n_postponed - 1
        })
    }

    pub fn push(&mut self, target: String, job: Job) {
        let owner = self.owners.entry(job.owner.clone()).or_default();
        owner.n_waiting += 1;
        owner.waiting.entry(target).or_default().push_back(job);
    }

    /// The next of the owner whose turn it is, to a target of which `may_go` says so.
    pub fn next(&mut self, mut may_go: impl FnMut(&str) -> bool) -> Option<Job> {
        let name = turn(&self.owners, &self.last)
            .find_map(|name| self.owners[name].next_target(&mut may_go).map(|target| (name.clone(), target)));
        let (name, target) = name?;
        self.last.clone_from(&name);
        self.owners.get_mut(&name).and_then(|owner| owner.start(&target))
    }

    /// One of this owner is back.
    pub fn returned(&mut self, owner: &str) {
        let entry = self.owners.get_mut(owner).expect("an owner stays while something of it is on its way");
        entry.n_inflight -= 1;
        entry.n_postponed = 0;
        self.forget_idle(owner);
    }

    /// All that waits for this target, whoever it is from.
    pub fn take_target(&mut self, target: &str) -> Vec<Job> {
        let mut taken = Vec::new();
        for owner in self.owners.values_mut() {
            let waiting = owner.waiting.remove(target).unwrap_or_default();
            owner.n_waiting -= waiting.len();
            taken.extend(waiting);
        }
        self.owners.retain(|_, owner| owner.has_rows());
        taken
    }

    fn forget_idle(&mut self, owner: &str) {
        if self.owners.get(owner).is_some_and(|owner| !owner.has_rows()) {
            self.owners.remove(owner);
        }
    }
}

impl Owner {
    fn next_target(&self, mut may_go: impl FnMut(&str) -> bool) -> Option<String> {
        if self.n_inflight >= INFLIGHT_PER_OWNER_MAX {
            return None;
        }
        turn(&self.waiting, &self.last).find(|target| may_go(target)).cloned()
    }

    fn start(&mut self, target: &str) -> Option<Job> {
        let waiting = self.waiting.get_mut(target)?;
        let job = waiting.pop_front()?;
        if waiting.is_empty() {
            self.waiting.remove(target);
        }
        self.last = target.to_owned();
        self.n_waiting -= 1;
        self.n_inflight += 1;
        Some(job)
    }

    fn has_rows(&self) -> bool {
        self.n_waiting + self.n_inflight > 0
    }
}

/// All names, those behind the last one first.
fn turn<'a, T>(all: &'a BTreeMap<String, T>, last: &String) -> impl Iterator<Item = &'a String> {
    let behind = all.range::<String, _>((Excluded(last), Unbounded));
    let before = all.range::<String, _>(..=last.clone());
    behind.chain(before).map(|(name, _)| name)
}
