//! Some of the events behind a place, for one filter.

use runyard_core::event::Happening;

use super::filter::EventFilter;
use crate::problem::Invalid;

/// Events of one page: all that a client which does not read can hold of them.
const PAGE: usize = 256;

/// The place of one event: its commit, and its index in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Position {
    pub seq: u64,
    pub index: u64,
}

impl Position {
    pub fn parse(text: &str) -> Result<Position, Invalid> {
        let parts = text.split_once('-').and_then(|(seq, index)| Some((seq.parse().ok()?, index.parse().ok()?)));
        let (seq, index) = parts.ok_or_else(|| Invalid::new("Last-Event-ID", "an event id looks like 1234-0"))?;
        Ok(Position { seq, index })
    }

    /// Behind the last event of a commit.
    pub fn end_of(seq: u64) -> Position {
        Position { seq, index: u64::MAX }
    }

    /// The commit that has what follows; one that the client is in the middle of is looked at again for the rest of it.
    fn wants(self) -> u64 {
        if self.index == u64::MAX { self.seq.saturating_add(1) } else { self.seq }
    }
}

pub struct Page {
    pub found: Vec<(Position, Happening)>,
    /// Everything up to here has been looked at.
    pub at: Position,
    /// Something before what was found is in the log no more.
    pub has_missed: bool,
    /// There is nothing behind it for now.
    pub is_last: bool,
}

/// A page while it grows. What it is made from is let go with each step, because the client may take its time.
pub struct Gathering {
    page: Page,
    began: Position,
}

impl Gathering {
    pub fn new(at: Position) -> Gathering {
        Gathering { page: Page { found: Vec::new(), at, has_missed: false, is_last: false }, began: at }
    }

    pub fn wants(&self) -> u64 {
        self.page.at.wants()
    }

    /// The commit before that.
    pub fn after(&self) -> u64 {
        self.wants().saturating_sub(1)
    }

    pub fn has_moved(&self) -> bool {
        self.page.at != self.began
    }

    pub fn is_full(&self) -> bool {
        self.page.found.len() >= PAGE
    }

    pub fn look(&mut self, filter: &EventFilter, seq: u64, happenings: &[Happening]) {
        // The rest of a commit that the client had begun is not missed for certain.
        self.page.has_missed |= seq > self.page.at.seq.saturating_add(1);
        for (index, happening) in (0..).zip(happenings) {
            let position = Position { seq, index };
            if position > self.page.at && filter.matches(happening) {
                self.page.found.push((position, happening.clone()));
                if self.is_full() {
                    self.page.at = position;
                    return;
                }
            }
        }
        self.page.at = self.page.at.max(Position::end_of(seq));
    }

    pub fn page(self) -> Page {
        self.page
    }

    pub fn page_at_the_end(mut self) -> Page {
        self.page.is_last = true;
        self.page
    }

    /// The log ends here. Where memory begins only later, what is between the two was deleted meanwhile.
    pub fn page_at_the_end_of_log(mut self, recent_first: Option<u64>) -> Page {
        match recent_first.filter(|first| *first > self.wants()) {
            Some(first) => {
                self.page.has_missed = true;
                self.page.at = Position::end_of(first - 1);
                self.page
            }
            None => self.page_at_the_end(),
        }
    }
}

#[cfg(test)]
mod tests {
    use runyard_core::event::{HappeningKind, Subject};

    use super::*;

    #[test]
    fn positions_are_ordered_by_commit_then_index() {
        let position = |text| Position::parse(text).expect("valid");
        assert!(position("2-0") > position("1-9") && position("1-10") > position("1-9"));
        assert!(Position::parse("17").is_err() && Position::parse("a-b").is_err());
        assert_eq!((position("3-1").wants(), Position::end_of(3).wants()), (3, 4));
    }

    #[test]
    fn a_large_commit_is_looked_at_in_pages_and_each_event_comes_once() {
        let happening = Happening { kind: HappeningKind::ConfigChanged, at_ms: 1, subject: Subject::Config };
        let happenings = vec![happening; PAGE * 2 + 10];
        let (mut at, mut seen) = (Position::end_of(6), Vec::new());
        for n in [PAGE, PAGE, 10] {
            let mut gathering = Gathering::new(at);
            assert_eq!(gathering.wants(), 7);
            gathering.look(&EventFilter::default(), 7, &happenings);
            let page = gathering.page();
            assert_eq!((page.found.len(), page.has_missed), (n, false));
            at = page.at;
            seen.extend(page.found.into_iter().map(|(position, _)| position));
        }
        assert_eq!(at, Position::end_of(7));
        assert!(seen.len() == happenings.len() && seen.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn what_was_deleted_in_between_is_noticed() {
        let mut gathering = Gathering::new(Position::end_of(3));
        gathering.look(&EventFilter::default(), 5, &[]);
        assert!(gathering.page().has_missed);
        let mut from_the_first = Gathering::new(Position { seq: 0, index: 0 });
        assert_eq!(from_the_first.after(), 0);
        from_the_first.look(&EventFilter::default(), 1, &[]);
        assert!(!from_the_first.page().has_missed);
        let page = Gathering::new(Position::end_of(3)).page_at_the_end_of_log(Some(9));
        assert_eq!((page.at, page.has_missed, page.is_last), (Position::end_of(8), true, false));
        let page = Gathering::new(Position::end_of(3)).page_at_the_end_of_log(Some(4));
        assert_eq!((page.at, page.has_missed, page.is_last), (Position::end_of(3), false, true));
    }
}
