//! Where tasks live: the [`Store`] seam, its drivers, the one suite all drivers pass, and the tick loop that is the
//! only writer.

#![forbid(unsafe_code)]

pub mod nodes;
pub mod store;
pub mod yard;

pub mod memory;
pub mod postgres;
pub mod sqlite;

mod migrations;
mod raw;

pub mod suite;

pub mod codec;
