//! Average and percentiles in a few hundred bytes: buckets that grow by a quarter of a power of two, so that a
//! percentile is off by at most a fifth, whatever was measured.

use std::sync::atomic::{AtomicU64, Ordering};

/// Four for each power of two.
const BUCKETS: usize = 64 * 4;

pub struct LogHistogram {
    buckets: [AtomicU64; BUCKETS],
    n: AtomicU64,
    sum: AtomicU64,
}

impl Default for LogHistogram {
    fn default() -> Self {
        LogHistogram { buckets: [const { AtomicU64::new(0) }; BUCKETS], n: AtomicU64::new(0), sum: AtomicU64::new(0) }
    }
}

impl LogHistogram {
    pub fn observe(&self, value: u64) {
        self.buckets[bucket_of(value)].fetch_add(1, Ordering::Relaxed);
        self.n.fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// `None` until something was observed.
    pub fn average(&self) -> Option<f64> {
        let n = self.n.load(Ordering::Relaxed);
        (n > 0).then(|| self.sum.load(Ordering::Relaxed) as f64 / n as f64)
    }

    /// The value that this part (0.99) of all observations did not exceed.
    pub fn percentile(&self, part: f64) -> Option<f64> {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        if total == 0 {
            return None;
        }
        let wanted = (total as f64 * part).ceil() as u64;
        let mut seen = 0;
        let at = counts.iter().position(|n| {
            seen += n;
            seen >= wanted
        });
        at.map(|at| top_of(at) as f64)
    }
}

/// Values below 4 have a bucket each; above, the two bits after the leading one pick one of four.
fn bucket_of(value: u64) -> usize {
    if value < 4 {
        return value as usize;
    }
    let exponent = 63 - value.leading_zeros() as usize;
    let quarter = (value >> (exponent - 2)) as usize & 3;
    (exponent - 1) * 4 + quarter
}

/// The greatest value that falls into this bucket.
fn top_of(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let (exponent, quarter) = (bucket / 4 + 1, bucket as u64 % 4);
    let step = 1u64 << (exponent - 2);
    ((1u64 << exponent) - 1) + (quarter + 1) * step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket() {
        for value in (0..5000).chain([1 << 20, u64::MAX / 3, u64::MAX]) {
            let at = bucket_of(value);
            assert!(value <= top_of(at), "{value} in {at}");
            assert!(at == 0 || value > top_of(at - 1), "{value} in {at}");
        }
    }

    #[test]
    fn percentiles_are_near() {
        let histogram = LogHistogram::default();
        assert_eq!((histogram.average(), histogram.percentile(0.99)), (None, None));
        (1..=1000).for_each(|value| histogram.observe(value));
        assert_eq!(histogram.average(), Some(500.5));
        let p99 = histogram.percentile(0.99).expect("observed");
        assert!((990.0..1200.0).contains(&p99), "{p99}");
        assert_eq!(histogram.percentile(0.001), Some(1.0));
    }
}
