//! The way back to the scheduler.

use runyard_core::event::Event;

/// Takes reports. Called from many threads, also from inside [`crate::Worker::start`]: it must not block, and must not
/// call the worker.
pub trait Link: Send + Sync + 'static {
    fn report(&self, events: Vec<Event>);
}

impl<F: Fn(Vec<Event>) + Send + Sync + 'static> Link for F {
    fn report(&self, events: Vec<Event>) {
        self(events);
    }
}
