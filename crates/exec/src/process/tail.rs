//! The last few kilobytes of a stream, for results and messages.

use crate::secret::{Redactor, Sieve};

const TAIL_BYTES_MAX: usize = 8 * 1024;

#[derive(Default)]
pub(crate) struct Tail {
    /// Secrets are taken out on the way in: the tail may begin in the middle of what was one.
    sieve: Sieve,
    bytes: Vec<u8>,
}

impl Tail {
    pub(crate) fn without(redactor: Redactor) -> Tail {
        Tail { sieve: Sieve::new(redactor), bytes: Vec::new() }
    }

    pub(crate) fn push(&mut self, chunk: &[u8]) {
        self.sieve.push(chunk, &mut self.bytes);
        // Trimmed at twice the length, so that each byte is moved once and not with every chunk.
        if self.bytes.len() > 2 * TAIL_BYTES_MAX {
            self.bytes.drain(..self.bytes.len() - TAIL_BYTES_MAX);
        }
    }

    pub(crate) fn text(&self) -> String {
        let bytes = [&self.bytes, &*self.sieve.rest()].concat();
        let mut start = bytes.len().saturating_sub(TAIL_BYTES_MAX);
        // Not in the middle of a character.
        while start > 0 && bytes.get(start).is_some_and(|byte| byte & 0b1100_0000 == 0b1000_0000) {
            start += 1;
        }
        String::from_utf8_lossy(&bytes[start..]).into_owned()
    }

    pub(crate) fn last_line(&self) -> Option<String> {
        let text = self.text();
        text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_is_kept_and_it_starts_with_a_whole_character() {
        let mut tail = Tail::default();
        for _ in 0..10_000 {
            tail.push("ü€\n".as_bytes());
        }
        let text = tail.text();
        assert!(text.len() <= TAIL_BYTES_MAX && text.len() > TAIL_BYTES_MAX - 4);
        assert!(!text.contains('\u{fffd}'));
        tail.push(b" last \n\n");
        assert_eq!(tail.last_line().as_deref(), Some("last"));
    }

    #[test]
    fn a_tail_that_begins_in_a_secret_does_not_show_its_end() {
        for n_after in TAIL_BYTES_MAX - 40..TAIL_BYTES_MAX {
            let mut tail = Tail::without(Redactor::new(["canary-with-some-length".to_owned()]));
            for chunk in ["x".repeat(100).as_bytes(), b"canary-with-", b"some-length", &vec![b'y'; n_after], b"canary"]
            {
                tail.push(chunk);
            }
            let text = tail.text();
            assert!(!text.contains("length") && text.ends_with("ycanary"), "{}", &text[..50]);
        }
    }
}
