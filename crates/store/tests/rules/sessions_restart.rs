//! Sessions over restarts: the line, the seats, who gathers, the cutoff, and what was under way.

use runyard_core::event::{HappeningKind, Refusal};
use runyard_core::ids::TaskId;
use runyard_core::session::{Mode, Overflow};
use runyard_core::task::{Class, Phase, Stop, Tier};
use runyard_store::memory::FailCommit;

use super::bed::{Bed, MINUTE, SECOND, batch, message, task};

#[test]
fn a_line_survives_a_restart_in_its_order() {
    let mut bed = Bed::new();
    let late = bed.submit(message("s").delay_ms(SECOND));
    let ids = bed.say(&message("s"), ["1", "2", "3"]);
    bed.advance_ms(SECOND);
    let last = bed.submit(message("s"));
    bed.crash();
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Waiting, Phase::Waiting]);
    assert_eq!(bed.run_all(), [ids[0], ids[1], ids[2], late, last]);
}

#[test]
fn seats_survive_a_restart() {
    let mut bed = Bed::new().inflight(2);
    let ids = bed.say(&message("s").max_concurrent(3), ["1", "2", "3", "4"]);
    bed.fail(ids[0], Class::Task);
    for _ in 0..3 {
        bed.restart();
        assert_eq!(bed.line("s"), (3, 1, 0));
        assert_eq!(bed.states(&ids), [Phase::Scheduled, Phase::Running, Phase::Running, Phase::Waiting]);
    }
    bed.crash();
    assert_eq!(bed.line("s"), (3, 1, 0));
    bed.advance_ms(MINUTE);
    bed.run_all();
    assert_eq!(bed.states(&ids), [Phase::Completed; 4]);
}

#[test]
fn a_restart_while_a_head_backs_off_lets_nobody_pass() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s"), ["1", "2"]);
    bed.fail(ids[0], Class::Task);
    bed.crash();
    assert_eq!(bed.states(&ids), [Phase::Scheduled, Phase::Waiting]);
    bed.advance_ms(SECOND);
    assert_eq!(bed.run_all(), ids);
}

#[test]
fn who_gathers_goes_on_gathering() {
    let mut bed = Bed::new();
    let id = bed.submit(message("s").debounce_ms(200).says("1"));
    bed.advance_ms(150);
    bed.restart();
    assert_eq!(bed.merge(message("s").says("2")), (id, 1));
    bed.advance_ms(199);
    bed.crash();
    assert_eq!((bed.state(id), bed.line("s")), (Phase::Scheduled, (0, 1, 1)));
    bed.advance_ms(1);
    assert_eq!(bed.carried(id), ["1", "2"]);
}

#[test]
fn the_longest_wait_holds_over_restarts() {
    let mut bed = Bed::new();
    let id = bed.submit(message("s").debounce_ms(200));
    for _ in 0..9 {
        bed.advance_ms(100);
        bed.merge(message("s"));
        bed.restart();
    }
    bed.advance_ms(99);
    assert_eq!(bed.state(id), Phase::Scheduled);
    bed.advance_ms(1);
    assert_eq!((bed.state(id), bed.carried(id).len()), (Phase::Running, 10));
}

#[test]
fn a_collected_follow_up_goes_on_collecting() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s").mode(Mode::Collect), ["1", "2"]);
    bed.restart();
    assert_eq!(bed.merge(message("s").says("3")), (ids[1], 1));
    bed.complete(ids[0]);
    assert_eq!(bed.carried(ids[1]), ["2", "3"]);
}

#[test]
fn the_cutoff_survives_a_restart() {
    let mut bed = Bed::new();
    let sent_at = bed.wall_ms();
    bed.advance_ms(SECOND);
    bed.stop_all("s");
    bed.crash();
    assert!(matches!(bed.try_submit(message("s").sent_at(sent_at)), Err(Refusal::Stale { .. })));
}

