//! Schedules: one run for each moment, whatever happens around it.

use std::sync::Arc;

use runyard_core::event::{Admit, HappeningKind, Report};
use runyard_core::ids::{ScheduleId, TaskId};
use runyard_core::outbox::Hook;
use runyard_core::schedule::{
    CatchUp, Cause, NewSchedule, Outcome, Overlap, Run, Schedule, ScheduleAct, ScheduleAnswer, ScheduleRefusal,
    Standing, Timing,
};
use runyard_core::session::Usage;
use runyard_core::task::{Class, Phase};
use runyard_cron::Calendar;
use runyard_store::memory::FailCommit;

use super::bed::{Bed, DAY, EPOCH_MS, HOUR, MINUTE, SECOND, blob, every, schedule, task};

const ID: ScheduleId = ScheduleId(77);
const OTHER: ScheduleId = ScheduleId(78);

fn named(name: &str, new: NewSchedule) -> NewSchedule {
    NewSchedule { name: name.into(), ..new }
}

fn with(mut new: NewSchedule, change: impl FnOnce(&mut NewSchedule)) -> NewSchedule {
    change(&mut new);
    new
}

fn with_timing(mut row: Schedule, timing: Timing) -> Schedule {
    row.rules.timing = timing;
    row
}

fn overlapping(overlap: Overlap) -> NewSchedule {
    with(every(MINUTE), |new| {
        new.rules.overlap = overlap;
        let member = new.body.template.session.as_mut().expect("it has one");
        member.settings.max_concurrent = (overlap == Overlap::Allow).then_some(u32::MAX);
    })
}

/// Minutes since the bed began, for which there is a run.
fn minutes(bed: &Bed) -> Vec<u64> {
    bed.runs(ID).iter().map(|run| (run.scheduled_for - EPOCH_MS) / MINUTE).collect()
}

fn outcomes(bed: &Bed) -> Vec<Outcome> {
    bed.runs(ID).iter().map(|run| run.outcome).collect()
}

fn tasks(bed: &Bed) -> Vec<TaskId> {
    bed.runs(ID).iter().filter_map(|run| run.task).collect()
}

fn complete_next_run(bed: &mut Bed) {
    bed.advance_ms(MINUTE);
    let task = bed.last_run(ID).task.expect("it was fired");
    bed.complete(task);
}

// ── What its owner does ─────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn a_schedule_is_made_changed_paused_resumed_and_deleted() {
    let mut bed = Bed::new();
    let row = bed.create(ID, every(10 * MINUTE));
    assert_eq!((row.next_for, row.revision, row.n_runs), (Some(EPOCH_MS + 10 * MINUTE), 1, 0));
    bed.advance_ms(MINUTE);
    let row = bed.edit(ID, named("daily", every(DAY)));
    assert_eq!((&*row.name, row.next_for, row.revision), ("daily", Some((EPOCH_MS / DAY + 1) * DAY), 2));
    let paused = bed.act_on(ID, ScheduleAct::Pause { reason: "holidays".into() });
    assert!(matches!(paused, Ok(ScheduleAnswer::Row(row)) if row.next_for.is_none() && !row.is_enabled()));
    bed.advance_ms(3 * DAY);
    assert!(bed.runs(ID).is_empty());
    bed.act_on(ID, ScheduleAct::Resume).expect("it has a future");
    assert_eq!(bed.schedule(ID).next_for, Some((bed.wall_ms() / DAY + 1) * DAY), "what passed was not missed");
    assert!(matches!(bed.act_on(ID, ScheduleAct::Delete), Ok(ScheduleAnswer::Deleted)));
    assert_eq!(bed.find_schedule(ID), None);
    assert!(matches!(bed.act_on(ID, ScheduleAct::Delete), Err(ScheduleRefusal::NotFound)));
    let told = [
        HappeningKind::ScheduleCreated,
        HappeningKind::ScheduleChanged,
        HappeningKind::SchedulePaused,
        HappeningKind::ScheduleResumed,
        HappeningKind::ScheduleDeleted,
    ];
    assert_eq!(told.map(|kind| bed.n_happenings(kind)), [1; 5]);
}

