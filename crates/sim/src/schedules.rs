//! Schedules by bookkeeping of its own: what each of their moments and each wish of an owner makes of their rows, which runs
//! there must be, and when those are over.

use std::collections::{BTreeMap, BTreeSet};

use runyard_core::event::{Admit, Happening, HappeningKind, NewTask, Subject};
use runyard_core::ids::{ScheduleId, TaskId, Ticket};
use runyard_core::name::{Blob, Name};
use runyard_core::now::WallMs;
use runyard_core::schedule::{
    Cause, NewSchedule, Origin, Outcome, Overlap, Run, Schedule, ScheduleAct, ScheduleAnswer, ScheduleRefusal,
    Standing, Template,
};
use runyard_core::session::Mode;
use runyard_core::task::{Phase, Text};
use runyard_core::write::WriteSet;
use runyard_store::store::{Reader, ScheduleFilter};

use crate::oracle::{Applied, Oracle};
use crate::timetable::{Walk, after, fires_at, walk};

pub(crate) type Told = (HappeningKind, Option<u64>, u32);
type Acted = Result<ScheduleAnswer, ScheduleRefusal>;

#[derive(Default)]
pub struct Book {
    /// As they must be.
    pub rows: BTreeMap<ScheduleId, ScheduleShadow>,
    /// As they were committed.
    stored: BTreeMap<ScheduleId, Schedule>,
    runs: BTreeMap<(ScheduleId, u64), Run>,
    /// Runs whose tasks have not ended.
    open: BTreeSet<(ScheduleId, u64)>,
    /// Nominal times that have a run, or were counted with one.
    moments: BTreeMap<ScheduleId, BTreeSet<WallMs>>,
    /// What was sent to sessions in this tick, and what is to be told and answered.
    pub(crate) fired: Vec<NewTask>,
    told: BTreeMap<ScheduleId, Vec<Told>>,
    pub(crate) answers: BTreeMap<Ticket, Acted>,
}

pub struct ScheduleShadow {
    pub row: Schedule,
    pub(crate) template: Template,
    spec: Blob,
}

/// Somebody wants something of a schedule.
pub(crate) struct Wish {
    pub(crate) ticket: Ticket,
    pub(crate) id: ScheduleId,
    pub(crate) act: ScheduleAct,
    pub(crate) admit: Admit,
    pub(crate) schedules_max: u64,
}

