//! What is known of a request beside what it says itself: who asked, under which ids its rows are made, whether an earlier
//! try may have been stored, and in which form a node wants the answer.
//!
//! The node that a client speaks to makes the ids. So a command that is sent on twice, because nobody knows whether the
//! first one was stored, names the same rows both times, and the second one finds them.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use runyard_core::event::Asked;
use runyard_core::hash::mix;
use runyard_wire::Id;

use crate::clock;

pub const IDS: HeaderName = HeaderName::from_static("runyard-ids");
pub const ASKED: HeaderName = HeaderName::from_static("runyard-asked");
pub const ASKED_FOR: HeaderName = HeaderName::from_static("runyard-for");
pub const FORM: HeaderName = HeaderName::from_static("runyard-form");
const IN_PARTS: HeaderValue = HeaderValue::from_static("in-parts");
const AGAIN: HeaderValue = HeaderValue::from_static("again");

#[derive(Clone, Copy, Debug)]
pub struct Forwarded {
    /// The first id; the others follow from it.
    pub ids: u128,
    pub asked: Asked,
    /// The client's address, where another node speaks for it.
    pub address: Option<IpAddr>,
    pub form: Form,
}

/// How output is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// As the client wants it.
    AsAsked,
    /// To a node, which may have to go on elsewhere ([`crate::output`]).
    InParts,
}

impl Forwarded {
    /// A client's own request.
    pub fn fresh() -> Forwarded {
        Forwarded { ids: clock::new_id(), asked: Asked::Once, address: None, form: Form::AsAsked }
    }

    /// As another node tells of it. What it leaves out is as for a fresh one.
    pub fn read(headers: &HeaderMap) -> Forwarded {
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let ids = text(&IDS).and_then(|text| text.parse::<Id>().ok()).map_or_else(clock::new_id, |Id(id)| id);
        let asked = if headers.get(&ASKED) == Some(&AGAIN) { Asked::Again } else { Asked::Once };
        let form = if headers.get(&FORM) == Some(&IN_PARTS) { Form::InParts } else { Form::AsAsked };
        Forwarded { ids, asked, address: text(&ASKED_FOR).and_then(|text| text.parse().ok()), form }
    }

    pub fn write(&self, headers: &mut HeaderMap) {
        let mut put = |name: HeaderName, text: &str| {
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(name, value);
            }
        };
        put(IDS, &Id(self.ids).to_string());
        if let Some(address) = self.address {
            put(ASKED_FOR, &address.to_string());
        }
        if self.asked == Asked::Again {
            headers.insert(ASKED, AGAIN);
        }
        if self.form == Form::InParts {
            headers.insert(FORM, IN_PARTS);
        }
    }

    /// When it was asked, by the clock of who was asked. What was in time then is not late because a change of holder took
    /// its time.
    pub fn asked_at_ms(&self) -> u64 {
        match self.asked {
            Asked::Once => clock::wall_ms(),
            Asked::Again => clock::made_at_ms(self.ids),
        }
    }

    pub fn ids(&self) -> Ids {
        Ids { first: self.ids, n_given: AtomicU32::new(0) }
    }
}

/// The ids of one request, the same at every try.
pub struct Ids {
    first: u128,
    n_given: AtomicU32,
}

impl Ids {
    /// A version 7 UUID as the first one is, of the same millisecond; in the order they are given as far as twelve bits go.
    pub fn next(&self) -> u128 {
        let n = self.n_given.fetch_add(1, Ordering::Relaxed);
        if n == 0 {
            return self.first;
        }
        let time_and_version = self.first >> 76 << 76;
        let order = u128::from(n & 0xfff) << 64;
        let variant = 0b10 << 62;
        let random = mix(self.first as u64 ^ mix((self.first >> 64) as u64 ^ u64::from(n))) >> 2;
        time_and_version | order | variant | u128::from(random)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_ids_of_a_request_are_the_same_at_every_try_and_all_different() {
        let asked = Forwarded::fresh();
        let given = |asked: &Forwarded| {
            let ids = asked.ids();
            (0..1001).map(|_| ids.next()).collect::<Vec<u128>>()
        };
        let mut headers = HeaderMap::new();
        let sent = Forwarded { asked: Asked::Again, address: "10.1.2.3".parse().ok(), form: Form::InParts, ..asked };
        sent.write(&mut headers);
        let again = Forwarded::read(&headers);
        assert_eq!((again.asked, again.address, again.form), (sent.asked, sent.address, sent.form));
        assert_eq!(given(&asked), given(&again));
        assert_eq!(given(&asked).into_iter().collect::<BTreeSet<_>>().len(), 1001);
        let other = Forwarded::fresh();
        assert!(given(&other).iter().all(|id| !given(&asked).contains(id)));
    }

    #[test]
    fn every_id_is_a_uuid_of_version_seven_made_at_the_same_moment() {
        let ids = Forwarded::fresh().ids();
        let first = ids.next();
        for id in std::iter::once(first).chain((0..50).map(|_| ids.next())) {
            let uuid = uuid::Uuid::from_u128(id);
            assert_eq!((uuid.get_version_num(), clock::made_at_ms(id)), (7, clock::made_at_ms(first)));
            assert_eq!(uuid.get_variant(), uuid::Variant::RFC4122);
        }
    }
}
