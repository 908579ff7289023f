//! The server: REST, SSE, configuration, access, the embedded worker, and the thread that owns the scheduler.

#![forbid(unsafe_code)]

pub mod access;
mod clock;
pub mod config;
pub mod handle;
mod intake;
pub mod logging;
pub mod metrics;
mod problem;
mod waiters;
pub mod scheduler;
