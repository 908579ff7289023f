//! A key that was used before gives the first answer again.

use runyard_core::event::{Answer, FirstAnswer, Idempotency, Refusal};
use runyard_core::ids::TaskId;
use runyard_core::task::Phase;

use super::bed::{Bed, batch, task};

fn taken(answer: &Answer) -> TaskId {
    match answer {
        Answer::Submitted { items } => items[0].as_ref().expect("the item is taken").id,
        other => panic!("it is taken, not {other:?}"),
    }
}

fn replayed(answer: &Answer) -> TaskId {
    match answer {
        Answer::Replayed(FirstAnswer::Task { id, .. }) => *id,
        other => panic!("it is the first answer again, not {other:?}"),
    }
}

fn key_of(agent: &str, key: &str, hash: u64) -> Option<Idempotency> {
    Some(Idempotency { agent: agent.into(), key: key.into(), hash })
}

#[test]
fn the_same_key_and_body_give_the_first_answer_and_no_second_task() {
    let mut bed = Bed::new();
    let first = taken(&bed.submit_with_key(task("a"), "k", 1));
    assert_eq!(replayed(&bed.submit_with_key(task("a"), "k", 1)), first);
    bed.complete(first);
    assert_eq!(replayed(&bed.submit_with_key(task("a"), "k", 1)), first, "also when it has ended");
    assert_eq!(bed.n_stored(), 1);
}

#[test]
fn the_same_key_with_another_body_is_refused() {
    let mut bed = Bed::new();
    bed.submit_with_key(task("a"), "k", 1);
    let answer = bed.submit_with_key(task("a"), "k", 2);
    let Answer::Refused(Refusal::KeyReused { key }) = &answer else { panic!("{answer:?}") };
    assert_eq!((&**key, bed.n_stored()), ("k", 1));
}

#[test]
fn a_key_is_an_agents_own() {
    let mut bed = Bed::new();
    let first = taken(&bed.submit_with_key(task("a"), "k", 1));
    let second = taken(&bed.submit_with_key(task("b"), "k", 1));
    assert_ne!(first, second);
}

#[test]
fn a_repeat_in_the_same_tick_counts() {
    let mut bed = Bed::new();
    let answers = bed.submit_in_one_tick([1, 1, 2].map(|hash| (task("a"), key_of("a", "k", hash))));
    assert_eq!(replayed(&answers[1]), taken(&answers[0]));
    assert!(matches!(answers[2], Answer::Refused(Refusal::KeyReused { .. })));
    assert_eq!(bed.n_stored(), 1);
}

#[test]
fn a_key_survives_a_restart() {
    let mut bed = Bed::new();
    let first = taken(&bed.submit_with_key(task("a"), "k", 1));
    bed.crash();
    assert_eq!(replayed(&bed.submit_with_key(task("a"), "k", 1)), first);
}

#[test]
fn a_rejection_does_not_use_up_the_key() {
    let mut bed = Bed::new().config(|config| config.queued_max = 0);
    let answer = bed.submit_with_key(task("a"), "k", 1);
    assert!(matches!(answer, Answer::Refused(Refusal::QueueFull { .. })));
    bed.reconfigure(|config| config.queued_max = 10);
    let id = taken(&bed.submit_with_key(task("a"), "k", 1));
    assert_eq!(bed.state(id), Phase::Running);
}

#[test]
fn a_repeat_inside_one_batch_is_the_first_item_again() {
    let mut bed = Bed::new();
    let (id, tasks) = bed.batch(batch([task("a").key("k", 1), task("a").key("k", 1), task("a").key("l", 1)]));
    assert_eq!(tasks[0], tasks[1]);
    assert_ne!(tasks[0], tasks[2]);
    assert_eq!((bed.n_stored(), bed.batch_row(id).n_total), (2, 2));
    bed.complete(tasks[0]);
    bed.complete(tasks[2]);
    assert!(bed.batch_row(id).finished_at.is_some());
}

#[test]
fn another_body_inside_one_batch_is_refused() {
    let mut bed = Bed::new();
    let (_, answer) = bed.submit_batch(batch([task("a").key("k", 1), task("a").key("k", 2)]).partial());
    let Answer::Submitted { items } = answer else { panic!("{answer:?}") };
    assert!(items[0].is_ok());
    assert!(matches!(items[1], Err(Refusal::KeyReused { .. })));
}

#[test]
fn an_item_whose_key_was_used_before_is_the_task_of_then() {
    let mut bed = Bed::new();
    let first = taken(&bed.submit_with_key(task("a"), "k", 1));
    let (_, tasks) = bed.batch(batch([task("a").key("k", 1), task("a").key("k", 1), task("a")]));
    assert_eq!(tasks[..2], [first, first]);
    assert_eq!(bed.n_stored(), 2);
}

#[test]
fn an_item_that_names_a_repeated_one_waits_for_the_task_of_then() {
    let mut bed = Bed::new();
    let first = taken(&bed.submit_with_key(task("a"), "k", 1));
    let [again, child] = bed.ids();
    bed.batch(batch([task("a").id(again).key("k", 1), task("a").id(child).after(&[again])]));
    assert_eq!(bed.state(child), Phase::Waiting);
    bed.complete(first);
    assert_eq!(bed.state(child), Phase::Running);
}

