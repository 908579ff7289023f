//! The writer: the connection that the tick loop owns.
//!
//! ```text
//! commit ──► sent ──► answered ──► done
//!              │
//!              └─ connection lost ──► a new one ──► the row of meta is locked, which waits for a backend that is still
//!                                                   committing, and read
//!                    epoch is not ours: fenced  ◄───┤
//!                    n_commits has risen: done  ◄───┤
//!                    it has not: sent again     ◄───┘
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use runyard_core::event::{Due, Release};
use runyard_core::ids::{ScheduleId, TaskId};
use runyard_core::name::Blob;
use runyard_core::now::{Clock, Now};
use runyard_core::schedule::{Run, ScheduleDue};
use runyard_core::session::{Session, SessionId};
use runyard_core::task::Task;
use runyard_core::write::{Loaded, Needs, Rows, WriteSet};

use super::commit::{Scratch, WRITING, write_all};
use super::connect::{Address, Options, Purpose};
use super::link::{Call, Link, transaction};
use super::places::{Floors, Places};
use super::purge::{self, Cursor, PURGING};
use super::reader::Readers;
use super::refusal::refusal;
use super::row::{Fault, Row, Tried, damaged, field, number};
use super::{load, migrations, query, schedules};
use crate::store::{Error, FlowRows, FlowWant, Purge, Purged, Reader, Result, Store};

pub struct PgStore {
    options: Options,
    address: Address,
    /// Thrown away when it breaks.
    link: Option<Link>,
    readers: Arc<Readers>,
    scratch: Scratch,
    cursor: Cursor,
    /// Ours since the last load.
    epoch: u64,
    /// As of our last transaction.
    n_commits: u64,
    /// `None` when they have to be read.
    places: Option<Places>,
    floors: Floors,
}

impl PgStore {
    /// Connects, and brings the schema up to date.
    pub fn open(options: Options) -> Result<PgStore> {
        migrations::migrate(&options)?;
        let address = Address::of(&options, Purpose::Write)?;
        let readers = Arc::new(Readers::new(&options)?);
        let link = Some(Link::open(&address)?);
        let (scratch, cursor, floors) = (Scratch::default(), Cursor::default(), Floors::default());
        Ok(PgStore { options, address, link, readers, scratch, cursor, epoch: 0, n_commits: 0, places: None, floors })
    }

    /// On this connection or, when it is lost, on the next: what only reads can be asked again.
    fn read<T>(&mut self, mut ask: impl FnMut(&mut Link) -> Tried<T>) -> Result<T> {
        let mut patience = Patience::new(self.options.retry_for);
        loop {
            match self.link().and_then(&mut ask) {
                Err(fault) if fault.is_lost() => {
                    self.link = None;
                    patience.wait(fault)?;
                }
                answer => return Ok(answer?),
            }
        }
    }

    fn link(&mut self) -> Tried<&mut Link> {
        if self.link.as_ref().is_none_or(Link::is_closed) {
            self.link = Some(Link::open(&self.address)?);
        }
        Ok(self.link.as_mut().expect("it was opened"))
    }

    /// A whole transaction, until it is known what became of it. Gives its answers, or the sequence number of the event log
    /// when it was found to be done.
    fn settle(&mut self, whole: &[Call]) -> Tried<Settled> {
        let mut patience = Patience::new(self.options.retry_for);
        let mut is_sent = false;
        loop {
            let found = match is_sent {
                true => self.look(),
                false => Ok(None),
            };
            is_sent = true;
            let tried = match found {
                Ok(Some(log_seq)) => Ok(Settled::Found(log_seq)),
                Ok(None) => self.link().and_then(|link| link.query_all(WRITING, whole)).map(Settled::Answered),
                Err(fault) => Err(fault),
            };
            match tried {
                Err(fault) if fault.is_lost() => {
                    self.link = None;
                    patience.wait(fault)?;
                }
                Err(fault) => return Err(fault),
                Ok(settled) => {
                    self.n_commits += 1;
                    return Ok(settled);
                }
            }
        }
    }

    /// One chunk. A lost answer to its commit is looked for, so that what it says has gone is gone.
    fn purge_once(&mut self, now: Now, purge: &Purge) -> Tried<Purged> {
        let (epoch, cursor) = (self.epoch, self.cursor);
        let (purged, cursor, meta) = purge::purge(self.link()?, epoch, now, purge, cursor)?;
        if let Err(fault) = self.link()?.batch(PURGING, "COMMIT") {
            self.link = None;
            if !fault.is_lost() || self.look()?.is_none() {
                return Err(fault);
            }
        }
        self.n_commits += 1;
        self.cursor = cursor;
        if let Some(places) = &mut self.places {
            places.meta = meta;
        }
        Ok(purged)
    }

