//! Mode steer, and input to one running task: a message is handed to the run, and runs by itself only if that ends
//! without having taken it.

use runyard_core::event::{HappeningKind, Refusal, Report};
use runyard_core::ids::{TaskId, WorkerId};
use runyard_core::session::{Mode, Overflow};
use runyard_core::task::{Class, OnDependencyFailure, Phase, Tier};

use super::bed::{Bed, FIRST, New, SECOND, message, task, worker};

/// A message to a session that steers, of a kind that takes input.
fn steer() -> New {
    message("s").mode(Mode::Steer).takes_input()
}

#[test]
fn a_message_is_handed_to_the_running_task_once() {
    let mut bed = Bed::new();
    let target = bed.submit(steer());
    let input = bed.submit(steer().says("to the left"));
    assert_eq!(bed.take_inputs(), [(target, input)]);
    assert_eq!((bed.state(input), bed.task(input).steers), (Phase::Waiting, Some(target)));
    bed.advance_ms(SECOND);
    assert!(bed.take_inputs().is_empty());
}

#[test]
fn a_message_that_was_taken_is_completed_and_never_runs() {
    let mut bed = Bed::new();
    let target = bed.submit(steer());
    let input = bed.submit(steer());
    bed.take_in(target, input);
    // Ids of this bed are small numbers.
    let reason = format!("handed to 00000000-0000-0000-0000-{:012x} as input", target.0);
    assert_eq!((bed.state(input), &*bed.task(input).reason), (Phase::Completed, &*reason));
    assert_eq!(bed.happenings_of(input), [HappeningKind::TaskCreated, HappeningKind::TaskCompleted]);
    assert_eq!((bed.state(target), bed.line("s")), (Phase::Running, (1, 0, 0)));
    bed.complete(target);
    assert_eq!((bed.started(), bed.session("s").n_live), (vec![target], 0));
}

#[test]
fn a_message_that_was_not_taken_is_a_follow_up() {
    let mut bed = Bed::new();
    let target = bed.submit(steer());
    let inputs = bed.say(&steer(), ["1", "2"]);
    bed.complete(target);
    assert_eq!(bed.states(&inputs), [Phase::Running, Phase::Waiting]);
    assert_eq!(bed.task(inputs[0]).steers, None, "it is nobody's input any more");
    assert_eq!(bed.run_all(), inputs);
}

#[test]
fn messages_are_handed_over_in_order() {
    let mut bed = Bed::new();
    let target = bed.submit(steer());
    let inputs = bed.say(&steer(), ["1", "2", "3"]);
    assert_eq!(bed.take_inputs(), inputs.map(|input| (target, input)));
    bed.take_in(target, inputs[0]);
    bed.take_in(target, inputs[2]);
    bed.complete(target);
    assert_eq!(bed.states(&inputs), [Phase::Completed, Phase::Running, Phase::Completed]);
}

#[test]
fn a_run_that_takes_no_input_gets_a_follow_up() {
    let mut bed = Bed::new();
    let target = bed.submit(message("s").mode(Mode::Steer));
    let next = bed.submit(steer());
    assert!(bed.take_inputs().is_empty());
    bed.complete(target);
    assert_eq!((bed.state(next), bed.task(next).steers), (Phase::Running, None));
}

#[test]
fn a_steering_message_to_an_idle_session_runs() {
    let mut bed = Bed::new();
    let id = bed.submit(steer());
    assert_eq!((bed.state(id), bed.take_inputs()), (Phase::Running, vec![]));
}

#[test]
fn a_steering_message_that_finds_nobody_is_an_ordinary_one() {
    let mut bed = Bed::new().inflight(0);
    let queued = bed.submit(steer());
    let next = bed.submit(steer());
    assert!(bed.take_inputs().is_empty(), "what has not started takes nothing");
    assert_eq!(bed.states(&[queued, next]), [Phase::Queued, Phase::Waiting]);
    let burst = bed.submit(message("t").mode(Mode::Steer).debounce_ms(100));
    assert_eq!(bed.merge(message("t")), (burst, 1));
}

