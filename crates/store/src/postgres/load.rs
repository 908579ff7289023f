//! Taking the store over, and what a core starts from: O(flows + held tasks), whatever is queued.
//!
//! In two steps, because the second takes long with many flows and the first holds the row of the lease, which every node
//! must be able to renew meanwhile. Who raises the epoch once more in between fences the second step too.

use runyard_core::event::Release;
use runyard_core::flow::FlowKey;
use runyard_core::ids::FlowId;
use runyard_core::name::{Blob, Name};
use runyard_core::now::Now;
use runyard_core::write::{CountDelta, CountKey, FlowRow, Loaded, Meta};

use super::column::Param;
use super::commit::FENCED;
use super::link::{Call, Link, transaction};
use super::query::all;
use super::row::{
    Fault, Row, Tried, batch_at, blob_at, damaged, field, integer, name_at, number, session_at, task_at, task_columns,
};
use super::{schedules, workers};
use crate::codec::{ReleaseColumns, decode_release};
use crate::nodes::NodeId;
use crate::store::{Error, Result};

/// What only this driver needs to know of where the store is.
pub struct TakenOver {
    pub meta: Meta,
    pub n_commits: u64,
}

/// Raises the epoch, if the lease is this node's.
pub fn take_over(link: &mut Link, salt: u64, node: Option<NodeId>) -> Tried<TakenOver> {
    end_predecessor(link)?;
    let node = node.map_or(Param::NULL, |node| Param::uuid(node.0));
    let calls = transaction(vec![
        Call::new(LEASED, [node]),
        Call::new(
            "UPDATE meta SET epoch = epoch + 1, n_commits = n_commits + 1, salt = coalesce(salt, $1::bigint) \
             WHERE one = 1 RETURNING epoch, next_seq, next_flow, wall_ms, steady_ms, salt, next_delivery, n_commits",
            [Param::bigint(integer(salt))],
        ),
        Call::new(
            "UPDATE lease SET writer_pid = pg_backend_pid(), writer_start = \
             (SELECT a.backend_start FROM pg_stat_get_activity(pg_backend_pid()) a) WHERE one = 1",
            [],
        ),
    ]);
    let answers = link.query_all(TAKING_OVER, &calls).map_err(|fault| not_ours(fault, 0))?;
    let row = answers[2].first().ok_or_else(|| damaged("the database", "its row of meta is missing".to_owned()))?;
    let at = |index| field(row, index).map(number);
    let meta = Meta {
        epoch: at(0)?,
        next_seq: at(1)?,
        next_flow: at(2)?,
        now: Now { wall_ms: at(3)?, steady_ms: at(4)? },
        salt: at(5)?,
        next_delivery: at(6)?,
    };
    Ok(TakenOver { meta, n_commits: at(7)? })
}

/// The lease is held to be ours until the epoch is raised: nobody takes it in between.
const LEASED: &str = "WITH leased AS (SELECT 1 AS passed FROM lease WHERE one = 1 AND ($1::uuid IS NULL OR \
                      holder = $1::uuid AND until > clock_timestamp()) FOR SHARE) \
                      SELECT runyard_fence((SELECT leased.passed FROM leased)::bigint)";

/// Without the lease nothing was changed; whose it is, the next beat tells.
fn not_ours(fault: Fault, ours: u64) -> Fault {
    match &fault {
        Fault::Refused { error, .. } if error.code().code() == FENCED => {
            let theirs = error.message().parse().unwrap_or(u64::MAX);
            Fault::Other(Error::Fenced { ours, theirs })
        }
        _ => fault,
    }
}

/// A writer that was stopped in the middle of a transaction sits on the row that is to be changed. It may also be gone, or
/// belong to somebody else by now: then nothing happens, as when the database does not allow it.
fn end_predecessor(link: &mut Link) -> Tried<()> {
    let sql = "SELECT pg_terminate_backend(l.writer_pid) FROM lease l \
               WHERE l.one = 1 AND l.writer_pid <> pg_backend_pid() AND EXISTS \
               (SELECT 1 FROM pg_stat_get_activity(l.writer_pid) a WHERE a.backend_start = l.writer_start)";
    match link.query(TAKING_OVER, sql, []) {
        Err(fault) if fault.is_lost() => Err(fault),
        _ => Ok(()),
    }
}

