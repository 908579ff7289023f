//! `runyard session`: list conversations, look at one, set how it takes messages, stop what it does.

use clap::{Subcommand, ValueEnum};
use runyard_wire::{
    SessionCounts, SessionDrop, SessionMode, SessionSettings, SessionStopAllAnswer, SessionStopAnswer, SessionView,
    Timestamp,
};

use crate::cli::Shared;
use crate::client::{Answer, Client};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out;
use crate::pages::{Pages, Query};
use crate::span::{Span, from_now, now, percent, short};

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List sessions with what they are doing, the latest created first
    List(ListArgs),
    /// Show one session
    Show(Key),
    /// Change a session's own settings; what is not named stays
    Set(SetArgs),
    /// Stop the oldest task that runs in it; what waits goes on
    Stop(Key),
    /// Cancel all that runs and waits in it, and refuse messages that were sent before now
    Stopall(Key),
    /// As stopall, and forget its context: it begins anew
    Reset(Key),
}

#[derive(clap::Args)]
struct Key {
    /// The session
    #[arg(value_name = "KEY")]
    key: String,
}

#[derive(clap::Args)]
struct ListArgs {
    /// Only sessions whose key begins so
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Only sessions with live tasks
    #[arg(long)]
    busy: bool,
    #[command(flatten)]
    pages: Pages,
}

#[derive(clap::Args)]
#[command(after_help = "\
A new key makes a new session. Examples:
  runyard session set chat:7 --mode collect --debounce 800ms
  runyard session set chat:7 --unset mode,debounce")]
struct SetArgs {
    /// The session
    #[arg(value_name = "KEY")]
    key: String,
    /// queue, followup, collect, steer, interrupt or reject
    #[arg(long)]
    mode: Option<SessionMode>,
    /// How many messages may wait
    #[arg(long, value_name = "N")]
    cap: Option<u32>,
    /// Who makes room when the line is full: old, new or summarize
    #[arg(long)]
    drop: Option<SessionDrop>,
    /// Messages that come so close together become one run
    #[arg(long, value_name = "SPAN")]
    debounce: Option<Span>,
    /// No message is held back longer
    #[arg(long, value_name = "SPAN")]
    max_wait: Option<Span>,
    /// How many of its tasks run at once
    #[arg(long, value_name = "N")]
    max_concurrent: Option<u32>,
    /// Back to what the configuration says; may be repeated
    #[arg(long, value_name = "SETTING", value_delimiter = ',')]
    unset: Vec<Setting>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Setting {
    Mode,
    Cap,
    Drop,
    Debounce,
    MaxWait,
    MaxConcurrent,
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let client = shared.client()?;
    match args.command {
        Command::List(args) => list(&client, shared, &args).await?,
        Command::Show(Key { key }) => print_one(shared, client.session(&key).await?)?,
        Command::Set(args) => print_one(shared, set(&client, &args).await?)?,
        Command::Stop(Key { key }) => print_stop(shared, client.session_stop(&key).await?)?,
        Command::Stopall(Key { key }) => print_stop_all(shared, client.session_stop_all(&key).await?)?,
        Command::Reset(Key { key }) => print_stop_all(shared, client.session_reset(&key).await?)?,
    }
    Ok(Exit::Done)
}

/// A session's settings are replaced as a whole, so those that stay are read first.
async fn set(client: &Client, args: &SetArgs) -> Result<Answer<SessionView>> {
    if args.is_silent() {
        return Err(Error::usage("what is to be set? Name --mode, --cap, --drop, --debounce, … or --unset"));
    }
    let before = match client.session(&args.key).await {
        Ok(answer) => answer.read()?.settings,
        Err(Error::Refused(problem)) if problem.status == 404 => SessionSettings::default(),
        Err(error) => return Err(error),
    };
    client.session_put(&args.key, &args.over(before)).await
}

impl SetArgs {
    fn is_silent(&self) -> bool {
        self.unset.is_empty() && self.over(SessionSettings::default()).is_empty()
    }