#[test]
fn a_message_that_is_cancelled_before_it_was_taken_stays_cancelled() {
    let mut bed = Bed::new();
    let target = bed.submit(steer());
    let input = bed.submit(steer());
    bed.cancel(input);
    bed.take_in(target, input);
    assert_eq!((bed.state(input), bed.n_finals_of(input)), (Phase::Cancelled, 1));
    bed.complete(target);
    assert_eq!(bed.started(), [target]);
}

#[test]
fn a_message_that_is_cancelled_in_its_own_tick_is_not_handed_over() {
    let mut bed = Bed::new();
    bed.submit(steer());
    let [input] = bed.ids();
    let events = [bed.submit_event(steer().id(input)), bed.cancel_event(input)];
    bed.send(events);
    assert_eq!((bed.state(input), bed.take_inputs()), (Phase::Cancelled, vec![]));
}

#[test]
fn a_run_that_is_being_stopped_is_handed_nothing() {
    let mut bed = Bed::new();
    let target = bed.submit(steer());
    bed.cancel(target);
    let next = bed.submit(steer());
    assert!(bed.take_inputs().is_empty());
    bed.confirm_stop(target);
    assert_eq!(bed.state(next), Phase::Running);
}

#[test]
fn a_run_that_ends_in_the_tick_of_the_message_is_handed_nothing() {
    let mut bed = Bed::new();
    let target = bed.submit(steer());
    let [input] = bed.ids();
    let events = [bed.submit_event(steer().id(input)), bed.complete_event(target)];
    bed.send(events);
    assert_eq!((bed.state(input), bed.take_inputs()), (Phase::Running, vec![]));
}

#[test]
fn of_several_runs_the_oldest_that_takes_input_gets_it() {
    let mut bed = Bed::new();
    let deaf = bed.submit(message("s").mode(Mode::Steer).max_concurrent(3));
    let first = bed.submit(steer().only_as(Mode::Queue));
    let second = bed.submit(steer().only_as(Mode::Queue));
    let inputs = [bed.submit(steer())];
    bed.cancel(first);
    let more = bed.submit(steer());
    assert_eq!(bed.take_inputs(), [(first, inputs[0]), (second, more)]);
    assert_eq!(bed.states(&[deaf, first, second]), [Phase::Running; 3]);
}

#[test]
fn nobody_passes_a_message_that_may_yet_be_taken() {
    let mut bed = Bed::new();
    let target = bed.submit(steer().max_concurrent(2));
    let input = bed.submit(steer());
    let next = bed.submit(steer().only_as(Mode::Queue));
    assert_eq!(bed.states(&[input, next]), [Phase::Waiting; 2], "a seat is free, and the head is not done with");
    bed.take_in(target, input);
    assert_eq!(bed.states(&[target, input, next]), [Phase::Running, Phase::Completed, Phase::Running]);
}

#[test]
fn explain_says_who_may_take_it() {
    let mut bed = Bed::new();
    let target = bed.submit(steer());
    let input = bed.submit(steer());
    let detail = bed.closed_gate(input, "session").detail;
    let name = format!("00000000-0000-0000-0000-{:012x}", target.0);
    assert_eq!(detail, format!("handed to {name} as input, which has not taken it yet"));
}

#[test]
fn when_the_run_is_to_be_repeated_the_message_waits_no_longer_for_it() {
    let mut bed = Bed::new();
    let target = bed.submit(steer().max_concurrent(2));
    let input = bed.submit(steer());
    bed.fail(target, Class::Task);
    assert_eq!(bed.states(&[target, input]), [Phase::Scheduled, Phase::Running], "there was a seat for it");
}

