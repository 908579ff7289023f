//! The last few kilobytes of a stream, for results and messages.

const TAIL_BYTES_MAX: usize = 8 * 1024;

#[derive(Default)]
pub(super) struct Tail {
    bytes: Vec<u8>,
}

impl Tail {
    pub(super) fn push(&mut self, chunk: &[u8]) {
        self.bytes.extend_from_slice(chunk);
        // Trimmed at twice the length, so that each byte is moved once and not with every chunk.
        if self.bytes.len() > 2 * TAIL_BYTES_MAX {
            self.bytes.drain(..self.bytes.len() - TAIL_BYTES_MAX);
        }
    }

    pub(super) fn text(&self) -> String {
        let mut start = self.bytes.len().saturating_sub(TAIL_BYTES_MAX);
        // Not in the middle of a character.
        while start > 0 && self.bytes.get(start).is_some_and(|byte| byte & 0b1100_0000 == 0b1000_0000) {
            start += 1;
        }
        String::from_utf8_lossy(&self.bytes[start..]).into_owned()
    }

    pub(super) fn last_line(&self) -> Option<String> {
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
}