#[test]
fn what_cannot_be_is_refused_and_leaves_nothing() {
    let mut bed = Bed::new().config(|config| config.schedules_max = 2);
    bed.create(ID, every(MINUTE));
    let mut refused =
        |id, new: NewSchedule| bed.act_on(id, ScheduleAct::Create(Box::new(new))).expect_err("it is refused");
    assert_eq!(refused(OTHER, every(HOUR)), ScheduleRefusal::NameTaken { by: ID });
    let past = named("past", schedule(Timing::At(EPOCH_MS)));
    assert_eq!(refused(OTHER, past), ScheduleRefusal::NoFuture);
    let closed = with(named("closed", every(MINUTE)), |new| new.rules.until = Some(EPOCH_MS + MINUTE));
    assert_eq!(refused(OTHER, closed), ScheduleRefusal::NoFuture);
    assert_eq!(bed.find_schedule(OTHER), None);
    bed.create(OTHER, named("other", every(HOUR)));
    let third = bed.act_on(ScheduleId(79), ScheduleAct::Create(Box::new(named("third", every(HOUR)))));
    assert!(matches!(third, Err(ScheduleRefusal::TooMany { limit: 2 })), "{third:?}");
    let renamed = bed.act_on(OTHER, ScheduleAct::Edit(Box::new(every(HOUR))));
    assert!(matches!(renamed, Err(ScheduleRefusal::NameTaken { by: ID })), "{renamed:?}");
    // The same command again is the same schedule; a deleted one makes room, in one tick.
    bed.create(ID, every(MINUTE));
    let delete = bed.schedule_event(OTHER, ScheduleAct::Delete);
    let create = bed.schedule_event(ScheduleId(79), ScheduleAct::Create(Box::new(named("other", every(HOUR)))));
    bed.send([delete, create]);
    assert_eq!(&*bed.schedule(ScheduleId(79)).name, "other");
}

#[test]
fn a_run_by_hand_is_beside_its_moments() {
    let mut bed = Bed::new();
    bed.create(ID, every(MINUTE));
    let run = bed.run_now(ID);
    assert_eq!((run.cause, run.outcome, run.scheduled_for), (Cause::Hand, Outcome::Live, EPOCH_MS));
    bed.complete(run.task.expect("it has one"));
    let again = bed.run_now(ID);
    assert_eq!((again.n, again.scheduled_for), (2, EPOCH_MS), "the same moment, asked for twice");
    bed.complete(again.task.expect("it has one"));
    assert_eq!(bed.schedule(ID).next_for, Some(EPOCH_MS + MINUTE));
    bed.advance_ms(MINUTE);
    assert_eq!(minutes(&bed), [0, 0, 1]);
    bed.act_on(ID, ScheduleAct::Pause { reason: "".into() }).expect("it is there");
    let skipped = bed.run_now(ID);
    assert_eq!((skipped.outcome, skipped.task), (Outcome::Skipped, None), "one is at work");
}

// ── Exactly once ────────────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn every_moment_is_fired_once_over_restarts() {
    let mut bed = Bed::new();
    bed.create(ID, every(MINUTE));
    for _ in 0..5 {
        bed.advance_ms(MINUTE - 1);
        bed.restart();
        bed.advance_ms(1);
        bed.restart();
        let task = bed.last_run(ID).task.expect("it was fired");
        bed.complete(task);
        bed.restart();
    }
    assert_eq!(minutes(&bed), [1, 2, 3, 4, 5]);
    assert_eq!(outcomes(&bed), [Outcome::Completed; 5]);
    let mut ids = tasks(&bed);
    ids.dedup();
    assert_eq!(ids.len(), 5);
    assert_eq!((bed.n_stored(), bed.schedule(ID).n_live), (5, 0));
}

