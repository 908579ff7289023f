//! Workers that registered: written when something about them changes, read whole at a start.

use runyard_core::ids::WorkerId;
use runyard_core::worker::WorkerRow;
use runyard_core::write::WriteSet;

use super::column::{Column, Param, uuids};
use super::link::Call;
use super::row::{Row, damaged, field, id_at};
use crate::codec::{decode_worker, encode_worker};
use crate::store::Result;

pub const ALL: &str = "SELECT id, body FROM workers ORDER BY id";

pub fn write(writes: &WriteSet, body: &mut Vec<u8>, calls: &mut Vec<Call>) {
    if !writes.workers_put.is_empty() {
        let n = writes.workers_put.len();
        let (mut ids, mut bodies) = (Column::uuid(n), Column::bytea(n));
        for row in &writes.workers_put {
            encode_worker(row, body);
            ids.push_id(row.spec.id.0);
            bodies.push(body);
        }
        let sql = "INSERT INTO workers(id, body) SELECT * FROM unnest($1::uuid[], $2::bytea[]) \
                   ON CONFLICT (id) DO UPDATE SET body = excluded.body";
        calls.push(Call::new(sql, [ids, bodies].map(Param::from)));
    }
    if !writes.workers_removed.is_empty() {
        let ids = uuids(writes.workers_removed.iter().map(|id| id.0));
        calls.push(Call::new("DELETE FROM workers WHERE id = ANY($1::uuid[])", [ids]));
    }
}

/// Reads `id, body`.
pub fn worker_at(row: &Row) -> Result<WorkerRow> {
    let id = WorkerId(id_at(row, 0)?);
    decode_worker(id, field(row, 1)?).ok_or_else(|| damaged("a worker's row", format!("{id:?}")))
}
