//! Tasks that wait for others: what frees them, and what their parents' ends do to them.

use runyard_core::event::{Answer, Refusal};
use runyard_core::ids::TaskId;
use runyard_core::task::{Class, OnDependencyFailure, Phase};

use super::bed::{Bed, HOUR, SECOND, batch, task};

/// browseros 26
#[test]
fn a_task_runs_after_its_parent_completed() {
    let mut bed = Bed::new();
    let parent = bed.submit(task("a"));
    let child = bed.submit(task("a").after(&[parent]));
    assert_eq!(bed.state(child), Phase::Waiting);
    bed.complete(parent);
    assert_eq!(bed.state(child), Phase::Running);
}

/// browseros 21
#[test]
fn two_children_of_one_parent_run_together_after_it() {
    let mut bed = Bed::new().inflight(2);
    let a = bed.submit(task("a"));
    let b = bed.submit(task("a").after(&[a]));
    let c = bed.submit(task("a").after(&[a]));
    assert_eq!(bed.states(&[b, c]), [Phase::Waiting; 2]);
    bed.complete(a);
    assert_eq!(bed.states(&[b, c]), [Phase::Running; 2]);
}

#[test]
fn all_parents_must_complete() {
    let mut bed = Bed::new();
    let parents = bed.submit_n(3, &task("a"));
    let child = bed.submit(task("a").after(&parents));
    bed.complete(parents[1]);
    bed.complete(parents[0]);
    assert_eq!((bed.state(child), bed.task(child).n_deps_open), (Phase::Waiting, 1));
    bed.complete(parents[2]);
    assert_eq!(bed.state(child), Phase::Running);
}

#[test]
fn a_parent_that_is_named_twice_is_one_parent() {
    let mut bed = Bed::new();
    let parent = bed.submit(task("a"));
    let child = bed.submit(task("a").after(&[parent, parent]));
    assert_eq!(bed.task(child).n_deps_open, 1);
    bed.complete(parent);
    assert_eq!(bed.state(child), Phase::Running);
}

#[test]
fn a_parent_that_has_completed_already_is_not_waited_for() {
    let mut bed = Bed::new();
    let parent = bed.submit(task("a"));
    bed.complete(parent);
    let child = bed.submit(task("a").after(&[parent]));
    assert_eq!(bed.state(child), Phase::Running);
}

/// browseros 22
#[test]
fn a_child_is_cancelled_when_its_parent_has_failed_for_good() {
    let mut bed = Bed::new();
    let parent = bed.submit(task("a").max_retries(0));
    let child = bed.submit(task("a").after(&[parent]));
    bed.fail(parent, Class::Task);
    let child = bed.task(child);
    assert_eq!((child.phase(), child.n_runs), (Phase::Cancelled, 0));
    assert!(child.reason.contains("did not complete"), "it says why: {}", child.reason);
    assert_eq!(bed.n_finals_of(child.id), 1);
}

/// browseros 23
#[test]
fn a_failure_goes_down_through_all_generations() {
    let mut bed = Bed::new();
    let first = bed.submit(task("a").max_retries(0));
    let mut line = vec![first];
    for _ in 0..10 {
        let parent = line[line.len() - 1];
        line.push(bed.submit(task("a").after(&[parent])));
    }
    bed.fail(first, Class::Task);
    assert_eq!(bed.states(&line[1..]), [Phase::Cancelled; 10]);
}

/// browseros 24
#[test]
fn a_child_is_cancelled_when_its_parent_is() {
    let mut bed = Bed::new().inflight(0);
    let parent = bed.submit(task("a"));
    let child = bed.submit(task("a").after(&[parent]));
    bed.cancel(parent);
    assert_eq!(bed.state(child), Phase::Cancelled);
}

#[test]
fn a_child_of_an_expired_parent_is_cancelled() {
    let mut bed = Bed::new().inflight(0);
    let deadline = bed.after_ms(SECOND);
    let parent = bed.submit(task("a").deadline(deadline));
    let child = bed.submit(task("a").after(&[parent]));
    bed.advance_ms(SECOND);
    assert_eq!(bed.state(child), Phase::Cancelled);
}

