//! Values on their way to a supervisor: in memory that has no name and that nobody else opens, given to it as its standard
//! input. So they are in no file, no environment and no command line, and a supervisor that is there has all of them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use serde_json::value::RawValue;

use super::{Known, Redactor, SecretError, Secrets, references};

/// Of all values of one attempt, as JSON. The system takes no longer environment anyway.
const BYTES_MAX: u64 = 8 * 1024 * 1024;

/// The values that one attempt may use.
#[derive(Default)]
pub(crate) struct Handed {
    values: BTreeMap<String, String>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum NotHanded {
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error("the secrets of one attempt have more than {BYTES_MAX} bytes together")]
    TooLong,
    #[error("its secrets cannot be handed over: {0}")]
    System(#[from] io::Error),
}

impl Handed {
    /// What this payload refers to, read now; `None` when that is nothing.
    pub(crate) fn of(payload: &RawValue, agent: &str, secrets: &dyn Secrets) -> Result<Option<File>, NotHanded> {
        let mut known = Known::new(agent, secrets);
        references(payload).iter().try_for_each(|found| known.value(&found.name).map(drop))?;
        match known.values.is_empty() {
            true => Ok(None),
            false => in_memory(&known.values).map(Some),
        }
    }

    pub(crate) fn read(from: impl Read) -> io::Result<Handed> {
        let mut bytes = Vec::new();
        from.take(BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(Handed { values: serde_json::from_slice(&bytes)? })
    }

    pub(crate) fn redactor(&self) -> Redactor {
        Redactor::new(self.values.values().cloned())
    }
}

/// Written and rewound before anybody is started, so neither side waits for the other; and sealed, so that it stays what
/// it is.
fn in_memory(values: &BTreeMap<String, String>) -> Result<File, NotHanded> {
    let json = serde_json::to_vec(values).expect("texts are plain data");
    if json.len() as u64 > BYTES_MAX {
        return Err(NotHanded::TooLong);
    }
    let memory = memfd_create(c"runyard-secrets", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let mut file = File::from(memory.map_err(io::Error::from)?);
    file.write_all(&json)?;
    file.rewind()?;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(file.as_fd(), seals).map_err(io::Error::from)?;
    Ok(file)
}

/// They were read for this very attempt, so for its agent.
impl Secrets for Handed {
    fn reveal(&self, name: &str, _agent: &str) -> Result<String, SecretError> {
        self.values.get(name).cloned().ok_or_else(|| SecretError::Unknown(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Vault;

    impl Secrets for Vault {
        fn reveal(&self, name: &str, agent: &str) -> Result<String, SecretError> {
            match name {
                "long" => Ok("x".repeat(BYTES_MAX as usize)),
                "token" => Ok(format!("canary \"of\" {agent}")),
                _ => Err(SecretError::Unknown(name.to_owned())),
            }
        }
    }

    fn handed(payload: &str) -> Result<Option<File>, String> {
        let payload = RawValue::from_string(payload.to_owned()).expect("JSON");
        Handed::of(&payload, "bot", &Vault).map_err(|error| error.to_string())
    }

    #[test]
    fn values_come_over_as_they_are() {
        let mut file = handed(r#"{"env":{"A":"secret://token"}}"#).expect("handed").expect("there is one");
        assert!(file.write_all(b"x").is_err(), "nobody changes them on the way");
        file.rewind().expect("rewound");
        let read = Handed::read(file).expect("read");
        assert_eq!(read.reveal("token", "bot").as_deref(), Ok("canary \"of\" bot"));
        assert_eq!(read.reveal("other", "bot"), Err(SecretError::Unknown("other".into())));
        assert_eq!(read.redactor().text("a canary \"of\" bot."), "a (secret).");
        assert!(handed("{}").expect("nothing is wrong").is_none());
        assert_eq!(handed(r#""secret://nope""#).err().as_deref(), Some("there is no secret `nope`"));
        assert!(handed(r#""secret://long""#).err().is_some_and(|error| error.contains("more than")));
        assert!(Handed::read(&b""[..]).is_err(), "nothing is not no secrets");
    }
}
