//! Archives as a hostile hand makes them: every field can be made to lie.

use std::io::Write;

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

pub const FILE: u32 = 0o100_644;
pub const PROGRAM: u32 = 0o100_755;
pub const FOLDER: u32 = 0o040_755;
pub const LINK: u32 = 0o120_777;
pub const PIPE: u32 = 0o010_644;
pub const DEVICE: u32 = 0o060_644;

#[derive(Clone, Debug)]
pub struct Entry {
    pub name: Vec<u8>,
    /// In its own header; the same as in the table unless it lies.
    pub local_name: Vec<u8>,
    pub mode: u32,
    pub flags: u16,
    pub method: u16,
    pub crc: u32,
    pub bytes: u32,
    pub packed: Vec<u8>,
    /// Instead of where it is.
    pub offset: Option<u32>,
}

impl Entry {
    pub fn new(name: &str, content: &[u8]) -> Entry {
        let mut packer = DeflateEncoder::new(Vec::new(), Compression::best());
        packer.write_all(content).expect("packed");
        Entry { method: 8, packed: packer.finish().expect("packed"), ..Entry::stored(name, content) }
    }

    pub fn stored(name: &str, content: &[u8]) -> Entry {
        let mut crc = Crc::new();
        crc.update(content);
        Entry {
            name: name.into(),
            local_name: name.into(),
            mode: if name.ends_with('/') { FOLDER } else { FILE },
            flags: 0,
            method: 0,
            crc: crc.sum(),
            bytes: content.len() as u32,
            packed: content.to_vec(),
            offset: None,
        }
    }

    pub fn mode(self, mode: u32) -> Entry {
        Entry { mode, ..self }
    }
}

pub fn zip(entries: &[Entry]) -> Vec<u8> {
    let (mut bytes, mut table) = (Vec::new(), Vec::new());
    for entry in entries {
        let at = entry.offset.unwrap_or(bytes.len() as u32);
        // Version, flags, method, time and date, sum, both sizes.
        let common = |version: &[u16], name: &[u8]| {
            let mut common = Vec::new();
            version.iter().chain(&[entry.flags, entry.method, 0, 0]).for_each(|n| common.extend(n.to_le_bytes()));
            [entry.crc, entry.packed.len() as u32, entry.bytes].iter().for_each(|n| common.extend(n.to_le_bytes()));
            common.extend((name.len() as u16).to_le_bytes());
            common.extend(0u16.to_le_bytes());
            common
        };
        bytes.extend(b"PK\x03\x04");
        bytes.extend(common(&[20], &entry.local_name));
        bytes.extend(&entry.local_name);
        bytes.extend(&entry.packed);
        table.extend(b"PK\x01\x02");
        table.extend(common(&[3 << 8 | 20, 20], &entry.name));
        // Comment, disk, internal attributes.
        table.extend([0; 6]);
        table.extend((entry.mode << 16).to_le_bytes());
        table.extend(at.to_le_bytes());
        table.extend(&entry.name);
    }
    let (table_at, table_bytes) = (bytes.len() as u32, table.len() as u32);
    bytes.extend(table);
    bytes.extend(end(entries.len() as u16, table_bytes, table_at));
    bytes
}

pub fn end(n_entries: u16, table_bytes: u32, table_at: u32) -> Vec<u8> {
    let mut end = b"PK\x05\x06\0\0\0\0".to_vec();
    [n_entries, n_entries].iter().for_each(|n| end.extend(n.to_le_bytes()));
    [table_bytes, table_at].iter().for_each(|n| end.extend(n.to_le_bytes()));
    end.extend([0; 2]);
    end
}

/// As [`zip`], with the numbers of its end where only a wide end has room for them.
pub fn wide_zip(entries: &[Entry], n_entries: u64) -> Vec<u8> {
    let mut bytes = zip(entries);
    let narrow = bytes.split_off(bytes.len() - 22);
    let (table_bytes, table_at) = (&narrow[12..16], &narrow[16..20]);
    let end_at = bytes.len() as u64;
    bytes.extend(b"PK\x06\x06");
    bytes.extend(44u64.to_le_bytes());
    bytes.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    [n_entries, n_entries].iter().for_each(|n| bytes.extend(n.to_le_bytes()));
    [table_bytes, &[0; 4], table_at, &[0; 4]].iter().for_each(|part| bytes.extend(*part));
    bytes.extend(b"PK\x06\x07\0\0\0\0");
    bytes.extend(end_at.to_le_bytes());
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(end(u16::MAX, u32::MAX, u32::MAX));
    bytes
}
