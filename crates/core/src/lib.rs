//! The pure scheduler: closed enum of events in, closed enum of commands out.
//!
//! It does no IO, reads no clock, draws no random number and never blocks: the same events give the same commands,
//! byte for byte. What it must not know: SQL, JSON, HTTP, threads, processes.

#![forbid(unsafe_code)]

pub mod batch;
pub mod config;
pub mod event;
pub mod explain;
pub mod flow;
pub mod hash;
pub mod ids;
pub mod name;
pub mod now;
pub mod task;
pub mod trail;
pub mod write;
