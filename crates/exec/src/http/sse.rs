//! An incremental parser of `text/event-stream`: bytes in, whole events out, bounded memory.

/// Data of one event beyond this is cut off.
pub const EVENT_BYTES_MAX: usize = 256 * 1024;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SseEvent {
    /// Absent: a plain message.
    pub event: Option<String>,
    /// All `data` lines, joined by newlines.
    pub data: String,
}

#[derive(Default)]
pub struct SseParser {
    line: Vec<u8>,
    event: Option<String>,
    data: Option<Vec<u8>>,
    last_was_cr: bool,
    begun: bool,
}

impl SseParser {
    /// Feeds a chunk, cut anywhere, and hands out each event that it completes.
    pub fn feed(&mut self, chunk: &[u8], mut on_event: impl FnMut(SseEvent)) {
        for &byte in chunk {
            let after_cr = std::mem::replace(&mut self.last_was_cr, byte == b'\r');
            match byte {
                // The second half of a CRLF.
                b'\n' if after_cr => {}
                b'\n' | b'\r' => self.end_line().into_iter().for_each(&mut on_event),
                _ if self.line.len() < EVENT_BYTES_MAX => self.line.push(byte),
                _ => {}
            }
        }
    }

    /// The stream is over. Servers that forget the last blank line are common, so what was begun is an event.
    pub fn finish(mut self) -> Option<SseEvent> {
        let last = if self.line.is_empty() { None } else { self.end_line() };
        last.or_else(|| self.dispatch())
    }

    fn end_line(&mut self) -> Option<SseEvent> {
        let mut line = std::mem::take(&mut self.line);
        if !std::mem::replace(&mut self.begun, true) && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        if line.is_empty() {
            return self.dispatch();
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (field, value) = match colon {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (&line[..], &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => self.add_data(value),
            b"event" => self.event = Some(String::from_utf8_lossy(value).into_owned()),
            // id and retry matter to those who reconnect; a comment starts with the colon.
            _ => {}
        }
        line.clear();
        self.line = line;
        None
    }

    fn add_data(&mut self, value: &[u8]) {
        let data = match &mut self.data {
            Some(data) => {
                data.push(b'\n');
                data
            }
            None => self.data.insert(Vec::new()),
        };
        let room = EVENT_BYTES_MAX.saturating_sub(data.len());
        data.extend_from_slice(&value[..value.len().min(room)]);
        data.truncate(EVENT_BYTES_MAX);
    }

    fn dispatch(&mut self) -> Option<SseEvent> {
        let event = self.event.take();
        let data = String::from_utf8_lossy(&self.data.take()?).into_owned();
        Some(SseEvent { event, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(stream: &[u8], chunk_len: usize) -> Vec<(Option<String>, String)> {
        let mut parser = SseParser::default();
        let mut events = Vec::new();
        for chunk in stream.chunks(chunk_len) {
            parser.feed(chunk, |event| events.push(event));
        }
        events.extend(parser.finish());
        events.into_iter().map(|event| (event.event, event.data)).collect()
    }

    #[test]
    fn events_are_the_same_however_the_stream_is_cut() {
        let stream = "\u{feff}data: one\n\n: a comment\nevent: delta\r\ndata: two\r\ndata:  lines ü\r\nid: 7\r\n\r\n\
                      retry: 5\n\ndata\n\rdata:last"
            .as_bytes();
        let expected = vec![
            (None, "one".to_owned()),
            (Some("delta".to_owned()), "two\n lines ü".to_owned()),
            (None, String::new()),
            (None, "last".to_owned()),
        ];
        for chunk_len in 1..=stream.len() {
            assert_eq!(parse(stream, chunk_len), expected, "chunks of {chunk_len}");
        }
    }

    #[test]
    fn an_event_without_end_takes_bounded_memory() {
        let mut parser = SseParser::default();
        let mut events = Vec::new();
        parser.feed(b"data: ", |_| {});
        for _ in 0..1024 {
            parser.feed(&[b'x'; 1024], |event| events.push(event));
        }
        for _ in 0..1024 {
            parser.feed(b"\ndata: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy", |event| events.push(event));
        }
        parser.feed(b"\n\ndata: next\n\n", |event| events.push(event));
        assert!(events[0].data.len() <= EVENT_BYTES_MAX);
        assert_eq!(events[1].data, "next");
    }
}
