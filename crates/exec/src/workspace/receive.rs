//! Artifacts that a worker on another machine has collected, one file at a time. They lie as those do that were collected
//! here; only the table of contents grows with each of them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use super::artifacts::{Artifact, Artifacts, FILES, INDEX};
use super::path::InnerPath;
use super::rules::WorkspaceRules;
use super::tree;
use super::uploads::Incoming;
use crate::places::{Places, create_private_dir};

/// Which attempt's files these are: those of an earlier one go when the first of a later one comes.
const ATTEMPT: &str = "attempt";

#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    #[error("the path {0}")]
    Path(String),
    #[error("a task may have {0} artifacts (process.artifactsMax)")]
    TooMany(u64),
    #[error("all artifacts of a task together may have {0} bytes (process.artifactsBytesMax)")]
    TooLarge(u64),
    #[error("the artifact cannot be stored")]
    Io(#[from] io::Error),
}

/// Whose file it is, and what it is called.
pub struct Received<'a> {
    pub task: u128,
    pub attempt: u32,
    pub path: &'a str,
}

impl Received<'_> {
    /// Puts a file in its place; one that was there is replaced. Not for two of one task at a time.
    pub fn keep(&self, places: &Places, rules: &WorkspaceRules, file: Incoming) -> Result<Artifact, ReceiveError> {
        let path = self.text()?;
        let dir = places.artifacts_dir(self.task);
        self.make_own(&dir)?;
        let mut artifacts = Artifacts { attempt: self.attempt, ..Artifacts::of(places, self.task)? };
        artifacts.items.retain(|item| item.path != path);
        if artifacts.items.len() as u64 >= rules.artifacts_max {
            return Err(ReceiveError::TooMany(rules.artifacts_max));
        }
        let n_bytes: u64 = artifacts.items.iter().map(|item| item.bytes).sum();
        if n_bytes.saturating_add(file.n_bytes()) > rules.artifacts_bytes_max {
            return Err(ReceiveError::TooLarge(rules.artifacts_bytes_max));
        }
        let place = dir.join(FILES).join(&path);
        place.parent().map_or(Ok(()), create_private_dir)?;
        let (file, bytes, sha256) = file.into_parts();
        file.as_file().sync_all()?;
        file.persist(&place).map_err(|refused| refused.error)?;
        let artifact = Artifact { path, bytes, sha256 };
        artifacts.items.push(artifact.clone());
        artifacts.items.sort_by(|a, b| a.path.cmp(&b.path));
        write_whole(&dir.join(INDEX), &serde_json::to_vec_pretty(&artifacts).map_err(io::Error::from)?)?;
        Ok(artifact)
    }

    /// In one spelling, and inside.
    fn text(&self) -> Result<String, ReceiveError> {
        let inner = InnerPath::parse(self.path.as_bytes()).map_err(|bad| ReceiveError::Path(bad.to_string()))?;
        let text = inner.to_text().filter(|_| !inner.is_root());
        text.ok_or_else(|| ReceiveError::Path("is no name of a file".to_owned()))
    }

    fn make_own(&self, dir: &Path) -> io::Result<()> {
        let attempt = self.attempt.to_string();
        let is_own = fs::read_to_string(dir.join(ATTEMPT)).is_ok_and(|known| known == attempt);
        if !is_own {
            tree::remove(dir)?;
            create_private_dir(&dir.join(FILES))?;
            write_whole(&dir.join(ATTEMPT), attempt.as_bytes())?;
        }
        Ok(())
    }
}

/// Either the old one or the new one is there, whatever happens meanwhile.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = File::create(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(fresh, path)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    struct Bed {
        _dir: tempfile::TempDir,
        places: Places,
        rules: WorkspaceRules,
    }

    impl Bed {
        fn new() -> Bed {
            let dir = tempfile::tempdir().expect("a directory");
            let places = Places::new(dir.path()).expect("places");
            let rules = WorkspaceRules { artifacts_max: 2, artifacts_bytes_max: 10, ..WorkspaceRules::default() };
            Bed { _dir: dir, places, rules }
        }

        fn put(&self, attempt: u32, path: &str, content: &str) -> Result<Artifact, ReceiveError> {
            let mut file = self.places.uploads().begin().expect("a file");
            file.write(content.as_bytes()).expect("written");
            Received { task: 7, attempt, path }.keep(&self.places, &self.rules, file)
        }

        fn read(&self, path: &str) -> Option<String> {
            let (_, mut file) = Artifacts::open(&self.places, 7, path).expect("readable")?;
            let mut text = String::new();
            file.read_to_string(&mut text).expect("read");
            Some(text)
        }
    }

    #[test]
    fn files_come_one_by_one_and_a_later_one_replaces() {
        let bed = Bed::new();
        bed.put(1, "a/b.txt", "one").expect("kept");
        bed.put(1, "./c", "two").expect("kept");
        assert_eq!(bed.put(1, "a//b.txt", "three").expect("replaced").bytes, 5);
        assert_eq!((bed.read("a/b.txt").as_deref(), bed.read("c").as_deref()), (Some("three"), Some("two")));
        let paths: Vec<_> = Artifacts::of(&bed.places, 7).expect("a table").items.into_iter().map(|a| a.path).collect();
        assert_eq!(paths, ["a/b.txt", "c"]);
    }

    #[test]
    fn those_of_an_earlier_attempt_go() {
        let bed = Bed::new();
        bed.put(1, "old", "x").expect("kept");
        bed.put(2, "new", "y").expect("kept");
        assert_eq!((bed.read("old"), bed.read("new").as_deref()), (None, Some("y")));
    }

    #[test]
    fn what_is_too_much_or_leads_out_is_refused_and_leaves_the_rest() {
        let bed = Bed::new();
        bed.put(1, "a", "12345").expect("kept");
        assert!(matches!(bed.put(1, "b", "123456"), Err(ReceiveError::TooLarge(10))));
        bed.put(1, "b", "12345").expect("it just fits");
        assert!(matches!(bed.put(1, "c", ""), Err(ReceiveError::TooMany(2))));
        for path in ["../x", "/etc/passwd", "a/../../x", "", ".", "a\\b", "a\0b"] {
            assert!(matches!(bed.put(1, path, ""), Err(ReceiveError::Path(_))), "{path:?}");
        }
        assert_eq!(bed.read("a").as_deref(), Some("12345"));
    }
}
