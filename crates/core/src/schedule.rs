//! Schedules: what a row says, and which of its moments are to be fired now.
//!
//! ```text
//! enabled ─► due ─┬─► fired: a run and its task, in one commit ─┬─► enabled, with the next moment
//!    │ ▲          └─► skipped or missed: a run without a task ──┴─► done (its one time, its last run, its window's end)
//!  paused
//! ```
//!
//! A moment has two times: the *nominal* one, which the timing gives and which names it for ever, and the one at which it
//! is fired, later by the schedule's stagger and jitter. There is one run for each nominal time, and `next_for` is greater
//! than any that has one: so no moment is fired twice, whatever is edited and whenever the server dies.

use std::sync::Arc;

use runyard_cron::Calendar;

use crate::event::NewMember;
use crate::flow::FlowKey;
use crate::hash::mix;
use crate::ids::{ScheduleId, TaskId};
use crate::name::{Blob, Name};
use crate::now::WallMs;
use crate::session::Usage;
use crate::task::{Class, Policy, Text};

/// What is late by less is not missed: a restart, a busy moment.
pub const LATE_MS: u64 = 60_000;
/// A single time, which has no next one to make up for it, still fires when it is late by so much.
pub const LATE_AT_MS: u64 = 3_600_000;
/// Missed moments are counted so far.
pub const MISSED_MAX: u32 = 1000;
/// Of what a task gave, a run keeps so much.
pub const TAIL_BYTES_MAX: usize = 16 * 1024;
/// Moments of one schedule that one tick fires; the rest follows in the next.
const FIRES_PER_TICK: usize = 100;
/// Moments looked at to find the latest ones of a long absence.
const LOOKED_AT_MAX: usize = 100_000;

/// When it fires.
#[derive(Clone, PartialEq, Debug)]
pub enum Timing {
    At(WallMs),
    /// Each `every_ms` from the anchor on: a late run does not shift the others.
    Every {
        every_ms: u64,
        anchor: WallMs,
    },
    Cron(Arc<Calendar>),
    /// An expression that was fine when it was stored and cannot be read now: the tz database does not know its zone any
    /// more. It has no moments, and when one is due it is paused.
    Unreadable {
        expr: Text,
        zone: Text,
        why: Text,
    },
}

/// What becomes of a run that is due while an earlier one is still at work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Overlap {
    #[default]
    Skip,
    Queue,
    Replace,
    Allow,
}

/// What becomes of moments that passed while nobody was there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CatchUp {
    #[default]
    Skip,
    /// The latest of them.
    One,
    /// The latest `limit` of them that are not older than this.
    All { limit: u32, expiry_ms: u64 },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    Enabled,
    Paused {
        reason: Text,
    },
    /// Nothing of it will ever be due again.
    Done {
        why: Text,
    },
}