#[test]
fn a_commit_that_fails_around_a_moment_fires_it_once() {
    for fail in [FailCommit::BeforeApply, FailCommit::AfterApply] {
        let mut bed = Bed::new();
        bed.create(ID, every(MINUTE));
        bed.fail_commit_after_ms(fail, MINUTE);
        assert_eq!((minutes(&bed), bed.n_stored()), (vec![1], 1), "{fail:?}");
        bed.advance_ms(MINUTE);
        assert_eq!((minutes(&bed), bed.n_stored()), (vec![1, 2], 1), "the first is still at work");
    }
}

#[test]
fn many_that_are_due_at_once_are_all_fired() {
    let mut bed = Bed::new();
    let ids: Vec<ScheduleId> = (1..=2500).map(ScheduleId).collect();
    let create = |bed: &mut Bed, id: ScheduleId| {
        let new = with(named(&format!("s{}", id.0), every(HOUR)), |new| new.body.template.session = None);
        bed.schedule_event(id, ScheduleAct::Create(Box::new(new)))
    };
    let events: Vec<_> = ids.iter().map(|id| create(&mut bed, *id)).collect();
    bed.send(events);
    bed.advance_ms(HOUR);
    assert!(ids.iter().all(|id| bed.runs(*id).len() == 1));
    assert_eq!(bed.n_stored(), 2500);
    bed.advance_ms(HOUR);
    assert!(ids.iter().all(|id| bed.runs(*id).len() == 2));
}

#[test]
fn a_window_smaller_than_what_is_due_loses_none() {
    let mut bed = Bed::new().config(|config| config.dues_max = 4);
    let ids: Vec<ScheduleId> = (1..=30).map(ScheduleId).collect();
    for id in &ids {
        let new = named(&format!("s{}", id.0), every(MINUTE + (id.0 as u64 % 7) * SECOND));
        bed.create(*id, with(new, |new| new.rules.overlap = Overlap::Allow));
    }
    bed.advance_ms(5 * MINUTE);
    for id in ids {
        let every_ms = MINUTE + (id.0 as u64 % 7) * SECOND;
        let expected: Vec<u64> = (EPOCH_MS / every_ms + 1..=bed.wall_ms() / every_ms).map(|n| n * every_ms).collect();
        let found: Vec<u64> = bed.runs(id).iter().map(|run| run.scheduled_for).collect();
        assert_eq!(found, expected, "{id:?}");
    }
}

#[test]
fn a_clock_that_jumps_fires_no_moment_twice() {
    let mut bed = Bed::new();
    bed.create(ID, overlapping(Overlap::Allow));
    bed.advance_ms(2 * MINUTE);
    bed.set_wall_clock(EPOCH_MS);
    bed.advance_ms(2 * MINUTE);
    assert_eq!(minutes(&bed), [1, 2], "the clock has to come there again");
    bed.advance_ms(MINUTE);
    assert_eq!(minutes(&bed), [1, 2, 3]);
    bed.set_wall_clock(EPOCH_MS + HOUR);
    let last = bed.runs(ID)[3].clone();
    assert_eq!(
        (last.outcome, last.scheduled_for),
        (Outcome::Missed { n: 56 }, EPOCH_MS + 59 * MINUTE),
        "a whole minute late"
    );
    assert_eq!(minutes(&bed)[4..], [60]);
}

// ── Overlap ─────────────────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn a_run_that_is_due_during_another_is_skipped_and_recorded() {
    let mut bed = Bed::new();
    bed.create(ID, overlapping(Overlap::Skip));
    bed.advance_ms(3 * MINUTE);
    assert_eq!(outcomes(&bed), [Outcome::Live, Outcome::Skipped, Outcome::Skipped]);
    assert_eq!(bed.n_happenings(HappeningKind::ScheduleSkipped), 2);
    let skipped = bed.last_run(ID);
    assert_eq!((&*skipped.reason, skipped.ended_at), ("the run before is still at work", Some(bed.wall_ms())));
    bed.complete(tasks(&bed)[0]);
    bed.advance_ms(MINUTE);
    assert_eq!(bed.last_run(ID).outcome, Outcome::Live);
}

