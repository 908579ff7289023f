//! Commands that leave nothing behind that a second try would find.
//!
//! A command is asked again when nobody knows whether its first try was stored. What a second try does:
//!
//! | command | the second try |
//! |---|---|
//! | submit, batch, retry, input, a new schedule, a new key, a worker that joins | finds the rows under the ids that the asking node made |
//! | a message that became part of another task | finds its key, which is its id |
//! | cancel of one task | finds it cancelled |
//! | PUT, pause, resume, drain, PATCH of the configuration, heartbeat, register, sync | does the same again, which changes nothing |
//! | cancel by filter or of a batch | cancels what is left, and counts only that |
//! | DELETE of a schedule, key, secret or worker; a run by hand; stop, stopall, reset of a session; a new webhook secret; replay of a delivery; PATCH of a task or a schedule | finds the receipt that the first one wrote |
//!
//! The last row is what this file is for. Such a command has the id of its request as a key, and the commit that does it
//! writes under that key what it did ([`Receipt`]). Who is asked *again* looks for that first. It is kept for a day, as any
//! key whose task is gone. Whoever did it unheard wrote nothing into the audit log, so the second try does. A server with a store of its own is never asked again, and writes none.

use runyard_core::event::{Asked, Idempotency, Receipt};
use runyard_core::name::Name;
use runyard_wire::Id;

use super::forwarded::Forwarded;
use crate::app::App;
use crate::handle::{Handle, Unavailable};

#[derive(Clone, Debug, Default)]
pub struct Once {
    /// Where it may be asked again.
    key: Option<Idempotency>,
    /// What it did when it was asked before.
    pub first: Option<Receipt>,
}

impl Once {
    pub async fn of(app: &App, forwarded: Option<Forwarded>) -> Result<Once, Unavailable> {
        let Some(forwarded) = forwarded.filter(|_| app.cluster.is_some()) else { return Ok(Once::default()) };
        let key = key(forwarded.ids);
        let first = match forwarded.asked {
            Asked::Once => None,
            Asked::Again => app.handle.was_done(key.clone()).await?,
        };
        Ok(Once { key: Some(key), first })
    }

    /// For the one event that does it.
    pub fn handle(&self, app: &App) -> Handle {
        match &self.key {
            Some(key) => app.handle.once(key.clone()),
            None => app.handle.clone(),
        }
    }
}

/// No agent has this name, so no client's key is one of these.
fn key(id: u128) -> Idempotency {
    Idempotency { agent: Name::new(""), key: Name::new(&Id(id).to_string()), hash: 0 }
}
