//! The repository's own commands: `cargo xtask test` is the one test command, `cargo xtask soak` the long one.
//!
//! Each sets up all it needs on a fresh machine, shows what it runs, and closes with a line `N passed, M failed`.

#![forbid(unsafe_code)]

mod conform;
mod count;
mod depend;
mod setup;
mod spdx;
mod step;

use std::process::ExitCode;

use crate::step::{Outcome, Step};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let steps = match words[..] {
        ["test"] => test_steps(),
        ["soak"] => [soak_steps(), postgres_soak_steps()].into_iter().flatten().collect(),
        ["soak", "--store", "postgres"] => postgres_soak_steps(),
        ["conform"] => return conform::conform(),
        ["depend"] => return depend::depend(),
        _ => {
            eprintln!("usage: cargo xtask test | soak [--store postgres] | conform | depend");
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
        Step::tests("dependencies and unsafe code", "cargo xtask depend"),
        Step::check("without its features", "cargo check --quiet -p runyard --no-default-features"),
        Step::tests("tests and simulator", "cargo test --workspace --no-fail-fast"),
        Step::tests("the API against its description", "cargo xtask conform"),
        // For the whole workspace too, so that the dependencies built above are used as they are.
        Step::tests("planted bugs", "cargo test --workspace --features runyard-sim/planted --test planted"),
    ]
}

fn soak_steps() -> Vec<Step> {
    vec![
        Step::tests("simulator, 50 000 seeds", "cargo test --release -p runyard-sim").env("RUNYARD_SIM_SEEDS", "50000"),
        Step::tests("parsers, 50 000 inputs each", "cargo test --release --workspace --lib --bins fuzz")
            .env("PROPTEST_CASES", "50000"),
        // A filter is about names of tests, not of files: these are whole files of them.
        Step::tests("files and requests, 10 000 each", "cargo test --release --workspace --test fuzz*")
            .env("PROPTEST_CASES", "10000"),
        Step::tests("the API against its description, 200 requests each", "cargo xtask conform")
            .env(conform::EXAMPLES_ENV, "200"),
        Step::tests("kill -9, 1000 times", "cargo test --release -p runyard --test kill").env("RUNYARD_KILLS", "1000"),
        Step::tests("chaos, 10 minutes", "cargo test --release -p runyard --test chaos -- --nocapture")
            .env("RUNYARD_CHAOS_SECONDS", "600"),
        Step::tests("kill -9 while delivering, 1000 times", "cargo test --release -p runyard --test webhook_kill")
            .env("RUNYARD_KILLS", "1000"),
        Step::tests(
            "kill -9 when schedules are due, 300 times",
            "cargo test --release -p runyard --test schedule_kill",
        )
        .env("RUNYARD_KILLS", "300"),
        // Too long to build for every test; without a database of advisories, which is not there without a network.
        Step::check("cargo-deny", "cargo install cargo-deny --quiet --locked --root target/tools"),
        Step::check(
            "licences, bans and sources",
            "target/tools/bin/cargo-deny --log-level error check licenses bans sources",
        ),
        // Both ends of each connection are in one process, and often it may have no more than 20 000 files open.
        Step::tests("9 900 workers that wait", "cargo test --release -p runyard-server --test worker_polls")
            .env("RUNYARD_POLLS", "9900"),
        Step::check(
            "10 000 clients that wait, ten times too many submits, 100 000 schedules",
            "cargo run --release -p runyard -- bench --only edge,schedules --strict",
        ),
    ]
}

/// Half an hour each, unless `RUNYARD_SOAK_SECONDS` and `RUNYARD_NODES_SECONDS` say otherwise.
fn postgres_soak_steps() -> Vec<Step> {
    vec![
        Step::tests(
            "PostgreSQL beside a reader that stays, 30 minutes",
            "cargo test --release -p runyard --test soak_postgres -- --nocapture",
        )
        .env("RUNYARD_SOAK_SECONDS", "1800"),
        Step::tests(
            "three nodes and everything that can happen to them, 30 minutes",
            "cargo test --release -p runyard --test three_nodes -- --nocapture",
        )
        .env("RUNYARD_NODES_SECONDS", "1800"),
    ]
}