#[test]
fn a_run_that_is_due_during_another_waits_for_it() {
    let mut bed = Bed::new();
    bed.create(ID, overlapping(Overlap::Queue));
    bed.advance_ms(2 * MINUTE);
    let ids = tasks(&bed);
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Waiting]);
    assert_eq!(bed.schedule(ID).n_live, 2);
    bed.complete(ids[0]);
    assert_eq!(bed.states(&ids), [Phase::Completed, Phase::Running]);
}

#[test]
fn a_run_replaces_the_one_before_and_starts_when_that_has_stopped() {
    let mut bed = Bed::new();
    bed.create(ID, overlapping(Overlap::Replace));
    bed.advance_ms(2 * MINUTE);
    let ids = tasks(&bed);
    assert_eq!(bed.take_stops().iter().map(|(task, _)| *task).collect::<Vec<_>>(), [ids[0]]);
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Waiting]);
    bed.confirm_stop(ids[0]);
    assert_eq!(bed.states(&ids), [Phase::Cancelled, Phase::Running]);
    assert_eq!(outcomes(&bed), [Outcome::Cancelled, Outcome::Live]);
    assert_eq!(bed.schedule(ID).n_failed_in_row, 0, "a stopped run is no failure");
}

#[test]
fn runs_may_be_at_work_together() {
    let mut bed = Bed::new();
    bed.create(ID, overlapping(Overlap::Allow));
    bed.advance_ms(3 * MINUTE);
    assert_eq!(bed.states(&tasks(&bed)), [Phase::Running; 3]);
}

// ── Absence ─────────────────────────────────────────────────────────────────────────────────────────────────────────

/// Away from the first minute until half past the tenth.
fn after_absence(catch_up: CatchUp) -> Bed {
    let mut bed = Bed::new();
    bed.create(ID, with(overlapping(Overlap::Allow), |new| new.rules.catch_up = catch_up));
    bed.set_wall_clock(EPOCH_MS + 10 * MINUTE + 30 * SECOND);
    bed
}

#[test]
fn missed_moments_are_one_row_unless_they_are_caught_up_with() {
    let bed = after_absence(CatchUp::Skip);
    let causes = |bed: &Bed| bed.runs(ID).iter().map(|run| run.cause).collect::<Vec<_>>();
    assert_eq!((minutes(&bed), outcomes(&bed)), (vec![9, 10], vec![Outcome::Missed { n: 9 }, Outcome::Live]));
    assert_eq!(bed.n_happenings(HappeningKind::ScheduleMissed), 1);
    let bed = after_absence(CatchUp::One);
    assert_eq!((minutes(&bed), causes(&bed)), (vec![9, 10], vec![Cause::CatchUp, Cause::Time]));
    let bed = after_absence(CatchUp::All { limit: 3, expiry_ms: u64::MAX });
    assert_eq!(minutes(&bed), [7, 8, 9, 10]);
    let bed = after_absence(CatchUp::All { limit: 100, expiry_ms: 2 * MINUTE });
    assert_eq!(minutes(&bed), [8, 9, 10], "what is too old is not caught up with");
    assert_eq!(outcomes(&bed), [Outcome::Live; 3]);
}

#[test]
fn a_long_catch_up_goes_over_several_ticks_and_loses_none() {
    let mut bed = Bed::new();
    let all = CatchUp::All { limit: 500, expiry_ms: u64::MAX };
    let new = with(overlapping(Overlap::Allow), |new| {
        new.rules.catch_up = all;
        new.body.template.session = None;
    });
    bed.create(ID, new);
    bed.set_wall_clock(EPOCH_MS + 250 * MINUTE);
    assert_eq!(minutes(&bed), (1..=250).collect::<Vec<_>>());
    assert!(outcomes(&bed).iter().all(|outcome| *outcome == Outcome::Live));
    // More of them than are caught up with: the latest 500, and the one that is not missed.
    bed.set_wall_clock(EPOCH_MS + 1250 * MINUTE);
    assert_eq!(minutes(&bed)[250..], (750..=1250).collect::<Vec<_>>());
    assert_eq!(bed.n_happenings(HappeningKind::ScheduleMissed), 1);
}

