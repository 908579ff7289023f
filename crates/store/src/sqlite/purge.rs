//! Retention, one bounded chunk at a time. Seqs follow time, so default-retention tasks are found by walking up from the
//! oldest until one is too young; the few with a ttl of their own have an index. Sessions are walked through, some at each time.

use runyard_core::event::Rest;
use runyard_core::ids::TaskId;
use runyard_core::now::Now;
use runyard_core::task::Task;
use rusqlite::{OptionalExtension, Transaction, params};

use super::commit::epoch;
use super::row::{Doing, integer, moment, task_at, task_columns};
use crate::store::{Error, Purge, Purged, Result};

/// Where the walks go on. Only a hint: a walk that starts over finds the same.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    /// The last seq looked at. Seqs begin at 0.
    seq: i64,
    /// The last session looked at.
    session: i64,
    /// The last schedule whose runs were looked at.
    schedule: Option<[u8; 16]>,
}

impl Default for Cursor {
    fn default() -> Self {
        Cursor { seq: -1, session: -1, schedule: None }
    }
}

pub fn purge(tx: &Transaction<'_>, ours: u64, now: Now, purge: &Purge, cursor: Cursor) -> Result<(Purged, Cursor)> {
    let theirs = epoch(tx)?;
    if theirs != ours {
        return Err(Error::Fenced { ours, theirs });
    }
    // A chunk of nothing would never be done.
    let purge = &Purge { limit: purge.limit.max(1), ..*purge };
    let mut chunk = Chunk { tx, now, purge, rest: Rest::Done, tasks: Vec::new() };
    chunk.expire_own_ttl()?;
    let cursor = chunk.walk_on(cursor)?;
    chunk.delete_batches()?;
    chunk.delete_keys()?;
    chunk.delete_happenings()?;
    chunk.delete_deliveries()?;
    chunk.delete_old_runs()?;
    let schedule = chunk.walk_runs(cursor.schedule)?;
    Ok((Purged { tasks: chunk.tasks, rest: chunk.rest }, Cursor { schedule, ..cursor }))
}

/// Is there a message about it that has not been delivered?
macro_rules! is_awaited {
    ($id:literal) => {
        concat!(
            "EXISTS (SELECT 1 FROM deliveries d INDEXED BY deliveries_subject WHERE d.subject = ",
            $id,
            " AND d.subject IS NOT NULL AND d.next_at IS NOT NULL)"
        )
    };
}

/// Is something still to be done about its end? The ids of ended runs begin with their task.
macro_rules! is_releasing {
    () => {
        concat!(
            "(EXISTS (SELECT 1 FROM releases r WHERE r.kind = 0 AND r.id = t.id) OR coalesce((SELECT",
            " substr(r.id, 1, 16) = t.id FROM releases r WHERE r.kind = 7 AND r.id >= t.id ORDER BY r.id LIMIT 1), 0))"
        )
    };
}

struct Chunk<'a> {
    tx: &'a Transaction<'a>,
    now: Now,
    purge: &'a Purge,
    rest: Rest,
    tasks: Vec<TaskId>,
}

