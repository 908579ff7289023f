//! Schedules in the tick: what is due becomes runs and tasks, what ends closes its run, and what their owners ask for.

use std::sync::Arc;

use runyard_cron::written;

use crate::core::{Core, DUES_PER_WAKE, answer};
use crate::event::{
    Accepted, Admit, Answer, Asked, Command, HappeningKind, NewTask, Refusal, Release, Subject, Submission, SubmitMode,
};
use crate::hash::mix;
use crate::ids::{ScheduleId, TaskId, Ticket};
use crate::name::Blob;
use crate::now::{Now, WallMs};
use crate::planted::Bug;
use crate::schedule::{
    Cause, NewSchedule, Origin, Outcome, Overlap, Run, Schedule, ScheduleAct, ScheduleAnswer, ScheduleBody,
    ScheduleDue, ScheduleFacts, ScheduleRefusal, Standing, TAIL_BYTES_MAX, Template, Timing,
};
use crate::session::Mode;
use crate::task::{Phase, Text};
use crate::write::{Needs, ScheduleRow, WriteSet};

/// A schedule that this tick is about. It is forgotten at the tick's end.
#[derive(Debug)]
pub(crate) struct ScheduleEntry {
    pub schedule: Schedule,
    pub template: Arc<Template>,
    /// What the window of due moments holds of it.
    pub due_at: Option<WallMs>,
    pub dirty: bool,
    pub new_body: Option<ScheduleBody>,
}

type Acted = Result<ScheduleAnswer, ScheduleRefusal>;

