//! Stop, stop all, reset: answered at once whatever the lane does, and nothing that was stopped ever starts.

use runyard_core::event::{Admit, Answer, CancelAnswer, HappeningKind, Refusal, SessionAct};
use runyard_core::session::{Mode, Overflow};
use runyard_core::task::{Class, OnDependencyFailure, Phase, Stop};

use super::bed::{Bed, FIRST, SECOND, batch, message, task, worker};

// ── Stop ────────────────────────────────────────────────────────────────────────────────────────────────────────────

/// goclaw 37, as far as the scheduler has a part in it
#[test]
fn a_stop_cancels_the_oldest_run_and_then_the_next_oldest() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s").max_concurrent(2), ["1", "2", "3"]);
    assert_eq!(bed.stop("s"), Some(ids[0]));
    assert_eq!(bed.stop("s"), Some(ids[1]));
    assert_eq!(bed.stop("s"), None, "everything that runs is being stopped");
    assert_eq!(bed.take_stops(), [(ids[0], Stop::Cancel), (ids[1], Stop::Cancel)]);
    bed.confirm_stop(ids[0]);
    assert_eq!(bed.states(&ids), [Phase::Cancelled, Phase::Running, Phase::Running]);
    assert_eq!(&*bed.task(ids[0]).reason, "stopped");
    assert_eq!(bed.n_happenings(HappeningKind::SessionStopped), 2);
}

/// goclaw 37: a second abort, an unknown one, one that has ended
#[test]
fn a_cancel_says_what_it_found() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s"), ["1", "2"]);
    assert_eq!([bed.cancel(ids[0]), bed.cancel(ids[0])], [CancelAnswer::Stopping; 2]);
    assert_eq!(bed.take_stops().len(), 1, "it is asked once");
    bed.confirm_stop(ids[0]);
    assert_eq!(bed.cancel(ids[0]), CancelAnswer::Terminal(Phase::Cancelled));
    let [unknown] = bed.ids();
    assert_eq!(bed.cancel(unknown), CancelAnswer::NotFound);
    assert_eq!(bed.state(ids[1]), Phase::Running);
}

#[test]
fn after_a_stop_the_next_starts_without_a_further_message() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s"), ["1", "2", "3"]);
    bed.stop("s");
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Waiting, Phase::Waiting], "not before it is dead");
    bed.confirm_stop(ids[0]);
    assert_eq!(bed.states(&ids), [Phase::Cancelled, Phase::Running, Phase::Waiting]);
}

#[test]
fn a_stop_of_a_session_where_nothing_runs_stops_nothing() {
    let mut bed = Bed::new().inflight(0);
    assert_eq!(bed.stop("never seen"), None);
    assert!(bed.find_session("never seen").is_none());
    let ids = bed.say(&message("s"), ["1", "2"]);
    assert_eq!(bed.stop("s"), None);
    assert_eq!(bed.states(&ids), [Phase::Queued, Phase::Waiting]);
    assert_eq!(bed.n_happenings(HappeningKind::SessionStopped), 0);
}

#[test]
fn a_stop_sets_no_cutoff() {
    let mut bed = Bed::new();
    let id = bed.submit(message("s"));
    let before = bed.wall_ms();
    bed.advance_ms(SECOND);
    bed.stop("s");
    bed.confirm_stop(id);
    bed.submit(message("s").sent_at(before));
    assert_eq!(bed.session("s").cutoff, None);
}

#[test]
fn a_stop_makes_an_end_of_a_run_that_was_stopped_to_be_repeated() {
    let mut bed = Bed::new();
    let id = bed.submit(message("s").timeout_ms(SECOND));
    bed.advance_ms(SECOND);
    assert_eq!(bed.take_stops(), [(id, Stop::Timeout)]);
    assert_eq!(bed.stop("s"), Some(id));
    bed.confirm_stop(id);
    assert_eq!(bed.state(id), Phase::Cancelled);
}

/// goclaw 71
#[test]
fn a_stopped_run_is_not_retried() {
    let mut bed = Bed::new();
    let id = bed.submit(message("s"));
    bed.stop("s");
    bed.fail(id, Class::Task);
    bed.advance_ms(100 * SECOND);
    assert_eq!((bed.state(id), bed.n_starts_of(id)), (Phase::Cancelled, 1));
}

