//! What is tried again, when, and for how often.

use runyard_core::backoff_ms;
use runyard_core::event::HappeningKind;
use runyard_core::ids::TaskId;
use runyard_core::task::{Class, Phase, Retry};

use super::bed::{Bed, HOUR, New, SECOND, task};

/// Fails every attempt until the task gives up; the waits between them.
fn waits_until_failed(bed: &mut Bed, new: New, class: Class) -> (TaskId, Vec<u64>) {
    let id = bed.submit(new);
    let mut waits = Vec::new();
    while !bed.state(id).is_terminal() {
        bed.fail(id, class);
        if bed.state(id) == Phase::Scheduled {
            let from = bed.wall_ms();
            while bed.state(id) == Phase::Scheduled {
                bed.advance_ms(500);
            }
            waits.push(bed.wall_ms() - from);
        }
    }
    (id, waits)
}

#[test]
fn three_retries_are_four_runs() {
    let mut bed = Bed::new();
    let (id, waits) = waits_until_failed(&mut bed, task("a"), Class::Task);
    let task = bed.task(id);
    assert_eq!((task.phase(), task.n_runs, task.retries_used, task.retries_left()), (Phase::Failed, 4, 3, 0));
    assert_eq!(waits, [1000, 2000, 4000]);
    assert_eq!(task.reason, "no retries left");
}

/// browseros 28
#[test]
fn no_retries_are_one_run() {
    let mut bed = Bed::new();
    let (id, waits) = waits_until_failed(&mut bed, task("a").max_retries(0), Class::Task);
    assert_eq!((bed.state(id), bed.task(id).n_runs, waits), (Phase::Failed, 1, vec![]));
}

/// browseros 29
#[test]
fn one_retry_is_two_runs_and_one_failed_event() {
    let mut bed = Bed::new();
    let (id, _) = waits_until_failed(&mut bed, task("a").max_retries(1), Class::Task);
    assert_eq!((bed.task(id).retries_used, bed.n_starts_of(id)), (1, 2));
    assert_eq!(bed.n_happenings(HappeningKind::TaskFailed), 1);
    assert_eq!(bed.n_happenings(HappeningKind::TaskRetrying), 1);
    assert_eq!(bed.counts(None).retried, 1);
}

/// browseros 27
#[test]
fn fails_twice_and_then_completes() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    bed.fail(id, Class::Task);
    bed.advance_ms(SECOND);
    bed.fail(id, Class::Task);
    bed.advance_ms(2 * SECOND);
    bed.complete(id);
    let task = bed.task(id);
    assert_eq!((task.phase(), task.retries_used, task.n_runs), (Phase::Completed, 2, 3));
    assert!(task.error.is_none(), "what went wrong on the way is history");
}

