//! The repository's own commands: `cargo xtask test` is the one test command, `cargo xtask soak` the long one.
//!
//! Each sets up all it needs on a fresh machine, shows what it runs, and closes with a line `N passed, M failed`.

mod count;
mod setup;
mod step;

use std::process::ExitCode;

use crate::step::{Outcome, Step};

fn main() -> ExitCode {
    let command = std::env::args().nth(1);
    let steps = match command.as_deref() {
        Some("test") => test_steps(),
        Some("soak") => soak_steps(),
        _ => {
            eprintln!("usage: cargo xtask test | soak");
            return ExitCode::from(2);
        }
    };
    if let Err(problem) = setup::prepare() {
        eprintln!("xtask: {problem}");
        println!("0 passed, 1 failed");
        return ExitCode::FAILURE;
    }
    let mut total = Outcome::default();
    for step in steps {
        total.add(step.run());
    }
    println!("{} passed, {} failed", total.n_passed, total.n_failed);
    if total.n_failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn test_steps() -> Vec<Step> {
    vec![
        Step::check("formatting", "cargo fmt --all --check"),
        Step::check("lints", "cargo clippy --workspace --all-targets --quiet -- -D warnings"),
        Step::tests("tests and simulator", "cargo test --workspace --no-fail-fast"),
        // For the whole workspace too, so that the dependencies built above are used as they are.
        Step::tests("planted bugs", "cargo test --workspace --features runyard-sim/planted --test planted"),
    ]
}

fn soak_steps() -> Vec<Step> {
    vec![
        Step::tests("simulator, 50 000 seeds", "cargo test --release -p runyard-sim").env("RUNYARD_SIM_SEEDS", "50000"),
        Step::tests("kill -9, 1000 times", "cargo test --release -p runyard --test kill").env("RUNYARD_KILLS", "1000"),
        Step::tests("chaos, 10 minutes", "cargo test --release -p runyard --test chaos -- --nocapture")
            .env("RUNYARD_CHAOS_SECONDS", "600"),
    ]
}
