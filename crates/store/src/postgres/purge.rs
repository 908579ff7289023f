//! Retention, one bounded chunk at a time, each a transaction of its own. Seqs follow time, so default-retention tasks are
//! found by walking up from the oldest ended one until one is too young; the few with a ttl of their own have an index.
//! Sessions are walked through, some at each time. Live tasks are in another table and not even looked at.

use runyard_core::event::Rest;
use runyard_core::ids::TaskId;
use runyard_core::now::Now;

use super::column::{Column, Param, bigints, uuids};
use super::commit::FENCED;
use super::link::{Call, Link};
use super::places::Place;
use super::row::{Fault, Id, Row, Tried, damaged, field, id_at, integer, moment};
use crate::store::{Error, Purge, Purged};

/// Where the walks go on. Only a hint: a walk that starts over finds the same.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    /// The last seq looked at. Seqs begin at 0.
    seq: i64,
    /// The last session looked at.
    session: i64,
    /// The last schedule whose runs were looked at.
    schedule: Option<u128>,
}

impl Default for Cursor {
    fn default() -> Self {
        Cursor { seq: -1, session: -1, schedule: None }
    }
}

/// Everything but the commit itself. The row of meta has another place afterwards.
pub fn purge(link: &mut Link, ours: u64, now: Now, purge: &Purge, cursor: Cursor) -> Tried<(Purged, Cursor, Place)> {
    const BEGIN: &str = "WITH passed AS (UPDATE meta SET n_commits = n_commits + 1 WHERE one = 1 AND epoch = $1::bigint \
                         RETURNING log_bytes) SELECT runyard_fence((SELECT log_bytes FROM passed))";
    let begin = [Call::new("BEGIN", []), Call::new(BEGIN, [Param::bigint(integer(ours))])];
    let answers = link.query_all(PURGING, &begin).map_err(|fault| fenced(ours, fault))?;
    let log_bytes = answers[1].first().map_or(Ok(0), |row| field(row, 0))?;
    // A chunk of nothing would never be done.
    let purge = &Purge { limit: purge.limit.max(1), ..*purge };
    let mut chunk = Chunk { link, now, purge, rest: Rest::Done, tasks: Vec::new() };
    chunk.expire_own_ttl()?;
    let cursor = chunk.walk_on(cursor)?;
    chunk.delete_batches()?;
    chunk.delete_keys()?;
    chunk.delete_happenings(log_bytes)?;
    chunk.delete_deliveries()?;
    chunk.delete_old_runs()?;
    let schedule = chunk.walk_runs(cursor.schedule)?;
    let place = chunk.query("SELECT ctid FROM meta", [])?;
    let place = place.first().ok_or_else(|| damaged("the database", "its row of meta is missing".to_owned()))?;
    Ok((Purged { tasks: chunk.tasks, rest: chunk.rest }, Cursor { schedule, ..cursor }, field(place, 0)?))
}

fn fenced(ours: u64, fault: Fault) -> Fault {
    match &fault {
        Fault::Refused { error, .. } if error.code().code() == FENCED => {
            Fault::Other(Error::Fenced { ours, theirs: error.message().parse().unwrap_or(u64::MAX) })
        }
        _ => fault,
    }
}

/// Is there a message about it that has not been delivered? By deliveries_subject.
macro_rules! is_awaited {
    ($id:literal) => {
        concat!(
            "EXISTS (SELECT 1 FROM deliveries d WHERE d.subject = ",
            $id,
            " AND d.subject IS NOT NULL AND d.next_at IS NOT NULL)"
        )
    };
}

/// Is something still to be done about its end? The ids of ended runs begin with their task, and are longer. By
/// releases_pkey.
macro_rules! is_releasing {
    () => {
        "(EXISTS (SELECT 1 FROM releases r WHERE r.kind = 0 AND r.id = uuid_send(t.id)) OR \
         EXISTS (SELECT 1 FROM releases r WHERE r.kind = 7 AND r.id >= uuid_send(t.id) \
         AND r.id <= uuid_send(t.id) || '\\xffffffffffffffffffffffffffffffffffffffffffffffffff'::bytea))"
    };
}

struct Chunk<'a> {
    link: &'a mut Link,
    now: Now,
    purge: &'a Purge,
    rest: Rest,
    tasks: Vec<TaskId>,
}

