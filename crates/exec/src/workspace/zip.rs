//! Reads zip archives, and takes nothing on trust.
//!
//! Written by hand, because what counts here is what is *refused*. A library that is meant to open whatever people have
//! reads the whole table of contents into memory before anybody can look at its length, lets the last of two entries
//! with one name win, and guesses where an archive begins that does not say. Here there is one reading of an archive or
//! none: its table of contents lies directly before its end, each entry is in it once and says the same in both of its
//! headers, and what comes out is counted and checked against its sum.
//!
//! ```text
//! local header · content │ … │ table: one header for each entry │ (zip64 end, its locator) │ end · comment
//!      ▲                           │  offset of its local header
//!      └───────────────────────────┘
//! ```
//!
//! Content is stored or deflated; anything else, and what is encrypted or spread over several files, is refused.

mod ends;
mod header;

use std::fs::File;
use std::io::{self, BufReader, Read, Take};
use std::os::unix::fs::FileExt;

use flate2::Crc;
use flate2::read::DeflateDecoder;

use ends::Ends;
use header::{HEADER_BYTES, read_entry};

const LOCAL: u32 = 0x0403_4b50;
const LOCAL_BYTES: u64 = 30;
const FLAG_ENCRYPTED: u16 = 1;
const METHOD_STORED: u16 = 0;
const METHOD_DEFLATED: u16 = 8;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ZipError {
    #[error("is no zip archive")]
    NoZip,
    #[error("is one part of an archive in several files")]
    Spread,
    #[error("has a table of contents that is damaged: {0}")]
    Table(&'static str),
    #[error("is encrypted")]
    Encrypted,
    #[error("is packed in a way that is not understood (method {0}); deflate is")]
    Method(u16),
    #[error("says one thing in the table of contents and another in its own header")]
    Contradicts,
    #[error("is damaged: {0}")]
    Damaged(&'static str),
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
}

pub(crate) struct Archive {
    file: File,
    table_at: u64,
    table_bytes: u64,
    n_entries: u64,
}

/// One header of the table of contents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ZipEntry {
    pub name: Vec<u8>,
    pub kind: EntryKind,
    method: u16,
    flags: u16,
    crc: u32,
    packed_bytes: u64,
    bytes: u64,
    local_at: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EntryKind {
    File {
        is_executable: bool,
    },
    Folder,
    /// A link, a device, a pipe.
    Other,
}

impl Archive {
    pub(crate) fn open(file: File) -> Result<Archive, ZipError> {
        let Ends { n_entries, table_bytes, table_at, ends_at } = Ends::of(&file)?;
        // Whatever stood between would be seen by some readers and not by others.
        if table_at.checked_add(table_bytes) != Some(ends_at) {
            return Err(ZipError::Table("it does not lie where its end says"));
        }
        if n_entries > table_bytes / HEADER_BYTES {
            return Err(ZipError::Table("it is too short for its entries"));
        }
        Ok(Archive { file, table_at, table_bytes, n_entries })
    }

    pub(crate) fn n_entries(&self) -> u64 {
        self.n_entries
    }

    /// In the order of the table, read as they are asked for.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Result<ZipEntry, ZipError>> {
        let mut table = BufReader::new(Span { file: &self.file, at: self.table_at }.take(self.table_bytes));
        let mut n_left = self.n_entries;
        std::iter::from_fn(move || {
            if n_left == 0 {
                // What is left over belongs to no entry.
                return match io::copy(&mut table, &mut io::sink()) {
                    Ok(0) => None,
                    Ok(_) => Some(Err(ZipError::Table("it goes on behind its last entry"))),
                    Err(error) => Some(Err(error.into())),
                };
            }
            let entry = read_entry(&mut table);
            n_left = if entry.is_ok() { n_left - 1 } else { 0 };
            Some(entry)
        })
    }

    /// What is in an entry. Read to its end, it is checked against its size and its sum.
    pub(crate) fn content(&self, entry: &ZipEntry) -> Result<Content<'_>, ZipError> {
        if entry.flags & FLAG_ENCRYPTED != 0 {
            return Err(ZipError::Encrypted);
        }
        let mut local = [0; LOCAL_BYTES as usize];
        self.read_at(&mut local, entry.local_at)?;
        if u32_at(&local, 0) != LOCAL || u16_at(&local, 8) != entry.method {
            return Err(ZipError::Contradicts);
        }
        let (name_bytes, extra_bytes) = (u64::from(u16_at(&local, 26)), u64::from(u16_at(&local, 28)));
        let mut name = vec![0; name_bytes as usize];
        let name_at = entry.local_at.saturating_add(LOCAL_BYTES);
        self.read_at(&mut name, name_at)?;
        if name != entry.name {
            return Err(ZipError::Contradicts);
        }
        let at = name_at.saturating_add(name_bytes + extra_bytes);
        if at.checked_add(entry.packed_bytes).is_none_or(|end| end > self.table_at) {
            return Err(ZipError::Damaged("it reaches beyond the end of the contents"));
        }
        let packed = Span { file: &self.file, at }.take(entry.packed_bytes);
        let source = match entry.method {
            METHOD_STORED => Source::Stored(packed),
            METHOD_DEFLATED => Source::Deflated(Box::new(DeflateDecoder::new(packed))),
            method => return Err(ZipError::Method(method)),
        };
        Ok(Content { source, crc: Crc::new(), bytes_left: entry.bytes, crc_told: entry.crc })
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<(), ZipError> {
        self.file.read_exact_at(bytes, at).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ZipError::Damaged("it lies beyond the end of the archive"),
            _ => error.into(),
        })
    }
}

/// The unpacked bytes of one entry.
pub(crate) struct Content<'a> {
    source: Source<'a>,
    crc: Crc,
    /// By what the table says; more than that is an error.
    bytes_left: u64,
    crc_told: u32,
}

enum Source<'a> {
    Stored(Take<Span<'a>>),
    Deflated(Box<DeflateDecoder<Take<Span<'a>>>>),
}

impl Content<'_> {
    /// The next bytes; 0 at the end, which has then been checked.
    pub(crate) fn read(&mut self, bytes: &mut [u8]) -> Result<usize, ZipError> {
        let read = match &mut self.source {
            Source::Stored(source) => source.read(bytes),
            Source::Deflated(source) => source.read(bytes),
        };
        let n = read.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => ZipError::Damaged("its content is no deflate"),
            io::ErrorKind::UnexpectedEof => ZipError::Damaged("its content ends early"),
            _ => error.into(),
        })?;
        if n == 0 && (self.bytes_left > 0 || self.crc.sum() != self.crc_told) {
            return Err(ZipError::Damaged("its content is not what its size and sum say"));
        }
        self.crc.update(&bytes[..n]);
        let left = self.bytes_left.checked_sub(n as u64);
        self.bytes_left = left.ok_or(ZipError::Damaged("its content is longer than its size says"))?;
        Ok(n)
    }
}

/// A part of a file, read without moving the file's own position.
#[derive(Clone, Copy)]
struct Span<'a> {
    file: &'a File,
    at: u64,
}

impl Read for Span<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read_at(bytes, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
