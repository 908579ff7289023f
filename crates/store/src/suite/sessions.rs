//! Rules of sessions: their rows, their lines, their messages, and how long they are kept.

use runyard_core::event::{Happening, HappeningKind, Release, Rest, StopWhy, Subject};
use runyard_core::name::Name;
use runyard_core::now::{Clock, Now};
use runyard_core::session::{Context, Message, Mode, Overflow, Session, SessionId, Settings};
use runyard_core::task::{Delay, Phase, Policy, State, Task, Wait};
use runyard_core::write::{Needs, WriteSet};

use super::Harness;
use super::fixture::*;
use crate::store::{Error, Filter, Purge, SessionFilter};

pub fn a_session_comes_back_as_it_was_written(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let full = full_session(1);
    fixture.commit(WriteSet { sessions_added: vec![full.clone(), session(2)], ..WriteSet::default() });
    let fixture = Fixture::new(harness.reopen(fixture.store));
    assert_eq!(fixture.reader().session(&full.key).expect("it reads"), Some(full));
    assert_eq!(fixture.reader().session("key 2").expect("it reads"), Some(session(2)));
    assert_eq!(fixture.reader().session("key").expect("it reads"), None);
}

pub fn a_changed_session_replaces_its_row(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    add_sessions(&mut fixture, [1, 2]);
    let changed = Session { key: "key 1".into(), ..full_session(1) };
    // Added and changed in one commit as well.
    fixture.commit(WriteSet {
        sessions_added: vec![session(3)],
        sessions_put: vec![changed.clone(), Session { n_live: 9, ..session(3) }],
        ..WriteSet::default()
    });
    let reader = fixture.reader();
    assert_eq!(reader.session("key 1").expect("it reads"), Some(changed));
    assert_eq!(reader.session("key 2").expect("it reads"), Some(session(2)));
    assert_eq!(reader.session("key 3").expect("it reads").map(|session| session.n_live), Some(9));
}

pub fn a_second_session_is_a_conflict(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    add_sessions(&mut fixture, [1]);
    let same_key = Session { id: session_id(2), ..session(1) };
    let same_id = Session { key: "another".into(), ..session(1) };
    for second in [vec![same_key], vec![same_id], vec![session(3), session(3)]] {
        assert_conflict(&mut fixture, WriteSet { sessions_added: second, ..WriteSet::default() });
    }
    assert_eq!(fixture.reader().session("key 1").expect("it reads"), Some(session(1)));
    assert_eq!(fixture.reader().session("key 3").expect("it reads"), None);
}

pub fn a_change_of_no_session_is_a_conflict(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    assert_conflict(&mut fixture, WriteSet { sessions_put: vec![session(1)], ..WriteSet::default() });
}

pub fn a_second_message_in_one_place_is_a_conflict(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let carrier = in_line(1, 1, task(1));
    fixture.insert([carrier.clone()]);
    let messages = |places: &[u32]| {
        let messages_added = places.iter().map(|&n| message(&carrier, n)).collect();
        WriteSet { messages_added, ..WriteSet::default() }
    };
    fixture.commit(messages(&[1]));
    assert_conflict(&mut fixture, messages(&[2, 1]));
    assert_conflict(&mut fixture, messages(&[3, 3]));
    assert_eq!(fixture.reader().messages(carrier.id).expect("it reads"), [message(&carrier, 1)]);
}

pub fn a_second_drop_of_one_number_is_a_conflict(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let (one, two) = (in_session(1, task(1)), in_session(1, task(2)));
    fixture.insert([one.clone(), two.clone()]);
    let drops = |drops_added| WriteSet { drops_added, ..WriteSet::default() };
    fixture.commit(drops(vec![session_drop(1, 0, &one)]));
    assert_conflict(&mut fixture, drops(vec![session_drop(1, 0, &two)]));
    fixture.commit(drops(vec![session_drop(2, 0, &two)]));
}

pub fn a_refused_commit_leaves_no_session(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let carrier = seated(1, task(1));
    fixture.insert([carrier.clone(), task(2)]);
    let seat = Release::SessionSeat { session: session_id(1) };
    let writes = WriteSet {
        updates: vec![update(ended(9, task(2)), (Phase::Failed, 3))],
        sessions_added: vec![session(1)],
        messages_added: vec![message(&carrier, 1)],
        drops_added: vec![session_drop(1, 0, &carrier)],
        releases_added: vec![seat],
        ..WriteSet::default()
    };
    assert_conflict(&mut fixture, writes);
    assert!(fixture.store.sessions_after(SessionId(0), 9).expect("it reads").is_empty());
    assert!(fixture.store.merged(carrier.id).expect("it reads").is_empty());
    assert!(fixture.store.dropped(session_id(1), 0, 9).expect("it reads").is_empty());
    assert!(fixture.store.load(1).expect("it loads").releases.is_empty());
}

