//! Settings of sessions: where they come from, how long they stick, and what a change of them does at once.

use runyard_core::event::{HappeningKind, Refusal};
use runyard_core::session::{Mode, Overflow, Settings};
use runyard_core::task::{Class, Phase};

use super::bed::{Bed, SECOND, batch, message, task};

fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings);
    settings
}

#[test]
fn what_nobody_said_is_queue_ten_old_no_debounce_and_one_at_a_time() {
    let mut bed = Bed::new();
    bed.submit(message("s"));
    let rules = bed.session("s").rules(&Default::default());
    assert_eq!((rules.mode, rules.cap, rules.overflow), (Mode::Queue, 10, Overflow::Old));
    assert_eq!((rules.debounce_ms, rules.wait_ms_max, rules.max_concurrent), (0, 0, 1));
}

#[test]
fn settings_that_come_with_a_message_stick() {
    let mut bed = Bed::new();
    let ids = [bed.submit(message("s").max_concurrent(2)), bed.submit(message("s")), bed.submit(message("s"))];
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Running, Phase::Waiting]);
    bed.submit(message("s").cap(3));
    let own = bed.session("s").own;
    assert_eq!((own.max_concurrent, own.cap, own.mode), (Some(2), Some(3), None));
}

#[test]
fn settings_of_a_refused_message_do_not_stick() {
    let mut bed = Bed::new();
    let first = bed.submit(message("s").mode(Mode::Reject));
    let refused = bed.try_submit(message("s").cap(7));
    assert!(matches!(refused, Err(Refusal::SessionBusy { .. })), "{refused:?}");
    assert_eq!(bed.session("s").own, settings(|own| own.mode = Some(Mode::Reject)));
    assert_eq!(bed.session("s").n_messages, 1);
    bed.complete(first);
}

#[test]
fn settings_of_a_merged_message_stick() {
    let mut bed = Bed::new();
    bed.submit(message("s").debounce_ms(500));
    bed.merge(message("s").cap(3));
    assert_eq!((bed.session("s").own.cap, bed.session("s").own.debounce_ms), (Some(3), Some(500)));
}

#[test]
fn a_mode_for_one_message_only_does_not_stick() {
    let mut bed = Bed::new();
    let ids = [bed.submit(message("s")), bed.submit(message("s"))];
    let refused = bed.try_submit(message("s").only_as(Mode::Reject));
    assert!(matches!(refused, Err(Refusal::SessionBusy { .. })), "{refused:?}");
    let third = bed.submit(message("s"));
    assert_eq!(bed.run_all(), [ids[0], ids[1], third]);
}

#[test]
fn setting_a_session_replaces_its_own_settings_as_a_whole() {
    let mut bed = Bed::new();
    bed.submit(message("s").cap(3).mode(Mode::Collect));
    let session = bed.set("s", |own| own.debounce_ms = Some(5));
    assert_eq!(session.own, settings(|own| own.debounce_ms = Some(5)));
    assert_eq!(bed.session("s").own, session.own);
    assert_eq!(bed.n_happenings(HappeningKind::SessionChanged), 1);
}

#[test]
fn a_session_can_be_set_before_its_first_message() {
    let mut bed = Bed::new();
    assert!(bed.find_session("s").is_none());
    bed.set("s", |own| own.max_concurrent = Some(2));
    let ids = bed.say(&message("s"), ["1", "2", "3"]);
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Running, Phase::Waiting]);
}

