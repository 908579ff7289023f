//! The line of a session: when a message joins it, who is seated next, and who keeps the others waiting.

use runyard_core::event::Change;
use runyard_core::task::{Class, OnDependencyFailure, Phase, Tier};

use super::bed::{Bed, FIRST, MINUTE, SECOND, batch, message, task, worker};

// ── Order ───────────────────────────────────────────────────────────────────────────────────────────────────────────

/// goclaw 6
#[test]
fn messages_of_one_session_run_one_at_a_time_in_order() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s"), ["one", "two", "three"]);
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Waiting, Phase::Waiting]);
    bed.complete(ids[0]);
    assert_eq!(bed.states(&ids), [Phase::Completed, Phase::Running, Phase::Waiting]);
    bed.complete(ids[1]);
    bed.complete(ids[2]);
    assert_eq!(bed.states(&ids), [Phase::Completed; 3]);
    assert_eq!(bed.started(), ids);
}

/// goclaw 7
#[test]
fn two_sessions_run_at_the_same_time() {
    let mut bed = Bed::new();
    let ids = [bed.submit(message("s")), bed.submit(message("t"))];
    assert_eq!(bed.states(&ids), [Phase::Running; 2]);
}

/// goclaw 16
#[test]
fn a_session_is_busy_from_its_first_message_to_the_end_of_its_last() {
    let mut bed = Bed::new();
    let first = bed.submit(task("agent-123").session("agent:agent-123:scope1"));
    let second = bed.submit(task("agent-123").session("agent:agent-123:scope1"));
    assert_eq!(bed.busy("agent:agent-123:"), ["agent:agent-123:scope1"]);
    assert!(bed.busy("agent:other:").is_empty());
    assert_eq!((bed.counts(Some("agent-123")).running, bed.counts(Some("other")).running), (1, 0));
    bed.complete(first);
    bed.complete(second);
    assert!(bed.busy("agent:").is_empty());
    assert_eq!(bed.session("agent:agent-123:scope1").n_messages, 2);
}

#[test]
fn neither_rank_nor_tier_reorders_a_line() {
    let mut bed = Bed::new();
    let ids = [
        bed.submit(message("s")),
        bed.submit(message("s").tier(Tier::Low).rank(9)),
        bed.submit(message("s").tier(Tier::Critical).rank(-9)),
        bed.submit(message("s")),
    ];
    assert_eq!(bed.run_all(), ids);
}

#[test]
fn a_message_joins_when_its_parents_have_ended() {
    let mut bed = Bed::new();
    let parent = bed.submit(task("b"));
    let child = bed.submit(message("s").after(&[parent]));
    let [second, third] = bed.say(&message("s"), ["second", "third"]);
    assert_eq!(bed.states(&[child, second, third]), [Phase::Waiting, Phase::Running, Phase::Waiting]);
    bed.complete(parent);
    let last = bed.submit(message("s"));
    assert_eq!(bed.state(child), Phase::Waiting);
    assert_eq!(bed.run_all(), [second, third, child, last]);
}

#[test]
fn a_message_joins_when_its_delay_is_over() {
    let mut bed = Bed::new();
    let late = bed.submit(message("s").delay_ms(10 * SECOND));
    let [second, third] = bed.say(&message("s"), ["second", "third"]);
    assert_eq!(bed.line("s"), (1, 1, 0));
    bed.advance_ms(10 * SECOND);
    assert_eq!(bed.line("s"), (1, 2, 0));
    let last = bed.submit(message("s"));
    assert_eq!(bed.run_all(), [second, third, late, last]);
}

#[test]
fn those_whose_waits_end_together_join_in_submit_order() {
    let mut bed = Bed::new();
    let parent = bed.submit(task("b"));
    let running = bed.submit(message("s"));
    let children: Vec<_> = (0..3).map(|_| bed.submit(message("s").after(&[parent]))).collect();
    bed.complete(parent);
    let at = bed.after_ms(SECOND);
    let delayed: Vec<_> = (0..3).map(|_| bed.submit(message("s").run_at(at))).collect();
    bed.advance_ms(SECOND);
    assert_eq!(bed.run_all(), [vec![running], children, delayed].concat());
}