#[test]
fn a_single_time_fires_late_within_an_hour_and_then_is_missed() {
    for (late_ms, outcome) in [(HOUR - SECOND, Outcome::Live), (2 * HOUR, Outcome::Missed { n: 1 })] {
        let mut bed = Bed::new();
        bed.create(ID, schedule(Timing::At(EPOCH_MS + MINUTE)));
        bed.set_wall_clock(EPOCH_MS + MINUTE + late_ms);
        assert_eq!(outcomes(&bed), [outcome]);
        assert!(matches!(bed.schedule(ID).standing, Standing::Done { .. }));
    }
}

#[test]
fn what_is_due_while_the_server_drains_stays_due() {
    let mut bed = Bed::new();
    bed.create(ID, every(MINUTE));
    bed.admit(Admit::Draining);
    assert!(matches!(bed.act_on(ID, ScheduleAct::Run), Err(ScheduleRefusal::Draining)));
    bed.advance_ms(MINUTE);
    assert!(bed.runs(ID).is_empty());
    bed.advance_ms(30 * SECOND);
    bed.admit(Admit::Open);
    assert_eq!((minutes(&bed), outcomes(&bed)), (vec![1], vec![Outcome::Live]));
}

#[test]
fn nothing_is_due_while_all_are_paused() {
    let mut bed = Bed::new();
    bed.create(ID, every(MINUTE));
    bed.reconfigure(|config| config.schedules_paused = true);
    bed.advance_ms(5 * MINUTE);
    assert!(bed.runs(ID).is_empty());
    bed.reconfigure(|config| config.schedules_paused = false);
    assert_eq!((minutes(&bed), outcomes(&bed)), (vec![4, 5], vec![Outcome::Missed { n: 4 }, Outcome::Live]));
}

// ── Ends ────────────────────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn a_single_time_goes_with_its_run_and_leaves_its_log() {
    let mut bed = Bed::new();
    bed.create(ID, with(schedule(Timing::At(EPOCH_MS + 5)), |new| new.rules.delete_after_run = true));
    bed.advance_ms(MINUTE);
    assert!(bed.find_schedule(ID).is_some(), "its run is at work");
    bed.restart();
    bed.complete(tasks(&bed)[0]);
    assert_eq!((bed.find_schedule(ID), outcomes(&bed)), (None, vec![Outcome::Completed]));
    assert_eq!(bed.n_happenings(HappeningKind::ScheduleDeleted), 1);
}

#[test]
fn a_schedule_has_as_many_runs_as_it_may() {
    let mut bed = Bed::new();
    bed.create(ID, with(every(MINUTE), |new| new.rules.runs_max = Some(2)));
    for _ in 0..2 {
        complete_next_run(&mut bed);
    }
    bed.advance_ms(HOUR);
    assert_eq!(minutes(&bed), [1, 2]);
    assert!(matches!(bed.schedule(ID).standing, Standing::Done { .. }));
    assert!(matches!(bed.act_on(ID, ScheduleAct::Resume), Err(ScheduleRefusal::NoFuture)));
}

#[test]
fn a_used_up_schedule_is_enabled_only_by_an_edit_that_gives_it_more_runs() {
    let mut bed = Bed::new();
    let limited = |max| with(every(MINUTE), |new| new.rules.runs_max = max);
    bed.create(ID, limited(Some(1)));
    complete_next_run(&mut bed);
    assert!(matches!(bed.schedule(ID).standing, Standing::Done { .. }));
    let refused = bed.act_on(ID, ScheduleAct::Edit(Box::new(limited(Some(1)))));
    assert_eq!(refused, Err(ScheduleRefusal::UsedUp { n_runs: 1, runs_max: 1 }));
    assert!(matches!(bed.schedule(ID).standing, Standing::Done { .. }), "nothing of the edit is stored");
    assert!(bed.edit(ID, limited(Some(2))).next_for.is_some());
    complete_next_run(&mut bed);
    assert!(bed.edit(ID, limited(None)).is_enabled());
}

