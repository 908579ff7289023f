//! Tasks submitted together: their counts, their places, their one final event.

use crate::ids::BatchId;
use crate::now::WallMs;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    pub id: BatchId,
    /// How many members may be queued or held at once.
    pub parallelism: Option<u32>,
    pub n_total: u32,
    pub n_completed: u32,
    pub n_failed: u32,
    pub n_cancelled: u32,
    /// Its submitter is told of its end.
    pub calls_back: bool,
    /// Places taken now.
    pub n_places: u32,
    /// Members that wait for a place and for nothing else.
    pub n_waiting: u32,
    pub created_at: WallMs,
    pub finished_at: Option<WallMs>,
}

impl Batch {
    pub fn n_ended(&self) -> u32 {
        self.n_completed + self.n_failed + self.n_cancelled
    }

    pub fn has_free_place(&self) -> bool {
        self.parallelism.is_none_or(|limit| self.n_places < limit)
    }
}
