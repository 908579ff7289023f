//! Servers for tests, each with its own directory and port, gone when the test is. A server that cannot be had fails the
//! test with the reason: nothing is skipped.

#![forbid(unsafe_code)]

mod cluster;
mod postgres;

pub use postgres::{Options, PASSWORD, Postgres, shared};
