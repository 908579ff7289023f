//! Where an archive ends, and what it says there of its table of contents.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::{ZipError, u16_at, u32_at, u64_at};

const END: u32 = 0x0605_4b50;
const END_BYTES: u64 = 22;
const COMMENT_BYTES_MAX: u64 = 65_535;
const END64: u32 = 0x0606_4b50;
const END64_BYTES: u64 = 56;
const LOCATOR64: u32 = 0x0706_4b50;
const LOCATOR64_BYTES: u64 = 20;

/// What it says, and where it begins.
pub(super) struct Ends {
    pub n_entries: u64,
    pub table_bytes: u64,
    pub table_at: u64,
    pub ends_at: u64,
}

impl Ends {
    pub(super) fn of(file: &File) -> Result<Ends, ZipError> {
        let (end, ends_at) = find(file)?;
        if u16_at(&end, 4) != u16_at(&end, 6) || u16_at(&end, 8) != u16_at(&end, 10) {
            return Err(ZipError::Spread);
        }
        let (n_entries, table_bytes, table_at) = (u16_at(&end, 10), u32_at(&end, 12), u32_at(&end, 16));
        let is_wide = n_entries == u16::MAX || table_bytes == u32::MAX || table_at == u32::MAX;
        let wide = if is_wide { wide(file, ends_at)? } else { None };
        Ok(wide.unwrap_or(Ends {
            n_entries: u64::from(n_entries),
            table_bytes: u64::from(table_bytes),
            table_at: u64::from(table_at),
            ends_at,
        }))
    }
}

/// The last end whose comment reaches exactly to the end of the file.
fn find(file: &File) -> Result<(Vec<u8>, u64), ZipError> {
    let file_bytes = file.metadata()?.len();
    let tail_bytes = file_bytes.min(END_BYTES + COMMENT_BYTES_MAX);
    let tail_at = file_bytes - tail_bytes;
    let mut tail = vec![0; tail_bytes as usize];
    file.read_exact_at(&mut tail, tail_at)?;
    let last = (tail.len() + 1).saturating_sub(END_BYTES as usize);
    let is_end = |at: &usize| {
        let end = &tail[*at..];
        u32_at(end, 0) == END && usize::from(u16_at(end, 20)) == end.len() - END_BYTES as usize
    };
    let at = (0..last).rev().find(is_end).ok_or(ZipError::NoZip)?;
    Ok((tail[at..].to_vec(), tail_at + at as u64))
}

/// The wide end, where there is one: the narrow one's numbers are then only marks. `None` when it means its numbers.
fn wide(file: &File, end_at: u64) -> Result<Option<Ends>, ZipError> {
    let Some(locator_at) = end_at.checked_sub(LOCATOR64_BYTES) else { return Ok(None) };
    let mut locator = [0; LOCATOR64_BYTES as usize];
    file.read_exact_at(&mut locator, locator_at)?;
    if u32_at(&locator, 0) != LOCATOR64 {
        return Ok(None);
    }
    let ends_at = u64_at(&locator, 8);
    if ends_at.checked_add(END64_BYTES).is_none_or(|end| end > locator_at) {
        return Err(ZipError::Table("its wide end is not where it should be"));
    }
    let mut end = [0; END64_BYTES as usize];
    file.read_exact_at(&mut end, ends_at)?;
    if u32_at(&end, 0) != END64 {
        return Err(ZipError::Table("its wide end is not where it should be"));
    }
    if u32_at(&end, 16) != u32_at(&end, 20) || u64_at(&end, 24) != u64_at(&end, 32) {
        return Err(ZipError::Spread);
    }
    let (n_entries, table_bytes, table_at) = (u64_at(&end, 32), u64_at(&end, 40), u64_at(&end, 48));
    Ok(Some(Ends { n_entries, table_bytes, table_at, ends_at }))
}