pub fn sessions_are_fetched_by_id_and_by_key(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    add_sessions(&mut fixture, 1..=4);
    let needs = Needs {
        sessions: vec![session_id(3), session_id(9), session_id(1)],
        session_keys: vec!["key 4".into(), "KEY 2".into(), "key 2".into()],
        ..Needs::default()
    };
    let rows = fixture.store.fetch(&needs).expect("it reads");
    assert_eq!(rows.sessions, [3, 1, 4, 2].map(session));
}

pub fn any_text_is_a_sessions_key(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let keys = ["", "a", "A", "a ", "a\0b", "ä%_*'\"", &"x".repeat(256)].map(Name::from);
    let named = |(n, key): (u64, &Name)| Session { key: key.clone(), ..session(n) };
    let sessions: Vec<Session> = (1..).zip(&keys).map(named).collect();
    fixture.commit(WriteSet { sessions_added: sessions.clone(), ..WriteSet::default() });
    let needs = Needs { session_keys: keys.to_vec(), ..Needs::default() };
    assert_eq!(fixture.store.fetch(&needs).expect("it reads").sessions, sessions);
    for (key, session) in keys.iter().zip(sessions) {
        assert_eq!(fixture.reader().session(key).expect("it reads"), Some(session));
    }
}

pub fn load_gives_the_sessions_of_held_tasks(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([
        seated(2, in_state(State::Running(lease()), task(1))),
        seated(1, in_state(State::Assigned(lease()), task(2))),
        seated(1, in_state(State::Running(lease()), task(3))),
        in_line(3, 1, task(4)),
        seated(4, ended(5, task(5))),
        in_state(State::Running(lease()), task(6)),
    ]);
    add_sessions(&mut fixture, 1..=4);
    let loaded = harness.reopen(fixture.store).load(1).expect("it loads");
    assert_eq!(loaded.sessions, [session(1), session(2)]);
}

pub fn releases_of_sessions_are_kept_until_removed(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let session = session_id(1);
    let stop = |from, why| Release::SessionStop { session, before: u64::MAX, from, why };
    let releases = [
        Release::BatchPlace { batch: batch_id(1) },
        stop(3, StopWhy::StopAll),
        stop(3, StopWhy::Interrupt),
        stop(256, StopWhy::Reset),
        Release::SessionShrink { session },
        Release::SessionSeat { session },
        Release::SessionOverflow { session },
        Release::SessionReview { after: SessionId(u64::MAX) },
    ];
    fixture.commit(WriteSet { releases_added: releases.to_vec(), ..WriteSet::default() });
    let mut fixture = Fixture::new(harness.reopen(fixture.store));
    assert_eq!(fixture.store.load(1).expect("it loads").releases, releases);
    fixture.meta.epoch += 1;
    fixture.commit(WriteSet { releases_removed: releases[2..6].to_vec(), ..WriteSet::default() });
    let left = [releases[0], releases[1], releases[6], releases[7]];
    assert_eq!(fixture.store.load(1).expect("it loads").releases, left);
}

pub fn a_line_is_released_in_its_own_order(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    // The line's order is not the submit order: who waited for another task joined later.
    let line = [in_line(1, 1, task(5)), in_line(1, 2, task(2)), debouncing(in_line(1, 300, task(7)))];
    let others = [
        seated(1, task(1)),
        in_session(1, in_state(State::Waiting(Wait::Dependencies), task(3))),
        in_line(2, 1, task(4)),
        ended(9, in_line(1, 3, task(6))),
        task(8),
    ];
    fixture.insert(line.iter().chain(&others).cloned());
    for limit in 0..=4 {
        let expected = &line[..limit.min(3)];
        for release in
            [Release::SessionSeat { session: session_id(1) }, Release::SessionOverflow { session: session_id(1) }]
        {
            assert_eq!(fixture.store.released(&release, limit).expect("it reads"), expected);
        }
    }
}

