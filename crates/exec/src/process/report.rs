//! `RUNYARD_REPORT`: a file the process may append JSON lines to.
//!
//! ```json
//! {"progress": 0.4, "message": "page 4 of 10"}
//! {"result": {"pages": 10}}
//! {"usage": {"inputTokens": 812}}
//! ```
//!
//! The last result and the last usage count. Unknown fields are left alone, so that a newer program can say more.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::pace::Look;
use crate::job::{Progress, Signs};
use crate::log::LogWriter;
use crate::secret::Redactor;
use crate::usage::Usage;

/// What is read of the file over a whole run.
const REPORT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// What is read at once; a line may be as long.
const READ_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// A program that appends nonsense is told a few times, not with every line.
const COMPLAINTS_MAX: u32 = 5;

pub(crate) struct ReportTail {
    path: PathBuf,
    redactor: Redactor,
    offset: u64,
    partial: Vec<u8>,
    n_lines: u64,
    n_complaints: u32,
    reported: Reported,
}

/// What the lines have said so far.
#[derive(Default)]
pub(crate) struct Reported {
    pub result: Option<Box<RawValue>>,
    /// As it was written, for the result.
    pub usage_json: Option<Box<RawValue>>,
    pub usage: Option<Usage>,
}

#[derive(Deserialize)]
struct ReportLine {
    progress: Option<f64>,
    message: Option<String>,
    result: Option<Box<RawValue>>,
    usage: Option<Box<RawValue>>,
}

impl ReportTail {
    /// Messages are passed on without what the redactor hides; the rest goes into the outcome, which is cleared as a whole.
    pub(crate) fn new(path: PathBuf, redactor: Redactor) -> ReportTail {
        let reported = Reported::default();
        ReportTail { path, redactor, offset: 0, partial: Vec::new(), n_lines: 0, n_complaints: 0, reported }
    }

    /// Takes the whole lines that were appended since the last time.
    pub(crate) fn poll(&mut self, signs: &dyn Signs, log: &mut LogWriter) -> Look {
        // A file that is gone or cannot be read has nothing to report.
        let bytes = self.read_more().unwrap_or_default();
        if bytes.is_empty() {
            return Look::Nothing;
        }
        self.partial.extend_from_slice(&bytes);
        if let Some(end) = self.partial.iter().rposition(|byte| *byte == b'\n') {
            let rest = self.partial.split_off(end + 1);
            let whole = std::mem::replace(&mut self.partial, rest);
            whole.split(|byte| *byte == b'\n').for_each(|line| self.take_line(line, signs, log));
        }
        Look::News
    }

    /// The process has ended: the rest, and a last line without a line end.
    pub(crate) fn finish(&mut self, signs: &dyn Signs, log: &mut LogWriter) {
        loop {
            let before = self.offset;
            self.poll(signs, log);
            if self.offset == before {
                break;
            }
        }
        let last = std::mem::take(&mut self.partial);
        self.take_line(&last, signs, log);
    }

    /// The file stays with the working directory, for people and for the next attempt. Nothing of the run is alive.
    pub(crate) fn clear(&self) -> io::Result<()> {
        if self.redactor.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::new();
        let file = match open_unblocked(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        if !file.metadata()?.is_file() {
            return Ok(());
        }
        file.take(REPORT_BYTES_MAX).read_to_end(&mut bytes)?;
        let Cow::Owned(cleared) = self.redactor.bytes(&bytes) else { return Ok(()) };
        std::fs::remove_file(&self.path)?;
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path)?.write_all(&cleared)
    }

    pub(crate) fn into_reported(self) -> Reported {
        self.reported
    }

    fn read_more(&mut self) -> io::Result<Vec<u8>> {
        let room = READ_BYTES_MAX.min(REPORT_BYTES_MAX.saturating_sub(self.offset));
        let mut file = open_unblocked(&self.path)?;
        let mut bytes = Vec::new();
        let metadata = file.metadata()?;
        if metadata.is_file() && metadata.len() > self.offset {
            file.seek(SeekFrom::Start(self.offset))?;
            file.take(room).read_to_end(&mut bytes)?;
        }
        self.offset += bytes.len() as u64;
        Ok(bytes)
    }

    fn take_line(&mut self, line: &[u8], signs: &dyn Signs, log: &mut LogWriter) {
        if line.trim_ascii().is_empty() {
            return;
        }
        self.n_lines += 1;
        match serde_json::from_slice::<ReportLine>(line) {
            Ok(line) => self.apply(line, signs, log),
            Err(error) => self.complain(&error, log),
        }
    }

    fn apply(&mut self, line: ReportLine, signs: &dyn Signs, log: &mut LogWriter) {
        signs.alive();
        if line.progress.is_some() || line.message.is_some() {
            // Before it is cut, which could be in the middle of a secret.
            let message = line.message.map(|message| self.redactor.text(&message));
            signs.progress(Progress::said(line.progress, message));
        }
        self.reported.result = line.result.or(self.reported.result.take());
        let Some(usage) = line.usage else { return };
        match Usage::parse(&usage) {
            Ok(usage) => self.reported.usage = usage.or(self.reported.usage),
            Err(error) => self.complain(&error, log),
        }
        self.reported.usage_json = Some(usage);
    }

    fn complain(&mut self, error: &dyn std::error::Error, log: &mut LogWriter) {
        self.n_complaints += 1;
        if self.n_complaints <= COMPLAINTS_MAX {
            log.note(&format!("line {} of RUNYARD_REPORT is not understood: {error}", self.n_lines));
        }
    }
}

/// The process owns the path and may have put anything there. A pipe without a writer would hold the opening thread,
/// which serves everybody else, until somebody writes; a link could lead to a file that only the server may read.
fn open_unblocked(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)
}