    /// Was the transaction whose answer we lost made? The lock waits for a backend that is still at it.
    fn look(&mut self) -> Tried<Option<u64>> {
        const LOOK: &str = "SELECT epoch, n_commits, log_seq FROM meta WHERE one = 1 FOR UPDATE";
        let (ours, before) = (self.epoch, self.n_commits);
        let answers = self.link()?.query_all("looking for a commit", &transaction(vec![Call::new(LOOK, [])]))?;
        let row = answers[1].first().ok_or_else(|| damaged("the database", "its row of meta is missing".to_owned()))?;
        let (theirs, n_commits) = (number(field(row, 0)?), number(field(row, 1)?));
        if theirs != ours {
            return Err(Fault::Other(Error::Fenced { ours, theirs }));
        }
        match n_commits.checked_sub(before) {
            Some(0) => Ok(None),
            Some(1) => Ok(Some(number(field(row, 2)?))),
            _ => Err(Fault::Other(damaged(
                "the database",
                format!("{n_commits} commits instead of {before} or one more"),
            ))),
        }
    }
}

impl Store for PgStore {
    fn load(&mut self, salt: u64) -> Result<Loaded> {
        let node = self.options.node;
        let (loaded, n_commits) = self.read(|link| {
            let taken = load::take_over(link, salt, node)?;
            Ok((load::load(link, taken.meta)?, taken.n_commits))
        })?;
        (self.epoch, self.n_commits) = (loaded.meta.epoch, n_commits);
        (self.cursor, self.places, self.floors) = (Cursor::default(), None, Floors::default());
        Ok(loaded)
    }

    fn fetch(&mut self, needs: &Needs) -> Result<Rows> {
        self.read(|link| query::fetch(link, needs))
    }

    fn commit(&mut self, writes: &WriteSet) -> Result<u64> {
        let mut places = match self.places.take() {
            Some(places) => places,
            None => self.read(Places::read)?,
        };
        self.floors.lower(writes);
        let whole = write_all(writes, &places, &mut self.scratch);
        match self.settle(&whole.calls) {
            Ok(Settled::Answered(answers)) => {
                let log_seq = whole.answered(writes, &answers, &mut places)?;
                self.places = Some(places);
                Ok(log_seq)
            }
            // Where the rows stand now was in the answer that we never got.
            Ok(Settled::Found(log_seq)) => Ok(log_seq),
            Err(fault @ Fault::Refused { .. }) => Err(refusal(self.link()?, writes, fault)),
            Err(fault) => Err(fault.into()),
        }
    }

    fn flow_rows(&mut self, wants: &[FlowWant]) -> Result<Vec<FlowRows>> {
        let mut floors = std::mem::take(&mut self.floors);
        let read = self.read(|link| query::flow_rows(link, wants, &mut floors));
        self.floors = floors;
        read
    }

    fn dues(&mut self, clock: Clock, after: Option<Due>, limit: usize) -> Result<Vec<Due>> {
        self.read(|link| query::dues(link, clock, after, limit))
    }

    fn released(&mut self, release: &Release, limit: usize) -> Result<Vec<Task>> {
        self.read(|link| query::released(link, release, limit))
    }

    fn specs(&mut self, tasks: &[TaskId]) -> Result<Vec<Option<Blob>>> {
        self.read(|link| query::specs(link, tasks))
    }

    fn sessions_after(&mut self, after: SessionId, limit: usize) -> Result<Vec<Session>> {
        self.read(|link| query::sessions_after(link, after, limit))
    }

    fn merged(&mut self, task: TaskId) -> Result<Vec<Blob>> {
        self.read(|link| query::merged(link, task))
    }

    fn dropped(&mut self, session: SessionId, from: u64, to: u64) -> Result<Vec<Blob>> {
        self.read(|link| query::dropped(link, session, from, to))
    }

    fn schedules_due(&mut self, after: Option<ScheduleDue>, limit: usize) -> Result<Vec<ScheduleDue>> {
        self.read(|link| schedules::due(link, after, limit))
    }

    fn run(&mut self, schedule: ScheduleId, n: u64) -> Result<Option<Run>> {
        self.read(|link| schedules::run(link, schedule, n))
    }

    fn n_ahead(&mut self, task: &Task, limit: u32) -> Result<u32> {
        self.read(|link| query::n_ahead(link, task, limit))
    }

    fn purge(&mut self, now: Now, purge: &Purge) -> Result<Purged> {
        let mut patience = Patience::new(self.options.retry_for);
        loop {
            match self.purge_once(now, purge) {
                Err(fault) if fault.is_lost() => {
                    self.link = None;
                    patience.wait(fault)?;
                }
                Err(fault) => {
                    // What is left of the transaction goes with its connection.
                    self.link = None;
                    return Err(fault.into());
                }
                Ok(purged) => return Ok(purged),
            }
        }
    }

    fn reader(&self) -> Arc<dyn Reader> {
        self.readers.clone()
    }
}

/// What became of a transaction.
enum Settled {
    Answered(Vec<Vec<Row>>),
    /// It was done, and the answer is lost.
    Found(u64),
}

/// How long a lost connection is looked for, and how often.
pub(super) struct Patience {
    until: Instant,
    pause: Duration,
}

impl Patience {
    pub(super) fn new(retry_for: Duration) -> Patience {
        Patience { until: Instant::now() + retry_for, pause: Duration::from_millis(5) }
    }

    /// Gives the loss back as an error when there is no time left.
    pub(super) fn wait(&mut self, fault: Fault) -> Result<()> {
        if Instant::now() + self.pause >= self.until {
            return Err(fault.into());
        }
        std::thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(Duration::from_millis(200));
        Ok(())
    }
}
