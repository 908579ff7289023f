//! What the tick loop reads costs the same at the end of a long queue as at its head.

#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use runyard_core::event::{Due, Release, Rest, StopWhy};
use runyard_core::ids::FlowId;
use runyard_core::now::{Clock, Now};
use runyard_core::session::Session;
use runyard_core::task::{State, Task, Wait};
use runyard_core::write::{Needs, WriteSet};
use runyard_store::sqlite::{Durability, Options, SqliteStore};
use runyard_store::store::{Filter, FlowWant, Purge, Store};
use runyard_store::suite::fixture::{
    Fixture, KEEP, batch_id, ended, id, in_line, in_state, member, seated, session, session_id, task,
};

/// A walk over this many rows takes 10 ms and more even in a release build; a seek takes some microseconds.
const N_TASKS: u64 = 60_000;
const SEEK_MAX: Duration = Duration::from_millis(5);

#[test]
fn reads_of_the_tick_loop_are_seeks() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::Normal, ..Options::default() };
    let store = SqliteStore::open(&dir.path().join("runyard.db"), options).unwrap();
    let mut fixture = Fixture::new(Box::new(store));
    // All in one flow, of one rank, due at one moment: the worst order for an index.
    for start in (0..N_TASKS).step_by(10_000) {
        fixture.insert((start..start + 10_000).map(|seq| Task { deadline: Some(5), ..task(seq) }));
    }
    let waiting = in_state(State::Waiting(Wait::BatchPlace), member(batch_id(1), task(N_TASKS)));
    fixture.insert([waiting.clone()]);
    let last = N_TASKS - 2;
    quick("the rest of a queue", &mut fixture, |store| {
        let want = FlowWant { flow: FlowId(1), after: Some((0, last)), limit: 10 };
        assert_eq!(store.flow_rows(&[want]).unwrap()[0].rows.len(), 1);
    });
    quick("the rest of the dues", &mut fixture, |store| {
        let after = Due { at_ms: 5, seq: last, task: id(last) };
        assert_eq!(store.dues(Clock::Wall, Some(after), 10).unwrap().len(), 1);
    });
    quick("a place near the head", &mut fixture, |store| assert_eq!(store.n_ahead(&task(3), 1000).unwrap(), 3));
    quick("a place near the end", &mut fixture, |store| assert_eq!(store.n_ahead(&task(last), 1000).unwrap(), 1000));
    quick("members of a batch", &mut fixture, |store| {
        let released = store.released(&Release::BatchPlace { batch: batch_id(1) }, 10).unwrap();
        assert_eq!(released, std::slice::from_ref(&waiting));
    });
    quick("a list of waiting tasks", &mut fixture, |store| {
        let filter = Filter { phases: vec![State::Waiting(Wait::BatchPlace).phase()], ..Filter::default() };
        assert_eq!(store.reader().tasks(&filter, None, 10).unwrap().items.len(), 1);
    });
    quick("a list of old tasks", &mut fixture, |store| {
        let filter = Filter { created_before: Some(5), ..Filter::default() };
        assert_eq!(store.reader().tasks(&filter, None, 10).unwrap().items.len(), 5);
    });
}

/// A session with a long history, in which only the last few live.
#[test]
fn reads_of_a_session_are_seeks() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::Normal, ..Options::default() };
    let store = SqliteStore::open(&dir.path().join("runyard.db"), options).unwrap();
    let mut fixture = Fixture::new(Box::new(store));
    for start in (0..N_TASKS).step_by(10_000) {
        fixture.insert((start..start + 10_000).map(|seq| seated(1, ended(seq, task(seq)))));
    }
    let live_from = N_TASKS;
    fixture.insert([seated(1, task(live_from)), in_line(1, 2, task(live_from + 1))]);
    let sessions_added = (2..N_TASKS).map(session).chain([Session { live_from, ..session(1) }]).collect();
    fixture.commit(WriteSet { sessions_added, ..WriteSet::default() });
    let one = session_id(1);
    let stop = Release::SessionStop { session: one, before: u64::MAX, from: live_from, why: StopWhy::StopAll };
    for (release, n) in [
        (stop, 2),
        (Release::SessionShrink { session: one }, 1),
        (Release::SessionSeat { session: one }, 1),
        (Release::SessionOverflow { session: one }, 1),
    ] {
        quick(&format!("{release:?}"), &mut fixture, |store| {
            assert_eq!(store.released(&release, 10).unwrap().len(), n)
        });
    }
    quick("a session by its key", &mut fixture, |store| {
        let needs = Needs { session_keys: vec!["key 9999".into(), "nobody".into()], ..Needs::default() };
        assert_eq!(store.fetch(&needs).unwrap().sessions.len(), 1);
    });
    quick("a list of a session's latest tasks", &mut fixture, |store| {
        let filter = Filter { session: Some("key 1".into()), ..Filter::default() };
        assert_eq!(store.reader().tasks(&filter, None, 10).unwrap().items.len(), 10);
    });
    quick("a purge of nothing", &mut fixture, |store| {
        let now = Now { wall_ms: 1, steady_ms: 0 };
        assert_eq!(store.purge(now, &Purge { retention_ms: 0, limit: 10, ..KEEP }).unwrap().rest, Rest::Done);
    });
}

/// The best of a few: a busy machine must not fail what is fast.
fn quick(what: &str, fixture: &mut Fixture, read: impl Fn(&mut dyn Store)) {
    let time = || {
        let begin = Instant::now();
        read(&mut *fixture.store);
        begin.elapsed()
    };
    let best = std::iter::repeat_with(time).take(10).min().unwrap();
    assert!(best < SEEK_MAX, "{what} took {best:?}");
}
