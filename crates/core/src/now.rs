//! Two clocks. Deadlines, run-at and schedules mean the wall clock; leases, timeouts, backoffs and waits mean
//! elapsed time. Both are parameters: the core never asks what time it is.

/// Milliseconds since the Unix epoch.
pub type WallMs = u64;

/// Milliseconds of elapsed time on this store's own clock. It never goes back and goes on over a restart (the time the
/// server was down counts, as far as the wall clock shows it), so a stored backoff keeps its meaning.
pub type SteadyMs = u64;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    pub wall_ms: WallMs,
    pub steady_ms: SteadyMs,
}

/// Which clock a due moment is read on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Clock {
    Wall,
    Steady,
}
