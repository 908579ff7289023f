//! Frames output as lines and keeps the file within its limits.
//!
//! Writes go straight to the page cache from the run's own task: a chunk costs one `write`, which is cheaper than
//! handing it to another thread, and nothing here waits for the disk.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use super::{LINE_BYTES_MAX, LOG_BYTES_MAX, Stream};
use crate::places::create_private_dir;
use crate::secret::Redactor;

pub struct LogWriter {
    path: PathBuf,
    file: Sink,
    /// Text bytes that may still be stored.
    text_left: u64,
    /// Text bytes stored so far.
    n_stored: u64,
    /// Text bytes that came after the limit was reached.
    n_dropped: u64,
    file_bytes: u64,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    frame: Vec<u8>,
    redactor: Redactor,
}

enum Sink {
    /// No output yet, so no file.
    Unopened,
    Open(File),
    /// A limit is reached; the rest is counted.
    Full,
    /// The disk refused. The work goes on without its log.
    Broken,
}

/// Kept free at the end of the file for what Runyard itself has to say.
const SYSTEM_BYTES: u64 = 16 * 1024;
/// Timestamp, letter, two blanks and the line end.
const FRAME_BYTES: u64 = 28;

impl LogWriter {
    pub fn new(path: PathBuf, output_bytes_max: u64) -> LogWriter {
        LogWriter {
            path,
            file: Sink::Unopened,
            text_left: output_bytes_max,
            n_stored: 0,
            n_dropped: 0,
            file_bytes: 0,
            stdout: Vec::new(),
            stderr: Vec::new(),
            frame: Vec::new(),
            redactor: Redactor::default(),
        }
    }

    /// For those who have nothing to keep.
    pub(crate) fn nowhere() -> LogWriter {
        LogWriter { file: Sink::Broken, ..LogWriter::new(PathBuf::new(), 0) }
    }

    /// From now on these are not written.
    pub fn redact(&mut self, redactor: Redactor) {
        self.redactor = redactor;
    }

    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// The file's length.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Output that was not stored.
    pub fn n_dropped(&self) -> u64 {
        self.n_dropped
    }

