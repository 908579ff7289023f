//! The keys about what is told to a collector of traces.

use reqwest::header::{HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::check::{Broken, Checked};
use super::types::Config;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Telemetry {
    /// Where an OpenTelemetry collector takes OTLP over HTTP, such as `http://127.0.0.1:4318`. Empty: nothing is sent.
    /// One span is sent for each task that has ended, and one for each of its attempts.
    pub otlp_endpoint: String,
    /// Headers of these requests, such as `x-api-key: …` for a hosted collector. What they hold is not shown.
    pub otlp_headers: Vec<String>,
    /// What this server is called in traces.
    pub service_name: String,
}

impl Default for Telemetry {
    fn default() -> Self {
        Telemetry { otlp_endpoint: String::new(), otlp_headers: Vec::new(), service_name: "runyard".into() }
    }
}

pub(super) fn check(config: &Config) -> Checked {
    let telemetry = &config.telemetry;
    let is_http = |url: &url::Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    if !telemetry.otlp_endpoint.is_empty() && !url::Url::parse(&telemetry.otlp_endpoint).is_ok_and(|url| is_http(&url))
    {
        return Err(Broken::new("telemetry.otlpEndpoint", "must be a URL such as http://127.0.0.1:4318, or empty"));
    }
    match telemetry.otlp_headers.iter().position(|text| header(text).is_none()) {
        Some(at) => {
            Err(Broken::new(format!("telemetry.otlpHeaders[{at}]"), "is not a header, such as `x-api-key: 1234`"))
        }
        None => Ok(()),
    }
}

/// `name: value`
pub fn header(text: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = text.split_once(':')?;
    Some((HeaderName::from_bytes(name.trim().as_bytes()).ok()?, HeaderValue::from_str(value.trim()).ok()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Layers, merge};

    #[test]
    fn what_no_collector_could_be_is_refused_with_its_place() {
        let problem = |telemetry: serde_json::Value| {
            let file = json!({ "telemetry": telemetry }).as_object().expect("an object").clone();
            merge(&Layers { file, ..Layers::default() }).err().map(|error| error.to_string())
        };
        assert_eq!(problem(json!({ "otlpEndpoint": "http://127.0.0.1:4318", "otlpHeaders": ["a: b"] })), None);
        for (telemetry, place) in [
            (json!({ "otlpEndpoint": "collector:4318" }), "telemetry.otlpEndpoint"),
            (json!({ "otlpEndpoint": "ftp://x/" }), "telemetry.otlpEndpoint"),
            (json!({ "otlpHeaders": ["a: b", "no"] }), "telemetry.otlpHeaders[1]"),
            (json!({ "otlpHeaders": ["a b: c"] }), "telemetry.otlpHeaders[0]"),
        ] {
            let problem = problem(telemetry.clone()).unwrap_or_default();
            assert!(problem.contains(place), "{telemetry}: {problem}");
        }
    }
}
