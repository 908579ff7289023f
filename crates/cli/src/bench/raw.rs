//! The store alone: what it can do with nothing of ours above it, and what one durable write takes.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use super::database::Database;
use super::lives::{IDLE_PAUSE, ms, percentile};
use super::place::Place;
use super::report::{Figure, Report, Store, Targets};

const TASKS: usize = 100_000;
const PER_COMMIT: usize = 200;
const DURABLE_WRITES: usize = 100;

/// What is measured.
pub async fn store(place: &Place) -> anyhow::Result<Store> {
    Ok(match place.database() {
        Some(database) => Store { name: database.described().await?, targets: POSTGRES },
        None => Store { name: "SQLite with synchronous=FULL".to_owned(), targets: SQLITE },
    })
}

const SQLITE: Targets = Targets { submits: 15_000.0, lives: 25_000.0, raw_percent: Some(40.0), idle_beside_ms: 1.0 };
const POSTGRES: Targets = Targets { submits: 8_000.0, lives: 20_000.0, raw_percent: None, idle_beside_ms: 1.5 };

pub async fn measure(place: &Place, report: &mut Report) -> anyhow::Result<()> {
    let place = place.join("raw");
    place.make().await?;
    match place.database() {
        Some(database) => of_postgres(database, report).await?,
        None => of_sqlite(place.dir(), report)?,
    }
    place.remove().await
}

fn of_sqlite(dir: &Path, report: &mut Report) -> anyhow::Result<()> {
    let raw = runyard_store::sqlite::raw_limit(dir, TASKS, PER_COMMIT)?;
    let fsync_ms = idle_fsync_ms(dir)?;
    add(report, raw.cycles_per_s, "one 4 KiB write and fdatasync", fsync_ms);
    Ok(())
}

async fn of_postgres(database: &Database, report: &mut Report) -> anyhow::Result<()> {
    let cycles_per_s = database.raw_limit(TASKS, PER_COMMIT).await?;
    let mut times = database.commits(DURABLE_WRITES, IDLE_PAUSE).await?;
    add(report, cycles_per_s, "one row committed", median_ms(&mut times));
    Ok(())
}

fn add(report: &mut Report, cycles_per_s: f64, durable: &str, durable_ms: f64) {
    report.raw_cycles = Some(cycles_per_s);
    report.durable_ms = Some(durable_ms);
    let name = format!("raw: store alone, insert + finish, {PER_COMMIT} a commit");
    report.add(Figure::new(name, cycles_per_s, "tasks/s"));
    report.add(Figure::new(format!("raw: {durable} on the idle machine, p50"), durable_ms, "ms"));
}

/// With the pauses of the idle latency: a disk and a processor that were just busy answer faster.
fn idle_fsync_ms(dir: &Path) -> anyhow::Result<f64> {
    let mut file = std::fs::File::create(dir.join("fsync"))?;
    let mut times = Vec::new();
    for _ in 0..DURABLE_WRITES {
        std::thread::sleep(IDLE_PAUSE);
        let began = Instant::now();
        file.write_all(&[0u8; 4096])?;
        file.sync_data()?;
        times.push(began.elapsed());
    }
    Ok(median_ms(&mut times))
}

fn median_ms(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    ms(percentile(times, 50))
}
