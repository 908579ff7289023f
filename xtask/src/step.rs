//! One step: a command, shown and timed, with its tests counted.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::count;

#[derive(Default, Clone, Copy)]
pub struct Outcome {
    pub n_passed: u64,
    pub n_failed: u64,
}

impl Outcome {
    pub fn add(&mut self, other: Outcome) {
        self.n_passed += other.n_passed;
        self.n_failed += other.n_failed;
    }
}

pub struct Step {
    name: &'static str,
    command: &'static str,
    counts: Counts,
    env: Vec<(&'static str, &'static str)>,
}

/// What a step that succeeds adds to the total.
enum Counts {
    /// Itself, as one.
    One,
    /// The tests its runner reports.
    Reported,
}

impl Step {
    pub fn check(name: &'static str, command: &'static str) -> Step {
        Step { name, command, counts: Counts::One, env: Vec::new() }
    }

    pub fn tests(name: &'static str, command: &'static str) -> Step {
        Step { name, command, counts: Counts::Reported, env: Vec::new() }
    }

    pub fn env(mut self, key: &'static str, value: &'static str) -> Step {
        self.env.push((key, value));
        self
    }

    pub fn run(&self) -> Outcome {
        println!("── {}: {}", self.name, self.command);
        let began = Instant::now();
        let outcome = self.outcome();
        println!(
            "── {}: {} passed, {} failed in {:.0?}\n",
            self.name,
            outcome.n_passed,
            outcome.n_failed,
            began.elapsed()
        );
        outcome
    }

    fn outcome(&self) -> Outcome {
        let mut words = self.command.split_whitespace();
        let program = words.next().expect("a step names a program");
        // Whoever calls may ask for more or less of it.
        let env = self.env.iter().copied().filter(|(key, _)| std::env::var_os(key).is_none());
        let child = Command::new(program).args(words).envs(env).stdout(Stdio::piped()).spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(error) => {
                eprintln!("xtask: {program} cannot be started: {error}");
                return Outcome { n_passed: 0, n_failed: 1 };
            }
        };
        let stdout = child.stdout.take().expect("stdout is piped");
        let mut outcome = Outcome::default();
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            println!("{line}");
            if let (Counts::Reported, Some(reported)) = (&self.counts, count::test_result(&line)) {
                outcome.add(reported);
            }
        }
        let is_ok = child.wait().is_ok_and(|status| status.success());
        match (&self.counts, is_ok) {
            (Counts::One, true) => outcome.n_passed += 1,
            // A step that fails without a failed test (it did not build, it crashed) has still failed.
            (_, false) if outcome.n_failed == 0 => outcome.n_failed += 1,
            // A test step in which nothing ran tests nothing.
            (Counts::Reported, true) if outcome.n_passed == 0 => outcome.n_failed += 1,
            _ => {}
        }
        outcome
    }
}