#[test]
fn settings_context_and_generation_survive_a_restart() {
    let mut bed = Bed::new();
    bed.set("s", |own| own.max_concurrent = Some(4));
    bed.reset("s");
    bed.set_context("s", 60, 100);
    let before = bed.session("s");
    bed.crash();
    let ids = bed.say(&message("s"), ["1", "2"]);
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Waiting]);
    let after = bed.session("s");
    assert_eq!((after.own, after.generation, after.context), (before.own, 1, before.context));
}

#[test]
fn a_stop_of_all_goes_on_after_a_restart() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s"), ["1", "2"]);
    bed.stop_all("s");
    bed.restart();
    let next = bed.submit(message("s"));
    assert_eq!(bed.states(&[ids[0], ids[1], next]), [Phase::Running, Phase::Cancelled, Phase::Waiting]);
    bed.crash();
    assert_eq!(bed.states(&[ids[0], next]), [Phase::Cancelled, Phase::Running]);
    assert_eq!(&*bed.task(ids[0]).reason, "session_stopped");
}

#[test]
fn an_interrupt_half_way_goes_on_after_a_restart() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s").max_concurrent(2), ["1", "2"]);
    let new = bed.submit(message("s").only_as(Mode::Interrupt));
    bed.take_stops();
    bed.restart();
    assert_eq!(bed.take_stops(), [(ids[0], Stop::Cancel), (ids[1], Stop::Cancel)], "they are asked again");
    bed.confirm_stop(ids[1]);
    assert_eq!(bed.state(new), Phase::Waiting);
    bed.restart();
    assert_eq!(bed.state(new), Phase::Waiting);
    bed.confirm_stop(ids[0]);
    assert_eq!(bed.state(new), Phase::Running);
}

#[test]
fn lines_about_dropped_messages_survive_a_restart() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s").cap(1).overflow(Overflow::Summarize), ["1", "2", "3"]);
    bed.restart();
    bed.complete(ids[0]);
    assert_eq!(bed.told(ids[2]), ["2"]);
    bed.crash();
    assert_eq!((bed.n_starts_of(ids[2]), bed.told(ids[2])), (2, vec!["2".to_owned()]));
}

#[test]
fn the_oldest_run_is_still_the_oldest_after_restarts() {
    let mut bed = Bed::new().inflight(1);
    // The second of the line starts first, because its tier is higher.
    let rival = bed.submit(task("b"));
    let low = bed.submit(message("s").max_concurrent(2).tier(Tier::Low));
    let high = bed.submit(message("s").tier(Tier::High));
    bed.complete(rival);
    bed.advance_ms(SECOND);
    bed.reconfigure(|config| config.inflight_max = 9);
    assert_eq!(bed.held_in_start_order(), [high, low]);
    bed.restart();
    bed.restart();
    assert_eq!(bed.stop("s"), Some(high));
}

/// Times cannot tell: they are all equal here, as they are after a wall clock was set back.
#[test]
fn what_starts_after_a_restart_comes_behind_what_is_held() {
    let mut bed = Bed::new();
    for _ in 0..3 {
        let id = bed.submit(task("a"));
        bed.complete(id);
    }
    let first = bed.submit(message("s").max_concurrent(2));
    bed.restart();
    let second = bed.submit(message("s"));
    assert_eq!(bed.held_in_start_order(), [first, second]);
    bed.restart();
    assert_eq!(bed.stop("s"), Some(first));
}

#[test]
fn starts_of_one_moment_keep_their_order_over_a_restart() {
    let mut bed = Bed::new().inflight(0);
    let low = bed.submit(message("s").max_concurrent(2).tier(Tier::Low));
    let high = bed.submit(message("s").tier(Tier::High));
    bed.reconfigure(|config| config.inflight_max = 9);
    assert_eq!(bed.held_in_start_order(), [high, low]);
    bed.restart();
    assert_eq!(bed.stop("s"), Some(high));
}

