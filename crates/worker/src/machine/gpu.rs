//! GPUs, where `nvidia-smi` is installed.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

const PROGRAM: &str = "nvidia-smi";
const QUERY: [&str; 2] = ["--query-gpu=name,utilization.gpu,memory.free", "--format=csv,noheader,nounits"];
/// As often as a worker tells how it is.
const EVERY: Duration = Duration::from_secs(10);

#[derive(Clone, PartialEq, Debug)]
pub struct Gpu {
    pub name: String,
    /// Percent.
    pub usage: Option<f64>,
    pub memory_free_mb: Option<u64>,
}

/// A driver that hangs holds up the thread that asks it, and nobody else.
pub(super) struct GpuWatch {
    last: Arc<Mutex<Vec<Gpu>>>,
}

impl GpuWatch {
    /// `None` where there is nobody to ask.
    pub(super) fn start() -> Option<GpuWatch> {
        let program = find()?;
        let last = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::downgrade(&last);
        std::thread::Builder::new().name("runyard-gpu".to_owned()).spawn(move || watch(&program, &told)).ok()?;
        Some(GpuWatch { last })
    }

    pub(super) fn last(&self) -> Vec<Gpu> {
        self.last.lock().expect("no thread panics while it holds this").clone()
    }
}

fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(PROGRAM)).find(|program| program.is_file())
}

/// Until nobody wants to know any more.
fn watch(program: &PathBuf, told: &Weak<Mutex<Vec<Gpu>>>) {
    loop {
        let asked = Command::new(program).args(QUERY).stdin(Stdio::null()).stderr(Stdio::null()).output();
        let gpus = asked.ok().filter(|answer| answer.status.success());
        let gpus = gpus.map(|answer| parse(&String::from_utf8_lossy(&answer.stdout))).unwrap_or_default();
        let Some(last) = told.upgrade() else { return };
        *last.lock().expect("no thread panics while it holds this") = gpus;
        drop(last);
        std::thread::sleep(EVERY);
    }
}

/// One line for each: name, percent, MiB. What a card does not tell is `[N/A]`.
fn parse(answer: &str) -> Vec<Gpu> {
    let lines = answer.lines().map(|line| line.rsplitn(3, ',').map(str::trim).collect::<Vec<_>>());
    let gpu = |words: Vec<&str>| match words[..] {
        [free, usage, name] if !name.is_empty() => {
            Some(Gpu { name: name.to_owned(), usage: usage.parse().ok(), memory_free_mb: free.parse().ok() })
        }
        _ => None,
    };
    lines.filter_map(gpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_does_not_tell_has_a_name_at_least() {
        let gpus = parse("NVIDIA A100-SXM4, 40GB, 37, 20301\nTesla T4, [N/A], [N/A]\n\nnonsense\n");
        let expected = [
            Gpu { name: "NVIDIA A100-SXM4, 40GB".into(), usage: Some(37.0), memory_free_mb: Some(20_301) },
            Gpu { name: "Tesla T4".into(), usage: None, memory_free_mb: None },
        ];
        assert_eq!(gpus, expected);
    }
}
