//! A page whose commands are typed in as they stand there.
//!
//! Every `sh` block runs, one after the other in one shell, except those below a comment that says that their command
//! does not end. What a `text` block shows must come, line by line and in that order; a `json` block must be one line of
//! the output; a `toml` block must be a configuration that can be loaded. Ids and times differ from run to run and count as equal.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::yard::Yard;

const DOES_NOT_END: &str = "<!-- it does not end: not run by tests/readme.rs -->";

/// Runs a part of a page against a server of its own. It must have at least so many blocks of commands, and of output.
pub fn run_through(part: &str, n_steps_min: usize, n_expected_min: usize) {
    let steps = steps(part);
    let n_expected = steps.iter().map(|step| step.expected.len()).sum::<usize>();
    let is_enough = steps.len() >= n_steps_min && n_expected >= n_expected_min;
    assert!(is_enough, "only {} blocks, {n_expected} of output", steps.len());
    let yard = Yard::start();
    let outputs = run(&yard, &steps);
    assert_eq!(outputs.len(), steps.len(), "the shell ended early: {outputs:#?}");
    for (step, (output, code)) in steps.iter().zip(&outputs) {
        assert_eq!(*code, 0, "{}\n{output}", step.commands);
        assert!(!output.contains("error:"), "{}\n{output}", step.commands);
        step.expected.iter().for_each(|expected| expected.check(&step.commands, output));
    }
}

pub fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What stands below this heading, up to the next one of its level.
pub fn part<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("there is no {heading:?}"));
    let level = heading.split(' ').next().expect("there is always a first word");
    rest.split(&format!("\n{level} ")).next().expect("there is always a first part")
}

struct Step {
    commands: String,
    expected: Vec<Expected>,
}

enum Expected {
    Text(String),
    Json(serde_json::Value),
}

/// The blocks in the order they stand there.
fn steps(part: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_left_out = true;
    let parts: Vec<&str> = part.split("```").collect();
    for pair in parts.chunks_exact(2) {
        let (prose, block) = (pair[0], pair[1]);
        let (language, body) = block.split_once('\n').expect("a block has a line for its language");
        match (language, steps.last_mut()) {
            ("sh", _) => {
                is_left_out = prose.trim_end().ends_with(DOES_NOT_END);
                if !is_left_out {
                    steps.push(Step { commands: body.to_owned(), expected: Vec::new() });
                }
            }
            ("toml", _) => {
                let check = "runyard config check page.toml";
                let commands = format!("cat > page.toml <<'END'\n{body}END\n{check}\n");
                steps.push(Step { commands, expected: Vec::new() });
            }
            ("text", Some(step)) if !is_left_out => step.expected.push(Expected::Text(body.to_owned())),
            ("json", Some(step)) if !is_left_out => {
                step.expected.push(Expected::Json(serde_json::from_str(body).expect("JSON")));
            }
            ("text" | "json", _) => {}
            (other, _) => panic!("a block in `{other}`: how is it checked?"),
        }
    }
    steps
}

/// Runs the blocks where the page's reader would: the data in its usual place below HOME, `runyard` on the PATH. Gives
/// the output of each, both streams as a terminal shows them, and its last exit code.
fn run(yard: &Yard, steps: &[Step]) -> Vec<(String, i32)> {
    let share = yard.home().join(".local/share");
    std::fs::create_dir_all(&share).expect("made");
    std::os::unix::fs::symlink(yard.data(), share.join("runyard")).expect("linked");
    let program = Path::new(env!("CARGO_BIN_EXE_runyard")).parent().expect("it is in a directory");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").expect("there is a PATH"));
    // It has a process group of its own, for what the page leaves running in the background.
    let shell = Command::new("timeout")
        .args(["180", "sh", "-c", &script(yard, steps)])
        .process_group(0)
        .current_dir(yard.home())
        .env_clear()
        .env("HOME", yard.home())
        .env("PATH", path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sh runs");
    let group = format!("-{}", shell.id());
    let output = shell.wait_with_output().expect("sh runs");
    let _ = Command::new("kill").args(["-s", "KILL", "--", &group]).stderr(Stdio::null()).status();
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let mut outputs: Vec<(String, i32)> = Vec::new();
    let mut block = String::new();
    for line in text.lines() {
        match line.strip_prefix(END_OF_BLOCK) {
            Some(code) => outputs.push((std::mem::take(&mut block), code.parse().expect("an exit code"))),
            None => {
                block.push_str(line);
                block.push('\n');
            }
        }
    }
    outputs
}

const END_OF_BLOCK: &str = "--- end of block ";

/// The server of the test has a port of its own, and so has a receiver that the page starts.
fn script(yard: &Yard, steps: &[Step]) -> String {
    let running = std::fs::read(yard.data().join("server.json")).expect("the server says where it is");
    let running: serde_json::Value = serde_json::from_slice(&running).expect("JSON");
    let address = running["url"].as_str().and_then(|url| url.strip_prefix("http://")).expect("an address");
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let mut script = "exec 2>&1\n".to_owned();
    for step in steps {
        let commands = step.commands.replace("127.0.0.1:7340", address);
        script.push_str(&commands.replace("127.0.0.1:8080", &free.to_string()));
        script.push_str(&format!("echo \"{END_OF_BLOCK}$?\"\n"));
    }
    script
}

impl Expected {
    fn check(&self, commands: &str, output: &str) {
        match self {
            Expected::Text(text) => {
                let mut lines = output.lines().map(leveled);
                // An ellipsis stands for lines that are left out, and any line may be.
                for wanted in text.lines().filter(|line| !line.trim().is_empty() && line.trim() != "…") {
                    let found = lines.any(|line| line == leveled(wanted));
                    assert!(found, "{wanted:?} does not come, or not in its place.\n{commands}\n{output}");
                }
            }
            Expected::Json(value) => {
                let is_it = |line| serde_json::from_str::<serde_json::Value>(line).is_ok_and(|json| json == *value);
                assert!(output.lines().any(is_it), "{value} does not come.\n{commands}\n{output}");
            }
        }
    }
}

/// A line with everything made equal that differs from run to run: ids, moments, lengths of time, widths of columns.
fn leveled(line: &str) -> String {
    line.split_whitespace().map(leveled_word).collect::<Vec<_>>().join(" ")
}

fn leveled_word(word: &str) -> String {
    let word = &with_ids_leveled(word);
    let core = word.trim_matches(['+', '(', ')', ',', ';', ':']);
    let is_moment = core.len() >= 20 && core.ends_with('Z') && core.as_bytes()[10] == b'T';
    let is_span = core.starts_with(|c: char| c.is_ascii_digit())
        && core.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | 'm' | 's' | 'h')).is_empty()
        && core.ends_with(['s', 'm', 'h']);
    let name = match (is_moment, is_span) {
        (true, _) => "MOMENT",
        (_, true) => "SPAN",
        // For a moment between the two it is `assigned`.
        _ if core == "assigned" => "running",
        _ => return word.to_owned(),
    };
    word.replace(core, name)
}

/// An id may be part of a word, such as the name of a file.
fn with_ids_leveled(word: &str) -> String {
    let is_id = |part: &str| part.bytes().filter(|byte| *byte == b'-').count() == 4 && uuid_digits(part);
    let at = (0..word.len()).find(|at| word.get(*at..at + 36).is_some_and(is_id));
    at.map_or_else(|| word.to_owned(), |at| format!("{}ID{}", &word[..at], &word[at + 36..]))
}

fn uuid_digits(part: &str) -> bool {
    part.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}
