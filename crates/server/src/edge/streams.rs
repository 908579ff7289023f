//! Answers that stay open: event streams, followed logs, waits. Each costs a task and a few buffers, so they are counted:
//! in all, and for each key, so that none can take the places of everybody. They end when their key is revoked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use prometheus_client::metrics::gauge::Gauge;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::access::{Caller, KeyLabel, Scope};
use crate::problem::Error;

/// One in so many places is for keys with scope admin only: whoever has to look what is wrong can.
const RESERVE: u32 = 16;

pub struct Streams {
    open: Mutex<Open>,
    /// What `/metrics` tells of it.
    gauge: Gauge,
}

#[derive(Default)]
struct Open {
    total: u32,
    /// Only those with streams, so it is never larger than `total`.
    by_key: HashMap<String, OfKey>,
}

#[derive(Default)]
struct OfKey {
    n_open: u32,
    revoked: CancellationToken,
}

/// One open stream; it is counted until this is dropped.
pub struct StreamPass {
    streams: Arc<Streams>,
    key: Option<Arc<KeyLabel>>,
    revoked: CancellationToken,
}

impl Streams {
    pub fn new(gauge: Gauge) -> Arc<Streams> {
        Arc::new(Streams { open: Mutex::default(), gauge })
    }

    /// A key without scope admin has half of the places at most, and the last ones are not for it.
    pub fn enter(self: &Arc<Self>, caller: &Caller, limit: u32) -> Result<StreamPass, Error> {
        let mut open = self.lock();
        let key = caller.actor.key.clone();
        let with_key = key.as_ref().and_then(|key| open.by_key.get(&key.id)).map_or(0, |of_key| of_key.n_open);
        let reserve = (limit / RESERVE).max(1).min(limit.saturating_sub(1));
        let limits = [("in all", open.total, limit)];
        let shares = [("with this key", with_key, (limit / 2).max(1)), ("in all", open.total, limit - reserve)];
        let shares = if caller.scopes.allow(Scope::Admin) { &[][..] } else { &shares[..] };
        if let Some((whose, _, limit)) = limits.iter().chain(shares).find(|(_, n_open, limit)| n_open >= limit) {
            return Err(Error::TooManyStreams { limit: *limit, whose });
        }
        open.total += 1;
        self.gauge.set(open.total.into());
        let revoked = key.as_ref().map_or_else(CancellationToken::new, |key| open.enter_with(&key.id));
        drop(open);
        Ok(StreamPass { streams: self.clone(), key, revoked })
    }

    /// Ends what is open with other keys than these.
    pub fn keep(&self, is_known: impl Fn(&str) -> bool) {
        let open = self.lock();
        let revoked = open.by_key.iter().filter(|(key, _)| !is_known(key));
        revoked.for_each(|(_, of_key)| of_key.revoked.cancel());
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().expect("no thread panics while it counts")
    }
}

impl Open {
    fn enter_with(&mut self, key: &str) -> CancellationToken {
        let of_key = self.by_key.entry(key.to_owned()).or_default();
        of_key.n_open += 1;
        of_key.revoked.clone()
    }
}

impl StreamPass {
    /// Its key is no more.
    pub fn is_revoked(&self) -> bool {
        self.revoked.is_cancelled()
    }

    /// Returns when its key is revoked.
    pub fn revoked(&self) -> WaitForCancellationFutureOwned {
        self.revoked.clone().cancelled_owned()
    }
}

impl Drop for StreamPass {
    fn drop(&mut self) {
        let mut open = self.streams.lock();
        open.total -= 1;
        self.streams.gauge.set(open.total.into());
        let Some(key) = &self.key else { return };
        if let Some(of_key) = open.by_key.get_mut(&key.id) {
            of_key.n_open -= 1;
            if of_key.n_open == 0 {
                open.by_key.remove(&key.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Actor, Scopes};

    fn caller(key: &str, scope: Scope) -> Caller {
        let key = Some(Arc::new(KeyLabel { id: key.into(), name: key.into() }));
        Caller { scopes: Scopes::from_iter([scope]), actor: Actor { key, address: None }, ..Caller::default() }
    }

    #[test]
    fn streams_are_counted_while_they_are_open() {
        let streams = Streams::new(Gauge::default());
        let admin = caller("admin", Scope::Admin);
        let passes: Vec<_> = (0..3).map(|_| streams.enter(&admin, 3).unwrap()).collect();
        assert!(streams.enter(&admin, 3).is_err());
        assert!(streams.enter(&admin, 4).is_ok(), "a raised limit holds at once");
        drop(passes);
        assert_eq!((streams.gauge.get(), streams.lock().by_key.len()), (0, 0));
    }

    #[test]
    fn a_key_has_half_of_them_and_the_last_are_for_admins() {
        let streams = Streams::new(Gauge::default());
        let fill = |key: &str| {
            let caller = caller(key, Scope::Read);
            std::iter::from_fn(|| streams.enter(&caller, 32).ok()).take(100).collect::<Vec<_>>()
        };
        let (a, b) = (fill("a"), fill("b"));
        assert_eq!((a.len(), b.len(), fill("c").len()), (16, 14, 0));
        let admins: Vec<_> = (0..2).map(|_| streams.enter(&caller("admin", Scope::Admin), 32).unwrap()).collect();
        assert!(streams.enter(&caller("admin", Scope::Admin), 32).is_err());
        drop((a, admins));
        assert_eq!(fill("c").len(), 16);
        drop(b);
        assert!(streams.enter(&caller("a", Scope::Read), 1).is_ok(), "the only place is for whoever comes");
    }

    #[test]
    fn a_revoked_key_loses_its_streams_and_no_others() {
        let streams = Streams::new(Gauge::default());
        let (a, b) = (caller("a", Scope::Read), caller("b", Scope::Read));
        let passes = [&a, &a, &b].map(|caller| streams.enter(caller, 100).unwrap());
        streams.keep(|key| key == "b");
        assert_eq!(passes.each_ref().map(StreamPass::is_revoked), [true, true, false]);
    }
}
