//! What the machine has and how busy it is, as `/proc`, the file system and the GPU driver tell it.
//!
//! Nothing here waits: `/proc` answers at once, and a GPU driver is asked by a thread of its own, whose last answer
//! counts. A figure that this machine does not give is left out, never guessed.

mod gpu;
mod proc;

use std::path::{Path, PathBuf};

pub use gpu::Gpu;
use gpu::GpuWatch;
use proc::{CpuTimes, cpu_times, load1, meminfo_mb, usage_percent};
use runyard_wire::{GpuMetrics, MachineMetrics};

/// One look at the machine.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Sample {
    /// Percent over all cores since the look before; `None` at the first.
    pub cpu_usage: Option<f64>,
    pub ram_free_mb: Option<u32>,
    pub load1: Option<f64>,
    /// Of the file system that the data directory is on.
    pub disk_free_mb: Option<u64>,
    pub disk_total_mb: Option<u64>,
    pub gpus: Vec<Gpu>,
}

impl From<Sample> for MachineMetrics {
    fn from(sample: Sample) -> MachineMetrics {
        let gpu = |gpu: Gpu| GpuMetrics { name: gpu.name, usage: gpu.usage, memory_free_mb: gpu.memory_free_mb };
        MachineMetrics {
            cpu_usage: sample.cpu_usage,
            ram_free_mb: sample.ram_free_mb,
            load1: sample.load1,
            disk_free_mb: sample.disk_free_mb,
            disk_total_mb: sample.disk_total_mb,
            gpus: sample.gpus.into_iter().map(gpu).collect(),
        }
    }
}

pub struct Machine {
    data_dir: PathBuf,
    last: Option<CpuTimes>,
    gpus: Option<GpuWatch>,
}

impl Machine {
    pub fn new(data_dir: &Path) -> Machine {
        Machine { data_dir: data_dir.to_owned(), last: None, gpus: GpuWatch::start() }
    }

    pub fn look(&mut self) -> Sample {
        let times = read("/proc/stat").and_then(|text| cpu_times(&text));
        let cpu_usage = self.last.zip(times).and_then(|(before, now)| usage_percent(before, now));
        // Two looks within one tick of the kernel's clock say nothing; the next one is compared with the older.
        if cpu_usage.is_some() || self.last.is_none() {
            self.last = times;
        }
        let disk = rustix::fs::statvfs(&self.data_dir).ok();
        let mb = |blocks: u64, size: u64| blocks.saturating_mul(size) >> 20;
        Sample {
            cpu_usage,
            ram_free_mb: read("/proc/meminfo").and_then(|text| meminfo_mb(&text, "MemAvailable")),
            load1: read("/proc/loadavg").and_then(|text| load1(&text)),
            disk_free_mb: disk.as_ref().map(|disk| mb(disk.f_bavail, disk.f_frsize)),
            disk_total_mb: disk.as_ref().map(|disk| mb(disk.f_blocks, disk.f_frsize)),
            gpus: self.gpus.as_ref().map(GpuWatch::last).unwrap_or_default(),
        }
    }
}

/// All of the machine's memory.
pub fn ram_total_mb() -> Option<u32> {
    read("/proc/meminfo").and_then(|text| meminfo_mb(&text, "MemTotal"))
}

/// As many as this process may use.
pub fn n_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What the machine calls itself.
pub fn hostname() -> Option<String> {
    read("/proc/sys/kernel/hostname").map(|text| text.trim().to_owned()).filter(|name| !name.is_empty())
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_told_from_the_second_look_on_and_the_rest_at_once() {
        let mut machine = Machine::new(Path::new("/"));
        let first = machine.look();
        assert_eq!(first.cpu_usage, None);
        assert!(first.ram_free_mb.is_some_and(|free| free > 0 && Some(free) <= ram_total_mb()), "{first:?}");
        assert!(first.disk_free_mb <= first.disk_total_mb && first.disk_total_mb > Some(0), "{first:?}");
        // The kernel counts in hundredths of a second: looks go on until one has passed.
        let usage = std::iter::repeat_with(|| machine.look().cpu_usage).flatten().next();
        assert!(usage.is_some_and(|usage| (0.0..=100.0).contains(&usage)), "{usage:?}");
    }
}
