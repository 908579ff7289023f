//! Messages that become one: a burst within the debounce, and what comes during a run in mode collect.

use runyard_core::event::{Answer, FirstAnswer, HappeningKind, Idempotency, Refusal};
use runyard_core::ids::TaskId;
use runyard_core::session::{MESSAGE_BYTES_MAX, MESSAGES_MAX, Mode, Settings};
use runyard_core::task::{Class, Phase, Tier};

use super::bed::{Bed, New, SECOND, batch, message, task};

/// Messages of a burst are held back for so long.
const WINDOW: u64 = 200;

fn burst() -> New {
    message("s").debounce_ms(WINDOW)
}

// ── Debounce ────────────────────────────────────────────────────────────────────────────────────────────────────────

/// goclaw 11
#[test]
fn nothing_of_a_burst_starts_before_the_window_and_then_all_of_it_does() {
    let mut bed = Bed::new();
    let ids = bed.say(&burst(), ["1", "2", "3", "4", "5"]);
    assert_eq!(ids, [ids[0]; 5], "each submitter gets the task that carries its message");
    bed.advance_ms(WINDOW - 1);
    assert!(bed.started().is_empty());
    bed.advance_ms(1);
    assert_eq!(bed.started(), [ids[0]]);
    assert_eq!(bed.carried(ids[0]), ["1", "2", "3", "4", "5"]);
}

/// goclaw 26, as far as the scheduler has a part in it
#[test]
fn what_can_differ_between_merged_messages_is_as_the_last_one_says() {
    let mut bed = Bed::new();
    let deadline = bed.after_ms(10 * SECOND);
    let last = burst().tier(Tier::High).rank(7).deadline(deadline).timeout_ms(5).cpu(3).gate("api");
    let id = bed.submit(burst().deadline(bed.after_ms(SECOND)).says("one"));
    assert_eq!(bed.merge(last.says("two")), (id, 1));
    let merged = bed.task(id);
    assert_eq!((merged.rank, merged.deadline, merged.policy.timeout_ms), (7, Some(deadline), 5));
    assert_eq!(bed.doc(id).tier, Tier::High);
    bed.advance_ms(WINDOW);
    assert_eq!(bed.carried(id), ["one", "two"]);
    assert_eq!((bed.start_of(id).deadline, bed.start_of(id).timeout_ms), (Some(deadline), 5));
    bed.advance_ms(2 * SECOND);
    assert_ne!(bed.class(id), Some(Class::Deadline), "the first one's deadline counts no more");
}

#[test]
fn a_merged_task_waits_at_the_gates_of_its_last_message() {
    let mut bed = Bed::new().config(|config| {
        config.gates.insert("api".into(), super::bed::named_gate(Some(0), None, 0));
    });
    let id = bed.submit(burst());
    bed.merge(burst().gate("api"));
    bed.advance_ms(WINDOW);
    assert_eq!(bed.closed(id), [("gate", "api".to_owned())]);
    let other = bed.submit(message("t").debounce_ms(WINDOW).gate("api"));
    bed.merge(message("t"));
    bed.advance_ms(WINDOW);
    assert_eq!(bed.state(other), Phase::Running);
}

/// goclaw 27
#[test]
fn without_a_window_each_message_passes_by_itself_in_order() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s"), ["1", "2", "3"]);
    assert_eq!(bed.run_all(), ids);
    assert_eq!(bed.carried(ids[2]), ["3"]);
}

/// goclaw 28
#[test]
fn each_pattern_of_keys_has_its_own_window() {
    let mut bed = Bed::new().config(|config| {
        let window = |ms| Settings { debounce_ms: Some(ms), ..Settings::default() };
        config.sessions.patterns = vec![("*:instant:*".into(), window(0)), ("*:debounced:*".into(), window(WINDOW))];
    });
    let instant = bed.submit(task("instant").session("agent:instant:1"));
    let debounced = bed.submit(task("debounced").session("agent:debounced:1"));
    bed.merge(task("debounced").session("agent:debounced:1"));
    assert_eq!(bed.states(&[instant, debounced]), [Phase::Running, Phase::Scheduled]);
}

