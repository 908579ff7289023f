//! Schedules and their runs in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use runyard_core::ids::ScheduleId;
use runyard_core::name::{Blob, Name};
use runyard_core::now::{Now, WallMs};
use runyard_core::schedule::{Cause, Run, Schedule, ScheduleDue, Template};
use runyard_core::write::{Needs, WriteSet};

use super::content::{conflict, is_past};
use crate::store::{PAGE_BYTES_MAX, Purge, Result, ScheduleCounts, ScheduleFilter, SchedulePage};

#[derive(Default)]
pub(super) struct Schedules {
    rows: BTreeMap<ScheduleId, Row>,
    names: BTreeMap<Name, ScheduleId>,
    dues: BTreeSet<ScheduleDue>,
    runs: BTreeMap<(ScheduleId, u64), Run>,
    /// Nominal times that have a run which was not asked for by hand.
    moments: BTreeSet<(ScheduleId, WallMs)>,
}

struct Row {
    schedule: Schedule,
    template: Arc<Template>,
    spec: Blob,
}

impl Schedules {
    pub(super) fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    pub(super) fn check(&self, writes: &WriteSet) -> Result<()> {
        let edited = writes.schedules_put.iter().filter(|row| row.body.is_some());
        // Removed and edited rows go before any comes back.
        let mut gone: BTreeSet<ScheduleId> = writes.schedules_removed.iter().copied().collect();
        gone.extend(edited.clone().map(|row| row.schedule.id));
        let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
        for row in edited {
            let Schedule { id, name, .. } = &row.schedule;
            let is_taken = self.names.get(name).is_some_and(|by| !gone.contains(by));
            if is_taken || !ids.insert(*id) || !names.insert(name) {
                return Err(conflict(None, "a schedule of this name exists already"));
            }
        }
        for row in writes.schedules_put.iter().filter(|row| row.body.is_none()) {
            let id = row.schedule.id;
            let is_there = self.rows.contains_key(&id) && !gone.contains(&id) || ids.contains(&id);
            if !is_there {
                return Err(conflict(None, "a changed schedule does not exist"));
            }
        }
        self.check_runs(writes)
    }

    fn check_runs(&self, writes: &WriteSet) -> Result<()> {
        let (mut numbers, mut moments) = (BTreeSet::new(), BTreeSet::new());
        for run in &writes.runs_added {
            let number = (run.schedule, run.n);
            if self.runs.contains_key(&number) || !numbers.insert(number) {
                return Err(conflict(None, "a new run exists already"));
            }
            if let Some(moment) = moment(run)
                && (self.moments.contains(&moment) || !moments.insert(moment))
            {
                return Err(conflict(None, "a moment has its run already"));
            }
        }
        let is_known = |run: &Run| {
            let number = (run.schedule, run.n);
            self.runs.contains_key(&number) || numbers.contains(&number)
        };
        match writes.runs_put.iter().all(is_known) {
            true => Ok(()),
            false => Err(conflict(None, "a changed run does not exist")),
        }
    }

    pub(super) fn apply(&mut self, writes: &WriteSet) {
        let edited = writes.schedules_put.iter().filter(|row| row.body.is_some()).map(|row| row.schedule.id);
        for id in writes.schedules_removed.iter().copied().chain(edited) {
            self.remove(id);
        }
        for row in &writes.schedules_put {
            let schedule = row.schedule.clone();
            match &row.body {
                Some(body) => {
                    self.names.insert(schedule.name.clone(), schedule.id);
                    self.dues.extend(due(&schedule));
                    let (template, spec) = (Arc::new(body.template.clone()), body.spec.clone());
                    self.rows.insert(schedule.id, Row { schedule, template, spec });
                }
                None => {
                    let row = self.rows.get_mut(&schedule.id).expect("its guard was checked");
                    due(&row.schedule).map(|due| self.dues.remove(&due));
                    self.dues.extend(due(&schedule));
                    row.schedule = schedule;
                }
            }
        }
        self.moments.extend(writes.runs_added.iter().filter_map(moment));
        let runs = writes.runs_added.iter().chain(&writes.runs_put);
        self.runs.extend(runs.map(|run| ((run.schedule, run.n), run.clone())));
    }

    fn remove(&mut self, id: ScheduleId) {
        let Some(row) = self.rows.remove(&id) else { return };
        self.names.remove(&row.schedule.name);
        due(&row.schedule).map(|due| self.dues.remove(&due));
    }

