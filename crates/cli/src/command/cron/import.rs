//! `runyard cron import`: a crontab file, line by line.
//!
//! A line becomes a schedule that runs its command in a shell, as cron does: variables that were set above it are set for
//! it, a percent sign ends the command and what follows it is its input, each further one being the end of a line.

use std::collections::BTreeMap;
use std::path::PathBuf;

use runyard_cron::Calendar;
use runyard_wire::{ScheduleKind, ScheduleRequest, ScheduleTiming, TaskRequest};
use serde::Serialize;
use serde_json::json;

use crate::cli::Shared;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out;

#[derive(clap::Args)]
pub struct Args {
    /// The crontab file, of the form that `crontab -l` prints: without a user
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Names of schedules begin so, and end with the line's number [default: the file's name]
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// The time zone, where the file does not say CRON_TZ [default: the server's]
    #[arg(long, value_name = "ZONE")]
    tz: Option<String>,
    /// Whose work it is [default: default]
    #[arg(long, short)]
    agent: Option<String>,
    /// Say what would be made, and make nothing
    #[arg(long)]
    dry_run: bool,
}

/// What became of one line.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    line: usize,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    detail: String,
}

/// What one line says.
#[derive(PartialEq, Debug)]
enum Line {
    /// Nothing that runs: blank, or a comment.
    Silent,
    Variable {
        name: String,
        value: String,
    },
    Job {
        expr: String,
        command: String,
    },
    Wrong(String),
}

pub async fn run(client: &Client, shared: &Shared, args: &Args) -> Result<Exit> {
    let text = std::fs::read_to_string(&args.file).map_err(|source| Error::File {
        doing: "read",
        path: args.file.clone(),
        source,
    })?;
    let mut reader =
        Reader { prefix: args.prefix(), tz: args.tz.clone(), env: BTreeMap::new(), agent: args.agent.clone() };
    let mut reports = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let n = at + 1;
        let report = match reader.read(n, line) {
            Read::Silent => continue,
            Read::Report(report) => report,
            Read::Job(request) if args.dry_run => would_be(n, &request),
            Read::Job(request) => make(client, n, &request).await?,
        };
        if !shared.json {
            let name = report.name.as_ref().map_or(String::new(), |name| format!("{name}: "));
            out::line(format!("line {n}: {}: {name}{}", report.outcome, report.detail))?;
        }
        reports.push(report);
    }
    if shared.json {
        out::json(&reports)?;
    }
    let is_refused = reports.iter().any(|report| report.outcome == REFUSED);
    Ok(if is_refused { Exit::Refused } else { Exit::Done })
}

const REFUSED: &str = "refused";

/// A server that cannot be reached ends it; a line that is refused does not.
async fn make(client: &Client, line: usize, request: &ScheduleRequest) -> Result<Report> {
    let name = Some(request.name.clone());
    match client.schedule_create(request).await {
        Ok(answer) => {
            let made = answer.read()?;
            Ok(Report { line, outcome: "added", name, detail: made.description })
        }
        Err(Error::Refused(problem)) if problem.status < 500 => {
            Ok(Report { line, outcome: REFUSED, name, detail: problem.detail })
        }
        Err(error) => Err(error),
    }
}

fn would_be(line: usize, request: &ScheduleRequest) -> Report {
    let expr = request.schedule.expr.as_deref().unwrap_or_default();
    let zone = request.schedule.tz.as_deref();
    let name = Some(request.name.clone());
    match Calendar::new(expr, zone.unwrap_or("UTC")) {
        Ok(calendar) => {
            let zone = zone.map_or("the server's time zone", |zone| zone);
            Report { line, outcome: "would add", name, detail: format!("{}, in {zone}", calendar.expr().describe()) }
        }
        Err(error) => Report { line, outcome: REFUSED, name, detail: error.to_string() },
    }
}

impl Args {
    /// Only what may stand in a name.
    fn prefix(&self) -> String {
        let stem = self.file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let text = self.prefix.clone().or(stem).unwrap_or_default();
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._:@-".contains(c);
        let name: String = text.chars().map(|c| if is_allowed(c) { c } else { '-' }).take(48).collect();
        if name.is_empty() { "cron".to_owned() } else { name }
    }
}

/// What the lines so far have set.
struct Reader {
    prefix: String,
    tz: Option<String>,
    env: BTreeMap<String, String>,
    agent: Option<String>,
}

enum Read {
    Silent,
    Report(Report),
    Job(Box<ScheduleRequest>),
}

impl Reader {
    fn read(&mut self, line: usize, text: &str) -> Read {
        let told = |outcome, detail| Read::Report(Report { line, outcome, name: None, detail });
        match parse(text) {
            Line::Silent => Read::Silent,
            Line::Wrong(detail) => told(REFUSED, detail),
            Line::Variable { name, value } => self.set(&name, value, told),
            Line::Job { expr, command } => Read::Job(Box::new(self.request(line, expr, &command))),
        }
    }