#[test]
fn an_idle_session_does_not_wait_for_a_member_that_has_not_joined() {
    let mut bed = Bed::new();
    let late = bed.submit(message("s").delay_ms(MINUTE));
    let now = bed.submit(message("s"));
    assert_eq!(bed.states(&[late, now]), [Phase::Scheduled, Phase::Running]);
    bed.complete(now);
    bed.advance_ms(MINUTE);
    assert_eq!(bed.state(late), Phase::Running);
}

#[test]
fn a_member_whose_parent_failed_never_stands_in_line() {
    let mut bed = Bed::new();
    let parent = bed.submit(task("b").max_retries(0));
    let gone = bed.submit(message("s").after(&[parent]));
    let stays = bed.submit(message("s").after(&[parent]).on_dependency_failure(OnDependencyFailure::Run));
    bed.fail(parent, Class::Task);
    assert_eq!(bed.states(&[gone, stays]), [Phase::Cancelled, Phase::Running]);
    assert_eq!(bed.line("s"), (1, 0, 0));
}

#[test]
fn a_message_that_is_moved_in_time_leaves_its_place_and_joins_again_at_the_end() {
    let mut bed = Bed::new().inflight(0);
    let ids = bed.say(&message("s"), ["one", "two", "three"]);
    let run_at = Some(bed.after_ms(SECOND));
    bed.change(ids[0], Change { run_at, ..Change::default() }).expect("it has not started");
    assert_eq!(bed.states(&ids), [Phase::Scheduled, Phase::Queued, Phase::Waiting]);
    bed.change(ids[2], Change { run_at, ..Change::default() }).expect("it has not started");
    assert_eq!((bed.state(ids[2]), bed.line("s")), (Phase::Scheduled, (1, 0, 0)));
    bed.advance_ms(SECOND);
    assert_eq!((bed.states(&ids), bed.line("s")), (vec![Phase::Waiting, Phase::Queued, Phase::Waiting], (1, 2, 0)));
    bed.reconfigure(|config| config.inflight_max = 9);
    assert_eq!(bed.run_all(), [ids[1], ids[0], ids[2]]);
}

#[test]
fn a_retry_that_is_moved_in_time_gives_its_seat_back() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s"), ["one", "two"]);
    bed.fail(ids[0], Class::Task);
    let run_at = Some(bed.after_ms(MINUTE));
    bed.change(ids[0], Change { run_at, ..Change::default() }).expect("it does not run");
    assert_eq!(bed.states(&ids), [Phase::Scheduled, Phase::Running]);
    bed.complete(ids[1]);
    bed.advance_ms(MINUTE - 1);
    assert_eq!(bed.state(ids[0]), Phase::Scheduled);
    bed.advance_ms(1);
    assert_eq!(bed.state(ids[0]), Phase::Running);
}

#[test]
fn a_change_of_rank_or_tier_keeps_the_place_in_line() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s"), ["one", "two", "three"]);
    let change = Change { tier: Some(Tier::Critical), rank: Some(-1), ..Change::default() };
    bed.change(ids[2], change).expect("it has not started");
    assert_eq!(bed.run_all(), ids);
}

/// goclaw 19
#[test]
fn a_message_runs_with_its_own_agent_lane_and_kind() {
    let mut bed = Bed::new().with_lane("closed", 0);
    let first = bed.submit(task("first").session("s"));
    let second = bed.submit(task("second").session("s").lane("closed").kind("process").says("mine"));
    let third = bed.submit(task("first").session("s"));
    bed.complete(first);
    assert_eq!(bed.closed(second), [("lane", "closed".to_owned())]);
    assert_eq!(bed.states(&[second, third]), [Phase::Queued, Phase::Waiting], "order holds over lanes");
    bed.set_lane("closed", 1);
    let start = bed.start_of(second);
    assert_eq!((&*start.agent, &*start.kind, start.session.as_deref()), ("second", "process", Some("s")));
    assert_eq!(bed.carried(second), ["mine"]);
    assert_eq!(bed.counts(Some("second")).running, 1);
}