impl Chunk<'_> {
    /// A parent whose release is still being worked off stays, because its edges say whom it frees; the task of a run that
    /// is not closed yet; and what a message that is not delivered yet tells of.
    fn expire_own_ttl(&mut self) -> Result<()> {
        const SQL: &str = concat!(
            "SELECT ",
            task_columns!(),
            " FROM tasks t INDEXED BY tasks_expires WHERE t.expires_at IS NOT NULL AND t.expires_at <= ?1",
            " AND NOT ",
            is_releasing!(),
            " AND NOT ",
            is_awaited!("t.id"),
            " ORDER BY t.expires_at, t.seq LIMIT ?2"
        );
        let mut select = self.tx.prepare_cached(SQL).doing(PURGING)?;
        let mut rows = select.query(params![moment(self.now.wall_ms), self.limit()]).doing(PURGING)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().doing(PURGING)? {
            found.push(task_at(row)?);
        }
        self.note(found.len());
        found.iter().try_for_each(|task| self.delete_task(task))
    }

    /// Sessions come after all tasks, because the last task of a session may go in the last chunk.
    fn walk_on(&mut self, cursor: Cursor) -> Result<Cursor> {
        if let Some(seq) = self.walk_tasks(cursor.seq)? {
            return Ok(Cursor { seq, ..cursor });
        }
        let session = match self.rest {
            Rest::More => cursor.session,
            Rest::Done => self.walk_sessions(cursor.session)?,
        };
        Ok(Cursor { session, seq: Cursor::default().seq, ..cursor })
    }

    /// Gives the last seq looked at, while there is more behind it.
    fn walk_tasks(&mut self, mut last: i64) -> Result<Option<i64>> {
        const SQL: &str = concat!(
            "SELECT ",
            task_columns!(),
            ", t.phase, t.expires_at IS NULL, t.created_at, ",
            is_releasing!(),
            " OR ",
            is_awaited!("t.id"),
            " FROM tasks t WHERE t.seq > ?1 ORDER BY t.seq LIMIT ?2"
        );
        let Some(cutoff) = self.cutoff(self.purge.retention_ms) else { return Ok(None) };
        let mut select = self.tx.prepare_cached(SQL).doing(PURGING)?;
        let mut rows = select.query(params![last, self.limit()]).doing(PURGING)?;
        let mut n_seen = 0;
        let mut found = Vec::new();
        let mut is_over = false;
        while let Some(row) = rows.next().doing(PURGING)? {
            let columns = |row: &rusqlite::Row<'_>| Ok((row.get(7)?, row.get(8)?, row.get(9)?, row.get(10)?));
            let (phase, by_retention, created_at, is_needed): (u8, bool, i64, bool) = columns(row).doing(PURGING)?;
            if created_at > cutoff {
                is_over = true;
                break;
            }
            n_seen += 1;
            last = row.get(0).doing(PURGING)?;
            if phase >= 5 && by_retention && !is_needed {
                let task = task_at(row)?;
                if moment(task.finished_at.unwrap_or(task.created_at)) <= cutoff {
                    found.push(task);
                }
            }
        }
        drop(rows);
        found.iter().try_for_each(|task| self.delete_task(task))?;
        if is_over || n_seen < self.purge.limit {
            return Ok(None);
        }
        self.rest = Rest::More;
        Ok(Some(last))
    }

    /// The next ones by id, idle or not: an index of the idle ones would cost every task of a session more than this
    /// walk costs. A chunk in which nothing could go ends the walk until the next time.
    fn walk_sessions(&mut self, after: i64) -> Result<i64> {
        let sql = "SELECT g.id, g.n_live = 0 AND g.last_at <= ?2 AND NOT EXISTS \
                   (SELECT 1 FROM tasks t INDEXED BY tasks_session WHERE t.session = g.id AND t.session IS NOT NULL) \
                   FROM sessions g WHERE g.id > ?1 ORDER BY g.id LIMIT ?3";
        let Some(cutoff) = self.cutoff(self.purge.retention_ms) else { return Ok(-1) };
        let mut select = self.tx.prepare_cached(sql).doing(PURGING)?;
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let seen = select.query_map(params![after, cutoff, self.limit()], read).doing(PURGING)?;
        let seen: Vec<(i64, bool)> = seen.collect::<rusqlite::Result<_>>().doing(PURGING)?;
        let mut delete = self.tx.prepare_cached("DELETE FROM sessions WHERE id = ?1").doing(PURGING)?;
        let mut n_deleted = 0;
        for (id, _) in seen.iter().filter(|(_, goes)| *goes) {
            n_deleted += delete.execute([id]).doing(PURGING)?;
        }
        match seen.last() {
            Some(&(id, _)) if seen.len() >= self.purge.limit => {
                if n_deleted > 0 {
                    self.rest = Rest::More;
                }
                Ok(id)
            }
            _ => Ok(-1),
        }
    }

    fn delete_task(&mut self, task: &Task) -> Result<()> {
        let (seq, key) = (integer(task.seq), task.id.0.to_be_bytes());
        for sql in [
            "DELETE FROM tasks WHERE seq = ?1",
            "DELETE FROM specs WHERE seq = ?1",
            "DELETE FROM edges WHERE child = ?1",
        ] {
            self.tx.prepare_cached(sql).doing(PURGING)?.execute([seq]).doing(PURGING)?;
        }
        if task.member.is_some() {
            for sql in ["DELETE FROM messages WHERE task_seq = ?1", "DELETE FROM session_drops WHERE task_seq = ?1"] {
                self.tx.prepare_cached(sql).doing(PURGING)?.execute([seq]).doing(PURGING)?;
            }
        }
        for sql in ["DELETE FROM edges WHERE parent = ?1", "UPDATE keys SET orphaned = 1 WHERE subject = ?1"] {
            self.tx.prepare_cached(sql).doing(PURGING)?.execute([key]).doing(PURGING)?;
        }
        self.tasks.push(task.id);
        Ok(())
    }

    /// A finished batch stays as long as one of its tasks does.
    fn delete_batches(&mut self) -> Result<()> {
        let sql = concat!(
            "SELECT b.id FROM batches b INDEXED BY batches_finished",
            " WHERE b.finished_at IS NOT NULL AND b.finished_at <= ?1",
            " AND NOT EXISTS (SELECT 1 FROM tasks t INDEXED BY tasks_batch WHERE t.batch = b.id AND t.batch IS NOT NULL)",
            " AND NOT ",
            is_awaited!("b.id"),
            " ORDER BY b.finished_at LIMIT ?2"
        );
        let Some(cutoff) = self.cutoff(self.purge.retention_ms) else { return Ok(()) };
        let mut select = self.tx.prepare_cached(sql).doing(PURGING)?;
        let ids = select.query_map(params![cutoff, self.limit()], |row| row.get::<_, [u8; 16]>(0)).doing(PURGING)?;
        let ids: Vec<[u8; 16]> = ids.collect::<rusqlite::Result<_>>().doing(PURGING)?;
        self.note(ids.len());
        for id in ids {
            for sql in [
                "DELETE FROM batches WHERE id = ?1",
                "DELETE FROM batch_specs WHERE id = ?1",
                "UPDATE keys SET orphaned = 1 WHERE subject = ?1",
            ] {
                self.tx.prepare_cached(sql).doing(PURGING)?.execute([id]).doing(PURGING)?;
            }
        }
        Ok(())
    }

    fn delete_deliveries(&mut self) -> Result<()> {
        let sql = "DELETE FROM deliveries WHERE id IN (SELECT id FROM deliveries INDEXED BY deliveries_ended \
                   WHERE next_at IS NULL AND at_ms <= ?1 ORDER BY at_ms, id LIMIT ?2)";
        let Some(cutoff) = self.cutoff(self.purge.deliveries_ms) else { return Ok(()) };
        let mut delete = self.tx.prepare_cached(sql).doing(PURGING)?;
        let n_deleted = delete.execute(params![cutoff, self.limit()]).doing(PURGING)?;
        self.note(n_deleted);
        Ok(())
    }

    fn delete_old_runs(&mut self) -> Result<()> {
        let sql = "DELETE FROM runs WHERE rowid IN (SELECT rowid FROM runs INDEXED BY runs_ended \
                   WHERE ended_at IS NOT NULL AND ended_at <= ?1 ORDER BY ended_at LIMIT ?2)";
        let Some(cutoff) = self.cutoff(self.purge.runs_ms) else { return Ok(()) };
        let mut delete = self.tx.prepare_cached(sql).doing(PURGING)?;
        let n_deleted = delete.execute(params![cutoff, self.limit()]).doing(PURGING)?;
        self.note(n_deleted);
        Ok(())
    }

    /// Ended runs too far behind the latest of their schedule. Numbers are without gaps, so the distance of two of them
    /// says how many there are between: a few seeks for each schedule. A chunk in which nothing could go ends the walk
    /// until the next time.
    fn walk_runs(&mut self, mut last: Option<[u8; 16]>) -> Result<Option<[u8; 16]>> {
        let next = "SELECT schedule FROM runs WHERE schedule > ?1 ORDER BY schedule LIMIT 1";
        let latest = "SELECT max(n) FROM runs WHERE schedule = ?1";
        let old = "DELETE FROM runs WHERE rowid IN (SELECT rowid FROM runs \
                   WHERE schedule = ?1 AND n <= ?2 AND ended_at IS NOT NULL ORDER BY n LIMIT ?3)";
        let mut n_deleted = 0;
        for _ in 0..self.purge.limit {
            let mut select = self.tx.prepare_cached(next).doing(PURGING)?;
            let after = last.as_ref().map_or(&[][..], |id| &id[..]);
            let found: Option<[u8; 16]> = select.query_row([after], |row| row.get(0)).optional().doing(PURGING)?;
            let Some(schedule) = found else { return Ok(None) };
            let mut select = self.tx.prepare_cached(latest).doing(PURGING)?;
            let latest: i64 = select.query_row([schedule], |row| row.get(0)).doing(PURGING)?;
            let upto = latest.saturating_sub(moment(self.purge.runs_max));
            let room = self.limit() - n_deleted as i64;
            let mut delete = self.tx.prepare_cached(old).doing(PURGING)?;
            n_deleted += delete.execute(params![schedule, upto, room]).doing(PURGING)?;
            if n_deleted >= self.purge.limit {
                self.rest = Rest::More;
                return Ok(last);
            }
            last = Some(schedule);
        }
        if n_deleted > 0 {
            self.rest = Rest::More;
        }
        Ok(last)
    }

    fn delete_keys(&mut self) -> Result<()> {
        let sql = "SELECT agent, key FROM keys INDEXED BY keys_orphaned \
                   WHERE orphaned = 1 AND created_at <= ?1 ORDER BY created_at LIMIT ?2";
        let Some(cutoff) = self.cutoff(self.purge.keys_ms_min) else { return Ok(()) };
        let mut select = self.tx.prepare_cached(sql).doing(PURGING)?;
        let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
        let keys = select.query_map(params![cutoff, self.limit()], read).doing(PURGING)?;
        let keys: Vec<(String, String)> = keys.collect::<rusqlite::Result<_>>().doing(PURGING)?;
        self.note(keys.len());
        let mut delete = self.tx.prepare_cached("DELETE FROM keys WHERE agent = ?1 AND key = ?2").doing(PURGING)?;
        for key in keys {
            delete.execute(key).doing(PURGING)?;
        }
        Ok(())
    }

    /// Oldest first, while they are too old or the log is too long.
    fn delete_happenings(&mut self) -> Result<()> {
        let mut n_bytes: i64 = self.tx.query_row("SELECT log_bytes FROM meta", [], |row| row.get(0)).doing(PURGING)?;
        let bytes_max = moment(self.purge.happenings_bytes_max);
        let cutoff = self.cutoff(self.purge.happenings_ms).unwrap_or(-1);
        let sql = "SELECT seq, at_ms, length(body) FROM happenings ORDER BY seq LIMIT ?1";
        let mut select = self.tx.prepare_cached(sql).doing(PURGING)?;
        let mut rows = select.query([self.limit()]).doing(PURGING)?;
        let (mut n_deleted, mut last) = (0, None);
        while let Some(row) = rows.next().doing(PURGING)? {
            let columns = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
            let (seq, at_ms, len): (i64, i64, i64) = columns(row).doing(PURGING)?;
            if n_bytes <= bytes_max && at_ms > cutoff {
                break;
            }
            n_bytes -= len;
            n_deleted += 1;
            last = Some(seq);
        }
        drop(rows);
        let Some(last) = last else { return Ok(()) };
        self.note(n_deleted);
        self.tx.execute("DELETE FROM happenings WHERE seq <= ?1", [last]).doing(PURGING)?;
        self.tx.execute("UPDATE meta SET log_bytes = ?1", [n_bytes]).doing(PURGING)?;
        Ok(())
    }

    /// A full chunk may have left something behind.
    fn note(&mut self, n_found: usize) {
        if n_found >= self.purge.limit {
            self.rest = Rest::More;
        }
    }

    fn limit(&self) -> i64 {
        integer(self.purge.limit as u64)
    }

    /// What happened then or before is over. A time that reaches behind the beginning of the clock is never over.
    fn cutoff(&self, kept_ms: u64) -> Option<i64> {
        self.now.wall_ms.checked_sub(kept_ms).map(moment)
    }
}

const PURGING: &str = "purging";