#[test]
fn an_edit_may_not_leave_an_enabled_schedule_without_a_run() {
    let mut bed = Bed::new();
    let limited = |max| with(every(MINUTE), |new| new.rules.runs_max = Some(max));
    bed.create(ID, limited(9));
    complete_next_run(&mut bed);
    complete_next_run(&mut bed);
    let refused = bed.act_on(ID, ScheduleAct::Edit(Box::new(limited(2))));
    assert_eq!(refused, Err(ScheduleRefusal::UsedUp { n_runs: 2, runs_max: 2 }));
    assert_eq!(bed.schedule(ID).rules.runs_max, Some(9));
    assert!(bed.edit(ID, limited(3)).is_enabled());
}

#[test]
fn a_run_by_hand_that_is_the_last_allowed_one_ends_the_schedule() {
    let mut bed = Bed::new();
    bed.create(ID, with(every(MINUTE), |new| new.rules.runs_max = Some(1)));
    bed.act_on(ID, ScheduleAct::Run).unwrap();
    let row = bed.schedule(ID);
    assert_eq!(row.next_for, None);
    assert!(matches!(row.standing, Standing::Done { .. }));
    bed.advance_ms(HOUR);
    assert_eq!(outcomes(&bed).len(), 1);
}

/// One that is paused says why until somebody resumes it, whatever is run by hand.
#[test]
fn a_run_by_hand_of_a_paused_schedule_leaves_it_paused() {
    let mut bed = Bed::new();
    bed.create(ID, with(every(MINUTE), |new| new.rules.runs_max = Some(1)));
    bed.act_on(ID, ScheduleAct::Pause { reason: "holidays".into() }).unwrap();
    bed.act_on(ID, ScheduleAct::Run).unwrap();
    assert!(matches!(bed.schedule(ID).standing, Standing::Paused { .. }));
    assert!(matches!(bed.act_on(ID, ScheduleAct::Resume), Err(ScheduleRefusal::NoFuture)));
}

/// goclaw 59, as far as a row can come to that by itself.
#[test]
fn one_whose_expression_cannot_be_read_any_more_is_paused_and_the_others_go_on() {
    let mut bed = Bed::new();
    let calendar = Calendar::new("* * * * *", "Europe/Berlin").unwrap();
    let broken = bed.create(ID, schedule(Timing::Cron(Arc::new(calendar))));
    bed.create(OTHER, named("other", every(MINUTE)));
    let why = "`* * * * *` in Europe/Nowhere cannot be read";
    bed.put_schedule(with_timing(
        broken,
        Timing::Unreadable { expr: "* * * * *".into(), zone: "Europe/Nowhere".into(), why: why.into() },
    ));
    bed.restart();
    bed.advance_ms(MINUTE);
    assert_eq!(bed.schedule(ID).standing, Standing::Paused { reason: why.into() });
    assert_eq!((bed.runs(ID).len(), bed.n_happenings(HappeningKind::SchedulePaused)), (0, 1));
    assert_eq!(bed.last_run(OTHER).outcome, Outcome::Live);
    bed.advance_ms(HOUR);
    assert!(bed.runs(ID).is_empty());
    assert_eq!(bed.act_on(ID, ScheduleAct::Resume), Err(ScheduleRefusal::NoFuture));
    assert!(bed.edit(ID, every(MINUTE)).is_enabled(), "its owner names another");
}

