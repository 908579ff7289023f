//! A critical task without a slot may take one from work below it, and only if that really helps.

use runyard_core::event::HappeningKind;
use runyard_core::event::WorkerSpec;
use runyard_core::flow::Resources;
use runyard_core::task::{Phase, Stop, Tier};

use super::bed::{Bed, FIRST, New, agent, named_gate, task, worker};

fn low(agent: &str) -> New {
    task(agent).tier(Tier::Low).preemptible().long()
}

fn critical(agent: &str) -> New {
    task(agent).tier(Tier::Critical)
}

#[test]
fn a_critical_task_stops_a_preemptible_one_and_starts_when_that_is_dead() {
    let mut bed = Bed::new().inflight(1);
    let victim = bed.submit(low("a"));
    let urgent = bed.submit(critical("b"));
    assert_eq!(bed.take_stops(), [(victim, Stop::Preempted)]);
    assert_eq!(bed.states(&[victim, urgent]), [Phase::Running, Phase::Queued]);
    assert_eq!(bed.task(victim).reason, "stopping: preempted");
    bed.confirm_stop(victim);
    assert_eq!(bed.states(&[victim, urgent]), [Phase::Queued, Phase::Running]);
    assert!(bed.happenings_of(victim).contains(&HappeningKind::TaskPreempted));
}

#[test]
fn the_victim_goes_back_to_its_place_without_losing_a_retry() {
    let mut bed = Bed::new().inflight(1);
    let victim = bed.submit(low("a"));
    let behind = bed.submit(low("a"));
    let urgent = bed.submit(critical("b"));
    bed.confirm_stop(victim);
    let task = bed.task(victim);
    assert_eq!((task.retries_used, task.n_preempted, task.n_runs), (0, 1, 1));
    bed.complete(urgent);
    assert_eq!(bed.states(&[victim, behind]), [Phase::Running, Phase::Queued]);
}

#[test]
fn work_that_is_not_preemptible_is_left_alone() {
    let mut bed = Bed::new().inflight(1);
    let holder = bed.submit(task("a").tier(Tier::Low));
    let urgent = bed.submit(critical("b"));
    assert_eq!(bed.take_stops(), []);
    bed.complete(holder);
    assert_eq!(bed.state(urgent), Phase::Running);
}

#[test]
fn critical_work_is_no_victim_though_it_says_it_is_preemptible() {
    let mut bed = Bed::new().inflight(1);
    bed.submit(critical("a").preemptible());
    bed.submit(critical("b"));
    assert_eq!(bed.take_stops(), []);
}

#[test]
fn only_critical_tasks_preempt() {
    let mut bed = Bed::new().inflight(1);
    bed.submit(low("a"));
    bed.submit(task("b").tier(Tier::High));
    assert_eq!(bed.take_stops(), []);
}

#[test]
fn nobody_is_stopped_while_a_slot_is_free() {
    let mut bed = Bed::new().inflight(2);
    bed.submit(low("a"));
    let urgent = bed.submit(critical("b"));
    assert_eq!(bed.take_stops(), []);
    assert_eq!(bed.state(urgent), Phase::Running);
}

#[test]
fn the_lowest_tier_is_the_first_victim_and_then_the_latest_start() {
    let mut bed = Bed::new().inflight(4);
    let early = bed.submit(low("a"));
    let late = bed.submit(low("a"));
    let normal = bed.submit(task("a").preemptible());
    let high = bed.submit(task("a").tier(Tier::High).preemptible());
    let mut victims = Vec::new();
    for name in ["p", "q", "r", "s"] {
        bed.submit(critical(name));
        victims.extend(bed.take_stops().into_iter().map(|(id, _)| id));
    }
    assert_eq!(victims, [late, early, normal, high]);
}

#[test]
fn victims_hold_the_gate_that_is_closed() {
    let mut bed = Bed::new().config(|config| {
        config.gates.insert("api".into(), named_gate(Some(1), None, 0));
    });
    let holder = bed.submit(low("a").gate("api"));
    let elsewhere = bed.submit(low("a"));
    bed.submit(critical("b").gate("api"));
    assert_eq!(bed.take_stops(), [(holder, Stop::Preempted)], "not {elsewhere:?}, which started later");
}

#[test]
fn nobody_is_stopped_when_that_would_leave_a_gate_closed() {
    let mut bed = Bed::new().inflight(2).config(|config| {
        config.gates.insert("api".into(), named_gate(Some(1), None, 0));
    });
    bed.submit(low("a"));
    let api = bed.submit(task("a").gate("api"));
    let urgent = bed.submit(critical("b").gate("api"));
    assert_eq!(bed.take_stops(), [], "a slot would be free, the api would not");
    bed.complete(api);
    assert_eq!(bed.state(urgent), Phase::Running);
}

#[test]
fn a_pause_is_nothing_that_preemption_opens() {
    let mut bed = Bed::new().inflight(1);
    bed.submit(low("a"));
    bed.pause_agent("b", true);
    bed.submit(critical("b"));
    assert_eq!(bed.take_stops(), []);
}

#[test]
fn a_rate_is_nothing_that_preemption_opens() {
    let mut bed = Bed::new().inflight(2).config(|config| {
        config.gates.insert("api".into(), named_gate(None, Some(1), 1));
    });
    bed.submit_n(2, &low("a").gate("api"));
    bed.submit(low("a"));
    bed.submit(critical("b").gate("api"));
    assert_eq!(bed.take_stops(), []);
}