/// What its owner decided.
#[derive(Clone, PartialEq, Debug)]
pub struct Rules {
    pub timing: Timing,
    pub overlap: Overlap,
    pub catch_up: CatchUp,
    /// Added to every moment: the same for all of this schedule.
    pub stagger_ms: u64,
    /// Up to so much is added, another for each moment.
    pub jitter_ms: u64,
    /// No moment before, none at or after.
    pub from: Option<WallMs>,
    pub until: Option<WallMs>,
    pub runs_max: Option<u64>,
    pub delete_after_run: bool,
    /// Failures in a row after which its owner is told, and after which it is paused.
    pub alert_after: Option<u32>,
    pub pause_after: Option<u32>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Schedule {
    pub id: ScheduleId,
    pub name: Name,
    pub rules: Rules,
    pub standing: Standing,
    /// Raised by every edit.
    pub revision: u32,
    /// The nominal time of the next moment. `None` when nothing more comes, or while it is paused.
    pub next_for: Option<WallMs>,
    /// Every moment up to here has its run, or was passed over.
    pub done_to: WallMs,
    /// Runs so far, of every kind: the number of the next is one more.
    pub n_runs: u64,
    /// Those of them that had a task which has not ended.
    pub n_live: u32,
    pub n_failed_in_row: u32,
    /// Its owner has been told that it fails.
    pub is_alerted: bool,
    pub created_at: WallMs,
    pub changed_at: WallMs,
}

/// One moment of a schedule, and what came of it. It outlives its schedule.
#[derive(Clone, PartialEq, Debug)]
pub struct Run {
    pub schedule: ScheduleId,
    pub n: u64,
    pub name: Name,
    pub scheduled_for: WallMs,
    pub cause: Cause,
    pub task: Option<TaskId>,
    pub outcome: Outcome,
    pub created_at: WallMs,
    pub started_at: Option<WallMs>,
    pub ended_at: Option<WallMs>,
    pub attempts: u32,
    pub class: Option<Class>,
    /// Empty when there is nothing to add.
    pub reason: Text,
    pub usage: Option<Usage>,
    /// The end of what its task gave, if that is not longer than [`TAIL_BYTES_MAX`] all of it.
    pub tail: Option<Blob>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cause {
    Time,
    CatchUp,
    /// Somebody asked for it.
    Hand,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Its task has not ended.
    Live,
    Completed,
    Failed,
    Cancelled,
    /// An earlier one was still at work, or there was no room.
    Skipped,
    /// Nobody was there; so many in all, this being the latest of them.
    Missed {
        n: u32,
    },
}

/// When something is to be done about a schedule.
pub type ScheduleDue = (WallMs, ScheduleId);

/// The run that a task is the task of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    pub schedule: ScheduleId,
    pub run: u64,
}

/// What a run's task is made of.
#[derive(Clone, PartialEq, Debug)]
pub struct Template {
    pub flow: FlowKey,
    pub rank: i32,
    pub policy: Policy,
    pub session: Option<NewMember>,
    /// The task as submitted, with places to be filled in.
    pub spec: Blob,
}

#[derive(Clone, PartialEq, Debug)]
pub struct ScheduleBody {
    pub template: Template,
    /// The schedule as submitted; unread here.
    pub spec: Blob,
}

#[derive(Clone, Debug)]
pub enum ScheduleAct {
    Create(Box<NewSchedule>),
    /// All of it is replaced, but for what it has done so far.
    Edit(Box<NewSchedule>),
    Pause {
        reason: Text,
    },
    Resume,
    Delete,
    /// One run now, whatever its timing says.
    Run,
}

#[derive(Clone, Debug)]
pub struct NewSchedule {
    pub name: Name,
    pub rules: Rules,
    pub standing: Standing,
    pub body: ScheduleBody,
}

#[derive(Clone, PartialEq, Debug)]
pub enum ScheduleAnswer {
    /// As the event left it.
    Row(Box<Schedule>),
    Deleted,
    Ran(Box<Run>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScheduleRefusal {
    NotFound,
    NameTaken {
        by: ScheduleId,
    },
    /// No moment of it lies ahead.
    NoFuture,
    /// It has had all the runs it may have.
    UsedUp {
        n_runs: u64,
        runs_max: u64,
    },
    TooMany {
        limit: u64,
    },
    Draining,
}

/// What an event tells of a schedule.
#[derive(Clone, PartialEq, Debug)]
pub struct ScheduleFacts {
    pub schedule: ScheduleId,
    pub name: Name,
    /// Whose its tasks are. `None` in events of versions that did not say.
    pub agent: Option<Name>,
    pub run: Option<u64>,
    pub task: Option<TaskId>,
    pub scheduled_for: Option<WallMs>,
    /// Failures in a row.
    pub n_failed: u32,
    /// Empty when there is nothing to add.
    pub reason: Text,
}

/// What is to be done about a schedule at a moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// Nominal times, in order.
    pub fires: Vec<(WallMs, Cause)>,
    /// The latest missed one that is not fired, and how many there were.
    pub missed: Option<(WallMs, u32)>,
    pub next_for: Option<WallMs>,
}

impl Timing {
    /// The first nominal time after this one.
    pub fn next_after(&self, after: WallMs) -> Option<WallMs> {
        match self {
            Timing::At(at) => Some(*at).filter(|at| *at > after),
            Timing::Every { every_ms, anchor } => {
                if after < *anchor {
                    return Some(*anchor);
                }
                let n_passed = (after - anchor) / every_ms + 1;
                n_passed.checked_mul(*every_ms)?.checked_add(*anchor)
            }
            Timing::Cron(calendar) => calendar.next_after_ms(after),
            Timing::Unreadable { .. } => None,
        }
    }

