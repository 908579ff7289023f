//! The memory that request bodies may take while they are read and worked on: so much in all, and for each key a share, so
//! that none can take all of it. A body is counted as it arrives, so whoever announces much and sends nothing holds nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::access::{Caller, Scope};
use crate::problem::Error;

/// One in so many bytes is for keys with scope admin only: whoever has to look what is wrong can.
const RESERVE: u64 = 16;

#[derive(Default)]
pub struct Bodies {
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    total: u64,
    /// Only those that hold something.
    by_key: HashMap<String, u64>,
}

/// One body; what it takes is counted until this is dropped.
pub struct BodyPass {
    bodies: Arc<Bodies>,
    limit: u64,
    key: Option<String>,
    is_admin: bool,
    n_bytes: u64,
}

impl Bodies {
    pub fn enter(self: &Arc<Self>, caller: Option<&Caller>, limit: u64) -> BodyPass {
        let key = caller.and_then(|caller| caller.actor.key.as_ref()).map(|key| key.id.clone());
        let is_admin = caller.is_some_and(|caller| caller.scopes.allow(Scope::Admin));
        BodyPass { bodies: self.clone(), limit, key, is_admin, n_bytes: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("no thread panics while it counts")
    }
}

impl BodyPass {
    /// So many bytes more have arrived.
    pub fn grow(&mut self, n_bytes: u64) -> Result<(), Error> {
        let mut held = self.bodies.lock();
        let with_key = self.key.as_ref().and_then(|key| held.by_key.get(key)).copied().unwrap_or(0);
        let limits = [("in all", held.total, self.limit)];
        let shares =
            [("with this key", with_key, self.limit / 2), ("in all", held.total, self.limit - self.limit / RESERVE)];
        let shares = if self.is_admin { &[][..] } else { &shares[..] };
        if let Some((whose, _, limit)) = limits.iter().chain(shares).find(|(_, held, limit)| held + n_bytes > *limit) {
            return Err(Error::TooManyBodies { limit: *limit, whose });
        }
        held.total += n_bytes;
        self.n_bytes += n_bytes;
        if let Some(key) = &self.key {
            match held.by_key.get_mut(key) {
                Some(of_key) => *of_key += n_bytes,
                None => drop(held.by_key.insert(key.clone(), n_bytes)),
            }
        }
        Ok(())
    }
}

impl Drop for BodyPass {
    fn drop(&mut self) {
        if self.n_bytes == 0 {
            return;
        }
        let mut held = self.bodies.lock();
        held.total -= self.n_bytes;
        let Some(key) = &self.key else { return };
        if let Some(of_key) = held.by_key.get_mut(key) {
            *of_key -= self.n_bytes;
            if *of_key == 0 {
                held.by_key.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Actor, KeyLabel, Scopes};

    fn caller(key: &str, scope: Scope) -> Caller {
        let key = Some(Arc::new(KeyLabel { id: key.into(), name: key.into() }));
        Caller { scopes: Scopes::from_iter([scope]), actor: Actor { key, address: None }, ..Caller::default() }
    }

    #[test]
    fn a_key_has_half_of_the_bytes_and_the_last_are_for_admins() {
        let bodies = Arc::new(Bodies::default());
        let enter = |key: &str, scope| bodies.enter(Some(&caller(key, scope)), 320);
        let (mut a, mut more_of_a) = (enter("a", Scope::Submit), enter("a", Scope::Submit));
        assert!(a.grow(100).is_ok() && more_of_a.grow(60).is_ok());
        assert!(more_of_a.grow(1).is_err(), "half of them are gone");
        let mut b = enter("b", Scope::Submit);
        assert!(b.grow(140).is_ok() && b.grow(1).is_err(), "a sixteenth is kept");
        let mut admin = enter("admin", Scope::Admin);
        assert!(admin.grow(20).is_ok() && admin.grow(1).is_err());
        drop(more_of_a);
        assert!(a.grow(40).is_ok());
        drop((a, b, admin));
        let held = bodies.lock();
        assert_eq!((held.total, held.by_key.len()), (0, 0));
    }
}