#[test]
fn one_victim_is_enough_for_several_gates_it_holds() {
    let mut bed = Bed::new().inflight(2).config(|config| {
        config.gates.insert("api".into(), named_gate(Some(1), None, 0));
    });
    let both = bed.submit(low("a").gate("api"));
    bed.submit(low("a"));
    bed.submit(critical("b").gate("api"));
    assert_eq!(bed.take_stops(), [(both, Stop::Preempted)]);
}

#[test]
fn room_on_a_worker_is_taken_as_slots_are() {
    let mut bed = Bed::new();
    bed.worker_gone(FIRST);
    let capacity = Resources { cpu_milli: 2000, ram_mb: 1024, named: Vec::new() };
    bed.join(WorkerSpec { capacity, ..worker(FIRST) });
    let small = bed.submit_n(2, &low("a").cpu(1000));
    let urgent = bed.submit(critical("b").cpu(2000));
    let passing = bed.submit(task("c").cpu(1000));
    let mut victims: Vec<_> = bed.take_stops().into_iter().map(|(id, _)| id).collect();
    victims.sort_unstable();
    assert_eq!(victims, small);
    bed.confirm_stop(small[0]);
    assert_eq!(bed.states(&[urgent, passing]), [Phase::Queued, Phase::Queued], "the room is kept for the preemptor");
    bed.confirm_stop(small[1]);
    assert_eq!(bed.states(&[urgent, passing]), [Phase::Running, Phase::Queued]);
}

#[test]
fn the_slot_is_kept_for_the_preemptor() {
    let mut bed = Bed::new().inflight(1).config(|config| {
        config.agents.insert("c".into(), agent(None, 100));
    });
    let victim = bed.submit(low("a"));
    let urgent = bed.submit(critical("b"));
    let other = bed.submit(critical("c"));
    bed.take_stops();
    bed.confirm_stop(victim);
    assert_eq!(bed.states(&[urgent, other]), [Phase::Running, Phase::Queued]);
    assert_eq!(bed.n_held(), 1);
}

#[test]
fn a_kept_slot_is_free_again_when_the_preemptor_is_cancelled() {
    let mut bed = Bed::new().inflight(1);
    let victim = bed.submit(low("a"));
    let urgent = bed.submit(critical("b"));
    let other = bed.submit(task("c"));
    bed.cancel(urgent);
    bed.confirm_stop(victim);
    assert_eq!(bed.states(&[victim, other]), [Phase::Queued, Phase::Running]);
}

#[test]
fn each_critical_task_that_waits_takes_a_victim_of_its_own() {
    let mut bed = Bed::new().inflight(3);
    let victims = bed.submit_n(3, &low("a"));
    bed.submit(critical("b"));
    assert_eq!(bed.take_stops(), [(victims[2], Stop::Preempted)]);
    bed.submit(critical("b"));
    assert_eq!(bed.take_stops(), [(victims[1], Stop::Preempted)]);
    assert_eq!(bed.n_held(), 3);
}

#[test]
fn one_slot_is_not_paid_for_twice() {
    let mut bed = Bed::new().inflight(2);
    bed.submit_n(2, &low("a"));
    let urgent = bed.submit(critical("b"));
    assert_eq!(bed.take_stops().len(), 1);
    bed.advance_ms(5000);
    bed.submit(task("c"));
    assert_eq!(bed.take_stops(), [], "the victim is on its way out already for {urgent:?}");
}

#[test]
fn a_task_is_preempted_at_most_three_times() {
    let mut bed = Bed::new().inflight(1);
    let victim = bed.submit(low("a"));
    for n in 1..=3 {
        let urgent = bed.submit(critical("b"));
        assert_eq!(bed.take_stops(), [(victim, Stop::Preempted)]);
        bed.confirm_stop(victim);
        assert_eq!(bed.task(victim).n_preempted, n);
        bed.complete(urgent);
        assert_eq!(bed.state(victim), Phase::Running);
    }
    let urgent = bed.submit(critical("b"));
    assert_eq!(bed.take_stops(), []);
    bed.complete(victim);
    assert_eq!(bed.state(urgent), Phase::Running);
}

#[test]
fn a_victim_that_is_cancelled_meanwhile_ends_cancelled() {
    let mut bed = Bed::new().inflight(1);
    let victim = bed.submit(low("a"));
    let urgent = bed.submit(critical("b"));
    bed.cancel(victim);
    bed.confirm_stop(victim);
    assert_eq!(bed.states(&[victim, urgent]), [Phase::Cancelled, Phase::Running]);
}

#[test]
fn a_victim_that_ended_before_it_could_be_stopped_runs_again() {
    let mut bed = Bed::new().inflight(1);
    let victim = bed.submit(low("a"));
    let urgent = bed.submit(critical("b"));
    bed.complete(victim);
    assert_eq!(bed.states(&[victim, urgent]), [Phase::Queued, Phase::Running], "its next state was fixed at the stop");
}

#[test]
fn limits_hold_while_victims_stop() {
    let mut bed = Bed::new().inflight(2);
    let victims = bed.submit_n(2, &low("a"));
    bed.submit_n(4, &critical("b"));
    assert_eq!(bed.n_held(), 2);
    bed.confirm_stop(victims[0]);
    assert_eq!(bed.n_held(), 2);
    bed.confirm_stop(victims[1]);
    assert_eq!(bed.n_held(), 2);
}
