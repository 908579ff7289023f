//! Where tasks live: the [`Store`] seam, its drivers, the one suite all drivers pass, and the tick loop that is the
//! only writer.

#![forbid(unsafe_code)]

pub mod store;
