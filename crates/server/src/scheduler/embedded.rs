//! Who the embedded worker is: the same one over restarts, whether a server or a tick has it.

use std::path::Path;

use runyard_core::event::WorkerSpec;
use runyard_core::flow::Resources;
use runyard_core::ids::WorkerId;
use runyard_core::name::Name;
use runyard_exec::Kind;

use super::Error;
use crate::app::WORKER_EMBEDDED;

/// What it is called, and what it runs.
pub(crate) struct Offer<'a> {
    /// Of the node whose worker it is, where there are several.
    pub node: Option<Name>,
    pub kinds: &'a [Kind],
    /// Those of them that go on without it.
    pub keeps: &'a [Kind],
    pub capacity: &'a Resources,
}

pub(crate) fn worker_spec(id: WorkerId, offer: &Offer<'_>) -> WorkerSpec {
    let names = |kinds: &[Kind]| kinds.iter().map(|kind| Name::new(kind.as_str())).collect();
    WorkerSpec {
        id,
        name: offer.node.clone().unwrap_or_else(|| Name::new(WORKER_EMBEDDED)),
        kinds: names(offer.kinds),
        keeps: names(offer.keeps),
        capacity: offer.capacity.clone(),
        parallel_max: None,
        labels: Vec::new(),
        embedded: true,
    }
}

/// The worker keeps its id over restarts, so that it can claim its old leases.
pub(crate) fn worker_id(data_dir: &Path) -> Result<WorkerId, Error> {
    if let Some(id) = known_worker_id(data_dir) {
        return Ok(id);
    }
    let (id, path) = (crate::clock::new_id(), data_dir.join(FILE));
    std::fs::write(&path, format!("{id:032x}\n")).map_err(|source| Error::WorkerId { path, source })?;
    Ok(WorkerId(id))
}

/// `None` when no worker has been there yet.
pub(crate) fn known_worker_id(data_dir: &Path) -> Option<WorkerId> {
    let text = std::fs::read_to_string(data_dir.join(FILE)).ok()?;
    u128::from_str_radix(text.trim(), 16).ok().map(WorkerId)
}

const FILE: &str = "worker.id";
