//! A flow is all tasks that pass exactly the same gates; inside it only order matters. Its key is only what the task
//! says, never configuration: a reload rewires gates and touches no row.

use crate::name::Name;
use crate::task::Tier;
use crate::trail::{put_varint, take_varint};

/// What is reserved on a worker while the task holds its lease.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Resources {
    pub cpu_milli: u32,
    pub ram_mb: u32,
    /// gpu and any other named resource, sorted by name.
    pub named: Vec<(Name, u32)>,
}

/// Labels are `key=value`, sorted.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Place {
    pub require: Vec<(Name, Name)>,
    pub prefer: Vec<(Name, Name)>,
    pub avoid: Vec<(Name, Name)>,
    pub spread_by: Option<Name>,
}

/// What a worker must offer: the part of the flow that placement looks at.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Shape {
    pub kind: Name,
    pub resources: Resources,
    pub place: Place,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowKey {
    pub agent: Name,
    pub lane: Name,
    pub tier: Tier,
    pub shape: Shape,
    /// Named gates, sorted, each once.
    pub gates: Vec<Name>,
}

impl FlowKey {
    /// The key as bytes for the store: the same flow always gives the same bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![1, self.tier as u8];
        put_text(&mut out, &self.agent);
        put_text(&mut out, &self.lane);
        put_text(&mut out, &self.shape.kind);
        put_varint(&mut out, u64::from(self.shape.resources.cpu_milli));
        put_varint(&mut out, u64::from(self.shape.resources.ram_mb));
        put_list(&mut out, &self.shape.resources.named, |out, (name, n)| {
            put_text(out, name);
            put_varint(out, u64::from(*n));
        });
        for labels in [&self.shape.place.require, &self.shape.place.prefer, &self.shape.place.avoid] {
            put_list(&mut out, labels, |out, (key, value)| {
                put_text(out, key);
                put_text(out, value);
            });
        }
        put_text(&mut out, self.shape.place.spread_by.as_deref().unwrap_or(""));
        put_list(&mut out, &self.gates, |out, gate| put_text(out, gate));
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<FlowKey> {
        let (&[version, tier], mut rest) = bytes.split_first_chunk::<2>()?;
        if version != 1 {
            return None;
        }
        let rest = &mut rest;
        let tier = Tier::from_code(tier)?;
        let agent = take_text(rest)?;
        let lane = take_text(rest)?;
        let kind = take_text(rest)?;
        let cpu_milli = take_varint(rest)? as u32;
        let ram_mb = take_varint(rest)? as u32;
        let named = take_list(rest, |rest| Some((take_text(rest)?, take_varint(rest)? as u32)))?;
        let mut labels = || take_list(rest, |rest| Some((take_text(rest)?, take_text(rest)?)));
        let (require, prefer, avoid) = (labels()?, labels()?, labels()?);
        let spread_by = Some(take_text(rest)?).filter(|name| !name.is_empty());
        let gates = take_list(rest, take_text)?;
        let resources = Resources { cpu_milli, ram_mb, named };
        let place = Place { require, prefer, avoid, spread_by };
        Some(FlowKey { agent, lane, tier, shape: Shape { kind, resources, place }, gates })
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn take_text(rest: &mut &[u8]) -> Option<Name> {
    let len = take_varint(rest)? as usize;
    let (text, tail) = rest.split_at_checked(len)?;
    *rest = tail;
    std::str::from_utf8(text).ok().map(Name::new)
}

fn put_list<T>(out: &mut Vec<u8>, items: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    put_varint(out, items.len() as u64);
    items.iter().for_each(|item| put(out, item));
}

fn take_list<T>(rest: &mut &[u8], take: impl Fn(&mut &[u8]) -> Option<T>) -> Option<Vec<T>> {
    let len = take_varint(rest)?;
    (0..len).map(|_| take(rest)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_bytes() {
        let key = FlowKey {
            agent: "a".into(),
            lane: "main".into(),
            tier: Tier::High,
            shape: Shape {
                kind: "process".into(),
                resources: Resources { cpu_milli: 1500, ram_mb: 256, named: vec![("gpu".into(), 1)] },
                place: Place {
                    require: vec![("zone".into(), "a".into())],
                    spread_by: Some("zone".into()),
                    ..Place::default()
                },
            },
            gates: vec!["api".into(), "db".into()],
        };
        assert_eq!(FlowKey::decode(&key.encode()), Some(key));
    }

    #[test]
    fn cut_bytes_are_no_key() {
        assert_eq!(FlowKey::decode(&[1, 0, 200]), None);
    }
}
