//! Rules of schedules and their runs.

use std::sync::Arc;

use runyard_core::event::{Happening, HappeningKind, NewMember, Release, Subject};
use runyard_core::ids::ScheduleId;
use runyard_core::schedule::{
    CatchUp, Cause, Origin, Outcome, Overlap, Rules, Run, Schedule, ScheduleBody, ScheduleDue, ScheduleFacts, Standing,
    Template, Timing,
};
use runyard_core::session::{Mode, Settings, Usage};
use runyard_core::task::{Class, Policy, Task};
use runyard_core::write::{Needs, ScheduleRow, WriteSet};
use runyard_cron::Calendar;

use super::Harness;
use super::fixture::*;
use crate::store::{Error, Purge, ScheduleFilter};

fn added(rows: impl IntoIterator<Item = ScheduleRow>) -> WriteSet {
    WriteSet { schedules_put: rows.into_iter().collect(), ..WriteSet::default() }
}

fn changed(schedule: Schedule) -> WriteSet {
    added([ScheduleRow { schedule, body: None }])
}

fn removed(n: u64) -> WriteSet {
    WriteSet { schedules_removed: vec![schedule_id(n)], ..WriteSet::default() }
}

fn ran(runs: impl IntoIterator<Item = Run>) -> WriteSet {
    WriteSet { runs_added: runs.into_iter().collect(), ..WriteSet::default() }
}

fn refused(fixture: &mut Fixture, writes: WriteSet) {
    let refused = fixture.try_commit(writes);
    assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
}

fn stored(fixture: &Fixture, n: u64) -> Option<Schedule> {
    fixture.reader().schedule(schedule_id(n)).expect("it reads").map(|(schedule, _)| schedule)
}

fn numbers(fixture: &Fixture, n: u64) -> Vec<u64> {
    fixture.reader().runs(schedule_id(n), None, 99).expect("it reads").into_iter().map(|run| run.n).collect()
}

fn named(fixture: &Fixture, name: &str) -> Option<ScheduleId> {
    fixture.reader().schedule_named(name).expect("it reads")
}

fn due(fixture: &mut Fixture, after: Option<ScheduleDue>, limit: usize) -> Vec<ScheduleDue> {
    fixture.store.schedules_due(after, limit).expect("it reads")
}

/// Every field has a value that the plain one has not.
fn full(n: u64) -> ScheduleRow {
    let mut row = schedule_row(n, 500);
    let calendar = Calendar::new("0 30 2 * * MON-FRI", "Europe/Berlin").expect("it is a calendar");
    row.schedule.rules = Rules {
        timing: Timing::Cron(Arc::new(calendar)),
        overlap: Overlap::Replace,
        catch_up: CatchUp::All { limit: 3, expiry_ms: u64::MAX },
        stagger_ms: 7,
        jitter_ms: 0,
        from: Some(1),
        until: Some(u64::MAX),
        runs_max: Some(9),
        delete_after_run: true,
        alert_after: Some(2),
        pause_after: Some(u32::MAX),
    };
    row.schedule.is_alerted = true;
    (row.schedule.n_live, row.schedule.n_failed_in_row, row.schedule.n_runs) = (2, 3, 4);
    let settings = Settings { max_concurrent: Some(2), cap: Some(5), ..Settings::default() };
    let session = NewMember { key: "s".into(), settings, as_mode: Some(Mode::Queue), sent_at: Some(3) };
    let policy = Policy { timeout_ms: 77, preemptible: true, ..Policy::default() };
    let template = Template { flow: key("bob"), rank: -4, policy, session: Some(session), spec: blob("{{run}}") };
    row.body = Some(ScheduleBody { template, spec: blob("as asked") });
    row
}

