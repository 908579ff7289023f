//! A lane of `[lanes]`: a number, or a table with one.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lane {
    pub limit: u32,
    pub paused: bool,
}

/// A lane is nearly always just a number, so a bare number is a lane.
impl<'de> Deserialize<'de> for Lane {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LaneVisitor)
    }
}

struct LaneVisitor;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct LaneTable {
    limit: Option<u32>,
    #[serde(default)]
    paused: bool,
}

impl<'de> Visitor<'de> for LaneVisitor {
    type Value = Lane;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a limit (a whole number from 0), or a table { limit, paused }")
    }

    fn visit_u64<E: de::Error>(self, limit: u64) -> Result<Lane, E> {
        let limit = u32::try_from(limit)
            .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(limit), &"at most 4294967295"))?;
        Ok(Lane { limit, paused: false })
    }

    fn visit_i64<E: de::Error>(self, limit: i64) -> Result<Lane, E> {
        match u64::try_from(limit) {
            Ok(limit) => self.visit_u64(limit),
            Err(_) => Err(E::invalid_value(de::Unexpected::Signed(limit), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Lane, A::Error> {
        let table = LaneTable::deserialize(MapAccessDeserializer::new(map))?;
        // Only a lane that some wider layer limits can be named without a limit; alone it gets main's.
        Ok(Lane { limit: table.limit.unwrap_or(30), paused: table.paused })
    }
}

impl JsonSchema for Lane {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Lane".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "How many of the lane's tasks run at once; 0 stops it.",
            "anyOf": [
                { "type": "integer", "minimum": 0, "maximum": u32::MAX },
                {
                    "type": "object",
                    "additionalProperties": false,
                    "properties": {
                        "limit": { "type": "integer", "minimum": 0, "maximum": u32::MAX },
                        "paused": { "type": "boolean", "description": "Nothing in it starts while this is true." }
                    }
                }
            ]
        })
    }
}