impl Chunk<'_> {
    /// A parent whose release is still being worked off stays, because its edges say whom it frees; the task of a run that
    /// is not closed yet; and what a message that is not delivered yet tells of. By tasks_done_expires.
    fn expire_own_ttl(&mut self) -> Tried<()> {
        const SQL: &str = concat!(
            "SELECT t.seq, t.id FROM tasks_done t WHERE t.expires_at IS NOT NULL AND t.expires_at <= $1::bigint AND NOT ",
            is_releasing!(),
            " AND NOT ",
            is_awaited!("t.id"),
            " ORDER BY t.expires_at, t.seq LIMIT $2::bigint"
        );
        let rows = self.query(SQL, [Param::bigint(moment(self.now.wall_ms)), self.limit()])?;
        self.note(rows.len());
        self.delete_tasks(&rows)
    }

    /// Sessions come after all tasks, because the last task of a session may go in the last chunk.
    fn walk_on(&mut self, cursor: Cursor) -> Tried<Cursor> {
        if let Some(seq) = self.walk_tasks(cursor.seq)? {
            return Ok(Cursor { seq, ..cursor });
        }
        let session = match self.rest {
            Rest::More => cursor.session,
            Rest::Done => self.walk_sessions(cursor.session)?,
        };
        Ok(Cursor { session, seq: Cursor::default().seq, ..cursor })
    }

    /// Gives the last seq looked at, while there is more behind it. By tasks_done_seq.
    fn walk_tasks(&mut self, mut last: i64) -> Tried<Option<i64>> {
        const SQL: &str = concat!(
            "SELECT t.seq, t.id, t.created_at, t.expires_at IS NULL AND t.ended_at <= $3::bigint AND NOT ",
            is_releasing!(),
            " AND NOT ",
            is_awaited!("t.id"),
            " FROM tasks_done t WHERE t.seq > $1::bigint ORDER BY t.seq LIMIT $2::bigint"
        );
        let Some(cutoff) = self.cutoff(self.purge.retention_ms) else { return Ok(None) };
        let mut seen = self.query(SQL, [Param::bigint(last), self.limit(), Param::bigint(cutoff)])?;
        let n_found = seen.len();
        let mut n_old = 0;
        while n_old < n_found && field::<i64>(&seen[n_old], 2)? <= cutoff {
            last = field(&seen[n_old], 0)?;
            n_old += 1;
        }
        seen.truncate(n_old);
        let goes = seen.iter().map(|row| field(row, 3)).collect::<Result<Vec<bool>, Error>>()?;
        let mut goes = goes.into_iter();
        seen.retain(|_| goes.next() == Some(true));
        self.delete_tasks(&seen)?;
        if n_old < self.purge.limit {
            return Ok(None);
        }
        self.rest = Rest::More;
        Ok(Some(last))
    }

    /// The next ones by id, idle or not: an index of the idle ones would cost every task of a session more than this
    /// walk costs. A chunk in which nothing could go ends the walk until the next time. By sessions_pkey, tasks_session,
    /// tasks_done_session.
    fn walk_sessions(&mut self, after: i64) -> Tried<i64> {
        const SQL: &str = "SELECT g.id, g.n_live = 0 AND g.last_at <= $2::bigint AND NOT EXISTS \
                           (SELECT 1 FROM tasks t WHERE t.session = g.id AND t.session IS NOT NULL) AND NOT EXISTS \
                           (SELECT 1 FROM tasks_done t WHERE t.session = g.id AND t.session IS NOT NULL) \
                           FROM sessions g WHERE g.id > $1::bigint ORDER BY g.id LIMIT $3::bigint";
        let Some(cutoff) = self.cutoff(self.purge.retention_ms) else { return Ok(-1) };
        let seen = self.query(SQL, [Param::bigint(after), Param::bigint(cutoff), self.limit()])?;
        let mut gone = Vec::new();
        for row in &seen {
            if field(row, 1)? {
                gone.push(field::<i64>(row, 0)?);
            }
        }
        let n_deleted = gone.len();
        if n_deleted > 0 {
            self.query("DELETE FROM sessions WHERE id = ANY($1::bigint[])", [bigints(gone.into_iter())])?;
        }
        match seen.last() {
            Some(row) if seen.len() >= self.purge.limit => {
                if n_deleted > 0 {
                    self.rest = Rest::More;
                }
                Ok(field(row, 0)?)
            }
            _ => Ok(-1),
        }
    }

    /// Of rows that begin with `seq, id`: with their specs, logs, artifacts, messages, edges.
    fn delete_tasks(&mut self, rows: &[Row]) -> Tried<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let (mut seqs, mut ids) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
        for row in rows {
            seqs.push(field::<i64>(row, 0)?);
            ids.push(id_at(row, 1)?);
        }
        let (seq_column, id_column) = (bigints(seqs.iter().copied()), uuids(ids.iter().copied()));
        let by_seq = [
            "DELETE FROM tasks_done WHERE seq = ANY($1::bigint[])",
            "DELETE FROM specs WHERE seq = ANY($1::bigint[])",
            "DELETE FROM logs WHERE seq = ANY($1::bigint[])",
            "DELETE FROM artifacts WHERE seq = ANY($1::bigint[])",
            "DELETE FROM artifact_parts WHERE seq = ANY($1::bigint[])",
            "DELETE FROM edges WHERE child = ANY($1::bigint[])",
            "DELETE FROM messages WHERE task_seq = ANY($1::bigint[])",
            "DELETE FROM session_drops WHERE task_seq = ANY($1::bigint[])",
        ];
        let by_id = [
            "DELETE FROM edges WHERE parent = ANY($1::uuid[])",
            "UPDATE keys SET orphaned = true WHERE subject = ANY($1::uuid[])",
        ];
        let calls = by_seq.map(|sql| Call::new(sql, [seq_column.clone()])).into_iter();
        let calls: Vec<Call> = calls.chain(by_id.map(|sql| Call::new(sql, [id_column.clone()]))).collect();
        self.link.query_all(PURGING, &calls)?;
        self.tasks.extend(ids.into_iter().map(TaskId));
        Ok(())
    }

    /// A finished batch stays as long as one of its tasks does. By batches_finished, tasks_batch, tasks_done_batch.
    fn delete_batches(&mut self) -> Tried<()> {
        const SQL: &str = concat!(
            "SELECT b.id FROM batches b WHERE b.finished_at IS NOT NULL AND b.finished_at <= $1::bigint",
            " AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.batch = b.id AND t.batch IS NOT NULL)",
            " AND NOT EXISTS (SELECT 1 FROM tasks_done t WHERE t.batch = b.id AND t.batch IS NOT NULL)",
            " AND NOT ",
            is_awaited!("b.id"),
            " ORDER BY b.finished_at LIMIT $2::bigint"
        );
        let Some(cutoff) = self.cutoff(self.purge.retention_ms) else { return Ok(()) };
        let rows = self.query(SQL, [Param::bigint(cutoff), self.limit()])?;
        self.note(rows.len());
        if rows.is_empty() {
            return Ok(());
        }
        let ids = rows.iter().map(|row| id_at(row, 0)).collect::<Result<Vec<u128>, Error>>()?;
        let ids = uuids(ids.into_iter());
        let calls = [
            "DELETE FROM batches WHERE id = ANY($1::uuid[])",
            "DELETE FROM batch_specs WHERE id = ANY($1::uuid[])",
            "UPDATE keys SET orphaned = true WHERE subject = ANY($1::uuid[])",
        ];
        self.link.query_all(PURGING, &calls.map(|sql| Call::new(sql, [ids.clone()])))?;
        Ok(())
    }

    /// By deliveries_ended.
    fn delete_deliveries(&mut self) -> Tried<()> {
        let sql = "DELETE FROM deliveries WHERE id = ANY(ARRAY(SELECT id FROM deliveries WHERE next_at IS NULL \
                   AND at_ms <= $1::bigint ORDER BY at_ms, id LIMIT $2::bigint)) RETURNING 1";
        let Some(cutoff) = self.cutoff(self.purge.deliveries_ms) else { return Ok(()) };
        let gone = self.query(sql, [Param::bigint(cutoff), self.limit()])?;
        self.note(gone.len());
        Ok(())
    }

    /// By runs_ended.
    fn delete_old_runs(&mut self) -> Tried<()> {
        let sql = "DELETE FROM runs r USING (SELECT schedule, n FROM runs WHERE ended_at IS NOT NULL \
                   AND ended_at <= $1::bigint ORDER BY ended_at LIMIT $2::bigint) o \
                   WHERE r.schedule = o.schedule AND r.n = o.n RETURNING 1";
        let Some(cutoff) = self.cutoff(self.purge.runs_ms) else { return Ok(()) };
        let gone = self.query(sql, [Param::bigint(cutoff), self.limit()])?;
        self.note(gone.len());
        Ok(())
    }

    /// Ended runs too far behind the latest of their schedule. Numbers are without gaps, so the distance of two of them
    /// says how many there are between: a few seeks for each schedule. A chunk in which nothing could go ends the walk
    /// until the next time. By runs_pkey.
    fn walk_runs(&mut self, after: Option<u128>) -> Tried<Option<u128>> {
        const SCHEDULES: &str = "WITH RECURSIVE s AS ((SELECT r.schedule FROM runs r WHERE r.schedule > $1::uuid ORDER BY r.schedule LIMIT 1) \
             UNION ALL SELECT (SELECT r.schedule FROM runs r WHERE r.schedule > s.schedule ORDER BY r.schedule LIMIT 1) \
             FROM s WHERE s.schedule IS NOT NULL) \
             SELECT s.schedule, (SELECT max(r.n) FROM runs r WHERE r.schedule = s.schedule) \
             FROM s WHERE s.schedule IS NOT NULL LIMIT $2::bigint";
        const OLD: &str = "SELECT o.schedule, o.n FROM unnest($1::uuid[], $2::bigint[]) AS w(schedule, upto) \
                           CROSS JOIN LATERAL (SELECT r.schedule, r.n FROM runs r WHERE r.schedule = w.schedule \
                           AND r.n <= w.upto AND r.ended_at IS NOT NULL ORDER BY r.n LIMIT $3::bigint) o LIMIT $3::bigint";
        const DELETE: &str = "DELETE FROM runs r USING unnest($1::uuid[], $2::bigint[]) AS o(schedule, n) \
                              WHERE r.schedule = o.schedule AND r.n = o.n";
        // No id is zero.
        let rows = self.query(SCHEDULES, [Param::uuid(after.unwrap_or(0)), self.limit()])?;
        let (mut schedules, mut ids, mut upto) = (Vec::new(), Column::uuid(rows.len()), Column::bigint(rows.len()));
        for row in &rows {
            let (Id(id), latest) = (field(row, 0)?, field::<i64>(row, 1)?);
            schedules.push(id);
            ids.push_id(id);
            upto.push_i64(latest.saturating_sub(moment(self.purge.runs_max)));
        }
        let old = self.query(OLD, [ids.into(), upto.into(), self.limit()])?;
        let (mut ids, mut numbers) = (Column::uuid(old.len()), Column::bigint(old.len()));
        for row in &old {
            ids.push_id(id_at(row, 0)?);
            numbers.push_i64(field(row, 1)?);
        }
        self.query(DELETE, [ids.into(), numbers.into()])?;
        if old.len() >= self.purge.limit {
            self.rest = Rest::More;
            // The last of them may have more: it is looked at again.
            let last = old.last().map(|row| id_at(row, 0)).transpose()?;
            let before = schedules.iter().rev().skip_while(|id| Some(**id) != last).nth(1);
            return Ok(before.copied().or(after));
        }
        if schedules.len() < self.purge.limit {
            return Ok(None);
        }
        if !old.is_empty() {
            self.rest = Rest::More;
        }
        Ok(schedules.last().copied())
    }

    /// By keys_orphaned.
    fn delete_keys(&mut self) -> Tried<()> {
        let sql = "DELETE FROM keys k USING (SELECT agent, key FROM keys WHERE orphaned AND created_at <= $1::bigint \
                   ORDER BY created_at LIMIT $2::bigint) o WHERE k.agent = o.agent AND k.key = o.key RETURNING 1";
        let Some(cutoff) = self.cutoff(self.purge.keys_ms_min) else { return Ok(()) };
        let gone = self.query(sql, [Param::bigint(cutoff), self.limit()])?;
        self.note(gone.len());
        Ok(())
    }

    /// Oldest first, while they are too old or the log is too long.
    fn delete_happenings(&mut self, mut n_bytes: i64) -> Tried<()> {
        let bytes_max = moment(self.purge.happenings_bytes_max);
        let cutoff = self.cutoff(self.purge.happenings_ms).unwrap_or(-1);
        let sql = "SELECT seq, at_ms, octet_length(body) FROM happenings ORDER BY seq LIMIT $1::bigint";
        let (mut n_deleted, mut last) = (0, None);
        for row in self.query(sql, [self.limit()])? {
            let (seq, at_ms, len): (i64, i64, i32) = (field(&row, 0)?, field(&row, 1)?, field(&row, 2)?);
            if n_bytes <= bytes_max && at_ms > cutoff {
                break;
            }
            n_bytes -= i64::from(len);
            n_deleted += 1;
            last = Some(seq);
        }
        let Some(last) = last else { return Ok(()) };
        self.note(n_deleted);
        self.query("DELETE FROM happenings WHERE seq <= $1::bigint", [Param::bigint(last)])?;
        self.query("UPDATE meta SET log_bytes = $1::bigint WHERE one = 1", [Param::bigint(n_bytes)])?;
        Ok(())
    }

    fn query(&mut self, sql: &'static str, params: impl Into<Vec<Param>>) -> Tried<Vec<Row>> {
        self.link.query(PURGING, sql, params)
    }

    /// A full chunk may have left something behind.
    fn note(&mut self, n_found: usize) {
        if n_found >= self.purge.limit {
            self.rest = Rest::More;
        }
    }

    fn limit(&self) -> Param {
        Param::bigint(integer(self.purge.limit as u64))
    }

    /// What happened then or before is over. A time that reaches behind the beginning of the clock is never over.
    fn cutoff(&self, kept_ms: u64) -> Option<i64> {
        self.now.wall_ms.checked_sub(kept_ms).map(moment)
    }
}

pub const PURGING: &str = "purging";