impl Oracle {
    // ── Commits ─────────────────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn apply_schedules(&mut self, writes: &WriteSet, applied: &mut Applied) {
        for row in &writes.schedules_put {
            self.book.stored.insert(row.schedule.id, row.schedule.clone());
        }
        for id in &writes.schedules_removed {
            self.book.stored.remove(id);
        }
        applied.runs_added = writes.runs_added.clone();
        applied.runs_put = writes.runs_put.clone();
        applied.schedules_told = told(&writes.happenings);
    }

    /// A new tick that was committed, or had nothing to commit.
    pub(crate) fn open_book(&mut self) {
        self.book.fired.clear();
        self.book.told.clear();
        self.book.answers.clear();
    }

    /// What an owner wants is done before anything is due. Gives the task that he started.
    pub(crate) fn follow_wish(&mut self, wish: &Wish, applied: &Applied) -> Option<NewTask> {
        let n_fired = self.book.fired.len();
        let acted = self.act(wish, applied);
        self.book.answers.insert(wish.ticket, acted);
        self.book.fired.get(n_fired).cloned()
    }

    fn act(&mut self, wish: &Wish, applied: &Applied) -> Acted {
        let id = wish.id;
        if let ScheduleAct::Create(new) = &wish.act {
            return self.create(id, new, wish.schedules_max);
        }
        if !self.book.rows.contains_key(&id) {
            return Err(ScheduleRefusal::NotFound);
        }
        match &wish.act {
            ScheduleAct::Edit(new) => self.edit(id, new)?,
            ScheduleAct::Pause { reason } => self.book.pause(id, self.now.wall_ms, reason.clone()),
            ScheduleAct::Resume => self.resume(id)?,
            ScheduleAct::Delete => {
                self.book.remove(id);
                return Ok(ScheduleAnswer::Deleted);
            }
            ScheduleAct::Run if wish.admit != Admit::Open => return Err(ScheduleRefusal::Draining),
            ScheduleAct::Run => {
                let run = self.fire(id, self.now.wall_ms, Cause::Hand, applied);
                if self.book.rows[&id].row.is_enabled() {
                    self.end_if_over(id);
                }
                return Ok(ScheduleAnswer::Ran(Box::new(run)));
            }
            ScheduleAct::Create(_) => unreachable!("it was just made"),
        }
        Ok(ScheduleAnswer::Row(Box::new(self.book.rows[&id].row.clone())))
    }

    fn create(&mut self, id: ScheduleId, new: &NewSchedule, limit: u64) -> Acted {
        let now = self.now.wall_ms;
        if let Some(shadow) = self.book.rows.get(&id) {
            return Ok(ScheduleAnswer::Row(Box::new(shadow.row.clone())));
        }
        self.book.check_name(id, &new.name)?;
        if self.book.rows.len() as u64 >= limit {
            return Err(ScheduleRefusal::TooMany { limit });
        }
        let next = after(&new.rules, now).ok_or(ScheduleRefusal::NoFuture)?;
        let row = Schedule {
            id,
            name: new.name.clone(),
            rules: new.rules.clone(),
            standing: new.standing.clone(),
            revision: 1,
            next_for: Some(next).filter(|_| new.standing == Standing::Enabled),
            done_to: 0,
            n_runs: 0,
            n_live: 0,
            n_failed_in_row: 0,
            is_alerted: false,
            created_at: now,
            changed_at: now,
        };
        let shadow =
            ScheduleShadow { row: row.clone(), template: new.body.template.clone(), spec: new.body.spec.clone() };
        self.book.rows.insert(id, shadow);
        self.book.tell(id, HappeningKind::ScheduleCreated, None);
        Ok(ScheduleAnswer::Row(Box::new(row)))
    }

    /// A moment that has come and has no run yet stays the next, where the timing is the same and it lies in the window;
    /// else the next is the first that lies ahead and has no run.
    fn edit(&mut self, id: ScheduleId, new: &NewSchedule) -> Result<(), ScheduleRefusal> {
        let now = self.now.wall_ms;
        self.book.check_name(id, &new.name)?;
        let last = self.book.last_moment(id);
        let shadow = self.book.rows.get_mut(&id).expect("it is known");
        let row = &mut shadow.row;
        let is_inside = |at: &WallMs| {
            new.rules.from.is_none_or(|from| from <= *at) && new.rules.until.is_none_or(|until| *at < until)
        };
        let is_same = row.rules.timing == new.rules.timing;
        let kept = row.next_for.filter(|at| is_same && *at <= now && is_inside(at));
        let next = kept.or_else(|| after(&new.rules, now.max(last)));
        let is_enabled = new.standing == Standing::Enabled;
        let used_up = new.rules.runs_max.filter(|max| *max <= row.n_runs);
        if let Some(runs_max) = used_up.filter(|_| is_enabled) {
            return Err(ScheduleRefusal::UsedUp { n_runs: row.n_runs, runs_max });
        }
        if is_enabled && next.is_none() {
            return Err(ScheduleRefusal::NoFuture);
        }
        row.name = new.name.clone();
        row.rules = new.rules.clone();
        row.standing = new.standing.clone();
        row.next_for = next.filter(|_| is_enabled);
        row.revision += 1;
        row.changed_at = now;
        shadow.template = new.body.template.clone();
        shadow.spec = new.body.spec.clone();
        self.book.tell(id, HappeningKind::ScheduleChanged, None);
        Ok(())
    }

    /// It goes on with the first moment that lies ahead: what passed meanwhile was not missed.
    fn resume(&mut self, id: ScheduleId) -> Result<(), ScheduleRefusal> {
        let (now, last) = (self.now.wall_ms, self.book.last_moment(id));
        let row = &mut self.book.rows.get_mut(&id).expect("it is known").row;
        if row.is_enabled() {
            return Ok(());
        }
        let is_used_up = row.rules.runs_max.is_some_and(|max| max <= row.n_runs);
        let next = after(&row.rules, now.max(last)).filter(|_| !is_used_up);
        row.next_for = Some(next.ok_or(ScheduleRefusal::NoFuture)?);
        row.standing = Standing::Enabled;
        row.changed_at = now;
        self.book.tell(id, HappeningKind::ScheduleResumed, None);
        Ok(())
    }

    // ── Moments ─────────────────────────────────────────────────────────────────────────────────────────────────

    /// Sessions that something due may be sent to.
    pub(crate) fn sessions_due(&self) -> impl Iterator<Item = &Name> {
        let is_due = |row: &Schedule| row.next_for.is_some_and(|at| fires_at(row, at) <= self.now.wall_ms);
        let due = self.book.rows.values().filter(move |shadow| is_due(&shadow.row));
        due.filter_map(|shadow| Some(&shadow.template.session.as_ref()?.key))
    }

    /// Some of those that are due: the others come with the next ticks, before the yard rests. Gives what they sent.
    pub(crate) fn follow_due(&mut self, applied: &Applied) -> Vec<NewTask> {
        let n_fired = self.book.fired.len();
        let is_open = self.admit == Admit::Open && !self.config.schedules_paused;
        let touched: BTreeSet<ScheduleId> =
            applied.runs_added.iter().filter(|run| run.cause != Cause::Hand).map(|run| run.schedule).collect();
        assert!(is_open || touched.is_empty(), "nothing is due now, and {touched:?} fired");
        for id in self.book.in_turn() {
            let row = &self.book.rows[&id].row;
            let Some(walk) = walk(row, self.now.wall_ms).filter(|_| is_open) else { continue };
            // One that has had all its runs ends without another.
            let is_over = || self.book.stored.get(&id).is_none_or(|stored| !stored.is_enabled());
            let ends_only = walk.fires.is_empty() && walk.missed.is_none() && is_over();
            if touched.contains(&id) || ends_only {
                self.follow_walk(id, &walk, applied);
            }
        }
        self.book.fired[n_fired..].to_vec()
    }

    fn follow_walk(&mut self, id: ScheduleId, walk: &Walk, applied: &Applied) {
        if let Some((latest, n)) = walk.missed {
            self.book.tell_of(id, HappeningKind::ScheduleMissed, self.book.rows[&id].row.n_runs + 1);
            let is_ahead = walk.next.is_some_and(|next| next <= latest);
            if !is_ahead && !walk.fires.iter().any(|(at, _)| *at == latest) {
                self.miss(id, latest, n, applied);
            }
        }
        for &(nominal, cause) in &walk.fires {
            self.fire(id, nominal, cause, applied);
        }
        let passed = walk.missed.map(|(latest, _)| latest).filter(|at| walk.next.is_none_or(|next| *at < next));
        let last = self.book.last_moment(id).max(passed.unwrap_or(0));
        self.book.moments.entry(id).or_default().insert(last);
        let row = &mut self.book.rows.get_mut(&id).expect("it is known").row;
        row.next_for = walk.next;
        row.done_to = row.done_to.max(last);
        self.end_if_over(id);
    }

    /// Nothing lies ahead of it, or it has had all its runs.
    fn end_if_over(&mut self, id: ScheduleId) {
        let row = &mut self.book.rows.get_mut(&id).expect("it is known").row;
        let is_used_up = row.rules.runs_max.is_some_and(|max| max <= row.n_runs);
        if row.next_for.is_some() && !is_used_up {
            return;
        }
        if row.rules.delete_after_run && row.n_live == 0 {
            return self.book.remove(id);
        }
        let why = if is_used_up { "it has had all its runs" } else { "no moment of it lies ahead" };
        row.standing = Standing::Done { why: why.into() };
        row.next_for = None;
    }

    fn miss(&mut self, id: ScheduleId, latest: WallMs, n_missed: u32, applied: &Applied) {
        let now = self.now.wall_ms;
        let row = &mut self.book.rows.get_mut(&id).expect("it is known").row;
        row.n_runs += 1;
        let expected = Run {
            outcome: Outcome::Missed { n: n_missed },
            ended_at: Some(now),
            ..new_run(row, now, latest, Cause::Time)
        };
        let run = applied.run(id, row.n_runs);
        assert_eq!(run, Some(&expected), "the moments of {id:?} that were missed");
        self.book.note(expected);
    }

    /// One moment, one run; whether there was room for its task is seen in the run.
    fn fire(&mut self, id: ScheduleId, nominal: WallMs, cause: Cause, applied: &Applied) -> Run {
        let now = self.now.wall_ms;
        let ScheduleShadow { row, template, .. } = self.book.rows.get_mut(&id).expect("it is known");
        row.n_runs += 1;
        let run = applied.run(id, row.n_runs);
        let run = run.unwrap_or_else(|| panic!("{nominal} of {row:?} has come and has no run"));
        let mut expected = Run { task: run.task, ..new_run(row, now, nominal, cause) };
        let is_barred = row.rules.overlap == Overlap::Skip && row.n_live > 0;
        match run.task {
            Some(_) => {
                assert!(!is_barred, "run {} of {id:?} is at work beside another", run.n);
                row.n_live += 1;
            }
            None => {
                (expected.outcome, expected.ended_at) = (Outcome::Skipped, Some(now));
                expected.reason = run.reason.clone();
                let is_expected = match is_barred {
                    true => &*run.reason == "the run before is still at work",
                    false => template.session.is_some() || run.reason.contains("full") || run.reason.contains("many"),
                };
                assert!(is_expected, "run {} of {id:?} is skipped: {}", run.n, run.reason);
            }
        }
        // Its task may have ended in the tick that made it; that is looked at as an end.
        let is_live = run.outcome == Outcome::Live;
        assert!(*run == expected || run.task.is_some() && !is_live, "{run:?} is not {expected:?}");
        let item = item(template, row, run);
        let kind = if run.task.is_some() { HappeningKind::ScheduleFired } else { HappeningKind::ScheduleSkipped };
        self.book.tell_of(id, kind, expected.n);
        self.book.note(expected.clone());
        self.check_made(&item, run, applied);
        self.book.fired.push(item);
        expected
    }

    fn check_made(&self, item: &NewTask, run: &Run, applied: &Applied) {
        let Some(id) = run.task else { return };
        assert!(applied.created.contains(&id), "{id:?} is made with {run:?}");
        let row = &self.rows[&id];
        assert_eq!(row.origin, item.origin, "the origin of {id:?}");
        assert_eq!(self.specs.get(&id), Some(&item.spec), "the payload of {id:?}");
        if row.member.is_none_or(|member| member.n_merged == 0) {
            assert_eq!((row.rank, row.policy), (item.rank, item.policy), "{id:?} is as its template says");
            let key = self.flows.get(&row.flow).map(|flow| &*flow.key);
            assert!(key.is_none_or(|key| *key == item.flow), "the flow of {id:?}");
        }
        let as_mode = item.session.as_ref().and_then(|member| member.as_mode);
        assert_eq!(row.member.and_then(|member| member.as_mode), as_mode, "how {id:?} joins its session");
    }

    // ── Ends ────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Runs that were closed, in the order in which their ends were worked off.
    pub(crate) fn follow_ends(&mut self, applied: &Applied) {
        let at_once = applied.runs_added.iter().filter(|run| run.task.is_some() && run.outcome != Outcome::Live);
        for run in applied.runs_put.iter().chain(at_once) {
            let key = (run.schedule, run.n);
            assert!(self.book.open.remove(&key), "{run:?} is closed once");
            let expected = self.closed(&self.book.runs[&key], run);
            assert_eq!(*run, expected, "a run is closed as its task ended");
            self.book.runs.insert(key, expected);
            self.book.count(run, self.now.wall_ms);
        }
        for id in &applied.created {
            let row = &self.rows[id];
            let Some(Origin { schedule, run }) = row.origin.filter(|_| row.phase() != Phase::Rejected) else {
                continue;
            };
            let task = self.book.runs.get(&(schedule, run)).and_then(|run| run.task);
            assert_eq!(task, Some(*id), "{id:?} is the task of a run");
        }
        self.check_book(applied);
    }

    fn closed(&self, open: &Run, said: &Run) -> Run {
        let task = &self.rows[&open.task.expect("an open run has a task")];
        let error = task.error.as_ref();
        assert!(said.tail.is_none() || said.outcome == Outcome::Completed, "{said:?} has a result");
        Run {
            outcome: match task.phase() {
                Phase::Completed => Outcome::Completed,
                Phase::Failed => Outcome::Failed,
                Phase::Cancelled => Outcome::Cancelled,
                phase => panic!("{said:?} is closed, and its task is {phase:?}"),
            },
            started_at: task.started_at,
            ended_at: task.finished_at,
            attempts: task.n_runs,
            class: error.map(|error| error.class),
            reason: error.map_or_else(|| task.reason.clone(), |error| error.message.clone()),
            usage: task.usage.as_deref().copied(),
            tail: said.tail.clone(),
            ..open.clone()
        }
    }

    fn check_book(&self, applied: &Applied) {
        for run in &applied.runs_added {
            assert!(self.book.runs.contains_key(&(run.schedule, run.n)), "{run:?} is of no moment");
        }
        assert_eq!(self.book.told, applied.schedules_told, "what is told of schedules");
        for (id, shadow) in &self.book.rows {
            assert_eq!(self.book.stored.get(id), Some(&shadow.row), "schedule {id:?} at {}", self.now.wall_ms);
            let last = self.book.last_moment(*id);
            assert!(shadow.row.next_for.is_none_or(|next| next > last), "{last} of {:?} has a run", shadow.row);
        }
        assert_eq!(self.book.stored.len(), self.book.rows.len(), "schedules that are removed are gone");
    }

    // ── At rest ─────────────────────────────────────────────────────────────────────────────────────────────────

    /// Nothing is due, and every run whose task has ended is closed.
    pub(crate) fn check_book_rested(&self) {
        let is_open = self.admit == Admit::Open && !self.config.schedules_paused;
        let mut n_live: BTreeMap<ScheduleId, u32> = BTreeMap::new();
        for key in &self.book.open {
            let task = self.book.runs[key].task.expect("an open run has a task");
            assert!(self.live.contains(&task), "{task:?} has ended and its run {key:?} has not");
            *n_live.entry(key.0).or_default() += 1;
        }
        for (id, ScheduleShadow { row, .. }) in &self.book.rows {
            assert_eq!(row.n_live, n_live.get(id).copied().unwrap_or(0), "live runs of {id:?}");
            let is_due = row.is_enabled() && row.next_for.is_some_and(|at| fires_at(row, at) <= self.now.wall_ms);
            assert!(!is_open || !is_due, "{row:?} is due, and the yard rests at {}", self.now.wall_ms);
        }
    }

    /// At the end: against what the store really holds.
    pub(crate) fn recount_book(&self, reader: &dyn Reader) {
        let page = reader.schedules(&ScheduleFilter::default(), None, usize::MAX).expect("memory is readable");
        let stored: BTreeMap<ScheduleId, (Schedule, Blob)> =
            page.items.into_iter().map(|(row, spec)| (row.id, (row, spec))).collect();
        let expected =
            self.book.rows.iter().map(|(id, shadow)| (*id, (shadow.row.clone(), shadow.spec.clone()))).collect();
        assert_eq!(stored, expected, "schedules in the store");
        let ids: BTreeSet<ScheduleId> = self.book.runs.keys().map(|(id, _)| *id).collect();
        for id in ids {
            let mut runs = reader.runs(id, None, usize::MAX).expect("memory is readable");
            runs.reverse();
            let expected = self.book.runs.range((id, 0)..=(id, u64::MAX)).map(|(_, run)| run);
            assert!(runs.iter().eq(expected), "runs of {id:?} in the store");
        }
    }
}

