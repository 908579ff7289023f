//! Every driver's rules, and the bounds that a page keeps.

use runyard_core::write::WriteSet;
use runyard_store::store::{Filter, SessionFilter, Store};
use runyard_store::suite::Harness;
use runyard_store::suite::fixture::{Fixture, session, session_id, task};
use runyard_testbed::shared;

use super::link::open;

#[derive(Default)]
struct Postgres {
    /// One for each store; the last is the one that is reopened.
    urls: Vec<String>,
}

impl Harness for Postgres {
    fn fresh(&mut self) -> Box<dyn Store> {
        self.urls.push(shared().fresh_database());
        self.open()
    }

    fn reopen(&mut self, store: Box<dyn Store>) -> Box<dyn Store> {
        drop(store);
        self.open()
    }
}

impl Postgres {
    fn open(&self) -> Box<dyn Store> {
        Box::new(open(self.urls.last().unwrap()))
    }
}

runyard_store::store_suite!(Postgres::default());

#[test]
fn a_filtered_page_looks_at_a_bounded_number_of_rows() {
    let mut fixture = Fixture::new(Box::new(open(&shared().fresh_database())));
    fixture.insert((0..25_000).map(task));
    let filter = Filter { agent: Some("nobody".into()), ..Filter::default() };
    let first = fixture.reader().tasks(&filter, None, 10).unwrap();
    assert!(first.items.is_empty());
    assert_eq!(first.next, Some(5000));
    assert_eq!(fixture.reader().tasks(&filter, first.next, 10).unwrap().next, None);
}

#[test]
fn a_page_of_sessions_looks_at_a_bounded_number_of_rows() {
    let mut fixture = Fixture::new(Box::new(open(&shared().fresh_database())));
    let sessions_added = (0..25_000).map(session).collect();
    fixture.commit(WriteSet { sessions_added, ..WriteSet::default() });
    let filter = SessionFilter { prefix: Some("nobody".into()), busy: false };
    let first = fixture.reader().sessions(&filter, None, 10).unwrap();
    assert!(first.items.is_empty());
    assert_eq!(first.next, Some(session_id(5000)));
    assert_eq!(fixture.reader().sessions(&filter, first.next, 10).unwrap().next, None);
}

#[test]
fn readers_beyond_the_pool_wait_for_their_turn() {
    let mut fixture = Fixture::new(Box::new(open(&shared().fresh_database())));
    fixture.insert((0..100).map(task));
    let reader = fixture.reader();
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| assert_eq!(reader.tasks(&Filter::default(), None, 100).unwrap().items.len(), 100));
        }
    });
}

/// The server asks from threads that its own runtime keeps for what blocks, and drops what it has within it.
#[test]
fn a_store_can_be_used_beside_another_runtime_and_dropped_within_it() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let used = tokio::task::spawn_blocking(|| {
            let mut fixture = Fixture::new(Box::new(open_sendable()));
            fixture.insert([task(1)]);
            let reader = fixture.reader();
            assert_eq!(reader.tasks(&Filter::default(), None, 9).unwrap().items.len(), 1);
            reader
        });
        drop(used.await.unwrap());
        let store = tokio::task::spawn_blocking(open_sendable).await.unwrap();
        drop(store);
    });
}

fn open_sendable() -> runyard_store::postgres::PgStore {
    open(&shared().fresh_database())
}
