//! The suite on PostgreSQL, and what only a shared database can do: be taken over, be lost, be of another version.

#![allow(clippy::unwrap_used)]

use runyard_store::postgres::{Options, PgStore};
use runyard_store::store::Store;
use runyard_store::suite::Harness;
use runyard_testbed::shared;

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

fn open(url: &str) -> PgStore {
    PgStore::open(Options::new(url)).unwrap()
}

runyard_store::store_suite!(Postgres::default());