impl Book {
    fn check_name(&self, id: ScheduleId, name: &Name) -> Result<(), ScheduleRefusal> {
        let other = self.rows.iter().find(|(other, shadow)| **other != id && shadow.row.name == *name);
        other.map_or(Ok(()), |(by, _)| Err(ScheduleRefusal::NameTaken { by: *by }))
    }

    /// In the order in which they are due.
    fn in_turn(&self) -> Vec<ScheduleId> {
        let rows = self.rows.values().map(|shadow| &shadow.row);
        let mut due: Vec<(WallMs, ScheduleId)> =
            rows.filter_map(|row| Some((fires_at(row, row.next_for?), row.id))).collect();
        due.sort_unstable();
        due.into_iter().map(|(_, id)| id).collect()
    }

    fn last_moment(&self, id: ScheduleId) -> WallMs {
        self.moments.get(&id).and_then(|moments| moments.last()).copied().unwrap_or(0)
    }

    fn note(&mut self, run: Run) {
        let key = (run.schedule, run.n);
        if run.cause != Cause::Hand {
            let is_new = self.moments.entry(run.schedule).or_default().insert(run.scheduled_for);
            assert!(is_new, "{} of {:?} has a run already", run.scheduled_for, run.schedule);
        }
        if run.task.is_some() {
            self.open.insert(key);
        }
        assert!(self.runs.insert(key, run).is_none(), "{key:?} is a new number");
    }