pub fn a_schedule_comes_back_as_it_was_written(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let mut paused = schedule_row(2, 0);
    paused.schedule.standing = Standing::Paused { reason: "holidays".into() };
    let mut over = schedule_row(3, 0);
    over.schedule.rules.timing = Timing::At(5);
    over.schedule.standing = Standing::Done { why: "over".into() };
    let rows = [full(1), paused, over];
    fixture.commit(added(rows.clone()));
    let mut fixture = Fixture::new(harness.reopen(fixture.store));
    assert_eq!(fixture.store.load(1).expect("it loads").n_schedules, 3);
    fixture = Fixture::new(fixture.store);
    for row in rows {
        let body = row.body.expect("they are new");
        let id = row.schedule.id;
        let shown = fixture.reader().schedule(id).expect("it reads");
        assert_eq!(shown, Some((row.schedule.clone(), body.spec)));
        let needs = Needs { schedules: vec![id], ..Needs::default() };
        let fetched = fixture.store.fetch(&needs).expect("it reads").schedules;
        assert_eq!(fetched, [(row.schedule.clone(), Arc::new(body.template))]);
        let needs = Needs { schedule_names: vec![row.schedule.name.clone()], ..Needs::default() };
        assert_eq!(fixture.store.fetch(&needs).expect("it reads").schedules, fetched);
        assert_eq!(named(&fixture, &row.schedule.name), Some(id));
    }
    assert_eq!((stored(&fixture, 9), named(&fixture, "nobody")), (None, None));
}

pub fn a_changed_schedule_keeps_what_its_owner_wrote(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.commit(added([full(1)]));
    let after = Schedule { n_runs: 77, next_for: Some(900), ..full(1).schedule };
    fixture.commit(changed(after.clone()));
    let shown = fixture.reader().schedule(after.id).expect("it reads");
    assert_eq!(shown, Some((after.clone(), blob("as asked"))));
    let mut edited = full(1);
    edited.schedule.name = "renamed".into();
    edited.body.as_mut().expect("it is full").spec = blob("another");
    fixture.commit(added([edited]));
    let shown = fixture.reader().schedule(after.id).expect("it reads");
    assert_eq!(shown.map(|(row, spec)| (row.name, spec)), Some(("renamed".into(), blob("another"))));
    assert_eq!((named(&fixture, "renamed"), named(&fixture, "schedule 1")), (Some(after.id), None));
    refused(&mut fixture, changed(schedule_row(9, 5).schedule));
}

pub fn a_name_belongs_to_one_schedule(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.commit(added([schedule_row(1, 5), schedule_row(2, 6)]));
    let called = |n: u64, name: &str| {
        let row = schedule_row(n, 5);
        ScheduleRow { schedule: Schedule { name: name.into(), ..row.schedule }, ..row }
    };
    refused(&mut fixture, added([called(3, "schedule 1")]));
    refused(&mut fixture, added([called(1, "schedule 2")]));
    refused(&mut fixture, added([called(3, "new"), called(4, "new")]));
    assert_eq!(stored(&fixture, 3), None);
    // They change names with each other; and a name is free with its schedule.
    fixture.commit(added([called(1, "schedule 2"), called(2, "schedule 1")]));
    assert_eq!(named(&fixture, "schedule 1"), Some(schedule_id(2)));
    fixture.commit(WriteSet { schedules_removed: vec![schedule_id(2)], ..added([called(5, "schedule 1")]) });
    assert_eq!(named(&fixture, "schedule 1"), Some(schedule_id(5)));
}

pub fn a_moment_has_one_run(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.commit(ran([run(1, 1, 100), run(1, 2, 200), run(2, 1, 100)]));
    let again = |cause, n| Run { cause, ..run(1, n, 200) };
    // Whatever else is in the commit goes with it.
    let writes =
        WriteSet { schedules_put: vec![schedule_row(1, 5)], ..ran([run(1, 3, 300), again(Cause::CatchUp, 4)]) };
    refused(&mut fixture, writes);
    refused(&mut fixture, ran([again(Cause::Time, 3)]));
    refused(&mut fixture, ran([run(1, 3, 300), run(1, 4, 300)]));
    refused(&mut fixture, ran([run(1, 2, 900)]));
    assert_eq!((numbers(&fixture, 1), stored(&fixture, 1)), (vec![2, 1], None));
    fixture.commit(ran([again(Cause::Hand, 3), again(Cause::Hand, 4)]));
    assert_eq!(numbers(&fixture, 1), [4, 3, 2, 1]);
    let mut fixture = Fixture::new(harness.reopen(fixture.store));
    refused(&mut fixture, ran([run(1, 5, 100)]));
}

