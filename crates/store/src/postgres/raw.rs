//! The store's own limit on PostgreSQL; see [`crate::raw`].

use std::time::Instant;

use runyard_core::write::{Meta, WriteSet};

use super::connect::Options;
use super::store::PgStore;
use crate::raw::cycles_per_s;
use crate::store::{Result, Store};

#[derive(Clone, Copy, Debug)]
pub struct RawLimit {
    /// Tasks inserted (submit and start share a commit) and finished in the next commit.
    pub cycles_per_s: f64,
    /// One commit of one small row, at the median.
    pub commit_ms: f64,
}

/// Runs `n_tasks` through a database that is empty but for its schema, `per_commit` rows in each commit.
pub fn raw_limit(options: Options, n_tasks: usize, per_commit: usize) -> Result<RawLimit> {
    let mut store = PgStore::open(options)?;
    let meta = store.load(1)?.meta;
    let commit_ms = commit_ms(&mut store, meta)?;
    Ok(RawLimit { cycles_per_s: cycles_per_s(&mut store, meta, n_tasks, per_commit)?, commit_ms })
}

fn commit_ms(store: &mut PgStore, meta: Meta) -> Result<f64> {
    let writes = WriteSet { rates: vec![("raw".into(), 1)], meta, ..WriteSet::default() };
    let mut times = Vec::new();
    for _ in 0..COMMITS {
        let begin = Instant::now();
        store.commit(&writes)?;
        times.push(begin.elapsed().as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[COMMITS / 2])
}

const COMMITS: usize = 51;
