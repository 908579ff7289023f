//! Secrets that payloads refer to.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;
use crate::object::object;

/// A secret to keep.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct SecretPut {
    /// 8 to 65536 bytes. It is never shown again.
    pub value: String,
    /// The agents whose tasks may have it; absent: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
}

object!(SecretPut);

/// It may be printed with what holds it, so it does not say its value.
impl std::fmt::Debug for SecretPut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretPut").field("agents", &self.agents).finish_non_exhaustive()
    }
}

/// A secret, without its value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretView {
    /// What payloads call it: `secret://NAME`.
    pub name: String,
    /// Where its value is.
    pub source: SecretSource,
    /// The agents whose tasks may have it; absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    /// When it was set, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_at: Option<Timestamp>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SecretSource {
    /// Set with `runyard secret set`, sealed in the store.
    Stored,
    /// A variable of the server's environment.
    Env,
    /// A file on the server's machine.
    File,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_not_printed_by_accident() {
        let put = SecretPut { value: "canary-value".into(), agents: None };
        assert!(!format!("{put:?}").contains("canary"));
    }
}
