//! One directory in one hierarchy: the files of version 1 and version 2 differ, what they do does not.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::machine::Version;
use crate::process::proc_table;

/// Of one round of the kernel's scheduler. Its own default.
const CPU_PERIOD_US: u64 = 100_000;
/// The least that version 1 takes: a hundredth of a core.
const CPU_QUOTA_US_MIN: u64 = 1000;
/// Freezing waits for processes to leave the kernel; what does not in this time is killed without.
const FREEZE_MAX: Duration = Duration::from_millis(500);
/// The kernel lets go of a group a moment after its last process is reaped.
const REMOVE_MAX: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(1);

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) version: Version,
    pub(super) dir: PathBuf,
    /// Where this process is while it is not inside.
    pub(super) home: PathBuf,
}

impl Place {
    /// Moves this thread (version 1) or this process (version 2, which moves no single threads) into the group.
    pub(super) fn enter(&self) -> io::Result<()> {
        self.put_self(&self.dir)
    }

    pub(super) fn leave(&self) -> io::Result<()> {
        self.put_self(&self.home)
    }

    fn put_self(&self, dir: &Path) -> io::Result<()> {
        let file = match self.version {
            Version::One => "tasks",
            Version::Two => "cgroup.procs",
        };
        // Zero stands for whoever writes it.
        write(&dir.join(file), "0")
    }

    pub(super) fn limit_cpu(&self, cores: f64) -> io::Result<()> {
        let quota = ((cores * CPU_PERIOD_US as f64) as u64).max(CPU_QUOTA_US_MIN);
        match self.version {
            Version::One => {
                self.write("cpu.cfs_period_us", &CPU_PERIOD_US.to_string())?;
                self.write("cpu.cfs_quota_us", &quota.to_string())
            }
            Version::Two => self.write("cpu.max", &format!("{quota} {CPU_PERIOD_US}")),
        }
    }

    /// Memory and swap together.
    pub(super) fn limit_ram(&self, bytes: u64) -> io::Result<()> {
        match self.version {
            Version::One => {
                self.write("memory.limit_in_bytes", &bytes.to_string())?;
                // It is there only where the kernel counts swap; elsewhere the group is kept from using it.
                self.write("memory.memsw.limit_in_bytes", &bytes.to_string())
                    .or_else(|_| self.write("memory.swappiness", "0"))
            }
            Version::Two => {
                self.write("memory.max", &bytes.to_string())?;
                match self.write("memory.swap.max", "0") {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    written => written,
                }
            }
        }
    }

    pub(super) fn limit_pids(&self, n: u32) -> io::Result<()> {
        self.write("pids.max", &n.to_string())
    }

    /// Processes that the kernel has killed to keep the limit of memory.
    pub(super) fn n_oom_kills(&self) -> u64 {
        let file = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        self.read(file).and_then(|text| value_of(&text, "oom_kill")).unwrap_or(0)
    }

    pub(super) fn can_kill(&self) -> bool {
        match self.version {
            Version::One => self.dir.join("freezer.state").exists(),
            Version::Two => true,
        }
    }

    /// Kills everything in it, at one blow where the kernel can. Frozen, nobody can fork meanwhile, and no process id
    /// can change its owner.
    pub(super) fn kill(&self) {
        // The usual end. Nobody is left to fork.
        if self.alive().is_empty() {
            return;
        }
        match self.version {
            Version::Two if self.write("cgroup.kill", "1").is_ok() => {}
            Version::Two => {
                let _ = self.write("cgroup.freeze", "1");
                self.kill_frozen(|| {
                    self.read("cgroup.events").is_some_and(|text| value_of(&text, "frozen") == Some(1))
                });
                let _ = self.write("cgroup.freeze", "0");
            }
            Version::One => {
                let _ = self.write("freezer.state", "FROZEN");
                self.kill_frozen(|| self.read("freezer.state").is_some_and(|state| state.trim() == "FROZEN"));
                let _ = self.write("freezer.state", "THAWED");
            }
        }
    }

