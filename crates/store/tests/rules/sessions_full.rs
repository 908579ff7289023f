//! A line that is full: who makes room, and who learns of it. Nothing is dropped silently.

use runyard_core::event::{Answer, HappeningKind, Refusal, SessionAct};
use runyard_core::session::{DROPPED_TOLD_MAX, Mode, Overflow};
use runyard_core::task::{Class, Phase};

use super::bed::{Bed, New, SECOND, batch, message, task};

const DROPPED: &str = "dropped: the line of its session is full";

fn cap(n: u32, overflow: Overflow) -> New {
    message("s").cap(n).overflow(overflow)
}

/// goclaw 8
#[test]
fn the_oldest_is_dropped_when_the_line_is_full() {
    let mut bed = Bed::new();
    let ids = bed.say(&cap(2, Overflow::Old), ["1", "2", "3", "4"]);
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Cancelled, Phase::Waiting, Phase::Waiting]);
    assert_eq!(&*bed.task(ids[1]).reason, DROPPED);
    let told = [HappeningKind::TaskCreated, HappeningKind::TaskDropped, HappeningKind::TaskCancelled];
    assert_eq!(bed.happenings_of(ids[1]), told);
    assert_eq!(bed.run_all(), [ids[0], ids[2], ids[3]]);
    assert!(bed.told(ids[2]).is_empty());
}

/// goclaw 9
#[test]
fn the_new_one_is_refused_when_the_session_drops_new_ones() {
    let mut bed = Bed::new();
    let ids = bed.say(&cap(2, Overflow::New), ["1", "2", "3"]);
    let refused = bed.try_submit(message("s"));
    let Err(Refusal::SessionFull { key, waiting: 2, cap: 2, recorded: Some(recorded) }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!((&*key, bed.state(recorded)), ("s", Phase::Rejected));
    assert_eq!(
        (bed.doc(recorded).session.as_deref(), &*bed.task(recorded).reason),
        (Some("s"), "line of the session is full (2/2)")
    );
    assert_eq!(bed.counts(None).rejected, 1);
    assert_eq!(bed.run_all(), ids);
}

#[test]
fn the_running_ones_do_not_count_and_free_seats_do() {
    let mut bed = Bed::new();
    let ids = bed.say(&cap(1, Overflow::New).max_concurrent(2), ["1", "2", "3"]);
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Running, Phase::Waiting]);
    assert!(bed.try_submit(message("s")).is_err());
    // Messages that debounce before two free seats: the seats, and one more.
    let burst =
        |agent: &str| task(agent).session("t").debounce_ms(100).cap(1).max_concurrent(2).overflow(Overflow::New);
    let ids = ["a", "b", "c"].map(|agent| bed.submit(burst(agent)));
    assert_eq!((bed.states(&ids), bed.line("t")), (vec![Phase::Scheduled; 3], (0, 3, 3)));
    assert!(bed.try_submit(burst("d")).is_err());
}

#[test]
fn a_message_that_is_merged_needs_no_room() {
    let mut bed = Bed::new();
    let ids = bed.say(&cap(1, Overflow::New).mode(Mode::Collect), ["1", "2"]);
    assert_eq!(bed.merge(message("s")), (ids[1], 1));
}

#[test]
fn a_debouncing_head_is_dropped_like_any_other() {
    let mut bed = Bed::new();
    let burst = |agent: &str| task(agent).session("s").debounce_ms(100).cap(1);
    let ids = ["a", "b", "c"].map(|agent| bed.submit(burst(agent)));
    assert_eq!(bed.states(&ids), [Phase::Cancelled, Phase::Scheduled, Phase::Scheduled]);
    bed.advance_ms(100);
    assert_eq!(bed.run_all(), ids[1..]);
}

#[test]
fn a_lowered_cap_counts_from_the_next_message_on() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s"), ["1", "2", "3", "4"]);
    bed.set("s", |own| own.cap = Some(1));
    assert_eq!(bed.line("s"), (1, 3, 0));
    let last = bed.submit(message("s"));
    assert_eq!(bed.line("s"), (1, 1, 0));
    assert_eq!(bed.run_all(), [ids[0], last]);
}

#[test]
fn the_end_of_a_debounce_drops_nobody() {
    let mut bed = Bed::new();
    let running = bed.submit(message("s").debounce_ms(0));
    let ids = bed.say(&message("s"), ["1", "2"]);
    let last = bed.submit(message("s").debounce_ms(100));
    bed.set("s", |own| own.cap = Some(1));
    bed.advance_ms(100);
    assert_eq!(bed.run_all(), [running, ids[0], ids[1], last], "no message came that would need room");
}

