//! What may be changed about a task, and until when.

use runyard_core::event::{Change, ChangeRefusal};
use runyard_core::ids::TaskId;
use runyard_core::task::{Class, Phase, Tier};

use super::bed::{Bed, HOUR, SECOND, task};

#[test]
fn a_new_rank_is_a_new_place() {
    let mut bed = Bed::new().inflight(1);
    let first = bed.submit(task("x"));
    let ids = bed.submit_n(3, &task("a"));
    let changed = bed.change(ids[2], Change { rank: Some(-1), ..Change::default() }).unwrap();
    assert_eq!(changed.rank, -1);
    assert_eq!(bed.run_all(), [first, ids[2], ids[0], ids[1]]);
}

#[test]
fn a_new_tier_is_a_new_flow_and_the_row_says_so() {
    let mut bed = Bed::new().inflight(1);
    let first = bed.submit(task("x"));
    let ids = bed.submit_n(3, &task("a"));
    bed.change(ids[2], Change { tier: Some(Tier::High), ..Change::default() }).unwrap();
    bed.change(ids[0], Change { tier: Some(Tier::Low), ..Change::default() }).unwrap();
    assert_eq!((bed.doc(ids[2]).tier, bed.doc(ids[0]).tier), (Tier::High, Tier::Low));
    assert_eq!(bed.run_all(), [first, ids[2], ids[1], ids[0]]);
}

#[test]
fn a_task_raised_to_critical_may_preempt() {
    let mut bed = Bed::new().inflight(1);
    let victim = bed.submit(task("a").tier(Tier::Low).preemptible());
    let id = bed.submit(task("b"));
    assert_eq!(bed.take_stops(), []);
    bed.change(id, Change { tier: Some(Tier::Critical), ..Change::default() }).unwrap();
    assert_eq!(bed.take_stops().len(), 1);
    bed.confirm_stop(victim);
    assert_eq!(bed.state(id), Phase::Running);
}

#[test]
fn a_new_deadline_counts() {
    let mut bed = Bed::new().inflight(0);
    let (soon, later) = (bed.after_ms(SECOND), bed.after_ms(HOUR));
    let shortened = bed.submit(task("a").deadline(later));
    let lengthened = bed.submit(task("a").deadline(soon));
    let removed = bed.submit(task("a").deadline(soon));
    bed.change(shortened, Change { deadline: Some(Some(soon)), ..Change::default() }).unwrap();
    bed.change(lengthened, Change { deadline: Some(Some(later)), ..Change::default() }).unwrap();
    bed.change(removed, Change { deadline: Some(None), ..Change::default() }).unwrap();
    bed.advance_ms(SECOND);
    assert_eq!(bed.states(&[shortened, lengthened, removed]), [Phase::Failed, Phase::Queued, Phase::Queued]);
    bed.advance_ms(HOUR);
    assert_eq!(bed.states(&[lengthened, removed]), [Phase::Failed, Phase::Queued]);
}

#[test]
fn a_deadline_in_the_past_is_refused_and_changes_nothing() {
    let mut bed = Bed::new().inflight(0);
    let id = bed.submit(task("a"));
    let now = bed.wall_ms();
    let change = Change { deadline: Some(Some(now)), rank: Some(7), ..Change::default() };
    assert_eq!(bed.change(id, change).unwrap_err(), ChangeRefusal::DeadlinePassed);
    assert_eq!((bed.task(id).deadline, bed.task(id).rank), (None, 0));
}

#[test]
fn a_scheduled_task_is_moved_to_earlier_and_later() {
    let mut bed = Bed::new();
    let ids = bed.submit_n(2, &task("a").delay_ms(10 * SECOND));
    let (earlier, later) = (bed.after_ms(SECOND), bed.after_ms(20 * SECOND));
    bed.change(ids[0], Change { run_at: Some(earlier), ..Change::default() }).unwrap();
    bed.change(ids[1], Change { run_at: Some(later), ..Change::default() }).unwrap();
    bed.advance_ms(SECOND);
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Scheduled]);
    bed.advance_ms(19 * SECOND - 1);
    assert_eq!(bed.state(ids[1]), Phase::Scheduled);
    bed.advance_ms(1);
    assert_eq!(bed.state(ids[1]), Phase::Running);
}

