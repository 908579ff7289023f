//! JSON that passes through untouched: payloads and results are kept as the bytes they came in.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use utoipa::ToSchema;

/// Any JSON value, kept byte for byte.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = Value)]
pub struct Json(pub Box<RawValue>);

impl Json {
    /// The text of the value.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// Reads the value as a type of its own.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.as_str())
    }

    /// Takes text that must be one JSON value.
    pub fn from_text(text: String) -> Result<Json, serde_json::Error> {
        RawValue::from_string(text).map(Json)
    }

    pub fn of<T: Serialize>(value: &T) -> Result<Json, serde_json::Error> {
        to_raw_value(value).map(Json)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// By text: `1.0` and `1.00` differ.
impl PartialEq for Json {
    fn eq(&self, other: &Json) -> bool {
        self.as_str() == other.as_str()
    }
}

impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Json {
        Json::of(&value).expect("a JSON value can always be written")
    }
}

/// Tells `null` (`Some(None)`) from a field that is not there (`None`).
pub(crate) fn nullable<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}
