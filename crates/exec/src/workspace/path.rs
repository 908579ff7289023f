//! A path inside a directory: the one place that decides which texts are such a path.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// Of one name, as file systems have it.
const NAME_BYTES_MAX: usize = 255;
/// Of the whole. The system takes 4096 for an absolute path.
const PATH_BYTES_MAX: usize = 2048;
/// Names in one path. Nobody means more, and each costs an open directory on the way.
pub(crate) const DEPTH_MAX: usize = 64;

/// Relative, and below where it starts: no `..`, no root, nothing that another system would read as such.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct InnerPath {
    /// None when it is the directory itself.
    names: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum BadPath {
    #[error("is an absolute path")]
    Absolute,
    #[error("leads out of the directory with `..`")]
    Parent,
    #[error("has a backslash in it, which some systems read as a way out")]
    Backslash,
    #[error("contains a NUL character")]
    Nul,
    #[error("is too long")]
    Long,
    #[error("is nested too deeply")]
    Deep,
}

impl InnerPath {
    /// `.` and doubled slashes mean nothing, so that two spellings of one place are one path.
    pub(crate) fn parse(text: &[u8]) -> Result<InnerPath, BadPath> {
        if text.starts_with(b"/") {
            return Err(BadPath::Absolute);
        }
        if text.contains(&0) {
            return Err(BadPath::Nul);
        }
        if text.contains(&b'\\') {
            return Err(BadPath::Backslash);
        }
        let names: Vec<&[u8]> = text.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")).collect();
        if names.contains(&&b".."[..]) {
            return Err(BadPath::Parent);
        }
        if text.len() > PATH_BYTES_MAX || names.iter().any(|name| name.len() > NAME_BYTES_MAX) {
            return Err(BadPath::Long);
        }
        if names.len() > DEPTH_MAX {
            return Err(BadPath::Deep);
        }
        Ok(InnerPath { names: names.into_iter().map(|name| OsStr::from_bytes(name).to_owned()).collect() })
    }

    /// A path that was seen in a directory once, and so may have any name in it that a file can have.
    pub(crate) fn of_text(text: &str) -> Option<InnerPath> {
        let names: Vec<&str> = text.split('/').collect();
        let is_plain = names.iter().all(|name| !matches!(*name, "" | "." | "..") && !name.contains('\0'));
        is_plain.then(|| InnerPath { names: names.into_iter().map(OsString::from).collect() })
    }

    /// The directory itself.
    pub(crate) fn is_root(&self) -> bool {
        self.names.is_empty()
    }

    pub(crate) fn join(&self, below: &InnerPath) -> InnerPath {
        InnerPath { names: self.names.iter().chain(&below.names).cloned().collect() }
    }

    pub(crate) fn child(&self, name: &OsStr) -> InnerPath {
        InnerPath { names: self.names.iter().cloned().chain([name.to_owned()]).collect() }
    }

    pub(crate) fn names(&self) -> &[OsString] {
        &self.names
    }

    /// Where it is, and what it is called there. `None` for the directory itself.
    pub(crate) fn split_last(&self) -> Option<(&OsStr, InnerPath)> {
        let (last, above) = self.names.split_last()?;
        Some((last, InnerPath { names: above.to_vec() }))
    }

    /// Every directory it is in, the outermost last; not the one it starts from.
    pub(crate) fn ancestors(&self) -> impl Iterator<Item = InnerPath> {
        (1..self.names.len()).rev().map(|n| InnerPath { names: self.names[..n].to_vec() })
    }

    /// `None` when it is no text.
    pub(crate) fn to_text(&self) -> Option<String> {
        let names: Option<Vec<&str>> = self.names.iter().map(|name| name.to_str()).collect();
        Some(names?.join("/"))
    }
}

impl fmt::Display for InnerPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.names.iter().map(|name| name.to_string_lossy()).collect();
        f.write_str(if names.is_empty() { "." } else { "" })?;
        f.write_str(&names.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_out_is_refused() {
        let long = format!("{}/x", "a".repeat(256));
        let deep = "a/".repeat(65);
        let table: [(&[u8], BadPath); 14] = [
            (b"/etc/passwd", BadPath::Absolute),
            (b"//x", BadPath::Absolute),
            (b"..", BadPath::Parent),
            (b"../x", BadPath::Parent),
            (b"a/../../x", BadPath::Parent),
            (b"a/..", BadPath::Parent),
            (b"a/../b", BadPath::Parent),
            (b"..\\x", BadPath::Backslash),
            (b"a\\..\\..\\x", BadPath::Backslash),
            (b"C:\\x", BadPath::Backslash),
            (b"\\\\host\\share", BadPath::Backslash),
            (b"a\0b", BadPath::Nul),
            (long.as_bytes(), BadPath::Long),
            (deep.as_bytes(), BadPath::Deep),
        ];
        for (text, why) in table {
            assert_eq!(InnerPath::parse(text), Err(why), "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn two_spellings_of_one_place_are_one_path() {
        let path = |text: &str| InnerPath::parse(text.as_bytes()).expect("a path");
        assert_eq!(path("./a//b/."), path("a/b"));
        assert_eq!(path("a/b/").to_string(), "a/b");
        assert!(path(".").is_root() && path("").is_root() && path("./").is_root());
        assert_eq!(path("...").to_string(), "...");
        assert_eq!(path("a/b/c").ancestors().map(|path| path.to_string()).collect::<Vec<_>>(), ["a/b", "a"]);
    }
}