/// goclaw 36, the last part: 0 disables, 500 overrides 250, absent inherits
#[test]
fn the_nearest_layer_that_says_something_counts() {
    let mut bed = Bed::new().config(|config| {
        let sessions = &mut config.sessions;
        sessions.defaults = settings(|all| (all.debounce_ms, all.cap) = (Some(250), Some(5)));
        sessions.lanes.insert("team".into(), settings(|lane| lane.debounce_ms = Some(100)));
        sessions.patterns = vec![
            ("chat:*".into(), settings(|chat| chat.debounce_ms = Some(500))),
            ("chat:vip:*".into(), settings(|vip| vip.debounce_ms = Some(0))),
        ];
    });
    let rules = |bed: &mut Bed, key: &str, lane: &str| {
        bed.submit(message(key).lane(lane));
        bed.session(key).rules(bed.config_now())
    };
    assert_eq!(rules(&mut bed, "plain", "main").debounce_ms, 250);
    assert_eq!(rules(&mut bed, "crew", "team").debounce_ms, 100);
    assert_eq!(rules(&mut bed, "chat:x", "team").debounce_ms, 500);
    assert_eq!(rules(&mut bed, "chat:vip:x", "team").debounce_ms, 0);
    assert_eq!(rules(&mut bed, "chat:vip:y", "team").cap, 5, "where a layer is silent the one below speaks");
    bed.set("chat:vip:x", |own| own.debounce_ms = Some(1));
    assert_eq!(bed.session("chat:vip:x").rules(bed.config_now()).debounce_ms, 1);
}

#[test]
fn the_lane_of_the_latest_message_is_the_sessions() {
    let mut bed = Bed::new().config(|config| {
        config.sessions.lanes.insert("team".into(), settings(|lane| lane.max_concurrent = Some(2)));
    });
    let ids = [bed.submit(message("s")), bed.submit(message("s")), bed.submit(message("s").lane("team"))];
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Running, Phase::Waiting]);
    bed.submit(message("s"));
    bed.complete(ids[0]);
    assert_eq!(bed.state(ids[2]), Phase::Waiting, "the lane that allowed two is not the latest any more");
}

#[test]
fn a_lane_nobody_configured_has_the_settings_of_main() {
    let mut bed = Bed::new().config(|config| {
        config.sessions.lanes.insert("main".into(), settings(|lane| lane.max_concurrent = Some(2)));
        config.sessions.lanes.insert("nowhere".into(), settings(|lane| lane.max_concurrent = Some(3)));
    });
    bed.say(&message("s").lane("nowhere"), ["1", "2", "3"]);
    assert_eq!((bed.seats("s"), bed.n_held()), (2, 2));
}

#[test]
fn items_of_a_batch_set_their_session_one_after_the_other() {
    let mut bed = Bed::new();
    let items = [message("s").max_concurrent(2), message("s"), message("s").max_concurrent(1), message("s")];
    let (_, ids) = bed.batch(batch(items));
    assert_eq!(bed.session("s").own.max_concurrent, Some(1));
    assert_eq!(bed.states(&ids[2..]), [Phase::Waiting; 2]);
    assert_eq!(bed.run_all(), ids);
}

// ── More seats, or fewer ────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn a_raised_limit_seats_the_next_at_once() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s"), ["1", "2", "3", "4"]);
    bed.set("s", |own| own.max_concurrent = Some(2));
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Running, Phase::Waiting, Phase::Waiting]);
    let fifth = bed.submit(message("s").max_concurrent(4));
    assert_eq!(bed.states(&ids), [Phase::Running; 4]);
    assert_eq!(bed.state(fifth), Phase::Waiting);
    assert_eq!(bed.started(), ids);
}

#[test]
fn a_lowered_limit_returns_surplus_queued_members_to_the_line_the_last_first() {
    let mut bed = Bed::new().inflight(1);
    let ids = bed.say(&message("s").max_concurrent(3), ["1", "2", "3", "4"]);
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Queued, Phase::Queued, Phase::Waiting]);
    bed.set("s", |own| own.max_concurrent = Some(2));
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Queued, Phase::Waiting, Phase::Waiting]);
    bed.set("s", |own| own.max_concurrent = Some(1));
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Waiting, Phase::Waiting, Phase::Waiting]);
    bed.reconfigure(|config| config.inflight_max = 9);
    assert_eq!(bed.n_held(), 1);
    assert_eq!(bed.run_all(), ids, "each has its old number in the line");
}