    fn pause(&mut self, id: ScheduleId, now: WallMs, reason: Text) {
        let row = &mut self.rows.get_mut(&id).expect("it is known").row;
        if row.is_enabled() {
            row.standing = Standing::Paused { reason };
            row.next_for = None;
            row.changed_at = now;
            self.tell(id, HappeningKind::SchedulePaused, None);
        }
    }

    fn remove(&mut self, id: ScheduleId) {
        self.tell(id, HappeningKind::ScheduleDeleted, None);
        self.rows.remove(&id);
    }

    /// What the end of a run means for its schedule, if that is still there.
    fn count(&mut self, run: &Run, now: WallMs) {
        let id = run.schedule;
        let Some(ScheduleShadow { row, .. }) = self.rows.get_mut(&id) else { return };
        row.n_live -= 1;
        match run.outcome {
            Outcome::Completed => {
                row.n_failed_in_row = 0;
                if std::mem::take(&mut row.is_alerted) {
                    self.tell_of(id, HappeningKind::ScheduleRecovered, run.n);
                }
            }
            Outcome::Failed => {
                row.n_failed_in_row += 1;
                let n_failed = row.n_failed_in_row;
                let is_enough = |after: Option<u32>| after.is_some_and(|after| after <= n_failed);
                let pauses = is_enough(row.rules.pause_after);
                if is_enough(row.rules.alert_after) && !std::mem::replace(&mut row.is_alerted, true) {
                    self.tell_of(id, HappeningKind::ScheduleFailing, run.n);
                }
                if pauses {
                    self.pause(id, now, format!("it failed {n_failed} times in a row").into());
                }
            }
            _ => {}
        }
        let row = &self.rows[&id].row;
        if row.rules.delete_after_run && row.n_live == 0 && matches!(row.standing, Standing::Done { .. }) {
            self.remove(id);
        }
    }

