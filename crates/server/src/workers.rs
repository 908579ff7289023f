//! Workers on other machines, as the edge knows them: their keys, the session that is heard, and what they say of their
//! machines beyond what the scheduler decides by. Everything else of a worker is the scheduler's.

mod request;
mod view;

pub use request::{Offer, vitals};
pub use view::{counts, worker_view};

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use runyard_core::event::{Happening, HappeningKind, Subject};
use runyard_core::ids::WorkerId;
use runyard_core::name::Blob;
use runyard_core::worker::WorkerRow;
use runyard_wire::{Id, MachineMetrics};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

use crate::access::{self, Actor, Caller, KeyError, KeyLabel};

const PREFIX: &str = "ryw_";

/// Could this be the key of a worker?
pub fn is_key(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// What is kept with a worker's row beside what the scheduler needs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct About {
    pub key_hash: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl About {
    /// What cannot be read says nothing: such a worker has no key that would open anything.
    pub fn read(blob: &[u8]) -> About {
        serde_json::from_slice(blob).unwrap_or_default()
    }

    pub fn to_blob(&self) -> Blob {
        serde_json::to_vec(self).expect("texts are plain data").into()
    }
}

/// A fresh key, and the hash that is kept of it.
pub fn new_key() -> Result<(String, String), KeyError> {
    let key = access::random_key(PREFIX)?;
    let hash = access::hash(&key);
    Ok((key, hash))
}

/// A number that no other process of a worker was ever given.
pub fn new_session() -> Result<u64, KeyError> {
    let mut bytes = [0u8; 8];
    getrandom::fill(&mut bytes).map_err(|_| KeyError::NoRandomness)?;
    Ok(u64::from_le_bytes(bytes))
}

#[derive(Default)]
pub struct Roster {
    known: RwLock<Known>,
    /// Of this machine: the embedded worker has no card.
    here: RwLock<MachineMetrics>,
}

#[derive(Default)]
struct Known {
    cards: HashMap<WorkerId, Card>,
    by_hash: HashMap<String, WorkerId>,
}

struct Card {
    label: Arc<KeyLabel>,
    session: u64,
    about: About,
    metrics: MachineMetrics,
}

impl Roster {
    pub fn of(rows: Vec<WorkerRow>) -> Roster {
        let roster = Roster::default();
        rows.iter().for_each(|row| roster.put(row));
        roster
    }

    /// As the store has them now, which another node may have changed.
    pub fn replace(&self, rows: Vec<WorkerRow>) {
        let there: std::collections::HashSet<WorkerId> = rows.iter().map(|row| row.spec.id).collect();
        let gone: Vec<WorkerId> = self.read().cards.keys().filter(|id| !there.contains(id)).copied().collect();
        gone.into_iter().for_each(|id| self.remove(id));
        rows.iter().for_each(|row| self.put(row));
    }

    /// It has registered, for the first time or again.
    pub fn put(&self, row: &WorkerRow) {
        let mut known = self.known.write().expect("no thread panics while it holds the roster");
        let about = About::read(&row.about);
        let label = KeyLabel { id: Id(row.spec.id.0).to_string(), name: row.spec.name.to_string() };
        let earlier = known.cards.remove(&row.spec.id);
        if let Some(earlier) = &earlier {
            known.by_hash.remove(&earlier.about.key_hash);
        }
        known.by_hash.insert(about.key_hash.clone(), row.spec.id);
        let metrics = earlier.map(|card| card.metrics).unwrap_or_default();
        known.cards.insert(row.spec.id, Card { label: Arc::new(label), session: row.session, about, metrics });
    }

    pub fn knows(&self, worker: WorkerId) -> bool {
        self.read().cards.contains_key(&worker)
    }

    /// Whose key this is. Looked up by its hash; that the whole of it agrees is compared in constant time.
    pub fn caller(&self, presented: &str) -> Option<Caller> {
        let hash = access::hash(presented);
        let known = self.read();
        let worker = *known.by_hash.get(&hash)?;
        let card = known.cards.get(&worker)?;
        let agrees = bool::from(card.about.key_hash.as_bytes().ct_eq(hash.as_bytes()));
        let actor = Actor { key: Some(card.label.clone()), address: None };
        agrees.then(|| Caller { worker: Some(worker), actor, ..Caller::default() })
    }

    pub fn session(&self, worker: WorkerId) -> Option<u64> {
        self.read().cards.get(&worker).map(|card| card.session)
    }

    pub fn about(&self, worker: WorkerId) -> Option<About> {
        self.read().cards.get(&worker).map(|card| card.about.clone())
    }

    pub fn metrics(&self, worker: WorkerId) -> MachineMetrics {
        self.read().cards.get(&worker).map(|card| card.metrics.clone()).unwrap_or_default()
    }

    /// What the embedded worker's machine said last.
    pub fn metrics_here(&self) -> MachineMetrics {
        self.here.read().expect("no thread panics while it holds the roster").clone()
    }

    pub fn note_here(&self, metrics: MachineMetrics) {
        *self.here.write().expect("no thread panics while it holds the roster") = metrics;
    }

    pub fn note(&self, worker: WorkerId, metrics: MachineMetrics) {
        let mut known = self.known.write().expect("no thread panics while it holds the roster");
        if let Some(card) = known.cards.get_mut(&worker) {
            card.metrics = metrics;
        }
    }

    /// A worker that is gone for good takes its key with it, whoever removed it.
    pub fn observe(&self, happenings: &[Happening]) {
        let removed = happenings.iter().filter(|happening| happening.kind == HappeningKind::WorkerRemoved);
        for happening in removed {
            if let Subject::Worker { worker, .. } = &happening.subject {
                self.remove(*worker);
            }
        }
    }

    fn remove(&self, worker: WorkerId) {
        let mut known = self.known.write().expect("no thread panics while it holds the roster");
        if let Some(card) = known.cards.remove(&worker) {
            known.by_hash.remove(&card.about.key_hash);
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Known> {
        self.known.read().expect("no thread panics while it holds the roster")
    }
}

#[cfg(test)]
mod tests {
    use runyard_core::event::WorkerSpec;
    use runyard_core::flow::Resources;

    use super::*;

    fn row(id: u128, key_hash: &str, session: u64) -> WorkerRow {
        let spec = WorkerSpec {
            id: WorkerId(id),
            name: "w".into(),
            kinds: vec!["noop".into()],
            keeps: Vec::new(),
            capacity: Resources::default(),
            parallel_max: None,
            labels: Vec::new(),
            embedded: false,
        };
        let about = About { key_hash: key_hash.to_owned(), ..About::default() }.to_blob();
        WorkerRow { spec, session, draining: false, registered_at: 0, about }
    }

    #[test]
    fn a_key_opens_its_own_worker_until_that_is_gone() {
        let (key, hash) = new_key().expect("randomness");
        let (other, other_hash) = new_key().expect("randomness");
        assert!(is_key(&key) && key != other);
        let roster = Roster::of(vec![row(1, &hash, 7), row(2, &other_hash, 8)]);
        assert_eq!(roster.caller(&key).and_then(|caller| caller.worker), Some(WorkerId(1)));
        assert_eq!(roster.caller(&other).and_then(|caller| caller.worker), Some(WorkerId(2)));
        assert!(roster.caller(&key).is_some_and(|caller| !caller.scopes.allow(crate::access::Scope::Read)));
        assert!(roster.caller("ryw_guess").is_none());
        roster.put(&row(1, &hash, 9));
        assert_eq!(roster.session(WorkerId(1)), Some(9), "it registered again");
        roster.remove(WorkerId(1));
        assert!(roster.caller(&key).is_none() && !roster.knows(WorkerId(1)));
        assert!(roster.caller(&other).is_some());
    }

    #[test]
    fn a_row_without_a_key_is_opened_by_none() {
        let roster = Roster::of(vec![row(1, "", 7)]);
        assert!(roster.caller("ryw_").is_none() && roster.caller("").is_none());
    }
}
