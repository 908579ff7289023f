//! The scheduler as it is: no seed may find anything.

use runyard_sim::run::{Plan, run};

#[test]
fn invariants_hold_in_every_step_of_every_seed() {
    let findings = run(Plan::from_env(2000, 2000));
    let told: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "\n{}", told.join("\n"));
}