// ── Seats ───────────────────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn as_many_are_seated_as_the_session_says_and_the_next_takes_the_first_free_seat() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s").max_concurrent(2), ["1", "2", "3", "4"]);
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Running, Phase::Waiting, Phase::Waiting]);
    bed.complete(ids[1]);
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Completed, Phase::Running, Phase::Waiting]);
    bed.complete(ids[0]);
    assert_eq!(bed.state(ids[3]), Phase::Running);
}

#[test]
fn a_queued_member_is_seated_too() {
    let mut bed = Bed::new().inflight(0);
    let ids = bed.say(&message("s").max_concurrent(2), ["1", "2", "3"]);
    assert_eq!(bed.states(&ids), [Phase::Queued, Phase::Queued, Phase::Waiting]);
}

#[test]
fn a_retrying_head_keeps_its_successors_waiting() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s"), ["one", "two"]);
    bed.fail(ids[0], Class::Task);
    assert_eq!(bed.states(&ids), [Phase::Scheduled, Phase::Waiting]);
    bed.advance_ms(SECOND);
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Waiting]);
    bed.complete(ids[0]);
    assert_eq!(bed.states(&ids), [Phase::Completed, Phase::Running]);
}

#[test]
fn a_head_that_waits_for_its_provider_keeps_its_successors_waiting() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s"), ["one", "two"]);
    bed.fail_with_retry_after(ids[0], Class::Quota, 10 * MINUTE);
    bed.advance_ms(9 * MINUTE);
    assert_eq!(bed.states(&ids), [Phase::Scheduled, Phase::Waiting]);
}

#[test]
fn a_lost_head_keeps_its_seat() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s"), ["one", "two"]);
    bed.worker_gone(FIRST);
    assert_eq!(bed.states(&ids), [Phase::Queued, Phase::Waiting]);
    bed.join(worker(FIRST));
    assert_eq!(bed.run_all(), ids);
}

#[test]
fn a_head_that_is_handed_back_keeps_its_seat() {
    let mut bed = Bed::new().idle_workers();
    let ids = bed.say(&message("s"), ["one", "two"]);
    bed.hand_back(ids[0]);
    assert_eq!(bed.states(&ids), [Phase::Assigned, Phase::Waiting]);
    assert_eq!(bed.started(), [ids[0], ids[0]]);
}

#[test]
fn a_preempted_head_keeps_its_seat() {
    let mut bed = Bed::new().inflight(1);
    let ids = bed.say(&message("s").tier(Tier::Low).preemptible(), ["one", "two"]);
    let critical = bed.submit(task("b").tier(Tier::Critical));
    bed.confirm_stop(ids[0]);
    assert_eq!(bed.states(&[ids[0], ids[1], critical]), [Phase::Queued, Phase::Waiting, Phase::Running]);
    bed.complete(critical);
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Waiting]);
    assert_eq!(bed.run_all(), ids);
}

#[test]
fn every_end_of_the_head_lets_the_next_go() {
    let mut bed = Bed::new();
    let deadline = bed.after_ms(10 * SECOND);
    let ids = [
        bed.submit(message("s")),
        bed.submit(message("s").max_retries(0)),
        bed.submit(message("s")),
        bed.submit(message("s").deadline(deadline)),
        bed.submit(message("s")),
    ];
    bed.complete(ids[0]);
    bed.fail(ids[1], Class::Task);
    bed.cancel(ids[2]);
    assert_eq!(bed.state(ids[3]), Phase::Waiting, "a cancelled head keeps its seat until it is dead");
    bed.confirm_stop(ids[2]);
    bed.advance_ms(10 * SECOND);
    bed.confirm_stop(ids[3]);
    let ends = [Phase::Completed, Phase::Failed, Phase::Cancelled, Phase::Failed, Phase::Running];
    assert_eq!(bed.states(&ids), ends);
    assert_eq!(bed.started(), ids);
}

