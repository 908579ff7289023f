//! The simulator must be able to find bugs: each planted one is found within 1000 seeds.
//!
//! `cargo test --release -p runyard-sim --features planted --test planted`

#![cfg(feature = "planted")]

use runyard_core::planted::Bug;
use runyard_sim::run::{Plan, run};

const SEEDS_MAX: u64 = 1000;

#[test]
fn each_planted_bug_is_found() {
    let mut missed = Vec::new();
    for bug in Bug::ALL {
        let plan = Plan { bug: Some(bug), n_seeds: SEEDS_MAX, n_findings: 1, ..Plan::from_env(SEEDS_MAX, 2000) };
        match run(plan).first() {
            Some(finding) => {
                let what = finding.what.lines().nth(1).unwrap_or_default();
                println!("{bug:?}: seed {}, step {}: {what:.150}", finding.seed, finding.step);
            }
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found within {SEEDS_MAX} seeds: {missed:?}");
}

#[test]
fn nothing_is_found_where_nothing_is_planted() {
    let findings = run(Plan { n_seeds: 20, ..Plan::from_env(20, 1000) });
    assert!(findings.is_empty(), "{}", findings[0]);
}