/// goclaw 51: what was overdue at the start does not run, and everything that is next lies ahead.
#[test]
fn a_restart_runs_nothing_of_what_was_missed_and_every_next_moment_lies_ahead() {
    let mut bed = Bed::new();
    let ids = [ScheduleId(1), ScheduleId(2), ScheduleId(3)];
    for (n, id) in ids.into_iter().enumerate() {
        let anchor = EPOCH_MS + MINUTE * (n as u64 + 1);
        bed.create(id, named(&format!("s{n}"), schedule(Timing::Every { every_ms: 5 * MINUTE, anchor })));
    }
    bed.restart();
    // Ten, twenty and thirty minutes after the first moments of the three.
    bed.set_wall_clock(EPOCH_MS + 34 * MINUTE + 30 * SECOND);
    for id in ids {
        assert!(bed.runs(id).iter().all(|run| run.task.is_none()), "{:?}", bed.runs(id));
        assert!(matches!(bed.last_run(id).outcome, Outcome::Missed { .. }));
        assert!(bed.schedule(id).next_for.unwrap() > bed.wall_ms());
    }
}

#[test]
fn a_subscription_with_agents_is_told_of_their_schedules() {
    let hook = |name: &str, agent: &str, lanes: &[&str]| Hook {
        name: name.into(),
        events: HappeningKind::ScheduleFired.bit(),
        agents: vec![agent.into()],
        lanes: lanes.iter().map(|lane| (*lane).into()).collect(),
        kinds: Vec::new(),
    };
    let hooks = vec![hook("own", "a", &[]), hook("others", "b", &[]), hook("lane", "a", &["main"])];
    let mut bed = Bed::new().config(|config| config.hooks = hooks);
    bed.create(ID, every(MINUTE));
    bed.advance_ms(MINUTE);
    let told: Vec<String> = bed.outbox().iter().map(|told| told.hook.as_ref().unwrap().to_string()).collect();
    assert_eq!(told, ["own"]);
}

#[test]
fn a_run_is_closed_with_what_its_task_came_to() {
    let mut bed = Bed::new();
    bed.create(ID, with(every(MINUTE), |new| new.body.template.policy.retry.max_retries = 2));
    bed.advance_ms(MINUTE);
    let task = tasks(&bed)[0];
    bed.fail(task, Class::Task);
    bed.advance_ms(10 * SECOND);
    assert_eq!(outcomes(&bed), [Outcome::Live], "a retry is no end");
    let usage = Usage { input_tokens: Some(5), output_tokens: Some(7), ..Usage::default() };
    let long = "x".repeat(20_000) + "end";
    bed.report(task, Report::Completed { result: Some(blob(&long)), usage: Some(usage) });
    let Run { outcome, attempts, started_at, ended_at, tail, usage: used, n, .. } = bed.last_run(ID);
    assert_eq!((outcome, attempts, n, used), (Outcome::Completed, 2, 1, Some(usage)));
    assert_eq!((started_at.is_some(), ended_at), (true, Some(bed.wall_ms())));
    let tail = tail.expect("it gave something");
    assert_eq!((tail.len(), &tail[tail.len() - 3..]), (16 * 1024, &b"end"[..]));
    bed.advance_ms(MINUTE);
    bed.fail(tasks(&bed)[1], Class::Permanent);
    let failed = bed.last_run(ID);
    assert_eq!((failed.outcome, failed.class), (Outcome::Failed, Some(Class::Permanent)));
    assert_eq!(&*failed.reason, "failed as permanent");
    assert_eq!(bed.schedule(ID).n_failed_in_row, 1);
}