impl Core {
    // ── Reading ─────────────────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn need_schedule(&self, id: ScheduleId, act: &ScheduleAct, needs: &mut Needs) {
        if !self.schedules.contains_key(&id) {
            needs.schedules.push(id);
        }
        if let ScheduleAct::Create(new) | ScheduleAct::Edit(new) = act {
            needs.schedule_names.push(new.name.clone());
            new.body.template.session.iter().for_each(|member| self.need_session(&member.key, needs));
        }
    }

    /// Sessions that the tasks of these schedules join.
    pub fn needs_of_schedules(&self, rows: &[(Schedule, Arc<Template>)], needs: &mut Needs) {
        let members = rows.iter().filter_map(|(_, template)| template.session.as_ref());
        members.for_each(|member| self.need_session(&member.key, needs));
    }

    pub(crate) fn load_schedule(&mut self, (schedule, template): (Schedule, Arc<Template>)) {
        if self.tick.schedules_removed.contains(&schedule.id) {
            return;
        }
        let due_at = schedule.due_at();
        let entry = ScheduleEntry { schedule, template, due_at, dirty: false, new_body: None };
        self.schedules.entry(entry.schedule.id).or_insert(Box::new(entry));
    }

    /// Those whose time has come, so many as one tick works on. None while nothing is taken in: they stay due, and whether
    /// they are then late is decided then.
    pub(crate) fn schedules_due(&self, now: Now) -> impl Iterator<Item = ScheduleDue> {
        let is_open = self.admit == Admit::Open && !self.config.schedules_paused;
        let dues = self.schedule_dues.iter().take_while(move |(at, _)| is_open && *at <= now.wall_ms);
        dues.take(DUES_PER_WAKE).copied()
    }

    pub(crate) fn next_schedule_due(&self) -> Option<WallMs> {
        let is_open = self.admit == Admit::Open && !self.config.schedules_paused;
        self.schedule_dues.first().filter(|_| is_open).map(|(at, _)| at)
    }

    // ── Firing ──────────────────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn fire_schedules(&mut self, now: Now) {
        let due: Vec<ScheduleDue> = self.schedules_due(now).collect();
        for (at, id) in due {
            // Not loaded in this tick: it stays due and comes with the next.
            let Some(entry) = self.schedules.get(&id) else { continue };
            match entry.due_at == Some(at) {
                true => self.fire_due(now, id),
                false => self.schedule_dues.remove((at, id)),
            }
        }
    }

    fn fire_due(&mut self, now: Now, id: ScheduleId) {
        if let Timing::Unreadable { why, .. } = &self.schedules[&id].schedule.rules.timing {
            let why = why.clone();
            return self.pause(now, id, why);
        }
        let plan = self.schedules[&id].schedule.plan(now.wall_ms);
        if let Some((latest, n)) = plan.missed {
            // Now, or in a later tick.
            let is_fired =
                plan.fires.iter().any(|(at, _)| *at == latest) || plan.next_for.is_some_and(|at| at <= latest);
            self.missed(now, id, latest, n, is_fired);
        }
        for &(nominal, cause) in &plan.fires {
            self.fire(now, id, nominal, cause);
        }
        let passed = plan.missed.map(|(at, _)| at).filter(|at| plan.next_for.is_none_or(|next| *at < next));
        let done_to = plan.fires.iter().map(|(at, _)| *at).chain(passed).max();
        let next_for = match self.has_bug(Bug::FiresTwice) {
            true => self.schedules[&id].schedule.next_for,
            false => plan.next_for,
        };
        let next_for = match (self.has_bug(Bug::OccurrenceLost), next_for) {
            (true, Some(next)) => self.schedules[&id].schedule.rules.next_after(next),
            (_, next) => next,
        };
        self.change_schedule(id, |row| {
            row.next_for = next_for;
            row.done_to = row.done_to.max(done_to.unwrap_or(0));
        });
        self.finish_if_over(now, id);
    }

    /// One run, with its task where it gets one.
    fn fire(&mut self, now: Now, id: ScheduleId, nominal: WallMs, cause: Cause) -> Run {
        let entry = &self.schedules[&id];
        let is_busy = entry.schedule.n_live > 0 && !self.has_bug(Bug::OverlapIgnored);
        let mut run = self.new_run(now, id, nominal, cause);
        if entry.schedule.rules.overlap == Overlap::Skip && is_busy {
            run.reason = "the run before is still at work".into();
        } else {
            match self.submit_run(now, &run) {
                Ok(task) => {
                    run.task = Some(task);
                    run.outcome = Outcome::Live;
                }
                Err(reason) => run.reason = reason,
            }
        }
        let is_live = run.outcome == Outcome::Live;
        if !is_live {
            run.ended_at = Some(now.wall_ms);
        }
        self.change_schedule(id, |row| {
            row.n_runs += 1;
            row.n_live += u32::from(is_live);
        });
        self.tell_schedule(
            now,
            if is_live { HappeningKind::ScheduleFired } else { HappeningKind::ScheduleSkipped },
            id,
            Some(&run),
            "",
        );
        self.tick.runs_added.push(run.clone());
        run
    }

    /// As skipped, until something better is known.
    fn new_run(&self, now: Now, id: ScheduleId, nominal: WallMs, cause: Cause) -> Run {
        let row = &self.schedules[&id].schedule;
        Run {
            schedule: id,
            n: row.n_runs + 1,
            name: row.name.clone(),
            scheduled_for: nominal,
            cause,
            task: None,
            outcome: Outcome::Skipped,
            created_at: now.wall_ms,
            started_at: None,
            ended_at: None,
            attempts: 0,
            class: None,
            reason: Text::default(),
            usage: None,
            tail: None,
        }
    }

    /// Those that nobody was there for: one row for all of them. One that is fired all the same has its own.
    fn missed(&mut self, now: Now, id: ScheduleId, latest: WallMs, n: u32, is_fired: bool) {
        let mut run = self.new_run(now, id, latest, Cause::Time);
        run.outcome = Outcome::Missed { n };
        run.ended_at = Some(now.wall_ms);
        self.tell_schedule(now, HappeningKind::ScheduleMissed, id, Some(&run), "");
        if is_fired {
            return;
        }
        self.change_schedule(id, |row| row.n_runs += 1);
        self.tick.runs_added.push(run);
    }

    fn submit_run(&mut self, now: Now, run: &Run) -> Result<TaskId, Text> {
        let entry = &self.schedules[&run.schedule];
        let (template, overlap) = (entry.template.clone(), entry.schedule.rules.overlap);
        let mut session = template.session.clone();
        if let Some(member) = &mut session {
            member.as_mode = Some(if overlap == Overlap::Replace { Mode::Interrupt } else { Mode::Queue });
        }
        let spec = filled(&template.spec, now, run);
        let item = NewTask {
            rank: template.rank,
            policy: template.policy,
            session,
            origin: Some(Origin { schedule: run.schedule, run: run.n }),
            ..NewTask::new(self.task_of_run(now, run), template.flow.clone(), spec)
        };
        let submission = Submission {
            ticket: Ticket(0),
            batch: None,
            mode: SubmitMode::All,
            items: vec![item],
            idempotency: None,
            asked: Asked::Once,
        };
        match self.submit(now, submission) {
            Answer::Submitted { items } => match items.into_iter().next() {
                Some(Ok(Accepted { merged: Some(_), .. })) => {
                    Err("it became part of another task of its session".into())
                }
                Some(Ok(accepted)) => Ok(accepted.id),
                Some(Err(refusal)) => Err(in_words(&refusal)),
                None => unreachable!("one item has one answer"),
            },
            Answer::Refused(refusal) => Err(in_words(&refusal)),
            _ => unreachable!("a submission is taken or refused"),
        }
    }

    /// Shaped as the others are: its time, and bits that no other has. Derived, so that it needs no random number.
    fn task_of_run(&self, now: Now, run: &Run) -> TaskId {
        let schedule = mix(run.schedule.0 as u64) ^ mix((run.schedule.0 >> 64) as u64 ^ self.meta.salt);
        let (high, low) = (mix(schedule ^ run.n), mix(schedule.rotate_left(32) ^ mix(run.n ^ self.meta.salt)));
        let time = u128::from(now.wall_ms & 0xFFFF_FFFF_FFFF) << 80;
        let version = 0x7 << 76 | u128::from(high & 0xFFF) << 64;
        TaskId(time | version | 0b10 << 62 | u128::from(low >> 2))
    }

    /// Without anything ahead it is done; a single one may go with its run.
    fn finish_if_over(&mut self, now: Now, id: ScheduleId) {
        let row = &self.schedules[&id].schedule;
        let is_used_up = row.rules.runs_max.is_some_and(|max| row.n_runs >= max);
        if row.next_for.is_some() && !is_used_up {
            return;
        }
        // With a live run, the end of that comes back to it and removes it then.
        if row.rules.delete_after_run && row.n_live == 0 {
            return self.delete_schedule(now, id);
        }
        let why: Text = if is_used_up { "it has had all its runs" } else { "no moment of it lies ahead" }.into();
        self.change_schedule(id, |row| {
            row.next_for = None;
            row.standing = Standing::Done { why };
        });
    }

    // ── The end of a run ────────────────────────────────────────────────────────────────────────────────────────

    /// The schedule and the task are in memory, as far as they are still there; the run is `stored`, unless this tick
    /// has made or changed it.
    pub(crate) fn on_run_ended(&mut self, now: Now, release: Release, stored: Option<Run>) {
        let Release::RunEnded { schedule, run: n, task } = release else {
            unreachable!("only the end of a run ends one");
        };
        let is_it = |run: &Run| run.schedule == schedule && run.n == n;
        let (tick, entry) = (&mut self.tick, self.tasks.get(&task).map(|entry| &**entry));
        let fresh = tick.runs_added.iter_mut().find(|run| is_it(run));
        let known = fresh.or_else(|| tick.runs_put.iter_mut().find(|run| is_it(run)));
        let closed = match (known, stored) {
            (Some(run), _) => Some(closed(now, run, entry)),
            (None, Some(mut run)) => {
                let run = closed(now, &mut run, entry);
                tick.runs_put.push(run.clone());
                Some(run)
            }
            // Retention was quicker.
            (None, None) => None,
        };
        if let Some(run) = closed.filter(|_| self.schedules.contains_key(&schedule)) {
            self.count_run(now, schedule, &run);
        }
        self.release_done(release, true);
    }

    fn count_run(&mut self, now: Now, id: ScheduleId, run: &Run) {
        let row = self.change_schedule(id, |row| {
            row.n_live = row.n_live.saturating_sub(1);
            match run.outcome {
                Outcome::Completed => row.n_failed_in_row = 0,
                Outcome::Failed => row.n_failed_in_row += 1,
                // A stopped run says nothing about the next.
                _ => {}
            }
        });
        let (rules, n_failed, is_alerted) = (row.rules.clone(), row.n_failed_in_row, row.is_alerted);
        if run.outcome == Outcome::Completed && is_alerted {
            self.change_schedule(id, |row| row.is_alerted = false);
            self.tell_schedule(now, HappeningKind::ScheduleRecovered, id, Some(run), "");
        }
        if run.outcome == Outcome::Failed && !is_alerted && rules.alert_after.is_some_and(|after| n_failed >= after) {
            self.change_schedule(id, |row| row.is_alerted = true);
            self.tell_schedule(now, HappeningKind::ScheduleFailing, id, Some(run), &run.reason.clone());
        }
        let row = &self.schedules[&id].schedule;
        let is_enough = run.outcome == Outcome::Failed && rules.pause_after.is_some_and(|after| n_failed >= after);
        if is_enough && row.is_enabled() {
            self.pause(now, id, format!("it failed {n_failed} times in a row").into());
        }
        let row = &self.schedules[&id].schedule;
        // One that is paused has moments ahead.
        if rules.delete_after_run && matches!(row.standing, Standing::Done { .. }) && row.n_live == 0 {
            self.delete_schedule(now, id);
        }
    }

    // ── What their owners ask for ───────────────────────────────────────────────────────────────────────────────

    pub(crate) fn on_schedule(
        &mut self,
        now: Now,
        ticket: Ticket,
        id: ScheduleId,
        act: ScheduleAct,
        out: &mut Vec<Command>,
    ) {
        let acted = self.act_on_schedule(now, id, act);
        answer(out, ticket, Answer::Schedule(acted));
    }

    fn act_on_schedule(&mut self, now: Now, id: ScheduleId, act: ScheduleAct) -> Acted {
        if let ScheduleAct::Create(new) = act {
            return self.create_schedule(now, id, *new);
        }
        if !self.schedules.contains_key(&id) {
            return Err(ScheduleRefusal::NotFound);
        }
        match act {
            ScheduleAct::Create(_) => unreachable!("it was just taken"),
            ScheduleAct::Edit(new) => return self.edit_schedule(now, id, *new),
            ScheduleAct::Pause { reason } => self.pause(now, id, reason),
            ScheduleAct::Resume => self.resume(now, id)?,
            ScheduleAct::Delete => {
                self.delete_schedule(now, id);
                return Ok(ScheduleAnswer::Deleted);
            }
            ScheduleAct::Run if self.admit != Admit::Open => return Err(ScheduleRefusal::Draining),
            ScheduleAct::Run => {
                let run = self.fire(now, id, now.wall_ms, Cause::Hand);
                // It may have been the last that it may have. A paused one stays as it is.
                if self.schedules[&id].schedule.is_enabled() {
                    self.finish_if_over(now, id);
                }
                return Ok(ScheduleAnswer::Ran(Box::new(run)));
            }
        }
        Ok(ScheduleAnswer::Row(Box::new(self.schedules[&id].schedule.clone())))
    }

    fn create_schedule(&mut self, now: Now, id: ScheduleId, new: NewSchedule) -> Acted {
        if let Some(entry) = self.schedules.get(&id) {
            // The same command again, from a node that did not hear the answer.
            return Ok(ScheduleAnswer::Row(Box::new(entry.schedule.clone())));
        }
        self.check_name(id, &new)?;
        if self.n_schedules >= self.config.schedules_max {
            return Err(ScheduleRefusal::TooMany { limit: self.config.schedules_max });
        }
        let next_for = new.rules.next_after(now.wall_ms).ok_or(ScheduleRefusal::NoFuture)?;
        let schedule = Schedule {
            id,
            name: new.name,
            next_for: (new.standing == Standing::Enabled).then_some(next_for),
            rules: new.rules,
            standing: new.standing,
            revision: 1,
            done_to: 0,
            n_runs: 0,
            n_live: 0,
            n_failed_in_row: 0,
            is_alerted: false,
            created_at: now.wall_ms,
            changed_at: now.wall_ms,
        };
        let template = Arc::new(new.body.template.clone());
        let entry = ScheduleEntry { schedule, template, due_at: None, dirty: true, new_body: Some(new.body) };
        self.schedules.insert(id, Box::new(entry));
        self.n_schedules += 1;
        self.change_schedule(id, |_| {});
        self.tell_schedule(now, HappeningKind::ScheduleCreated, id, None, "");
        Ok(ScheduleAnswer::Row(Box::new(self.schedules[&id].schedule.clone())))
    }

    /// Moments that have their run are behind it, whatever the new timing says.
    fn edit_schedule(&mut self, now: Now, id: ScheduleId, new: NewSchedule) -> Acted {
        self.check_name(id, &new)?;
        let row = &self.schedules[&id].schedule;
        let is_same = row.rules.timing == new.rules.timing;
        let after = if self.has_bug(Bug::EditRefires) { row.created_at } else { now.wall_ms.max(row.done_to) };
        // A moment that has come and is not fired yet stays ahead of it, where it lies in the window.
        let is_pending = |next: &WallMs| is_same && *next <= now.wall_ms && new.rules.is_inside(*next);
        let next_for = row.next_for.filter(is_pending).or_else(|| new.rules.next_after(after));
        let wants_enabled = new.standing == Standing::Enabled;
        if let Some(runs_max) = new.rules.runs_max.filter(|max| wants_enabled && row.n_runs >= *max) {
            return Err(ScheduleRefusal::UsedUp { n_runs: row.n_runs, runs_max });
        }
        if wants_enabled && next_for.is_none() {
            return Err(ScheduleRefusal::NoFuture);
        }
        let entry = self.schedules.get_mut(&id).expect("it was just looked at");
        entry.template = Arc::new(new.body.template.clone());
        entry.new_body = Some(new.body);
        self.change_schedule(id, |row| {
            row.name = new.name;
            row.rules = new.rules;
            row.standing = new.standing;
            row.next_for = next_for.filter(|_| wants_enabled);
            row.revision += 1;
            row.changed_at = now.wall_ms;
        });
        self.tell_schedule(now, HappeningKind::ScheduleChanged, id, None, "");
        Ok(ScheduleAnswer::Row(Box::new(self.schedules[&id].schedule.clone())))
    }

    fn check_name(&self, id: ScheduleId, new: &NewSchedule) -> Result<(), ScheduleRefusal> {
        let other = self.schedules.values().find(|entry| entry.schedule.name == new.name && entry.schedule.id != id);
        other.map_or(Ok(()), |entry| Err(ScheduleRefusal::NameTaken { by: entry.schedule.id }))
    }

    fn pause(&mut self, now: Now, id: ScheduleId, reason: Text) {
        if !self.schedules[&id].schedule.is_enabled() {
            return;
        }
        let told = reason.clone();
        self.change_schedule(id, |row| {
            row.standing = Standing::Paused { reason };
            row.next_for = None;
            row.changed_at = now.wall_ms;
        });
        self.tell_schedule(now, HappeningKind::SchedulePaused, id, None, &told);
    }

    /// What passed while it was paused was not missed.
    fn resume(&mut self, now: Now, id: ScheduleId) -> Result<(), ScheduleRefusal> {
        let row = &self.schedules[&id].schedule;
        if row.is_enabled() {
            return Ok(());
        }
        let is_used_up = row.rules.runs_max.is_some_and(|max| row.n_runs >= max);
        let next_for = row.rules.next_after(now.wall_ms.max(row.done_to)).filter(|_| !is_used_up);
        let next_for = next_for.ok_or(ScheduleRefusal::NoFuture)?;
        self.change_schedule(id, |row| {
            row.standing = Standing::Enabled;
            row.next_for = Some(next_for);
            row.changed_at = now.wall_ms;
        });
        self.tell_schedule(now, HappeningKind::ScheduleResumed, id, None, "");
        Ok(())
    }

    /// Its runs stay readable, and what it has started goes on.
    fn delete_schedule(&mut self, now: Now, id: ScheduleId) {
        self.tell_schedule(now, HappeningKind::ScheduleDeleted, id, None, "");
        let entry = self.schedules.remove(&id).expect("a schedule that is spoken of is in memory");
        entry.due_at.into_iter().for_each(|at| self.schedule_dues.remove((at, id)));
        self.n_schedules -= 1;
        self.tick.schedules_removed.push(id);
    }

    // ── Bookkeeping ─────────────────────────────────────────────────────────────────────────────────────────────

    /// Changes the row, and with it what is due when.
    fn change_schedule(&mut self, id: ScheduleId, change: impl FnOnce(&mut Schedule)) -> &Schedule {
        let max = self.config.dues_max as usize;
        let entry = self.schedules.get_mut(&id).expect("a schedule that is spoken of is in memory");
        change(&mut entry.schedule);
        entry.dirty = true;
        let due_at = entry.schedule.due_at();
        if due_at != entry.due_at {
            entry.due_at.into_iter().for_each(|at| self.schedule_dues.remove((at, id)));
            due_at.into_iter().for_each(|at| self.schedule_dues.insert((at, id), max));
            entry.due_at = due_at;
        }
        &entry.schedule
    }

    pub(crate) fn flush_schedules(&mut self, writes: &mut WriteSet) {
        for entry in self.schedules.values_mut().filter(|entry| entry.dirty) {
            entry.dirty = false;
            writes.schedules_put.push(ScheduleRow { schedule: entry.schedule.clone(), body: entry.new_body.take() });
        }
        writes.schedules_removed = std::mem::take(&mut self.tick.schedules_removed);
        writes.runs_added = std::mem::take(&mut self.tick.runs_added);
        writes.runs_put = std::mem::take(&mut self.tick.runs_put);
    }

    fn tell_schedule(&mut self, now: Now, kind: HappeningKind, id: ScheduleId, run: Option<&Run>, reason: &str) {
        let entry = &self.schedules[&id];
        let row = &entry.schedule;
        let said = run.map(|run| run.reason.clone()).filter(|_| reason.is_empty());
        let facts = ScheduleFacts {
            schedule: id,
            name: row.name.clone(),
            agent: Some(entry.template.flow.agent.clone()),
            run: run.map(|run| run.n),
            task: run.and_then(|run| run.task),
            scheduled_for: run.map(|run| run.scheduled_for),
            n_failed: row.n_failed_in_row,
            reason: said.unwrap_or_else(|| reason.to_owned().into()),
        };
        self.happen(now, kind, Subject::Schedule(Box::new(facts)));
    }
}

