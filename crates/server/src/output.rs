//! A task's output on its way to who reads it: in parts, each of which says from where to go on behind it.
//!
//! Text alone tells neither how far into which attempt it goes, nor whether its end is the end. Nodes tell each other output
//! as parts, one a line: whoever was asked can go on at the next holder without a gap or a repeat, and takes no break for the
//! end. Counting the bytes of the text would not do: the log of an attempt that was lost with its node is longer where it
//! was first read than anywhere else.

use std::fmt;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::http::HeaderValue;
use futures_util::{Stream, StreamExt, stream};
use runyard_exec::log::Line;
use serde::{Deserialize, Serialize};

use crate::problem::Invalid;

/// Between nodes only.
pub const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/x-runyard-output");

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Part {
    Lines(Chunk),
    /// There is no more, and will not be.
    End,
    /// There is more, or may be, and it cannot be read.
    Missing,
}

/// Lines read in one go.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Chunk {
    pub lines: Vec<Line>,
    pub attempt: u32,
    /// Where the next ones are.
    pub next: Place,
}

/// Which attempt's log, and how far into it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Place {
    pub attempt: u32,
    pub offset: u64,
}

impl Part {
    pub fn to_line(&self) -> Bytes {
        let mut line = serde_json::to_vec(self).expect("a part is plain data");
        line.push(b'\n');
        line.into()
    }
}

/// What another node tells. Without an `End` it has broken off.
pub fn parts(body: Body) -> impl Stream<Item = Part> {
    let reading = Reading { body: body.into_data_stream(), unread: Vec::new() };
    stream::unfold(reading, async |mut reading| reading.next().await.map(|part| (part, reading)))
}

struct Reading {
    body: BodyDataStream,
    unread: Vec<u8>,
}

impl Reading {
    async fn next(&mut self) -> Option<Part> {
        loop {
            if let Some(at) = self.unread.iter().position(|byte| *byte == b'\n') {
                let rest = self.unread.split_off(at + 1);
                let line = std::mem::replace(&mut self.unread, rest);
                return serde_json::from_slice(&line).ok();
            }
            self.unread.extend(self.body.next().await?.ok()?);
        }
    }
}

impl Place {
    pub fn parse(text: &str) -> Result<Place, Invalid> {
        let parts =
            text.split_once('-').and_then(|(attempt, offset)| Some((attempt.parse().ok()?, offset.parse().ok()?)));
        let (attempt, offset) = parts.ok_or_else(|| Invalid::new("after", "a log position looks like 1-4096"))?;
        Ok(Place { attempt, offset })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.attempt, self.offset)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use runyard_exec::log::Stream as Of;

    use super::*;

    fn told() -> [Part; 2] {
        let line = |text: &str, ends| Line { stream: Of::Stdout, at_ms: 7, text: text.to_owned(), ends };
        let lines = vec![line("one \u{e4}\u{1}\"", true), line("a prompt", false)];
        [Part::Lines(Chunk { lines, attempt: 2, next: Place { attempt: 2, offset: 90 } }), Part::End]
    }

    #[tokio::test]
    async fn parts_are_read_as_they_were_told_wherever_the_network_cuts_them() {
        let bytes: Vec<u8> = told().iter().flat_map(|part| part.to_line()).collect();
        for size in 1..bytes.len() {
            let pieces: Vec<_> = bytes.chunks(size).map(|piece| Ok::<_, io::Error>(piece.to_vec())).collect();
            let read: Vec<Part> = parts(Body::from_stream(stream::iter(pieces))).collect().await;
            assert_eq!(read, told(), "in pieces of {size}");
        }
    }

    #[tokio::test]
    async fn what_breaks_off_gives_the_whole_parts_and_no_end() {
        let bytes: Vec<u8> = told().iter().flat_map(|part| part.to_line()).collect();
        let pieces = [Ok(bytes[..bytes.len() - 1].to_vec()), Err(io::Error::other("cut"))];
        let read: Vec<Part> = parts(Body::from_stream(stream::iter(pieces))).collect().await;
        assert_eq!(read, told()[..1]);
    }

    #[test]
    fn a_place_is_read_as_it_is_written() {
        let place = Place { attempt: 3, offset: 4096 };
        assert_eq!(Place::parse(&place.to_string()).expect("a place"), place);
        assert!(Place::parse("3").is_err() && Place::parse("a-b").is_err());
    }
}
