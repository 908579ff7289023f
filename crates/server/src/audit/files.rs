//! The files of the audit log: append, rotate, read from the end.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use runyard_wire::AuditView;

const AUDIT_FILE: &str = "audit.log";
/// Some 30 000 changes.
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// The one that is written to, and those before it.
const FILES_MAX: usize = 4;
/// What one change may say.
const LINE_BYTES_MAX: usize = 64 * 1024;

pub struct Files {
    path: PathBuf,
    file_bytes_max: u64,
    current: Mutex<Current>,
}

struct Current {
    file: File,
    bytes: u64,
    next_n: u64,
}

impl Files {
    pub fn open(data_dir: &Path) -> io::Result<Files> {
        Files::with_size(data_dir, FILE_BYTES_MAX)
    }

    fn with_size(data_dir: &Path, file_bytes_max: u64) -> io::Result<Files> {
        let path = data_dir.join(AUDIT_FILE);
        let mut file = append_to(&path)?;
        let mut bytes = file.metadata()?.len();
        if bytes > 0 && !std::fs::read(&path)?.ends_with(b"\n") {
            // A crash in the middle of a line: the next one must not become a part of it.
            file.write_all(b"\n")?;
            bytes += 1;
        }
        let current = Mutex::new(Current { file, bytes, next_n: 1 });
        let files = Files { path, file_bytes_max, current };
        let last = files.latest(None, 1)?.0.first().map_or(0, |entry| entry.n);
        files.lock().next_n = last + 1;
        Ok(files)
    }

    pub fn append(&self, mut entry: AuditView) -> io::Result<()> {
        let mut current = self.lock();
        entry.n = current.next_n;
        let mut line = line(&entry)?;
        line.push(b'\n');
        if current.bytes + line.len() as u64 > self.file_bytes_max && current.bytes > 0 {
            self.rotate()?;
            current.file = append_to(&self.path)?;
            current.bytes = 0;
        }
        current.file.write_all(&line)?;
        current.file.sync_data()?;
        current.bytes += line.len() as u64;
        current.next_n += 1;
        Ok(())
    }

    pub fn latest(&self, before: Option<u64>, limit: usize) -> io::Result<(Vec<AuditView>, bool)> {
        // Held, so that no file moves while they are read.
        let _current = self.lock();
        let mut found = Vec::new();
        for age in 0..FILES_MAX {
            let text = match std::fs::read(self.aged(age)) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(error),
            };
            for line in text.split(|byte| *byte == b'\n').rev() {
                // A line that was cut by a crash is left out.
                let Ok(entry) = serde_json::from_slice::<AuditView>(line) else { continue };
                if before.is_some_and(|before| entry.n >= before) {
                    continue;
                }
                if found.len() == limit {
                    return Ok((found, true));
                }
                found.push(entry);
            }
        }
        Ok((found, false))
    }

    fn rotate(&self) -> io::Result<()> {
        for age in (1..FILES_MAX).rev() {
            match std::fs::rename(self.aged(age - 1), self.aged(age)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn aged(&self, age: usize) -> PathBuf {
        if age == 0 { self.path.clone() } else { self.path.with_extension(format!("log.{age}")) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Current> {
        self.current.lock().expect("no thread panics while it writes")
    }
}

/// As it is kept; one that says too much loses what was before and after.
pub fn line(entry: &AuditView) -> serde_json::Result<Vec<u8>> {
    let line = serde_json::to_vec(entry)?;
    if line.len() <= LINE_BYTES_MAX {
        return Ok(line);
    }
    serde_json::to_vec(&AuditView { before: None, after: Some("(too long)".into()), ..entry.clone() })
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use runyard_wire::{AuditActor, Timestamp};

    use super::*;

    fn entry(subject: &str) -> AuditView {
        AuditView {
            n: 0,
            at: Timestamp(1),
            by: AuditActor::default(),
            action: "key.created".into(),
            subject: Some(subject.into()),
            before: None,
            after: None,
        }
    }

    fn subjects(files: &Files, before: Option<u64>, limit: usize) -> (Vec<String>, bool) {
        let (entries, more) = files.latest(before, limit).expect("readable");
        (entries.into_iter().filter_map(|entry| entry.subject).collect(), more)
    }

    #[test]
    fn changes_are_numbered_over_restarts_and_read_from_the_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let files = Files::open(dir.path()).expect("opened");
        ["a", "b", "c"].into_iter().for_each(|name| files.append(entry(name)).expect("written"));
        assert_eq!(subjects(&files, None, 2), (vec!["c".into(), "b".into()], true));
        assert_eq!(subjects(&files, Some(2), 2), (vec!["a".into()], false));
        drop(files);
        let torn = OpenOptions::new().append(true).open(dir.path().join(AUDIT_FILE)).expect("there");
        (&torn).write_all(b"{\"n\":4,\"at\"").expect("written");
        let files = Files::open(dir.path()).expect("opened");
        files.append(entry("d")).expect("written");
        assert_eq!(files.latest(None, 1).expect("readable").0[0].n, 4);
        assert_eq!(subjects(&files, None, 9).0, ["d", "c", "b", "a"]);
    }

    #[test]
    fn the_files_have_a_limit_and_are_for_their_owner() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a directory");
        let files = Files::with_size(dir.path(), 1000).expect("opened");
        for n in 0..200 {
            files.append(entry(&n.to_string())).expect("written");
        }
        let kept: Vec<_> = std::fs::read_dir(dir.path()).expect("there").map(|file| file.expect("there")).collect();
        assert_eq!(kept.len(), FILES_MAX);
        for file in kept {
            let about = file.metadata().expect("there");
            assert!(about.len() <= 1000 && about.permissions().mode() & 0o777 == 0o600, "{file:?}");
        }
        let (subjects, more) = subjects(&files, None, 1000);
        assert!(!more && subjects[0] == "199" && subjects.len() > 20, "{subjects:?}");
        let expected: Vec<String> = (200 - subjects.len()..200).rev().map(|n| n.to_string()).collect();
        assert_eq!(subjects, expected, "none is left out in between");
    }

    #[test]
    fn a_change_too_long_to_keep_is_still_told() {
        let dir = tempfile::tempdir().expect("a directory");
        let files = Files::open(dir.path()).expect("opened");
        let long = AuditView { after: Some("x".repeat(LINE_BYTES_MAX).into()), ..entry("long") };
        files.append(long).expect("written");
        let (entries, _) = files.latest(None, 1).expect("readable");
        assert_eq!((entries[0].subject.as_deref(), &entries[0].after), (Some("long"), &Some("(too long)".into())));
    }
}
