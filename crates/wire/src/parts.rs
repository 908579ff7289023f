//! The parts a task is described with: what it waits for, how it is repeated, what it needs and where.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{Object, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::object::object;
use crate::{Class, Id};

/// A task this one waits for: its id, or `#name` of a task in the same batch.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Dependency {
    Id(Id),
    /// Without the `#`.
    Name(String),
}

/// In JSON it is a text, whatever the variants say.
impl PartialSchema for Dependency {
    fn schema() -> RefOr<Schema> {
        Object::builder()
            .schema_type(Type::String)
            .description(Some("The id of a task, or `#name` of a task in the same batch."))
            .examples([serde_json::json!("#build")])
            .into()
    }
}

impl ToSchema for Dependency {}

impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dependency::Id(id) => write!(f, "{id}"),
            Dependency::Name(name) => write!(f, "#{name}"),
        }
    }
}

impl std::str::FromStr for Dependency {
    type Err = crate::BadId;

    fn from_str(text: &str) -> Result<Dependency, crate::BadId> {
        match text.strip_prefix('#') {
            Some(name) => Ok(Dependency::Name(name.to_owned())),
            None => text.parse().map(Dependency::Id),
        }
    }
}

impl Serialize for Dependency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Dependency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Dependency, D::Error> {
        struct DependencyVisitor;
        impl Visitor<'_> for DependencyVisitor {
            type Value = Dependency;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the id of a task, or #name of one in the same batch")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Dependency, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(DependencyVisitor)
    }
}

/// When and how often a failed attempt is repeated. What is left out comes from the configuration.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct RetryRequest {
    /// Repeats after the first attempt (default 3; 0 is one run).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
    /// The wait before the first repeat, in milliseconds (default 1000).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_ms: Option<u64>,
    /// Each further wait is so many times the one before (default 2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiplier: Option<f64>,
    /// No wait is longer (default 60 000).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_backoff_ms: Option<u64>,
    /// The part of a wait it may vary by, 0.0 to 1.0 (default 0.25).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<f64>,
    /// Classes of failure that are repeated (default task, timeout, lost, quota).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<Vec<Class>>,
}

object!(RetryRequest);

/// When and how often a failed attempt is repeated, as in force for this task.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetrySpec {
    /// Repeats after the first attempt; 0 is one run.
    pub max_retries: u32,
    /// The wait before the first repeat, in milliseconds.
    pub backoff_ms: u64,
    /// Each further wait is so many times the one before.
    pub multiplier: f64,
    /// No wait is longer.
    pub max_backoff_ms: u64,
    /// The part of a wait it may vary by.
    pub jitter: f64,
    /// Classes of failure that are repeated.
    pub on: Vec<Class>,
}

/// What is reserved on a worker while the task runs: cpu, ramMb, gpu, and any other resource by its name.
#[derive(Clone, PartialEq, Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// Cores, with fractions (process and docker: 1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// Memory in MiB (process and docker: 256).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ram_mb: Option<u32>,
    /// Whole GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<u32>,
    /// Other resources that workers offer by name.
    #[serde(flatten)]
    pub named: BTreeMap<String, u32>,
}

impl Resources {
    pub fn is_empty(&self) -> bool {
        *self == Resources::default()
    }
}

/// By hand, because serde's flatten would lose the name of the resource whose amount is wrong.
impl<'de> Deserialize<'de> for Resources {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Resources, D::Error> {
        struct ResourcesVisitor;
        impl<'de> Visitor<'de> for ResourcesVisitor {
            type Value = Resources;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of amounts, like {\"cpu\": 1, \"ramMb\": 256}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Resources, A::Error> {
                let mut resources = Resources::default();
                while let Some(name) = map.next_key::<String>()? {
                    match name.as_str() {
                        "cpu" => resources.cpu = map.next_value()?,
                        "ramMb" => resources.ram_mb = map.next_value()?,
                        "gpu" => resources.gpu = map.next_value()?,
                        _ => {
                            let amount = map.next_value()?;
                            resources.named.insert(name, amount);
                        }
                    }
                }
                Ok(resources)
            }
        }
        deserializer.deserialize_map(ResourcesVisitor)
    }
}

/// What is enforced while the task runs.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct Limits {
    /// Cores, with fractions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// Memory in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ram_mb: Option<u32>,
    /// Processes and threads at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    /// Bytes of output that are kept for each attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
}

object!(Limits);

/// Which workers the task may or should run on, by their labels.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct Place {
    /// Labels a worker must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub require: BTreeMap<String, String>,
    /// Labels that make a worker a better choice.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub prefer: BTreeMap<String, String>,
    /// Labels that make a worker a worse choice.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub avoid: BTreeMap<String, String>,
    /// Spread tasks over the values of this label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread_by: Option<String>,
}

object!(Place);

impl Place {
    pub fn is_empty(&self) -> bool {
        *self == Place::default()
    }
}
