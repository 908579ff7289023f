//! The server: REST, SSE, configuration, access, the embedded worker, and the thread that owns the scheduler.

pub mod handle;