// ── Stop all ────────────────────────────────────────────────────────────────────────────────────────────────────────

/// goclaw 14
#[test]
fn a_stop_of_all_cancels_running_waiting_and_debouncing_and_counts_each() {
    let mut bed = Bed::new();
    let running = bed.submit(message("s"));
    let waiting = [bed.submit(message("s")), bed.submit(task("b").session("s"))];
    let delayed = bed.submit(message("s").delay_ms(SECOND));
    let child = bed.submit(message("s").after(&[running]).on_dependency_failure(OnDependencyFailure::Run));
    let debouncing = bed.submit(message("s").debounce_ms(500));
    assert_eq!(bed.stop_all("s"), (1, 4, 1));
    assert_eq!(bed.states(&[waiting[0], waiting[1], delayed, child, debouncing]), [Phase::Cancelled; 5]);
    assert_eq!(bed.state(running), Phase::Running, "it is asked to stop");
    bed.confirm_stop(running);
    for id in [running, waiting[0], delayed, child, debouncing] {
        assert_eq!(&*bed.task(id).reason, "session_stopped");
    }
    bed.advance_ms(10 * SECOND);
    assert_eq!((bed.started(), bed.session("s").n_live), (vec![running], 0));
    assert_eq!(bed.stop_all("s"), (0, 0, 0));
}

/// goclaw 36: discard
#[test]
fn a_stop_of_all_with_only_debouncing_messages_says_so() {
    let mut bed = Bed::new();
    let [id, _] = bed.say(&message("s").debounce_ms(500), ["1", "2"]);
    assert_eq!(bed.stop_all("s"), (0, 0, 1));
    let next = bed.submit(message("s"));
    assert_ne!(next, id);
    bed.advance_ms(SECOND);
    assert_eq!(bed.started(), [next]);
}

#[test]
fn a_stop_of_all_covers_a_waiting_retry() {
    let mut bed = Bed::new();
    let id = bed.submit(message("s"));
    bed.fail(id, Class::Task);
    assert_eq!(bed.stop_all("s"), (0, 1, 0));
    assert_eq!(bed.state(id), Phase::Cancelled);
}

#[test]
fn a_stop_of_all_is_answered_at_once_when_the_lane_is_full() {
    let mut bed = Bed::new().with_lane("main", 1);
    let rival = bed.submit(task("b"));
    let ids = bed.say(&message("s"), ["1", "2"]);
    assert_eq!(bed.stop_all("s"), (0, 2, 0));
    bed.complete(rival);
    assert_eq!((bed.states(&ids), bed.n_held()), (vec![Phase::Cancelled; 2], 0));
}

#[test]
fn what_comes_after_a_stop_of_all_waits_only_until_the_old_run_is_dead() {
    let mut bed = Bed::new();
    let old = bed.submit(message("s"));
    bed.stop_all("s");
    let ids = bed.say(&message("s"), ["1", "2"]);
    assert_eq!(bed.states(&ids), [Phase::Waiting; 2]);
    bed.confirm_stop(old);
    assert_eq!(bed.run_all(), ids);
}

#[test]
fn a_stop_of_all_takes_what_came_before_it_in_its_tick_and_leaves_what_came_after() {
    let mut bed = Bed::new();
    let [before, after] = bed.ids();
    let events = [
        bed.submit_event(message("s").id(before)),
        bed.session_event("s", SessionAct::StopAll),
        bed.submit_event(message("s").id(after)),
    ];
    bed.send(events);
    assert_eq!(bed.states(&[before, after]), [Phase::Cancelled, Phase::Running]);
    assert_eq!(bed.n_starts_of(before), 0);
}

#[test]
fn a_message_in_the_tick_of_the_stop_is_not_merged_into_what_is_stopped() {
    let mut bed = Bed::new();
    let old = bed.submit(message("s").debounce_ms(500));
    let [new] = bed.ids();
    let events = [bed.session_event("s", SessionAct::StopAll), bed.submit_event(message("s").id(new))];
    bed.send(events);
    assert_eq!(bed.states(&[old, new]), [Phase::Cancelled, Phase::Scheduled]);
    bed.advance_ms(500);
    assert_eq!(bed.started(), [new]);
}

