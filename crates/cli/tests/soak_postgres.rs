//! A steady load on PostgreSQL beside a transaction that stays open for minutes, as a report or a backup has one: dead rows
//! cannot be removed while it is there, and still neither they nor the time of a submit may grow from cycle to cycle.
//!
//! In the test command a few seconds of it, which show that it measures something. `cargo xtask soak --store postgres` runs
//! it for half an hour; `RUNYARD_SOAK_SECONDS` says how long.

#![allow(clippy::unwrap_used)]

mod cluster;
mod support;

#[path = "soak_postgres/load.rs"]
mod load;
#[path = "soak_postgres/samples.rs"]
mod samples;

use std::time::{Duration, Instant};

use cluster::{CONFIG, Cluster, Plan, Site, Transaction};
use load::Load;
use runyard_testbed::Options;
use samples::Sample;
use support::wait_until;

const SECONDS: u64 = 18;
/// Of the whole time. A multiple of three, so that all thirds are alike.
const SAMPLES: u32 = 30;
const READERS: u32 = 9;
const PER_SECOND: u64 = 200;
const QUIET: &str = "[log]\nlevel = \"warn\"\n";
/// It sees the database as it was when it began, so what was then alive must be kept for it.
const READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class;";

#[test]
fn neither_dead_rows_nor_latency_grow_beside_a_reader_that_stays() {
    let seconds = std::env::var("RUNYARD_SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SECONDS);
    let length = Duration::from_secs(seconds);
    let cluster = Cluster::start(Plan {
        sites: vec![Site::on_loopback("node-1")],
        url: &str::to_owned,
        config: &format!("{CONFIG}{QUIET}"),
        postgres: Options { fsync: true, ..Options::default() },
    });
    let load = Load::start(cluster.nodes[0].client(), PER_SECOND);
    // What is new is not like what follows: connections, plans, pages.
    wait_until(cluster::SOON, "the load is under way", || load.n_accepted() >= PER_SECOND);
    load.take_latencies();
    let samples = observe(&cluster, &load, length);
    let n_accepted = load.end();
    wait_until(cluster::SOON, "all that was accepted has completed", || {
        cluster.get(0, "/v1/stats")["metrics"]["completed"] == n_accepted
    });
    let n_wanted = PER_SECOND * seconds;
    assert!(n_accepted * 10 >= n_wanted * 9, "{n_accepted} of {n_wanted} tasks: the load was not kept up");
    samples::stay_flat(&samples);
}

/// Reader after reader, and a look at regular moments.
fn observe(cluster: &Cluster, load: &Load, length: Duration) -> Vec<Sample> {
    let began = Instant::now();
    let mut samples = Vec::new();
    let mut reader = Transaction::begin(cluster.url(), READ);
    let mut n_readers = 1;
    for n in 1..=SAMPLES {
        let due = began + length * n / SAMPLES;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let sample = Sample::take(cluster, load, began.elapsed());
        println!("{sample}");
        samples.push(sample);
        if began.elapsed() >= length * n_readers / READERS && n < SAMPLES {
            reader.end();
            reader = Transaction::begin(cluster.url(), READ);
            n_readers += 1;
        }
    }
    reader.end();
    samples
}
