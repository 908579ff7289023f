//! New limits while work goes on: gates change, rows do not.

use runyard_core::task::{Phase, Stop};

use super::bed::{Bed, lane, named_gate, task};

#[test]
fn a_lowered_limit_stops_nobody_and_drains() {
    let mut bed = Bed::new().inflight(3);
    let ids = bed.submit_n(6, &task("a"));
    bed.reconfigure(|config| config.inflight_max = 1);
    assert_eq!(bed.take_stops(), []);
    assert_eq!(bed.n_held(), 3);
    bed.complete(ids[0]);
    bed.complete(ids[1]);
    assert_eq!((bed.n_held(), bed.started().len()), (1, 3));
    bed.complete(ids[2]);
    assert_eq!((bed.n_held(), bed.started().len()), (1, 4));
}

#[test]
fn a_raised_limit_starts_what_waited_for_it_at_once() {
    let mut bed = Bed::new().inflight(1);
    bed.submit_n(6, &task("a"));
    bed.reconfigure(|config| config.inflight_max = 4);
    assert_eq!(bed.n_held(), 4);
}

/// pinchtab 68
#[test]
fn new_admission_limits_leave_the_limits_on_running_work_alone() {
    let mut bed = Bed::new().inflight(2);
    bed.submit_n(4, &task("a"));
    bed.reconfigure(|config| config.queued_max = 2);
    assert_eq!(bed.n_held(), 2);
    let first = bed.held_in_start_order()[0];
    bed.complete(first);
    assert_eq!(bed.n_held(), 2);
}

/// pinchtab 69, 71
#[test]
fn new_limits_on_running_work_are_in_force_at_once() {
    let mut bed = Bed::new().inflight(0).config(|config| {
        config.lanes.insert("main".into(), lane(100));
    });
    bed.submit_n(20, &task("a"));
    bed.submit_n(20, &task("b"));
    bed.reconfigure(|config| (config.inflight_max, config.inflight_per_agent_max) = (30, Some(15)));
    assert_eq!((bed.counts(Some("a")).running, bed.counts(Some("b")).running), (15, 15));
    bed.reconfigure(|config| (config.inflight_max, config.inflight_per_agent_max) = (99, Some(49)));
    assert_eq!(bed.n_held(), 40);
}

/// pinchtab 70, 72
#[test]
fn the_same_configuration_again_changes_nothing() {
    let mut bed = Bed::new().inflight(2);
    let ids = bed.submit_n(4, &task("a"));
    let before: Vec<_> = ids.iter().map(|&id| bed.task(id)).collect();
    bed.reconfigure(|_| {});
    assert_eq!(ids.iter().map(|&id| bed.task(id)).collect::<Vec<_>>(), before);
    assert_eq!(bed.take_stops(), []);
}

#[test]
fn a_lane_that_is_added_takes_its_waiting_tasks_out_of_main() {
    let mut bed = Bed::new().config(|config| {
        config.lanes.insert("main".into(), lane(1));
    });
    let main = bed.submit(task("a"));
    let ids = bed.submit_n(3, &task("a").lane("new"));
    assert_eq!(bed.states(&ids), [Phase::Queued; 3]);
    bed.reconfigure(|config| {
        config.lanes.insert("new".into(), lane(2));
    });
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Running, Phase::Queued]);
    assert_eq!(bed.closed(ids[2]), [("lane", "new".to_owned())]);
    assert_eq!(bed.state(main), Phase::Running);
}

#[test]
fn a_lane_that_is_removed_sends_its_waiting_tasks_to_main() {
    let mut bed = Bed::new().config(|config| {
        config.lanes.insert("old".into(), lane(1));
        config.lanes.insert("main".into(), lane(1));
    });
    let ids = bed.submit_n(3, &task("a").lane("old"));
    bed.reconfigure(|config| {
        config.lanes.remove("old");
    });
    // The one that runs holds the slot it started with; the next goes through main.
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Running, Phase::Queued]);
    bed.complete(ids[0]);
    assert_eq!(bed.state(ids[2]), Phase::Queued);
    bed.complete(ids[1]);
    assert_eq!(bed.state(ids[2]), Phase::Running);
}

#[test]
fn a_slot_taken_before_a_reload_is_given_back_after_it() {
    let mut bed = Bed::new().config(|config| {
        config.lanes.insert("x".into(), lane(1));
        config.gates.insert("api".into(), named_gate(Some(1), None, 0));
    });
    let id = bed.submit(task("a").lane("x").gate("api"));
    bed.reconfigure(|config| {
        config.lanes.remove("x");
        config.gates.insert("api".into(), named_gate(Some(2), Some(6000), 10));
    });
    let next = bed.submit_n(2, &task("a").lane("x").gate("api"));
    assert_eq!(bed.states(&next), [Phase::Running, Phase::Queued]);
    bed.complete(id);
    assert_eq!(bed.state(next[1]), Phase::Running);
}

#[test]
fn a_reload_keeps_a_preemptor_its_slot() {
    let mut bed = Bed::new().inflight(1);
    let victim = bed.submit(task("a").tier(runyard_core::task::Tier::Low).preemptible());
    let urgent = bed.submit(task("b").tier(runyard_core::task::Tier::Critical));
    assert_eq!(bed.take_stops(), [(victim, Stop::Preempted)]);
    bed.reconfigure(|config| config.queued_max = 7);
    let other = bed.submit(task("c").tier(runyard_core::task::Tier::High));
    bed.confirm_stop(victim);
    assert_eq!(bed.states(&[urgent, other]), [Phase::Running, Phase::Queued]);
}

#[test]
fn a_reload_tells() {
    let mut bed = Bed::new();
    let before = bed.n_happenings(runyard_core::event::HappeningKind::ConfigChanged);
    bed.reconfigure(|config| config.queued_max = 7);
    assert_eq!(bed.n_happenings(runyard_core::event::HappeningKind::ConfigChanged), before + 1);
}