#[test]
fn a_late_arrival_that_finds_the_line_full_is_dropped_and_told() {
    let mut bed = Bed::new();
    let late = bed.submit(cap(1, Overflow::New).delay_ms(SECOND));
    let ids = bed.say(&message("s"), ["1", "2"]);
    bed.advance_ms(SECOND);
    assert_eq!((bed.state(late), &*bed.task(late).reason), (Phase::Cancelled, DROPPED));
    assert!(bed.happenings_of(late).contains(&HappeningKind::TaskDropped));
    assert_eq!(bed.run_all(), ids);
}

#[test]
fn a_late_arrival_makes_the_oldest_go() {
    let mut bed = Bed::new();
    let late = bed.submit(cap(1, Overflow::Old).delay_ms(SECOND));
    let ids = bed.say(&message("s"), ["1", "2"]);
    bed.advance_ms(SECOND);
    assert_eq!(bed.states(&[ids[1], late]), [Phase::Cancelled, Phase::Waiting]);
}

#[test]
fn those_that_have_not_joined_take_no_room() {
    let mut bed = Bed::new();
    let delayed: Vec<_> = (0..3).map(|_| bed.submit(cap(1, Overflow::New).delay_ms(SECOND))).collect();
    let ids = bed.say(&message("s"), ["1", "2"]);
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Waiting]);
    assert_eq!(bed.states(&delayed), [Phase::Scheduled; 3]);
}

#[test]
fn a_batch_is_judged_with_the_room_its_own_items_take() {
    let mut bed = Bed::new();
    let items = |n: usize| (0..n).map(|_| cap(2, Overflow::New)).collect::<Vec<_>>();
    let (id, answer) = bed.submit_batch(batch(items(4)));
    let refused = matches!(answer, Answer::Refused(Refusal::SessionFull { waiting: 2, cap: 2, .. }));
    assert!(refused && !bed.has_batch(id), "{answer:?}");
    let (_, answer) = bed.submit_batch(batch(items(4)).partial());
    let Answer::Submitted { items } = answer else { panic!("{answer:?}") };
    assert_eq!(items.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, true, false]);
    assert_eq!(bed.line("s"), (1, 2, 0));
}

#[test]
fn an_item_of_a_batch_needs_room_of_its_own() {
    let mut bed = Bed::new();
    let collect = cap(1, Overflow::New).mode(Mode::Collect);
    let ids = bed.say(&collect, ["1", "2"]);
    let (_, answer) = bed.submit_batch(batch([collect.clone()]));
    assert!(matches!(answer, Answer::Refused(Refusal::SessionFull { .. })), "{answer:?}");
    assert_eq!(bed.merge(collect), (ids[1], 1));
}

#[test]
fn a_batch_with_an_interrupt_is_judged_as_if_that_had_emptied_the_line() {
    let mut bed = Bed::new();
    let ids = bed.say(&cap(2, Overflow::New), ["1", "2", "3"]);
    let items = [message("s").only_as(Mode::Interrupt), message("s"), message("s")];
    let (_, answer) = bed.submit_batch(batch(items).partial());
    let Answer::Submitted { items } = answer else { panic!("{answer:?}") };
    assert_eq!(items.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(
        (bed.states(&ids), bed.line("s")),
        (vec![Phase::Running, Phase::Cancelled, Phase::Cancelled], (1, 2, 0))
    );
}

#[test]
fn those_that_were_stopped_in_the_same_tick_take_no_room() {
    let mut bed = Bed::new();
    for (key, first) in [("i", None), ("t", Some(SessionAct::StopAll))] {
        let full = message(key).cap(2).overflow(Overflow::New);
        bed.say(&full, ["1", "2", "3"]);
        let [interrupt, next, more] = bed.ids();
        let first = match first {
            Some(act) => bed.session_event(key, act),
            None => bed.submit_event(message(key).only_as(Mode::Interrupt).id(interrupt)),
        };
        let events = [first, bed.submit_event(message(key).id(next)), bed.submit_event(message(key).id(more))];
        bed.send(events);
        let is_taken =
            [interrupt, next, more].map(|id| bed.find(id).is_some_and(|doc| doc.task.phase() == Phase::Waiting));
        assert_eq!(is_taken, if key == "i" { [true, true, false] } else { [false, true, true] });
    }
}

#[test]
fn a_batch_that_overflows_a_line_drops_its_own_oldest() {
    let mut bed = Bed::new();
    let (_, ids) = bed.batch(batch((0..6).map(|_| cap(2, Overflow::Old))));
    let ends = [Phase::Running, Phase::Cancelled, Phase::Cancelled, Phase::Cancelled, Phase::Waiting, Phase::Waiting];
    assert_eq!(bed.states(&ids), ends);
}

#[test]
fn many_more_than_fit_in_one_tick_are_dropped_in_order() {
    let mut bed = Bed::new();
    let running = bed.submit(cap(5, Overflow::Old));
    let answers = bed.submit_in_one_tick((0..1500).map(|_| (message("s"), None)));
    assert_eq!((answers.len(), bed.line("s")), (1500, (1, 5, 0)));
    assert_eq!(bed.n_happenings(HappeningKind::TaskDropped), 1495);
    assert_eq!((bed.run_all().len(), bed.state(running)), (6, Phase::Completed));
}

// ── Summarize ───────────────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn the_next_run_is_told_of_what_was_dropped_and_only_that_one() {
    let mut bed = Bed::new();
    let ids = bed.say(&cap(1, Overflow::Summarize), ["1", "2", "3", "4"]);
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Cancelled, Phase::Cancelled, Phase::Waiting]);
    assert_eq!(bed.happenings_of(ids[1]).last(), Some(&HappeningKind::TaskCancelled));
    bed.complete(ids[0]);
    assert!(bed.told(ids[0]).is_empty());
    assert_eq!((bed.told(ids[3]), bed.carried(ids[3])), (vec!["2".to_owned(), "3".to_owned()], vec!["4".to_owned()]));
    let more = bed.say(&message("s"), ["5", "6"]);
    bed.complete(ids[3]);
    assert_eq!(bed.told(more[1]), ["5"]);
    bed.complete(more[1]);
    let last = bed.submit(message("s"));
    assert!(bed.told(last).is_empty());
}

