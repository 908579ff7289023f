//! What is linked into the program: licences, sources and bans of `deny.toml`, checked on `cargo metadata` in a second.
//! And what is not in it: unsafe code, outside the one file that needs it.
//!
//! `cargo deny check` reads the same file and knows advisories too, but it takes minutes to build and its database is
//! on the net.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::Value;

use crate::spdx;

/// The one crate that calls the kernel where no library does, and its one file that does so.
const UNSAFE_CRATE: &str = "crates/exec";
const UNSAFE_FILE: &str = "crates/exec/src/process/system.rs";

pub fn depend() -> ExitCode {
    let checks: [(&str, Vec<String>); 5] = match facts() {
        Ok((deny, packages)) => [
            ("every licence is allowed", licences(&deny, &packages)),
            ("every crate comes from the registry", sources(&packages)),
            ("no banned crate is linked", bans(&deny, &packages)),
            ("no version is a wildcard", wildcards(&packages)),
            ("unsafe code is in one file", unsafe_code(&root())),
        ],
        Err(problem) => {
            eprintln!("xtask: {problem}");
            return ExitCode::FAILURE;
        }
    };
    for (name, problems) in &checks {
        println!("{name}: {}", if problems.is_empty() { "ok" } else { "FAILED" });
        problems.iter().for_each(|problem| println!("  {problem}"));
    }
    let n_failed = checks.iter().filter(|(_, problems)| !problems.is_empty()).count();
    let word = if n_failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {word}. {} passed; {n_failed} failed;", checks.len() - n_failed);
    if n_failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn facts() -> Result<(toml::Value, Vec<Value>), String> {
    let text = std::fs::read_to_string(root().join("deny.toml")).map_err(|error| format!("deny.toml: {error}"))?;
    let deny: toml::Value = toml::from_str(&text).map_err(|error| format!("deny.toml: {error}"))?;
    let triples = deny["graph"]["targets"].as_array().into_iter().flatten().filter_map(toml::Value::as_str);
    let mut packages = BTreeMap::new();
    for triple in triples {
        for package in metadata(triple)? {
            packages.insert(package["id"].to_string(), package);
        }
    }
    let packages: Vec<Value> = packages.into_values().collect();
    for (name, versions) in twice(&packages) {
        println!("in several versions: {name} {}", versions.join(", "));
    }
    Ok((deny, packages))
}

fn metadata(triple: &str) -> Result<Vec<Value>, String> {
    let args = ["metadata", "--format-version", "1", "--locked", "--all-features", "--filter-platform", triple];
    let output = Command::new("cargo").args(args).output().map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let mut metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    match metadata["packages"].take() {
        Value::Array(packages) => Ok(packages),
        _ => Err("cargo metadata names no packages".into()),
    }
}

fn name(package: &Value) -> String {
    format!("{} {}", package["name"].as_str().unwrap_or("?"), package["version"].as_str().unwrap_or("?"))
}

fn is_ours(package: &Value) -> bool {
    package["source"].is_null()
}

fn licences(deny: &toml::Value, packages: &[Value]) -> Vec<String> {
    let allow = deny["licenses"]["allow"].as_array().into_iter().flatten().filter_map(toml::Value::as_str);
    let allow: BTreeSet<&str> = allow.collect();
    let foreign = packages.iter().filter(|package| !is_ours(package));
    let bad = foreign.filter(|package| !package["license"].as_str().is_some_and(|text| spdx::is_allowed(text, &allow)));
    bad.map(|package| format!("{}: {}", name(package), package["license"])).collect()
}

/// One registry, and nothing from a repository.
fn sources(packages: &[Value]) -> Vec<String> {
    let known = packages.iter().find_map(|package| package["source"].as_str());
    let bad = packages.iter().filter(|package| {
        package["source"].as_str().is_some_and(|source| !source.starts_with("registry+") || Some(source) != known)
    });
    bad.map(|package| format!("{}: {}", name(package), package["source"])).collect()
}

fn bans(deny: &toml::Value, packages: &[Value]) -> Vec<String> {
    let banned = deny["bans"]["deny"].as_array().into_iter().flatten();
    let banned: BTreeSet<&str> = banned.filter_map(|ban| ban.get("name").and_then(toml::Value::as_str)).collect();
    packages.iter().filter(|package| banned.contains(package["name"].as_str().unwrap_or(""))).map(name).collect()
}

fn wildcards(packages: &[Value]) -> Vec<String> {
    let mut found = Vec::new();
    for package in packages.iter().filter(|package| is_ours(package)) {
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let wild = dependencies.filter(|dependency| dependency["req"] == "*" && dependency["path"].is_null());
        found.extend(wild.map(|dependency| format!("{}: {}", name(package), dependency["name"])));
    }
    found
}

fn twice(packages: &[Value]) -> BTreeMap<String, Vec<String>> {
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages {
        let version = package["version"].as_str().unwrap_or("?").to_owned();
        versions.entry(package["name"].as_str().unwrap_or("?").to_owned()).or_default().push(version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    versions
}

fn unsafe_code(root: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    let mut crates = vec![root.join("xtask")];
    crates.extend(entries(&root.join("crates")));
    for dir in crates {
        let shown = dir.strip_prefix(root).unwrap_or(&dir).display().to_string();
        let forbids = ["src/lib.rs", "src/main.rs"].iter().any(|file| text(&dir.join(file)).contains(FORBIDS));
        if !forbids && shown != UNSAFE_CRATE {
            problems.push(format!("{shown} does not say {FORBIDS}"));
        }
    }
    let file_problems = sources_below(&root.join("crates")).into_iter().filter(|file| {
        text(file).contains(ALLOWS) && file.strip_prefix(root).is_ok_and(|file| file != Path::new(UNSAFE_FILE))
    });
    problems.extend(file_problems.map(|file| format!("{} allows unsafe code", file.display())));
    problems
}

const FORBIDS: &str = "#![forbid(unsafe_code)]";
const ALLOWS: &str = "allow(unsafe_code";

fn sources_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in entries(dir) {
        if entry.is_dir() {
            found.extend(sources_below(&entry));
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            found.push(entry);
        }
    }
    found
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn text(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deny() -> toml::Value {
        toml::from_str("licenses.allow = [\"MIT\"]\nbans.deny = [{ name = \"bad\", reason = \"it is\" }]")
            .expect("TOML")
    }

    #[test]
    fn what_is_not_allowed_is_named() {
        let package = |name: &str, license: &str, source: &str| json!({"name": name, "version": "1.0.0", "license": license, "source": source});
        let packages = [
            package("fine", "MIT OR GPL-3.0", "registry+a"),
            package("gpl", "GPL-3.0", "registry+a"),
            package("bad", "MIT", "git+a"),
            json!({"name": "own", "version": "0.1.0", "source": null, "dependencies": [{"name": "x", "req": "*"}]}),
        ];
        assert_eq!(licences(&deny(), &packages), ["gpl 1.0.0: \"GPL-3.0\""]);
        assert_eq!(sources(&packages), ["bad 1.0.0: \"git+a\""]);
        assert_eq!(bans(&deny(), &packages), ["bad 1.0.0"]);
        assert_eq!(wildcards(&packages), ["own 0.1.0: \"x\""]);
    }

    #[test]
    fn a_crate_that_does_not_forbid_unsafe_code_is_named() {
        let dir = std::env::temp_dir().join(format!("xtask-unsafe-{}", std::process::id()));
        for (file, content) in [("xtask/src/main.rs", FORBIDS), ("crates/a/src/lib.rs", "#![allow(unsafe_code)]")] {
            let path = dir.join(file);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, content).expect("written");
        }
        let problems = unsafe_code(&dir);
        let _ = std::fs::remove_dir_all(&dir);
        assert_eq!(problems.len(), 2, "{problems:?}");
    }
}
