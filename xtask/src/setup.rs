//! What a fresh Debian machine with Rust may lack. Installed by package name, only when it is missing.

use std::process::{Command, Stdio};

/// (program that shows the package is there, Debian package)
const NEEDS: [(&str, &str); 11] = [
    ("cc", "gcc"),
    ("ar", "binutils"),
    ("curl", "curl"),
    ("bwrap", "bubblewrap"),
    ("unshare", "util-linux"),
    ("ip", "iproute2"),
    ("node", "nodejs"),
    ("npm", "npm"),
    // An engine for the tests of containers, which start it themselves, and what their image is made of.
    ("dockerd", "docker.io"),
    ("docker", "docker.io"),
    ("busybox", "busybox-static"),
];

pub fn prepare() -> Result<(), String> {
    let mut missing: Vec<&str> =
        NEEDS.iter().filter(|(program, _)| !exists(program)).map(|(_, package)| *package).collect();
    // The tests start servers of their own; Debian keeps the programs off the path.
    if !exists("initdb") && !has_initdb() {
        missing.push("postgresql");
    }
    if !missing.is_empty() {
        println!("── setup: apt-get install {}", missing.join(" "));
        run("apt-get", &["update", "--quiet"])?;
        run("apt-get", &[&["install", "--yes", "--quiet", "libc6-dev"][..], &missing].concat())?;
    }
    // The webhook tests verify signatures with the published packages, which they install by name.
    if !has_venv() {
        run("apt-get", &["install", "--yes", "--quiet", "python3-venv"])?;
    }
    for (component, probe) in [("rustfmt", "fmt"), ("clippy", "clippy")] {
        let is_there = Command::new("cargo")
            .args([probe, "--version"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        if !is_there {
            run("rustup", &["component", "add", component])?;
        }
    }
    Ok(())
}

fn has_initdb() -> bool {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    versions.into_iter().any(|version| version.path().join("bin/initdb").is_file())
}

fn has_venv() -> bool {
    let probe = Command::new("python3").args(["-c", "import venv, ensurepip"]).stderr(Stdio::null()).status();
    probe.is_ok_and(|status| status.success())
}

fn exists(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

pub fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let status = Command::new(program).args(args).env("DEBIAN_FRONTEND", "noninteractive").status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program} {} ended with {status}", args.join(" "))),
        Err(error) => Err(format!("{program} cannot be started: {error}")),
    }
}