    /// What is late by no more still fires.
    fn late_ms_max(&self) -> u64 {
        if matches!(self, Timing::At(_)) { LATE_AT_MS } else { LATE_MS - 1 }
    }
}

impl Rules {
    /// Nothing but when.
    pub fn new(timing: Timing) -> Rules {
        Rules {
            timing,
            overlap: Overlap::default(),
            catch_up: CatchUp::default(),
            stagger_ms: 0,
            jitter_ms: 0,
            from: None,
            until: None,
            runs_max: None,
            delete_after_run: false,
            alert_after: None,
            pause_after: None,
        }
    }

    /// The first nominal time after this one that lies in the window.
    pub fn next_after(&self, after: WallMs) -> Option<WallMs> {
        let after = self.from.map_or(after, |from| after.max(from.saturating_sub(1)));
        self.timing.next_after(after).filter(|at| self.is_inside(*at))
    }

    /// Is this moment in the window?
    pub(crate) fn is_inside(&self, at: WallMs) -> bool {
        self.from.is_none_or(|from| from <= at) && self.until.is_none_or(|until| at < until)
    }

    /// When a moment is fired.
    pub fn fires_at(&self, id: ScheduleId, nominal: WallMs) -> WallMs {
        let jitter = match self.jitter_ms {
            0 => 0,
            max => mix(nominal ^ id.0 as u64 ^ (id.0 >> 64) as u64) % (max + 1),
        };
        nominal.saturating_add(self.stagger_ms).saturating_add(jitter)
    }
}

impl Schedule {
    pub fn is_enabled(&self) -> bool {
        self.standing == Standing::Enabled
    }

    /// When something is to be done about it.
    pub fn due_at(&self) -> Option<WallMs> {
        let next_for = self.next_for.filter(|_| self.is_enabled())?;
        Some(self.rules.fires_at(self.id, next_for))
    }

    /// How many more runs it may have.
    fn runs_left(&self) -> u64 {
        self.rules.runs_max.map_or(u64::MAX, |max| max.saturating_sub(self.n_runs))
    }

    /// Which moments are fired now, which are passed over, and which is next. It can be asked again with the outcome of
    /// the last: a tick fires a bounded number.
    pub fn plan(&self, now: WallMs) -> Plan {
        let mut plan = Plan { next_for: self.next_for, ..Plan::default() };
        let Some(first) = self.next_for.filter(|_| self.is_enabled()) else { return plan };
        if self.rules.fires_at(self.id, first) > now {
            return plan;
        }
        // Runs by hand have used it up.
        if self.runs_left() == 0 {
            return Plan::default();
        }
        // From here on a moment is in time.
        let in_time = now.saturating_sub(self.rules.timing.late_ms_max());
        let mut next = Some(first);
        if self.is_missed(first, in_time) {
            next = self.pass_over(first, in_time, &mut plan);
        }
        let n_max = FIRES_PER_TICK.min(usize::try_from(self.runs_left()).unwrap_or(usize::MAX));
        if plan.fires.len() > n_max {
            // Those that are not fired in this tick are still ahead.
            next = Some(plan.fires[n_max].0);
            plan.fires.truncate(n_max);
        }
        while let Some(at) = next.filter(|at| self.rules.fires_at(self.id, *at) <= now) {
            if plan.fires.len() >= n_max {
                break;
            }
            plan.fires.push((at, Cause::Time));
            next = self.rules.next_after(at);
        }
        plan.next_for = next;
        plan
    }