    fn over(&self, before: SessionSettings) -> SessionSettings {
        let kept = |setting| !self.unset.contains(&setting);
        SessionSettings {
            mode: self.mode.or(before.mode.filter(|_| kept(Setting::Mode))),
            cap: self.cap.or(before.cap.filter(|_| kept(Setting::Cap))),
            drop: self.drop.or(before.drop.filter(|_| kept(Setting::Drop))),
            debounce_ms: self.debounce.map(Span::as_ms).or(before.debounce_ms.filter(|_| kept(Setting::Debounce))),
            max_wait_ms: self.max_wait.map(Span::as_ms).or(before.max_wait_ms.filter(|_| kept(Setting::MaxWait))),
            max_concurrent: self.max_concurrent.or(before.max_concurrent.filter(|_| kept(Setting::MaxConcurrent))),
        }
    }
}

async fn list(client: &Client, shared: &Shared, args: &ListArgs) -> Result<()> {
    let read = async |query: Query| client.session_list(&query).await;
    args.pages.list((shared, client), args.query(), read, print).await
}

impl ListArgs {
    fn query(&self) -> Query {
        let prefix = self.prefix.iter().map(|prefix| ("prefix", prefix.clone()));
        prefix.chain(self.busy.then(|| ("busy", "true".to_owned()))).collect()
    }
}

fn print(sessions: &[SessionView]) -> Result<()> {
    if sessions.is_empty() {
        out::note("no sessions: they appear with their first message");
        return Ok(());
    }
    let mut table = out::table(&["SESSION", "MODE", "RUNNING", "WAITING", "DEBOUNCING", "MESSAGES", "LAST", "CONTEXT"]);
    let now = now().0;
    for session in sessions {
        let counts = &session.counts;
        table.add_row(vec![
            session.key.as_str().into(),
            session.effective.mode.as_str().into(),
            out::number(counts.running),
            out::number(counts.waiting),
            out::number(counts.debouncing),
            out::number(session.messages),
            out::number(short(now.saturating_sub(session.last_used_at.0))),
            out::number(context_share(session).unwrap_or_default()),
        ]);
    }
    out::print(&table)
}

fn context_share(session: &SessionView) -> Option<String> {
    let context = session.context.filter(|context| context.context_window > 0)?;
    Some(percent(context.context_tokens as f64 / context.context_window as f64))
}

fn print_one(shared: &Shared, answer: Answer<SessionView>) -> Result<()> {
    if shared.json {
        return out::line(&answer.text);
    }
    describe(&answer.read()?).into_iter().try_for_each(out::line)
}

/// Names on the left, values on the right; a setting that is the session's own says so.
fn describe(session: &SessionView) -> Vec<String> {
    let SessionView { settings, effective, .. } = session;
    let moment = |at: Timestamp| format!("{at} ({})", from_now(at));
    let own = |value: String, is_own: bool| if is_own { format!("{value} (its own)") } else { value };
    let mut facts = vec![
        ("session", session.key.clone()),
        ("now", counted(&session.counts)),
        ("mode", own(effective.mode.to_string(), settings.mode.is_some())),
        ("cap", own(effective.cap.to_string(), settings.cap.is_some())),
        ("drop", own(effective.drop.to_string(), settings.drop.is_some())),
        ("debounce", own(short(effective.debounce_ms), settings.debounce_ms.is_some())),
        ("max wait", own(short(effective.max_wait_ms), settings.max_wait_ms.is_some())),
        ("at once", at_once(session)),
        ("lane", session.lane.clone()),
    ];
    if let (Some(context), Some(share)) = (session.context, context_share(session)) {
        facts.push(("context", format!("{} of {} tokens, {share}", context.context_tokens, context.context_window)));
    }
    facts.extend([("messages", session.messages.to_string()), ("resets", session.generation.to_string())]);
    facts.extend(session.cutoff.map(|at| ("cutoff", format!("{}: what was sent before is refused", moment(at)))));
    facts.extend([("created", moment(session.created_at)), ("last", moment(session.last_used_at))]);
    facts.into_iter().map(|(name, value)| format!("{name:<10}{value}")).collect()
}

/// The number in force may be lower than the one that was set: a context that is nearly full throttles.
fn at_once(session: &SessionView) -> String {
    let n = session.effective.max_concurrent;
    match session.settings.max_concurrent {
        Some(own) if own > n => format!("{n} (its own is {own}; its context is nearly full)"),
        Some(_) => format!("{n} (its own)"),
        None => n.to_string(),
    }
}

fn counted(counts: &SessionCounts) -> String {
    let SessionCounts { running, waiting, debouncing } = counts;
    format!("{running} running, {waiting} waiting, {debouncing} debouncing")
}

fn print_stop(shared: &Shared, answer: Answer<SessionStopAnswer>) -> Result<()> {
    if shared.json {
        return out::line(&answer.text);
    }
    match answer.read()?.stopped {
        Some(id) => out::line(format!("{id} is being stopped")),
        None => out::line("nothing ran"),
    }
}

fn print_stop_all(shared: &Shared, answer: Answer<SessionStopAllAnswer>) -> Result<()> {
    if shared.json {
        return out::line(&answer.text);
    }
    let SessionStopAllAnswer { running, waiting, debouncing, .. } = answer.read()?;
    out::line(format!("stopped: {}", counted(&SessionCounts { running, waiting, debouncing })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use runyard_wire::{SessionContext, SessionRules};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SetArgs,
    }

    fn set(line: &str, before: SessionSettings) -> SessionSettings {
        let line = Line::try_parse_from(["set", "k"].into_iter().chain(line.split_whitespace()));
        line.unwrap_or_else(|error| panic!("{error}")).args.over(before)
    }

    #[test]
    fn what_is_not_named_stays() {
        let none = SessionSettings::default();
        let before = SessionSettings { cap: Some(3), debounce_ms: Some(500), ..none };
        let after = set("--mode collect --max-wait 2s --unset debounce", before);
        let mode = Some(SessionMode::Collect);
        assert_eq!(after, SessionSettings { mode, cap: Some(3), max_wait_ms: Some(2000), ..none });
        assert_eq!(set("--unset cap,debounce", before), none);
        assert_eq!(set("--debounce 1s --max-concurrent 2 --drop summarize", before).cap, Some(3));
    }

    #[test]
    fn own_settings_and_a_throttle_are_told() {
        let session = SessionView {
            key: "chat:7".into(),
            settings: SessionSettings { max_concurrent: Some(3), cap: Some(10), ..SessionSettings::default() },
            effective: SessionRules {
                mode: SessionMode::Queue,
                cap: 10,
                drop: SessionDrop::Old,
                debounce_ms: 0,
                max_wait_ms: 0,
                max_concurrent: 1,
            },
            counts: SessionCounts { running: 1, waiting: 2, debouncing: 0 },
            lane: "main".into(),
            generation: 0,
            cutoff: None,
            context: Some(SessionContext { context_tokens: 60, context_window: 80 }),
            messages: 5,
            created_at: Timestamp(0),
            last_used_at: Timestamp(0),
        };
        let lines = describe(&session);
        for line in [
            "now       1 running, 2 waiting, 0 debouncing",
            "mode      queue",
            "cap       10 (its own)",
            "at once   1 (its own is 3; its context is nearly full)",
            "context   60 of 80 tokens, 75 %",
        ] {
            assert!(lines.iter().any(|it| it == line), "{line} is not in {lines:#?}");
        }
    }
}
