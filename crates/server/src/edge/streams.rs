//! Answers that stay open: event streams, followed logs, waits. Each costs a task and a few buffers, so they are counted.

use prometheus_client::metrics::gauge::Gauge;

use crate::problem::Error;

/// Counted in what `/metrics` tells of it.
pub struct Streams {
    open: Gauge,
}

/// One open stream; it is counted until this is dropped.
pub struct StreamPass(Gauge);

impl Streams {
    pub fn new(open: Gauge) -> Streams {
        Streams { open }
    }

    pub fn enter(&self, limit: u32) -> Result<StreamPass, Error> {
        // Counted first: of two who come at once for the last place, none gets in rather than both.
        let pass = StreamPass(self.open.clone());
        if self.open.inc() < i64::from(limit) { Ok(pass) } else { Err(Error::TooManyStreams(limit)) }
    }
}

impl Drop for StreamPass {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_counted_while_they_are_open() {
        let streams = Streams::new(Gauge::default());
        let passes: Vec<_> = (0..3).map(|_| streams.enter(3).unwrap()).collect();
        assert!(streams.enter(3).is_err());
        assert!(streams.enter(4).is_ok(), "a raised limit holds at once");
        drop(passes);
        assert_eq!(streams.open.get(), 0);
    }
}