pub fn a_member_leaves_the_line_with_its_seat_or_its_end(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([1, 2, 3].map(|seq| in_line(1, seq, task(seq))));
    fixture.insert([in_session(1, in_state(State::Waiting(Wait::Dependencies), task(4)))]);
    let mut line = |task: Task| {
        fixture.update(task);
        let release = Release::SessionSeat { session: session_id(1) };
        let line = fixture.store.released(&release, 9).expect("it reads");
        line.iter().map(|task| task.seq).collect::<Vec<_>>()
    };
    assert_eq!(line(seated(1, task(1))), [2, 3]);
    assert_eq!(line(in_state(State::Cancelled, in_line(1, 2, task(2)))), [3]);
    assert_eq!(line(in_line(1, 4, task(4))), [3, 4]);
    assert_eq!(line(in_line(1, 1, task(1))), [1, 3, 4], "a surplus one returns to its old place");
    let ended = Task { finished_at: Some(9), ..in_state(State::Completed, in_line(1, 3, task(3))) };
    assert_eq!(line(ended), [1, 4]);
}

pub fn a_debounce_is_due_like_a_backoff(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([debouncing(in_line(1, 1, task(1)))]);
    let dues = |fixture: &mut Fixture| fixture.store.dues(Clock::Steady, None, 9).expect("it reads").len();
    assert_eq!(dues(&mut fixture), 1);
    fixture.update(in_line(1, 1, task(1)));
    assert_eq!(dues(&mut fixture), 0);
}

pub fn live_members_are_released_to_be_stopped(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let live = [
        seated(1, in_state(State::Running(lease()), task(2))),
        seated(1, task(4)),
        in_line(1, 3, task(5)),
        in_session(1, in_state(State::Scheduled(Delay::Until(9)), task(7))),
    ];
    let others = [seated(1, ended(3, task(1))), seated(1, ended(3, task(6))), seated(2, task(3)), task(8)];
    fixture.insert(live.iter().chain(&others).cloned());
    let mut stopped = |from, before, limit| {
        let release = Release::SessionStop { session: session_id(1), before, from, why: StopWhy::StopAll };
        fixture.store.released(&release, limit).expect("it reads")
    };
    assert_eq!(stopped(0, u64::MAX, 9), live);
    assert_eq!(stopped(0, 8, 2), live[..2]);
    assert_eq!(stopped(3, 7, 9), live[1..3]);
    assert_eq!(stopped(4, 5, 9), live[1..2]);
    assert!(stopped(5, 5, 9).is_empty() && stopped(8, 3, 9).is_empty());
}

pub fn seated_members_are_released_that_have_not_started(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let surplus = [seated(1, task(3)), seated(1, in_state(State::Waiting(Wait::BatchPlace), task(5)))];
    let others = [
        seated(1, ended(2, task(1))),
        seated(1, in_state(State::Running(lease()), task(2))),
        in_line(1, 9, task(4)),
        seated(2, task(6)),
        seated(1, in_state(State::Scheduled(Delay::Backoff(9)), task(7))),
        in_session(1, in_state(State::Waiting(Wait::Dependencies), task(8))),
    ];
    fixture.insert(surplus.iter().chain(&others).cloned());
    // Nobody before the third lives but the second, which runs.
    let row = Session { live_from: 2, ..session(1) };
    fixture.commit(WriteSet { sessions_added: vec![row, session(2)], ..WriteSet::default() });
    let release = Release::SessionShrink { session: session_id(1) };
    for limit in 0..=3 {
        assert_eq!(fixture.store.released(&release, limit).expect("it reads"), surplus[..limit.min(2)]);
    }
}

pub fn a_review_releases_no_task(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([seated(1, task(1)), in_line(1, 2, task(2))]);
    add_sessions(&mut fixture, [1]);
    let release = Release::SessionReview { after: SessionId(0) };
    assert!(fixture.store.released(&release, 9).expect("it reads").is_empty());
}

pub fn sessions_are_reviewed_in_the_order_of_their_ids(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    add_sessions(&mut fixture, [4, 1, 3, 2]);
    let mut after = |id, limit| fixture.store.sessions_after(id, limit).expect("it reads");
    assert_eq!(after(SessionId(0), 9), [1, 2, 3, 4].map(session));
    assert_eq!(after(session_id(1), 2), [2, 3].map(session));
    assert!(after(session_id(4), 2).is_empty() && after(SessionId(u64::MAX), 2).is_empty());
}