#[test]
fn failures_in_a_row_are_told_once_and_so_is_the_recovery() {
    let kinds = [HappeningKind::ScheduleFailing, HappeningKind::ScheduleRecovered, HappeningKind::SchedulePaused];
    let events = kinds.iter().fold(0, |bits, kind| bits | kind.bit());
    let hook = Hook { name: "ops".into(), events, agents: Vec::new(), lanes: Vec::new(), kinds: Vec::new() };
    let mut bed = Bed::new().config(|config| config.hooks = vec![hook]);
    let told = |bed: &Bed| bed.outbox().iter().map(|delivery| delivery.happening.kind).collect::<Vec<_>>();
    let fail_next_run = |bed: &mut Bed| {
        bed.advance_ms(MINUTE);
        let task = bed.last_run(ID).task.expect("it was fired");
        bed.fail(task, Class::Task);
    };
    bed.create(ID, with(every(MINUTE), |new| (new.rules.alert_after, new.rules.pause_after) = (Some(2), Some(4))));
    fail_next_run(&mut bed);
    assert!(told(&bed).is_empty());
    for _ in 0..2 {
        fail_next_run(&mut bed);
        bed.restart();
        assert_eq!(told(&bed), [HappeningKind::ScheduleFailing]);
    }
    for _ in 0..2 {
        complete_next_run(&mut bed);
        assert_eq!(told(&bed), [HappeningKind::ScheduleFailing, HappeningKind::ScheduleRecovered]);
    }
    for _ in 0..4 {
        fail_next_run(&mut bed);
    }
    assert_eq!(told(&bed)[2..], [HappeningKind::ScheduleFailing, HappeningKind::SchedulePaused]);
    let n_runs = bed.runs(ID).len();
    bed.advance_ms(HOUR);
    assert_eq!(bed.runs(ID).len(), n_runs);
    let reason = "it failed 4 times in a row".into();
    assert_eq!(bed.schedule(ID).standing, Standing::Paused { reason });
}

#[test]
fn an_edit_during_a_run_fires_nothing_again() {
    let mut bed = Bed::new();
    bed.create(ID, overlapping(Overlap::Allow));
    bed.advance_ms(2 * MINUTE);
    let row = bed.edit(ID, overlapping(Overlap::Queue));
    assert_eq!((row.n_live, row.next_for), (2, Some(EPOCH_MS + 3 * MINUTE)));
    let calendar = Calendar::new("* * * * *", "Europe/Berlin").expect("it is a calendar");
    let row = bed.edit(ID, schedule(Timing::Cron(Arc::new(calendar))));
    assert_eq!(row.next_for, Some(EPOCH_MS + 3 * MINUTE), "the other timing has the same moments");
    bed.restart();
    tasks(&bed).into_iter().for_each(|task| bed.complete(task));
    assert_eq!((outcomes(&bed), bed.schedule(ID).n_live), (vec![Outcome::Completed; 2], 0));
    bed.advance_ms(MINUTE);
    assert_eq!(minutes(&bed), [1, 2, 3]);
}

#[test]
fn a_deleted_schedule_leaves_its_run_at_work_and_to_be_closed() {
    let mut bed = Bed::new();
    bed.create(ID, every(MINUTE));
    bed.advance_ms(MINUTE);
    bed.act_on(ID, ScheduleAct::Delete).expect("it is there");
    bed.restart();
    bed.advance_ms(MINUTE);
    bed.complete(tasks(&bed)[0]);
    assert_eq!((outcomes(&bed), bed.find_schedule(ID)), (vec![Outcome::Completed], None));
}

#[test]
fn the_places_in_a_template_are_filled() {
    let mut bed = Bed::new();
    let spec = "{{scheduledFor}} {{fireTime}} {{run}} {{other}} {{{run}}} {{";
    bed.create(
        ID,
        with(every(MINUTE), |new| {
            new.body.template.spec = blob(spec);
            new.rules.stagger_ms = 5 * SECOND;
        }),
    );
    bed.advance_ms(MINUTE + 5 * SECOND);
    let said = bed.doc(tasks(&bed)[0]).spec.expect("it has one");
    let said = String::from_utf8(said.to_vec()).expect("it is text");
    assert_eq!(said, "2027-01-15T08:01:00Z 2027-01-15T08:01:05Z 1 {{other}} {1} {{");
}

#[test]
fn a_run_without_room_is_skipped_and_recorded() {
    let mut bed = Bed::new().inflight(0);
    bed.create(ID, overlapping(Overlap::Allow));
    bed.submit(task("a"));
    bed.reconfigure(|config| config.queued_max = 1);
    bed.advance_ms(MINUTE);
    let run = bed.last_run(ID);
    assert_eq!((run.outcome, run.task, &*run.reason), (Outcome::Skipped, None, "the queue is full"));
    assert_eq!((bed.schedule(ID).n_live, bed.schedule(ID).next_for), (0, Some(EPOCH_MS + 2 * MINUTE)));
}
