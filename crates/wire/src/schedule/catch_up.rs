//! What becomes of missed runs: a word, or an object with its bounds.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{Object, OneOfBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// What becomes of runs that were due while the server was down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CatchUp {
    #[default]
    Skip,
    /// The latest of them.
    One,
    /// The latest `limit` of them that are not older.
    All { limit: u32, expiry_ms: u64 },
}

#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CatchUpObject {
    /// At most so many, the latest ones.
    limit: u32,
    /// None that is older, in milliseconds.
    expiry_ms: u64,
}

impl Serialize for CatchUp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            CatchUp::Skip => serializer.serialize_str("skip"),
            CatchUp::One => serializer.serialize_str("one"),
            CatchUp::All { limit, expiry_ms } => CatchUpObject { limit, expiry_ms }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for CatchUp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CatchUp, D::Error> {
        struct CatchUpVisitor;
        impl<'de> Visitor<'de> for CatchUpVisitor {
            type Value = CatchUp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`skip`, `one`, or an object with limit and expiryMs")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<CatchUp, E> {
                match word {
                    "skip" => Ok(CatchUp::Skip),
                    "one" => Ok(CatchUp::One),
                    _ => Err(E::invalid_value(de::Unexpected::Str(word), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<CatchUp, A::Error> {
                let CatchUpObject { limit, expiry_ms } = CatchUpObject::deserialize(MapAccessDeserializer::new(map))?;
                Ok(CatchUp::All { limit, expiry_ms })
            }
        }
        deserializer.deserialize_any(CatchUpVisitor)
    }
}

impl PartialSchema for CatchUp {
    fn schema() -> RefOr<Schema> {
        OneOfBuilder::new()
            .item(Object::builder().schema_type(Type::String).enum_values(Some(["skip", "one"])))
            .item(CatchUpObject::schema())
            .description(Some(
                "`skip`: none of them. `one`: the latest. An object: the latest `limit` that are not older than `expiryMs`.",
            ))
            .into()
    }
}

impl ToSchema for CatchUp {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        CatchUpObject::schemas(schemas);
    }
}