    fn kill_frozen(&self, is_frozen: impl Fn() -> bool) {
        let give_up_at = Instant::now() + FREEZE_MAX;
        while !is_frozen() && Instant::now() < give_up_at {
            std::thread::sleep(LOOK);
        }
        for pid in pids_below(&self.dir) {
            // An error says that it has died meanwhile; the next look tells.
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Processes in it, and in groups they have made inside, that are more than a zombie.
    pub(super) fn alive(&self) -> Vec<i32> {
        let raw = pids_below(&self.dir).into_iter().map(|pid| pid.as_raw_nonzero().get());
        raw.filter(|pid| proc_table::stat(*pid).is_some_and(|stat| stat.is_alive)).collect()
    }

    /// With the groups that were made inside it, and the folder above if it was the last one there.
    pub(super) fn try_remove(&self) -> io::Result<()> {
        match remove_below(&self.dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        if let Some(folder) = self.dir.parent() {
            // It stays while another attempt is in it.
            let _ = fs::remove_dir(folder);
        }
        Ok(())
    }

    /// As [`Self::try_remove`], with some patience.
    pub(super) fn remove(&self) -> io::Result<()> {
        let give_up_at = Instant::now() + REMOVE_MAX;
        loop {
            match self.try_remove() {
                Err(_) if Instant::now() < give_up_at => std::thread::sleep(LOOK),
                removed => return removed,
            }
        }
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        write(&self.dir.join(file), text)
    }

    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.dir.join(file)).ok()
    }
}

/// The file must be there: nothing can be made in a hierarchy but directories.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

/// `name value`, one on each line.
fn value_of(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

fn pids_below(dir: &Path) -> Vec<Pid> {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    let mut pids: Vec<Pid> = text.lines().filter_map(|line| Pid::from_raw(line.trim().parse().ok()?)).collect();
    pids.extend(folders_in(dir).iter().flat_map(|folder| pids_below(folder)));
    pids
}

fn remove_below(dir: &Path) -> io::Result<()> {
    for folder in folders_in(dir) {
        remove_below(&folder)?;
    }
    fs::remove_dir(dir)
}

fn folders_in(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with the files that the kernel would show there.
    fn place(version: Version, files: &[&str]) -> (tempfile::TempDir, Place) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for file in files {
            fs::write(dir.path().join(file), "").expect("a file");
        }
        let place = Place { version, dir: dir.path().to_owned(), home: dir.path().to_owned() };
        (dir, place)
    }

    #[test]
    fn version_2_gets_its_own_words() {
        let files = ["cpu.max", "memory.max", "memory.swap.max", "pids.max", "memory.events"];
        let (_dir, place) = place(Version::Two, &files);
        place.limit_cpu(1.5).expect("written");
        place.limit_ram(64 << 20).expect("written");
        place.limit_pids(7).expect("written");
        let read = |file| place.read(file).expect("a file");
        assert_eq!(read("cpu.max"), "150000 100000");
        assert_eq!((read("memory.max"), read("memory.swap.max")), ("67108864".to_owned(), "0".to_owned()));
        assert_eq!(read("pids.max"), "7");
        place.write("memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 0\n").expect("written");
        assert_eq!(place.n_oom_kills(), 2);
    }

    #[test]
    fn a_kernel_that_counts_no_swap_is_no_error() {
        let (_dir, two) = place(Version::Two, &["memory.max"]);
        two.limit_ram(1 << 20).expect("written");
        let (_dir, one) = place(Version::One, &["memory.limit_in_bytes", "memory.swappiness"]);
        one.limit_ram(1 << 20).expect("written");
        assert_eq!(one.read("memory.swappiness").as_deref(), Some("0"));
        let (_dir, none) = place(Version::Two, &[]);
        assert!(none.limit_ram(1 << 20).is_err() && none.limit_cpu(1.0).is_err() && none.limit_pids(1).is_err());
    }

    #[test]
    fn the_smallest_share_is_one_that_the_kernel_takes() {
        let (_dir, place) = place(Version::One, &["cpu.cfs_period_us", "cpu.cfs_quota_us"]);
        place.limit_cpu(0.001).expect("written");
        assert_eq!(place.read("cpu.cfs_quota_us").as_deref(), Some("1000"));
    }
}