    /// Takes a chunk of output; whole lines are written at once, the rest waits for its line end or a [`Self::flush`].
    pub fn write(&mut self, stream: Stream, chunk: &[u8]) {
        let at = now_text();
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            self.take_piece(&at, stream, piece);
        }
        self.write_frame();
    }

    /// Writes what has no line end yet, so that a prompt can be seen by those who watch.
    pub fn flush(&mut self) {
        let at = now_text();
        for stream in [Stream::Stdout, Stream::Stderr] {
            let cut = self.cut(stream, usize::MAX);
            if cut > 0 {
                self.split_off_part(&at, stream, cut);
            }
        }
        self.write_frame();
    }

    /// A line of Runyard's own.
    pub fn note(&mut self, text: &str) {
        let text = self.redactor.text(text);
        self.frame_line(&now_text(), Stream::System, text.as_bytes(), LineEnd::Here);
        self.write_frame();
    }

    /// Writes what is left when nothing more can come.
    pub fn finish(&mut self) {
        let at = now_text();
        for stream in [Stream::Stdout, Stream::Stderr] {
            let rest = std::mem::take(self.pending(stream));
            if !rest.is_empty() {
                self.store(&at, stream, &rest, LineEnd::Here);
            }
        }
        self.write_frame();
        if self.n_dropped > 0 && matches!(self.file, Sink::Full) {
            let n_dropped = self.n_dropped;
            self.note(&format!("… {n_dropped} more bytes of output were not stored"));
        }
    }

    fn take_piece(&mut self, at: &str, stream: Stream, piece: &[u8]) {
        let (text, end) = match piece.strip_suffix(b"\n") {
            Some(text) => (text, LineEnd::Here),
            None => (piece, LineEnd::Later),
        };
        self.pending(stream).extend_from_slice(text);
        while self.pending(stream).len() > LINE_BYTES_MAX {
            match self.cut(stream, LINE_BYTES_MAX) {
                // A value longer than a line has begun; no longer than that it waits.
                0 => break,
                cut => self.split_off_part(at, stream, cut),
            }
        }
        if end == LineEnd::Here {
            let line = std::mem::take(self.pending(stream));
            self.store(at, stream, &line, LineEnd::Here);
            // Its room is used again for the next line.
            *self.pending(stream) = line;
            self.pending(stream).clear();
        }
    }

    /// How much of what waits can be written: neither a character nor a value is cut in two.
    fn cut(&mut self, stream: Stream, at_most: usize) -> usize {
        let redactor = self.redactor.clone();
        let pending = self.pending(stream);
        let ready = redactor.ready(pending, at_most);
        ready - incomplete_tail(&pending[..ready])
    }

    fn split_off_part(&mut self, at: &str, stream: Stream, cut: usize) {
        let rest = self.pending(stream).split_off(cut);
        let part = std::mem::replace(self.pending(stream), rest);
        self.store(at, stream, &part, LineEnd::Later);
    }

    /// Puts one part of a line into the frame, or counts it when a limit is reached.
    fn store(&mut self, at: &str, stream: Stream, text: &[u8], end: LineEnd) {
        let redactor = self.redactor.clone();
        let text = &*redactor.bytes(text);
        let n_text = text.len() as u64 + u64::from(end == LineEnd::Here);
        if matches!(self.file, Sink::Full | Sink::Broken) {
            self.n_dropped += n_text;
            return;
        }
        let file_room = (LOG_BYTES_MAX - SYSTEM_BYTES).saturating_sub(self.file_bytes + self.frame.len() as u64);
        // A replaced byte takes three.
        let room = self.text_left.min(file_room.saturating_sub(FRAME_BYTES) / 3);
        if n_text <= room {
            self.text_left -= n_text;
            self.n_stored += n_text;
            self.frame_line(at, stream, text, end);
            return;
        }
        self.truncate(at, stream, text, room, n_text);
    }

    fn truncate(&mut self, at: &str, stream: Stream, text: &[u8], room: u64, n_text: u64) {
        let fits = text.len().min(room as usize);
        let fits = fits - incomplete_tail(&text[..fits]);
        if fits > 0 {
            self.frame_line(at, stream, &text[..fits], LineEnd::Here);
        }
        self.n_stored += fits as u64;
        self.n_dropped += n_text - fits as u64;
        let note = format!("… output truncated at {} bytes", self.n_stored);
        self.frame_line(at, Stream::System, note.as_bytes(), LineEnd::Here);
        self.write_frame();
        if !matches!(self.file, Sink::Broken) {
            self.file = Sink::Full;
        }
    }

    fn frame_line(&mut self, at: &str, stream: Stream, text: &[u8], end: LineEnd) {
        let letter = match end {
            LineEnd::Here => stream.letter(),
            LineEnd::Later => stream.letter().to_ascii_lowercase(),
        };
        self.frame.extend_from_slice(at.as_bytes());
        self.frame.extend_from_slice(&[b' ', letter as u8, b' ']);
        self.frame.extend_from_slice(String::from_utf8_lossy(text).as_bytes());
        self.frame.push(b'\n');
    }

    fn write_frame(&mut self) {
        if self.frame.is_empty() {
            return;
        }
        let frame = std::mem::take(&mut self.frame);
        if let Err(error) = self.append(&frame) {
            tracing::warn!(path = %self.path.display(), %error, "a log cannot be written; its task goes on without");
            self.file = Sink::Broken;
        }
        self.frame = frame;
        self.frame.clear();
    }

    fn append(&mut self, frame: &[u8]) -> std::io::Result<()> {
        if matches!(self.file, Sink::Broken) {
            return Ok(());
        }
        if matches!(self.file, Sink::Unopened) {
            let file = open(&self.path)?;
            // What is there was noted before the run, or by the run itself.
            self.file_bytes = file.metadata()?.len();
            self.file = Sink::Open(file);
        }
        match &mut self.file {
            Sink::Open(file) => file.write_all(frame)?,
            // Only Runyard's own notes come here, and room is kept for them.
            _ => open(&self.path)?.write_all(frame)?,
        }
        self.file_bytes += frame.len() as u64;
        Ok(())
    }

    fn pending(&mut self, stream: Stream) -> &mut Vec<u8> {
        match stream {
            Stream::Stderr => &mut self.stderr,
            Stream::Stdout | Stream::System => &mut self.stdout,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LineEnd {
    Here,
    Later,
}

fn open(path: &std::path::Path) -> std::io::Result<File> {
    if let Some(folder) = path.parent() {
        create_private_dir(folder)?;
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn now_text() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

/// How many bytes at the end begin a character whose rest may still come.
fn incomplete_tail(bytes: &[u8]) -> usize {
    let back_max = bytes.len().min(3);
    for back in 1..=back_max {
        let byte = bytes[bytes.len() - back];
        let char_len = match byte {
            0b1100_0000..=0b1101_1111 => 2,
            0b1110_0000..=0b1110_1111 => 3,
            0b1111_0000..=0b1111_0111 => 4,
            0b1000_0000..=0b1011_1111 => continue,
            _ => return 0,
        };
        return if char_len > back { back } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::super::{Line, read};
    use super::*;

    struct Bench {
        _dir: tempfile::TempDir,
        path: PathBuf,
    }

    impl Bench {
        fn new() -> Bench {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let path = dir.path().join("logs/ab/task.1.log");
            Bench { _dir: dir, path }
        }

        fn writer(&self, output_bytes_max: u64) -> LogWriter {
            LogWriter::new(self.path.clone(), output_bytes_max)
        }

        fn lines(&self) -> Vec<Line> {
            let mut lines = Vec::new();
            let mut offset = 0;
            loop {
                let (more, next) = read(&self.path, offset, 1).expect("the log can be read");
                if next == offset {
                    return lines;
                }
                lines.extend(more);
                offset = next;
            }
        }

        fn texts(&self) -> Vec<(Stream, String, bool)> {
            self.lines().into_iter().map(|line| (line.stream, line.text, line.ends)).collect()
        }
    }

    #[test]
    fn no_output_makes_no_file() {
        let bench = Bench::new();
        let mut writer = bench.writer(100);
        writer.flush();
        writer.finish();
        assert!(!bench.path.exists());
        assert_eq!(read(&bench.path, 0, 10).expect("a missing log is empty"), (Vec::new(), 0));
    }

    #[test]
    fn streams_and_line_ends_are_told_apart() {
        let bench = Bench::new();
        let mut writer = bench.writer(1000);
        writer.write(Stream::Stdout, b"one\ntwo");
        writer.write(Stream::Stderr, b"oops\n");
        writer.flush();
        writer.write(Stream::Stdout, b" more\n\nlast");
        writer.finish();
        let expected = [
            (Stream::Stdout, "one", true),
            (Stream::Stderr, "oops", true),
            (Stream::Stdout, "two", false),
            (Stream::Stdout, " more", true),
            (Stream::Stdout, "", true),
            (Stream::Stdout, "last", true),
        ];
        assert_eq!(bench.texts(), expected.map(|(stream, text, ends)| (stream, text.to_owned(), ends)));
        assert_eq!(writer.file_bytes(), std::fs::metadata(&bench.path).expect("a file").len());
        assert!(bench.lines()[0].at_ms > 1_700_000_000_000);
    }

    #[test]
    fn a_character_is_never_split_and_bad_bytes_are_replaced() {
        let bench = Bench::new();
        let mut writer = bench.writer(1000);
        writer.write(Stream::Stdout, &"€".as_bytes()[..2]);
        writer.flush();
        writer.write(Stream::Stdout, &"€".as_bytes()[2..]);
        writer.write(Stream::Stdout, b"\n\xff!\n");
        writer.finish();
        assert_eq!(bench.texts()[0].1, "€");
        assert_eq!(bench.texts()[1].1, "\u{fffd}!");
    }

    #[test]
    fn a_long_line_is_split_and_can_be_joined_again() {
        let bench = Bench::new();
        let mut writer = bench.writer(LOG_BYTES_MAX);
        let long = "ü".repeat(LINE_BYTES_MAX);
        writer.write(Stream::Stdout, format!("{long}\n").as_bytes());
        let texts = bench.texts();
        assert!(texts.len() >= 2);
        assert!(texts.iter().all(|(_, text, _)| text.len() <= LINE_BYTES_MAX));
        assert_eq!(texts.iter().map(|(_, text, _)| text.as_str()).collect::<String>(), long);
        assert_eq!(texts.iter().filter(|(_, _, ends)| *ends).count(), 1);
    }

    #[test]
    fn secrets_are_hidden_wherever_output_is_cut() {
        let bench = Bench::new();
        let mut writer = bench.writer(LOG_BYTES_MAX);
        let long = "long-canary.".repeat(LINE_BYTES_MAX / 8);
        writer.redact(Redactor::new(["canary-value".to_owned(), long.clone()]));
        writer.write(Stream::Stdout, b"prompt canary");
        writer.flush();
        assert_eq!(bench.texts()[0].1, "prompt ", "the rest may become a secret");
        writer.write(
            Stream::Stdout,
            b"-value
",
        );
        writer.write(
            Stream::Stderr,
            format!(
                "{}canary-value\n
",
                "x".repeat(LINE_BYTES_MAX - 3)
            )
            .as_bytes(),
        );
        long.as_bytes().chunks(1000).for_each(|chunk| writer.write(Stream::Stdout, chunk));
        writer.note("it says \"canary-value\"");
        writer.write(Stream::Stdout, b"!\n");
        writer.finish();
        let all = std::fs::read_to_string(&bench.path).expect("a log");
        assert!(!all.contains("anary"), "{}", all.len());
        let ends: Vec<_> = bench.texts().into_iter().map(|(_, text, _)| text).filter(|text| text.len() < 100).collect();
        assert_eq!(ends, ["prompt ", "(secret)", "(secret)", "", "(secret)", "it says \"(secret)\"", "!"]);
    }

    #[test]
    fn output_beyond_the_limit_is_counted_not_stored() {
        let bench = Bench::new();
        let mut writer = bench.writer(10);
        writer.write(Stream::Stdout, b"12345\n67890\nabc\n");
        writer.write(Stream::Stderr, b"more\n");
        writer.finish();
        let expected = [
            (Stream::Stdout, "12345", true),
            (Stream::Stdout, "6789", true),
            (Stream::System, "… output truncated at 10 bytes", true),
            (Stream::System, "… 11 more bytes of output were not stored", true),
        ];
        assert_eq!(bench.texts(), expected.map(|(stream, text, ends)| (stream, text.to_owned(), ends)));
        assert_eq!(writer.n_dropped(), 11);
    }

    #[test]
    fn the_file_stays_below_its_own_limit_however_short_the_lines_are() {
        let bench = Bench::new();
        let mut writer = bench.writer(u64::MAX);
        for _ in 0..64 {
            writer.write(Stream::Stdout, &[b'\n'; 16 * 1024]);
        }
        writer.finish();
        let length = std::fs::metadata(&bench.path).expect("a file").len();
        assert!(length <= LOG_BYTES_MAX && length > LOG_BYTES_MAX / 2, "{length}");
        assert!(writer.n_dropped() > 0);
    }

    #[test]
    fn a_line_that_is_still_being_written_is_left_for_the_next_read() {
        let bench = Bench::new();
        std::fs::create_dir_all(bench.path.parent().expect("a folder")).expect("a folder");
        let whole = "2026-11-15T21:00:00.123Z O one\n";
        std::fs::write(&bench.path, format!("{whole}2026-11-15T21:0")).expect("a file");
        let (lines, next) = read(&bench.path, 0, 1000).expect("the log can be read");
        assert_eq!((lines.len(), lines[0].at_ms, next), (1, 1_794_776_400_123, whole.len() as u64));
    }
}