#[test]
fn a_child_of_a_parent_that_failed_already_is_cancelled_at_once() {
    let mut bed = Bed::new();
    let parent = bed.submit(task("a"));
    bed.fail(parent, Class::Permanent);
    let child = bed.try_submit(task("a").after(&[parent])).unwrap();
    assert_eq!(child.phase, Phase::Cancelled);
    assert_eq!(bed.n_finals_of(child.id), 1);
}

#[test]
fn on_dependency_failure_fail_fails_the_child() {
    let mut bed = Bed::new();
    let parent = bed.submit(task("a"));
    let child = bed.submit(task("a").after(&[parent]).on_dependency_failure(OnDependencyFailure::Fail));
    let grandchild = bed.submit(task("a").after(&[child]));
    bed.fail(parent, Class::Permanent);
    assert_eq!(bed.states(&[child, grandchild]), [Phase::Failed, Phase::Cancelled]);
    assert_eq!(bed.class(child), Some(Class::Permanent));
}

#[test]
fn on_dependency_failure_run_runs_the_child_when_all_parents_have_ended() {
    let mut bed = Bed::new();
    let parents = bed.submit_n(2, &task("a"));
    let child = bed.submit(task("a").after(&parents).on_dependency_failure(OnDependencyFailure::Run));
    bed.fail(parents[0], Class::Permanent);
    assert_eq!(bed.state(child), Phase::Waiting);
    bed.complete(parents[1]);
    assert_eq!(bed.state(child), Phase::Running);
}

#[test]
fn on_dependency_failure_run_also_counts_a_parent_that_failed_before() {
    let mut bed = Bed::new();
    let parent = bed.submit(task("a"));
    bed.fail(parent, Class::Permanent);
    let child = bed.submit(task("a").after(&[parent]).on_dependency_failure(OnDependencyFailure::Run));
    assert_eq!(bed.state(child), Phase::Running);
}

#[test]
fn a_parent_in_its_backoff_keeps_its_children_waiting() {
    let mut bed = Bed::new();
    let parent = bed.submit(task("a"));
    let child = bed.submit(task("a").after(&[parent]));
    bed.fail(parent, Class::Task);
    assert_eq!(bed.states(&[parent, child]), [Phase::Scheduled, Phase::Waiting]);
    bed.advance_ms(SECOND);
    assert_eq!(bed.state(child), Phase::Waiting);
    bed.complete(parent);
    assert_eq!(bed.state(child), Phase::Running);
}

#[test]
fn a_child_that_is_submitted_while_its_parent_is_in_its_backoff_waits() {
    let mut bed = Bed::new();
    let parent = bed.submit(task("a"));
    bed.fail(parent, Class::Task);
    let child = bed.submit(task("a").after(&[parent]));
    assert_eq!(bed.state(child), Phase::Waiting);
    bed.advance_ms(SECOND);
    bed.complete(parent);
    assert_eq!(bed.state(child), Phase::Running);
}

/// browseros 25
#[test]
fn a_parent_nobody_knows_is_waited_for_and_explained() {
    let mut bed = Bed::new();
    let child = bed.submit(task("a").after(&[TaskId(404)]));
    bed.advance_ms(HOUR);
    assert_eq!(bed.state(child), Phase::Waiting);
    let gate = bed.closed_gate(child, "dependencies");
    assert_eq!((gate.current, gate.limit), (Some(1), Some(0)));
}

#[test]
fn a_parent_nobody_knows_ends_the_wait_at_the_deadline() {
    let mut bed = Bed::new();
    let deadline = bed.after_ms(SECOND);
    let child = bed.submit(task("a").after(&[TaskId(404)]).deadline(deadline));
    bed.advance_ms(SECOND);
    assert_eq!((bed.state(child), bed.class(child)), (Phase::Failed, Some(Class::Deadline)));
}

#[test]
fn the_wait_for_dependencies_ends_failed_after_its_timeout() {
    let mut bed = Bed::new();
    let parent = bed.submit(task("a").long());
    let child = bed.submit(task("a").after(&[parent]).dependency_timeout_ms(5 * SECOND));
    bed.advance_ms(5 * SECOND - 1);
    assert_eq!(bed.state(child), Phase::Waiting);
    bed.advance_ms(1);
    assert_eq!((bed.state(child), bed.task(child).reason.as_ref()), (Phase::Failed, "dependency timeout"));
    bed.complete(parent);
    assert_eq!(bed.n_starts_of(child), 0);
}