    pub(super) fn fetch(&self, needs: &Needs) -> Vec<(Schedule, Arc<Template>)> {
        let named = needs.schedule_names.iter().filter_map(|name| self.names.get(name));
        let rows = needs.schedules.iter().chain(named).filter_map(|id| self.rows.get(id));
        rows.map(|row| (row.schedule.clone(), row.template.clone())).collect()
    }

    pub(super) fn due(&self, after: Option<ScheduleDue>, limit: usize) -> Vec<ScheduleDue> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.dues.range((from, Bound::Unbounded)).take(limit).copied().collect()
    }

    pub(super) fn run(&self, schedule: ScheduleId, n: u64) -> Option<Run> {
        self.runs.get(&(schedule, n)).cloned()
    }

    pub(super) fn runs(&self, schedule: ScheduleId, before: Option<u64>, limit: usize) -> Vec<Run> {
        let runs = self.runs.range((schedule, 0)..(schedule, before.unwrap_or(u64::MAX))).rev();
        runs.take(limit).map(|(_, run)| run.clone()).collect()
    }

    pub(super) fn one(&self, id: ScheduleId) -> Option<(Schedule, Blob)> {
        self.rows.get(&id).map(Row::shown)
    }

    pub(super) fn named(&self, name: &str) -> Option<ScheduleId> {
        self.names.get(name).copied()
    }

    pub(super) fn counts(&self) -> ScheduleCounts {
        ScheduleCounts { total: self.rows.len() as u64, enabled: self.dues.len() as u64 }
    }

    pub(super) fn list(&self, filter: &ScheduleFilter, after: Option<ScheduleId>, limit: usize) -> SchedulePage {
        let before = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = self.rows.range((Bound::Unbounded, before)).rev().map(|(_, row)| row);
        let (mut items, mut n_bytes): (Vec<(Schedule, Blob)>, usize) = (Vec::new(), 0);
        for row in rows.filter(|row| row.passes(filter)) {
            if items.len() == limit || n_bytes >= PAGE_BYTES_MAX {
                let next = items.last().map(|(schedule, _)| schedule.id);
                return SchedulePage { items, next };
            }
            n_bytes += row.spec.len();
            items.push(row.shown());
        }
        SchedulePage { items, next: None }
    }

    /// Ended runs that are too old, or too far behind their schedule's latest; at most `limit` of each, and whether there
    /// may be more.
    pub(super) fn purge_runs(&mut self, now: Now, purge: &Purge) -> bool {
        let is_old = |run: &Run| run.ended_at.is_some_and(|at| is_past(now, at, purge.runs_ms));
        let old = self.take_runs(purge.limit, is_old);
        let mut latest = BTreeMap::new();
        self.runs.keys().for_each(|&(schedule, n)| _ = latest.insert(schedule, n));
        let is_behind = |run: &Run| run.n <= latest[&run.schedule].saturating_sub(purge.runs_max);
        let behind = self.take_runs(purge.limit, |run| run.ended_at.is_some() && is_behind(run));
        old || behind
    }

    fn take_runs(&mut self, limit: usize, goes: impl Fn(&Run) -> bool) -> bool {
        let found = self.runs.iter().filter(|(_, run)| goes(run)).map(|(&key, _)| key);
        let found: Vec<(ScheduleId, u64)> = found.take(limit).collect();
        for key in &found {
            let run = self.runs.remove(key).expect("it was just found");
            moment(&run).map(|moment| self.moments.remove(&moment));
        }
        found.len() >= limit
    }
}

impl Row {
    fn shown(&self) -> (Schedule, Blob) {
        (self.schedule.clone(), self.spec.clone())
    }

    fn passes(&self, filter: &ScheduleFilter) -> bool {
        filter.enabled.is_none_or(|enabled| enabled == self.schedule.is_enabled())
            && filter.agent.as_ref().is_none_or(|agent| *agent == self.template.flow.agent)
    }
}

fn due(schedule: &Schedule) -> Option<ScheduleDue> {
    schedule.due_at().map(|at| (at, schedule.id))
}

fn moment(run: &Run) -> Option<(ScheduleId, WallMs)> {
    (run.cause != Cause::Hand).then_some((run.schedule, run.scheduled_for))
}