#[test]
fn a_lowered_limit_stops_nobody_and_seats_nobody_before_there_is_room() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s").max_concurrent(3), ["1", "2", "3", "4"]);
    bed.set("s", |own| own.max_concurrent = Some(1));
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Running, Phase::Running, Phase::Waiting]);
    assert!(bed.take_stops().is_empty());
    bed.complete(ids[0]);
    bed.complete(ids[2]);
    assert_eq!(bed.state(ids[3]), Phase::Waiting);
    bed.complete(ids[1]);
    assert_eq!(bed.state(ids[3]), Phase::Running);
}

#[test]
fn a_message_can_lower_the_limit() {
    let mut bed = Bed::new().inflight(0);
    let ids = bed.say(&message("s").max_concurrent(2), ["1", "2"]);
    let third = bed.submit(message("s").max_concurrent(1));
    assert_eq!(bed.states(&[ids[0], ids[1], third]), [Phase::Queued, Phase::Waiting, Phase::Waiting]);
    bed.reconfigure(|config| config.inflight_max = 9);
    assert_eq!(bed.run_all(), [ids[0], ids[1], third]);
}

#[test]
fn a_member_in_backoff_keeps_its_seat_when_the_limit_is_lowered() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s").max_concurrent(2), ["1", "2", "3"]);
    bed.fail(ids[1], Class::Task);
    bed.set("s", |own| own.max_concurrent = Some(1));
    bed.complete(ids[0]);
    assert_eq!(bed.states(&ids), [Phase::Completed, Phase::Scheduled, Phase::Waiting]);
    bed.advance_ms(SECOND);
    assert_eq!(bed.run_all(), [ids[1], ids[2]]);
}

#[test]
fn a_member_that_waits_for_its_batchs_place_goes_back_into_the_line_too() {
    let mut bed = Bed::new();
    let running = bed.submit(message("s").max_concurrent(3));
    let (_, ids) = bed.batch(batch([task("b"), message("s"), message("s")]).parallelism(1));
    assert_eq!(bed.line("s"), (3, 0, 0));
    bed.set("s", |own| own.max_concurrent = Some(2));
    assert_eq!(bed.line("s"), (2, 1, 0));
    assert_eq!(bed.closed(ids[2])[0].0, "session");
    bed.complete(ids[0]);
    assert_eq!(bed.states(&ids), [Phase::Completed, Phase::Running, Phase::Waiting]);
    bed.complete(running);
    bed.complete(ids[1]);
    bed.complete(ids[2]);
    assert_eq!(bed.states(&ids), [Phase::Completed; 3]);
}

#[test]
fn a_reload_reviews_every_session() {
    let mut bed = Bed::new().with_lane("main", 100);
    let keys: Vec<String> = (0..30).map(|n| format!("chat:{n}")).collect();
    let ids: Vec<[_; 3]> = keys.iter().map(|key| bed.say(&message(key), ["1", "2", "3"])).collect();
    let other = bed.say(&message("mail"), ["1", "2"]);
    assert_eq!(bed.n_held(), 31);
    let chat = settings(|chat| chat.max_concurrent = Some(2));
    bed.reconfigure(|config| config.sessions.patterns = vec![("chat:*".into(), chat)]);
    assert_eq!(bed.n_held(), 61);
    for ids in &ids {
        assert_eq!(bed.states(ids), [Phase::Running, Phase::Running, Phase::Waiting]);
    }
    assert_eq!(bed.states(&other), [Phase::Running, Phase::Waiting]);
}