#[test]
fn a_queued_head_that_is_cancelled_lets_the_next_go() {
    let mut bed = Bed::new().inflight(0);
    let ids = bed.say(&message("s"), ["one", "two", "three"]);
    bed.cancel(ids[0]);
    assert_eq!(bed.states(&ids), [Phase::Cancelled, Phase::Queued, Phase::Waiting]);
}

#[test]
fn a_head_whose_retry_is_cancelled_lets_the_next_go() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s"), ["one", "two"]);
    bed.fail(ids[0], Class::Task);
    bed.cancel(ids[0]);
    assert_eq!(bed.states(&ids), [Phase::Cancelled, Phase::Running]);
}

#[test]
fn one_that_is_cancelled_or_late_in_the_middle_of_the_line_is_passed() {
    let mut bed = Bed::new();
    let first = bed.submit(message("s"));
    let gone = bed.submit(message("s"));
    let deadline = bed.after_ms(SECOND);
    let late = bed.submit(message("s").deadline(deadline));
    let last = bed.submit(message("s"));
    bed.cancel(gone);
    bed.advance_ms(SECOND);
    assert_eq!(
        (bed.states(&[gone, late]), bed.class(late)),
        (vec![Phase::Cancelled, Phase::Failed], Some(Class::Deadline))
    );
    assert_eq!(bed.run_all(), [first, last]);
}

#[test]
fn the_end_of_the_head_and_a_new_message_in_one_tick_keep_the_order() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s"), ["one", "two"]);
    let [third] = bed.ids();
    let events = [bed.complete_event(ids[0]), bed.submit_event(message("s").id(third))];
    bed.send(events);
    assert_eq!(bed.states(&[ids[1], third]), [Phase::Running, Phase::Waiting]);
    let [fourth] = bed.ids();
    let events = [bed.submit_event(message("s").id(fourth)), bed.complete_event(ids[1])];
    bed.send(events);
    assert_eq!(bed.run_all(), [third, fourth]);
}

#[test]
fn a_head_that_ends_in_the_tick_that_cancels_its_successor_lets_the_third_go() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s"), ["one", "two", "three"]);
    let events = [bed.complete_event(ids[0]), bed.cancel_event(ids[1])];
    bed.send(events);
    assert_eq!(bed.states(&ids), [Phase::Completed, Phase::Cancelled, Phase::Running]);
}

#[test]
fn a_thousand_and_more_in_one_line_run_in_order() {
    let mut bed = Bed::new();
    let ids = bed.submit_n(1200, &message("s").cap(5000));
    assert_eq!(bed.run_all(), ids);
}

// ── Batches ─────────────────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn items_of_a_batch_stand_in_their_sessions_in_the_order_of_the_batch() {
    let mut bed = Bed::new();
    let items = [message("s"), message("t"), message("s"), message("t")];
    let (_, ids) = bed.batch(batch(items));
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Running, Phase::Waiting, Phase::Waiting]);
    bed.complete(ids[1]);
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Completed, Phase::Waiting, Phase::Running]);
}

#[test]
fn a_member_takes_its_batchs_place_only_when_it_has_a_seat() {
    let mut bed = Bed::new();
    let outside = bed.submit(message("s"));
    let (id, ids) = bed.batch(batch([message("s"), message("s"), message("t")]).parallelism(1));
    assert_eq!(bed.states(&ids), [Phase::Waiting, Phase::Waiting, Phase::Running]);
    bed.complete(outside);
    assert_eq!(bed.closed(ids[0])[0].0, "batch");
    assert_eq!((bed.line("s"), bed.batch_row(id).n_places), ((1, 1, 0), 1));
    bed.complete(ids[2]);
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Waiting, Phase::Completed]);
    assert_eq!(bed.run_all(), ids[..2]);
}

