//! Waiting through a pause of the server: a restart or a recovery is no reason to give up a wait.

use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::out;

/// A restart with millions of tasks takes about two seconds; beyond this it is not coming back by itself.
const PAUSE_MAX: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(300);

#[derive(Default)]
pub struct Patience {
    since: Option<Instant>,
}

impl Patience {
    /// Sleeps a little when the error may pass by itself; gives it back when it may not, or has lasted too long.
    pub async fn endure(&mut self, error: Error) -> Result<()> {
        let since = *self.since.get_or_insert_with(|| {
            if error.is_passing() {
                out::note("the server is not there; waiting for it");
            }
            Instant::now()
        });
        if !error.is_passing() || since.elapsed() > PAUSE_MAX {
            return Err(error);
        }
        tokio::time::sleep(STEP).await;
        Ok(())
    }

    pub fn relax(&mut self) {
        self.since = None;
    }
}
