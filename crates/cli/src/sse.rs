//! Reading server-sent events from a response, a chunk at a time.

use std::collections::VecDeque;

/// More than any event of ours; a stream that sends more without an end is not one.
const EVENT_BYTES_MAX: usize = 8 * 1024 * 1024;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SseEvent {
    pub id: Option<String>,
    pub name: String,
    pub data: String,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("an event is longer than {EVENT_BYTES_MAX} bytes")]
pub struct TooLong;

/// Bytes in, events out. Comments and `retry` are read over.
#[derive(Default)]
pub struct SseParser {
    line: Vec<u8>,
    event: SseEvent,
    has_data: bool,
    /// A carriage return ended the last line: a line feed right behind it belongs to it.
    after_return: bool,
    ready: VecDeque<SseEvent>,
}

impl SseParser {
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        for &byte in bytes {
            let after_return = std::mem::replace(&mut self.after_return, byte == b'\r');
            match byte {
                b'\n' if after_return => {}
                b'\n' | b'\r' => self.end_line(),
                _ => self.line.push(byte),
            }
            if self.line.len() + self.event.data.len() > EVENT_BYTES_MAX {
                return Err(TooLong);
            }
        }
        Ok(())
    }

    pub fn pop(&mut self) -> Option<SseEvent> {
        self.ready.pop_front()
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        if line.is_empty() {
            return self.end_event();
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.event.name = value.to_owned(),
            "id" => self.event.id = Some(value.to_owned()),
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
                self.has_data = true;
            }
            _ => {}
        }
    }

    fn end_event(&mut self) {
        let event = std::mem::take(&mut self.event);
        if std::mem::take(&mut self.has_data) {
            self.ready.push_back(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(chunks: &[&str]) -> Vec<SseEvent> {
        let mut parser = SseParser::default();
        chunks.iter().for_each(|chunk| parser.push(chunk.as_bytes()).unwrap());
        std::iter::from_fn(|| parser.pop()).collect()
    }

    #[test]
    fn events_survive_any_cut() {
        let text = ": hello\nretry: 5\n\nid: 3-0\nevent: task.queued\ndata: {\"a\":1}\ndata: x\n\ndata:y\r\n\r\n";
        let whole = events(&[text]);
        assert_eq!(whole.len(), 2);
        assert_eq!(whole[0].id.as_deref(), Some("3-0"));
        assert_eq!(whole[0].name, "task.queued");
        assert_eq!(whole[0].data, "{\"a\":1}\nx");
        assert_eq!(whole[1].data, "y");
        for cut in 0..text.len() {
            assert_eq!(events(&[&text[..cut], &text[cut..]]), whole, "cut at {cut}");
        }
    }

    proptest::proptest! {
        /// What is read does not depend on where the network cut it.
        #[test]
        fn any_bytes_are_read_the_same_whole_and_in_pieces(
            bytes in proptest::collection::vec(proptest::sample::select(b"id:event:data: \n\n\r\n\xff\xc3\xa4\0x".to_vec()), 0..200),
            size in 1usize..9,
        ) {
            let read = |chunks: std::slice::Chunks<u8>| {
                let mut parser = SseParser::default();
                chunks.into_iter().for_each(|chunk| parser.push(chunk).unwrap());
                std::iter::from_fn(move || parser.pop()).collect::<Vec<_>>()
            };
            proptest::prop_assert_eq!(read(bytes.chunks(size)), read(bytes.chunks(bytes.len().max(1))));
        }
    }

    #[test]
    fn an_event_without_an_end_is_refused() {
        let mut parser = SseParser::default();
        assert_eq!(parser.push(&vec![b'x'; EVENT_BYTES_MAX + 1]), Err(TooLong));
    }
}
