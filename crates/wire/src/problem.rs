//! Errors as RFC 9457 has them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The media type of a [`Problem`].
pub const PROBLEM_CONTENT_TYPE: &str = "application/problem+json";

/// What went wrong, where, and what would be right.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// A link that names the kind of problem.
    #[serde(rename = "type", default = "about_blank")]
    pub kind: String,
    /// The status in words.
    #[serde(default)]
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong this time, for people.
    #[serde(default)]
    pub detail: String,
    /// A stable word for programs.
    #[serde(default)]
    pub code: String,
    /// The field of the request that is wrong, as a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Further facts, such as the limit that was hit.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

fn about_blank() -> String {
    "about:blank".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_facts_stand_beside_the_fixed_ones() {
        let text = r#"{"type":"t","title":"Too Many","status":429,"detail":"full","code":"queue_full","limit":5}"#;
        let problem: Problem = serde_json::from_str(text).unwrap();
        assert_eq!(problem.extra["limit"], 5);
        assert_eq!(serde_json::to_string(&problem).unwrap(), text);
    }
}