/// All of it in one round trip.
pub fn load(link: &mut Link, meta: Meta) -> Tried<Loaded> {
    let calls = transaction(vec![
        Call::new(FENCE, [Param::bigint(integer(meta.epoch))]),
        // A flow nobody lives in is not worth loading; its next task gives it a new row.
        Call::new("DELETE FROM flows WHERE n_live = 0", []),
        Call::new("SELECT id, key, n_queued, n_live FROM flows ORDER BY id", []),
        Call::new(HELD, []),
        // Unfinished batches and sessions that held tasks belong to; the others are fetched when an event names them.
        Call::new(
            "SELECT b.id, b.body FROM (SELECT DISTINCT t.batch FROM tasks t WHERE t.phase IN (3, 4) AND t.batch IS NOT NULL) h \
             JOIN batches b ON b.id = h.batch WHERE b.finished_at IS NULL ORDER BY b.id",
            [],
        ),
        Call::new(
            "SELECT s.id, s.key, s.body FROM (SELECT DISTINCT t.session FROM tasks t WHERE t.phase IN (3, 4) \
             AND t.session IS NOT NULL) h JOIN sessions s ON s.id = h.session ORDER BY s.id",
            [],
        ),
        Call::new("SELECT kind, id, ended FROM releases", []),
        Call::new(COUNTS, []),
        Call::new("SELECT name, state FROM rates ORDER BY name", []),
        Call::new("SELECT name, value FROM settings ORDER BY name", []),
        Call::new(schedules::COUNT, []),
        Call::new(workers::ALL, []),
    ]);
    let answers = link.query_all("loading", &calls).map_err(|fault| not_ours(fault, meta.epoch))?;
    let [_, _, _, flows, held, batches, sessions, releases, counts, rates, settings, n_schedules, workers, _] =
        <[Vec<Row>; 14]>::try_from(answers).expect("each statement has its answer");
    let mut held = all(&held, task_at)?;
    held.sort_by_key(|task| task.seq);
    let mut releases = all(&releases, release_at)?;
    releases.sort();
    Ok(Loaded {
        meta,
        flows: all(&flows, flow_at)?,
        batches: all(&batches, batch_at)?,
        sessions: all(&sessions, session_at)?,
        held,
        releases,
        counts: all(&counts, count_at)?,
        rates: all(&rates, rate_at)?,
        settings: all(&settings, setting_at)?,
        n_schedules: all(&n_schedules, |row| field(row, 0).map(number))?.first().copied().unwrap_or(0),
        workers: all(&workers, workers::worker_at)?,
    })
}

/// Nobody takes the store over until the transaction ends.
pub const FENCE: &str = "WITH passed AS (SELECT epoch FROM meta WHERE one = 1 AND epoch = $1::bigint FOR SHARE) \
                         SELECT runyard_fence((SELECT epoch FROM passed))";

/// By tasks_phase.
pub const HELD: &str = concat!("SELECT ", task_columns!(), " FROM tasks t WHERE t.phase IN (3, 4)");

pub const COUNTS: &str = "SELECT * FROM counts ORDER BY agent, lane";

fn flow_at(row: &Row) -> Result<FlowRow> {
    let id = FlowId(number(field(row, 0)?));
    let key = FlowKey::decode(field(row, 1)?).ok_or_else(|| damaged("a flow's row", format!("{id:?}")))?;
    Ok(FlowRow { id, key, n_queued: number(field(row, 2)?), n_live: number(field(row, 3)?) })
}

fn release_at(row: &Row) -> Result<Release> {
    let (kind, id, ended): (i16, Vec<u8>, i16) = (field(row, 0)?, field(row, 1)?, field(row, 2)?);
    let columns = u8::try_from(kind).ok().zip(u8::try_from(ended).ok());
    let columns = columns.map(|(kind, ended)| ReleaseColumns { kind, id, ended });
    columns.as_ref().and_then(decode_release).ok_or_else(|| damaged("a release's row", format!("{columns:?}")))
}

pub fn count_at(row: &Row) -> Result<(CountKey, CountDelta)> {
    let key = CountKey { agent: name_at(row, 0)?, lane: name_at(row, 1)? };
    let mut values = [0; 13];
    for (index, value) in values.iter_mut().enumerate() {
        *value = field(row, index + 2)?;
    }
    Ok((key, CountDelta::from_values(values)))
}

fn rate_at(row: &Row) -> Result<(Name, u64)> {
    Ok((name_at(row, 0)?, number(field(row, 1)?)))
}

fn setting_at(row: &Row) -> Result<(Name, Blob)> {
    Ok((name_at(row, 0)?, blob_at(row, 1)?.unwrap_or_default()))
}

const TAKING_OVER: &str = "taking the store over";