    fn set(&mut self, name: &str, value: String, told: impl Fn(&'static str, String) -> Read) -> Read {
        match name {
            "CRON_TZ" => {
                let detail = format!("{value} is the time zone of the lines below");
                self.tz = Some(value);
                told("set", detail)
            }
            "MAILTO" | "MAILFROM" => told("ignored", format!("{name}: nothing is mailed; see webhooks and alertAfter")),
            "SHELL" => told("ignored", "SHELL: commands run in sh".to_owned()),
            _ => {
                self.env.insert(name.to_owned(), value);
                told("set", format!("{name} for the commands below"))
            }
        }
    }

    fn request(&self, line: usize, expr: String, command: &str) -> ScheduleRequest {
        let (shell, stdin) = split_input(command);
        let mut payload = json!({ "shell": shell });
        if !self.env.is_empty() {
            payload["env"] = json!(self.env);
        }
        if let Some(stdin) = stdin {
            payload["stdin"] = json!(stdin);
        }
        let task = TaskRequest {
            kind: Some("process".into()),
            payload: Some(payload.into()),
            agent: self.agent.clone(),
            ..TaskRequest::default()
        };
        let schedule =
            ScheduleTiming { kind: ScheduleKind::Cron, expr: Some(expr), tz: self.tz.clone(), ..Default::default() };
        ScheduleRequest { name: format!("{}-{line}", self.prefix), schedule, task, ..ScheduleRequest::default() }
    }
}

fn parse(text: &str) -> Line {
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Line::Silent;
    }
    if let Some((name, value)) = variable(text) {
        return Line::Variable { name, value };
    }
    let n_fields = if text.starts_with('@') { 1 } else { 5 };
    let Some((expr, command)) = split_fields(text, n_fields) else {
        return Line::Wrong(format!("there is no command behind {n_fields} fields"));
    };
    match expr.to_ascii_lowercase().as_str() {
        "@reboot" => Line::Wrong("@reboot is no time: start it with the server, or submit a task".to_owned()),
        _ => match expr.parse::<runyard_cron::Expr>() {
            Ok(_) => Line::Job { expr, command: command.to_owned() },
            Err(wrong) => Line::Wrong(wrong.to_string()),
        },
    }
}

/// `NAME = value`, the value quoted or not.
fn variable(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    let name = name.trim().trim_matches(['"', '\'']);
    let is_name = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    let value = value.trim();
    let bare = ['"', '\''].into_iter().find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote));
    is_name.then(|| (name.to_owned(), bare.unwrap_or(value).to_owned()))
}

fn split_fields(text: &str, n_fields: usize) -> Option<(String, &str)> {
    let mut rest = text;
    for _ in 0..n_fields {
        rest = rest.trim_start();
        rest = &rest[rest.find(char::is_whitespace)?..];
    }
    let expr = text[..text.len() - rest.len()].split_whitespace().collect::<Vec<_>>().join(" ");
    let command = rest.trim();
    (!command.is_empty()).then_some((expr, command))
}

/// An unescaped `%` ends the command; the rest is its input, with further ones as ends of lines.
fn split_input(command: &str) -> (String, Option<String>) {
    let (mut shell, mut stdin) = (String::new(), None::<String>);
    let mut chars = command.chars().peekable();
    while let Some(c) = chars.next() {
        let out = stdin.as_mut().unwrap_or(&mut shell);
        match c {
            '\\' if chars.peek() == Some(&'%') => out.extend(chars.next()),
            '%' => match &mut stdin {
                Some(stdin) => stdin.push('\n'),
                None => stdin = Some(String::new()),
            },
            c => out.push(c),
        }
    }
    (shell.trim_end().to_owned(), stdin.map(|stdin| stdin + "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(expr: &str, command: &str) -> Line {
        Line::Job { expr: expr.into(), command: command.into() }
    }

    #[test]
    fn lines_are_read_as_cron_reads_them() {
        for (text, line) in [
            ("", Line::Silent),
            ("  # 0 9 * * * old", Line::Silent),
            ("0 9 * * MON-FRI  /bin/report --all", job("0 9 * * MON-FRI", "/bin/report --all")),
            ("*/5\t*  * * *\techo a=b", job("*/5 * * * *", "echo a=b")),
            ("@daily backup", job("@daily", "backup")),
            ("PATH=/usr/bin:/bin", Line::Variable { name: "PATH".into(), value: "/usr/bin:/bin".into() }),
            ("MAILTO = \"\"", Line::Variable { name: "MAILTO".into(), value: String::new() }),
        ] {
            assert_eq!(parse(text), line, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_a_schedule_says_why() {
        for (text, reason) in [
            ("@reboot /bin/x", "@reboot is no time"),
            ("0 25 * * * x", "column 3: 25 is no hour"),
            ("0 0 30 2 * x", "no such day"),
            ("0 9 * * *", "there is no command"),
            ("@daily", "there is no command"),
        ] {
            let Line::Wrong(said) = parse(text) else { panic!("{text} was taken") };
            assert!(said.contains(reason), "{text}: {said}");
        }
    }

    #[test]
    fn a_percent_sign_ends_the_command_and_begins_its_input() {
        assert_eq!(split_input("date +\\%F"), ("date +%F".into(), None));
        assert_eq!(split_input("mail x %hi%there"), ("mail x".into(), Some("hi\nthere\n".into())));
    }

    #[test]
    fn variables_and_the_zone_hold_for_the_lines_below() {
        let mut reader = Reader { prefix: "c".into(), tz: None, env: BTreeMap::new(), agent: None };
        let mut job = |line, text: &str| match reader.read(line, text) {
            Read::Job(request) => Some(*request),
            _ => None,
        };
        let first = job(1, "0 9 * * * a").expect("a job");
        assert_eq!((first.name.as_str(), &first.schedule.tz), ("c-1", &None));
        assert!(
            job(2, "CRON_TZ=Asia/Tokyo").is_none() && job(3, "A=1").is_none() && job(4, "SHELL=/bin/zsh").is_none()
        );
        let second = job(5, "0 9 * * * b").expect("a job");
        assert_eq!(second.schedule.tz.as_deref(), Some("Asia/Tokyo"));
        let payload: serde_json::Value = second.task.payload.expect("one").read().expect("JSON");
        assert_eq!(payload, json!({ "shell": "b", "env": { "A": "1" } }));
    }
}
