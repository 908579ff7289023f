//! Events that meet in one tick: each sees what those before it did, though nothing is stored yet.

use runyard_core::event::Change;
use runyard_core::task::{Class, Phase, Tier};

use super::bed::{Bed, SECOND, batch, message, task};

#[test]
fn a_child_that_comes_with_its_parents_end_runs_whichever_is_first() {
    for child_first in [true, false] {
        let mut bed = Bed::new();
        let parent = bed.submit(task("a"));
        let [child] = bed.ids();
        let submit = bed.submit_event(task("a").id(child).after(&[parent]));
        let end = bed.complete_event(parent);
        bed.send(if child_first { [submit, end] } else { [end, submit] });
        assert_eq!((bed.state(parent), bed.state(child)), (Phase::Completed, Phase::Running), "{child_first}");
    }
}

#[test]
fn a_child_that_comes_with_its_parents_failure_is_cancelled_whichever_is_first() {
    for child_first in [true, false] {
        let mut bed = Bed::new();
        let parent = bed.submit(task("a"));
        let [child, grandchild] = bed.ids();
        let submit = bed.submit_event(task("a").id(child).after(&[parent]));
        let and = bed.submit_event(task("a").id(grandchild).after(&[child]));
        let end = bed.fail_event(parent, Class::Permanent);
        bed.send(if child_first { [submit, and, end] } else { [end, submit, and] });
        assert_eq!(bed.states(&[child, grandchild]), [Phase::Cancelled; 2], "{child_first}");
        assert_eq!((bed.n_finals_of(child), bed.n_finals_of(grandchild)), (1, 1));
    }
}

/// The session is not in the store yet, where a reload looks for all others.
#[test]
fn a_reload_counts_for_a_session_that_began_in_its_tick() {
    let mut bed = Bed::new();
    bed.reconfigure(|config| config.sessions.defaults.max_concurrent = Some(2));
    let [first, second] = bed.ids();
    let submits = [first, second].map(|id| bed.submit_event(message("s").id(id)));
    let [one, other] = submits;
    let reload = bed.configure_event(|config| config.sessions.defaults.max_concurrent = Some(1));
    bed.send([one, other, reload]);
    assert_eq!(bed.states(&[first, second]), [Phase::Running, Phase::Waiting]);
    bed.complete(first);
    assert_eq!(bed.state(second), Phase::Running);
}

#[test]
fn two_parents_that_end_together_free_their_child_once() {
    let mut bed = Bed::new();
    let parents = bed.submit_n(2, &task("a"));
    let child = bed.submit(task("a").after(&parents));
    let ends = [bed.complete_event(parents[0]), bed.complete_event(parents[1])];
    bed.send(ends);
    assert_eq!((bed.state(child), bed.n_starts_of(child)), (Phase::Running, 1));
}

#[test]
fn two_parents_of_which_one_fails_end_their_child_once() {
    for failed_first in [true, false] {
        let mut bed = Bed::new();
        let parents = bed.submit_n(2, &task("a"));
        let child = bed.submit(task("a").after(&parents));
        let (bad, good) = (bed.fail_event(parents[0], Class::Permanent), bed.complete_event(parents[1]));
        bed.send(if failed_first { [bad, good] } else { [good, bad] });
        assert_eq!((bed.state(child), bed.n_finals_of(child)), (Phase::Cancelled, 1));
    }
}

#[test]
fn a_child_that_is_cancelled_with_its_parents_end_stays_cancelled() {
    for cancel_first in [true, false] {
        let mut bed = Bed::new();
        let parent = bed.submit(task("a"));
        let child = bed.submit(task("a").after(&[parent]));
        let (cancel, end) = (bed.cancel_event(child), bed.complete_event(parent));
        bed.send(if cancel_first { [cancel, end] } else { [end, cancel] });
        assert_eq!((bed.state(child), bed.n_starts_of(child)), (Phase::Cancelled, 0));
    }
}

#[test]
fn a_task_that_is_submitted_and_cancelled_in_one_tick_never_starts() {
    let mut bed = Bed::new();
    let [id] = bed.ids();
    let submit = bed.submit_event(task("a").id(id));
    let cancel = bed.cancel_event(id);
    bed.send([submit, cancel]);
    assert_eq!((bed.state(id), bed.n_starts_of(id), bed.n_finals_of(id)), (Phase::Cancelled, 0, 1));
    assert_eq!(bed.counts(None).unstarted(), 0);
}

#[test]
fn a_completion_before_a_cancel_stands_and_after_it_does_not() {
    for cancel_first in [true, false] {
        let mut bed = Bed::new();
        let id = bed.submit(task("a"));
        let (cancel, end) = (bed.cancel_event(id), bed.complete_event(id));
        bed.send(if cancel_first { [cancel, end] } else { [end, cancel] });
        let expected = if cancel_first { Phase::Cancelled } else { Phase::Completed };
        assert_eq!((bed.state(id), bed.n_finals_of(id)), (expected, 1));
    }
}

