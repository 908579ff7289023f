//! What a worker found when it came, in numbers: for a log line, and for whoever has to account for it.

use runyard_exec::Outcome;
use runyard_exec::process::supervise::{EndedRun, Survey, Unreadable};

#[derive(Debug, Default)]
pub struct Found {
    /// Tasks that an earlier worker had begun to run.
    pub n_scanned: usize,
    /// Of them, those that go on.
    pub n_adopted: usize,
    /// Those that ended meanwhile, and said how.
    pub n_finished: usize,
    /// Processes and containers that nobody answered for.
    pub n_killed: usize,
    pub unreadable: Vec<Unreadable>,
}

impl Found {
    pub(crate) fn of(survey: &mut Survey) -> Found {
        Found {
            n_scanned: survey.n_scanned,
            n_adopted: survey.live.len(),
            n_finished: survey.ended.iter().filter(|run| said_how(run)).count(),
            n_killed: survey.n_killed,
            unreadable: std::mem::take(&mut survey.unreadable),
        }
    }

    pub(crate) fn log(&self) {
        if self.n_scanned > 0 {
            let Found { n_scanned, n_adopted, n_finished, n_killed, .. } = *self;
            let n_unreadable = self.unreadable.len();
            tracing::info!(
                n_scanned,
                n_adopted,
                n_finished,
                n_killed,
                n_unreadable,
                "looked at what earlier runs left"
            );
        }
    }
}

fn said_how(run: &EndedRun) -> bool {
    matches!(run.outcome, Outcome::Completed { .. } | Outcome::Failed(_) | Outcome::Stopped)
}
