//! Token buckets, one for each key and each address that asks.
//!
//! A bucket is one number: the moment at which it is full again. A full one says nothing, so it need not be kept: the tables
//! are bounded, and what does not fit shares one bucket.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::address::group;
use crate::config::RateLimit;
use crate::problem::Error;

/// Keys and addresses with a bucket that is not full. 48 bytes each.
const BUCKETS_MAX: usize = 20_000;
/// A crowded table is looked through at most so often.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

pub struct RateLimits {
    began: Instant,
    by_key: Buckets<String>,
    by_address: Buckets<IpAddr>,
}

impl Default for RateLimits {
    fn default() -> Self {
        RateLimits { began: Instant::now(), by_key: Buckets::default(), by_address: Buckets::default() }
    }
}

impl RateLimits {
    pub fn address(&self, address: IpAddr, limit: &RateLimit) -> Result<(), Error> {
        let Some(per_second) = limit.per_address else { return Ok(()) };
        let rate = Rate { per_second, burst_seconds: limit.burst_seconds };
        let taken = self.by_address.take(group(address), rate, self.began.elapsed());
        taken.map_err(|wait| Error::RateLimited { whose: "address", per_second, wait })
    }

    pub fn key(&self, id: &str, limit: &RateLimit) -> Result<(), Error> {
        let Some(per_second) = limit.per_key else { return Ok(()) };
        let rate = Rate { per_second, burst_seconds: limit.burst_seconds };
        let taken = self.by_key.take(id.to_owned(), rate, self.began.elapsed());
        taken.map_err(|wait| Error::RateLimited { whose: "key", per_second, wait })
    }
}

#[derive(Clone, Copy)]
struct Rate {
    per_second: u32,
    burst_seconds: u32,
}

impl Rate {
    /// Takes one from a bucket that is full again at `full_at`; gives the new moment, or how long until there is one to take.
    fn take(self, full_at: Duration, now: Duration) -> Result<Duration, Duration> {
        let each = Duration::from_secs(1) / self.per_second;
        let filled = full_at.max(now) + each;
        match filled.checked_sub(now + Duration::from_secs(self.burst_seconds.into())) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => Ok(filled),
        }
    }
}

struct Buckets<K> {
    table: Mutex<Table<K>>,
}

struct Table<K> {
    full_at: HashMap<K, Duration>,
    /// Of all who found no room.
    crowd_full_at: Duration,
    swept_at: Duration,
}

impl<K> Default for Buckets<K> {
    fn default() -> Self {
        let table = Table { full_at: HashMap::new(), crowd_full_at: Duration::ZERO, swept_at: Duration::ZERO };
        Buckets { table: Mutex::new(table) }
    }
}

impl<K: Eq + Hash> Buckets<K> {
    fn take(&self, key: K, rate: Rate, now: Duration) -> Result<(), Duration> {
        let mut table = self.table.lock().expect("no thread panics while it counts");
        if table.full_at.len() >= BUCKETS_MAX && now >= table.swept_at + SWEEP_EVERY {
            table.swept_at = now;
            table.full_at.retain(|_, full_at| *full_at > now);
        }
        let has_room = table.full_at.len() < BUCKETS_MAX;
        let bucket = match table.full_at.get_mut(&key) {
            Some(bucket) => bucket,
            None if has_room => table.full_at.entry(key).or_insert(now),
            None => &mut table.crowd_full_at,
        };
        *bucket = rate.take(*bucket, now)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { per_second: 10, burst_seconds: 2 };

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_burst_passes_then_the_rate_binds() {
        let buckets = Buckets::default();
        let passed = (0..100).filter(|_| buckets.take("a", RATE, at(0)).is_ok()).count();
        assert_eq!(passed, 20);
        assert_eq!(buckets.take("a", RATE, at(0)), Err(at(100)));
        assert!(buckets.take("b", RATE, at(0)).is_ok(), "each has its own");
        assert!(buckets.take("a", RATE, at(100)).is_ok());
        assert_eq!(buckets.take("a", RATE, at(150)), Err(at(50)));
        let refilled = (0..100).filter(|_| buckets.take("a", RATE, at(60_000)).is_ok()).count();
        assert_eq!(refilled, 20, "and no more than a burst gathers");
    }

    #[test]
    fn the_table_does_not_grow_and_a_crowd_shares_one_bucket() {
        let buckets = Buckets::default();
        for n in 0..BUCKETS_MAX {
            assert!(buckets.take(n, RATE, at(0)).is_ok());
        }
        let passed = (0..100).filter(|n| buckets.take(BUCKETS_MAX + n, RATE, at(50)).is_ok()).count();
        assert_eq!((passed, buckets.table.lock().unwrap().full_at.len()), (20, BUCKETS_MAX));
        assert!(buckets.take(0, RATE, at(50)).is_ok(), "who has a bucket keeps it");
        assert!(buckets.take(usize::MAX, RATE, at(2000)).is_ok(), "full buckets are forgotten");
        assert_eq!(buckets.table.lock().unwrap().full_at.len(), 1);
    }
}
