//! The benchmark's yardstick runs and gives sane figures.

#![allow(clippy::unwrap_used)]

use runyard_store::sqlite::raw_limit;

#[test]
fn the_raw_limit_is_measured_on_the_products_own_schema() {
    let n_tasks = std::env::var("RUNYARD_RAW_TASKS").map_or(2000, |n| n.parse().unwrap());
    let per_commit = std::env::var("RUNYARD_RAW_PER_COMMIT").map_or(200, |n| n.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let limit = raw_limit(dir.path(), n_tasks, per_commit).unwrap();
    println!("{limit:?}");
    assert!(limit.cycles_per_s > 0.0 && limit.fsync_ms > 0.0);
}