/// goclaw 29
#[test]
fn messages_of_different_agents_lanes_or_kinds_are_not_merged() {
    let mut bed = Bed::new();
    for (n, other) in [task("b"), task("a").lane("team"), task("a").kind("process")].into_iter().enumerate() {
        let key = n.to_string();
        let own = message(&key).debounce_ms(WINDOW);
        let ids = [bed.submit(own.clone()), bed.submit(other.session(&key)), bed.submit(own)];
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[2] != ids[0]);
        bed.advance_ms(WINDOW);
        assert_eq!(bed.run_all(), ids);
    }
}

/// goclaw 30 and 31: media and texts of one burst are one run, in the order in which they came
#[test]
fn a_burst_is_one_run_in_arrival_order_and_no_second_one_follows() {
    let mut bed = Bed::new();
    let [id, ..] = bed.say(&burst(), ["one", "a picture", "two", "another picture"]);
    bed.advance_ms(10 * WINDOW);
    bed.complete(id);
    bed.advance_ms(10 * WINDOW);
    assert_eq!(bed.started(), [id]);
    assert_eq!(bed.carried(id), ["one", "a picture", "two", "another picture"]);
    assert_eq!((bed.task(id).member.expect("a member").n_merged, bed.session("s").n_messages), (3, 4));
}

/// goclaw 32
#[test]
fn a_last_message_without_a_window_ends_the_wait_of_the_others_once() {
    let mut bed = Bed::new();
    let id = bed.submit(burst().says("a picture"));
    bed.advance_ms(WINDOW / 2);
    assert_eq!(bed.merge(burst().debounce_ms(0).says("look")), (id, 1));
    assert_eq!(bed.started(), [id]);
    assert_eq!(bed.carried(id), ["a picture", "look"]);
    bed.advance_ms(10 * WINDOW);
    assert_eq!(bed.started(), [id]);
}

/// goclaw 33
#[test]
fn a_merged_task_lists_the_messages_in_it_once_each() {
    let mut bed = Bed::new();
    let Answer::Submitted { items } = bed.submit_with_key(burst().says("one"), "k1", 1) else { panic!("it is taken") };
    let id = items[0].as_ref().expect("it is taken").id;
    bed.submit_with_key(burst().says("two"), "k2", 2);
    bed.submit_with_key(burst().says("three"), "k3", 3);
    bed.submit_with_key(burst().says("two"), "k2", 2);
    let keyed = |words: &str, key: &str| (words.to_owned(), Some(key.into()));
    assert_eq!(bed.merged(id), [keyed("two", "k2"), keyed("three", "k3")]);
    bed.advance_ms(WINDOW);
    assert_eq!(bed.carried(id), ["one", "two", "three"]);
}

/// goclaw 35
#[test]
fn a_repeated_message_of_a_merged_task_is_not_merged_again() {
    let mut bed = Bed::new();
    let id = bed.submit(burst());
    bed.submit_with_key(burst().says("two"), "k", 2);
    for when in ["while it waits", "while it runs", "after its end"] {
        let answer = bed.submit_with_key(burst().says("two"), "k", 2);
        let is_first = matches!(answer, Answer::Replayed(FirstAnswer::Task { id: known, .. }) if known == id);
        assert!(is_first, "{when}: {answer:?}");
        assert_eq!(bed.merged(id).len(), 1, "{when}");
        if when == "while it waits" {
            bed.advance_ms(WINDOW);
        } else if when == "while it runs" {
            bed.complete(id);
        }
    }
    let other = bed.submit_with_key(burst().says("another two"), "k", 3);
    assert!(matches!(other, Answer::Refused(Refusal::KeyReused { .. })), "{other:?}");
    assert_eq!((bed.started(), bed.session("s").n_messages), (vec![id], 2));
}

