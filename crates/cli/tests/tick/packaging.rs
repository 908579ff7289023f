//! The files in `packaging/` fit the program: what they call is there.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::field::text_of;

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").canonicalize().unwrap()
}

fn read(name: &str) -> String {
    std::fs::read_to_string(packaging().join(name)).unwrap()
}

const PROGRAM: &str = "/usr/local/bin/runyard";

/// Every call of the program in a file, without what a shell makes of the rest.
fn calls(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let calls = lines.filter_map(|line| line.split_once(PROGRAM)).map(|(_, rest)| {
        let words = rest.split_whitespace().take_while(|word| !word.starts_with('>'));
        words.map(str::to_owned).collect()
    });
    calls.collect()
}

#[test]
fn every_command_and_flag_that_is_used_exists() {
    let files = ["systemd/runyard.service", "systemd/runyard-tick.service", "cron.d/runyard"];
    for (file, command) in files.into_iter().zip(["serve", "tick", "tick"]) {
        let calls = calls(&read(file));
        assert_eq!(calls.len(), 1, "{file}");
        assert_eq!(calls[0][0], command, "{file}");
        let help = Command::new(env!("CARGO_BIN_EXE_runyard")).args([command, "--help"]).output().unwrap();
        let help = text_of(&help.stdout);
        for flag in calls[0].iter().filter(|word| word.starts_with("--")) {
            assert!(help.split_whitespace().any(|word| word == flag), "{file}: {flag} is not in\n{help}");
        }
    }
}

/// Without these, a stop of the unit stops the work too, or its limits do not hold.
#[test]
fn units_leave_supervisors_alone() {
    for file in ["systemd/runyard.service", "systemd/runyard-tick.service"] {
        let unit = read(file);
        let has = |setting: &str| unit.lines().any(|line| line == setting);
        let settings = ["KillMode=process", "Delegate=yes", "DelegateSubgroup=server"];
        assert!(settings.iter().all(|setting| has(setting)), "{file}");
        for harmful in ["PrivateTmp", "ProtectControlGroups", "PrivatePIDs", "ProtectProc", "RestrictNamespaces"] {
            assert!(!unit.lines().any(|line| line.starts_with(&format!("{harmful}="))), "{file}: {harmful}");
        }
    }
}

#[test]
fn the_line_for_cron_has_five_fields_and_a_user() {
    let file = read("cron.d/runyard");
    let lines: Vec<&str> = file.lines().filter(|line| !line.starts_with('#')).collect();
    let [line] = lines[..] else { panic!("one line: {lines:?}") };
    let words: Vec<&str> = line.split_whitespace().collect();
    assert!(words[..5].iter().all(|field| *field == "*"), "{line}");
    assert_eq!(words[5..7], ["runyard", PROGRAM]);
}

/// systemd's own check, where it is installed; the program's place is this one's.
#[test]
fn systemd_takes_the_units() {
    let Ok(version) = Command::new("systemd-analyze").arg("--version").output() else { return };
    assert!(version.status.success());
    let home = tempfile::tempdir().unwrap();
    let units = ["runyard.service", "runyard-tick.service", "runyard-tick.timer"].map(|unit| {
        let text = read(&format!("systemd/{unit}")).replace(PROGRAM, env!("CARGO_BIN_EXE_runyard"));
        let path = home.path().join(unit);
        std::fs::write(&path, text).unwrap();
        path
    });
    let verified = Command::new("systemd-analyze").arg("verify").args(&units).output().unwrap();
    let told = text_of(&verified.stderr);
    // A setting that an older systemd does not know, and leaves out.
    let is_ours = |line: &&str| line.contains("runyard") && !line.contains("DelegateSubgroup");
    let about_ours: Vec<&str> = told.lines().filter(is_ours).collect();
    assert!(verified.status.success() && about_ours.is_empty(), "{told}");
}
