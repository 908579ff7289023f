//! The pages stay true: what is generated is what the program prints, and links lead somewhere.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository is there")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_configuration_page_shows_the_real_defaults() {
    let page = read(&root().join("docs/configuration.md"));
    let generated = between(&page, "<!-- generated: runyard config show --default -->", "<!-- /generated -->");
    let block = between(generated, "```toml\n", "\n```\n");
    let mut show = assert_cmd::Command::new(env!("CARGO_BIN_EXE_runyard"));
    let shown = show.env_clear().args(["config", "show", "--default"]).assert().success().get_output().stdout.clone();
    let shown = String::from_utf8(shown).expect("UTF-8");
    let fresh = shown.trim_end();
    for (n, (page, program)) in block.lines().zip(fresh.lines()).enumerate() {
        assert_eq!(page, program, "line {} of the generated block in docs/configuration.md", n + 1);
    }
    assert_eq!(block.lines().count(), fresh.lines().count(), "lines of the generated block in docs/configuration.md");
}

#[test]
fn the_published_schema_of_lease_files_is_the_real_one() {
    let published = read(&root().join("docs/lease.schema.json"));
    let mut print = assert_cmd::Command::new(env!("CARGO_BIN_EXE_runyard"));
    let printed = print.env_clear().args(["supervise", "--schema"]).assert().success().get_output().stdout.clone();
    assert_eq!(
        published,
        String::from_utf8(printed).expect("UTF-8"),
        "runyard supervise --schema > docs/lease.schema.json"
    );
}

#[test]
fn every_link_leads_to_a_file() {
    let root = root();
    let mut pages = vec![root.join("README.md"), root.join("ARCHITECTURE.md")];
    collect(&root.join("docs"), &mut pages);
    let mut n_links = 0;
    let mut broken = Vec::new();
    for page in &pages {
        for target in links(&read(page)) {
            n_links += 1;
            if let Err(why) = follow(page, &target) {
                broken.push(format!("{}: {target}: {why}", page.strip_prefix(&root).unwrap_or(page).display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(n_links >= 10, "only {n_links} links were found: are they still written as [text](target)?");
}

fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(begin).unwrap_or_else(|| panic!("there is no {begin:?}"));
    rest.split_once(end).unwrap_or_else(|| panic!("there is no {end:?} after {begin:?}")).0
}

fn collect(directory: &Path, pages: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("it can be listed") {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() {
            collect(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}

/// The targets of `[text](target)` outside of code blocks, those that leave the repository left out.
fn links(page: &str) -> Vec<String> {
    let prose = page.split("```").step_by(2);
    let targets = prose.flat_map(|text| text.split("](").skip(1)).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:")).map(str::to_owned).collect()
}

/// The file, and where the link names one, the heading in it.
fn follow(page: &Path, target: &str) -> Result<(), &'static str> {
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let directory = page.parent().expect("a page is in a directory");
    let path = if file.is_empty() { page.to_owned() } else { directory.join(file) };
    if !path.exists() {
        return Err("there is no such file");
    }
    let has_heading = |anchor| headings(&read(&path)).any(|heading| heading == anchor);
    if anchor.is_none_or(has_heading) { Ok(()) } else { Err("there is no such heading") }
}

/// Headings as anchors: in small letters, blanks as dashes, nothing but letters, digits, dashes and underscores.
fn headings(page: &str) -> impl Iterator<Item = String> {
    let titles = page.split("```").step_by(2).flat_map(str::lines).filter(|line| line.starts_with('#'));
    titles.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        title.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
    })
}
