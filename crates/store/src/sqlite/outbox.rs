//! The outbox: rows written with what they tell of, read by when they are due.

use runyard_core::event::HappeningKind;
use runyard_core::name::Name;
use runyard_core::now::WallMs;
use runyard_core::outbox::{Delivery, DeliveryId, DeliveryState, Progress};
use rusqlite::{Connection, Row, Transaction, params};

use super::row::{Doing, integer, is_constraint, moment, number};
use crate::codec::{decode_delivery_body, decode_progress, encode_delivery_body, encode_progress};
use crate::store::{DeliveryFilter, DeliveryPage, DeliveryPhase, Error, Result};

pub fn insert(tx: &Transaction<'_>, deliveries: &[Delivery], body: &mut Vec<u8>) -> Result<()> {
    if deliveries.is_empty() {
        return Ok(());
    }
    let sql = "INSERT INTO deliveries(id, state, next_at, at_ms, event, hook, subject, body, progress) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    let mut insert = tx.prepare_cached(sql).doing(WRITING)?;
    let mut progress = Vec::new();
    for delivery in deliveries {
        encode_delivery_body(&delivery.happening, body);
        encode_progress(&delivery.progress, &mut progress);
        let row = params![
            integer(delivery.id.0),
            code(delivery.progress.state),
            delivery.next_at().map(moment),
            moment(delivery.happening.at_ms),
            delivery.happening.kind as u8,
            delivery.hook.as_deref(),
            delivery.subject().map(u128::to_be_bytes),
            &body[..],
            progress,
        ];
        insert.execute(row).map_err(|error| match is_constraint(&error) {
            true => Error::Conflict { task: None, detail: format!("{:?} exists already", delivery.id) },
            false => super::row::failed(WRITING, error),
        })?;
    }
    Ok(())
}

/// One that retention has taken meanwhile is simply not there any more.
pub fn update(tx: &Transaction<'_>, changed: &[(DeliveryId, Progress)], bytes: &mut Vec<u8>) -> Result<()> {
    if changed.is_empty() {
        return Ok(());
    }
    let sql = "UPDATE deliveries SET state = ?2, next_at = ?3, progress = ?4 WHERE id = ?1";
    let mut update = tx.prepare_cached(sql).doing(WRITING)?;
    for (id, progress) in changed {
        encode_progress(progress, bytes);
        let row = params![integer(id.0), code(progress.state), progress.next_at().map(moment), &bytes[..]];
        update.execute(row).doing(WRITING)?;
    }
    Ok(())
}

fn code(state: DeliveryState) -> u8 {
    DeliveryPhase::of(state) as u8
}

pub fn one(db: &Connection, id: DeliveryId) -> Result<Option<Delivery>> {
    let sql = "SELECT id, hook, body, progress FROM deliveries WHERE id = ?1";
    let mut select = db.prepare_cached(sql).doing(READING)?;
    let mut rows = select.query([moment(id.0)]).doing(READING)?;
    rows.next().doing(READING)?.map(delivery_at).transpose()
}

pub fn due(db: &Connection, after: Option<(WallMs, DeliveryId)>, limit: usize) -> Result<Vec<Delivery>> {
    let sql = "SELECT id, hook, body, progress FROM deliveries INDEXED BY deliveries_due \
               WHERE next_at IS NOT NULL AND (next_at, id) > (?1, ?2) ORDER BY next_at, id LIMIT ?3";
    let (at, id) = after.map_or((-1, -1), |(at, id)| (moment(at), moment(id.0)));
    let mut select = db.prepare_cached(sql).doing(READING)?;
    let mut rows = select.query(params![at, id, limit as i64]).doing(READING)?;
    let mut due = Vec::new();
    while let Some(row) = rows.next().doing(READING)? {
        due.push(delivery_at(row)?);
    }
    Ok(due)
}

/// Newest first. A subject has few; for the rest every row is looked at, as far as one page goes.
pub fn list(
    db: &Connection,
    filter: &DeliveryFilter,
    after: Option<DeliveryId>,
    limit: usize,
    scan_max: usize,
) -> Result<DeliveryPage> {
    let sql = match filter.subject {
        Some(_) => {
            "SELECT id, hook, body, progress, state, event FROM deliveries INDEXED BY deliveries_subject \
             WHERE subject = ?2 AND subject IS NOT NULL AND id < ?1 ORDER BY id DESC"
        }
        None => {
            "SELECT id, hook, body, progress, state, event FROM deliveries WHERE id < ?1 AND ?2 IS NULL ORDER BY id DESC"
        }
    };
    let mut select = db.prepare_cached(sql).doing(READING)?;
    let before = after.map_or(i64::MAX, |id| moment(id.0));
    let mut rows = select.query(params![before, filter.subject.map(u128::to_be_bytes)]).doing(READING)?;
    let mut items = Vec::new();
    let (mut n_seen, mut last) = (0, None);
    while let Some(row) = rows.next().doing(READING)? {
        let passes = passes(row, filter).doing(READING)?;
        if n_seen == scan_max || passes && items.len() == limit {
            return Ok(DeliveryPage { items, next: last });
        }
        if passes {
            items.push(delivery_at(row)?);
        }
        n_seen += 1;
        last = Some(DeliveryId(row.get(0).map(number).doing(READING)?));
    }
    Ok(DeliveryPage { items, next: None })
}

fn passes(row: &Row<'_>, filter: &DeliveryFilter) -> rusqlite::Result<bool> {
    let hook = row.get_ref(1)?.as_str_or_null()?;
    let (state, event): (u8, u8) = (row.get(4)?, row.get(5)?);
    Ok(filter.state.is_none_or(|wanted| wanted as u8 == state)
        && filter.event.is_none_or(|wanted: HappeningKind| wanted as u8 == event)
        && filter.hook.as_deref().is_none_or(|wanted| hook == Some(wanted)))
}

/// Reads `id, hook, body, progress`.
fn delivery_at(row: &Row<'_>) -> Result<Delivery> {
    let id = DeliveryId(row.get(0).map(number).doing(READING)?);
    let hook = row.get_ref(1).and_then(|hook| Ok(hook.as_str_or_null()?)).doing(READING)?.map(Name::new);
    let blob = |index: usize| row.get_ref(index).and_then(|bytes| Ok(bytes.as_blob()?)).doing(READING);
    let happening = decode_delivery_body(blob(2)?).ok_or_else(|| damaged(id, "what happened"))?;
    let progress = decode_progress(blob(3)?).ok_or_else(|| damaged(id, "its progress"))?;
    Ok(Delivery { id, hook, happening, progress })
}

fn damaged(id: DeliveryId, what: &str) -> Error {
    Error::Damaged { what: "a delivery's row", detail: format!("{id:?}, {what}") }
}

const WRITING: &str = "writing the outbox";
const READING: &str = "reading the outbox";
