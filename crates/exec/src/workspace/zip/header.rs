//! One header of a table of contents.

use std::io::Read;

use super::{EntryKind, ZipEntry, ZipError, u16_at, u32_at, u64_at};

const HEADER: u32 = 0x0201_4b50;
pub(super) const HEADER_BYTES: u64 = 46;
/// The extra field with sizes that do not fit into 32 bits.
const EXTRA64: u16 = 1;

const TYPE_BITS: u32 = 0o170_000;
const TYPE_FOLDER: u32 = 0o040_000;
const TYPE_FILE: u32 = 0o100_000;
const DOS_FOLDER: u32 = 0x10;

pub(super) fn read_entry(table: &mut impl Read) -> Result<ZipEntry, ZipError> {
    let mut read = |n: usize| {
        let mut bytes = vec![0; n];
        let cut = |_| ZipError::Table("it ends in the middle of an entry");
        table.read_exact(&mut bytes).map_err(cut).map(|()| bytes)
    };
    let header = read(HEADER_BYTES as usize)?;
    if u32_at(&header, 0) != HEADER {
        return Err(ZipError::Table("something else stands where an entry should be"));
    }
    let name = read(usize::from(u16_at(&header, 28)))?;
    let extra = read(usize::from(u16_at(&header, 30)))?;
    read(usize::from(u16_at(&header, 32)))?;
    let mut wide = wide_numbers(&extra);
    let mut number = |at: usize| match u32_at(&header, at) {
        u32::MAX => wide.next().ok_or(ZipError::Table("a wide number is missing")),
        narrow => Ok(u64::from(narrow)),
    };
    // In this order they stand in the extra field.
    let (bytes, packed_bytes, local_at) = (number(24)?, number(20)?, number(42)?);
    Ok(ZipEntry {
        kind: kind_of(&name, u32_at(&header, 38)),
        name,
        method: u16_at(&header, 10),
        flags: u16_at(&header, 8),
        crc: u32_at(&header, 16),
        packed_bytes,
        bytes,
        local_at,
    })
}

/// The numbers in the extra field that is there for them.
fn wide_numbers(extra: &[u8]) -> impl Iterator<Item = u64> {
    let mut rest = extra;
    let fields = std::iter::from_fn(move || {
        let (head, behind) = rest.split_at_checked(4)?;
        let (field, behind) = behind.split_at_checked(usize::from(u16_at(head, 2)))?;
        rest = behind;
        Some((u16_at(head, 0), field))
    });
    let field = fields.filter(|(id, _)| *id == EXTRA64).map(|(_, field)| field).next().unwrap_or_default();
    field.chunks_exact(8).map(|number| u64_at(number, 0)).collect::<Vec<_>>().into_iter()
}

/// The type that a Unix system wrote counts wherever it stands: what is a link to one reader must not be a file to another.
fn kind_of(name: &[u8], attributes: u32) -> EntryKind {
    let mode = attributes >> 16;
    match (mode & TYPE_BITS, name.ends_with(b"/")) {
        (0 | TYPE_FOLDER, true) => EntryKind::Folder,
        (TYPE_FOLDER, false) => EntryKind::Folder,
        (0, false) if attributes & DOS_FOLDER != 0 => EntryKind::Folder,
        (0 | TYPE_FILE, false) => EntryKind::File { is_executable: mode & 0o100 != 0 },
        _ => EntryKind::Other,
    }
}
