//! Modes that do not wait: reject, and interrupt, which never overlaps what it interrupts.

use runyard_core::event::{Answer, CancelAnswer, HappeningKind, Refusal, Report};
use runyard_core::session::Mode;
use runyard_core::task::{Class, Phase, Stop};

use super::bed::{Bed, FIRST, New, SECOND, batch, message, task, worker};

const INTERRUPTED: &str = "interrupted by a newer message";

fn interrupt() -> New {
    message("s").only_as(Mode::Interrupt)
}

// ── Reject ──────────────────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn a_busy_session_refuses_and_the_refusal_is_recorded() {
    let mut bed = Bed::new();
    let first = bed.submit(message("s").mode(Mode::Reject));
    let refused = bed.try_submit(message("s"));
    let Err(Refusal::SessionBusy { key, recorded: Some(recorded) }) = refused else { panic!("{refused:?}") };
    assert_eq!((&*key, bed.state(recorded), &*bed.task(recorded).reason), ("s", Phase::Rejected, "session is busy"));
    assert_eq!(bed.line("s"), (1, 0, 0));
    bed.complete(first);
    let next = bed.submit(message("s"));
    assert_eq!(bed.state(next), Phase::Running);
}

#[test]
fn a_session_with_a_free_seat_is_not_busy() {
    let mut bed = Bed::new();
    let ids = [bed.submit(message("s").mode(Mode::Reject).max_concurrent(2)), bed.submit(message("s"))];
    assert_eq!(bed.states(&ids), [Phase::Running; 2]);
    assert!(bed.try_submit(message("s")).is_err());
    bed.fail(ids[0], Class::Task);
    assert!(bed.try_submit(message("s")).is_err(), "a retry keeps its seat");
}

#[test]
fn a_refused_message_does_not_use_up_its_key() {
    let mut bed = Bed::new();
    let first = bed.submit(message("s").mode(Mode::Reject));
    bed.submit_with_key(message("s"), "k", 1);
    bed.complete(first);
    let answer = bed.submit_with_key(message("s"), "k", 1);
    assert!(matches!(answer, Answer::Submitted { .. }), "{answer:?}");
}

#[test]
fn a_late_arrival_at_a_busy_session_is_cancelled() {
    let mut bed = Bed::new();
    let late = bed.submit(message("s").mode(Mode::Reject).delay_ms(SECOND));
    let running = bed.submit(message("s"));
    bed.advance_ms(SECOND);
    assert_eq!((bed.state(late), &*bed.task(late).reason), (Phase::Cancelled, "session is busy"));
    assert_eq!(bed.state(running), Phase::Running);
}

#[test]
fn of_a_batch_to_a_session_that_rejects_one_item_is_taken() {
    let mut bed = Bed::new();
    let (_, answer) = bed.submit_batch(batch((0..3).map(|_| message("s").mode(Mode::Reject))).partial());
    let Answer::Submitted { items } = answer else { panic!("{answer:?}") };
    assert_eq!(items.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, false]);
}

// ── Interrupt ───────────────────────────────────────────────────────────────────────────────────────────────────────

/// goclaw 10
#[test]
fn an_interrupt_ends_the_running_one_and_starts_when_that_is_dead() {
    let mut bed = Bed::new();
    let old = bed.submit(message("s").mode(Mode::Interrupt));
    let new = bed.submit(message("s"));
    assert_eq!(bed.take_stops(), [(old, Stop::Cancel)]);
    assert_eq!(bed.states(&[old, new]), [Phase::Running, Phase::Waiting], "they never overlap");
    assert_eq!(&*bed.closed_gate(new, "session").detail, "the interrupted run has not stopped yet");
    bed.confirm_stop(old);
    assert_eq!(bed.states(&[old, new]), [Phase::Cancelled, Phase::Running]);
    assert_eq!(&*bed.task(old).reason, INTERRUPTED);
    bed.complete(new);
    assert_eq!(bed.state(new), Phase::Completed);
}

#[test]
fn an_interrupted_run_that_ends_well_meanwhile_is_cancelled_all_the_same() {
    let mut bed = Bed::new();
    let old = bed.submit(message("s"));
    let new = bed.submit(interrupt());
    bed.complete(old);
    assert_eq!(bed.states(&[old, new]), [Phase::Cancelled, Phase::Running]);
}

