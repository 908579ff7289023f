//! Rules of what the tick loop and the API read.

use runyard_core::event::{Due, FirstAnswer, Idempotency, ParentEnd, Release, Rest};
use runyard_core::ids::FlowId;
use runyard_core::now::Clock;
use runyard_core::task::{Delay, Phase, State, Task, Tier, Wait};
use runyard_core::write::{Edge, Insert, Needs, WriteSet};

use super::Harness;
use super::fixture::*;
use crate::store::{Filter, FlowRows, FlowWant, PAGE_BYTES_MAX};

pub fn queued_rows_come_in_rank_then_submit_order(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([
        ranked(5, task(1)),
        task(2),
        ranked(-3, task(3)),
        task(4),
        in_flow(2, task(5)),
        ranked(-3, task(6)),
    ]);
    let (rows, _) = queue(&mut fixture, None, 10);
    assert_eq!(rows, [3, 6, 2, 4, 1]);
    let (rows, _) = queue(&mut fixture, Some((-3, 6)), 2);
    assert_eq!(rows, [2, 4]);
    let (rows, _) = queue(&mut fixture, Some((0, 3)), 10);
    assert_eq!(rows, [4, 1], "a place between two rows goes on with the next");
}

pub fn a_flow_says_whether_there_is_more(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([task(1), task(2), task(3)]);
    assert_eq!(queue(&mut fixture, None, 2).1.rest, Rest::More);
    assert_eq!(queue(&mut fixture, None, 3).1.rest, Rest::Done);
    assert_eq!(queue(&mut fixture, Some((0, 1)), 2).1.rest, Rest::Done);
    assert_eq!(queue(&mut fixture, None, 0).1.rest, Rest::More);
    let wants = [1, 9].map(|flow| FlowWant { flow: FlowId(flow), after: None, limit: 5 });
    let answers = fixture.store.flow_rows(&wants).expect("it reads");
    assert_eq!(answers.iter().map(|answer| answer.flow).collect::<Vec<_>>(), [FlowId(1), FlowId(9)]);
    assert!(answers[1].rows.is_empty() && answers[1].oldest.is_none() && answers[1].rest == Rest::Done);
}

pub fn the_oldest_is_found_whatever_its_rank(harness: &mut dyn Harness) {
    let oldest = |tasks: Vec<Task>, harness: &mut dyn Harness| {
        let mut fixture = Fixture::new(harness.fresh());
        fixture.insert(tasks);
        queue(&mut fixture, Some((100, 0)), 1).1.oldest.map(|task| task.seq)
    };
    assert_eq!(oldest(vec![ranked(9, task(1)), task(2), ranked(-9, task(3))], harness), Some(1));
    assert_eq!(oldest(vec![task(1), ranked(9, task(2))], harness), Some(1));
    assert_eq!(oldest(vec![ranked(-9, task(1)), ranked(-10, task(2))], harness), Some(1));
    assert_eq!(oldest(vec![ended(1, task(1)), task(2)], harness), Some(2));
    assert_eq!(oldest(vec![in_flow(2, task(1))], harness), None);
}

pub fn only_queued_tasks_are_in_a_flow(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([
        in_state(State::Waiting(Wait::Dependencies), task(1)),
        in_state(State::Scheduled(Delay::Until(9)), task(2)),
        in_state(State::Running(lease()), task(3)),
        ended(4, task(4)),
        task(5),
    ]);
    assert_eq!(queue(&mut fixture, None, 10).0, [5]);
    fixture.update(in_state(State::Assigned(lease()), task(5)));
    fixture.update(in_state(State::Queued { since_ms: 0 }, task(1)));
    assert_eq!(queue(&mut fixture, None, 10).0, [1]);
    fixture.update(in_flow(2, task(1)));
    assert!(queue(&mut fixture, None, 10).0.is_empty());
}

pub fn dues_page_in_order_without_gaps(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let at = [30, 10, 20, 10, 30];
    let wall = at.into_iter().zip(1..).map(|(at, seq)| in_state(State::Scheduled(Delay::Until(at)), task(seq)));
    let steady = at.into_iter().zip(11..).map(|(at, seq)| in_state(State::Scheduled(Delay::Backoff(at)), task(seq)));
    fixture.insert(wall.chain(steady).collect::<Vec<_>>());
    for (clock, first) in [(Clock::Wall, 1), (Clock::Steady, 11)] {
        let expected = [(10, 1), (10, 3), (20, 2), (30, 0), (30, 4)].map(|(at_ms, offset)| Due {
            at_ms,
            seq: first + offset,
            task: id(first + offset),
        });
        for limit in 1..=6 {
            assert_eq!(page_dues(&mut fixture, clock, limit), expected, "{clock:?} in pages of {limit}");
        }
    }
}