#[test]
fn a_message_whose_time_comes_in_the_tick_of_the_stop_is_stopped() {
    let mut bed = Bed::new();
    bed.submit(message("s"));
    let late = bed.submit(message("s").only_as(Mode::Reject).delay_ms(SECOND));
    let event = bed.session_event("s", SessionAct::StopAll);
    bed.send_after_ms(SECOND, event);
    assert_eq!((bed.state(late), &*bed.task(late).reason), (Phase::Cancelled, "session_stopped"));
}

#[test]
fn a_stop_of_all_touches_no_other_session() {
    let mut bed = Bed::new();
    let ids = [bed.submit(message("t")), bed.submit(message("t")), bed.submit(task("a"))];
    bed.submit(message("s"));
    bed.stop_all("s");
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Waiting, Phase::Running]);
}

#[test]
fn a_stop_of_thousands_is_counted_at_once_and_none_of_them_starts() {
    let mut bed = Bed::new().inflight(1);
    let ids = bed.submit_n(2500, &message("s").cap(5000).max_concurrent(5000));
    assert_eq!(bed.line("s"), (2500, 0, 0));
    // The slot is free in the tick of the stop: the next of them must not have it.
    let events = [bed.complete_event(ids[0]), bed.session_event("s", SessionAct::StopAll)];
    bed.send(events);
    assert_eq!(bed.started(), [ids[0]]);
    assert_eq!(bed.states(&ids[1..]), [Phase::Cancelled; 2499]);
    assert_eq!(bed.session("s").n_live, 0);
}

#[test]
fn a_stop_of_a_long_line_seats_none_of_it() {
    let mut bed = Bed::new();
    let ids = bed.submit_n(2500, &message("s").cap(5000));
    let [after] = bed.ids();
    let events = [
        bed.complete_event(ids[0]),
        bed.session_event("s", SessionAct::StopAll),
        bed.submit_event(message("s").id(after)),
    ];
    bed.send(events);
    assert_eq!(bed.started(), [ids[0], after]);
    assert_eq!(bed.states(&ids[1..]), [Phase::Cancelled; 2499]);
    assert!(ids[1..].iter().all(|&id| &*bed.task(id).reason == "session_stopped"));
}

#[test]
fn members_of_a_batch_are_stopped_and_their_batch_finishes() {
    let mut bed = Bed::new();
    let (id, ids) = bed.batch(batch((0..4).map(|_| message("s"))).parallelism(2));
    bed.stop_all("s");
    bed.confirm_stop(ids[0]);
    let row = bed.batch_row(id);
    assert_eq!((row.n_cancelled, row.n_places, row.n_waiting), (4, 0, 0));
    assert!(row.finished_at.is_some());
}

#[test]
fn a_stopped_steered_message_is_cancelled_too() {
    let mut bed = Bed::new();
    let target = bed.submit(message("s").mode(Mode::Steer).takes_input());
    let input = bed.submit(message("s"));
    assert_eq!(bed.stop_all("s"), (1, 1, 0));
    bed.take_in(target, input);
    assert_eq!(bed.state(input), Phase::Cancelled);
}

#[test]
fn an_interrupt_then_a_stop_of_all_leaves_nothing() {
    let mut bed = Bed::new();
    let old = bed.submit(message("s"));
    let new = bed.submit(message("s").only_as(Mode::Interrupt));
    assert_eq!(bed.stop_all("s"), (1, 1, 0));
    bed.confirm_stop(old);
    assert_eq!(bed.states(&[old, new]), [Phase::Cancelled; 2]);
    assert_eq!((&*bed.task(old).reason, &*bed.task(new).reason), ("interrupted by a newer message", "session_stopped"));
    let next = bed.submit(message("s"));
    assert_eq!(bed.state(next), Phase::Running);
}