#[test]
fn a_reload_is_finished_after_a_crash() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s"), ["1", "2"]);
    bed.reconfigure(|config| config.sessions.defaults.max_concurrent = Some(2));
    bed.crash();
    assert_eq!(bed.states(&ids), [Phase::Running; 2]);
}

#[test]
fn a_merge_whose_commit_failed_did_not_happen() {
    let mut bed = Bed::new();
    let id = bed.submit(message("s").debounce_ms(200).says("1"));
    let lost = bed.fail_commit_of(FailCommit::BeforeApply, message("s").says("2"));
    assert!(bed.find(lost).is_none());
    assert_eq!((bed.merged(id).len(), bed.session("s").n_messages), (0, 1));
    assert_eq!(bed.merge(message("s").says("3")), (id, 1));
    bed.advance_ms(SECOND);
    assert_eq!(bed.carried(id), ["1", "3"]);
}

#[test]
fn a_merge_whose_commit_nobody_heard_of_happened() {
    let mut bed = Bed::new();
    let id = bed.submit(message("s").debounce_ms(200).says("1"));
    bed.fail_commit_of(FailCommit::AfterApply, message("s").says("2"));
    assert_eq!(bed.merge(message("s").says("3")), (id, 2));
    bed.advance_ms(SECOND);
    assert_eq!(bed.carried(id), ["1", "2", "3"]);
}

#[test]
fn an_interrupt_whose_commit_failed_stops_nobody() {
    let mut bed = Bed::new();
    let old = bed.submit(message("s"));
    bed.fail_commit_of(FailCommit::BeforeApply, message("s").only_as(Mode::Interrupt));
    assert!(bed.take_stops().is_empty());
    let new = bed.fail_commit_of(FailCommit::AfterApply, message("s").only_as(Mode::Interrupt));
    assert_eq!(bed.take_stops(), [(old, Stop::Cancel)], "the stop is asked for when the worker is back");
    bed.confirm_stop(old);
    assert_eq!(bed.state(new), Phase::Running);
}

/// Order, one at a time and exactly one end for each, whatever happens.
#[test]
fn every_session_keeps_its_order_through_crashes_failures_cancels_and_reloads() {
    let mut bed = Bed::new().inflight(5).config(|config| config.window_max = 3);
    let keys: Vec<String> = (0..8).map(|n| format!("s{n}")).collect();
    let mut lines: Vec<Vec<TaskId>> = vec![Vec::new(); keys.len()];
    for n in 0..10 {
        let tiers = [Tier::Low, Tier::Normal, Tier::High];
        let items = keys.iter().enumerate().map(|(k, key)| message(key).tier(tiers[(n + k) % 3]).rank(-(n as i32)));
        let (_, ids) = bed.batch(batch(items).parallelism(3));
        ids.into_iter().enumerate().for_each(|(k, id)| lines[k].push(id));
    }
    let mut n = 0;
    while let Some(&held) = bed.held_in_start_order().first() {
        n += 1;
        match n % 7 {
            0 => bed.crash(),
            1 => bed.fail(held, Class::Task),
            2 => drop(bed.cancel(held)),
            3 => bed.restart(),
            4 => bed.reconfigure(|config| config.sessions.context_milli = 500 + n),
            _ => bed.complete(held),
        }
        bed.advance_ms(if bed.held_in_start_order().is_empty() { MINUTE } else { SECOND });
    }
    for line in &lines {
        let mut first_starts: Vec<TaskId> = Vec::new();
        for id in bed.started().into_iter().filter(|id| line.contains(id)) {
            if !first_starts.contains(&id) {
                first_starts.push(id);
            }
            assert_eq!(first_starts.last(), Some(&id), "one that had its turn came back after its successor");
        }
        let ran: Vec<TaskId> = line.iter().copied().filter(|id| first_starts.contains(id)).collect();
        assert_eq!(first_starts, ran);
        assert!(line.iter().all(|&id| bed.state(id).is_terminal() && bed.n_finals_of(id) == 1));
    }
    assert_eq!(bed.n_happenings(HappeningKind::BatchFinished), 10);
}
