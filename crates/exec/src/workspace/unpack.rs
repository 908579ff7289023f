//! Unpacks an archive into a directory, and nowhere else.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};

use super::budget::Hindrance;
use super::files::is_own;
use super::folder::{Executable, Folder};
use super::path::InnerPath;
use super::stage::Stage;
use super::zip::{Archive, Content, EntryKind, ZipEntry, ZipError};

const CHUNK_BYTES: usize = 64 * 1024;
/// Of a name that is shown.
const SHOWN_CHARS_MAX: usize = 200;

/// What was unpacked before something is refused stays there: the directory goes with the attempt.
pub(super) fn unpack(archive: File, into: &InnerPath, stage: &mut Stage) -> Result<(), Hindrance> {
    let archive = Archive::open(archive).map_err(hindrance)?;
    stage.budget.check_entries(archive.n_entries())?;
    stage.folder(into)?;
    let mut seen = HashSet::new();
    for entry in archive.entries() {
        stage.go_on()?;
        let entry = entry.map_err(hindrance)?;
        let unpacked = place(&entry, into, &mut seen).and_then(|path| put(&archive, &entry, path, stage));
        unpacked.map_err(|why| why.of(&format!("entry `{}`", shown(&entry.name))))?;
    }
    Ok(())
}

/// Where an entry goes; `None` for the directory itself.
fn place(entry: &ZipEntry, into: &InnerPath, seen: &mut HashSet<InnerPath>) -> Result<Option<InnerPath>, Hindrance> {
    let path = InnerPath::parse(&entry.name).map_err(|error| Hindrance::for_good(error.to_string()))?;
    if entry.kind == EntryKind::Other {
        return Err(Hindrance::for_good("is a link or something else that is neither a file nor a directory"));
    }
    if path.is_root() {
        return match entry.kind {
            EntryKind::Folder if !entry.name.is_empty() => Ok(None),
            _ => Err(Hindrance::for_good("has no name")),
        };
    }
    let place = into.join(&path);
    if is_own(&place) {
        return Err(Hindrance::for_good("is where Runyard's own file of that name lies"));
    }
    if !seen.insert(path) {
        return Err(Hindrance::for_good("is in the archive twice"));
    }
    Ok(Some(place))
}

fn put(archive: &Archive, entry: &ZipEntry, place: Option<InnerPath>, stage: &mut Stage) -> Result<(), Hindrance> {
    let Some(place) = place else { return Ok(()) };
    let EntryKind::File { is_executable } = entry.kind else { return stage.folder(&place).map(drop) };
    let content = archive.content(entry).map_err(hindrance)?;
    let executable = if is_executable { Executable::Yes } else { Executable::No };
    let mut file = stage.create(&place, executable)?;
    copy(content, &mut file, stage)
}

fn copy(mut content: Content<'_>, file: &mut File, stage: &mut Stage) -> Result<(), Hindrance> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        stage.go_on()?;
        let n = content.read(&mut chunk).map_err(hindrance)?;
        if n == 0 {
            return Ok(());
        }
        stage.budget.take_bytes(n)?;
        file.write_all(&chunk[..n])?;
    }
}

fn hindrance(error: ZipError) -> Hindrance {
    match error {
        ZipError::Io(error) => error.into(),
        damaged => Hindrance::for_good(damaged.to_string()),
    }
}

fn shown(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let cut = text.chars().take(SHOWN_CHARS_MAX).collect::<String>();
    let dots = if cut.len() < text.len() { "…" } else { "" };
    format!("{}{dots}", cut.escape_debug())
}

impl Stage {
    /// The directory at this path, made where it is missing.
    pub(super) fn folder(&mut self, path: &InnerPath) -> Result<Folder, Hindrance> {
        let budget = &mut self.budget;
        self.root.descend_making::<MakeError>(path, || Ok(budget.take_entries(1)?)).map_err(|error| match error {
            MakeError::Hindrance(hindrance) => hindrance,
            MakeError::Io(error) => occupied(error),
        })
    }

    pub(super) fn create(&mut self, path: &InnerPath, executable: Executable) -> Result<File, Hindrance> {
        let (name, above) = path.split_last().expect("a file has a name");
        let folder = self.folder(&above)?;
        self.budget.take_entries(1)?;
        folder.create(name, executable).map_err(occupied)
    }
}

enum MakeError {
    Hindrance(Hindrance),
    Io(io::Error),
}

impl From<io::Error> for MakeError {
    fn from(error: io::Error) -> MakeError {
        MakeError::Io(error)
    }
}

impl From<Hindrance> for MakeError {
    fn from(hindrance: Hindrance) -> MakeError {
        MakeError::Hindrance(hindrance)
    }
}

/// What is in the way was staged before, by the same payload: the next attempt would meet it again.
fn occupied(error: io::Error) -> Hindrance {
    use rustix::io::Errno;
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::EXIST | Errno::ISDIR) => Hindrance::for_good("something else is staged at that path already"),
        Some(Errno::NOTDIR | Errno::LOOP) => Hindrance::for_good("a file is staged where it needs a directory"),
        _ => error.into(),
    }
}