#[test]
fn with_one_seat_the_message_runs_after_the_run_that_is_repeated() {
    let mut bed = Bed::new();
    let target = bed.submit(steer());
    let input = bed.submit(steer());
    bed.fail(target, Class::Task);
    assert_eq!(bed.states(&[target, input]), [Phase::Scheduled, Phase::Waiting]);
    bed.advance_ms(SECOND);
    bed.complete(target);
    assert_eq!(bed.state(input), Phase::Running);
}

#[test]
fn an_old_attempt_cannot_say_that_it_took_a_message() {
    let mut bed = Bed::new();
    let target = bed.submit(steer());
    let old = bed.start_of(target);
    let input = bed.submit(steer());
    bed.fail(target, Class::Task);
    bed.advance_ms(SECOND);
    bed.report_as(&old, Report::InputTaken { message: input });
    assert_eq!(bed.state(input), Phase::Waiting);
}

#[test]
fn only_the_task_it_was_handed_to_can_take_a_message() {
    let mut bed = Bed::new();
    let target = bed.submit(steer());
    let input = bed.submit(steer());
    let other = bed.submit(message("t").takes_input());
    let waiting = bed.submit(message("t"));
    bed.take_in(other, input);
    bed.take_in(other, waiting);
    bed.take_in(target, TaskId(12345));
    assert_eq!(bed.states(&[input, waiting]), [Phase::Waiting; 2]);
}

#[test]
fn a_run_whose_worker_is_lost_took_nothing() {
    let mut bed = Bed::new();
    let target = bed.submit(steer());
    let input = bed.submit(steer());
    bed.worker_gone(FIRST);
    assert_eq!(bed.states(&[target, input]), [Phase::Queued, Phase::Waiting]);
    bed.join(worker(WorkerId(2)));
    bed.complete(target);
    assert_eq!(bed.state(input), Phase::Running);
}

#[test]
fn a_message_that_joins_later_is_handed_over_then() {
    let mut bed = Bed::new();
    let target = bed.submit(steer());
    let input = bed.submit(steer().delay_ms(SECOND));
    assert!(bed.take_inputs().is_empty());
    bed.advance_ms(SECOND);
    assert_eq!(bed.take_inputs(), [(target, input)]);
    bed.take_in(target, input);
    assert_eq!(bed.state(input), Phase::Completed);
}

#[test]
fn an_interrupt_drops_a_message_that_was_not_taken() {
    let mut bed = Bed::new();
    let target = bed.submit(steer());
    let input = bed.submit(steer());
    let new = bed.submit(message("s").only_as(Mode::Interrupt));
    assert_eq!(bed.state(input), Phase::Cancelled);
    bed.confirm_stop(target);
    assert_eq!(bed.state(new), Phase::Running);
}

#[test]
fn a_message_survives_a_restart_between_hand_over_and_taking() {
    let mut bed = Bed::new();
    let target = bed.submit(steer());
    let inputs = bed.say(&steer(), ["1", "2", "3"]);
    bed.restart();
    bed.take_in(target, inputs[0]);
    assert_eq!(bed.states(&inputs), [Phase::Completed, Phase::Waiting, Phase::Waiting]);
    bed.crash();
    bed.complete(target);
    assert_eq!(bed.run_all(), inputs[1..]);
}

#[test]
fn after_a_restart_each_message_is_handed_over_again_in_order() {
    let mut bed = Bed::new();
    let target = bed.submit(steer());
    let inputs = bed.say(&steer(), ["1", "2"]);
    bed.take_inputs();
    bed.restart();
    assert_eq!(bed.take_inputs(), [(target, inputs[0])]);
    bed.take_in(target, inputs[0]);
    assert_eq!(bed.take_inputs(), [(target, inputs[1])]);
    bed.take_in(target, inputs[1]);
    assert_eq!((bed.states(&inputs), bed.take_inputs()), (vec![Phase::Completed; 2], vec![]));
}

