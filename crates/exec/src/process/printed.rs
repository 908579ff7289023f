//! Standard output as the result of a run: JSON when it is JSON, else a text.

use serde_json::value::RawValue;

use crate::result::RESULT_BYTES_MAX;

#[derive(Default)]
pub(crate) struct Printed {
    bytes: Vec<u8>,
    /// Of all, also beyond what is kept.
    n_bytes: usize,
}

impl Printed {
    pub(super) fn push(&mut self, chunk: &[u8]) {
        self.n_bytes += chunk.len();
        let room = RESULT_BYTES_MAX.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }

    /// A result that is cut would be another one, so one that is too long is none.
    pub(super) fn into_result(self) -> Result<Vec<u8>, String> {
        let too_long =
            |n_bytes| format!("it printed {n_bytes} bytes, over the limit of {RESULT_BYTES_MAX} for a result");
        if self.n_bytes > RESULT_BYTES_MAX {
            return Err(too_long(self.n_bytes));
        }
        if let Ok(json) = serde_json::from_slice::<&RawValue>(self.bytes.trim_ascii()) {
            return Ok(json.get().as_bytes().to_vec());
        }
        let text = String::from_utf8_lossy(&self.bytes);
        let json = serde_json::to_vec(text.trim_end_matches(['\r', '\n'])).expect("a text can always be written");
        if json.len() > RESULT_BYTES_MAX { Err(too_long(json.len())) } else { Ok(json) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(chunks: &[&[u8]]) -> Result<String, String> {
        let mut printed = Printed::default();
        chunks.iter().for_each(|chunk| printed.push(chunk));
        printed.into_result().map(|bytes| String::from_utf8(bytes).expect("JSON is UTF-8"))
    }

    #[test]
    fn json_stays_as_it_is_and_anything_else_becomes_a_text() {
        let table: [(&[&[u8]], &str); 6] = [
            (&[b"{\"a\": [1,", b" 2]}\n"], "{\"a\": [1, 2]}"),
            (&[b" 7 \n"], "7"),
            (&[b"two words\n"], "\"two words\""),
            (&[b"{\"a\":1} {\"b\":2}\n"], "\"{\\\"a\\\":1} {\\\"b\\\":2}\""),
            (&[], "\"\""),
            (&[b"\xff!"], "\"\u{fffd}!\""),
        ];
        for (chunks, expected) in table {
            assert_eq!(result(chunks).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn what_is_too_long_is_no_result() {
        let line = vec![b'x'; RESULT_BYTES_MAX - 2];
        assert_eq!(result(&[&line]).map(|json| json.len()), Ok(RESULT_BYTES_MAX));
        assert!(result(&[&line, b"x"]).is_err_and(|error| error.contains("over the limit")));
        assert!(result(&[&line, b"123"]).is_err_and(|error| error.contains("1048577 bytes")));
    }
}