/// goclaw 35, the last part: without keys nothing is a repeat
#[test]
fn messages_without_keys_are_never_repeats() {
    let mut bed = Bed::new();
    let ids = bed.say(&burst(), ["same", "same"]);
    bed.advance_ms(WINDOW);
    assert_eq!(bed.carried(ids[0]), ["same", "same"]);
}

#[test]
fn a_message_and_its_repeat_in_one_tick_are_one_message() {
    let mut bed = Bed::new();
    let id = bed.submit(burst());
    let key = |key: &str| Some(Idempotency { agent: "a".into(), key: key.into(), hash: 1 });
    let answers = bed.submit_in_one_tick([(burst(), key("k")), (burst(), key("k")), (burst(), key("l"))]);
    assert!(matches!(answers[1], Answer::Replayed(FirstAnswer::Task { id: known, .. }) if known == id));
    assert_eq!(bed.merged(id).len(), 2);
}

#[test]
fn a_burst_within_one_tick_is_one_task() {
    let mut bed = Bed::new();
    let answers = bed.submit_in_one_tick(["1", "2", "3"].map(|word| (burst().says(word), None)));
    let accepted = answers.into_iter().flat_map(|answer| match answer {
        Answer::Submitted { items } => items.into_iter().flatten(),
        other => panic!("{other:?}"),
    });
    let (ids, numbers): (Vec<_>, Vec<_>) = accepted.map(|accepted| (accepted.id, accepted.merged)).unzip();
    let id = ids[0];
    assert_eq!((ids, numbers), (vec![id; 3], vec![None, Some(1), Some(2)]));
    bed.advance_ms(WINDOW);
    assert_eq!(bed.carried(id), ["1", "2", "3"]);
}

#[test]
fn every_message_extends_the_wait_by_a_window() {
    let mut bed = Bed::new();
    let id = bed.submit(burst());
    for _ in 0..3 {
        bed.advance_ms(WINDOW - 1);
        bed.merge(burst());
    }
    bed.advance_ms(WINDOW - 1);
    assert_eq!(bed.state(id), Phase::Scheduled);
    bed.advance_ms(1);
    assert_eq!(bed.state(id), Phase::Running);
}

/// goclaw 20
#[test]
fn a_message_every_100_ms_does_not_postpone_the_start_for_ever() {
    let mut bed = Bed::new();
    let id = bed.submit(burst());
    for n in 1..10 {
        bed.advance_ms(100);
        assert_eq!(bed.merge(burst()), (id, n));
    }
    bed.advance_ms(99);
    assert!(bed.started().is_empty());
    bed.advance_ms(1);
    assert_eq!(bed.started(), [id], "five windows are the most");
    let next = bed.submit(burst());
    assert_ne!(next, id);
    assert_eq!(bed.carried(id).len(), 10);
}

#[test]
fn the_longest_wait_is_the_sessions_own_if_it_has_one() {
    let mut bed = Bed::new();
    let id = bed.submit(burst().wait_ms_max(250));
    bed.advance_ms(WINDOW - 50);
    bed.merge(burst());
    bed.advance_ms(99);
    assert_eq!(bed.state(id), Phase::Scheduled);
    bed.advance_ms(1);
    assert_eq!(bed.state(id), Phase::Running);
    let short = bed.submit(message("t").debounce_ms(500).wait_ms_max(100));
    bed.advance_ms(100);
    assert_eq!(bed.state(short), Phase::Running, "a longest wait below the window cuts it");
}

#[test]
fn a_burst_that_has_waited_long_enough_takes_no_more_in() {
    let mut bed = Bed::new();
    let running = bed.submit(message("s"));
    let id = bed.submit(burst());
    bed.advance_ms(WINDOW);
    assert_eq!((bed.state(id), bed.line("s")), (Phase::Waiting, (1, 1, 0)));
    let next = bed.submit(burst());
    assert_ne!(next, id);
    bed.complete(running);
    assert_eq!(bed.states(&[id, next]), [Phase::Running, Phase::Scheduled]);
}

