//! Archives: those that are meant well, and those that are not.

use runyard_exec::{Class, WorkspaceRules};
use serde_json::{Value, json};

use crate::support::Yard;
use crate::zips::{DEVICE, Entry, FILE, LINK, PIPE, PROGRAM, end, wide_zip, zip};

fn unzip(yard: &Yard, archive: &[u8], path: &str) -> Value {
    json!([{"upload": yard.upload(archive), "path": path, "unzip": true}])
}

/// Why this archive is refused, for good. Nothing may have been written anywhere else.
async fn refusal(archive: &[u8]) -> String {
    refusal_by(archive, WorkspaceRules::default()).await
}

async fn refusal_by(archive: &[u8], rules: WorkspaceRules) -> String {
    let yard = Yard::new();
    let around = || {
        let mut around = crate::names(yard.dir.path());
        around.retain(|name| name != "work");
        around
    };
    let files = unzip(&yard, archive, "in");
    let before = around();
    let (class, message) = yard.refused(files, rules).await;
    assert_eq!(class, Class::Permanent, "{message}");
    assert_eq!(around(), before, "{message}");
    message.strip_prefix("files[0] `in`: ").unwrap_or_else(|| panic!("{message}")).to_owned()
}

#[tokio::test]
async fn an_archive_is_unpacked_where_it_is_wanted() {
    let yard = Yard::new();
    let archive = zip(&[
        Entry::stored("folder/", b""),
        Entry::new("folder/packed", &b"abc".repeat(3)),
        Entry::stored("plain", b"as it is"),
        Entry::new("not/named/before", b"x").mode(0),
    ]);
    let shown = "folder/\nfolder/packed: abcabcabc\nnot/\nnot/named/\nnot/named/before: x\nplain: as it is\n";
    let below = |folder: &str| shown.lines().map(|line| format!("./{folder}{line}\n")).collect::<String>();
    assert_eq!(yard.staged(unzip(&yard, &archive, ".")).await, below(""));
    assert_eq!(yard.staged(unzip(&yard, &archive, "a/b/")).await, format!("./a/\n./a/b/\n{}", below("a/b/")));
    assert_eq!(yard.staged(unzip(&yard, &zip(&[]), "none")).await, "./none/\n");
    assert_eq!(yard.staged(unzip(&yard, &wide_zip(&[Entry::new("wide", b"w")], 1), ".")).await, "./wide: w\n");
}

#[tokio::test]
async fn a_program_stays_one_and_everything_is_the_owners_only() {
    let yard = Yard::new();
    let archive = zip(&[
        Entry::new("run", b"#!/bin/sh\nstat -c %a run read folder\n").mode(PROGRAM | 0o7777),
        Entry::new("read", b"").mode(FILE),
        Entry::stored("folder/", b""),
    ]);
    let payload = json!({"argv": ["./run"], "files": unzip(&yard, &archive, ".")});
    let result = crate::support::completed(yard.run(runyard_exec::Kind::Process, payload).await);
    assert_eq!(result["stdout"], "700\n600\n700\n");
}

#[tokio::test]
async fn no_spelling_of_a_way_out_is_unpacked() {
    let spellings = [
        "../out",
        "../../out",
        "a/../../out",
        "a/../b",
        "..",
        "a/..",
        "/out",
        "//out",
        "/",
        "..\\out",
        "a\\..\\..\\out",
        "C:\\out",
        "\\out",
        "\\\\host\\out",
        "./../out",
        "a/./../../out",
        "a/b/c/../../../../out",
        "out\0/../x",
        "../",
        "../folder/",
    ];
    for name in spellings {
        let message = refusal(&zip(&[Entry::new("fine", b"1"), Entry::new(name, b"out")])).await;
        assert!(message.starts_with(&format!("entry `{}`: ", name.escape_debug())), "{message}");
    }
    // Three dots are a name like any other.
    let yard = Yard::new();
    let shown = yard.staged(unzip(&yard, &zip(&[Entry::new("...", b"dots"), Entry::new("..a/b..", b"b")]), ".")).await;
    assert_eq!(shown, "./...: dots\n./..a/\n./..a/b..: b\n");
}

#[tokio::test]
async fn an_archive_in_an_archive_is_a_file() {
    let yard = Yard::new();
    let inner = zip(&[Entry::new("../../out", b"out")]);
    let outer = zip(&[Entry::new("inner.zip", &inner)]);
    let payload = json!({"shell": "find . -name '*.zip' -size +0; ls ..", "files": unzip(&yard, &outer, ".")});
    let result = crate::support::completed(yard.run(runyard_exec::Kind::Process, payload).await);
    assert_eq!(result["stdout"], format!("./inner.zip\n{}\n", crate::support::TASK_TEXT));
}

