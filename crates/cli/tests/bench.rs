//! A small version of `runyard bench --store`: every figure is measured, on PostgreSQL, and nothing of it stays there. How
//! fast it is, is for a quiet machine to say.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use runyard_testbed::{Options, Postgres};
use serde_json::Value;

#[test]
fn every_headline_figure_is_measured_on_the_database_that_is_given_and_nothing_stays_there() {
    let postgres = Postgres::start_with(&Options { fsync: true, ..Options::default() });
    let url = postgres.fresh_database();
    let dir = tempfile::tempdir().unwrap();
    let output = assert_cmd::Command::new(env!("CARGO_BIN_EXE_runyard"))
        .args(["bench", "--json", "--tasks", "2000", "--seconds", "1", "--store", &url, "--dir"])
        .arg(dir.path())
        .timeout(Duration::from_secs(240))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let store = report["store"].as_str().unwrap();
    assert!(store.starts_with("PostgreSQL ") && store.contains("fsync on and synchronous_commit on"), "{store}");
    for name in ["raw: store alone", "raw: one row committed", "single submits", "batch submits", "full life", "idle:"]
    {
        let figures = report["figures"].as_array().unwrap();
        let figure = figures.iter().find(|figure| figure["name"].as_str().unwrap().starts_with(name));
        assert!(figure.is_some_and(|figure| figure["value"].as_f64().unwrap() > 0.0), "{name} in {report:#}");
    }
    let database = url.rsplit('/').next().unwrap();
    let left = postgres.sql(database, "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'bench%'");
    assert_eq!(left, "", "schemas of the bench");
    let tables = postgres.sql(database, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'");
    assert_eq!(tables, "0", "tables outside of them");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "files");
}
