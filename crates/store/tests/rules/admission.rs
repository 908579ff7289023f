//! What is taken in, what is refused, and what is kept of a refusal.

use runyard_core::event::{Admit, Answer, HappeningKind, Refusal};
use runyard_core::task::{Phase, Tier};

use super::bed::{Bed, HOUR, batch, task};

/// pinchtab 15
#[test]
fn a_task_beyond_the_global_limit_on_unstarted_tasks_is_refused_with_both_numbers() {
    let mut bed = Bed::new().config(|config| (config.queued_max, config.inflight_max) = (2, 0));
    bed.submit_n(2, &task("a"));
    let refusal = bed.try_submit(task("b")).unwrap_err();
    assert!(matches!(refusal, Refusal::QueueFull { agent: None, queued: 2, limit: 2, .. }), "{refusal:?}");
}

/// pinchtab 16
#[test]
fn an_agent_beyond_its_limit_is_refused_and_another_agent_is_not() {
    let mut bed = Bed::new().config(|config| (config.queued_per_agent_max, config.inflight_max) = (2, 0));
    bed.submit_n(2, &task("a"));
    let refusal = bed.try_submit(task("a")).unwrap_err();
    let Refusal::QueueFull { agent: Some(agent), queued: 2, limit: 2, .. } = refusal else { panic!("{refusal:?}") };
    assert_eq!(&*agent, "a");
    bed.submit(task("b"));
}

/// pinchtab 22
#[test]
fn submits_of_one_tick_count_against_the_limit_together() {
    let mut bed = Bed::new().config(|config| (config.queued_per_agent_max, config.inflight_max) = (3, 0));
    let answers = bed.submit_in_one_tick((0..5).map(|_| (task("a"), None)));
    let n_taken = answers.iter().filter(|answer| matches!(answer, Answer::Submitted { .. })).count();
    let full = |answer: &&Answer| matches!(answer, Answer::Refused(Refusal::QueueFull { queued: 3, limit: 3, .. }));
    assert_eq!((n_taken, answers.iter().filter(full).count()), (3, 2));
}

#[test]
fn held_tasks_do_not_count_as_unstarted() {
    let mut bed = Bed::new().config(|config| (config.queued_max, config.inflight_max) = (1, 2));
    bed.submit_n(3, &task("a"));
    assert_eq!((bed.n_held(), bed.counts(None).queued), (2, 1));
    assert!(bed.try_submit(task("a")).is_err());
    let first = bed.held_in_start_order()[0];
    bed.complete(first);
    bed.submit(task("a"));
}

#[test]
fn waiting_and_scheduled_tasks_count_as_unstarted() {
    let mut bed = Bed::new().config(|config| config.queued_max = 2);
    bed.submit(task("a").delay_ms(HOUR));
    let [nobody] = bed.ids();
    bed.submit(task("a").after(&[nobody]));
    assert!(matches!(bed.try_submit(task("a")), Err(Refusal::QueueFull { queued: 2, .. })));
}

/// pinchtab 23
#[test]
fn a_raised_limit_admits_more_and_no_more_than_it_says() {
    let mut bed = Bed::new().config(|config| (config.queued_per_agent_max, config.inflight_max) = (2, 0));
    bed.submit_n(2, &task("a"));
    assert!(bed.try_submit(task("a")).is_err());
    bed.reconfigure(|config| config.queued_per_agent_max = 10);
    bed.submit_n(8, &task("a"));
    assert!(matches!(bed.try_submit(task("a")), Err(Refusal::QueueFull { queued: 10, limit: 10, .. })));
}

#[test]
fn a_lowered_limit_evicts_nothing() {
    let mut bed = Bed::new().inflight(0);
    let ids = bed.submit_n(5, &task("a"));
    bed.reconfigure(|config| config.queued_max = 1);
    assert_eq!(bed.states(&ids), [Phase::Queued; 5]);
    assert!(bed.try_submit(task("a")).is_err());
}

/// pinchtab 28
#[test]
fn a_refusal_for_want_of_room_is_recorded_without_payload_and_stamped() {
    let mut bed = Bed::new().config(|config| (config.queued_max, config.inflight_max) = (0, 0));
    let refusal = bed.try_submit(task("a").tier(Tier::High)).unwrap_err();
    let Refusal::QueueFull { recorded: Some(id), .. } = refusal else { panic!("{refusal:?}") };
    let doc = bed.doc(id);
    assert_eq!((doc.task.phase(), doc.tier, &*doc.agent), (Phase::Rejected, Tier::High, "a"));
    assert_eq!(doc.task.finished_at, Some(bed.wall_ms()));
    assert!(doc.spec.is_none());
    assert!(doc.task.reason.contains("0/0"), "{}", doc.task.reason);
    assert_eq!(bed.happenings_of(id), [HappeningKind::TaskRejected]);
}

