//! What a run says it has used.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Fields that are not known here are left alone, so that a program can say more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    /// How full the model's context is, and how much fits.
    pub context_tokens: Option<u64>,
    pub context_window: Option<u64>,
}

#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    #[error("usage must be an object")]
    NoObject,
    #[error("usage is not understood: {0}")]
    Field(#[from] serde_json::Error),
}

impl Usage {
    /// `None` when nothing in it is known.
    pub fn parse(usage: &RawValue) -> Result<Option<Usage>, UsageError> {
        // serde would also take a list of all the fields in their order, which nobody means.
        if !usage.get().starts_with('{') {
            return Err(UsageError::NoObject);
        }
        let usage: Usage = serde_json::from_str(usage.get())?;
        Ok((usage != Usage::default()).then_some(usage))
    }

    /// The `usage` of a JSON answer. The answer is somebody else's: only an object is meant for us.
    pub(crate) fn of_answer(body: &[u8]) -> Result<Option<Usage>, UsageError> {
        #[derive(Deserialize)]
        struct Answer<'a> {
            #[serde(borrow)]
            usage: Option<&'a RawValue>,
        }
        if !body.trim_ascii_start().starts_with(b"{") {
            return Ok(None);
        }
        let usage = serde_json::from_slice::<Answer>(body).ok().and_then(|answer| answer.usage);
        match usage.filter(|usage| usage.get().starts_with('{')) {
            Some(usage) => Usage::parse(usage),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_fields_are_read_and_others_left_alone() {
        let read = |json: &str| {
            let raw = RawValue::from_string(json.to_owned()).expect("the test's JSON is valid");
            Usage::parse(&raw).map_err(|error| error.to_string())
        };
        let whole = r#"{"inputTokens":1,"outputTokens":2,"contextTokens":3,"contextWindow":4,"cost":"5 cents"}"#;
        let expected =
            Usage { input_tokens: Some(1), output_tokens: Some(2), context_tokens: Some(3), context_window: Some(4) };
        assert_eq!(read(whole), Ok(Some(expected)));
        assert_eq!(read(r#"{"prompt_tokens":7}"#), Ok(None));
        assert_eq!(read(r#"{"inputTokens":null}"#), Ok(None));
        for wrong in [r#"{"inputTokens":"many"}"#, r#"{"inputTokens":-1}"#, "[1,2,3,4]", "7"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_answer_may_have_a_usage_of_its_own_kind() {
        let read = |body: &str| Usage::of_answer(body.as_bytes()).map_err(drop);
        let expected = Usage { output_tokens: Some(9), ..Usage::default() };
        assert_eq!(read(r#" {"usage":{"outputTokens":9},"a":1}"#), Ok(Some(expected)));
        for other in ["{", "[]", "7", "{}", r#"{"usage":"none"}"#, r#"{"usage":null}"#, r#"{"usage":{"total":1}}"#] {
            assert_eq!(read(other), Ok(None), "{other}");
        }
        assert_eq!(read(r#"{"usage":{"outputTokens":"9"}}"#), Err(()));
    }
}
