//! A worker that registered: what it offers, and what the edge keeps with it.

use runyard_core::flow::Resources;
use runyard_core::ids::WorkerId;
use runyard_core::name::{Blob, Name};
use runyard_core::worker::{WorkerRow, WorkerSpec};

use super::{Cut, VERSION, put_text, put_varint};

/// Bits of the byte behind the session.
const DRAINING: u8 = 1;
const EMBEDDED: u8 = 2;

/// `out` is cleared first.
pub fn encode_worker(row: &WorkerRow, out: &mut Vec<u8>) {
    out.clear();
    out.push(VERSION);
    let WorkerRow { spec, session, draining, registered_at, about } = row;
    out.extend_from_slice(&session.to_le_bytes());
    let flags = [(*draining, DRAINING), (spec.embedded, EMBEDDED)];
    out.push(flags.into_iter().filter_map(|(is_set, bit)| is_set.then_some(bit)).sum());
    put_varint(out, *registered_at);
    put_text(out, &spec.name);
    for names in [&spec.kinds, &spec.keeps] {
        put_varint(out, names.len() as u64);
        names.iter().for_each(|name| put_text(out, name));
    }
    put_varint(out, u64::from(spec.capacity.cpu_milli));
    put_varint(out, u64::from(spec.capacity.ram_mb));
    put_varint(out, spec.capacity.named.len() as u64);
    for (name, n) in &spec.capacity.named {
        put_text(out, name);
        put_varint(out, u64::from(*n));
    }
    put_varint(out, spec.parallel_max.map_or(0, |max| u64::from(max) + 1));
    put_varint(out, spec.labels.len() as u64);
    for (key, value) in &spec.labels {
        put_text(out, key);
        put_text(out, value);
    }
    out.extend_from_slice(about);
}

pub fn decode_worker(id: WorkerId, bytes: &[u8]) -> Option<WorkerRow> {
    let mut cut = Cut::versioned(bytes)?;
    let session = u64::from_le_bytes(cut.array()?);
    let flags = cut.byte()?;
    if flags & !(DRAINING | EMBEDDED) != 0 {
        return None;
    }
    let (draining, embedded) = (flags & DRAINING != 0, flags & EMBEDDED != 0);
    let registered_at = cut.varint()?;
    let name = cut.name()?;
    let (kinds, keeps) = (cut.names()?, cut.names()?);
    let (cpu_milli, ram_mb) = (cut.u32()?, cut.u32()?);
    let n_named = cut.varint()?;
    let named = (0..n_named).map(|_| Some((cut.name()?, cut.u32()?))).collect::<Option<Vec<_>>>()?;
    let parallel_max = match cut.varint()? {
        0 => None,
        max => Some(u32::try_from(max - 1).ok()?),
    };
    let n_labels = cut.varint()?;
    let labels = (0..n_labels).map(|_| Some((cut.name()?, cut.name()?))).collect::<Option<Vec<(Name, Name)>>>()?;
    let capacity = Resources { cpu_milli, ram_mb, named };
    let spec = WorkerSpec { id, name, kinds, keeps, capacity, parallel_max, labels, embedded };
    Some(WorkerRow { spec, session, draining, registered_at, about: Blob::from(cut.0) })
}

impl Cut<'_> {
    fn names(&mut self) -> Option<Vec<Name>> {
        let len = self.varint()?;
        (0..len).map(|_| self.name()).collect()
    }
}
