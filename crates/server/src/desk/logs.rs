//! Logs that come from other machines: the same files as those of the server's own worker, grown from the bytes that a
//! worker sends of its copy.

use std::io;
use std::path::PathBuf;

use runyard_core::event::Held;
use runyard_exec::{Places, log};

/// A part of an attempt's log.
pub struct Chunk {
    pub held: Held,
    pub offset: u64,
    pub bytes: Vec<u8>,
}

/// Takes what continues the files. Gives how much of each is there; what overlaps is passed over, and a gap is not taken.
pub fn store_logs(places: &Places, chunks: Vec<Chunk>) -> io::Result<Vec<(Held, u64)>> {
    let store = |chunk: Chunk| {
        let path: PathBuf = places.log_file(chunk.held.task.0, chunk.held.attempt);
        log::append(&path, chunk.offset, &chunk.bytes).map(|bytes| (chunk.held, bytes))
    };
    chunks.into_iter().map(store).collect()
}