    fn tell_of(&mut self, id: ScheduleId, kind: HappeningKind, run: u64) {
        self.tell(id, kind, Some(run));
    }

    fn tell(&mut self, id: ScheduleId, kind: HappeningKind, run: Option<u64>) {
        let n_failed = self.rows[&id].row.n_failed_in_row;
        self.told.entry(id).or_default().push((kind, run, n_failed));
    }
}

impl Applied {
    fn run(&self, schedule: ScheduleId, n: u64) -> Option<&Run> {
        self.runs_added.iter().find(|run| run.schedule == schedule && run.n == n)
    }
}

fn told(happenings: &[Happening]) -> BTreeMap<ScheduleId, Vec<Told>> {
    let mut told: BTreeMap<ScheduleId, Vec<Told>> = BTreeMap::new();
    for happening in happenings {
        if let Subject::Schedule(facts) = &happening.subject {
            told.entry(facts.schedule).or_default().push((happening.kind, facts.run, facts.n_failed));
        }
    }
    told
}

/// The number of the latest run, and nothing that its task has done.
fn new_run(row: &Schedule, now: WallMs, nominal: WallMs, cause: Cause) -> Run {
    Run {
        schedule: row.id,
        n: row.n_runs,
        name: row.name.clone(),
        scheduled_for: nominal,
        cause,
        task: None,
        outcome: Outcome::Live,
        created_at: now,
        started_at: None,
        ended_at: None,
        attempts: 0,
        class: None,
        reason: Text::default(),
        usage: None,
        tail: None,
    }
}

/// What its template makes of a run. One that became part of another task has no id of its own.
fn item(template: &Template, row: &Schedule, run: &Run) -> NewTask {
    let mode = if row.rules.overlap == Overlap::Replace { Mode::Interrupt } else { Mode::Queue };
    let mut session = template.session.clone();
    session.iter_mut().for_each(|member| member.as_mode = Some(mode));
    let spec = String::from_utf8_lossy(&template.spec).replace("{{run}}", &run.n.to_string());
    NewTask {
        id: run.task.unwrap_or(TaskId(0)),
        flow: template.flow.clone(),
        rank: template.rank,
        policy: template.policy,
        run_at: None,
        delay_ms: None,
        deadline: None,
        dependency_timeout_ms: None,
        depends_on: Vec::new(),
        session,
        steers: None,
        origin: Some(Origin { schedule: row.id, run: run.n }),
        spec: spec.as_bytes().into(),
        refused: None,
        idempotency: None,
    }
}