/// browseros 30
#[test]
fn the_wait_doubles_up_to_its_cap() {
    let mut bed = Bed::new();
    let (_, waits) = waits_until_failed(&mut bed, task("a").max_retries(8), Class::Task);
    assert_eq!(waits, [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
}

/// browseros 31
#[test]
fn a_tasks_own_policy_goes_before_the_defaults() {
    let mut bed = Bed::new();
    let new = task("a").retry(|retry| {
        *retry = Retry { max_retries: 4, backoff_ms: 500, multiplier_milli: 3000, backoff_ms_max: 5000, ..*retry }
    });
    let (id, waits) = waits_until_failed(&mut bed, new, Class::Task);
    assert_eq!((bed.task(id).n_runs, waits), (5, vec![500, 1500, 4500, 5000]));
}

#[test]
fn jitter_is_bounded_spreads_and_is_the_same_for_the_same_attempt() {
    let retry = Retry::default();
    let draws: Vec<u64> = (1..=200).map(|n| backoff_ms(&retry, TaskId(n), 1)).collect();
    assert!(draws.iter().all(|wait_ms| (750..=1250).contains(wait_ms)), "{draws:?}");
    assert!(draws.iter().any(|&ms| ms < 850) && draws.iter().any(|&ms| ms > 1150), "both sides are reached");
    assert_eq!(draws[6], backoff_ms(&retry, TaskId(7), 1));
    assert_ne!(backoff_ms(&retry, TaskId(7), 1), backoff_ms(&retry, TaskId(8), 1));
}

/// goclaw 55
#[test]
fn jitter_is_a_quarter_of_the_capped_wait_to_either_side() {
    let retry = Retry { backoff_ms: 100, ..Retry::default() };
    let capped = Retry { backoff_ms_max: 200, ..retry };
    for (retry, n, range) in
        [(retry, 1, 75..=125), (retry, 2, 150..=250), (retry, 3, 300..=500), (capped, 10, 150..=250)]
    {
        let draws: Vec<u64> = (1..=500).map(|task| backoff_ms(&retry, TaskId(task), n)).collect();
        assert!(draws.iter().all(|wait_ms| range.contains(wait_ms)), "retry {n}: {draws:?}");
        let (least, most) = (draws.iter().min().copied(), draws.iter().max().copied());
        assert!(least < Some(range.start() + 5) && most > Some(range.end() - 5), "retry {n}: {least:?} to {most:?}");
    }
}

/// browseros 32
#[test]
fn a_waiting_retry_holds_no_slot() {
    let mut bed = Bed::new().inflight(1);
    let failing = bed.submit(task("a"));
    let next = bed.submit(task("b"));
    bed.fail(failing, Class::Task);
    assert_eq!(bed.states(&[failing, next]), [Phase::Scheduled, Phase::Running]);
    assert_eq!(bed.n_held(), 1);
}

#[test]
fn a_waiting_retry_survives_a_restart() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    bed.fail(id, Class::Task);
    bed.crash();
    bed.advance_ms(SECOND - 1);
    assert_eq!(bed.state(id), Phase::Scheduled);
    bed.advance_ms(1);
    assert_eq!((bed.state(id), bed.task(id).retries_used), (Phase::Running, 1));
}

#[test]
fn a_backoff_is_elapsed_time_and_a_jump_of_the_wall_clock_does_not_shorten_it() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    bed.fail(id, Class::Task);
    let later = bed.after_ms(HOUR);
    bed.set_wall_clock(later);
    assert_eq!(bed.state(id), Phase::Scheduled);
    bed.advance_ms(SECOND);
    assert_eq!(bed.state(id), Phase::Running);
}

#[test]
fn a_retry_keeps_its_place_in_submit_order() {
    let mut bed = Bed::new().inflight(1);
    let failing = bed.submit(task("a"));
    let later = bed.submit_n(2, &task("a").long());
    bed.fail(failing, Class::Task);
    bed.advance_ms(SECOND);
    assert_eq!(bed.states(&[failing, later[0], later[1]]), [Phase::Queued, Phase::Running, Phase::Queued]);
    bed.complete(later[0]);
    assert_eq!(bed.states(&[failing, later[1]]), [Phase::Running, Phase::Queued]);
}

#[test]
fn permanent_is_never_retried() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    bed.fail(id, Class::Permanent);
    assert_eq!((bed.state(id), bed.class(id), bed.n_starts_of(id)), (Phase::Failed, Some(Class::Permanent), 1));
}

#[test]
fn permanent_is_not_retried_though_the_policy_names_it() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a").retry(|retry| retry.on = u8::MAX));
    bed.fail(id, Class::Permanent);
    assert_eq!(bed.state(id), Phase::Failed);
}

#[test]
fn a_class_the_policy_does_not_name_is_not_retried() {
    let mut bed = Bed::new();
    let new = task("a").retry(|retry| retry.on = Class::Timeout.bit());
    let failed = bed.submit(new.clone());
    let timed_out = bed.submit(new);
    bed.fail(failed, Class::Task);
    bed.fail(timed_out, Class::Timeout);
    assert_eq!(bed.states(&[failed, timed_out]), [Phase::Failed, Phase::Scheduled]);
}

