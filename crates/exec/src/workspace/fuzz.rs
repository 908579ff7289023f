//! Archives that nobody packed: what comes out of them lies in the directory, within its limits, or nothing does.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use proptest::prelude::*;

use super::path::InnerPath;
use super::rules::WorkspaceRules;
use super::stage::Stage;
use super::unpack::unpack;
use zips::{DEVICE, Entry, FILE, FOLDER, LINK, PIPE, PROGRAM, end, wide_zip, zip};

#[allow(dead_code, reason = "the tests of archives use all of it")]
#[path = "../../tests/workspace/zips.rs"]
mod zips;

const RULES: WorkspaceRules = WorkspaceRules {
    files_bytes_max: 4096,
    files_max: 8,
    work_dir: super::WorkDir::Remove,
    artifacts_bytes_max: 0,
    artifacts_max: 0,
};

fn name() -> impl Strategy<Value = Vec<u8>> {
    let hostile = prop::sample::select(vec![
        "../out",
        "/out",
        "a/../../out",
        "..\\out",
        "a",
        "a/",
        "a/b",
        "./a",
        "",
        "/",
        "con",
        "a\0b",
        "task.json",
        ".",
    ]);
    prop_oneof![hostile.prop_map(|name| name.as_bytes().to_vec()), prop::collection::vec(any::<u8>(), 0..20)]
}

fn entry() -> impl Strategy<Value = Entry> {
    let content = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..64),
        // What unpacks to more than it may.
        (0usize..20_000).prop_map(|n| vec![0; n]),
    ];
    let mode = prop::sample::select(vec![FILE, PROGRAM, FOLDER, LINK, PIPE, DEVICE, 0]);
    (name(), content, mode, any::<bool>()).prop_map(|(name, content, mode, packed)| {
        let entry = if packed { Entry::new("x", &content) } else { Entry::stored("x", &content) };
        Entry { local_name: name.clone(), name, ..entry.mode(mode) }
    })
}

fn archive() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), any::<u8>(), 0..3u8);
    let whole = (prop::collection::vec(entry(), 0..5), any::<bool>(), 0u64..12)
        .prop_map(|(entries, wide, n)| if wide { wide_zip(&entries, n) } else { zip(&entries) });
    let damaged = (whole, prop::collection::vec(change, 0..6)).prop_map(|(mut bytes, changes)| {
        for (at, byte, how) in changes {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        }
        bytes
    });
    let noise = (prop::collection::vec(any::<u8>(), 0..200), any::<u16>(), any::<u32>(), any::<u32>()).prop_map(
        |(mut bytes, n, size, at)| {
            bytes.extend(end(n, size, at));
            bytes
        },
    );
    prop_oneof![4 => damaged, 1 => noise, 1 => prop::collection::vec(any::<u8>(), 0..300)]
}

/// Files and directories below, and the bytes in them.
fn content_of(dir: &Path) -> (u64, u64) {
    let (mut n, mut bytes) = (0, 0);
    for entry in std::fs::read_dir(dir).expect("readable").map(|entry| entry.expect("an entry")) {
        let kind = entry.file_type().expect("a type");
        assert!(kind.is_dir() || kind.is_file(), "{:?} is neither a file nor a directory", entry.path());
        let (n_below, bytes_below) = if kind.is_dir() { content_of(&entry.path()) } else { (0, 0) };
        n += 1 + n_below;
        bytes += bytes_below + if kind.is_file() { entry.metadata().expect("facts").len() } else { 0 };
    }
    (n, bytes)
}

proptest! {
    #[test]
    fn any_archive_stays_inside_and_within_its_limits(bytes in archive()) {
        let outer = tempfile::tempdir().expect("a directory");
        let inner = outer.path().join("inner");
        std::fs::create_dir(&inner).expect("made");
        std::fs::write(outer.path().join("out"), "untouched").expect("written");
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&bytes).expect("written");
        let mut stage = Stage::at(&inner, &RULES).expect("a stage");
        let _ = unpack(file, &InnerPath::default(), &mut stage);
        let (n, bytes) = content_of(&inner);
        prop_assert!(n <= RULES.files_max && bytes <= RULES.files_bytes_max, "{n} entries, {bytes} bytes");
        prop_assert_eq!(std::fs::read(outer.path().join("out")).expect("there"), b"untouched");
        prop_assert_eq!(std::fs::read_dir(outer.path()).expect("readable").count(), 2, "something lies beside it");
    }
}

#[test]
fn a_whole_archive_is_unpacked() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("a.zip");
    std::fs::write(&path, zip(&[Entry::new("a/b", b"text")])).expect("written");
    let inner = dir.path().join("inner");
    std::fs::create_dir(&inner).expect("made");
    let mut stage = Stage::at(&inner, &RULES).expect("a stage");
    unpack(File::open(&path).expect("open"), &InnerPath::default(), &mut stage).expect("unpacked");
    assert_eq!(std::fs::read(inner.join("a/b")).expect("there"), b"text", "the fuzzed way is one that works");
}
