//! When a message is tried again: soon at first, then less and less often, for a day.
//!
//! | after the try | the next comes in |
//! |---|---|
//! | 1 | 5 s |
//! | 2 | 30 s |
//! | 3 | 2 min |
//! | 4 | 10 min |
//! | 5 | 30 min |
//! | 6 | 1 h |
//! | 7 | 2 h |
//! | 8 and more | 4 h |
//!
//! Each varies by a tenth, derived from the message, so that those which failed together do not come back together. That
//! makes about thirteen tries in 24 hours. A receiver that says `Retry-After` is believed, from one second to four
//! hours. The last try is at the end of the day, never after it.

use runyard_core::hash::mix;
use runyard_core::now::WallMs;
use runyard_core::outbox::DeliveryId;

/// From what happened, or from its replay.
pub const PATIENCE_MS: u64 = 24 * 3_600_000;

const WAITS_MS: [u64; 8] =
    [5_000, 30_000, 2 * MINUTE, 10 * MINUTE, 30 * MINUTE, 60 * MINUTE, 120 * MINUTE, 240 * MINUTE];
const MINUTE: u64 = 60_000;
const RETRY_AFTER_MS: std::ops::RangeInclusive<u64> = 1000..=240 * MINUTE;
/// So near the end of the day another try would be the last one again.
const LAST_TRY_MS: u64 = 1000;

/// After `n_tries` tries; `None` when patience is over.
pub fn next_try(
    id: DeliveryId,
    n_tries: u32,
    since_ms: WallMs,
    now_ms: WallMs,
    asked_ms: Option<u64>,
) -> Option<WallMs> {
    let end_ms = since_ms.saturating_add(PATIENCE_MS);
    if now_ms.saturating_add(LAST_TRY_MS) > end_ms {
        return None;
    }
    let at = (n_tries.max(1) as usize - 1).min(WAITS_MS.len() - 1);
    let wait_ms = match asked_ms {
        Some(asked_ms) => asked_ms.clamp(*RETRY_AFTER_MS.start(), *RETRY_AFTER_MS.end()),
        None => varied(WAITS_MS[at], id, n_tries),
    };
    Some((now_ms + wait_ms).min(end_ms))
}

/// Up to a tenth less or more.
fn varied(wait_ms: u64, id: DeliveryId, n: u32) -> u64 {
    let tenth = wait_ms / 10;
    wait_ms - tenth + spread(id, n, 2 * tenth + 1)
}

/// A number below `range`, always the same for the same message and try.
pub fn spread(id: DeliveryId, n: u32, range: u64) -> u64 {
    mix(mix(id.0) ^ u64::from(n)) % range.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All tries of a message that nobody takes, as times since it was written.
    fn tries(id: u64, asked_ms: Option<u64>) -> Vec<u64> {
        let mut at = vec![0];
        while let Some(next) = next_try(DeliveryId(id), at.len() as u32, 0, at[at.len() - 1], asked_ms) {
            at.push(next);
        }
        at
    }

    #[test]
    fn a_message_is_tried_for_a_day() {
        for id in 0..200 {
            let at = tries(id, None);
            assert!((13..=14).contains(&at.len()), "{at:?}");
            assert_eq!(at.last(), Some(&PATIENCE_MS));
            assert!((4_500..=5_500).contains(&at[1]), "{at:?}");
            assert!((27_000..=33_000).contains(&(at[2] - at[1])), "{at:?}");
            assert!(at.is_sorted_by(|a, b| a < b));
        }
    }

    #[test]
    fn messages_that_failed_together_do_not_come_back_together() {
        let first: std::collections::BTreeSet<u64> = (0..100).map(|id| tries(id, None)[1]).collect();
        assert!(first.len() > 80, "{} different moments", first.len());
    }

    #[test]
    fn a_receivers_own_word_counts_within_bounds() {
        let next = |asked_ms| next_try(DeliveryId(1), 1, 0, 1000, Some(asked_ms));
        assert_eq!(next(90_000), Some(91_000));
        assert_eq!(next(0), Some(2000));
        assert_eq!(next(u64::MAX), Some(1000 + 240 * MINUTE));
        assert_eq!(next_try(DeliveryId(1), 9, 0, PATIENCE_MS - 5000, Some(90_000)), Some(PATIENCE_MS));
        assert_eq!(next_try(DeliveryId(1), 9, 0, PATIENCE_MS, Some(1)), None);
    }
}
