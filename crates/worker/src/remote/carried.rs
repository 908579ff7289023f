//! Values of secrets that came with starts: in memory, as long as the attempts they came for.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard};

use runyard_exec::{SecretError, Secrets};

use super::ledger::Attempt;

#[derive(Default)]
pub(super) struct CarriedSecrets {
    brought: Mutex<Vec<Brought>>,
}

/// What one attempt brought.
struct Brought {
    of: Attempt,
    agent: String,
    values: BTreeMap<String, String>,
}

impl CarriedSecrets {
    pub(super) fn put(&self, of: Attempt, agent: &str, values: BTreeMap<String, String>) {
        if values.is_empty() {
            return;
        }
        let mut brought = self.lock();
        brought.retain(|one| one.of != of);
        brought.push(Brought { of, agent: agent.to_owned(), values });
    }

    pub(super) fn drop_of(&self, of: Attempt) {
        self.lock().retain(|one| one.of != of);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Brought>> {
        self.brought.lock().expect("no thread panics while it holds this")
    }
}

/// The newest value counts: it is the one that was read last where secrets are kept.
impl Secrets for CarriedSecrets {
    fn reveal(&self, name: &str, agent: &str) -> Result<String, SecretError> {
        let brought = self.lock();
        let found = brought.iter().rev().filter(|one| one.agent == agent).find_map(|one| one.values.get(name));
        found.cloned().ok_or_else(|| SecretError::Unknown(name.to_owned()))
    }
}

impl fmt::Debug for CarriedSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CarriedSecrets").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use runyard_core::ids::TaskId;

    use super::*;

    fn values(value: &str) -> BTreeMap<String, String> {
        [("token".to_owned(), value.to_owned())].into()
    }

    #[test]
    fn a_value_is_there_for_its_agent_as_long_as_an_attempt_that_brought_it() {
        let secrets = CarriedSecrets::default();
        let (first, second) = ((TaskId(1), 1), (TaskId(2), 1));
        secrets.put(first, "bot", values("old-value"));
        secrets.put(second, "bot", values("new-value"));
        assert_eq!(secrets.reveal("token", "bot").as_deref(), Ok("new-value"));
        assert_eq!(secrets.reveal("token", "other"), Err(SecretError::Unknown("token".into())));
        secrets.drop_of(second);
        assert_eq!(secrets.reveal("token", "bot").as_deref(), Ok("old-value"));
        secrets.drop_of(first);
        assert_eq!(secrets.reveal("token", "bot"), Err(SecretError::Unknown("token".into())));
        assert!(!format!("{secrets:?}").contains("value"));
    }
}