pub fn merged_messages_come_in_their_order(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let (carrier, other) = (in_line(1, 1, task(1)), in_line(2, 1, task(2)));
    fixture.insert([carrier.clone(), other.clone(), in_line(3, 1, task(3))]);
    let (mut sent, spec) = message(&carrier, 300);
    sent = Message { sent_at: Some(3), key: Some("once".into()), ..sent };
    for messages_added in
        [vec![message(&carrier, 2), message(&other, 1)], vec![(sent.clone(), spec.clone()), message(&carrier, 1)]]
    {
        fixture.commit(WriteSet { messages_added, ..WriteSet::default() });
    }
    let expected = [message(&carrier, 1), message(&carrier, 2), (sent, spec)];
    assert_eq!(fixture.store.merged(carrier.id).expect("it reads"), expected.clone().map(|(_, spec)| spec));
    assert_eq!(fixture.reader().messages(carrier.id).expect("it reads"), expected);
    for without in [id(3), id(9)] {
        assert!(fixture.store.merged(without).expect("it reads").is_empty());
        assert!(fixture.reader().messages(without).expect("it reads").is_empty());
    }
}

pub fn dropped_tasks_tell_all_they_carried(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let tasks = [1, 2, 3].map(|seq| in_state(State::Cancelled, in_session(1, task(seq))));
    fixture.insert(tasks.clone());
    let [one, two, three] = &tasks;
    fixture.commit(WriteSet {
        messages_added: vec![message(one, 2), message(one, 1)],
        drops_added: vec![session_drop(1, 0, three), session_drop(1, 1, one), session_drop(2, 1, two)],
        ..WriteSet::default()
    });
    fixture.commit(WriteSet { drops_added: vec![session_drop(1, 2, two)], ..WriteSet::default() });
    let mut dropped = |from, to| {
        let specs = fixture.store.dropped(session_id(1), from, to).expect("it reads");
        specs.iter().map(|spec| String::from_utf8_lossy(spec).into_owned()).collect::<Vec<_>>()
    };
    let all = ["spec of 3", "spec of 1", "message 1 of 1", "message 2 of 1", "spec of 2"];
    assert_eq!(dropped(0, 3), all);
    assert_eq!(dropped(1, 2), all[1..4]);
    assert_eq!(dropped(2, u64::MAX), all[4..]);
    assert!(dropped(3, 9).is_empty() && dropped(2, 2).is_empty() && dropped(2, 1).is_empty());
}

pub fn a_task_shows_the_key_of_its_session(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([seated(1, task(1)), task(2)]);
    add_sessions(&mut fixture, [1]);
    fixture.update(ended(9, seated(1, task(1))));
    assert_eq!(fixture.doc(id(1)).expect("it exists").session, Some("key 1".into()));
    assert_eq!(fixture.doc(id(2)).expect("it exists").session, None);
    let page = fixture.reader().tasks(&Filter::default(), None, 9).expect("it reads");
    let keys: Vec<Option<&str>> = page.items.iter().map(|doc| doc.session.as_deref()).collect();
    assert_eq!(keys, [None, Some("key 1")]);
}