#[test]
fn a_reload_that_lowers_the_limit_returns_queued_members_to_the_line() {
    let mut bed = Bed::new().inflight(0);
    bed.reconfigure(|config| config.sessions.defaults.max_concurrent = Some(3));
    let ids = bed.say(&message("s"), ["1", "2", "3"]);
    assert_eq!(bed.states(&ids), [Phase::Queued; 3]);
    bed.reconfigure(|config| config.sessions.defaults.max_concurrent = None);
    assert_eq!(bed.states(&ids), [Phase::Queued, Phase::Waiting, Phase::Waiting]);
}

#[test]
fn more_sessions_than_one_tick_looks_at_are_all_reviewed() {
    let mut bed = Bed::new().inflight(10_000);
    bed.set_lane("main", 10_000);
    let n = 1300;
    let keys: Vec<String> = (0..n).map(|n| n.to_string()).collect();
    bed.batch(batch(keys.iter().flat_map(|key| [message(key), message(key)])));
    assert_eq!(bed.n_held(), n);
    bed.reconfigure(|config| config.sessions.defaults.max_concurrent = Some(2));
    assert_eq!(bed.n_held(), 2 * n);
}

// ── A full context ──────────────────────────────────────────────────────────────────────────────────────────────────

/// goclaw 12
#[test]
fn a_session_whose_context_is_nearly_full_runs_one_at_a_time() {
    let mut bed = Bed::new();
    bed.set("s", |own| own.max_concurrent = Some(5));
    assert_eq!(bed.seats("s"), 5);
    for (tokens, seats) in [(50, 5), (59, 5), (60, 1), (80, 1), (0, 5)] {
        bed.set_context("s", tokens, 100);
        assert_eq!(bed.seats("s"), seats, "{tokens} %");
        let ids = bed.say(&message("s"), ["1", "2", "3"]);
        assert_eq!(bed.n_held(), 3.min(seats as usize), "{tokens} %");
        bed.run_all();
        assert_eq!(bed.states(&ids), [Phase::Completed; 3]);
    }
}

#[test]
fn a_session_without_a_window_is_not_throttled() {
    let mut bed = Bed::new();
    bed.set("s", |own| own.max_concurrent = Some(5));
    bed.set_context("s", 1000, 0);
    assert_eq!(bed.seats("s"), 5);
}

#[test]
fn the_threshold_is_the_configurations() {
    let mut bed = Bed::new().config(|config| config.sessions.context_milli = 900);
    let ids = bed.say(&message("s").max_concurrent(2), ["1", "2"]);
    bed.set_context("s", 89, 100);
    assert_eq!((bed.seats("s"), bed.states(&ids)), (2, vec![Phase::Running; 2]));
    bed.set_context("s", 90, 100);
    assert_eq!(bed.seats("s"), 1);
    let third = bed.submit(message("s"));
    bed.reconfigure(|config| config.sessions.context_milli = 950);
    bed.complete(ids[0]);
    assert_eq!(bed.state(third), Phase::Running);
}

#[test]
fn what_a_run_says_of_its_context_counts_for_its_session() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s").max_concurrent(2), ["1", "2", "3", "4"]);
    bed.complete_with_context(ids[0], 70, 100);
    assert_eq!(bed.states(&ids[1..]), [Phase::Running, Phase::Waiting, Phase::Waiting], "no second one beside it");
    bed.complete_with_context(ids[1], 10, 100);
    assert_eq!(bed.states(&ids[2..]), [Phase::Running; 2]);
    let usage = bed.task(ids[0]).usage.expect("it said what it used");
    assert_eq!((usage.context_tokens, usage.context_window), (Some(70), Some(100)));
}

#[test]
fn a_throttled_session_takes_queued_members_back_and_lets_running_ones_be() {
    let mut bed = Bed::new().inflight(2);
    let ids = bed.say(&message("s").max_concurrent(4), ["1", "2", "3", "4"]);
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Running, Phase::Queued, Phase::Queued]);
    bed.set_context("s", 99, 100);
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Running, Phase::Waiting, Phase::Waiting]);
    assert!(bed.take_stops().is_empty());
    assert_eq!(bed.run_all(), ids);
}