// ── The cutoff ──────────────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn a_message_sent_before_the_stop_is_refused_and_recorded() {
    let mut bed = Bed::new();
    let id = bed.submit(message("s"));
    let sent_at = bed.wall_ms();
    bed.advance_ms(SECOND);
    bed.stop_all("s");
    bed.confirm_stop(id);
    let refused = bed.try_submit(message("s").sent_at(sent_at).cap(3));
    let Err(Refusal::Stale { key, cutoff, recorded: Some(recorded) }) = refused else { panic!("{refused:?}") };
    assert_eq!((&*key, cutoff, bed.state(recorded)), ("s", bed.wall_ms(), Phase::Rejected));
    assert_eq!(&*bed.task(recorded).reason, "stale: sent before the session was stopped");
    assert_eq!((bed.session("s").n_messages, bed.session("s").own.cap), (1, None));
    assert!(bed.try_submit(message("s").sent_at(bed.wall_ms() - 1)).is_err());
    let now = bed.wall_ms();
    bed.submit(message("s").sent_at(now));
    bed.submit(message("s"));
}

#[test]
fn a_sender_that_knows_only_the_second_is_stale_only_in_an_earlier_one() {
    let mut bed = Bed::new();
    let second = bed.wall_ms();
    assert_eq!(second % SECOND, 0);
    bed.advance_ms(700);
    bed.stop_all("s");
    bed.submit(message("s").sent_at(second));
    assert!(matches!(bed.try_submit(message("s").sent_at(second - SECOND)), Err(Refusal::Stale { .. })));
    assert!(matches!(bed.try_submit(message("s").sent_at(second + 1)), Err(Refusal::Stale { .. })));
    assert!(matches!(bed.try_submit(message("s").sent_at(second + 699)), Err(Refusal::Stale { .. })));
    bed.submit(message("s").sent_at(second + 700));
}

#[test]
fn the_cutoff_stays_after_newer_messages_were_taken() {
    let mut bed = Bed::new();
    let sent_at = bed.wall_ms();
    bed.advance_ms(SECOND);
    bed.stop_all("s");
    let newer = bed.submit(message("s"));
    bed.complete(newer);
    assert!(matches!(bed.try_submit(message("s").sent_at(sent_at)), Err(Refusal::Stale { .. })));
}

#[test]
fn a_session_nobody_has_seen_can_be_stopped_and_its_cutoff_holds() {
    let mut bed = Bed::new();
    let sent_at = bed.wall_ms();
    bed.advance_ms(SECOND);
    assert_eq!(bed.stop_all("new"), (0, 0, 0));
    assert!(matches!(bed.try_submit(message("new").sent_at(sent_at)), Err(Refusal::Stale { .. })));
}

