//! A message of the outbox: what happened, written once, and how far its delivery is, written with every try.

use runyard_core::event::Happening;
use runyard_core::outbox::{DeliveryState, Progress, Recipient, Try};

use super::{Cut, VERSION, decode_happenings, encode_happenings, put_since, put_text, put_varint};

/// `out` is cleared first.
pub fn encode_delivery_body(happening: &Happening, out: &mut Vec<u8>) {
    encode_happenings(std::slice::from_ref(happening), out);
}

pub fn decode_delivery_body(body: &[u8]) -> Option<Happening> {
    let mut happenings = decode_happenings(body)?.into_iter();
    let happening = happenings.next()?;
    happenings.next().is_none().then_some(happening)
}

/// `out` is cleared first.
pub fn encode_progress(progress: &Progress, out: &mut Vec<u8>) {
    out.clear();
    out.push(VERSION);
    let (state, next_at) = match progress.state {
        DeliveryState::Pending { next_at } => (0, Some(next_at)),
        DeliveryState::Delivered => (1, None),
        DeliveryState::GivenUp => (2, None),
    };
    out.push(state);
    put_varint(out, progress.since_ms);
    if let Some(at) = next_at {
        put_since(out, progress.since_ms, at);
    }
    put_varint(
        out,
        match progress.to {
            Recipient::Everyone => 0,
            Recipient::Own => 1,
            Recipient::Merged(n) => u64::from(n) + 2,
        },
    );
    put_varint(out, u64::from(progress.n_tries));
    put_varint(out, progress.tries.len() as u64);
    for Try { at_ms, took_ms, status, error } in &progress.tries {
        put_since(out, progress.since_ms, *at_ms);
        put_varint(out, *took_ms);
        put_varint(out, status.map_or(0, |status| u64::from(status) + 1));
        put_text(out, error);
    }
}

pub fn decode_progress(bytes: &[u8]) -> Option<Progress> {
    let mut cut = Cut::versioned(bytes)?;
    let state = cut.byte()?;
    let since_ms = cut.varint()?;
    let state = match state {
        0 => DeliveryState::Pending { next_at: cut.since(since_ms)? },
        1 => DeliveryState::Delivered,
        2 => DeliveryState::GivenUp,
        _ => return None,
    };
    let to = match cut.varint()? {
        0 => Recipient::Everyone,
        1 => Recipient::Own,
        n => Recipient::Merged(u32::try_from(n - 2).ok()?),
    };
    let n_tries = cut.u32()?;
    let len = cut.varint()?;
    let tries = (0..len).map(|_| cut.a_try(since_ms)).collect::<Option<_>>()?;
    cut.end(Progress { to, state, since_ms, n_tries, tries })
}

impl Cut<'_> {
    fn a_try(&mut self, since_ms: u64) -> Option<Try> {
        let (at_ms, took_ms) = (self.since(since_ms)?, self.varint()?);
        let status = match self.varint()? {
            0 => None,
            n => Some(u16::try_from(n - 1).ok()?),
        };
        Some(Try { at_ms, took_ms, status, error: self.text()? })
    }
}
