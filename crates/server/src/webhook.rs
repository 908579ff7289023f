//! Webhooks: what the outbox holds is told to whoever asked, until they have taken it or a day is over.
//!
//! ```text
//! commit ─► outbox row ─► due ─► window (who, where) ─► POST, signed, guarded ─► 2xx: delivered
//!              ▲                                              │
//!              └────── next try, in the scheduler's tick ◄────┴─ anything else; 410 and a day's end: given up
//! ```
//!
//! Only the tick loop writes: the outcome of a try goes into its inbox as an event. A crash between the answer and that
//! commit repeats the message, with the same id: at least once, and a receiver that remembers ids sees it once.
//!
//! | file | its one idea |
//! |---|---|
//! | `deliverer` | the loop: which rows are looked at, who is busy, what is written |
//! | `window` | rows taken into memory, within limits |
//! | `owners` | whose turn it is: nobody's slow receivers hold up another's messages |
//! | `breaker` | a target that is down is asked rarely, and costs its messages no try |
//! | `schedule` | when the next try is |
//! | `message` | what is sent: id, body, where to |
//! | `send` | one try |
//! | `sign`, `own_secrets` | Standard Webhooks signatures, and the server's own secret |

mod breaker;
mod deliverer;
mod message;
mod own_secrets;
mod owners;
mod schedule;
mod send;
mod sign;
mod window;

pub use deliverer::Deliverer;
pub use message::{Aim, aim, message_id, target_of};
pub use own_secrets::{OwnSecrets, SETTING};
pub use send::{Outcome, Outgoing, Sent, post};
#[cfg(test)]
pub use sign::signatures;
pub use sign::{Secret, secrets_of};

use std::sync::Arc;

use arc_swap::ArcSwap;
use runyard_core::event::Event;
use runyard_core::name::Name;
use tokio::sync::Notify;

use crate::clock;
use crate::handle::Handle;
use crate::secrets::{self, SealingKey};

/// What handlers and the deliverer share.
pub struct Webhooks {
    secrets: ArcSwap<OwnSecrets>,
    key: Arc<SealingKey>,
    /// One change at a time: each writes the whole document.
    rotating: tokio::sync::Mutex<()>,
    /// Something may be due: a new row, or one that was replayed.
    pub posted: Arc<Notify>,
}

impl Webhooks {
    pub fn new(secrets: OwnSecrets, key: Arc<SealingKey>, posted: Arc<Notify>) -> Webhooks {
        Webhooks { secrets: ArcSwap::from_pointee(secrets), key, rotating: Default::default(), posted }
    }

    /// As another node has changed them.
    pub fn replace(&self, secrets: OwnSecrets) {
        self.secrets.store(Arc::new(secrets));
    }

    /// Whoever comes first makes the first one, the deliverer or somebody who asks for it: nothing is signed, and nobody
    /// is shown anything, before it is kept.
    pub async fn own(&self, handle: &Handle) -> Result<Arc<OwnSecrets>, secrets::Error> {
        let known = || Some(self.secrets.load_full()).filter(|secrets| !secrets.is_empty());
        if let Some(secrets) = known() {
            return Ok(secrets);
        }
        let _alone = self.rotating.lock().await;
        match known() {
            Some(secrets) => Ok(secrets),
            None => self.renew(handle).await,
        }
    }

    pub async fn rotate(&self, handle: &Handle) -> Result<Arc<OwnSecrets>, secrets::Error> {
        let _alone = self.rotating.lock().await;
        self.renew(handle).await
    }

    /// Durably and sealed, before anything is signed with it. Whoever calls holds `rotating`.
    async fn renew(&self, handle: &Handle) -> Result<Arc<OwnSecrets>, secrets::Error> {
        let secret = Secret::random().map_err(|_| secrets::SealError::NoRandomness)?;
        let renewed = self.secrets.load().rotated(secret, clock::wall_ms());
        let (name, value) = (Name::new(SETTING), renewed.to_json(&self.key)?.into());
        handle.ask(|ticket| Event::Remember { ticket: Some(ticket), name, value }).await?;
        let renewed = Arc::new(renewed);
        self.secrets.store(renewed.clone());
        Ok(renewed)
    }
}