#[test]
fn a_scheduled_task_is_moved_to_now() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a").delay_ms(HOUR));
    let now = bed.wall_ms();
    bed.change(id, Change { run_at: Some(now), ..Change::default() }).unwrap();
    assert_eq!(bed.state(id), Phase::Running);
}

#[test]
fn a_queued_task_is_moved_to_later() {
    let mut bed = Bed::new().inflight(0);
    let id = bed.submit(task("a"));
    let later = bed.after_ms(SECOND);
    bed.change(id, Change { run_at: Some(later), ..Change::default() }).unwrap();
    bed.reconfigure(|config| config.inflight_max = 1);
    assert_eq!(bed.state(id), Phase::Scheduled);
    bed.advance_ms(SECOND);
    assert_eq!(bed.state(id), Phase::Running);
}

#[test]
fn a_waiting_task_can_be_changed() {
    let mut bed = Bed::new().inflight(1);
    let parent = bed.submit(task("a"));
    let ids = bed.submit_n(2, &task("a").after(&[parent]));
    bed.change(ids[1], Change { rank: Some(-1), ..Change::default() }).unwrap();
    bed.complete(parent);
    assert_eq!(bed.states(&ids), [Phase::Queued, Phase::Running]);
}

#[test]
fn a_task_in_its_backoff_can_be_changed_and_still_waits_it_out() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    bed.fail(id, Class::Task);
    bed.change(id, Change { tier: Some(Tier::High), rank: Some(3), ..Change::default() }).unwrap();
    assert_eq!(bed.state(id), Phase::Scheduled);
    bed.advance_ms(SECOND);
    assert_eq!((bed.state(id), bed.doc(id).tier), (Phase::Running, Tier::High));
}

#[test]
fn a_started_task_cannot_be_changed() {
    let mut bed = Bed::new().idle_workers();
    let id = bed.submit(task("a"));
    let change = Change { rank: Some(1), ..Change::default() };
    assert_eq!(bed.change(id, change.clone()).unwrap_err(), ChangeRefusal::Started(Phase::Assigned));
    bed.begin(id);
    assert_eq!(bed.change(id, change.clone()).unwrap_err(), ChangeRefusal::Started(Phase::Running));
    bed.complete(id);
    assert_eq!(bed.change(id, change.clone()).unwrap_err(), ChangeRefusal::Terminal(Phase::Completed));
    assert_eq!(bed.change(TaskId(404), change).unwrap_err(), ChangeRefusal::NotFound);
    assert_eq!(bed.task(id).rank, 0);
}

#[test]
fn a_change_deep_in_a_queue_is_found_and_kept() {
    let mut bed = Bed::new().inflight(0).config(|config| config.window_max = 5);
    let ids = bed.submit_n(100, &task("a"));
    bed.change(ids[80], Change { rank: Some(-1), ..Change::default() }).unwrap();
    bed.change(ids[0], Change { rank: Some(1), ..Change::default() }).unwrap();
    bed.crash();
    bed.reconfigure(|config| config.inflight_max = 1);
    let mut expected = vec![ids[80]];
    expected.extend(ids[1..].iter().filter(|id| **id != ids[80]));
    expected.push(ids[0]);
    assert_eq!(bed.run_all(), expected);
}

#[test]
fn a_new_tier_may_not_make_one_flow_too_many() {
    let mut bed = Bed::new().inflight(0).config(|config| config.flows_per_agent_max = 1);
    let ids = bed.submit_n(2, &task("a"));
    let change = Change { tier: Some(Tier::High), ..Change::default() };
    assert!(matches!(bed.change(ids[0], change), Err(ChangeRefusal::TooManyFlows { limit: 1, .. })));
    assert_eq!(bed.doc(ids[0]).tier, Tier::Normal);
}
