//! Secrets that tasks refer to as `secret://NAME`. Their values come from the environment of the server, from files, or from
//! `runyard secret set`; those are kept in the store, sealed with a key that is not in it.

mod seal;

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use arc_swap::ArcSwap;
use runyard_core::event::Event;
use runyard_core::name::{Blob, Name};
use runyard_exec::secret::{VALUE_BYTES_MAX, VALUE_BYTES_MIN, name_is_valid};
use runyard_exec::{SecretError, Secrets};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::clock;
use crate::config::{self, Live};
use crate::handle::{Handle, Unavailable};
pub use seal::{Error as SealError, KEY_FILE, SealingKey};

/// The store's document that holds the sealed values.
pub const SETTING: &str = "secrets";
/// Each is unsealed at most once for a start, but all are written at each change.
const SECRETS_MAX: usize = 1000;

pub struct Vault {
    config: Arc<Live>,
    key: Arc<SealingKey>,
    stored: ArcSwap<Stored>,
    /// One change at a time: each writes the whole document.
    changing: Mutex<()>,
}

type Stored = BTreeMap<String, Sealed>;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sealed {
    value: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    pub set_at_ms: u64,
}

/// What is known of a secret, without its value.
pub struct Known {
    pub name: String,
    pub source: Source,
    pub agents: Option<Vec<String>>,
    pub set_at_ms: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    Stored,
    Env,
    File,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the name of a secret is 1 to 64 of the characters A-Z a-z 0-9 _ -")]
    Name,
    #[error(
        "must be {VALUE_BYTES_MIN} to {VALUE_BYTES_MAX} bytes without NUL: a shorter one cannot be hidden in output"
    )]
    Value,
    #[error("secret `{0}` is in the configuration; change it there")]
    Configured(String),
    #[error("there is no secret {0}")]
    NotFound(String),
    #[error("there are {SECRETS_MAX} secrets already")]
    TooMany,
    #[error(transparent)]
    Seal(#[from] seal::Error),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl Vault {
    pub fn open(config: Arc<Live>, key: Arc<SealingKey>, stored: Option<&[u8]>) -> Result<Vault, serde_json::Error> {
        let stored: Stored = stored.map_or(Ok(Stored::new()), serde_json::from_slice)?;
        Ok(Vault { config, key, stored: ArcSwap::from_pointee(stored), changing: Mutex::default() })
    }

    /// As another node has changed them.
    pub fn replace(&self, stored: Option<&[u8]>) -> Result<(), serde_json::Error> {
        let stored: Stored = stored.map_or(Ok(Stored::new()), serde_json::from_slice)?;
        self.stored.store(Arc::new(stored));
        Ok(())
    }

    pub fn list(&self) -> Vec<Known> {
        let config = self.config.current();
        let configured = config.config.secrets.iter().map(|(name, secret)| Known {
            name: name.clone(),
            source: if secret.env.is_some() { Source::Env } else { Source::File },
            agents: secret.agents.clone(),
            set_at_ms: None,
        });
        let stored = self.stored.load();
        let kept = stored.iter().filter(|(name, _)| !config.config.secrets.contains_key(*name));
        let kept = kept.map(|(name, sealed)| Known {
            name: name.clone(),
            source: Source::Stored,
            agents: sealed.agents.clone(),
            set_at_ms: Some(sealed.set_at_ms),
        });
        let mut all: Vec<Known> = configured.chain(kept).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Durably, before a task can use it. True when there was one of this name.
    pub async fn set(
        &self,
        handle: &Handle,
        name: &str,
        value: &str,
        agents: Option<Vec<String>>,
    ) -> Result<Option<Sealed>, Error> {
        if !name_is_valid(name) {
            return Err(Error::Name);
        }
        if !(VALUE_BYTES_MIN..=VALUE_BYTES_MAX).contains(&value.len()) || value.contains('\0') {
            return Err(Error::Value);
        }
        if self.config.current().config.secrets.contains_key(name) {
            return Err(Error::Configured(name.to_owned()));
        }
        let _alone = self.changing.lock().await;
        let mut stored = Stored::clone(&self.stored.load());
        let sealed = Sealed { value: self.key.seal(name, value)?, agents, set_at_ms: clock::wall_ms() };
        let before = stored.insert(name.to_owned(), sealed);
        if stored.len() > SECRETS_MAX {
            return Err(Error::TooMany);
        }
        self.keep(handle, stored).await?;
        Ok(before)
    }

    pub async fn remove(&self, handle: &Handle, name: &str) -> Result<(), Error> {
        let _alone = self.changing.lock().await;
        let mut stored = Stored::clone(&self.stored.load());
        stored.remove(name).ok_or_else(|| Error::NotFound(name.to_owned()))?;
        self.keep(handle, stored).await
    }

    async fn keep(&self, handle: &Handle, stored: Stored) -> Result<(), Error> {
        let value: Blob = serde_json::to_vec(&stored).expect("sealed values are plain data").into();
        let name = Name::new(SETTING);
        handle.ask(|ticket| Event::Remember { ticket: Some(ticket), name, value }).await?;
        self.stored.store(Arc::new(stored));
        Ok(())
    }

    /// Could a task of this agent have it? Its value is not looked at.
    pub fn check(&self, name: &str, agent: &str) -> Result<(), SecretError> {
        let config = self.config.current();
        let stored = self.stored.load();
        let agents = match (config.config.secrets.get(name), stored.get(name)) {
            (Some(configured), _) => &configured.agents,
            (None, Some(sealed)) => &sealed.agents,
            (None, None) => return Err(SecretError::Unknown(name.to_owned())),
        };
        match agents {
            Some(agents) if !agents.iter().any(|own| own == agent) => {
                Err(SecretError::ForeignAgent { name: name.to_owned(), agent: agent.to_owned() })
            }
            _ => Ok(()),
        }
    }
}

impl Secrets for Vault {
    fn reveal(&self, name: &str, agent: &str) -> Result<String, SecretError> {
        self.check(name, agent)?;
        let unreadable = |cause: String| SecretError::Unreadable { name: name.to_owned(), cause };
        let configured = self.config.current().config.secrets.get(name).cloned();
        let value = match configured {
            Some(source) => outside(&source).map_err(unreadable)?,
            None => {
                let stored = self.stored.load();
                let sealed = stored.get(name).ok_or_else(|| SecretError::Unknown(name.to_owned()))?;
                self.key.open(name, &sealed.value).map_err(|error| unreadable(error.to_string()))?
            }
        };
        // What cannot be hidden is not handed out, nor what no environment can hold.
        if !(VALUE_BYTES_MIN..=VALUE_BYTES_MAX).contains(&value.len()) {
            return Err(unreadable(format!("its value must have {VALUE_BYTES_MIN} to {VALUE_BYTES_MAX} bytes")));
        }
        if value.contains('\0') {
            return Err(unreadable("its value has a NUL in it".to_owned()));
        }
        Ok(value)
    }
}

/// Read when it is needed: a rotated value is used by the next attempt.
fn outside(source: &config::Secret) -> Result<String, String> {
    match (&source.env, &source.file) {
        (Some(variable), _) => std::env::var(variable).map_err(|_| format!("the variable {variable} is not set")),
        (_, Some(path)) => {
            let read = || {
                let mut text = String::new();
                // A little more than a value may have, so that a longer one is seen to be.
                std::fs::File::open(path)?.take(VALUE_BYTES_MAX as u64 + 16).read_to_string(&mut text)?;
                Ok::<_, std::io::Error>(text)
            };
            let text = read().map_err(|error| format!("{path}: {error}"))?;
            Ok(text.trim_end_matches(['\r', '\n']).to_owned())
        }
        (None, None) => Err("it names neither env nor file".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use runyard_store::memory::MemoryStore;
    use runyard_store::store::Store;
    use serde_json::json;

    use super::*;
    use crate::config::Sources;

    fn live(secrets: serde_json::Value) -> Arc<Live> {
        let flags = json!({ "secrets": secrets }).as_object().expect("an object").clone();
        Arc::new(Live::load(Sources { flags, ..Sources::default() }, Default::default()).expect("valid"))
    }

    fn sealing(dir: &tempfile::TempDir) -> Arc<SealingKey> {
        Arc::new(SealingKey::at(dir.path().join(KEY_FILE)))
    }

    #[test]
    fn values_come_from_where_they_are() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("value");
        std::fs::write(&path, "canary-file\n").expect("written");
        let config = live(json!({
            "file": {"file": path, "agents": ["bot"]},
            "gone": {"file": dir.path().join("gone")},
            // Cargo sets it for every test.
            "env": {"env": "CARGO_MANIFEST_DIR"},
        }));
        let vault = Vault::open(config, sealing(&dir), None).expect("opened");
        assert_eq!(vault.reveal("file", "bot").as_deref(), Ok("canary-file"));
        assert!(matches!(vault.reveal("file", "other"), Err(SecretError::ForeignAgent { .. })));
        assert!(matches!(vault.reveal("gone", "bot"), Err(SecretError::Unreadable { .. })));
        assert_eq!(vault.reveal("env", "bot").ok(), std::env::var("CARGO_MANIFEST_DIR").ok());
        assert_eq!(vault.reveal("other", "bot"), Err(SecretError::Unknown("other".into())));
        let names: Vec<_> = vault.list().into_iter().map(|known| (known.name, known.source)).collect();
        let expected = [("env", Source::Env), ("file", Source::File), ("gone", Source::File)];
        assert_eq!(names, expected.map(|(name, source)| (name.to_owned(), source)));
        for unfit in ["short".to_owned(), "canary\0file".to_owned(), "x".repeat(VALUE_BYTES_MAX + 1)] {
            std::fs::write(&path, unfit).expect("written");
            assert!(matches!(vault.reveal("file", "bot"), Err(SecretError::Unreadable { .. })));
        }
    }

    #[tokio::test]
    async fn what_cannot_be_kept_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let vault = Vault::open(live(json!({"fixed": {"env": "X"}})), sealing(&dir), None).expect("opened");
        let handle = Handle::new(MemoryStore::new().reader());
        let set = async |name: &str, value: &str| vault.set(&handle, name, value, None).await.expect_err("refused");
        assert!(matches!(set("a.b", "long enough").await, Error::Name));
        assert!(matches!(set("a", "short").await, Error::Value));
        assert!(matches!(set("a", "with \0 in it").await, Error::Value));
        assert!(matches!(set("fixed", "long enough").await, Error::Configured(_)));
        assert!(matches!(vault.remove(&handle, "none").await, Err(Error::NotFound(_))));
    }
}
