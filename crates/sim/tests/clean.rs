//! The scheduler as it is: no seed may find anything.

use runyard_sim::run::{Plan, run};

#[test]
fn invariants_hold_in_every_step_of_every_seed() {
    let finding = run(Plan::from_env(2000, 2000));
    assert!(finding.is_none(), "{}", finding.map(|finding| finding.to_string()).unwrap_or_default());
}