    fn is_missed(&self, nominal: WallMs, in_time: WallMs) -> bool {
        self.rules.fires_at(self.id, nominal) < in_time
    }

    /// Goes over the missed moments from `first` on. Gives the first one that is in time.
    fn pass_over(&self, first: WallMs, in_time: WallMs, plan: &mut Plan) -> Option<WallMs> {
        let kept = match self.rules.catch_up {
            CatchUp::Skip => 0,
            CatchUp::One => 1,
            CatchUp::All { limit, .. } => limit as usize,
        };
        let oldest = match self.rules.catch_up {
            CatchUp::All { expiry_ms, .. } => in_time.saturating_sub(expiry_ms),
            _ => 0,
        };
        let (mut at, mut n_missed, mut latest) = (Some(first), 0u32, first);
        let mut kept_times = std::collections::VecDeque::new();
        for n_looked in 0.. {
            let Some(missed) = at.filter(|at| self.is_missed(*at, in_time)) else { break };
            latest = missed;
            n_missed = n_missed.saturating_add(1).min(MISSED_MAX);
            if kept > 0 && missed >= oldest {
                kept_times.push_back(missed);
                if kept_times.len() > kept {
                    kept_times.pop_front();
                }
            }
            at = match n_looked < LOOKED_AT_MAX {
                true => self.rules.next_after(missed),
                // So long an absence of so frequent a one: the rest is passed over in one step.
                false => {
                    self.rules.next_after(in_time.saturating_sub(self.rules.stagger_ms + self.rules.jitter_ms + 1))
                }
            };
        }
        let is_fired = kept_times.back() == Some(&latest);
        plan.missed = (!is_fired || n_missed as usize > kept_times.len()).then_some((latest, n_missed));
        plan.fires.extend(kept_times.into_iter().map(|at| (at, Cause::CatchUp)));
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: u64 = 60_000;

    fn schedule(timing: Timing, next_for: WallMs) -> Schedule {
        let rules = Rules::new(timing);
        Schedule {
            id: ScheduleId(7),
            name: "s".into(),
            rules,
            standing: Standing::Enabled,
            revision: 1,
            next_for: Some(next_for),
            done_to: 0,
            n_runs: 0,
            n_live: 0,
            n_failed_in_row: 0,
            is_alerted: false,
            created_at: 0,
            changed_at: 0,
        }
    }

    fn every(every_ms: u64, next_for: WallMs) -> Schedule {
        schedule(Timing::Every { every_ms, anchor: 0 }, next_for)
    }

    /// goclaw 42
    #[test]
    fn the_anchor_decides_when_the_next_is() {
        for (anchor, every_ms, now, next) in [
            (1000, 5000, 6500, 11000),
            (2000, 5000, 6500, 7000),
            (1000, 5000, 6000, 11000),
            (1000, 5000, 22000, 26000),
            (0, 1000, 86_400_000, 86_401_000),
            (9000, 5000, 100, 9000),
        ] {
            assert_eq!(Timing::Every { every_ms, anchor }.next_after(now), Some(next), "{anchor} {every_ms} {now}");
        }
        assert_eq!(Timing::At(5).next_after(4), Some(5));
        assert_eq!(Timing::At(5).next_after(5), None);
    }

    #[test]
    fn what_is_due_fires_and_what_is_little_late_too() {
        let row = every(10 * MIN, 10 * MIN);
        assert_eq!(row.plan(10 * MIN - 1), Plan { next_for: Some(10 * MIN), ..Plan::default() });
        for now in [10 * MIN, 11 * MIN - 1] {
            let plan = row.plan(now);
            assert_eq!(plan.fires, [(10 * MIN, Cause::Time)]);
            assert_eq!((plan.missed, plan.next_for), (None, Some(20 * MIN)));
        }
        assert_eq!(row.plan(11 * MIN).missed, Some((10 * MIN, 1)), "exactly a minute late is missed");
        let single = schedule(Timing::At(MIN), MIN);
        assert_eq!(single.plan(61 * MIN).fires, [(MIN, Cause::Time)], "exactly an hour late is within the hour");
    }

    #[test]
    fn missed_ones_are_caught_up_with_as_its_owner_wants() {
        let mut row = every(10 * MIN, 10 * MIN);
        let now = 55 * MIN;
        assert_eq!(row.plan(now), Plan { fires: vec![], missed: Some((50 * MIN, 5)), next_for: Some(60 * MIN) });
        row.rules.catch_up = CatchUp::One;
        let one = row.plan(now);
        assert_eq!(one.fires, [(50 * MIN, Cause::CatchUp)]);
        assert_eq!(one.missed, Some((50 * MIN, 5)));
        row.rules.catch_up = CatchUp::All { limit: 3, expiry_ms: u64::MAX };
        assert_eq!(row.plan(now).fires.iter().map(|(at, _)| at / MIN).collect::<Vec<_>>(), [30, 40, 50]);
        row.rules.catch_up = CatchUp::All { limit: 9, expiry_ms: 15 * MIN };
        assert_eq!(row.plan(now).fires.iter().map(|(at, _)| at / MIN).collect::<Vec<_>>(), [40, 50]);
        row.rules.catch_up = CatchUp::All { limit: 9, expiry_ms: u64::MAX };
        assert_eq!((row.plan(now).fires.len(), row.plan(now).missed), (5, None));
    }

    #[test]
    fn a_missed_single_time_fires_within_the_hour() {
        let row = schedule(Timing::At(MIN), MIN);
        assert_eq!(row.plan(60 * MIN).fires, [(MIN, Cause::Time)]);
        let late = row.plan(62 * MIN);
        assert_eq!(late, Plan { fires: vec![], missed: Some((MIN, 1)), next_for: None });
    }

    #[test]
    fn windows_and_numbers_of_runs_end_it() {
        let mut row = every(1000, 1000);
        row.rules.until = Some(3000);
        assert_eq!(
            row.plan(2000),
            Plan { fires: vec![(1000, Cause::Time), (2000, Cause::Time)], missed: None, next_for: None }
        );
        let mut row = every(1000, 1000);
        (row.rules.runs_max, row.n_runs) = (Some(5), 3);
        assert_eq!(row.plan(20_000).fires, [(1000, Cause::Time), (2000, Cause::Time)]);
        row.rules.from = Some(90_000);
        assert_eq!(row.rules.next_after(5), Some(90_000));
    }

    #[test]
    fn a_long_absence_is_passed_over_in_bounded_work() {
        let year = 365 * 24 * 60 * MIN;
        let plan = every(1000, 1000).plan(year);
        assert_eq!(plan.missed.map(|(_, n)| n), Some(MISSED_MAX));
        assert_eq!(plan.fires.first(), Some(&(year - LATE_MS + 1000, Cause::Time)));
    }

    #[test]
    fn a_paused_one_is_never_due() {
        let mut row = every(MIN, MIN);
        row.standing = Standing::Paused { reason: "holiday".into() };
        assert_eq!((row.due_at(), row.plan(9 * MIN).fires.len()), (None, 0));
    }

    #[test]
    fn jitter_is_the_same_whenever_it_is_asked_for() {
        let mut row = every(MIN, MIN);
        row.rules.jitter_ms = 500;
        let at: Vec<u64> = (1..50).map(|n| row.rules.fires_at(row.id, n * MIN) - n * MIN).collect();
        assert!(at.iter().all(|late| *late <= 500) && at.iter().any(|late| *late != at[0]));
        assert_eq!(row.rules.fires_at(row.id, MIN), row.rules.fires_at(row.id, MIN));
    }
}
