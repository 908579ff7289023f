//! What is looked at, and what may not grow.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::load::Load;

/// Of the issue: the last third against the first.
const GROWTH_MAX: f64 = 1.5;
/// What two quiet runs differ by on a machine that others use too.
const P50_NOISE: Duration = Duration::from_millis(2);
const P99_NOISE: Duration = Duration::from_millis(30);
/// A vacuum comes when it comes: a minute's worth of them is there or not.
const DEAD_NOISE: u64 = 40_000;

pub struct Sample {
    after: Duration,
    p50: Duration,
    p99: Duration,
    n_submits: usize,
    /// By table.
    dead: BTreeMap<String, u64>,
}

impl Sample {
    pub fn take(cluster: &Cluster, load: &Load, after: Duration) -> Sample {
        let latencies = load.take_latencies();
        assert!(!latencies.is_empty(), "no submit was answered since the last look, at {after:?}");
        let at = |percent: usize| latencies[(latencies.len() * percent / 100).min(latencies.len() - 1)];
        let rows = cluster.sql("SELECT relname, n_dead_tup FROM pg_stat_user_tables");
        let dead = rows.lines().map(|row| {
            let (table, n) = row.split_once('|').expect("two columns");
            (table.to_owned(), n.parse().expect("a number"))
        });
        Sample { after, p50: at(50), p99: at(99), n_submits: latencies.len(), dead: dead.collect() }
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let mut most: Vec<(&String, &u64)> = self.dead.iter().filter(|(_, n)| **n > 0).collect();
        most.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
        most.truncate(4);
        let Sample { after, p50, p99, n_submits, .. } = self;
        write!(f, "{after:>7.1?}: {n_submits} submits, p50 {p50:.1?}, p99 {p99:.1?}, dead rows {most:?}")
    }
}

pub fn stay_flat(samples: &[Sample]) {
    let third = samples.len() / 3;
    let (first, last) = (&samples[..third], &samples[samples.len() - third..]);
    for (name, of, noise) in
        [("p50", (|sample| sample.p50) as fn(&Sample) -> Duration, P50_NOISE), ("p99", |sample| sample.p99, P99_NOISE)]
    {
        let (before, after) = (median(first, of), median(last, of));
        println!("{name}: {before:.1?} in the first third, {after:.1?} in the last");
        assert!(after <= before.mul_f64(GROWTH_MAX) + noise, "{name} grew from {before:?} to {after:?}");
    }
    assert!(!samples[0].dead.is_empty(), "there are tables to look at");
    for table in samples[0].dead.keys() {
        let most =
            |part: &[Sample]| part.iter().filter_map(|sample| sample.dead.get(table)).copied().max().unwrap_or(0);
        let (before, after) = (most(first), most(last));
        println!("dead rows of {table}: at most {before} in the first third, {after} in the last");
        let limit = (before as f64 * GROWTH_MAX) as u64 + DEAD_NOISE;
        assert!(after <= limit, "dead rows of {table} grew from {before} to {after}");
    }
}

fn median(samples: &[Sample], of: fn(&Sample) -> Duration) -> Duration {
    let mut all: Vec<Duration> = samples.iter().map(of).collect();
    all.sort_unstable();
    all[all.len() / 2]
}
