//! What a worker lets containers have: its engine, its ceilings, and what a payload may ask for.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::limits::Limits;
use crate::outcome::{Class, Failure};
use crate::payload::{DockerPayload, Root};

/// What a container gets that says nothing of its own. There is no container without limits.
pub const LIMITS_DEFAULT: Limits = Limits { cpu: Some(2.0), ram_mb: Some(512), pids: Some(256) };
/// Where an engine listens unless it was told otherwise.
pub const SOCKET_DEFAULT: &str = "/var/run/docker.sock";

/// Read from the configuration at the start of an attempt, and carried with it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DockerRules {
    pub socket: PathBuf,
    /// A task that asks for more cores is refused; `None`: no ceiling.
    pub cpu_max: Option<f64>,
    pub ram_mb_max: Option<u32>,
    pub pids_max: Option<u32>,
    /// Networks that tasks may name.
    pub networks: Vec<String>,
    /// May a task have an image fetched?
    pub pull: bool,
    /// May a task have a root file system that it can write to?
    pub writable_root: bool,
}

impl Default for DockerRules {
    fn default() -> DockerRules {
        DockerRules {
            socket: SOCKET_DEFAULT.into(),
            cpu_max: None,
            ram_mb_max: None,
            pids_max: None,
            networks: vec!["none".to_owned()],
            pull: false,
            writable_root: false,
        }
    }
}

impl DockerRules {
    /// What is against a run. It can never succeed here, so it is refused for good, and names the key.
    pub(super) fn check(&self, payload: &DockerPayload, limits: &Limits) -> Result<(), Failure> {
        let over = |what: &str, asked: String, key: &str, most: String| {
            refused(format!("limits.{what} {asked} is over the ceiling of this worker: [docker] {key} = {most}"))
        };
        match (limits.cpu, self.cpu_max) {
            (Some(cpu), Some(most)) if cpu > most => {
                return Err(over("cpu", cpu.to_string(), "cpuMax", most.to_string()));
            }
            _ => {}
        }
        for (what, asked, key, most) in
            [("ramMb", limits.ram_mb, "ramMbMax", self.ram_mb_max), ("pids", limits.pids, "pidsMax", self.pids_max)]
        {
            match (asked, most) {
                (Some(asked), Some(most)) if asked > most => {
                    return Err(over(what, asked.to_string(), key, most.to_string()));
                }
                _ => {}
            }
        }
        if !self.networks.contains(&payload.network) {
            let (asked, allowed) = (&payload.network, self.networks.join(", "));
            return Err(refused(format!(
                "payload.network: `{asked}` is not allowed on this worker: [docker] networks = [{allowed}]"
            )));
        }
        if payload.pull && !self.pull {
            return Err(refused("payload.pull: this worker fetches no images: [docker] pull = false".to_owned()));
        }
        if payload.root == Root::Writable && !self.writable_root {
            let message = "payload.readOnly: this worker allows no writable root: [docker] writableRoot = false";
            return Err(refused(message.to_owned()));
        }
        Ok(())
    }
}

fn refused(message: String) -> Failure {
    Failure::work(Class::Permanent, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;

    #[test]
    fn what_is_over_a_ceiling_or_not_allowed_names_the_key() {
        let refusal = |rules: &DockerRules, fields: serde_json::Value, limits: Limits| {
            let mut payload = json!({"image": "a"});
            payload.as_object_mut().expect("an object").extend(fields.as_object().cloned().unwrap_or_default());
            let raw = to_raw_value(&payload).expect("JSON");
            let payload = DockerPayload::parse(Some(&raw)).expect("a payload");
            rules.check(&payload, &limits.or(LIMITS_DEFAULT)).err().map(|failure| {
                assert_eq!(failure.class, Class::Permanent);
                failure.message
            })
        };
        let open = DockerRules {
            cpu_max: Some(2.0),
            ram_mb_max: Some(512),
            pids_max: Some(256),
            networks: vec!["none".to_owned(), "host".to_owned()],
            pull: true,
            writable_root: true,
            ..DockerRules::default()
        };
        let nothing = Limits::default();
        let all = json!({"network": "host", "pull": true, "readOnly": false});
        assert_eq!(refusal(&open, all, nothing), None, "the defaults are at the ceilings");
        let strict = DockerRules::default();
        for (rules, fields, limits, key) in [
            (&open, json!({}), Limits { cpu: Some(2.1), ..nothing }, "[docker] cpuMax = 2"),
            (&open, json!({}), Limits { ram_mb: Some(513), ..nothing }, "[docker] ramMbMax = 512"),
            (&open, json!({}), Limits { pids: Some(257), ..nothing }, "[docker] pidsMax = 256"),
            (&strict, json!({"network": "host"}), nothing, "[docker] networks = [none]"),
            (&strict, json!({"pull": true}), nothing, "[docker] pull"),
            (&strict, json!({"readOnly": false}), nothing, "[docker] writableRoot"),
        ] {
            let message = refusal(rules, fields, limits).expect("a refusal");
            assert!(message.contains(key), "{message}");
        }
        assert_eq!(refusal(&strict, json!({}), Limits { cpu: Some(64.0), ..nothing }), None, "no ceiling");
    }
}