#[test]
fn a_dropped_carrier_is_told_of_with_all_it_carried() {
    let mut bed = Bed::new();
    let collect = cap(1, Overflow::Summarize).mode(Mode::Collect);
    let first = bed.submit(collect.clone());
    bed.submit(collect.clone().says("2"));
    bed.merge(collect.says("3"));
    let last = bed.submit(task("b").session("s"));
    bed.complete(first);
    assert_eq!(bed.told(last), ["2", "3"]);
}

#[test]
fn a_run_that_is_repeated_is_told_again() {
    let mut bed = Bed::new();
    let ids = bed.say(&cap(1, Overflow::Summarize), ["1", "2", "3"]);
    bed.complete(ids[0]);
    bed.fail(ids[2], Class::Task);
    bed.advance_ms(SECOND);
    assert_eq!((bed.n_starts_of(ids[2]), bed.told(ids[2])), (2, vec!["2".to_owned()]));
}

#[test]
fn lines_that_nobody_read_go_to_the_run_after() {
    let mut bed = Bed::new().inflight(1);
    let ids = bed.say(&cap(1, Overflow::Summarize), ["1", "2", "3"]);
    let rival = bed.submit(task("b"));
    bed.complete(ids[0]);
    let next = bed.submit(message("s").says("4"));
    assert_eq!(bed.states(&[ids[2], next]), [Phase::Queued, Phase::Waiting], "the other agent has its turn");
    bed.cancel(ids[2]);
    bed.complete(rival);
    assert_eq!((bed.n_starts_of(ids[2]), bed.told(next)), (0, vec!["2".to_owned()]));
}

#[test]
fn lines_of_a_member_that_goes_back_into_the_line_go_to_whoever_runs_first() {
    let mut bed = Bed::new().inflight(0);
    bed.set("s", |own| (own.cap, own.overflow, own.max_concurrent) = (Some(1), Some(Overflow::Summarize), Some(1)));
    let ids = bed.say(&message("s"), ["1", "2", "3"]);
    bed.set("s", |own| (own.cap, own.overflow, own.max_concurrent) = (Some(1), Some(Overflow::Summarize), Some(2)));
    assert_eq!(bed.states(&ids), [Phase::Queued, Phase::Cancelled, Phase::Queued]);
    bed.set("s", |own| (own.cap, own.overflow) = (Some(1), Some(Overflow::Summarize)));
    assert_eq!(bed.states(&ids), [Phase::Queued, Phase::Cancelled, Phase::Waiting]);
    bed.cancel(ids[2]);
    let last = bed.submit(message("s"));
    bed.reconfigure(|config| config.inflight_max = 1);
    bed.complete(ids[0]);
    assert_eq!(bed.told(last), ["2"]);
}

#[test]
fn of_more_dropped_messages_than_a_run_is_told_it_hears_of_the_latest() {
    let mut bed = Bed::new();
    let n = DROPPED_TOLD_MAX as usize + 7;
    let words: Vec<String> = (0..n + 2).map(|n| n.to_string()).collect();
    let ids: Vec<_> = words.iter().map(|word| bed.submit(cap(1, Overflow::Summarize).says(word))).collect();
    bed.complete(ids[0]);
    assert_eq!(bed.told(ids[n + 1]), words[8..=n]);
}

#[test]
fn what_the_session_did_not_drop_itself_is_not_summarized() {
    let mut bed = Bed::new();
    let ids = bed.say(&cap(3, Overflow::Summarize), ["1", "2", "3"]);
    bed.cancel(ids[1]);
    let new = bed.submit(message("s").only_as(Mode::Interrupt));
    bed.confirm_stop(ids[0]);
    assert_eq!((bed.state(new), bed.told(new)), (Phase::Running, vec![]));
}