#[test]
fn quota_waits_for_as_long_as_it_was_told_and_uses_no_retry() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a").max_retries(0));
    bed.fail_with_retry_after(id, Class::Quota, 7 * SECOND);
    let waiting = bed.task(id);
    assert_eq!((waiting.phase(), waiting.retries_used, waiting.n_quota), (Phase::Scheduled, 0, 1));
    bed.advance_ms(7 * SECOND - 1);
    assert_eq!(bed.state(id), Phase::Scheduled);
    bed.advance_ms(1);
    assert_eq!(bed.state(id), Phase::Running);
}

#[test]
fn quota_waits_an_hour_at_most() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    bed.fail_with_retry_after(id, Class::Quota, 100 * HOUR);
    bed.advance_ms(HOUR - 1);
    assert_eq!(bed.state(id), Phase::Scheduled);
    bed.advance_ms(1);
    assert_eq!(bed.state(id), Phase::Running);
}

#[test]
fn quota_without_a_time_waits_the_backoff() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    for wait_ms in [1000, 2000, 4000] {
        bed.fail(id, Class::Quota);
        bed.advance_ms(wait_ms - 1);
        assert_eq!(bed.state(id), Phase::Scheduled);
        bed.advance_ms(1);
        assert_eq!(bed.state(id), Phase::Running);
    }
}

#[test]
fn quota_ends_failed_after_a_hundred() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    for _ in 0..100 {
        bed.fail_with_retry_after(id, Class::Quota, 1);
        // "At once" is no answer for a provider that then refuses again: it waits for the backoff at least.
        bed.advance_ms(SECOND - 1);
        assert_eq!(bed.state(id), Phase::Scheduled);
        bed.advance_ms(1);
        assert_eq!(bed.state(id), Phase::Running);
    }
    bed.fail_with_retry_after(id, Class::Quota, 1);
    assert_eq!((bed.state(id), bed.class(id)), (Phase::Failed, Some(Class::Quota)));
    assert_eq!(bed.task(id).retries_used, 0);
}

#[test]
fn a_retry_that_could_only_start_after_the_deadline_fails_at_once() {
    let mut bed = Bed::new();
    let deadline = bed.after_ms(5 * SECOND);
    let quota = bed.submit(task("a").deadline(deadline));
    bed.fail_with_retry_after(quota, Class::Quota, 5 * SECOND);
    assert_eq!((bed.state(quota), bed.class(quota)), (Phase::Failed, Some(Class::Quota)));
    let failing = bed.submit(task("a").deadline(deadline).retry(|retry| retry.backoff_ms = 10 * SECOND));
    bed.fail(failing, Class::Task);
    assert_eq!((bed.state(failing), bed.class(failing)), (Phase::Failed, Some(Class::Task)));
    assert!(bed.task(failing).reason.contains("deadline"));
}

#[test]
fn the_third_loss_ends_it_and_no_loss_uses_a_retry() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a").max_retries(0));
    for n in 1..=2 {
        bed.crash();
        let task = bed.task(id);
        assert_eq!((task.phase(), task.n_lost, task.retries_used), (Phase::Running, n, 0), "again, without delay");
    }
    bed.crash();
    let task = bed.task(id);
    assert_eq!((task.phase(), task.n_lost, task.n_runs), (Phase::Failed, 3, 3));
    assert_eq!(bed.class(id), Some(Class::Lost));
}

#[test]
fn losses_and_failures_have_ledgers_of_their_own() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a").max_retries(1));
    bed.crash();
    bed.fail(id, Class::Task);
    bed.advance_ms(SECOND);
    bed.crash();
    assert_eq!(bed.state(id), Phase::Running);
    bed.fail(id, Class::Task);
    let task = bed.task(id);
    assert_eq!((task.phase(), task.n_lost, task.retries_used), (Phase::Failed, 2, 1));
}

#[test]
fn a_retry_tells_why() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    bed.fail(id, Class::Task);
    let (kind, facts) = bed.facts_of(id).pop().unwrap();
    assert_eq!((kind, facts.class), (HappeningKind::TaskRetrying, Some(Class::Task)));
    assert_eq!(facts.reason, "failed as task");
    assert!(bed.task(id).reason.contains("1000 ms"), "{}", bed.task(id).reason);
}