#[test]
fn nobody_passes_a_debouncing_head_but_it_does_not_wait_twice() {
    let mut bed = Bed::new();
    let head = bed.submit(burst());
    let next = bed.submit(task("b").session("s").debounce_ms(0));
    assert_eq!(bed.states(&[head, next]), [Phase::Scheduled, Phase::Waiting], "a seat is free, and not its");
    bed.advance_ms(WINDOW);
    assert_eq!(bed.states(&[head, next]), [Phase::Running, Phase::Waiting]);
    bed.complete(head);
    assert_eq!(bed.state(next), Phase::Running);
}

#[test]
fn only_the_last_in_line_gathers() {
    let mut bed = Bed::new();
    let first = bed.submit(burst().says("1"));
    let other = bed.submit(task("b").session("s").says("2"));
    let third = bed.submit(burst().says("3"));
    assert_ne!(third, first, "it would pass the one between them");
    bed.merge(burst().says("4"));
    bed.advance_ms(WINDOW);
    assert_eq!(bed.run_all(), [first, other, third]);
    assert_eq!((bed.carried(first), bed.carried(third)), (vec!["1".to_owned()], vec!["3".to_owned(), "4".to_owned()]));
}

#[test]
fn a_message_that_waits_for_something_is_not_merged() {
    let mut bed = Bed::new();
    let parent = bed.submit(task("b"));
    let carrier = bed.submit(burst());
    let child = bed.submit(burst().after(&[parent]));
    let delayed = bed.submit(burst().delay_ms(50));
    assert!(![child, delayed].contains(&carrier));
    assert_eq!(bed.merge(burst()), (carrier, 1), "they have not joined: the carrier is still the last");
    bed.complete(parent);
    bed.advance_ms(50);
    let after = bed.submit(burst());
    assert!(![carrier, child].contains(&after));
    assert_eq!(after, delayed, "one that has joined gathers like any other");
}

#[test]
fn a_message_that_waited_for_parents_takes_nothing_in() {
    let mut bed = Bed::new();
    let parent = bed.submit(task("b"));
    let child = bed.submit(burst().after(&[parent]));
    bed.complete(parent);
    assert_eq!(bed.line("s"), (0, 1, 1));
    let next = bed.submit(burst());
    assert_ne!(next, child);
    bed.advance_ms(WINDOW);
    assert_eq!(bed.run_all(), [child, next]);
}

#[test]
fn an_item_of_a_batch_stays_itself() {
    let mut bed = Bed::new();
    let carrier = bed.submit(burst());
    let (_, ids) = bed.batch(batch([burst(), burst()]));
    assert!(ids[0] != ids[1] && !ids.contains(&carrier));
    let (_, one) = bed.batch(batch([burst()]));
    assert!(!ids.contains(&one[0]), "nor is one merged that comes alone");
    let next = bed.submit(burst());
    assert_ne!(next, one[0], "and it takes nothing in");
    bed.advance_ms(WINDOW);
    assert_eq!(bed.run_all(), [carrier, ids[0], ids[1], one[0], next]);
}

#[test]
fn a_task_carries_a_thousand_messages_and_the_next_begins_another() {
    let mut bed = Bed::new().config(|config| config.sessions.defaults.wait_ms_max = Some(SECOND));
    let id = bed.submit(burst());
    for n in 1..MESSAGES_MAX {
        assert_eq!(bed.merge(burst()), (id, n));
    }
    let next = bed.submit(burst());
    assert_ne!(next, id);
    assert_eq!(bed.merge(burst()), (next, 1));
    bed.advance_ms(WINDOW);
    assert_eq!(bed.run_all(), [id, next]);
    assert_eq!(bed.carried(id).len(), MESSAGES_MAX as usize);
}