#[tokio::test]
async fn links_and_special_files_are_refused() {
    for mode in [LINK, PIPE, DEVICE, 0o020_644, 0o140_644] {
        let message = refusal(&zip(&[Entry::stored("way", b"/etc").mode(mode)])).await;
        assert_eq!(message, "entry `way`: is a link or something else that is neither a file nor a directory");
    }
    // A link that is written through: the link itself is refused, so the second entry never gets its turn.
    let through = zip(&[Entry::stored("way", b"..").mode(LINK), Entry::new("way/out", b"out")]);
    assert!(refusal(&through).await.starts_with("entry `way`: "));
    // A directory that is one by its name and a link by its mode.
    assert!(refusal(&zip(&[Entry::stored("way/", b"..").mode(LINK)])).await.starts_with("entry `way/`: "));
}

#[tokio::test]
async fn what_comes_out_is_counted_and_not_what_is_promised() {
    let megabyte = vec![0; 1 << 20];
    let bomb = zip(&(0..20).map(|n| Entry::new(&format!("{n}"), &megabyte)).collect::<Vec<_>>());
    assert!(bomb.len() < 50_000, "{}", bomb.len());
    let rules = WorkspaceRules { files_bytes_max: 10 << 20, ..WorkspaceRules::default() };
    let message = refusal_by(&bomb, rules).await;
    assert!(message.starts_with("entry `10`: ") && message.contains("process.filesBytesMax"), "{message}");
    // It says that it is small.
    let small = Entry { bytes: 3, ..Entry::new("small", &megabyte) };
    let message = refusal(&zip(&[small])).await;
    assert_eq!(message, "entry `small`: is damaged: its content is longer than its size says");
    // One content for many entries, as the densest bombs have it: each counts.
    let once = Entry::new("once", &megabyte);
    let many = (0..20).map(|n| Entry { name: format!("{n}").into(), offset: Some(0), ..once.clone() });
    let message = refusal_by(&zip(&many.collect::<Vec<_>>()), rules).await;
    assert!(message.contains("says one thing in the table"), "{message}");
}

#[tokio::test]
async fn headers_that_lie_are_found_out() {
    let entry = Entry::new("name", b"some content");
    let stored = Entry::stored("name", b"some content");
    let table = [
        (Entry { local_name: b"other".to_vec(), ..entry.clone() }, "says one thing in the table"),
        (Entry { crc: 7, ..entry.clone() }, "is damaged: its content is not what its size and sum say"),
        (Entry { crc: 7, ..stored.clone() }, "is damaged: its content is not what its size and sum say"),
        (Entry { bytes: 13, ..entry.clone() }, "is damaged: its content is not what its size and sum say"),
        (Entry { bytes: 11, ..stored.clone() }, "is damaged: its content is longer than its size says"),
        (Entry { packed: b"\xff\xff\xff".to_vec(), ..entry.clone() }, "is damaged: "),
        (Entry { packed: Vec::new(), ..entry.clone() }, "is damaged: "),
        (Entry { flags: 1, ..entry.clone() }, "is encrypted"),
        (Entry { method: 14, ..entry.clone() }, "is packed in a way that is not understood (method 14)"),
        (Entry { offset: Some(5), ..entry.clone() }, "says one thing in the table"),
        (Entry { offset: Some(u32::MAX - 1), ..entry.clone() }, "lies beyond the end of the archive"),
        (Entry { offset: Some(u32::MAX), ..entry.clone() }, "has a table of contents that is damaged"),
    ];
    for (entry, why) in table {
        let message = refusal(&zip(&[entry])).await;
        assert!(message.contains(why), "{message} has no {why:?}");
    }
}