pub fn a_list_of_a_session_shows_its_members(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let one = batch_id(1);
    fixture.insert([
        seated(1, ended(1, task(1))),
        seated(2, task(2)),
        seated(1, member(one, task(3))),
        in_line(1, 2, task(4)),
        member(one, task(5)),
        seated(2, member(one, task(6))),
    ]);
    add_sessions(&mut fixture, [1, 2]);
    let of = |key: &str| Filter { session: Some(key.into()), ..Filter::default() };
    for (filter, expected) in [
        (of("key 1"), vec![4, 3, 1]),
        (of("key 2"), vec![6, 2]),
        (of("key"), vec![]),
        (Filter { phases: vec![Phase::Queued], ..of("key 1") }, vec![3]),
        (Filter { batch: Some(one), ..of("key 1") }, vec![3]),
        (Filter { batch: Some(one), ..of("nobody") }, vec![]),
        (Filter { created_before: Some(4), created_after: Some(1), ..of("key 1") }, vec![3]),
    ] {
        for limit in 1..=4 {
            let (mut ids, mut after) = (Vec::new(), None);
            loop {
                let page = fixture.reader().tasks(&filter, after, limit).expect("it reads");
                let same = fixture.reader().task_ids(&filter, after, limit).expect("it reads");
                let of_tasks: Vec<_> = page.items.iter().map(|doc| doc.task.id).collect();
                assert_eq!((&same.items, same.next.is_some()), (&of_tasks, page.next.is_some()));
                ids.extend(of_tasks);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(ids, expected.iter().map(|&seq| id(seq)).collect::<Vec<_>>(), "{filter:?} in pages of {limit}");
        }
    }
}

pub fn sessions_are_listed_latest_first(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let named = |n, key: &str, n_live| Session { key: key.into(), n_live, ..session(n) };
    let sessions_added = vec![named(1, "chat:a", 0), named(3, "chat:b", 2), named(2, "mail:a", 1), named(4, "chat", 1)];
    fixture.commit(WriteSet { sessions_added, ..WriteSet::default() });
    let chats = || Some(Name::from("chat:"));
    for (filter, expected) in [
        (SessionFilter::default(), vec![4, 3, 2, 1]),
        (SessionFilter { busy: true, ..SessionFilter::default() }, vec![4, 3, 2]),
        (SessionFilter { prefix: chats(), busy: false }, vec![3, 1]),
        (SessionFilter { prefix: chats(), busy: true }, vec![3]),
        (SessionFilter { prefix: Some("Chat".into()), busy: false }, vec![]),
    ] {
        for limit in 1..=5 {
            let (mut ids, mut after) = (Vec::new(), None);
            loop {
                let page = fixture.reader().sessions(&filter, after, limit).expect("it reads");
                assert!(page.items.len() <= limit);
                ids.extend(page.items.iter().map(|session| session.id));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            let expected: Vec<SessionId> = expected.iter().map(|&n| session_id(n)).collect();
            assert_eq!(ids, expected, "{filter:?} in pages of {limit}");
        }
    }
}

pub fn happenings_tell_of_sessions(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let of = |key: &str, kind| {
        let mut happening = happening(kind, &task(1));
        if let Subject::Task(facts) = &mut happening.subject {
            facts.session = Some(key.into());
        }
        happening
    };
    let stopped = |session| Happening {
        kind: HappeningKind::SessionStopped,
        at_ms: 9,
        subject: Subject::Session(Box::new(session)),
    };
    let happenings = vec![
        of("a", HappeningKind::TaskCreated),
        of("a", HappeningKind::TaskMerged),
        stopped(full_session(1)),
        of("", HappeningKind::TaskDropped),
        happening(HappeningKind::TaskCancelled, &task(2)),
        of("a", HappeningKind::TaskStarted),
        stopped(session(2)),
    ];
    fixture.commit(WriteSet { happenings: happenings.clone(), ..WriteSet::default() });
    assert_eq!(fixture.reader().happenings(0, 9).expect("it reads"), [(1, happenings)]);
}

pub fn purge_takes_messages_and_drops_with_their_task(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let own_ttl = Policy { ttl_ms: Some(0), ..Policy::default() };
    let tasks = [
        in_session(1, ended(5, task(1))),
        Task { policy: own_ttl, ..in_session(1, ended(5, task(2))) },
        in_line(1, 3, task(3)),
    ];
    fixture.insert(tasks.clone());
    fixture.commit(WriteSet {
        sessions_added: vec![session(1)],
        messages_added: tasks.iter().map(|task| message(task, 1)).collect(),
        drops_added: tasks.iter().zip(0..).map(|(task, n)| session_drop(1, n, task)).collect(),
        ..WriteSet::default()
    });
    assert_eq!(fixture.purge(1000, &Purge { retention_ms: 10, ..KEEP }), [id(1), id(2)]);
    let left = fixture.store.dropped(session_id(1), 0, 9).expect("it reads");
    assert_eq!(left, [blob("spec of 3"), blob("message 1 of 3")]);
    // Nothing of the old ones is left to be in the way of new ones in their places.
    fixture.insert([task(1), task(2)]);
    fixture.commit(WriteSet {
        messages_added: tasks[..2].iter().map(|task| message(task, 1)).collect(),
        drops_added: tasks[..2].iter().zip(0..).map(|(task, n)| session_drop(1, n, task)).collect(),
        ..WriteSet::default()
    });
}

pub fn purge_takes_a_session_that_nobody_uses(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let used = |n, n_live, last_at| Session { n_live, last_at, ..session(n) };
    let sessions_added = vec![used(1, 0, 50), used(2, 1, 50), used(3, 0, 60), used(4, 0, 61)];
    fixture.commit(WriteSet { sessions_added, ..WriteSet::default() });
    let purge = Purge { retention_ms: 100, ..KEEP };
    assert_eq!(left_after(&mut fixture, 149, &purge), [1, 2, 3, 4]);
    assert_eq!(left_after(&mut fixture, 160, &purge), [2, 4]);
    fixture.commit(WriteSet { sessions_put: vec![used(2, 0, 50), used(4, 1, 61)], ..WriteSet::default() });
    assert_eq!(left_after(&mut fixture, 1000, &purge), [4]);
    let again = Session { key: "key 1".into(), ..session(9) };
    fixture.commit(WriteSet { sessions_added: vec![again], ..WriteSet::default() });
}

pub fn purge_keeps_a_session_as_long_as_a_task(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let kept = Policy { ttl_ms: Some(1000), ..Policy::default() };
    fixture.insert([
        seated(1, ended(5, task(1))),
        Task { policy: kept, ..seated(1, ended(5, task(2))) },
        seated(2, ended(5, task(3))),
    ]);
    let sessions_added = [1, 2].map(|n| Session { n_live: 0, last_at: 5, ..session(n) }).to_vec();
    fixture.commit(WriteSet { sessions_added, ..WriteSet::default() });
    let purge = Purge { retention_ms: 10, ..KEEP };
    assert_eq!(left_after(&mut fixture, 500, &purge), [1]);
    assert_eq!(fixture.doc(id(2)).expect("it is kept").session, Some("key 1".into()));
    assert!(left_after(&mut fixture, 2000, &purge).is_empty());
}

pub fn purge_of_sessions_works_in_chunks_until_done(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let kept = Policy { ttl_ms: Some(u64::MAX), ..Policy::default() };
    // Each has a task that goes with it, but for every third, which keeps its own; many are of one moment.
    let policy = |n: u64| if n.is_multiple_of(3) { kept } else { Policy::default() };
    fixture.insert((0..20).map(|n| Task { policy: policy(n), ..seated(n, ended(n, task(n))) }));
    let sessions_added = (0..20).map(|n| Session { n_live: 0, last_at: n / 7, ..session(n) }).collect();
    fixture.commit(WriteSet { sessions_added, ..WriteSet::default() });
    let purge = Purge { retention_ms: 0, limit: 3, ..KEEP };
    let first = fixture.store.purge(Now { wall_ms: 1000, steady_ms: 0 }, &purge).expect("it purges");
    assert!(first.tasks.len() <= 3 && first.rest == Rest::More);
    assert_eq!(left_after(&mut fixture, 1000, &purge), [0, 3, 6, 9, 12, 15, 18]);
    assert_eq!(left_after(&mut fixture, 1000, &Purge { limit: 1, ..purge }), [0, 3, 6, 9, 12, 15, 18]);
}

/// Every field has a value that its default has not.
fn full_session(n: u64) -> Session {
    Session {
        key: "agent:x:group:ü".into(),
        own: Settings {
            mode: Some(Mode::Collect),
            cap: Some(u32::MAX),
            overflow: Some(Overflow::Summarize),
            debounce_ms: Some(0),
            wait_ms_max: Some(u64::MAX),
            max_concurrent: Some(3),
        },
        lane: "team".into(),
        generation: 2,
        reset_seq: 3,
        stopped_seq: 4,
        stopped_line: 5,
        is_draining: true,
        cutoff: Some(6),
        context: Some(Context { tokens: 7, window: 8 }),
        n_live: 9,
        n_held: 10,
        n_seated: 11,
        n_line: 12,
        n_debouncing: 13,
        next_line: 14,
        gatherer: Some(id(15)),
        n_dropped: 16,
        n_told: 17,
        live_from: 18,
        n_messages: 19,
        created_at: 1_700_000_000_000,
        last_at: 1_700_000_000_001,
        ..session(n)
    }
}

fn debouncing(task: Task) -> Task {
    in_state(State::Scheduled(Delay::Debounce(9)), task)
}

fn add_sessions(fixture: &mut Fixture, ns: impl IntoIterator<Item = u64>) {
    let sessions_added = ns.into_iter().map(session).collect();
    fixture.commit(WriteSet { sessions_added, ..WriteSet::default() });
}

/// The numbers of the sessions that a purge leaves.
fn left_after(fixture: &mut Fixture, wall_ms: u64, purge: &Purge) -> Vec<u64> {
    fixture.purge(wall_ms, purge);
    let sessions = fixture.store.sessions_after(SessionId(0), 99).expect("it reads");
    sessions.iter().map(|session| session.id.0 - session_id(0).0).collect()
}

fn assert_conflict(fixture: &mut Fixture, writes: WriteSet) {
    let outcome = fixture.try_commit(writes);
    assert!(matches!(outcome, Err(Error::Conflict { .. })), "{outcome:?}");
}