#[test]
fn the_task_of_then_may_have_ended_or_stand_far_back_in_its_queue() {
    let mut bed = Bed::new();
    let ended = taken(&bed.submit_with_key(task("a"), "ended", 1));
    bed.complete(ended);
    bed.reconfigure(|config| (config.window_max, config.inflight_max) = (1, 0));
    bed.submit_n(20, &task("a"));
    let far = taken(&bed.submit_with_key(task("a"), "far", 1));
    let [again, child_of_ended, far_again, child_of_far] = bed.ids();
    bed.batch(batch([
        task("a").id(again).key("ended", 1),
        task("b").id(child_of_ended).after(&[again]),
        task("a").id(far_again).key("far", 1),
        task("b").id(child_of_far).after(&[far_again]),
    ]));
    assert_eq!(bed.states(&[child_of_ended, child_of_far]), [Phase::Queued, Phase::Waiting]);
    bed.reconfigure(|config| config.inflight_max = 1);
    let order = bed.run_all();
    let at = |id| order.iter().position(|other| *other == id).unwrap();
    assert!(at(far) < at(child_of_far));
}

#[test]
fn a_batch_is_repeated_as_a_whole() {
    let mut bed = Bed::new();
    let (id, answer) = bed.submit_batch(batch([task("a"), task("a")]).key("a", "k", 1));
    let Answer::Submitted { items } = answer else { panic!("{answer:?}") };
    let (_, answer) = bed.submit_batch(batch([task("a"), task("a")]).key("a", "k", 1));
    let Answer::Replayed(FirstAnswer::Batch { id: again, tasks }) = answer else { panic!("{answer:?}") };
    assert_eq!(again, id);
    let ids: Vec<TaskId> = items.iter().map(|item| item.as_ref().unwrap().id).collect();
    assert_eq!(tasks.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids);
    assert_eq!(bed.n_stored(), 2);
    let (_, answer) = bed.submit_batch(batch([task("a")]).key("a", "k", 2));
    assert!(matches!(answer, Answer::Refused(Refusal::KeyReused { .. })));
}

#[test]
fn a_repeated_batch_answers_each_item_where_it_stands() {
    let mut bed = Bed::new().config(|config| config.queued_per_agent_max = 1).idle_workers();
    let items = || batch([task("a"), task("a"), task("b")]).partial().key("a", "k", 1);
    bed.pause_lane("main", true);
    let (_, answer) = bed.submit_batch(items());
    let Answer::Submitted { items: first } = answer else { panic!("{answer:?}") };
    assert!(first[0].is_ok() && first[1].is_err() && first[2].is_ok());
    let (_, answer) = bed.submit_batch(items());
    let Answer::Replayed(FirstAnswer::Batch { tasks, .. }) = answer else { panic!("{answer:?}") };
    assert_eq!(tasks.len(), 3);
    assert_eq!(tasks[1].1, Phase::Rejected);
    assert_eq!(tasks[2].0, first[2].as_ref().unwrap().id);
}

#[test]
fn the_key_of_a_batch_is_no_key_of_an_item() {
    let mut bed = Bed::new();
    bed.submit_batch(batch([task("a")]).key("a", "k", 1));
    let (_, answer) = bed.submit_batch(batch([task("a").key("k", 1)]).partial());
    let Answer::Submitted { items } = answer else { panic!("{answer:?}") };
    assert_eq!(items[0].as_ref().unwrap_err(), &Refusal::KeyReused { key: "k".into() });
}

#[test]
fn a_key_lives_as_long_as_its_task() {
    let mut bed = Bed::new();
    let first = taken(&bed.submit_with_key(task("a").long(), "k", 1));
    bed.advance_ms(2 * super::bed::DAY - 1);
    bed.purge(0);
    assert_eq!(replayed(&bed.submit_with_key(task("a"), "k", 1)), first);
}

#[test]
fn what_is_asked_again_is_answered_from_the_rows_wherever_the_task_is_by_now() {
    let mut bed = Bed::new();
    let first = taken(&bed.submit_with_key(task("a"), "k", 1));
    assert_eq!(replayed(&bed.ask_again(None, &[first], || task("a"))), first, "while it is in memory");
    bed.crash();
    assert_eq!(replayed(&bed.ask_again(None, &[first], || task("a"))), first, "after a change of holder");
    bed.complete(first);
    bed.crash();
    let answer = bed.ask_again(None, &[first], || task("a"));
    assert!(matches!(answer, Answer::Replayed(FirstAnswer::Task { phase: Phase::Completed, .. })), "{answer:?}");
    assert_eq!(bed.n_stored(), 1);
}

#[test]
fn what_is_asked_again_and_was_never_stored_is_taken() {
    let mut bed = Bed::new();
    let id = TaskId(0x7777);
    assert_eq!(taken(&bed.ask_again(None, &[id], || task("a"))), id);
    assert_eq!(bed.n_stored(), 1);
}

#[test]
fn a_batch_that_is_asked_again_is_the_same_batch() {
    let mut bed = Bed::new();
    let (id, tasks) = bed.batch(batch([task("a"), task("a")]));
    bed.crash();
    let answer = bed.ask_again(Some(id), &tasks, || task("a"));
    let Answer::Replayed(FirstAnswer::Batch { id: again, tasks: named }) = &answer else { panic!("{answer:?}") };
    assert_eq!((*again, named.iter().map(|(task, _)| *task).collect::<Vec<_>>()), (id, tasks));
    assert_eq!(bed.n_stored(), 2);
}
