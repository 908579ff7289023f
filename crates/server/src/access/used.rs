//! When each key was last used. A request only touches memory; what is stored is written once a minute at most, and only
//! when a key was used in a minute that is not stored yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::keys::KeyRing;

/// The store's document that holds the moments.
pub const USED_SETTING: &str = "keys.used";

const MINUTE_MS: u64 = 60_000;

/// To the minute; shared by all copies of the key.
#[derive(Clone, Debug, Default)]
pub struct LastUsed(Arc<AtomicU64>);

impl LastUsed {
    pub fn mark(&self, now_ms: u64) {
        let minute = now_ms - now_ms % MINUTE_MS;
        // Read first: all requests of a minute but one leave the cache line where it is.
        if self.0.load(Ordering::Relaxed) < minute {
            self.0.fetch_max(minute, Ordering::Relaxed);
        }
    }

    pub fn at_ms(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }
}

impl PartialEq for LastUsed {
    fn eq(&self, other: &LastUsed) -> bool {
        self.at_ms() == other.at_ms()
    }
}

/// What is stored, by key.
pub type Used = BTreeMap<String, u64>;

impl KeyRing {
    pub fn used(&self) -> Used {
        self.keys().iter().filter_map(|key| Some((key.id.clone(), key.last_used.at_ms()?))).collect()
    }

    /// After a start; a document that cannot be read is worth no more than a missing one.
    pub fn recall(&self, stored: Option<&[u8]>) {
        self.mark(&stored.and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default());
    }

    /// As somebody else knows it; the later moment counts.
    pub fn mark(&self, used: &Used) {
        for key in self.keys() {
            used.get(&key.id).into_iter().for_each(|at_ms| key.last_used.mark(*at_ms));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::NewKey;
    use super::super::scope::Scope;
    use super::*;

    #[test]
    fn a_use_is_known_to_the_minute_and_over_a_restart() {
        let mut ring = KeyRing::default();
        let new = |id: &str| NewKey {
            id: id.into(),
            name: "n".into(),
            scopes: vec![Scope::Read],
            agents: None,
            created_at_ms: 1,
        };
        let (_, text) = ring.add(new("a")).expect("added");
        ring.add(new("b")).expect("added");
        assert!(ring.used().is_empty());
        let copy = ring.clone();
        ring.find(&text).expect("known").last_used.mark(125_000);
        assert_eq!(copy.used(), Used::from([("a".into(), 120_000)]), "copies of the ring share it");
        ring.find(&text).expect("known").last_used.mark(61_000);
        assert_eq!(ring.used()["a"], 120_000, "it never goes back");
        let stored = serde_json::to_vec(&ring.used()).expect("plain data");
        let next = KeyRing::from_json(&ring.to_json()).expect("keys");
        next.recall(Some(&stored));
        assert_eq!(next.used(), ring.used());
        next.recall(Some(b"no JSON"));
        assert_eq!(next.used(), ring.used());
    }
}