#[test]
fn batches_and_sessions_that_cross_do_not_lock_each_other() {
    let mut bed = Bed::new();
    let (first, ids) = bed.batch(batch([message("s"), message("t"), message("s"), message("t")]).parallelism(1));
    let (second, more) = bed.batch(batch([message("t"), message("s"), message("t"), message("s")]).parallelism(1));
    let single = [bed.submit(message("t")), bed.submit(message("s"))];
    bed.fail(ids[0], Class::Task);
    bed.advance_ms(SECOND);
    bed.run_all();
    assert_eq!(bed.states(&[&ids[..], &more, &single].concat()), [Phase::Completed; 10]);
    assert!([first, second].iter().all(|&batch| bed.batch_row(batch).finished_at.is_some()));
}

#[test]
fn a_member_that_gives_its_seat_back_gives_its_batchs_place_to_another() {
    let mut bed = Bed::new().inflight(0);
    let outside = bed.submit(message("s").max_concurrent(2));
    let (id, ids) = bed.batch(batch([message("s"), message("t")]).parallelism(1));
    assert_eq!(bed.states(&ids), [Phase::Queued, Phase::Waiting]);
    bed.set("s", |settings| settings.max_concurrent = Some(1));
    assert_eq!(bed.states(&ids), [Phase::Waiting, Phase::Queued], "the place is for whoever can use it");
    assert_eq!(bed.batch_row(id).n_places, 1);
    bed.reconfigure(|config| config.inflight_max = 9);
    bed.run_all();
    assert_eq!(bed.states(&[outside, ids[0], ids[1]]), [Phase::Completed; 3]);
}

#[test]
fn a_chain_of_one_batch_in_one_session_runs_through() {
    let mut bed = Bed::new();
    let [first, second, third] = bed.ids();
    let items =
        [message("s").id(third).after(&[second]), message("s").id(second).after(&[first]), message("s").id(first)];
    bed.batch(batch(items).parallelism(1));
    assert_eq!(bed.run_all(), [first, second, third]);
}

// ── Why does it wait? ───────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn explain_names_the_session_its_seats_and_who_holds_them() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s").max_concurrent(2), ["1", "2", "3", "4"]);
    let gate = bed.closed_gate(ids[3], "session");
    assert_eq!((&*gate.name, gate.current, gate.limit), ("s", Some(2), Some(2)));
    assert_eq!((gate.holders, &*gate.detail), (ids[..2].to_vec(), "2 in line"));
    bed.complete(ids[0]);
    bed.complete(ids[1]);
    assert!(bed.explain(ids[3]).closed().next().is_none(), "it runs");
}

#[test]
fn explain_says_that_the_session_is_open_to_a_seated_member_and_names_what_holds_it_then() {
    let mut bed = Bed::new().inflight(0);
    let ids = bed.say(&message("s"), ["one", "two"]);
    let session = |bed: &mut Bed, id| bed.explain(id).gates.into_iter().find(|gate| gate.kind == "session");
    assert!(session(&mut bed, ids[0]).expect("it is a member").open);
    assert_eq!(bed.closed(ids[0]), [("global", String::new())]);
    assert_eq!(bed.closed(ids[1])[0], ("session", "s".to_owned()));
}

#[test]
fn explain_says_when_a_debounce_is_over() {
    let mut bed = Bed::new();
    let id = bed.submit(message("s").debounce_ms(500));
    bed.advance_ms(200);
    let gate = bed.closed_gate(id, "time");
    assert_eq!((&*gate.name, gate.opens_at_ms), ("debounce", Some(bed.after_ms(300))));
    assert_eq!(bed.closed(id).len(), 1, "nothing else holds it");
}