pub fn an_ended_task_is_not_due(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let with_deadline = |seq| Task { deadline: Some(50), ..task(seq) };
    fixture.insert([with_deadline(1), in_state(State::Scheduled(Delay::Backoff(7)), with_deadline(2))]);
    assert_eq!(page_dues(&mut fixture, Clock::Wall, 10).len(), 2);
    fixture.update(ended(9, with_deadline(1)));
    fixture.update(ended(9, with_deadline(2)));
    assert!(page_dues(&mut fixture, Clock::Wall, 10).is_empty());
    assert!(page_dues(&mut fixture, Clock::Steady, 10).is_empty());
}

pub fn children_are_released_in_submit_order(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let waiting = |seq| in_state(State::Waiting(Wait::Dependencies), task(seq));
    // Ids against the order of seqs: the order must not come from the id.
    let children = [5, 6, 7].map(|seq| Task { id: id(100 - seq), ..waiting(seq) });
    let edges_added = children.iter().rev().map(|child| Edge { parent: id(1), child: child.id }).collect();
    let inserts = [task(1), task(2)].into_iter().chain(children.clone()).map(insert).collect();
    fixture.commit(WriteSet { inserts, edges_added, ..WriteSet::default() });
    // A parent nobody knows yet, and a child of two.
    let edges_added = vec![Edge { parent: id(77), child: children[0].id }];
    fixture.commit(WriteSet { edges_added, ..WriteSet::default() });
    let mut released = |parent, limit| {
        let release = Release::Parent { parent, ended: ParentEnd::Well };
        fixture.store.released(&release, limit).expect("it reads")
    };
    assert_eq!(released(id(1), 10), children);
    assert_eq!(released(id(1), 2), children[..2]);
    assert_eq!(released(id(77), 10), children[..1]);
    assert!(released(id(2), 10).is_empty());
}

pub fn an_edge_removed_releases_nobody(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([task(1), task(2), task(3)]);
    let edges = [2, 3].map(|child| Edge { parent: id(1), child: id(child) });
    fixture.commit(WriteSet { edges_added: edges.to_vec(), ..WriteSet::default() });
    fixture.commit(WriteSet { edges_added: edges.to_vec(), ..WriteSet::default() });
    fixture.commit(WriteSet { edges_removed: vec![edges[0], edges[0]], ..WriteSet::default() });
    let release = Release::Parent { parent: id(1), ended: ParentEnd::Well };
    assert_eq!(fixture.store.released(&release, 10).expect("it reads"), [task(3)]);
}

pub fn members_are_released_that_wait_for_a_place(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let one = batch_id(1);
    let place = |seq| in_state(State::Waiting(Wait::BatchPlace), member(one, task(seq)));
    fixture.insert([
        member(one, task(1)),
        in_state(State::Waiting(Wait::Dependencies), member(one, task(2))),
        place(3),
        in_state(State::Waiting(Wait::BatchPlace), member(batch_id(2), task(4))),
        place(5),
        place(6),
    ]);
    let release = Release::BatchPlace { batch: one };
    assert_eq!(fixture.store.released(&release, 2).expect("it reads"), [place(3), place(5)]);
    fixture.update(member(one, task(3)));
    assert_eq!(fixture.store.released(&release, 9).expect("it reads"), [place(5), place(6)]);
}

pub fn specs_come_in_the_order_asked(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let rejected = Insert { spec: None, ..insert(in_state(State::Rejected, task(3))) };
    fixture.commit(WriteSet { inserts: vec![insert(task(1)), insert(task(2)), rejected], ..WriteSet::default() });
    let specs = fixture.store.specs(&[id(2), id(9), id(1), id(3)]).expect("it reads");
    assert_eq!(specs, [Some(blob("spec of 2")), None, Some(blob("spec of 1")), None]);
}

pub fn tasks_ahead_are_counted_up_to_the_limit(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([task(1), ranked(-1, task(2)), ranked(1, task(3)), task(4), in_flow(2, task(5)), ended(1, task(6))]);
    let mut ahead = |task: Task, limit| fixture.store.n_ahead(&task, limit).expect("it reads");
    assert_eq!(ahead(ranked(-1, task(2)), 10), 0);
    assert_eq!(ahead(task(4), 10), 2);
    assert_eq!(ahead(ranked(1, task(3)), 10), 3);
    assert_eq!(ahead(ranked(1, task(3)), 2), 2);
}

