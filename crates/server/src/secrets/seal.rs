//! Sealing: ChaCha20-Poly1305 with a random nonce, bound to the secret's name, under a key in a file of its own. A copy of
//! the store alone, such as a backup, gives nothing away.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Mutex;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use sha2::{Digest, Sha256};

/// In the data directory, readable by its owner only.
pub const KEY_FILE: &str = "secrets.key";

/// One for everything of a server that is sealed: two could both make the file.
pub struct SealingKey {
    path: PathBuf,
    making: Mutex<()>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the key of the secrets in {} cannot be used", path.display())]
    Key {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the operating system gave no random bytes")]
    NoRandomness,
    #[error("it was sealed with another key, or changed since")]
    Broken,
    #[error("{} is not the key of the other nodes; move it away if nothing is sealed with it", path.display())]
    Other { path: PathBuf },
}

/// What a key is bound to while it travels.
const SHARED: &[u8] = b"sealing key";

fn of_node(secret: &[u8; 32]) -> Result<LessSafeKey, Error> {
    UnboundKey::new(&CHACHA20_POLY1305, secret).map(LessSafeKey::new).map_err(|_| Error::Broken)
}

impl SealingKey {
    /// Nothing is read or made before it is needed.
    pub fn at(path: PathBuf) -> SealingKey {
        SealingKey { path, making: Mutex::new(()) }
    }

    pub fn seal(&self, name: &str, value: &str) -> Result<String, Error> {
        let nonce = random::<NONCE_LEN>()?;
        let mut bytes = value.as_bytes().to_vec();
        let sealed = self.key(Missing::Make)?.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(name.as_bytes()),
            &mut bytes,
        );
        sealed.map_err(|_| Error::Broken)?;
        Ok(STANDARD_NO_PAD.encode([&nonce[..], &bytes].concat()))
    }

    pub fn open(&self, name: &str, sealed: &str) -> Result<String, Error> {
        let bytes = STANDARD_NO_PAD.decode(sealed).map_err(|_| Error::Broken)?;
        let (nonce, rest) = bytes.split_first_chunk::<NONCE_LEN>().ok_or(Error::Broken)?;
        let mut rest = rest.to_vec();
        let key = self.key(Missing::Refuse)?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let value = key.open_in_place(nonce, Aad::from(name.as_bytes()), &mut rest).map_err(|_| Error::Broken)?;
        String::from_utf8(value.to_vec()).map_err(|_| Error::Broken)
    }

    /// The key itself, for a node that has the same secret to open it with. Made when there is none yet.
    pub fn shared(&self, with: &[u8; 32]) -> Result<String, Error> {
        self.key(Missing::Make)?;
        let text = fs::read_to_string(&self.path).map_err(|source| Error::Key { path: self.path.clone(), source })?;
        let nonce = random::<NONCE_LEN>()?;
        let mut bytes = text.trim().as_bytes().to_vec();
        let sealed =
            of_node(with)?.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(SHARED), &mut bytes);
        sealed.map_err(|_| Error::Broken)?;
        Ok(STANDARD_NO_PAD.encode([&nonce[..], &bytes].concat()))
    }

    /// What [`Self::shared`] gave at another node. It is kept here where there is no key yet; another one is not replaced.
    pub fn adopt(&self, with: &[u8; 32], shared: &str) -> Result<(), Error> {
        let bytes = STANDARD_NO_PAD.decode(shared).map_err(|_| Error::Broken)?;
        let (nonce, rest) = bytes.split_first_chunk::<NONCE_LEN>().ok_or(Error::Broken)?;
        let mut rest = rest.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = of_node(with)?.open_in_place(nonce, Aad::from(SHARED), &mut rest).map_err(|_| Error::Broken)?;
        let text = String::from_utf8(opened.to_vec()).map_err(|_| Error::Broken)?;
        let _alone = self.making.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match fs::read_to_string(&self.path) {
            Ok(own) if own.trim() == text => Ok(()),
            Ok(_) => Err(Error::Other { path: self.path.clone() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.write(&text),
            Err(source) => Err(Error::Key { path: self.path.clone(), source }),
        }
    }

    /// What tells it from other keys, and tells nothing else of it. `None` while there is no key.
    pub fn mark(&self) -> Result<Option<[u8; 32]>, Error> {
        if !self.path.exists() {
            return Ok(None);
        }
        self.key(Missing::Refuse)?;
        let text = fs::read_to_string(&self.path).map_err(|source| Error::Key { path: self.path.clone(), source })?;
        Ok(Some(Sha256::new_with_prefix(b"runyard sealing key ").chain_update(text.trim()).finalize().into()))
    }

    pub fn make_missing(&self) -> Result<(), Error> {
        self.key(Missing::Make).map(drop)
    }

    /// Another node was faster to make one, and nothing was sealed with this.
    pub fn unmake(&self) -> Result<(), Error> {
        fs::remove_file(&self.path).map_err(|source| Error::Key { path: self.path.clone(), source })
    }

    /// It is not the key that the others have.
    pub fn is_another(&self) -> Error {
        Error::Other { path: self.path.clone() }
    }

    fn key(&self, missing: Missing) -> Result<LessSafeKey, Error> {
        let unusable = |source| Error::Key { path: self.path.clone(), source };
        let _alone = self.making.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let text = match fs::read_to_string(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && missing == Missing::Make => self.make()?,
            read => read.map_err(unusable)?,
        };
        let bytes = STANDARD_NO_PAD.decode(text.trim()).unwrap_or_default();
        let not_one = |_| unusable(io::Error::new(io::ErrorKind::InvalidData, "it does not hold 32 bytes in base64"));
        UnboundKey::new(&CHACHA20_POLY1305, &bytes).map(LessSafeKey::new).map_err(not_one)
    }

    /// Whole or not at all: a server that is killed at its first start must find no half of a key at its second.
    fn make(&self) -> Result<String, Error> {
        let text = STANDARD_NO_PAD.encode(random::<32>()?);
        self.write(&text)?;
        Ok(text)
    }

    fn write(&self, text: &str) -> Result<(), Error> {
        let draft = self.path.with_extension("key.tmp");
        let write = || {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
            file.write_all(text.as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&draft, &self.path)?;
            self.path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
        };
        write().map_err(|source| Error::Key { path: self.path.clone(), source })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Make,
    /// A new key would open nothing.
    Refuse,
}

fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| Error::NoRandomness)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_was_sealed_opens_under_its_name_and_key_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(KEY_FILE);
        let key = SealingKey::at(path.clone());
        let sealed = key.seal("a", "canary").expect("sealed");
        assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert_ne!(sealed, key.seal("a", "canary").expect("sealed"), "each has a nonce of its own");
        assert_eq!(key.open("a", &sealed).expect("opened"), "canary");
        assert!(matches!(key.open("b", &sealed), Err(Error::Broken)));
        let mut changed = sealed.clone().into_bytes();
        changed[20] = if changed[20] == b'A' { b'B' } else { b'A' };
        assert!(key.open("a", &String::from_utf8(changed).expect("text")).is_err());
        for broken in ["", "AAAA", "?"] {
            assert!(matches!(key.open("a", broken), Err(Error::Broken)));
        }
        std::fs::remove_file(&path).expect("removed");
        assert!(matches!(key.open("a", &sealed), Err(Error::Key { .. })) && !path.exists());
        std::fs::write(&path, "nonsense").expect("written");
        assert!(matches!(key.seal("a", "canary"), Err(Error::Key { .. })), "a broken key is not written over");
    }
}
