//! `files`, `outputs` and `workDir` of a payload: what they may say.

use std::collections::BTreeMap;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use reqwest::Url;
use serde::Deserialize;

use super::path::InnerPath;
use super::rules::WorkDir;
use crate::payload::{PayloadError, parse_url, wrong};
use crate::places::OWN_NAMES;

/// Of the patterns in one payload.
const OUTPUTS_MAX: usize = 100;
const PATTERN_BYTES_MAX: usize = 1024;

/// One file, or one archive, that is there when the process starts.
#[derive(Clone, Debug)]
pub(crate) struct FileSpec {
    pub source: FileSource,
    /// Of the file, or of the directory that the archive is unpacked into.
    pub path: InnerPath,
    pub form: Form,
}

#[derive(Clone, Debug)]
pub(crate) enum FileSource {
    Url(Url),
    Inline(String),
    Upload(u128),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    AsItIs,
    Unzipped,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileFields {
    url: Option<String>,
    inline: Option<String>,
    upload: Option<String>,
    path: String,
    #[serde(default)]
    unzip: bool,
}

pub(crate) fn parse_files(files: Vec<FileFields>) -> Result<Vec<FileSpec>, PayloadError> {
    let specs = files.into_iter().enumerate().map(|(at, fields)| parse_file(&format!("files[{at}]"), fields));
    let specs = specs.collect::<Result<Vec<_>, _>>()?;
    check_places(&specs)?;
    Ok(specs)
}

fn parse_file(at: &str, fields: FileFields) -> Result<FileSpec, PayloadError> {
    let form = if fields.unzip { Form::Unzipped } else { Form::AsItIs };
    let path = parse_path(at, &fields.path, form)?;
    let source = match (fields.url, fields.inline, fields.upload) {
        (Some(url), None, None) => FileSource::Url(parse_url(&format!("{at}.url"), &url)?),
        (None, Some(_), None) if form == Form::Unzipped => {
            return Err(wrong(format!("{at}.unzip"), "is for a url or an upload: a text is no archive"));
        }
        (None, Some(text), None) => FileSource::Inline(text),
        (None, None, Some(id)) => FileSource::Upload(parse_upload(&format!("{at}.upload"), &id)?),
        (None, None, None) => {
            return Err(wrong(at, "says not what is in it; give url, inline (a text) or upload (an id)"));
        }
        _ => return Err(wrong(at, "has more than one of url, inline and upload; use one of them")),
    };
    Ok(FileSpec { source, path, form })
}

fn parse_path(at: &str, text: &str, form: Form) -> Result<InnerPath, PayloadError> {
    let field = format!("{at}.path");
    let shown = text.escape_debug();
    let path = InnerPath::parse(text.as_bytes()).map_err(|error| wrong(&*field, format!("`{shown}` {error}")))?;
    let is_folder = path.is_root() || text.ends_with('/');
    if text.is_empty() || (is_folder && form == Form::AsItIs) {
        return Err(wrong(field, format!("`{shown}` names no file")));
    }
    match is_own(&path) {
        true => Err(wrong(field, format!("`{shown}` is where Runyard's own file of that name lies"))),
        false => Ok(path),
    }
}

/// Files that Runyard itself puts into every working directory.
pub(crate) fn is_own(path: &InnerPath) -> bool {
    path.names().len() == 1 && OWN_NAMES.iter().any(|own| path.names()[0] == *own)
}

/// An id in the one way it is written: it becomes the name of a file.
fn parse_upload(field: &str, id: &str) -> Result<u128, PayloadError> {
    let parsed = uuid::Uuid::try_parse(id).ok().filter(|parsed| parsed.hyphenated().to_string() == id);
    let wrong_id = || wrong(field, format!("`{}` is not the id of an upload", id.escape_debug()));
    parsed.map(|parsed| parsed.as_u128()).ok_or_else(wrong_id)
}

/// No two on one path, and none below a file. What is in an archive is seen only when it is unpacked.
fn check_places(specs: &[FileSpec]) -> Result<(), PayloadError> {
    let mut files: BTreeMap<&InnerPath, usize> = BTreeMap::new();
    for (at, spec) in specs.iter().enumerate().filter(|(_, spec)| spec.form == Form::AsItIs) {
        if let Some(first) = files.insert(&spec.path, at) {
            return Err(wrong(
                format!("files[{at}].path"),
                format!("`{}` is the path of files[{first}] too", spec.path),
            ));
        }
    }
    for (at, spec) in specs.iter().enumerate() {
        let own = (spec.form == Form::Unzipped).then(|| spec.path.clone());
        if let Some(first) = own.into_iter().chain(spec.path.ancestors()).find_map(|above| files.get(&above)) {
            let message = format!("`{}` would need files[{first}] to be a directory", spec.path);
            return Err(wrong(format!("files[{at}].path"), message));
        }
    }
    Ok(())
}

/// Which files a process leaves that are to be kept.
#[derive(Clone, Debug)]
pub(crate) struct Outputs {
    pub patterns: Vec<String>,
    set: GlobSet,
}

impl Default for Outputs {
    fn default() -> Outputs {
        Outputs { patterns: Vec::new(), set: GlobSet::empty() }
    }
}

impl Outputs {
    pub(crate) fn parse(patterns: Vec<String>) -> Result<Outputs, PayloadError> {
        if patterns.len() > OUTPUTS_MAX {
            return Err(wrong("outputs", format!("at most {OUTPUTS_MAX} patterns")));
        }
        let mut set = GlobSetBuilder::new();
        for (at, pattern) in patterns.iter().enumerate() {
            let field = format!("outputs[{at}]");
            let glob = parse_pattern(&field, pattern)?;
            set.add(glob);
        }
        let set = set.build().map_err(|error| wrong("outputs", format!("cannot be used together: {error}")))?;
        Ok(Outputs { patterns, set })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Which of the patterns mean this path.
    pub(crate) fn matches(&self, path: &str) -> Vec<usize> {
        self.set.matches(path)
    }

    /// How many directories down a file that is meant can lie.
    pub(crate) fn depth_max(&self) -> usize {
        let depth = |pattern: &String| match pattern.contains("**") || pattern.ends_with('/') {
            true => usize::MAX,
            false => pattern.matches('/').count(),
        };
        self.patterns.iter().map(depth).max().unwrap_or(0)
    }
}

fn parse_pattern(field: &str, pattern: &str) -> Result<globset::Glob, PayloadError> {
    let refuse = |message: String| Err(wrong(field, message));
    if pattern.is_empty() || pattern.len() > PATTERN_BYTES_MAX {
        return refuse(format!("must be 1 to {PATTERN_BYTES_MAX} bytes, such as report/**/*.html"));
    }
    if pattern.starts_with('/') {
        return refuse(format!("`{pattern}` is an absolute path; a pattern is relative to the working directory"));
    }
    if pattern.split('/').any(|name| name == "..") {
        return refuse(format!("`{pattern}` leads out of the working directory"));
    }
    // A directory is meant with all that is in it.
    let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
    let whole = if pattern.ends_with('/') { format!("{pattern}**") } else { pattern.to_owned() };
    GlobBuilder::new(&whole).literal_separator(true).build().map_err(|error| wrong(field, error.kind().to_string()))
}

pub(crate) fn parse_work_dir(name: Option<&str>) -> Result<Option<WorkDir>, PayloadError> {
    let parse = |name: &str| {
        let names = WorkDir::ALL.map(WorkDir::as_str).join(", ");
        WorkDir::parse(name).ok_or_else(|| wrong("workDir", format!("`{}` is none of {names}", name.escape_debug())))
    };
    name.map(parse).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(patterns: &[&str], path: &str) -> bool {
        let outputs = Outputs::parse(patterns.iter().map(|pattern| (*pattern).to_owned()).collect()).expect("patterns");
        !outputs.matches(path).is_empty()
    }

    #[test]
    fn a_star_stays_in_its_directory_and_two_do_not() {
        let table = [
            ("*.txt", "a.txt", true),
            ("*.txt", "b/a.txt", false),
            ("**/*.txt", "a.txt", true),
            ("**/*.txt", "b/c/a.txt", true),
            ("out/**", "out/a", true),
            ("out/**", "out/b/a", true),
            ("out/**", "out", false),
            ("out/", "out/b/a", true),
            ("./out/*", "out/a", true),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("[a-c].txt", "b.txt", true),
            ("[!a-c].txt", "b.txt", false),
            ("{a,b}/*.{md,txt}", "b/x.md", true),
            ("{a,b}/*.{md,txt}", "c/x.md", false),
            ("*", ".hidden", true),
        ];
        for (pattern, path, is_meant) in table {
            assert_eq!(meant(&[pattern], path), is_meant, "{pattern} {path}");
        }
    }

    #[test]
    fn no_deeper_than_a_pattern_can_reach() {
        let depth = |patterns: &[&str]| {
            Outputs::parse(patterns.iter().map(|pattern| (*pattern).to_owned()).collect())
                .expect("patterns")
                .depth_max()
        };
        assert_eq!(
            (depth(&["*"]), depth(&["*", "a/b/*"]), depth(&["a/"]), depth(&["a/**/b"])),
            (0, 2, usize::MAX, usize::MAX)
        );
    }
}
