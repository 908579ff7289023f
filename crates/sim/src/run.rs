//! Runs seeds, catches what they find, and says how to see it again.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, Once};

use runyard_core::planted::Bug;

use crate::scenario;
use crate::world::World;

#[derive(Clone, Debug)]
pub struct Finding {
    pub seed: u64,
    pub step: u64,
    pub what: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Finding { seed, step, what } = self;
        write!(f, "seed {seed}, step {step}: {what}\nagain: RUNYARD_SIM_SEED={seed} cargo test -p runyard-sim")
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub first_seed: u64,
    pub n_seeds: u64,
    pub n_steps: u64,
    pub n_threads: u64,
    /// Stop after so many findings.
    pub n_findings: usize,
    pub bug: Option<Bug>,
}

impl Plan {
    /// What the test runs: more with `RUNYARD_SIM_SEEDS` and `RUNYARD_SIM_STEPS`, one with `RUNYARD_SIM_SEED`.
    pub fn from_env(n_seeds: u64, n_steps: u64) -> Plan {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let one = number("RUNYARD_SIM_SEED");
        Plan {
            first_seed: one.unwrap_or(0),
            n_seeds: if one.is_some() { 1 } else { number("RUNYARD_SIM_SEEDS").unwrap_or(n_seeds) },
            n_steps: number("RUNYARD_SIM_STEPS").unwrap_or(n_steps),
            n_threads: number("RUNYARD_SIM_THREADS").unwrap_or(2),
            n_findings: number("RUNYARD_SIM_FINDINGS").unwrap_or(1) as usize,
            bug: None,
        }
    }
}

/// What was found before everybody stopped, by seed.
pub fn run(plan: Plan) -> Vec<Finding> {
    let next = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let findings: Mutex<Vec<Finding>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..plan.n_threads {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= plan.n_seeds {
                        return;
                    }
                    if let Some(finding) = run_seed(plan.first_seed + n, plan.n_steps, plan.bug) {
                        let mut findings = findings.lock().expect("nobody panics while it holds this");
                        findings.push(finding);
                        is_over.fetch_or(findings.len() >= plan.n_findings, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut findings = findings.into_inner().expect("nobody panics while it holds this");
    findings.sort_by_key(|finding| finding.seed);
    findings
}

/// One seed: its steps, then everything must drain. One in sixteen is run twice and must decide the same twice.
pub fn run_seed(seed: u64, n_steps: u64, bug: Option<Bug>) -> Option<Finding> {
    let is_recorded = seed.is_multiple_of(16);
    let first = match life(seed, n_steps, bug, is_recorded) {
        Ok(digest) => digest,
        Err(finding) => return Some(finding),
    };
    if !is_recorded {
        return None;
    }
    match life(seed, n_steps, bug, is_recorded) {
        Ok(second) if second == first => None,
        Ok(_) => Some(Finding { seed, step: n_steps, what: "the same seed decided otherwise the second time".into() }),
        Err(finding) => Some(finding),
    }
}

fn life(seed: u64, n_steps: u64, bug: Option<Bug>, is_recorded: bool) -> Result<Option<u64>, Finding> {
    let mut world = None;
    let lived = guarded(|| {
        let world = world.insert(World::new(seed, bug));
        if is_recorded {
            world.record();
        }
        for _ in 0..n_steps {
            world.step();
        }
        world.drain();
        if seed.is_multiple_of(8) {
            scenario::play(seed, bug);
        }
    });
    let step = world.as_ref().map_or(0, |world| world.n_steps);
    lived.map_err(|what| Finding { seed, step, what })?;
    Ok(world.and_then(|world| world.digest()))
}

/// Runs something that may panic, and gives the panic's words instead of printing them.
pub fn guarded(body: impl FnOnce()) -> Result<(), String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let is_caught =
                CAUGHT.with_borrow_mut(|caught| caught.as_mut().map(|words| *words = info.to_string()).is_some());
            if !is_caught {
                usual(info);
            }
        }));
    });
    CAUGHT.set(Some(String::new()));
    let result = catch_unwind(AssertUnwindSafe(body));
    let words = CAUGHT.take().unwrap_or_default();
    result.map_err(|_| words)
}

thread_local! {
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
}
