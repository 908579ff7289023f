//! Ids of tasks, batches and keys: UUIDs, in JSON always lowercase with hyphens.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;
use uuid::Uuid;

/// A UUID, lowercase with hyphens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ToSchema)]
#[schema(value_type = String, format = "uuid", example = "01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11")]
pub struct Id(pub u128);

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{text}` is not an id; an id looks like 01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11")]
pub struct BadId {
    text: String,
}

/// A wrong id is quoted in its error, but not all of a long one.
const QUOTED_CHARS_MAX: usize = 64;

impl FromStr for Id {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Id, BadId> {
        let hyphenated = text.len() == uuid::fmt::Hyphenated::LENGTH;
        match Uuid::try_parse(text) {
            Ok(uuid) if hyphenated => Ok(Id(uuid.as_u128())),
            _ => Err(BadId { text: text.chars().take(QUOTED_CHARS_MAX).collect() }),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut buffer = Uuid::encode_buffer();
        f.pad(Uuid::from_u128(self.0).hyphenated().encode_lower(&mut buffer))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut buffer = Uuid::encode_buffer();
        serializer.serialize_str(Uuid::from_u128(self.0).hyphenated().encode_lower(&mut buffer))
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Id, D::Error> {
        struct IdVisitor;
        impl Visitor<'_> for IdVisitor {
            type Value = Id;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an id (a UUID as a string)")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Id, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(IdVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_written_lowercase_with_hyphens() {
        let id: Id = "01931B5C-7F3A-7C5E-9D1E-0A4B8E6F2C11".parse().unwrap();
        assert_eq!(serde_json::to_string(&id).unwrap(), r#""01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11""#);
        assert_eq!(serde_json::from_str::<Id>(r#""01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11""#).unwrap(), id);
    }

    #[test]
    fn other_spellings_of_a_uuid_are_refused_with_an_example() {
        for text in ["", "7", "01931b5c7f3a7c5e9d1e0a4b8e6f2c11", "urn:uuid:01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11"] {
            let error = text.parse::<Id>().unwrap_err().to_string();
            assert!(error.contains("an id looks like"), "{error}");
        }
        assert!("x".repeat(10_000).parse::<Id>().unwrap_err().to_string().len() < 200);
    }
}
