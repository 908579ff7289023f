//! Tasks submitted together: all or each for itself, so many at a time, one end.

use runyard_core::event::{Answer, HappeningKind, Refusal, Subject};
use runyard_core::task::{Class, Phase, Tier};

use super::bed::{Bed, SECOND, batch, task};

/// browseros 12
#[test]
fn a_batch_answers_for_each_item_in_order_and_its_tasks_know_it() {
    let mut bed = Bed::new().inflight(1);
    let [first, second] = bed.ids();
    let (id, tasks) = bed.batch(batch([task("a").id(first), task("b").id(second)]));
    assert_eq!(tasks, [first, second]);
    assert!(tasks.iter().all(|&task| bed.task(task).batch == Some(id)));
    assert_eq!(bed.batch_row(id).n_total, 2);
    assert_eq!(bed.run_all(), tasks);
}

/// browseros 14
#[test]
fn one_bad_item_and_nothing_is_stored() {
    let mut bed = Bed::new();
    let (id, answer) = bed.submit_batch(batch([task("a"), task("a").invalid(), task("a")]));
    assert!(matches!(answer, Answer::Refused(Refusal::Invalid { .. })), "{answer:?}");
    assert_eq!((bed.n_stored(), bed.has_batch(id), bed.started().len()), (0, false, 0));
}

#[test]
fn a_batch_that_does_not_fit_as_a_whole_is_refused_as_a_whole() {
    let mut bed = Bed::new().config(|config| (config.queued_max, config.inflight_max) = (2, 0));
    let (id, answer) = bed.submit_batch(batch((0..3).map(|_| task("a"))));
    assert!(matches!(answer, Answer::Refused(Refusal::QueueFull { queued: 2, limit: 2, .. })), "{answer:?}");
    assert_eq!((bed.counts(None).submitted, bed.has_batch(id)), (0, false));
    bed.batch(batch((0..2).map(|_| task("a"))));
}

#[test]
fn a_partial_batch_of_which_nothing_is_taken_does_not_exist() {
    let mut bed = Bed::new();
    let (id, answer) = bed.submit_batch(batch([task("a").invalid(), task("a").invalid()]).partial());
    let Answer::Submitted { items } = answer else { panic!("{answer:?}") };
    assert!(items.iter().all(Result::is_err));
    assert!(!bed.has_batch(id));
    assert_eq!(bed.n_happenings(HappeningKind::BatchFinished), 0);
}

#[test]
fn an_item_that_names_a_refused_one_is_refused_and_so_on_down() {
    let mut bed = Bed::new();
    let [bad, child, grandchild, free] = bed.ids();
    let items = [
        task("a").id(grandchild).after(&[child]),
        task("a").id(child).after(&[bad]),
        task("a").id(bad).invalid(),
        task("a").id(free),
    ];
    let (id, answer) = bed.submit_batch(batch(items).partial());
    let Answer::Submitted { items } = answer else { panic!("{answer:?}") };
    assert_eq!(items[0].as_ref().unwrap_err(), &Refusal::ParentRefused { parent: child });
    assert_eq!(items[1].as_ref().unwrap_err(), &Refusal::ParentRefused { parent: bad });
    assert!(items[3].is_ok());
    assert_eq!((bed.batch_row(id).n_total, bed.n_stored()), (1, 1));
}

#[test]
fn no_more_than_its_parallelism_run_at_once() {
    let mut bed = Bed::new();
    let (id, tasks) = bed.batch(batch((0..7).map(|_| task("a"))).parallelism(2));
    assert_eq!(bed.counts(None).waiting, 5);
    for n in 0..7 {
        assert_eq!(bed.n_held(), 2.min(7 - n));
        assert!(bed.batch_row(id).n_places <= 2);
        let first = bed.held_in_start_order()[0];
        bed.complete(first);
    }
    assert_eq!(bed.started(), tasks);
}

#[test]
fn parallelism_counts_queued_members_too() {
    let mut bed = Bed::new().inflight(0);
    let (_, tasks) = bed.batch(batch((0..3).map(|_| task("a"))).parallelism(1));
    assert_eq!(bed.states(&tasks), [Phase::Queued, Phase::Waiting, Phase::Waiting]);
}

#[test]
fn two_batches_have_places_of_their_own() {
    let mut bed = Bed::new();
    bed.batch(batch((0..3).map(|_| task("a"))).parallelism(1));
    bed.batch(batch((0..3).map(|_| task("a"))).parallelism(1));
    assert_eq!(bed.n_held(), 2);
}

