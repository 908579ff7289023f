//! Where the rows stand that nearly every commit changes: the one of `meta`, those of the flows and of the counts.
//!
//! They are changed by their place in the table (`ctid`) and have no index at all. Looked for by a key, such a row is found
//! through all its earlier versions, and while somebody's long transaction keeps those from being cleaned up the search
//! takes ever longer: after 60 000 commits beside an open snapshot, one update of `meta` by its key took 1.1 ms instead of
//! 0.03. Only the writer changes these rows, and it hears of each new place in the answer to the change. A place that is not
//! known is read; one that is wrong, because somebody has rewritten the table, is found out by the guard of the statement.
//!
//! The same holds for the head of a queue, which is behind all that has left it. [`Floors`] remembers where it begins.

use runyard_core::hash::DetMap;
use runyard_core::task::Phase;
use runyard_core::write::{CountKey, WriteSet};
use tokio_postgres::types::{FromSql, Type};

use super::column::Param;
use super::link::{Call, Link};
use super::row::{Row, Tried, damaged, field, integer, name_at, number};
use crate::store::{FlowRows, FlowWant, Result};

/// A row's place in its table: page and number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place(pub [u8; 6]);

impl Place {
    pub fn param(self) -> Param {
        Param::bytes(&self.0)
    }
}

impl<'a> FromSql<'a> for Place {
    fn from_sql(_: &Type, raw: &'a [u8]) -> std::result::Result<Place, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Place(raw.try_into()?))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TID
    }
}

pub struct Places {
    pub meta: Place,
    pub flows: DetMap<u64, Place>,
    pub counts: DetMap<CountKey, Place>,
}

impl Places {
    pub fn read(link: &mut Link) -> Tried<Places> {
        const DOING: &str = "reading where rows stand";
        let calls = ["SELECT ctid FROM meta", "SELECT id, ctid FROM flows", "SELECT agent, lane, ctid FROM counts"];
        let answers = link.query_all(DOING, &calls.map(|sql| Call::new(sql, [])))?;
        let meta =
            answers[0].first().ok_or_else(|| damaged("the database", "its row of meta is missing".to_owned()))?;
        let mut places = Places { meta: field(meta, 0)?, flows: DetMap::default(), counts: DetMap::default() };
        for row in &answers[1] {
            places.flows.insert(number(field(row, 0)?), field(row, 1)?);
        }
        for row in &answers[2] {
            places.counts.insert(CountKey { agent: name_at(row, 0)?, lane: name_at(row, 1)? }, field(row, 2)?);
        }
        Ok(places)
    }

    /// Reads `…, ids, places`, as a statement about flows answers.
    pub fn flows_moved(&mut self, row: &Row) -> Result<()> {
        let (ids, places): (Option<Vec<i64>>, Option<Vec<Place>>) = (field(row, 1)?, field(row, 2)?);
        self.flows.extend(ids.into_iter().flatten().map(number).zip(places.into_iter().flatten()));
        Ok(())
    }

    /// Reads `…, agents, lanes, places`, as a statement about counts answers.
    pub fn counts_moved(&mut self, row: &Row) -> Result<()> {
        let (agents, lanes): (Option<Vec<&str>>, Option<Vec<&str>>) = (field(row, 1)?, field(row, 2)?);
        let places: Option<Vec<Place>> = field(row, 3)?;
        let names = agents.into_iter().flatten().zip(lanes.into_iter().flatten());
        let keys = names.map(|(agent, lane)| CountKey { agent: agent.into(), lane: lane.into() });
        self.counts.extend(keys.zip(places.into_iter().flatten()));
        Ok(())
    }
}

/// Where each flow's queue begins, at the earliest: by rank and seq, and by seq alone. What is not known begins at the
/// beginning.
#[derive(Default)]
pub struct Floors(DetMap<u64, Floor>);

#[derive(Clone, Copy)]
struct Floor {
    head: (i32, i64),
    oldest: i64,
}

const BEGINNING: Floor = Floor { head: (i32::MIN, 0), oldest: 0 };
/// Behind everything: a queue that was empty.
const EMPTY: Floor = Floor { head: (i32::MAX, i64::MAX), oldest: i64::MAX };

impl Floors {
    pub fn head(&self, flow: u64) -> (i32, i64) {
        self.0.get(&flow).unwrap_or(&BEGINNING).head
    }

    pub fn oldest(&self, flow: u64) -> i64 {
        self.0.get(&flow).unwrap_or(&BEGINNING).oldest
    }

    /// Before the commit: what is queued by it may stand before all others, and should it fail, a floor that is too low
    /// costs time and nothing else.
    pub fn lower(&mut self, writes: &WriteSet) {
        if self.0.is_empty() {
            return;
        }
        let inserted = writes.inserts.iter().map(|insert| &insert.task);
        for task in inserted.chain(writes.updates.iter().map(|update| &update.task)) {
            if task.phase() == Phase::Queued
                && let Some(floor) = self.0.get_mut(&task.flow.0)
            {
                floor.head = floor.head.min((task.rank, integer(task.seq)));
                floor.oldest = floor.oldest.min(integer(task.seq));
            }
        }
        for flow in &writes.flows_removed {
            self.0.remove(&flow.0);
        }
    }

    /// What a read from the beginning has found is where the next one begins.
    pub fn raise(&mut self, want: &FlowWant, read: &FlowRows) {
        let floor = self.0.entry(want.flow.0).or_insert(BEGINNING);
        floor.oldest = read.oldest.as_ref().map_or(EMPTY.oldest, |task| integer(task.seq));
        if want.after.is_none() && want.limit > 0 {
            floor.head = read.rows.first().map_or(EMPTY.head, |task| (task.rank, integer(task.seq)));
        }
    }
}