pub fn a_run_comes_back_as_it_was_written(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let missed = Run { outcome: Outcome::Missed { n: 1000 }, ended_at: Some(7), ..run(1, 2, u64::MAX) };
    fixture.commit(ran([run(1, 1, 100), missed.clone()]));
    let usage = Usage { input_tokens: Some(5), output_tokens: Some(u64::MAX), ..Usage::default() };
    let closed = Run {
        outcome: Outcome::Failed,
        started_at: Some(101),
        ended_at: Some(300),
        attempts: 4,
        class: Some(Class::Timeout),
        reason: "too slow".into(),
        usage: Some(usage),
        tail: Some(blob("the end of it")),
        ..run(1, 1, 100)
    };
    fixture.commit(WriteSet { runs_put: vec![closed.clone()], ..WriteSet::default() });
    fixture = Fixture::new(harness.reopen(fixture.store));
    assert_eq!(fixture.store.run(schedule_id(1), 1).expect("it reads").as_ref(), Some(&closed));
    assert_eq!(fixture.store.run(schedule_id(1), 3).expect("it reads"), None);
    assert_eq!(fixture.reader().runs(schedule_id(1), None, 9).expect("it reads"), [missed, closed]);
    refused(&mut fixture, WriteSet { runs_put: vec![run(1, 9, 5)], ..WriteSet::default() });
}

pub fn runs_outlive_their_schedule_and_page(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.commit(WriteSet { runs_added: (1..=5).map(|n| run(1, n, n)).collect(), ..added([schedule_row(1, 9)]) });
    fixture.commit(removed(1));
    assert_eq!((stored(&fixture, 1), named(&fixture, "schedule 1")), (None, None));
    assert_eq!(fixture.store.load(1).expect("it loads").n_schedules, 0);
    let page = |before| fixture.reader().runs(schedule_id(1), before, 2).expect("it reads");
    assert_eq!(page(None).iter().map(|run| run.n).collect::<Vec<_>>(), [5, 4]);
    assert_eq!(page(Some(4)).iter().map(|run| run.n).collect::<Vec<_>>(), [3, 2]);
    assert_eq!(page(Some(2)).len(), 1);
    assert!(page(Some(1)).is_empty());
}

pub fn schedules_are_due_in_the_order_of_their_times(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.commit(added([schedule_row(1, 50), schedule_row(2, 20), schedule_row(3, 50), schedule_row(4, 0)]));
    let all = [(20, schedule_id(2)), (50, schedule_id(1)), (50, schedule_id(3))];
    assert_eq!(due(&mut fixture, None, 9), all);
    assert_eq!(due(&mut fixture, Some(all[0]), 1), all[1..2]);
    assert_eq!(due(&mut fixture, Some(all[1]), 9), all[2..]);
    assert!(due(&mut fixture, Some(all[2]), 9).is_empty());
    let mut paused = schedule_row(2, 20).schedule;
    paused.standing = Standing::Paused { reason: "".into() };
    fixture.commit(changed(paused));
    let mut later = schedule_row(1, 90).schedule;
    later.rules.stagger_ms = 5;
    fixture.commit(changed(later));
    fixture.commit(removed(3));
    assert_eq!(due(&mut fixture, None, 9), [(95, schedule_id(1))]);
}

pub fn schedules_are_listed_latest_first(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let mut paused = schedule_row(2, 0);
    paused.schedule.standing = Standing::Paused { reason: "".into() };
    fixture.commit(added([schedule_row(1, 5), paused, full(3)]));
    let reader = fixture.reader();
    let listed = |filter: ScheduleFilter| {
        let page = reader.schedules(&filter, None, 9).expect("it reads");
        assert_eq!(page.next, None);
        page.items.into_iter().map(|(schedule, _)| schedule.id).collect::<Vec<_>>()
    };
    let ids = [3, 2, 1].map(schedule_id);
    assert_eq!(listed(ScheduleFilter::default()), ids);
    assert_eq!(listed(ScheduleFilter { enabled: Some(true), agent: None }), [ids[0], ids[2]]);
    assert_eq!(listed(ScheduleFilter { enabled: Some(false), agent: None }), [ids[1]]);
    assert_eq!(listed(ScheduleFilter { enabled: None, agent: Some("bob".into()) }), [ids[0]]);
    let first = reader.schedules(&ScheduleFilter::default(), None, 2).expect("it reads");
    assert_eq!((first.items.len(), first.next), (2, Some(ids[1])));
    let rest = reader.schedules(&ScheduleFilter::default(), first.next, 2).expect("it reads");
    assert_eq!((rest.items.len(), rest.items[0].0.id, rest.next), (1, ids[2], None));
}

