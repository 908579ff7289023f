//! The texts of `/proc`, and what is read from them.

/// Time of all cores together, in ticks of the kernel's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CpuTimes {
    busy: u64,
    total: u64,
}

/// Of `/proc/stat`. Time that a guest had is in the user's already.
pub(super) fn cpu_times(stat: &str) -> Option<CpuTimes> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let times: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).take(8).collect();
    let (idle, waiting) = (*times.get(3)?, times.get(4).copied().unwrap_or(0));
    let total = times.iter().sum::<u64>();
    Some(CpuTimes { busy: total - idle - waiting, total })
}

/// `None` when no time has passed, or when the counters were set back (a machine that was moved does that).
pub(super) fn usage_percent(before: CpuTimes, now: CpuTimes) -> Option<f64> {
    let total = now.total.checked_sub(before.total).filter(|total| *total > 0)?;
    // What waits for the disk may go down by itself, and with it the sum.
    let busy = now.busy.saturating_sub(before.busy).min(total);
    Some(busy as f64 / total as f64 * 100.0)
}

/// Of `/proc/meminfo`, in MiB.
pub(super) fn meminfo_mb(meminfo: &str, field: &str) -> Option<u32> {
    let rest = meminfo.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let kib: u64 = rest.trim().trim_end_matches("kB").trim().parse().ok()?;
    u32::try_from(kib / 1024).ok()
}

/// Of `/proc/loadavg`: runnable tasks over the last minute.
pub(super) fn load1(loadavg: &str) -> Option<f64> {
    loadavg.split_whitespace().next()?.parse().ok().filter(|load: &f64| load.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(line: &str) -> Option<CpuTimes> {
        cpu_times(&format!("{line}\ncpu0 1 2 3 4\nintr 5\n"))
    }

    #[test]
    fn usage_is_what_was_neither_idle_nor_waiting_for_the_disk() {
        let before = times("cpu  100 0 50 800 50 0 0 0 0 0").expect("times");
        let now = times("cpu  160 10 70 880 70 5 5 0 60 0").expect("times");
        // 100 busy (60 user, 10 nice, 20 system, 5 + 5 interrupts) of 200; the guest's 60 are in the user's.
        assert_eq!(usage_percent(before, now), Some(50.0));
    }

    #[test]
    fn no_time_and_counters_that_went_back_give_no_figure() {
        let before = times("cpu  100 0 50 800 50").expect("times");
        assert_eq!(usage_percent(before, before), None);
        assert_eq!(usage_percent(before, times("cpu  1 0 1 8 1").expect("times")), None);
        let less_waiting = times("cpu  100 0 50 900 10").expect("times");
        assert_eq!(usage_percent(before, less_waiting), Some(0.0));
    }

    #[test]
    fn texts_of_an_unknown_form_are_no_figures() {
        assert_eq!(times("cpu  1 2 3"), None);
        assert_eq!(cpu_times(""), None);
        assert_eq!(load1(""), None);
        assert_eq!(load1("NaN 1 2"), None);
        assert_eq!(meminfo_mb("MemFree: many kB\n", "MemFree"), None);
    }

    #[test]
    fn memory_is_in_whole_mib_and_load_is_the_first_figure() {
        let text = "MemTotal:       24576000 kB\nMemFree:         1024 kB\nMemAvailable:    2097151 kB\n";
        assert_eq!(meminfo_mb(text, "MemTotal"), Some(24_000));
        assert_eq!(meminfo_mb(text, "MemAvailable"), Some(2047));
        assert_eq!(meminfo_mb(text, "Mem"), None);
        assert_eq!(load1("5.13 4.97 3.92 6/302 9012\n"), Some(5.13));
    }
}
