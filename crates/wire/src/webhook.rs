//! Webhooks: what was sent, or is to be.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Id, Timestamp};

/// One message to one receiver.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryView {
    /// Its number; later ones are greater.
    pub id: u64,
    /// `webhook-id` of every try.
    pub message_id: String,
    /// What it tells of, such as `task.completed`.
    pub event: String,
    /// When that happened.
    pub at: Timestamp,
    /// How far it is.
    pub state: DeliveryState,
    /// The subscription it is for; absent for the callbackUrl of a task or a batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    /// The task it tells of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Id>,
    /// The batch it tells of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<Id>,
    /// Which of the messages merged into the task asked for it, counted from 1; absent for the task's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_message: Option<u32>,
    /// Where it goes: scheme, host and port. Only where one delivery is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// When it is tried next, while it is pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// How often it was sent since it was written, or since its replay.
    pub tries: u32,
    /// The latest tries, oldest first.
    pub log: Vec<DeliveryTry>,
}

/// How far a message is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// It will be tried, or tried again.
    Pending,
    /// Its receiver has taken it.
    Delivered,
    /// It is not tried any more, unless it is replayed.
    GivenUp,
}

impl DeliveryState {
    pub const ALL: [DeliveryState; 3] = [DeliveryState::Pending, DeliveryState::Delivered, DeliveryState::GivenUp];

    pub fn as_str(self) -> &'static str {
        match self {
            DeliveryState::Pending => "pending",
            DeliveryState::Delivered => "delivered",
            DeliveryState::GivenUp => "given_up",
        }
    }
}

/// One try to deliver a message.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryTry {
    /// When it began.
    pub at: Timestamp,
    /// How long it took, in milliseconds.
    pub ms: u64,
    /// The HTTP status; absent when there was no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What the server signs webhooks with, unless a subscription has a secret of its own.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookSecrets {
    /// Newest first. A message carries one signature for each.
    pub secrets: Vec<WebhookSecret>,
}

/// A secret that signs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookSecret {
    /// `whsec_…`: what the receiver is configured with.
    pub secret: String,
    /// After a rotation the earlier one signs until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}
