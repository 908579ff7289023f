//! Newtypes for everything that has an identity. The edge parses them once; inside they are trusted.

use std::fmt;

macro_rules! id128 {
    ($name:ident, $what:literal) => {
        #[doc = $what]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u128);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:032x})", stringify!($name), self.0)
            }
        }
    };
}

id128!(TaskId, "A task, as a UUIDv7 made by the node that received it.");
id128!(BatchId, "A batch, as a UUIDv7 made by the node that received it.");
id128!(ScheduleId, "A schedule, as a UUIDv7 made by the node that received it.");
id128!(WorkerId, "A worker, kept by the worker over its restarts.");

/// A flow's row. Never reused, so that a stale reference cannot name another flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowId(pub u64);

/// Names the caller that waits for an answer; the core hands it back unread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// Proof that a report belongs to the lease that is live now.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Token(pub u64);