#[test]
fn a_run_that_begins_anew_is_handed_what_the_old_one_did_not_take() {
    let mut bed = Bed::new();
    let target = bed.submit(steer());
    let input = bed.submit(steer());
    bed.fail(target, Class::Task);
    bed.take_inputs();
    bed.advance_ms(SECOND);
    assert_eq!(bed.take_inputs(), [(target, input)]);
    bed.take_in(target, input);
    assert_eq!((bed.state(input), bed.state(target)), (Phase::Completed, Phase::Running));
}

#[test]
fn a_full_line_takes_no_steering_message_of_a_session_that_drops_new_ones() {
    let mut bed = Bed::new();
    let new = steer().cap(1).overflow(Overflow::New);
    let target = bed.submit(new.clone());
    let input = bed.submit(new.clone());
    let refused = bed.try_submit(new);
    assert!(matches!(refused, Err(Refusal::SessionFull { .. })), "{refused:?}");
    bed.take_in(target, input);
    bed.submit(steer());
}

#[test]
fn a_run_of_a_higher_tier_takes_input_like_any_other() {
    let mut bed = Bed::new();
    let target = bed.submit(steer().tier(Tier::High));
    let input = bed.submit(task("b").session("s"));
    assert_eq!(bed.take_inputs(), [(target, input)]);
}

// ── Input to one task ───────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn input_to_a_task_of_a_session_stands_in_its_line_until_it_is_taken() {
    let mut bed = Bed::new();
    let target = bed.submit(message("s").takes_input());
    let waiting = bed.submit(message("s"));
    let input = bed.submit(message("s").only_as(Mode::Followup).steers(target));
    assert_eq!(bed.take_inputs(), [(target, input)]);
    bed.take_in(target, input);
    assert_eq!(bed.states(&[target, waiting, input]), [Phase::Running, Phase::Waiting, Phase::Completed]);
}

#[test]
fn input_that_is_not_taken_follows_those_before_it() {
    let mut bed = Bed::new();
    let target = bed.submit(message("s").takes_input());
    let waiting = bed.submit(message("s"));
    let input = bed.submit(message("s").only_as(Mode::Followup).steers(target));
    assert_eq!(bed.run_all(), [target, waiting, input]);
}

#[test]
fn input_to_a_task_without_a_session_runs_after_it_if_it_was_not_taken() {
    let mut bed = Bed::new();
    let target = bed.submit(task("a").takes_input().max_retries(0));
    let after = |target| task("a").after(&[target]).on_dependency_failure(OnDependencyFailure::Run).steers(target);
    let inputs = [bed.submit(after(target)), bed.submit(after(target))];
    assert_eq!(bed.take_inputs(), inputs.map(|input| (target, input)));
    bed.take_in(target, inputs[0]);
    assert_eq!(bed.states(&inputs), [Phase::Completed, Phase::Waiting]);
    bed.fail(target, Class::Task);
    assert_eq!(bed.state(inputs[1]), Phase::Running);
}

#[test]
fn input_to_a_task_that_takes_none_is_a_follow_up() {
    let mut bed = Bed::new();
    let target = bed.submit(message("s"));
    let input = bed.submit(message("s").only_as(Mode::Followup).steers(target));
    assert!(bed.take_inputs().is_empty());
    assert_eq!((bed.state(input), bed.task(input).steers), (Phase::Waiting, None));
    assert_eq!(bed.run_all(), [target, input]);
}

#[test]
fn input_is_not_merged_with_what_gathers() {
    let mut bed = Bed::new();
    let target = bed.submit(message("s").takes_input());
    let gatherer = bed.submit(message("s").debounce_ms(100));
    let input = bed.submit(message("s").only_as(Mode::Followup).steers(target));
    assert_eq!(bed.take_inputs(), [(target, input)]);
    let next = bed.submit(message("s"));
    assert!(![gatherer, input].contains(&next), "it would pass the input");
    bed.advance_ms(100);
    assert_eq!(bed.run_all(), [target, gatherer, input, next]);
}