#[test]
fn the_dependency_timeout_ends_with_the_wait() {
    let mut bed = Bed::new().inflight(1);
    let parent = bed.submit(task("a"));
    let child = bed.submit(task("a").after(&[parent]).dependency_timeout_ms(5 * SECOND).long());
    bed.complete(parent);
    bed.advance_ms(HOUR);
    assert_eq!(bed.state(child), Phase::Running);
}

#[test]
fn a_delay_counts_from_the_submit_and_not_from_the_parents_end() {
    let mut bed = Bed::new();
    let parent = bed.submit(task("a"));
    let short = bed.submit(task("a").after(&[parent]).delay_ms(SECOND));
    let long = bed.submit(task("a").after(&[parent]).delay_ms(3 * SECOND));
    bed.advance_ms(2 * SECOND);
    assert_eq!(bed.states(&[short, long]), [Phase::Waiting; 2]);
    bed.complete(parent);
    assert_eq!(bed.states(&[short, long]), [Phase::Running, Phase::Scheduled]);
    bed.advance_ms(SECOND);
    assert_eq!(bed.state(long), Phase::Running);
}

#[test]
fn a_wait_survives_a_restart() {
    let mut bed = Bed::new();
    let parent = bed.submit(task("a"));
    let child = bed.submit(task("a").after(&[parent]));
    bed.restart();
    assert_eq!(bed.state(child), Phase::Waiting);
    bed.complete(parent);
    assert_eq!(bed.state(child), Phase::Running);
}

#[test]
fn items_of_a_batch_may_name_items_that_come_later_in_it() {
    let mut bed = Bed::new();
    let [first, second, third] = bed.ids();
    let items = [task("a").id(third).after(&[second]), task("a").id(second).after(&[first]), task("a").id(first)];
    bed.batch(batch(items));
    assert_eq!(bed.states(&[first, second, third]), [Phase::Running, Phase::Waiting, Phase::Waiting]);
    bed.complete(first);
    bed.complete(second);
    bed.complete(third);
    assert_eq!(bed.started(), [first, second, third]);
}

#[test]
fn an_item_that_names_a_cancelled_one_of_its_own_batch_is_cancelled_with_it() {
    let mut bed = Bed::new();
    let failed = bed.submit(task("a"));
    bed.fail(failed, Class::Permanent);
    let [first, second] = bed.ids();
    let (id, tasks) = bed.batch(batch([task("a").id(second).after(&[first]), task("a").id(first).after(&[failed])]));
    assert_eq!(bed.states(&tasks), [Phase::Cancelled; 2]);
    assert_eq!(bed.batch_row(id).n_cancelled, 2);
}

#[test]
fn a_parent_with_thousands_of_children_frees_them_all() {
    let mut bed = Bed::new().inflight(1);
    let parent = bed.submit(task("a"));
    let children: Vec<TaskId> =
        (0..3).flat_map(|_| bed.batch(batch((0..900).map(|_| task("a").after(&[parent])))).1).collect();
    bed.complete(parent);
    assert_eq!(bed.counts(None).waiting, 0);
    assert_eq!(bed.counts(None).queued, 2699);
    assert_eq!(bed.run_all(), children);
}

#[test]
fn a_cycle_of_waits_cannot_be_left_behind_by_a_refused_item() {
    let mut bed = Bed::new();
    let [first, second] = bed.ids();
    let items = [task("a").id(first).invalid(), task("a").id(second).after(&[first]), task("a")];
    let (_, answer) = bed.submit_batch(batch(items).partial());
    let Answer::Submitted { items } = answer else { panic!("{answer:?}") };
    assert!(matches!(items[0], Err(Refusal::Invalid { .. })));
    assert_eq!(items[1].as_ref().unwrap_err(), &Refusal::ParentRefused { parent: first });
    assert!(items[2].is_ok());
    assert!(bed.find(second).is_none());
}