#[test]
fn an_interrupted_run_whose_worker_is_lost_is_dead_too() {
    let mut bed = Bed::new();
    let old = bed.submit(message("s"));
    let new = bed.submit(interrupt());
    bed.worker_gone(FIRST);
    assert_eq!(bed.states(&[old, new]), [Phase::Cancelled, Phase::Queued]);
    bed.join(worker(FIRST));
    assert_eq!(bed.state(new), Phase::Running);
}

#[test]
fn an_interrupt_of_an_idle_session_starts_at_once() {
    let mut bed = Bed::new();
    let id = bed.submit(interrupt());
    assert_eq!((bed.state(id), bed.take_stops()), (Phase::Running, vec![]));
}

#[test]
fn an_interrupt_drops_those_who_wait() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s"), ["1", "2", "3"]);
    let new = bed.submit(interrupt());
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Cancelled, Phase::Cancelled]);
    for &id in &ids[1..] {
        assert_eq!(&*bed.task(id).reason, INTERRUPTED);
        let told = [HappeningKind::TaskCreated, HappeningKind::TaskDropped, HappeningKind::TaskCancelled];
        assert_eq!(bed.happenings_of(id), told);
    }
    bed.confirm_stop(ids[0]);
    assert_eq!(bed.started(), [ids[0], new]);
}

#[test]
fn an_interrupt_ends_a_queued_one_at_once_and_takes_its_seat() {
    let mut bed = Bed::new().inflight(0);
    let old = bed.submit(message("s"));
    let new = bed.submit(interrupt());
    assert_eq!(bed.states(&[old, new]), [Phase::Cancelled, Phase::Queued]);
}

#[test]
fn an_interrupt_ends_a_waiting_retry_at_once() {
    let mut bed = Bed::new();
    let old = bed.submit(message("s"));
    bed.fail(old, Class::Task);
    let new = bed.submit(interrupt());
    assert_eq!(bed.states(&[old, new]), [Phase::Cancelled, Phase::Running]);
}

#[test]
fn an_interrupt_takes_what_debounces_with_it_and_does_not_debounce_itself() {
    let mut bed = Bed::new();
    let old = bed.submit(message("s").debounce_ms(500));
    let new = bed.submit(interrupt());
    assert_eq!(bed.states(&[old, new]), [Phase::Cancelled, Phase::Running]);
    bed.advance_ms(SECOND);
    assert_eq!(bed.started(), [new]);
    let alone = bed.submit(message("t").mode(Mode::Interrupt).debounce_ms(500));
    assert_eq!(bed.state(alone), Phase::Running);
}

#[test]
fn an_interrupt_waits_until_every_one_of_several_has_stopped() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s").max_concurrent(3), ["1", "2", "3", "4"]);
    let new = bed.submit(interrupt());
    let stops: Vec<_> = ids[..3].iter().map(|&id| (id, Stop::Cancel)).collect();
    assert_eq!(bed.take_stops(), stops);
    assert_eq!(bed.state(ids[3]), Phase::Cancelled);
    bed.confirm_stop(ids[0]);
    bed.confirm_stop(ids[2]);
    assert_eq!(bed.state(new), Phase::Waiting, "two seats are free and one old run is alive");
    bed.confirm_stop(ids[1]);
    assert_eq!(bed.state(new), Phase::Running);
    let more = bed.say(&message("s"), ["5", "6"]);
    assert_eq!(bed.states(&more), [Phase::Running; 2], "afterwards all three seats are there again");
}

#[test]
fn what_comes_behind_an_interrupt_waits_behind_it() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s").max_concurrent(2), ["1", "2"]);
    let new = bed.submit(interrupt());
    let next = bed.submit(message("s"));
    bed.confirm_stop(ids[0]);
    assert_eq!(bed.states(&[new, next]), [Phase::Waiting; 2]);
    bed.confirm_stop(ids[1]);
    assert_eq!(bed.started(), [ids[0], ids[1], new, next]);
}

