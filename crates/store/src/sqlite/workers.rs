//! Workers that registered: written when something about them changes, read whole at a start.

use runyard_core::ids::WorkerId;
use runyard_core::worker::WorkerRow;
use runyard_core::write::WriteSet;
use rusqlite::{Connection, Transaction, params};

use super::load::{all, damaged};
use super::row::Doing;
use crate::codec::{decode_worker, encode_worker};
use crate::store::Result;

const WRITING: &str = "writing workers";
const LOADING: &str = "loading workers";

pub fn write(tx: &Transaction<'_>, writes: &WriteSet, body: &mut Vec<u8>) -> Result<()> {
    for row in &writes.workers_put {
        encode_worker(row, body);
        let sql = "INSERT INTO workers(id, body) VALUES (?1, ?2) ON CONFLICT(id) DO UPDATE SET body = excluded.body";
        let mut put = tx.prepare_cached(sql).doing(WRITING)?;
        put.execute(params![key(row.spec.id), &body[..]]).doing(WRITING)?;
    }
    for id in &writes.workers_removed {
        let mut remove = tx.prepare_cached("DELETE FROM workers WHERE id = ?1").doing(WRITING)?;
        remove.execute([key(*id)]).doing(WRITING)?;
    }
    Ok(())
}

pub fn load(tx: &Connection) -> Result<Vec<WorkerRow>> {
    all(tx, "SELECT id, body FROM workers ORDER BY id", LOADING, |row| {
        let id: [u8; 16] = row.get(0).doing(LOADING)?;
        let id = WorkerId(u128::from_be_bytes(id));
        let body: Vec<u8> = row.get(1).doing(LOADING)?;
        decode_worker(id, &body).ok_or_else(|| damaged("a worker's row", format!("{id:?}")))
    })
}

fn key(id: WorkerId) -> [u8; 16] {
    id.0.to_be_bytes()
}