#[test]
fn a_repeated_end_counts_once() {
    let mut bed = Bed::new().inflight(1);
    let id = bed.submit(task("a"));
    bed.submit_n(3, &task("b"));
    let ends = [bed.complete_event(id), bed.complete_event(id), bed.fail_event(id, Class::Task)];
    bed.send(ends);
    assert_eq!((bed.state(id), bed.n_finals_of(id), bed.n_held()), (Phase::Completed, 1, 1));
}

#[test]
fn places_that_free_together_are_all_given_away() {
    let mut bed = Bed::new();
    let (id, tasks) = bed.batch(batch((0..6).map(|_| task("a"))).parallelism(3));
    let ends: Vec<_> = tasks[..3].iter().map(|&task| bed.complete_event(task)).collect();
    bed.send(ends);
    assert_eq!(bed.states(&tasks[3..]), [Phase::Running; 3]);
    assert_eq!((bed.batch_row(id).n_places, bed.batch_row(id).n_waiting), (3, 0));
}

#[test]
fn a_place_goes_past_a_member_that_is_cancelled_in_the_same_tick() {
    for cancel_first in [true, false] {
        let mut bed = Bed::new();
        let (id, tasks) = bed.batch(batch((0..3).map(|_| task("a"))).parallelism(1));
        let (cancel, end) = (bed.cancel_event(tasks[1]), bed.complete_event(tasks[0]));
        bed.send(if cancel_first { [cancel, end] } else { [end, cancel] });
        assert_eq!(bed.states(&tasks), [Phase::Completed, Phase::Cancelled, Phase::Running]);
        assert_eq!((bed.batch_row(id).n_places, bed.batch_row(id).n_waiting), (1, 0));
    }
}

#[test]
fn a_change_that_comes_with_the_submit_decides_the_order() {
    let mut bed = Bed::new().inflight(1);
    let blocker = bed.submit(task("x"));
    let [first, second] = bed.ids();
    let events = [
        bed.submit_event(task("a").id(first)),
        bed.submit_event(task("a").id(second)),
        bed.change_event(second, Change { tier: Some(Tier::High), ..Change::default() }),
    ];
    bed.send(events);
    assert_eq!(bed.run_all(), [blocker, second, first]);
}

#[test]
fn a_change_that_comes_with_the_freeing_of_a_slot_is_seen_by_the_pick() {
    let mut bed = Bed::new().inflight(1);
    let first = bed.submit(task("a"));
    let ids = bed.submit_n(2, &task("a"));
    let events = [bed.complete_event(first), bed.change_event(ids[1], Change { rank: Some(-1), ..Change::default() })];
    bed.send(events);
    assert_eq!(bed.states(&ids), [Phase::Queued, Phase::Running]);
}

#[test]
fn a_retry_that_is_due_with_its_cancel_does_not_run() {
    let mut bed = Bed::new().inflight(1);
    let id = bed.submit(task("a"));
    bed.fail(id, Class::Task);
    bed.advance_ms(SECOND - 1);
    let cancel = bed.cancel_event(id);
    bed.send([cancel]);
    bed.advance_ms(SECOND);
    assert_eq!((bed.state(id), bed.n_starts_of(id)), (Phase::Cancelled, 1));
}

#[test]
fn everything_at_once_keeps_the_limits_and_the_counts() {
    let mut bed = Bed::new().inflight(3).config(|config| config.window_max = 2);
    let ids = bed.submit_n(30, &task("a"));
    for round in 0..10 {
        let held = bed.held_in_start_order();
        let queued: Vec<_> = ids.iter().copied().filter(|&id| bed.state(id) == Phase::Queued).collect();
        let mut events = vec![bed.complete_event(held[0])];
        events.extend(held.get(1).map(|&id| bed.fail_event(id, Class::Permanent)));
        events.extend(queued.get(1).map(|&id| bed.cancel_event(id)));
        events.extend(
            queued
                .first()
                .map(|&id| bed.change_event(id, Change { rank: Some(5), tier: Some(Tier::Low), ..Change::default() })),
        );
        bed.send(events);
        let n_held = bed.n_held();
        let n_left = ids.iter().filter(|&&id| !bed.state(id).is_terminal()).count();
        assert_eq!(n_held, n_left.min(3), "round {round}");
        let counts = bed.counts(None);
        assert_eq!(counts.unstarted() + counts.running + counts.assigned, n_left as i64);
        if n_left == 0 {
            return;
        }
    }
}