#[test]
fn an_interrupt_while_another_waits_takes_its_place() {
    let mut bed = Bed::new();
    let old = bed.submit(message("s"));
    let first = bed.submit(interrupt());
    let second = bed.submit(interrupt());
    assert_eq!(bed.take_stops(), [(old, Stop::Cancel)], "it is asked once");
    assert_eq!(bed.states(&[old, first, second]), [Phase::Running, Phase::Cancelled, Phase::Waiting]);
    bed.confirm_stop(old);
    assert_eq!((bed.state(second), bed.n_starts_of(first)), (Phase::Running, 0));
}

#[test]
fn two_interrupts_in_one_tick_leave_the_second() {
    let mut bed = Bed::new();
    let old = bed.submit(message("s"));
    let [first, second] = bed.ids();
    let events = [bed.submit_event(interrupt().id(first)), bed.submit_event(interrupt().id(second))];
    bed.send(events);
    bed.confirm_stop(old);
    assert_eq!(bed.states(&[old, first, second]), [Phase::Cancelled, Phase::Cancelled, Phase::Running]);
}

#[test]
fn an_interrupt_that_is_cancelled_lets_the_next_go_when_the_old_one_is_dead() {
    let mut bed = Bed::new();
    let old = bed.submit(message("s"));
    let new = bed.submit(interrupt());
    let next = bed.submit(message("s"));
    assert_eq!(bed.cancel(new), CancelAnswer::Ended);
    assert_eq!(bed.state(next), Phase::Waiting);
    bed.confirm_stop(old);
    assert_eq!(bed.states(&[old, new, next]), [Phase::Cancelled, Phase::Cancelled, Phase::Running]);
}

#[test]
fn an_interrupt_leaves_those_alone_that_have_not_joined() {
    let mut bed = Bed::new();
    let late = bed.submit(message("s").delay_ms(SECOND));
    let old = bed.submit(message("s"));
    let new = bed.submit(interrupt());
    bed.confirm_stop(old);
    bed.advance_ms(SECOND);
    assert_eq!(bed.states(&[late, new]), [Phase::Waiting, Phase::Running]);
    assert_eq!(bed.run_all(), [new, late]);
}

#[test]
fn an_interrupt_that_joins_later_interrupts_then() {
    let mut bed = Bed::new();
    let new = bed.submit(interrupt().delay_ms(SECOND));
    let ids = bed.say(&message("s"), ["1", "2"]);
    assert!(bed.take_stops().is_empty());
    bed.advance_ms(SECOND);
    assert_eq!(bed.take_stops(), [(ids[0], Stop::Cancel)]);
    bed.confirm_stop(ids[0]);
    assert_eq!(bed.states(&[ids[0], ids[1], new]), [Phase::Cancelled, Phase::Cancelled, Phase::Running]);
}

#[test]
fn an_interrupt_does_not_touch_other_sessions() {
    let mut bed = Bed::new();
    let other = bed.say(&message("t"), ["1", "2"]);
    let plain = bed.submit(task("a"));
    bed.submit(message("s"));
    bed.submit(interrupt());
    assert_eq!(bed.states(&[other[0], other[1], plain]), [Phase::Running, Phase::Waiting, Phase::Running]);
}

#[test]
fn an_interrupt_also_ends_what_was_handed_out_and_not_begun() {
    let mut bed = Bed::new().idle_workers();
    let old = bed.submit(message("s"));
    let new = bed.submit(interrupt());
    assert_eq!(bed.states(&[old, new]), [Phase::Assigned, Phase::Waiting]);
    bed.report(old, Report::NotStarted { reason: "asked to stop".into() });
    assert_eq!(bed.states(&[old, new]), [Phase::Cancelled, Phase::Assigned]);
}

#[test]
fn an_interrupt_drops_a_line_of_thousands_and_none_of_it_runs() {
    let mut bed = Bed::new();
    let ids = bed.submit_n(2500, &message("s").cap(5000));
    let new = bed.submit(interrupt());
    bed.confirm_stop(ids[0]);
    assert_eq!(bed.started(), [ids[0], new]);
    assert_eq!(bed.states(&ids), [Phase::Cancelled; 2500]);
    assert_eq!(bed.n_happenings(HappeningKind::TaskDropped), 2499);
}
