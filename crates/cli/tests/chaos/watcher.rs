//! Looks at the process table all the time, and knows nothing of what the scheduler believes: are there ever two live
//! copies of one task?

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::process::{self, Grounds, Process, Role};

const LOOK: Duration = Duration::from_millis(40);

#[derive(Default, Debug)]
pub struct Seen {
    pub n_looks: u64,
    /// Programs of tasks that were alive at once.
    pub n_commands_max: usize,
    pub doubles: Vec<String>,
}

pub fn watch(grounds: &Grounds, is_over: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    while !is_over.load(Ordering::Relaxed) {
        let processes = process::all(grounds);
        let n_commands = processes.iter().filter(|process| matches!(process.role, Role::Command { .. })).count();
        seen.n_looks += 1;
        seen.n_commands_max = seen.n_commands_max.max(n_commands);
        seen.doubles.extend(by_task(processes).into_iter().filter_map(|(task, all)| double(&task, all)));
        std::thread::park_timeout(LOOK);
    }
    seen
}

fn by_task(processes: Vec<Process>) -> BTreeMap<String, Vec<Process>> {
    let mut tasks: BTreeMap<String, Vec<Process>> = BTreeMap::new();
    for process in processes {
        if let Some(task) = process.task() {
            tasks.entry(task.to_owned()).or_default().push(process);
        }
    }
    tasks
}

/// A look takes time, and one copy may have ended before the other was born. But who is alive *after* the look was so when
/// the last one was seen.
fn double(task: &str, mut all: Vec<Process>) -> Option<String> {
    if !is_double(&all) {
        return None;
    }
    all.retain(Process::is_alive);
    is_double(&all).then(|| format!("task {task}: {all:?}"))
}

/// Two programs, or processes of two attempts.
fn is_double(all: &[Process]) -> bool {
    let n_commands = all.iter().filter(|process| matches!(process.role, Role::Command { .. })).count();
    let mut attempts: Vec<u32> = all.iter().filter_map(|process| process.attempt).collect();
    attempts.sort_unstable();
    attempts.dedup();
    n_commands > 1 || attempts.len() > 1
}
