//! The outbox: rows written with what they tell of, read by when they are due.

use std::collections::BTreeMap;

use runyard_core::event::HappeningKind;
use runyard_core::now::WallMs;
use runyard_core::outbox::{Delivery, DeliveryId, DeliveryState, Progress};

use super::column::{Column, Param};
use super::link::{Call, Link};
use super::row::{Row, Tried, damaged, field, integer, moment, number};
use crate::codec::{decode_delivery_body, decode_progress, encode_delivery_body, encode_progress};
use crate::store::{DeliveryFilter, DeliveryPage, DeliveryPhase, Result};

pub fn insert(deliveries: &[Delivery], body: &mut Vec<u8>, calls: &mut Vec<Call>) {
    if deliveries.is_empty() {
        return;
    }
    let n = deliveries.len();
    let (mut ids, mut nexts, mut times) = (Column::bigint(n), Column::bigint(n), Column::bigint(n));
    let (mut subjects, mut states, mut events) = (Column::uuid(n), Column::smallint(n), Column::smallint(n));
    let (mut hooks, mut bodies, mut progresses) = (Column::text(n), Column::bytea(n), Column::bytea(n));
    for delivery in deliveries {
        ids.push_i64(integer(delivery.id.0));
        nexts.push_some_i64(delivery.next_at().map(moment));
        times.push_i64(moment(delivery.happening.at_ms));
        subjects.push_some_id(delivery.subject());
        states.push_i16(code(delivery.progress.state));
        events.push_i16(delivery.happening.kind as i16);
        hooks.push_some_bytes(delivery.hook.as_deref().map(str::as_bytes));
        encode_delivery_body(&delivery.happening, body);
        bodies.push(body);
        encode_progress(&delivery.progress, body);
        progresses.push(body);
    }
    let sql = "INSERT INTO deliveries(id, next_at, at_ms, subject, state, event, hook, body, progress) \
               SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::uuid[], $5::smallint[], \
               $6::smallint[], $7::text[], $8::bytea[], $9::bytea[])";
    let columns = [ids, nexts, times, subjects, states, events, hooks, bodies, progresses];
    calls.push(Call::new(sql, columns.map(Param::from)));
}

pub const UPDATE: &str = "UPDATE deliveries d SET state = u.state, next_at = u.next_at, progress = u.progress \
               FROM unnest($1::bigint[], $2::smallint[], $3::bigint[], $4::bytea[]) AS u(id, state, next_at, progress) \
               WHERE d.id = u.id";

/// One that retention has taken meanwhile is simply not there any more.
pub fn update(changed: &[(DeliveryId, Progress)], bytes: &mut Vec<u8>, calls: &mut Vec<Call>) {
    if changed.is_empty() {
        return;
    }
    // Told of twice in one tick, the last word counts.
    let last: BTreeMap<u64, &Progress> = changed.iter().map(|(id, progress)| (id.0, progress)).collect();
    let n = last.len();
    let (mut ids, mut states) = (Column::bigint(n), Column::smallint(n));
    let (mut nexts, mut progresses) = (Column::bigint(n), Column::bytea(n));
    for (id, progress) in last {
        encode_progress(progress, bytes);
        ids.push_i64(integer(id));
        states.push_i16(code(progress.state));
        nexts.push_some_i64(progress.next_at().map(moment));
        progresses.push(bytes);
    }
    calls.push(Call::new(UPDATE, [ids, states, nexts, progresses].map(Param::from)));
}

fn code(state: DeliveryState) -> i16 {
    DeliveryPhase::of(state) as i16
}

pub fn one(link: &mut Link, id: DeliveryId) -> Tried<Option<Delivery>> {
    let sql = "SELECT id, hook, body, progress FROM deliveries WHERE id = $1::bigint";
    let rows = link.query(READING, sql, [Param::bigint(moment(id.0))])?;
    Ok(rows.first().map(delivery_at).transpose()?)
}

/// By deliveries_due.
pub const DUE: &str = "SELECT id, hook, body, progress FROM deliveries WHERE next_at IS NOT NULL \
                       AND (next_at, id) > ($1::bigint, $2::bigint) ORDER BY next_at, id LIMIT $3::bigint";

pub fn due(link: &mut Link, after: Option<(WallMs, DeliveryId)>, limit: usize) -> Tried<Vec<Delivery>> {
    let (at, id) = after.map_or((-1, -1), |(at, id)| (moment(at), moment(id.0)));
    let rows = link.query(READING, DUE, [at, id, limit as i64].map(Param::bigint))?;
    Ok(rows.iter().map(delivery_at).collect::<Result<_>>()?)
}

/// Newest first. A subject has few (deliveries_subject); for the rest every row is looked at, as far as one page goes.
pub fn list(
    link: &mut Link,
    filter: &DeliveryFilter,
    after: Option<DeliveryId>,
    limit: usize,
    scan_max: usize,
) -> Tried<DeliveryPage> {
    const OF_SUBJECT: &str = "SELECT id, hook, body, progress, state, event FROM deliveries \
                              WHERE subject = $3::uuid AND subject IS NOT NULL AND id < $1::bigint \
                              ORDER BY id DESC LIMIT $2::bigint";
    const ALL: &str = "SELECT id, hook, body, progress, state, event FROM deliveries WHERE id < $1::bigint \
                       ORDER BY id DESC LIMIT $2::bigint";
    let (mut items, mut n_seen, mut last) = (Vec::new(), 0, None);
    let mut before = after.map_or(i64::MAX, |id| moment(id.0));
    loop {
        let page = Param::bigint(PAGE as i64);
        let rows = match filter.subject {
            Some(subject) => link.query(READING, OF_SUBJECT, [Param::bigint(before), page, Param::uuid(subject)])?,
            None => link.query(READING, ALL, [Param::bigint(before), page])?,
        };
        for row in &rows {
            let passes = passes(row, filter)?;
            if n_seen == scan_max || passes && items.len() == limit {
                return Ok(DeliveryPage { items, next: last });
            }
            if passes {
                items.push(delivery_at(row)?);
            }
            n_seen += 1;
            before = field(row, 0)?;
            last = Some(DeliveryId(number(before)));
        }
        if rows.len() < PAGE {
            return Ok(DeliveryPage { items, next: None });
        }
    }
}

fn passes(row: &Row, filter: &DeliveryFilter) -> Result<bool> {
    let hook: Option<&str> = field(row, 1)?;
    let (state, event): (i16, i16) = (field(row, 4)?, field(row, 5)?);
    Ok(filter.state.is_none_or(|wanted| wanted as i16 == state)
        && filter.event.is_none_or(|wanted: HappeningKind| wanted as i16 == event)
        && filter.hook.as_deref().is_none_or(|wanted| hook == Some(wanted)))
}

/// Reads `id, hook, body, progress`.
fn delivery_at(row: &Row) -> Result<Delivery> {
    let id = DeliveryId(number(field(row, 0)?));
    let hook = field::<Option<&str>>(row, 1)?.map(Into::into);
    let torn = |what: &str| damaged("a delivery's row", format!("{id:?}, {what}"));
    let happening = decode_delivery_body(field(row, 2)?).ok_or_else(|| torn("what happened"))?;
    let progress = decode_progress(field(row, 3)?).ok_or_else(|| torn("its progress"))?;
    Ok(Delivery { id, hook, happening, progress })
}

/// Rows that are read at once.
const PAGE: usize = 1000;
const READING: &str = "reading the outbox";