pub fn the_end_of_a_run_is_kept_until_it_is_worked_off(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let origin = Origin { schedule: schedule_id(1), run: 3 };
    let ran = Task { origin: Some(origin), ..with_own_ttl(ended(5, task(1))) };
    fixture.insert([ran.clone(), ended(5, task(2))]);
    assert_eq!(fixture.task(ran.id), ran);
    let release = |n, seq| Release::RunEnded { schedule: schedule_id(n), run: 3, task: id(seq) };
    let releases = vec![release(2, 1), release(1, 2)];
    fixture.commit(WriteSet { releases_added: releases.clone(), ..WriteSet::default() });
    fixture = Fixture::new(harness.reopen(fixture.store));
    let mut sorted = releases.clone();
    sorted.sort();
    assert_eq!(fixture.store.load(1).expect("it loads").releases, sorted);
    fixture = Fixture::new(fixture.store);
    assert!(fixture.store.released(&releases[0], 9).expect("it reads").is_empty());
    let purge = Purge { retention_ms: 0, ..KEEP };
    assert!(fixture.purge(1000, &purge).is_empty(), "their runs are not closed yet");
    fixture.commit(WriteSet { releases_removed: releases, ..WriteSet::default() });
    assert_eq!(fixture.purge(1000, &purge), [id(1), id(2)]);
}

pub fn happenings_tell_of_schedules(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let facts = ScheduleFacts {
        schedule: schedule_id(1),
        name: "nightly".into(),
        agent: Some("a".into()),
        run: Some(3),
        task: Some(id(1)),
        scheduled_for: Some(77),
        n_failed: 5,
        reason: "no answer".into(),
    };
    let kinds = HappeningKind::ALL.into_iter().filter(|kind| kind.as_str().starts_with("schedule."));
    let tell = |kind| Happening { kind, at_ms: 9, subject: Subject::Schedule(Box::new(facts.clone())) };
    let told: Vec<Happening> = kinds.map(tell).collect();
    assert_eq!(told.len(), 10);
    let seq = fixture.commit(WriteSet { happenings: told.clone(), ..WriteSet::default() });
    fixture = Fixture::new(harness.reopen(fixture.store));
    assert_eq!(fixture.reader().happenings(0, 9).expect("it reads"), [(seq, told)]);
}

pub fn purge_takes_ended_runs_by_age_and_by_number(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let ended = |schedule, n, at| Run { ended_at: Some(at), outcome: Outcome::Completed, ..run(schedule, n, n) };
    fixture.commit(ran((1..=9).map(|n| if n == 2 { run(1, n, n) } else { ended(1, n, n * 10) })));
    fixture.commit(ran((1..=3).map(|n| ended(2, n, 85))));
    // One row in each chunk, so that every walk has to go on where it was.
    let purge = Purge { runs_ms: 100, limit: 1, ..KEEP };
    fixture.purge(140, &purge);
    assert_eq!(numbers(&fixture, 1), [9, 8, 7, 6, 5, 2], "what ended up to 40 goes, what lives stays");
    let purge = Purge { runs_max: 2, limit: 2, ..KEEP };
    for _ in 0..3 {
        fixture.purge(140, &purge);
    }
    assert_eq!((numbers(&fixture, 1), numbers(&fixture, 2)), (vec![9, 8, 2], vec![3, 2]));
    // A moment whose run is gone is the core's to remember.
    fixture.commit(ran([run(2, 4, 1)]));
}
