//! The benchmark's yardstick runs and gives sane figures.

#![allow(clippy::unwrap_used)]

use runyard_store::{postgres, sqlite};
use runyard_testbed::Postgres;

/// How many tasks, and how many of them in each commit.
fn sizes() -> (usize, usize) {
    let size = |name: &str, usual: usize| std::env::var(name).map_or(usual, |n| n.parse().unwrap());
    (size("RUNYARD_RAW_TASKS", 2000), size("RUNYARD_RAW_PER_COMMIT", 200))
}

#[test]
fn the_raw_limit_of_postgres_is_measured_on_the_products_own_schema() {
    let (n_tasks, per_commit) = sizes();
    let server = Postgres::start_with(&runyard_testbed::Options { fsync: true, ..Default::default() });
    let limit = postgres::raw_limit(postgres::Options::new(server.fresh_database()), n_tasks, per_commit).unwrap();
    println!("{limit:?}");
    assert!(limit.cycles_per_s > 0.0 && limit.commit_ms > 0.0);
}

#[test]
fn the_raw_limit_is_measured_on_the_products_own_schema() {
    let (n_tasks, per_commit) = sizes();
    let dir = tempfile::tempdir().unwrap();
    let limit = sqlite::raw_limit(dir.path(), n_tasks, per_commit).unwrap();
    println!("{limit:?}");
    assert!(limit.cycles_per_s > 0.0 && limit.fsync_ms > 0.0);
}