pub fn fetch_leaves_out_what_does_not_exist(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([task(1), task(2)]);
    fixture.commit(WriteSet { batches_added: vec![(batch(batch_id(1)), blob("spec"))], ..WriteSet::default() });
    let needs = Needs {
        tasks: vec![id(2), id(3), id(1)],
        batches: vec![batch_id(2), batch_id(1)],
        keys: vec![Idempotency { agent: "ada".into(), key: "none".into(), hash: 1 }],
        ..Needs::default()
    };
    let rows = fixture.store.fetch(&needs).expect("it reads");
    assert_eq!(rows.tasks, [task(2), task(1)]);
    assert_eq!(rows.batches, [batch(batch_id(1))]);
    assert!(rows.keys.is_empty());
}

pub fn a_key_comes_back_with_its_first_hash(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let tasks = vec![(id(1), Phase::Queued), (id(2), Phase::Waiting)];
    let rows = vec![
        idempotency("batch", FirstAnswer::Batch { id: batch_id(1), tasks }, 7),
        idempotency("task", FirstAnswer::Task { id: id(1), phase: Phase::Assigned }, 8),
    ];
    fixture.commit(WriteSet { idempotency_added: rows.clone(), ..WriteSet::default() });
    let keys = rows.iter().map(|row| Idempotency { hash: 3, ..row.key.clone() });
    let other_agent = Idempotency { agent: "bob".into(), ..rows[0].key.clone() };
    let needs = Needs { keys: keys.chain([other_agent]).collect(), ..Needs::default() };
    assert_eq!(fixture.store.fetch(&needs).expect("it reads").keys, rows);
}

pub fn a_list_is_newest_first_and_pages_without_gaps(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert((0..7).map(task));
    for limit in 1..=8 {
        assert_eq!(list(&fixture, &Filter::default(), limit), [6, 5, 4, 3, 2, 1, 0], "in pages of {limit}");
    }
    let page = fixture.reader().tasks(&Filter::default(), None, 7).expect("it reads");
    assert_eq!(page.next, None, "a page that ends the list says so");
}

pub fn a_list_shows_only_what_passes_its_filter(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let mut other = key("bob");
    other.lane = "cron".into();
    other.tier = Tier::High;
    other.shape.kind = "http".into();
    let bobs = Insert { key: other.into(), ..insert(task(4)) };
    let mine = [
        task(1),
        in_state(State::Running(lease()), task(2)),
        ended(3, task(3)),
        in_state(State::Waiting(Wait::Dependencies), task(5)),
    ];
    let inserts = mine.into_iter().map(insert).chain([bobs]).collect();
    fixture.commit(WriteSet { inserts, ..WriteSet::default() });
    let list = |filter: Filter| list(&fixture, &filter, 2);
    assert_eq!(list(Filter { agent: Some("bob".into()), ..Filter::default() }), [4]);
    assert_eq!(list(Filter { agent: Some("ada".into()), ..Filter::default() }), [5, 3, 2, 1]);
    assert_eq!(list(Filter { lane: Some("cron".into()), ..Filter::default() }), [4]);
    assert_eq!(list(Filter { kind: Some("noop".into()), ..Filter::default() }), [5, 3, 2, 1]);
    assert_eq!(list(Filter { tier: Some(Tier::High), ..Filter::default() }), [4]);
    assert_eq!(list(Filter { phases: vec![Phase::Queued], ..Filter::default() }), [4, 1]);
    assert_eq!(list(Filter { phases: vec![Phase::Running, Phase::Waiting], ..Filter::default() }), [5, 2]);
    assert_eq!(list(Filter { phases: vec![Phase::Completed, Phase::Running], ..Filter::default() }), [3, 2]);
    let queued_of_ada = Filter { phases: vec![Phase::Queued], agent: Some("ada".into()), ..Filter::default() };
    assert_eq!(list(queued_of_ada), [1]);
}

pub fn a_list_of_a_batch_shows_its_members(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let one = batch_id(1);
    fixture.insert([member(one, task(1)), task(2), member(one, ended(3, task(3))), member(batch_id(2), task(4))]);
    assert_eq!(list(&fixture, &Filter { batch: Some(one), ..Filter::default() }, 1), [3, 1]);
    let queued = Filter { batch: Some(one), phases: vec![Phase::Queued], ..Filter::default() };
    assert_eq!(list(&fixture, &queued, 9), [1]);
}

