//! API keys: 256 random bits each, shown once, kept as SHA-256.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::scope::{Actor, Binding, Caller, KeyLabel, Scope, Scopes};
use super::used::LastUsed;

/// The store's document that holds the keys.
pub const SETTING: &str = "keys";
/// In the data directory, readable by its owner only; the command line on the same machine finds it there.
pub const ADMIN_KEY_FILE: &str = "admin.key";

const PREFIX: &str = "ry_";
/// Each request is compared with every key.
pub const KEYS_MAX: usize = 1000;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KeyRing {
    keys: Vec<Key>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    pub id: String,
    pub name: String,
    pub scopes: Vec<Scope>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    pub created_at_ms: u64,
    #[serde(skip)]
    pub last_used: LastUsed,
    hash: String,
}

/// What a caller asks a key to be.
#[derive(Clone, Debug)]
pub struct NewKey {
    pub id: String,
    pub name: String,
    pub scopes: Vec<Scope>,
    pub agents: Option<Vec<String>>,
    pub created_at_ms: u64,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KeyError {
    #[error("there is no such key")]
    NotFound,
    #[error("this is the last key with the admin scope; create another one first")]
    LastAdmin,
    #[error("there are {KEYS_MAX} keys already; revoke one first")]
    TooMany,
    #[error("the operating system gave no random bytes")]
    NoRandomness,
}

impl KeyRing {
    pub fn from_json(bytes: &[u8]) -> Result<KeyRing, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("keys are plain data")
    }

    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    pub fn has_admin(&self) -> bool {
        self.keys.iter().any(|key| key.scopes.contains(&Scope::Admin))
    }

    pub fn has(&self, id: &str) -> bool {
        self.keys.iter().any(|key| key.id == id)
    }

    /// Adds a key and gives its text, which nobody can ask for again. One with the same id is of an earlier try of the same
    /// request, whose answer was not heard: it goes.
    pub fn add(&mut self, new: NewKey) -> Result<(Key, String), KeyError> {
        self.keys.retain(|key| key.id != new.id);
        if self.keys.len() >= KEYS_MAX {
            return Err(KeyError::TooMany);
        }
        let text = random_key(PREFIX)?;
        let NewKey { id, name, scopes, agents, created_at_ms } = new;
        let last_used = LastUsed::default();
        let key = Key { id, name, scopes, agents, created_at_ms, last_used, hash: hash(&text) };
        self.keys.push(key.clone());
        Ok((key, text))
    }

    pub fn remove(&mut self, id: &str) -> Result<Key, KeyError> {
        let at = self.keys.iter().position(|key| key.id == id).ok_or(KeyError::NotFound)?;
        let key = self.keys.remove(at);
        if key.scopes.contains(&Scope::Admin) && !self.has_admin() {
            self.keys.insert(at, key);
            return Err(KeyError::LastAdmin);
        }
        Ok(key)
    }

    /// Every key is compared, each in constant time: the time taken says nothing about how near a guess was.
    pub fn find(&self, presented: &str) -> Option<&Key> {
        let presented = hash(presented);
        let mut found = None;
        for key in &self.keys {
            if bool::from(key.hash.as_bytes().ct_eq(presented.as_bytes())) {
                found = Some(key);
            }
        }
        found
    }
}

impl Key {
    pub fn caller(&self) -> Caller {
        let label = KeyLabel { id: self.id.clone(), name: self.name.clone() };
        Caller {
            scopes: Scopes::from_iter(self.scopes.iter().copied()),
            agents: Binding::to(self.agents.as_deref()),
            actor: Actor { key: Some(Arc::new(label)), address: None },
            worker: None,
            joins_as: None,
        }
    }
}

/// Created with the mode, not changed to it: there is no moment in which others could read it.
pub fn write_key_file(path: &Path, key: &str) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let fresh = path.with_extension("key.new");
    let _ = std::fs::remove_file(&fresh);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
    file.write_all(key.as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)?;
    // The name is on the disk only when its directory is.
    path.parent().map_or(Ok(()), |folder| std::fs::File::open(folder)?.sync_all())
}

/// 256 random bits behind a word that says whose they are.
pub(crate) fn random_key(prefix: &str) -> Result<String, KeyError> {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).map_err(|_| KeyError::NoRandomness)?;
    Ok(format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

pub(crate) fn hash(key: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(key.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_key(scopes: &[Scope], agents: Option<&[&str]>) -> NewKey {
        NewKey {
            id: format!("id{}", scopes.len()),
            name: "test".into(),
            scopes: scopes.to_vec(),
            agents: agents.map(|agents| agents.iter().map(|agent| agent.to_string()).collect()),
            created_at_ms: 1,
        }
    }

    #[test]
    fn a_key_is_known_by_its_text_only() {
        let mut ring = KeyRing::default();
        let (_, text) = ring.add(new_key(&[Scope::Read], Some(&["a"]))).expect("added");
        assert!(text.starts_with("ry_") && text.len() == 46, "{text}");
        let stored = String::from_utf8(ring.to_json()).expect("text");
        assert!(!stored.contains(&text));
        let ring = KeyRing::from_json(stored.as_bytes()).expect("keys");
        let caller = ring.find(&text).expect("known").caller();
        assert!(caller.scopes.allow(Scope::Read) && !caller.scopes.allow(Scope::Submit));
        assert!(caller.may_act_for("a") && !caller.may_act_for("b"));
        assert_eq!(caller.actor.key.expect("labelled").name, "test");
        assert!(ring.find("ry_wrong").is_none());
    }

    #[test]
    fn the_last_admin_key_stays() {
        let mut ring = KeyRing::default();
        let (first, _) = ring.add(new_key(&[Scope::Admin], None)).expect("added");
        assert_eq!(ring.remove(&first.id), Err(KeyError::LastAdmin));
        let (second, _) = ring.add(new_key(&[Scope::Admin, Scope::Read], None)).expect("added");
        assert!(ring.remove(&first.id).is_ok());
        assert_eq!(ring.remove(&second.id), Err(KeyError::LastAdmin));
        assert_eq!(ring.remove("other"), Err(KeyError::NotFound));
    }

    #[test]
    fn a_key_that_is_asked_for_twice_is_there_once_and_the_later_text_is_good() {
        let mut ring = KeyRing::default();
        let [(_, first), (_, second)] = [(); 2].map(|()| ring.add(new_key(&[Scope::Read], None)).expect("added"));
        assert!(ring.keys().len() == 1 && ring.find(&first).is_none() && ring.find(&second).is_some());
    }

    #[test]
    fn keys_are_limited_in_number() {
        let mut ring = KeyRing::default();
        let one = |n: usize| NewKey { id: n.to_string(), ..new_key(&[Scope::Read], None) };
        for n in 0..KEYS_MAX {
            ring.add(one(n)).expect("added");
        }
        assert_eq!(ring.add(one(KEYS_MAX)), Err(KeyError::TooMany));
        assert!(ring.add(one(0)).is_ok(), "the same one again takes no room");
    }

    #[test]
    fn the_key_file_is_for_its_owner() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(ADMIN_KEY_FILE);
        for key in ["ry_a", "ry_b"] {
            write_key_file(&path, key).expect("written");
            assert_eq!(std::fs::read_to_string(&path).expect("read"), format!("{key}\n"));
            assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        }
    }
}
