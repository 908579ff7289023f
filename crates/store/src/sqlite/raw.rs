//! The store's own limit on SQLite; see [`crate::raw`].

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Instant;

use super::connect::Options;
use super::store::SqliteStore;
use crate::raw::cycles_per_s;
use crate::store::{Error, Result, Store};

#[derive(Clone, Copy, Debug)]
pub struct RawLimit {
    /// Tasks inserted (submit and start share a commit) and finished in the next commit.
    pub cycles_per_s: f64,
    /// One small write made durable, at the median.
    pub fsync_ms: f64,
}

/// Runs `n_tasks` through a fresh store in `dir`, `per_commit` rows in each commit.
pub fn raw_limit(dir: &Path, n_tasks: usize, per_commit: usize) -> Result<RawLimit> {
    let fsync_ms = fsync_ms(&dir.join("raw_limit.fsync"))?;
    let path = dir.join("raw_limit.db");
    let mut store = SqliteStore::open(&path, Options::default())?;
    let meta = store.load(1)?.meta;
    Ok(RawLimit { cycles_per_s: cycles_per_s(&mut store, meta, n_tasks, per_commit)?, fsync_ms })
}

/// Overwrites one block again and again, as the log does.
fn fsync_ms(path: &Path) -> Result<f64> {
    let measure = || -> std::io::Result<f64> {
        let mut file = std::fs::File::create(path)?;
        file.write_all(&[0; 4096])?;
        file.sync_all()?;
        let mut times = Vec::new();
        for _ in 0..FSYNCS {
            let begin = Instant::now();
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&[1; 4096])?;
            file.sync_data()?;
            times.push(begin.elapsed().as_secs_f64() * 1000.0);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[FSYNCS / 2])
    };
    measure().map_err(|source| Error::Driver { doing: "measuring an fsync", source: source.into() })
}

const FSYNCS: usize = 51;