/// The run with what its task came to.
fn closed(now: Now, run: &mut Run, entry: Option<&crate::core::Entry>) -> Run {
    let Some(entry) = entry else {
        run.outcome = Outcome::Cancelled;
        run.reason = "its task is gone".into();
        run.ended_at = Some(now.wall_ms);
        return run.clone();
    };
    let task = &entry.task;
    run.outcome = match task.phase() {
        Phase::Completed => Outcome::Completed,
        Phase::Cancelled => Outcome::Cancelled,
        _ => Outcome::Failed,
    };
    run.started_at = task.started_at;
    run.ended_at = task.finished_at;
    run.attempts = task.n_runs;
    run.class = task.error.as_ref().map(|error| error.class);
    run.reason = task.error.as_ref().map_or_else(|| task.reason.clone(), |error| error.message.clone());
    run.usage = task.usage.as_deref().copied();
    run.tail = entry.result.as_ref().map(|result| result[result.len().saturating_sub(TAIL_BYTES_MAX)..].into());
    run.clone()
}

/// The places in the text that only the run knows. Times and numbers need no quoting inside a JSON text.
fn filled(spec: &Blob, now: Now, run: &Run) -> Blob {
    let places: [(&[u8], String); 3] = [
        (b"{{scheduledFor}}", written(run.scheduled_for)),
        (b"{{fireTime}}", written(now.wall_ms)),
        (b"{{run}}", run.n.to_string()),
    ];
    let Some(first) = find(spec, b"{{") else { return spec.clone() };
    let (mut out, mut rest) = (spec[..first].to_vec(), &spec[first..]);
    while !rest.is_empty() {
        let place = places.iter().find(|(name, _)| rest.starts_with(name));
        match place {
            Some((name, value)) => {
                out.extend_from_slice(value.as_bytes());
                rest = &rest[name.len()..];
            }
            None => {
                // Up to the next place that may be one.
                let to = find(&rest[1..], b"{{").map_or(rest.len(), |at| at + 1);
                out.extend_from_slice(&rest[..to]);
                rest = &rest[to..];
            }
        }
    }
    out.into()
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// Why a run has no task, for people.
fn in_words(refusal: &Refusal) -> Text {
    match refusal {
        Refusal::QueueFull { agent: Some(agent), .. } => format!("the queue of agent {agent} is full").into(),
        Refusal::QueueFull { .. } => "the queue is full".into(),
        Refusal::TooManyFlows { .. } => "there are too many different kinds of work".into(),
        Refusal::Draining => "the server was draining".into(),
        Refusal::SessionBusy { .. } => "its session is busy".into(),
        Refusal::SessionFull { .. } => "the line of its session is full".into(),
        _ => "it was refused".into(),
    }
}