#[test]
fn a_task_takes_in_one_mebibyte_and_not_a_byte_more() {
    let mut bed = Bed::new();
    let half = "x".repeat(MESSAGE_BYTES_MAX as usize / 2);
    let id = bed.submit(burst());
    bed.merge(burst().says(&half));
    bed.merge(burst().says(&half[1..]));
    let next = bed.submit(burst().says("xx"));
    assert_ne!(next, id);
    let other = bed.submit(message("t").debounce_ms(WINDOW));
    bed.merge(message("t").says(&half));
    assert_eq!(bed.merge(message("t").says(&half)), (other, 2));
}

#[test]
fn a_merged_message_needs_no_room_in_a_full_queue() {
    let mut bed = Bed::new().config(|config| config.queued_max = 1);
    let id = bed.submit(burst());
    assert_eq!(bed.merge(burst()), (id, 1));
    let refused = bed.try_submit(message("t"));
    assert!(matches!(refused, Err(Refusal::QueueFull { .. })), "{refused:?}");
}

#[test]
fn a_merge_is_told_and_written_down() {
    let mut bed = Bed::new();
    let id = bed.submit(burst());
    bed.merge(burst());
    let kinds = bed.happenings_of(id);
    assert_eq!(kinds, [HappeningKind::TaskCreated, HappeningKind::TaskMerged]);
    assert_eq!(bed.facts_of(id)[1].1.session.as_deref(), Some("s"));
    assert_eq!(bed.counts(None).submitted, 1);
}

/// goclaw 36: discard on cancel
#[test]
fn a_cancelled_carrier_takes_its_messages_with_it_and_the_next_begins_anew() {
    let mut bed = Bed::new();
    let [id, _] = bed.say(&burst(), ["1", "2"]);
    bed.cancel(id);
    let next = bed.submit(burst().says("3"));
    assert_ne!(next, id);
    bed.advance_ms(10 * WINDOW);
    assert_eq!((bed.started(), bed.carried(next)), (vec![next], vec!["3".to_owned()]));
    assert_eq!(bed.merged(id).len(), 1, "what it carried can still be read");
}

#[test]
fn a_carrier_that_ends_in_the_tick_of_a_message_takes_it_no_more() {
    let mut bed = Bed::new();
    let carrier = bed.submit(burst());
    let [id] = bed.ids();
    let events = [bed.cancel_event(carrier), bed.submit_event(burst().id(id))];
    bed.send(events);
    assert_eq!(bed.states(&[carrier, id]), [Phase::Cancelled, Phase::Scheduled]);
}

#[test]
fn a_carrier_runs_again_with_all_it_carries() {
    let mut bed = Bed::new();
    let [id, _] = bed.say(&burst(), ["1", "2"]);
    bed.advance_ms(WINDOW);
    bed.fail(id, Class::Task);
    let next = bed.submit(burst());
    assert_ne!(next, id, "what has begun takes nothing in");
    bed.advance_ms(SECOND);
    assert_eq!((bed.n_starts_of(id), bed.carried(id)), (2, vec!["1".to_owned(), "2".to_owned()]));
}

#[test]
fn a_message_that_finds_its_burst_overdue_goes_with_it_at_once() {
    let mut bed = Bed::new();
    let id = bed.submit(burst().says("1"));
    let event = bed.submit_event(burst().says("2"));
    bed.send_after_ms(6 * WINDOW, event);
    assert_eq!((bed.started(), bed.carried(id)), (vec![id], vec!["1".to_owned(), "2".to_owned()]));
}

// ── Collect ─────────────────────────────────────────────────────────────────────────────────────────────────────────

fn collect() -> New {
    message("s").mode(Mode::Collect)
}

#[test]
fn what_comes_during_a_run_becomes_one_follow_up() {
    let mut bed = Bed::new();
    let first = bed.submit(collect().says("1"));
    let second = bed.submit(collect().says("2"));
    assert_eq!(bed.merge(collect().says("3")), (second, 1));
    assert_eq!(bed.merge(collect().says("4")), (second, 2));
    assert_eq!(bed.states(&[first, second]), [Phase::Running, Phase::Waiting]);
    bed.complete(first);
    assert_eq!(bed.carried(second), ["2", "3", "4"]);
    let third = bed.submit(collect().says("5"));
    assert_ne!(third, second);
    assert_eq!(bed.run_all(), [second, third]);
}

