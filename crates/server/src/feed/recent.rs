//! The latest commits, as many as fit.

use std::collections::VecDeque;
use std::sync::Arc;

use runyard_core::event::{Happening, Subject};
use runyard_core::schedule::ScheduleFacts;
use runyard_core::session::Session;

use super::Commit;

/// What the ring holds in bytes, about. A second of a busy server; a client further behind than that reads the log.
const BYTES_MAX: usize = 16 * 1024 * 1024;

#[derive(Default)]
pub struct Recent {
    /// Numbered without gaps.
    commits: VecDeque<Arc<Commit>>,
    n_bytes: usize,
}

pub enum Next {
    Commit(Arc<Commit>),
    Nothing,
    /// It was here, or never was: the log knows.
    Forgotten,
}

impl Recent {
    pub fn push(&mut self, commit: Arc<Commit>) {
        if self.commits.back().is_some_and(|last| last.seq + 1 != commit.seq) {
            // One in between was never told. Who asks for it has to find nothing here.
            self.commits.clear();
            self.n_bytes = 0;
        }
        self.n_bytes += bytes(&commit);
        self.commits.push_back(commit);
        while self.n_bytes > BYTES_MAX
            && self.commits.len() > 1
            && let Some(oldest) = self.commits.pop_front()
        {
            self.n_bytes -= bytes(&oldest);
        }
    }

    pub fn first(&self) -> Option<u64> {
        self.commits.front().map(|commit| commit.seq)
    }

    pub fn last(&self) -> Option<u64> {
        self.commits.back().map(|commit| commit.seq)
    }

    /// The commit with this number.
    pub fn next(&self, seq: u64) -> Next {
        let at = self.first().and_then(|first| usize::try_from(seq.checked_sub(first)?).ok());
        match at {
            None => Next::Forgotten,
            Some(at) => self.commits.get(at).map_or(Next::Nothing, |commit| Next::Commit(commit.clone())),
        }
    }
}

/// Names are shared with the rest of the server, so they cost nothing here.
fn bytes(commit: &Commit) -> usize {
    let beyond = |happening: &Happening| match &happening.subject {
        Subject::Task(facts) => facts.reason.len(),
        Subject::Batch(_) | Subject::Session(_) => size_of::<Session>(),
        Subject::Schedule(facts) => size_of::<ScheduleFacts>() + facts.reason.len(),
        Subject::Worker { .. } | Subject::Config | Subject::Node { .. } => 0,
    };
    commit.happenings.iter().map(|happening| size_of::<Happening>() + beyond(happening)).sum()
}

#[cfg(test)]
mod tests {
    use runyard_core::event::HappeningKind;

    use super::*;

    fn commit(seq: u64, n_happenings: usize) -> Arc<Commit> {
        let happening = Happening { kind: HappeningKind::ConfigChanged, at_ms: 1, subject: Subject::Config };
        Arc::new(Commit { seq, happenings: vec![happening; n_happenings] })
    }

    fn seq(next: Next) -> Option<u64> {
        match next {
            Next::Commit(commit) => Some(commit.seq),
            Next::Nothing => Some(0),
            Next::Forgotten => None,
        }
    }

    #[test]
    fn it_holds_so_many_bytes_whatever_comes_and_always_the_last() {
        let mut recent = Recent::default();
        assert_eq!(seq(recent.next(1)), None, "an empty one knows nothing");
        let n_of_all = BYTES_MAX / size_of::<Happening>();
        for n in 1..=100 {
            recent.push(commit(n, n_of_all / 10));
            assert!(recent.n_bytes <= BYTES_MAX);
        }
        assert_eq!((recent.first(), seq(recent.next(91)), seq(recent.next(101))), (Some(91), Some(91), Some(0)));
        assert_eq!(seq(recent.next(90)), None);
        recent.push(commit(101, 2 * n_of_all));
        assert_eq!((recent.first(), recent.commits.len()), (Some(101), 1));
        recent.push(commit(102, 1));
        assert_eq!((recent.first(), recent.n_bytes), (Some(102), size_of::<Happening>()));
    }

    #[test]
    fn behind_a_commit_that_was_not_told_it_begins_anew() {
        let mut recent = Recent::default();
        for seq in [1, 2, 4] {
            recent.push(commit(seq, 1));
        }
        assert_eq!((seq(recent.next(2)), seq(recent.next(3)), seq(recent.next(4))), (None, None, Some(4)));
        assert_eq!(recent.n_bytes, size_of::<Happening>());
    }
}