#[tokio::test]
async fn a_table_of_contents_that_does_not_fit_is_refused() {
    let long = "a".repeat(50);
    let good = zip(&[Entry::new(&long, b"1"), Entry::new("b", b"2")]);
    let (body, last) = good.split_at(good.len() - 22);
    let (table_bytes, table_at) = (u32::from_le_bytes(last[12..16].try_into().unwrap()), last[16..20].to_vec());
    let table_at = u32::from_le_bytes(table_at.try_into().unwrap());
    let with_end = |end: Vec<u8>| [body, &end].concat();
    let table = [
        (b"".to_vec(), "is no zip archive"),
        (b"PK".to_vec(), "is no zip archive"),
        (vec![0; 100_000], "is no zip archive"),
        (good[..good.len() - 1].to_vec(), "is no zip archive"),
        ([&b"#!/bin/sh\n"[..], &good].concat(), "does not lie where its end says"),
        ([&good[..], b"more"].concat(), "is no zip archive"),
        (with_end(end(1, table_bytes, table_at)), "goes on behind its last entry"),
        (with_end(end(3, table_bytes, table_at)), "it ends in the middle of an entry"),
        (with_end(end(60_000, table_bytes, table_at)), "too short for its entries"),
        (with_end(end(2, table_bytes - 1, table_at)), "does not lie where its end says"),
        (with_end(end(2, table_bytes, table_at + 1)), "does not lie where its end says"),
        (with_end(end(2, table_bytes - 1, table_at + 1)), "something else stands where an entry should be"),
        (with_end(end(u16::MAX, u32::MAX, u32::MAX)), "does not lie where its end says"),
        (wide_zip(&[Entry::new("a", b"1")], u64::MAX), "too short for its entries"),
    ];
    for (archive, why) in table {
        let message = refusal(&archive).await;
        assert!(message.contains(why), "{message} has no {why:?}");
    }
}

#[tokio::test]
async fn what_is_in_it_twice_is_refused() {
    let twice = [
        [Entry::new("a", b"1"), Entry::new("a", b"2")],
        [Entry::new("a", b"1"), Entry::new("./a", b"2")],
        [Entry::new("b/a", b"1"), Entry::new("b//a", b"2")],
        [Entry::stored("a/", b""), Entry::stored("a/", b"")],
        [Entry::stored("a/", b""), Entry::new("a", b"1")],
        [Entry::new("a", b"1"), Entry::stored("a/", b"")],
    ];
    for entries in twice {
        let message = refusal(&zip(&entries)).await;
        let name = String::from_utf8_lossy(&entries[1].name);
        assert_eq!(message, format!("entry `{name}`: is in the archive twice"));
    }
    let message = refusal(&zip(&[Entry::new("a", b"1"), Entry::new("a/b", b"2")])).await;
    assert_eq!(message, "entry `a/b`: a file is staged where it needs a directory");
    let message = refusal(&zip(&[Entry::new("a/b", b"1"), Entry::new("a", b"2")])).await;
    assert_eq!(message, "entry `a`: something else is staged at that path already");
}

#[tokio::test]
async fn an_archive_is_not_unpacked_over_a_file_that_was_staged() {
    let yard = Yard::new();
    let upload = yard.upload(&zip(&[Entry::new("a", b"2")]));
    let files = json!([{"inline": "1", "path": "x/a"}, {"upload": upload, "path": "x", "unzip": true}]);
    let (class, message) = yard.refused(files, WorkspaceRules::default()).await;
    assert_eq!(class, Class::Permanent);
    assert_eq!(message, "files[1] `x`: entry `a`: something else is staged at that path already");
}

#[tokio::test]
async fn a_hundred_thousand_entries_are_refused_before_the_first() {
    let entry = Entry::stored("", b"");
    let names = (0..100_000).map(|n| format!("{n}").into_bytes());
    let entries: Vec<Entry> =
        names.map(|name| Entry { name: name.clone(), local_name: name, mode: FILE, ..entry.clone() }).collect();
    let message = refusal(&wide_zip(&entries, 100_000)).await;
    assert_eq!(message, "one attempt may have 10000 files and directories (process.filesMax), and these are more");
    // Directories that are only implied count as well.
    let rules = WorkspaceRules { files_max: 50, ..WorkspaceRules::default() };
    let deep = zip(&[Entry::new(&format!("{}x", "d/".repeat(60)), b"")]);
    assert!(refusal_by(&deep, rules).await.contains("process.filesMax"));
    let deeper = zip(&[Entry::new(&format!("{}x", "d/".repeat(1000)), b"")]);
    assert!(refusal(&deeper).await.contains("is nested too deeply"));
}

#[tokio::test]
async fn a_file_named_like_our_own_is_refused() {
    for name in ["task.json", "./task.json", ".runyard-report.jsonl", "task.json/"] {
        let yard = Yard::new();
        let files = unzip(&yard, &zip(&[Entry::new(name, b"forged")]), ".");
        let (class, message) = yard.refused(files, WorkspaceRules::default()).await;
        assert_eq!(class, Class::Permanent);
        assert!(message.contains("Runyard's own file of that name"), "{message}");
    }
    let yard = Yard::new();
    let payload =
        json!({"shell": "cat sub/task.json", "files": unzip(&yard, &zip(&[Entry::new("task.json", b"fine")]), "sub")});
    let result = crate::support::completed(yard.run(runyard_exec::Kind::Process, payload).await);
    assert_eq!(result["stdout"], "fine");
}