#[test]
fn a_collected_follow_up_waits_for_nothing_but_its_seat() {
    let mut bed = Bed::new();
    let ids = bed.say(&collect(), ["1", "2"]);
    bed.advance_ms(100 * SECOND);
    assert_eq!(bed.merge(collect()), (ids[1], 1), "however long the run takes");
    bed.complete(ids[0]);
    assert_eq!(bed.state(ids[1]), Phase::Running);
}

#[test]
fn one_that_may_not_be_merged_ends_the_gathering() {
    let mut bed = Bed::new();
    let ids = [
        bed.submit(collect()),
        bed.submit(collect()),
        bed.submit(task("b").session("s")),
        bed.submit(collect()),
        bed.submit(collect().only_as(Mode::Queue)),
        bed.submit(collect()),
    ];
    let distinct: std::collections::BTreeSet<TaskId> = ids.into_iter().collect();
    assert_eq!(distinct.len(), 6);
    assert_eq!(bed.run_all(), ids);
}

#[test]
fn a_message_in_mode_queue_is_not_collected() {
    let mut bed = Bed::new();
    bed.say(&collect(), ["1", "2"]);
    let third = bed.submit(collect().only_as(Mode::Followup));
    assert_eq!((bed.line("s"), bed.state(third)), ((1, 2, 0), Phase::Waiting));
}

#[test]
fn with_two_seats_only_what_finds_none_is_collected() {
    let mut bed = Bed::new();
    let ids = bed.say(&collect().max_concurrent(2), ["1", "2", "3", "4"]);
    assert_eq!(bed.states(&ids[..3]), [Phase::Running, Phase::Running, Phase::Waiting]);
    assert_eq!(ids[3], ids[2]);
}

#[test]
fn a_collected_message_of_a_higher_tier_lifts_its_carrier() {
    let mut bed = Bed::new().inflight(1);
    let ids = bed.say(&collect(), ["1", "2"]);
    let rival = bed.submit(task("b"));
    bed.merge(collect().tier(Tier::High));
    assert_eq!(bed.run_all(), [ids[0], ids[1], rival]);
}

#[test]
fn a_collecting_session_also_debounces() {
    let mut bed = Bed::new();
    let first = bed.submit(collect().debounce_ms(WINDOW).says("1"));
    bed.merge(collect().says("2"));
    bed.advance_ms(WINDOW);
    let second = bed.submit(collect().says("3"));
    bed.advance_ms(WINDOW);
    assert_eq!((bed.state(second), bed.merge(collect().says("4"))), (Phase::Waiting, (second, 1)));
    bed.complete(first);
    assert_eq!((bed.carried(first).len(), bed.carried(second).len()), (2, 2));
}

/// goclaw 38
#[test]
fn the_first_collects_for_all_and_nothing_is_lost() {
    let mut bed = Bed::new();
    let processor = bed.submit(collect().says("0"));
    let other = bed.submit(message("t").mode(Mode::Collect).says("0"));
    assert_eq!(bed.states(&[processor, other]), [Phase::Running; 2], "keys are independent");
    let words: Vec<String> = (1..=50).map(|n| n.to_string()).collect();
    bed.submit_in_one_tick(words.iter().map(|word| (collect().says(word), None)));
    assert_eq!((bed.n_held(), bed.line("s"), bed.line("t")), (2, (1, 1, 0), (1, 0, 0)));
    bed.complete(other);
    // The end of the run and one more message in the same moment: it is in one of the two, and in one only.
    let [late] = bed.ids();
    let events = [bed.complete_event(processor), bed.submit_event(collect().says("51").id(late))];
    bed.send(events);
    let mut said: Vec<String> = Vec::new();
    for id in bed.run_all() {
        said.extend(bed.carried(id));
    }
    let expected: Vec<String> = words.into_iter().chain(["51".to_owned()]).collect();
    assert_eq!(said, expected);
}
