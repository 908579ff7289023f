//! Looks through a working directory for what is to be collected.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use rustix::fs::FileType;

use super::artifacts::LeftOut;
use super::files::{Outputs, is_own};
use super::folder::{Entry, Folder};
use super::path::{DEPTH_MAX, InnerPath};

/// How many entries of a working directory are looked at. More take longer than their worth.
const SEEN_MAX: usize = 1_000_000;
/// How many are listed one by one.
const LEFT_OUT_MAX: usize = 100;

/// What there is, in the order of the paths.
#[derive(Default)]
pub(super) struct Found {
    pub files: BTreeMap<String, InnerPath>,
    pub left_out: LeftOuts,
    /// Patterns that mean nothing that is there.
    pub unmet: Vec<String>,
}

/// The first ones with their reasons, and how many there were beyond.
#[derive(Default)]
pub(super) struct LeftOuts {
    items: Vec<LeftOut>,
    n_more: usize,
}

impl LeftOuts {
    pub(super) fn add(&mut self, path: impl Into<String>, reason: impl Into<String>) {
        match self.items.len() < LEFT_OUT_MAX {
            true => self.items.push(LeftOut { path: path.into(), reason: reason.into() }),
            false => self.n_more += 1,
        }
    }

    pub(super) fn into_items(mut self) -> Vec<LeftOut> {
        if self.n_more > 0 {
            self.items.push(LeftOut { path: "…".to_owned(), reason: format!("and {} more", self.n_more) });
        }
        self.items
    }
}

/// Regular files only, and no link is followed anywhere.
pub(super) fn find(root: &Folder, outputs: &Outputs) -> io::Result<Found> {
    let mut search = Search { outputs, found: Found::default(), met: BTreeSet::new(), n_seen: 0 };
    let mut ahead = vec![InnerPath::default()];
    while let Some(at) = ahead.pop() {
        match root.descend(&at).and_then(|folder| folder.entries(SEEN_MAX - search.n_seen)) {
            Ok(entries) => ahead.extend(search.look(&at, entries)),
            Err(error) if at.is_root() => return Err(error),
            Err(error) => search.found.left_out.add(at.to_string(), format!("cannot be looked into: {error}")),
        }
        if search.n_seen > SEEN_MAX {
            search
                .found
                .left_out
                .add("…", format!("only the first {SEEN_MAX} entries of the directory were looked at"));
            break;
        }
    }
    let unmet = outputs.patterns.iter().enumerate().filter(|(at, _)| !search.met.contains(at));
    search.found.unmet = unmet.map(|(_, pattern)| pattern.clone()).collect();
    Ok(search.found)
}

struct Search<'a> {
    outputs: &'a Outputs,
    found: Found,
    met: BTreeSet<usize>,
    n_seen: usize,
}

impl Search<'_> {
    /// Gives the directories that are still to be looked into.
    fn look(&mut self, at: &InnerPath, entries: Vec<Entry>) -> Vec<InnerPath> {
        self.n_seen += entries.len();
        let mut ahead = Vec::new();
        for Entry { name, kind } in entries {
            let path = at.child(&name);
            match kind {
                _ if is_own(&path) => {}
                FileType::Directory => ahead.extend(self.enter(path)),
                kind => self.judge(path, kind),
            }
        }
        ahead
    }

    fn enter(&mut self, path: InnerPath) -> Option<InnerPath> {
        let text = path.to_string();
        if let Some(at) = self.outputs.patterns.iter().position(|pattern| *pattern == text) {
            self.met.insert(at);
            self.found.left_out.add(&text, format!("is a directory; `{text}/` takes what is in it"));
        }
        let depth = path.names().len();
        if depth > self.outputs.depth_max() {
            return None;
        }
        if depth >= DEPTH_MAX {
            self.found.left_out.add(text, format!("is nested deeper than {DEPTH_MAX} directories"));
            return None;
        }
        Some(path)
    }

    fn judge(&mut self, path: InnerPath, kind: FileType) {
        let shown = path.to_string();
        let met = self.outputs.matches(&shown);
        if met.is_empty() {
            return;
        }
        self.met.extend(met);
        match (path.to_text(), kind) {
            (Some(text), FileType::RegularFile) => drop(self.found.files.insert(text, path)),
            (None, _) => self.found.left_out.add(shown, "has a name that is no text"),
            (_, FileType::Symlink) => self.found.left_out.add(shown, "is a link, and links are not followed"),
            (_, FileType::Fifo) => self.found.left_out.add(shown, "is a pipe"),
            (_, FileType::Socket) => self.found.left_out.add(shown, "is a socket"),
            _ => self.found.left_out.add(shown, "is no regular file"),
        }
    }
}