#[test]
fn records_of_refusals_are_limited_by_the_hour_and_their_count_is_exact() {
    let mut bed = Bed::new().config(|config| {
        config.queued_max = 0;
        config.rejections_per_hour_max = 3;
    });
    for _ in 0..5 {
        bed.try_submit(task("a")).unwrap_err();
    }
    bed.try_submit(task("b")).unwrap_err();
    assert_eq!(bed.n_stored(), 4);
    assert_eq!((bed.counts(Some("a")).rejected, bed.counts(Some("b")).rejected), (5, 1));
    bed.advance_ms(HOUR);
    bed.try_submit(task("a")).unwrap_err();
    assert_eq!(bed.n_stored(), 5);
}

#[test]
fn a_deadline_that_has_passed_is_refused_and_not_stored() {
    let mut bed = Bed::new();
    let past = bed.wall_ms();
    assert!(matches!(bed.try_submit(task("a").deadline(past)), Err(Refusal::DeadlinePassed)));
    assert_eq!(bed.n_stored(), 0);
}

#[test]
fn nothing_is_taken_while_draining() {
    let mut bed = Bed::new();
    bed.admit(Admit::Draining);
    assert!(matches!(bed.try_submit(task("a")), Err(Refusal::Draining)));
    bed.admit(Admit::Open);
    bed.submit(task("a"));
}

#[test]
fn an_agent_with_too_many_flows_is_refused_a_new_one_and_keeps_those_it_has() {
    let mut bed = Bed::new().config(|config| (config.flows_per_agent_max, config.inflight_max) = (2, 0));
    bed.submit(task("a").tier(Tier::High));
    bed.submit(task("a").tier(Tier::Low));
    let refusal = bed.try_submit(task("a")).unwrap_err();
    assert!(matches!(refusal, Refusal::TooManyFlows { agent: Some(_), flows: 2, limit: 2 }), "{refusal:?}");
    bed.submit(task("a").tier(Tier::Low));
    bed.submit(task("b"));
}

#[test]
fn flows_of_all_agents_together_are_limited_and_an_ended_task_gives_its_flow_back() {
    let mut bed = Bed::new().config(|config| config.flows_max = 2);
    let first = bed.submit(task("a"));
    bed.submit(task("b"));
    assert!(matches!(bed.try_submit(task("c")), Err(Refusal::TooManyFlows { agent: None, flows: 2, limit: 2 })));
    bed.complete(first);
    bed.submit(task("c"));
}

/// pinchtab 57
#[test]
fn in_a_partial_batch_each_item_answers_for_itself() {
    let mut bed = Bed::new().config(|config| (config.queued_per_agent_max, config.inflight_max) = (1, 0));
    let (_, answer) = bed.submit_batch(batch([task("a"), task("a"), task("b")]).partial());
    let Answer::Submitted { items } = answer else { panic!("{answer:?}") };
    assert_eq!(items[0].as_ref().unwrap().phase, Phase::Queued);
    assert!(matches!(items[1], Err(Refusal::QueueFull { queued: 1, limit: 1, .. })));
    assert!(items[2].is_ok());
}

/// pinchtab 29, 66
#[test]
fn what_a_submit_answers_is_a_copy() {
    let mut bed = Bed::new().inflight(0);
    let mut accepted = bed.try_submit(task("a").rank(4)).unwrap();
    let copy = accepted.task.as_mut().unwrap();
    copy.rank = 9;
    copy.reason = "changed by the caller".into();
    assert_eq!((bed.task(accepted.id).rank, bed.task(accepted.id).reason.as_ref()), (4, ""));
}

/// pinchtab 59, browseros 17
#[test]
fn every_outcome_raises_its_own_count_and_the_gauges_add_up() {
    let mut bed = Bed::new().config(|config| config.queued_per_agent_max = 8);
    let soon = bed.after_ms(500);
    let ids = bed.submit_n(4, &task("a").max_retries(0));
    bed.submit(task("a").deadline(soon).delay_ms(HOUR));
    bed.complete(ids[0]);
    bed.fail(ids[1], runyard_core::task::Class::Task);
    bed.cancel(ids[2]);
    bed.confirm_stop(ids[2]);
    bed.advance_ms(500);
    let other = bed.submit(task("b"));
    bed.complete(other);
    bed.reconfigure(|config| config.queued_per_agent_max = 0);
    bed.try_submit(task("a")).unwrap_err();

    let a = bed.counts(Some("a"));
    assert_eq!((a.submitted, a.started, a.completed, a.failed), (5, 4, 1, 2));
    assert_eq!((a.cancelled, a.rejected, a.expired, a.retried), (1, 1, 1, 0));
    assert_eq!((a.waiting, a.scheduled, a.queued, a.assigned, a.running), (0, 0, 0, 0, 1));
    assert_eq!(a.submitted, a.completed + a.failed + a.cancelled + a.unstarted() + a.assigned + a.running);
    let b = bed.counts(Some("b"));
    assert_eq!((b.submitted, b.completed, b.rejected), (1, 1, 0));
}

/// pinchtab 21
#[test]
fn counts_tell_queued_from_running_by_agent() {
    let mut bed = Bed::new().inflight(1);
    bed.submit(task("a"));
    bed.submit(task("b"));
    let all = bed.counts(None);
    assert_eq!((all.queued, all.running), (1, 1));
    assert_eq!((bed.counts(Some("a")).running, bed.counts(Some("b")).queued), (1, 1));
}
