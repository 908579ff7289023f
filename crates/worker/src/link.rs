//! The way back to the scheduler.

use runyard_core::event::{Event, Held};

/// Takes reports. Called from many threads, also from inside [`crate::Worker::start`]: it must not block, and must not
/// call the worker.
pub trait Link: Send + Sync + 'static {
    fn report(&self, events: Vec<Event>);

    /// The log file of this attempt is now so long. Of interest only to a scheduler that cannot read the file.
    fn log_grew(&self, _lease: Held, _log_bytes: u64) {}
}

impl<F: Fn(Vec<Event>) + Send + Sync + 'static> Link for F {
    fn report(&self, events: Vec<Event>) {
        self(events);
    }
}