#[test]
fn a_member_keeps_its_place_over_a_retry() {
    let mut bed = Bed::new();
    let (_, tasks) = bed.batch(batch((0..2).map(|_| task("a"))).parallelism(1));
    bed.fail(tasks[0], Class::Task);
    assert_eq!(bed.states(&tasks), [Phase::Scheduled, Phase::Waiting]);
    bed.advance_ms(SECOND);
    assert_eq!(bed.states(&tasks), [Phase::Running, Phase::Waiting]);
    bed.complete(tasks[0]);
    assert_eq!(bed.states(&tasks), [Phase::Completed, Phase::Running]);
}

#[test]
fn every_end_gives_the_place_to_the_next() {
    let mut bed = Bed::new();
    let deadline = bed.after_ms(10 * SECOND);
    let items = [task("a"), task("a").max_retries(0), task("a"), task("a").deadline(deadline), task("a")];
    let (id, tasks) = bed.batch(batch(items).parallelism(1));
    bed.complete(tasks[0]);
    bed.fail(tasks[1], Class::Task);
    bed.cancel(tasks[2]);
    bed.confirm_stop(tasks[2]);
    bed.advance_ms(10 * SECOND);
    bed.confirm_stop(tasks[3]);
    assert_eq!(bed.state(tasks[4]), Phase::Running);
    bed.complete(tasks[4]);
    let row = bed.batch_row(id);
    assert_eq!((row.n_completed, row.n_failed, row.n_cancelled), (2, 2, 1));
    assert_eq!((row.n_places, row.n_waiting), (0, 0));
}

#[test]
fn a_member_that_waits_for_a_parent_takes_no_place() {
    let mut bed = Bed::new();
    let outside = bed.submit(task("a"));
    let (_, tasks) = bed.batch(batch([task("a").after(&[outside]), task("a")]).parallelism(1));
    assert_eq!(bed.states(&tasks), [Phase::Waiting, Phase::Running]);
    bed.complete(outside);
    assert_eq!(bed.state(tasks[0]), Phase::Waiting);
    assert_eq!(bed.closed(tasks[0])[0].0, "batch");
    bed.complete(tasks[1]);
    assert_eq!(bed.state(tasks[0]), Phase::Running);
}

#[test]
fn a_chain_inside_a_batch_of_parallelism_one_runs_through() {
    let mut bed = Bed::new();
    let [first, second, third] = bed.ids();
    let items = [task("a").id(third).after(&[second]), task("a").id(second).after(&[first]), task("a").id(first)];
    let (id, _) = bed.batch(batch(items).parallelism(1));
    assert_eq!(bed.run_all(), [first, second, third]);
    assert!(bed.batch_row(id).finished_at.is_some());
}

#[test]
fn places_survive_a_restart() {
    let mut bed = Bed::new();
    let (_, tasks) = bed.batch(batch((0..3).map(|_| task("a"))).parallelism(1));
    bed.restart();
    assert_eq!(bed.n_held(), 1);
    bed.complete(tasks[0]);
    bed.crash();
    assert_eq!(bed.states(&tasks), [Phase::Completed, Phase::Running, Phase::Waiting]);
    bed.complete(tasks[1]);
    bed.complete(tasks[2]);
    assert_eq!(bed.states(&tasks), [Phase::Completed; 3]);
}

#[test]
fn a_batch_tells_once_that_it_is_finished_and_how_its_members_ended() {
    let mut bed = Bed::new();
    let (id, tasks) = bed.batch(batch((0..3).map(|_| task("a").max_retries(0))));
    bed.complete(tasks[0]);
    bed.fail(tasks[1], Class::Task);
    assert_eq!(bed.n_happenings(HappeningKind::BatchFinished), 0);
    assert!(bed.batch_row(id).finished_at.is_none());
    bed.cancel(tasks[2]);
    bed.confirm_stop(tasks[2]);
    bed.advance_ms(SECOND);
    bed.crash();
    let finished: Vec<_> = bed.happenings().iter().filter(|h| h.kind == HappeningKind::BatchFinished).collect();
    let [one] = finished[..] else { panic!("{finished:?}") };
    let Subject::Batch(row) = &one.subject else { panic!("{one:?}") };
    assert_eq!((row.id, row.n_completed, row.n_failed, row.n_cancelled), (id, 1, 1, 1));
    assert!(bed.batch_row(id).finished_at.is_some());
}

#[test]
fn a_batch_does_not_change_the_order_of_tiers() {
    let mut bed = Bed::new().inflight(1);
    let items = [task("a").tier(Tier::Low), task("a"), task("a").tier(Tier::High)];
    let (_, tasks) = bed.batch(batch(items));
    assert_eq!(bed.run_all(), [tasks[2], tasks[1], tasks[0]]);
}

#[test]
fn a_thousand_items_run_through() {
    let mut bed = Bed::new();
    let (id, tasks) = bed.batch(batch((0..1000).map(|_| task("a"))).parallelism(7));
    assert_eq!(bed.run_all(), tasks);
    assert_eq!(bed.batch_row(id).n_completed, 1000);
}