#[test]
fn the_cutoff_holds_for_messages_that_would_wait_and_for_items_of_batches() {
    let mut bed = Bed::new();
    let sent_at = bed.wall_ms();
    bed.advance_ms(SECOND);
    bed.stop_all("s");
    assert!(matches!(bed.try_submit(message("s").sent_at(sent_at).delay_ms(9)), Err(Refusal::Stale { .. })));
    let (_, answer) = bed.submit_batch(batch([message("s").sent_at(sent_at), message("s")]).partial());
    let Answer::Submitted { items } = answer else { panic!("{answer:?}") };
    assert_eq!(items.iter().map(Result::is_ok).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn a_cutoff_is_of_its_session_only() {
    let mut bed = Bed::new();
    let sent_at = bed.wall_ms();
    bed.advance_ms(SECOND);
    bed.stop_all("s");
    bed.submit(message("t").sent_at(sent_at));
}

// ── Reset ───────────────────────────────────────────────────────────────────────────────────────────────────────────

/// goclaw 13
#[test]
fn a_reset_cancels_the_old_run_and_a_new_message_runs() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s"), ["1", "2"]);
    let (counts, session) = bed.reset("s");
    assert_eq!((counts, session.generation), ((1, 1, 0), 1));
    bed.confirm_stop(ids[0]);
    assert_eq!(bed.states(&ids), [Phase::Cancelled; 2]);
    assert!(ids.iter().all(|&id| &*bed.task(id).reason == "session_reset"));
    let next = bed.submit(message("s"));
    bed.complete(next);
    assert_eq!(bed.state(next), Phase::Completed);
    assert_eq!((bed.n_happenings(HappeningKind::SessionReset), bed.reset("s").1.generation), (1, 2));
}

#[test]
fn a_reset_sets_the_cutoff_forgets_the_context_and_keeps_the_settings() {
    let mut bed = Bed::new();
    let sent_at = bed.wall_ms();
    bed.set("s", |own| own.max_concurrent = Some(3));
    bed.set_context("s", 99, 100);
    bed.advance_ms(SECOND);
    bed.reset("s");
    let session = bed.session("s");
    assert_eq!((session.context, session.own.max_concurrent, session.cutoff), (None, Some(3), Some(bed.wall_ms())));
    assert!(matches!(bed.try_submit(message("s").sent_at(sent_at)), Err(Refusal::Stale { .. })));
}

#[test]
fn a_stop_of_all_keeps_generation_and_context() {
    let mut bed = Bed::new();
    bed.set_context("s", 99, 100);
    bed.stop_all("s");
    let session = bed.session("s");
    assert_eq!((session.generation, session.context.expect("it stays").tokens), (0, 99));
}

#[test]
fn what_a_run_of_an_older_generation_says_of_its_context_does_not_count() {
    let mut bed = Bed::new();
    let old = bed.submit(message("s").max_concurrent(2));
    bed.reset("s");
    bed.complete_with_context(old, 99, 100);
    assert_eq!((bed.state(old), bed.session("s").context), (Phase::Cancelled, None));
    let new = bed.submit(message("s"));
    bed.complete_with_context(new, 30, 100);
    assert_eq!(bed.session("s").context.expect("it counts").tokens, 30);
}

#[test]
fn a_reset_forgets_the_lines_about_dropped_messages() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s").cap(1).overflow(Overflow::Summarize), ["1", "2", "3"]);
    bed.reset("s");
    bed.confirm_stop(ids[0]);
    let next = bed.submit(message("s"));
    assert!(bed.told(next).is_empty());
}

#[test]
fn a_reset_forgets_also_the_lines_that_a_queued_member_was_to_tell() {
    let mut bed = Bed::new().inflight(1);
    let ids = bed.say(&message("s").cap(1).overflow(Overflow::Summarize), ["1", "2", "3"]);
    let rival = bed.submit(task("b"));
    bed.complete(ids[0]);
    assert_eq!(bed.state(ids[2]), Phase::Queued);
    bed.reset("s");
    bed.complete(rival);
    let next = bed.submit(message("s"));
    assert!(bed.told(next).is_empty(), "they are of an older generation: {:?}", bed.told(next));
}

#[test]
fn a_stop_of_all_keeps_the_lines_about_dropped_messages() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s").cap(1).overflow(Overflow::Summarize), ["1", "2", "3"]);
    bed.stop_all("s");
    bed.confirm_stop(ids[0]);
    let next = bed.submit(message("s"));
    assert_eq!(bed.told(next), ["2"]);
}

#[test]
fn stops_survive_the_loss_of_the_worker() {
    let mut bed = Bed::new();
    let id = bed.submit(message("s"));
    bed.stop_all("s");
    let next = bed.submit(message("s"));
    bed.worker_gone(FIRST);
    bed.join(worker(FIRST));
    assert_eq!(bed.states(&[id, next]), [Phase::Cancelled, Phase::Running]);
}

// ── Draining ────────────────────────────────────────────────────────────────────────────────────────────────────────

/// goclaw 15
#[test]
fn a_draining_yard_takes_no_message_and_finishes_what_runs() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s"), ["1", "2"]);
    let debouncing = bed.submit(message("t").debounce_ms(100));
    bed.admit(Admit::Draining);
    assert!(matches!(bed.try_submit(message("s")), Err(Refusal::Draining)));
    assert!(matches!(bed.try_submit(message("t")), Err(Refusal::Draining)), "nor one that would be merged");
    bed.complete(ids[0]);
    bed.advance_ms(SECOND);
    assert_eq!(bed.states(&[ids[0], ids[1], debouncing]), [Phase::Completed, Phase::Queued, Phase::Queued]);
    assert_eq!(bed.stop_all("s"), (0, 1, 0), "a stop is always heard");
    bed.admit(Admit::Open);
    assert_eq!(bed.run_all(), [debouncing]);
}