pub fn a_list_by_time_is_bounded_on_both_sides(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    // Several tasks in one millisecond, and gaps between seqs.
    let created = [(2, 10), (3, 10), (7, 20), (8, 20), (9, 30), (20, 40)];
    fixture.insert(created.map(|(seq, created_at)| Task { created_at, ..task(seq) }));
    let list = |created_after, created_before| {
        list(&fixture, &Filter { created_after, created_before, ..Filter::default() }, 2)
    };
    assert_eq!(list(Some(10), None), [20, 9, 8, 7]);
    assert_eq!(list(None, Some(30)), [8, 7, 3, 2]);
    assert_eq!(list(Some(10), Some(40)), [9, 8, 7]);
    assert!(list(None, Some(10)).is_empty());
    assert!(list(Some(40), None).is_empty());
    assert_eq!(list(None, Some(1000)), [20, 9, 8, 7, 3, 2]);
}

pub fn a_page_ends_when_it_is_large(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    // Newest first: two small ones, two that fill a page together, one that is a page by itself, a small one.
    let sizes = [1, PAGE_BYTES_MAX + 1, PAGE_BYTES_MAX / 2, PAGE_BYTES_MAX / 2, 1, 1];
    let inserts =
        sizes.into_iter().zip(1..).map(|(n, seq)| Insert { spec: Some(vec![7; n].into()), ..insert(task(seq)) });
    fixture.commit(WriteSet { inserts: inserts.collect(), ..WriteSet::default() });
    let page = |after| {
        let page = fixture.reader().tasks(&Filter::default(), after, 100).expect("it reads");
        (page.items.iter().map(|doc| doc.task.seq).collect::<Vec<_>>(), page.next)
    };
    assert_eq!(page(None), (vec![6, 5, 4, 3], Some(3)));
    assert_eq!(page(Some(3)), (vec![2], Some(2)));
    assert_eq!(page(Some(2)), (vec![1], None));
    let ids = fixture.reader().task_ids(&Filter::default(), None, 100).expect("it reads");
    assert_eq!((ids.items.len(), ids.next), (6, None), "without what the tasks carry there is nothing to end it");
}

pub fn ids_are_listed_as_tasks_are(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([task(1), ended(2, task(2)), task(3), member(batch_id(1), task(5)), task(7)]);
    let queued = Filter { phases: vec![Phase::Queued], ..Filter::default() };
    let of_batch = Filter { batch: Some(batch_id(1)), ..Filter::default() };
    for (filter, expected) in
        [(Filter::default(), vec![7, 5, 3, 2, 1]), (queued, vec![7, 5, 3, 1]), (of_batch, vec![5])]
    {
        for limit in 1..=6 {
            let (mut ids, mut after) = (Vec::new(), None);
            loop {
                let page = fixture.reader().task_ids(&filter, after, limit).expect("it reads");
                assert!(page.items.len() <= limit);
                ids.extend(page.items);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(ids, expected.iter().map(|seq| id(*seq)).collect::<Vec<_>>(), "{filter:?} in pages of {limit}");
        }
    }
}

pub fn a_batch_comes_back_with_its_spec(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.commit(WriteSet { batches_added: vec![(batch(batch_id(1)), blob("spec"))], ..WriteSet::default() });
    let changed = runyard_core::batch::Batch { n_completed: 3, finished_at: Some(99), ..batch(batch_id(1)) };
    fixture.commit(WriteSet { batches_put: vec![changed.clone()], ..WriteSet::default() });
    assert_eq!(fixture.reader().batch(batch_id(1)).expect("it reads"), Some((changed, blob("spec"))));
    assert_eq!(fixture.reader().batch(batch_id(2)).expect("it reads"), None);
}

/// The seqs of flow 1's queue, and the whole answer.
fn queue(fixture: &mut Fixture, after: Option<(i32, u64)>, limit: usize) -> (Vec<u64>, FlowRows) {
    let wants = [FlowWant { flow: FlowId(1), after, limit }];
    let answer = fixture.store.flow_rows(&wants).expect("it reads").remove(0);
    (answer.rows.iter().map(|task| task.seq).collect(), answer)
}

fn page_dues(fixture: &mut Fixture, clock: Clock, limit: usize) -> Vec<Due> {
    let mut dues: Vec<Due> = Vec::new();
    loop {
        let page = fixture.store.dues(clock, dues.last().copied(), limit).expect("it reads");
        assert!(page.len() <= limit);
        if page.is_empty() {
            return dues;
        }
        dues.extend(page);
    }
}

/// The seqs of all pages.
fn list(fixture: &Fixture, filter: &Filter, limit: usize) -> Vec<u64> {
    let mut seqs = Vec::new();
    let mut after = None;
    loop {
        let page = fixture.reader().tasks(filter, after, limit).expect("it reads");
        assert!(page.items.len() <= limit);
        seqs.extend(page.items.iter().map(|doc| doc.task.seq));
        match page.next {
            Some(next) => after = Some(next),
            None => return seqs,
        }
    }
}
