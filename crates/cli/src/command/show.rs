//! `runyard show`: everything about one task.

use runyard_wire::{ExitView, Id, Json, MessageView, StepView, TaskView, Timestamp, UsageView};

use crate::cli::Shared;
use crate::error::Result;
use crate::exit::Exit;
use crate::out;
use crate::span::{from_now, percent, short};

#[derive(clap::Args)]
pub struct Args {
    /// The task
    #[arg(value_name = "ID")]
    id: Id,
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let client = shared.client()?;
    let answer = client.task(args.id).await?;
    if shared.json {
        out::line(&answer.text)?;
        return Ok(Exit::Done);
    }
    let view = answer.read()?;
    let steps = client.task_steps(args.id).await?.read()?.items;
    let mut lines = Lines::default();
    lines.status(&view);
    lines.spec(&view);
    lines.times(&view);
    lines.print()?;
    if view.status.merged > 0 {
        print_messages(&client.task_messages(args.id).await?.read()?.items)?;
    }
    print_steps(&steps)?;
    Ok(Exit::Done)
}

/// Names on the left, values on the right; what is not there is left out.
#[derive(Default)]
struct Lines(Vec<(&'static str, String)>);

impl Lines {
    fn add(&mut self, name: &'static str, value: impl ToString) {
        self.0.push((name, value.to_string()));
    }

    fn maybe(&mut self, name: &'static str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }

    fn status(&mut self, TaskView { status, .. }: &TaskView) {
        self.add("id", status.id);
        self.add("state", out::state_text(status.state));
        self.maybe("reason", Some(&status.reason).filter(|reason| !reason.is_empty()));
        self.maybe("error", status.error.as_ref().map(|error| format!("{} ({})", error.message, error.class)));
        self.maybe("result", status.result.as_ref().map(Json::as_str));
        self.add("attempts", attempts(status.attempts, status.retries_left));
        self.maybe("worker", status.worker.as_ref());
        self.maybe("ran", status.execution_ms.map(short));
        self.maybe("exit", status.exit.as_ref().map(exit));
        self.maybe("batch", status.batch_id);
        self.maybe("retry of", status.retry_of);
        self.maybe("handed to", status.steered_into);
        self.maybe("merged", Some(status.merged).filter(|&n| n > 0).map(merged));
        self.maybe("usage", status.usage.as_ref().map(usage));
        let progress = status.progress.as_ref();
        self.maybe("progress", progress.and_then(|p| p.fraction).map(percent));
        self.maybe("doing", progress.and_then(|p| p.message.clone()));
        self.maybe("unlimited", Some(status.not_enforced.join("\n")).filter(|text| !text.is_empty()));
    }

    fn spec(&mut self, TaskView { spec, status }: &TaskView) {
        self.maybe("name", spec.name.as_ref());
        self.add("kind", &spec.kind);
        self.maybe("payload", spec.payload.as_ref().map(Json::as_str));
        self.add("agent", &spec.agent);
        let in_force = status.lane_in_force.as_ref().map(|lane| format!("{} (in force: {lane})", spec.lane));
        self.add("lane", in_force.as_ref().unwrap_or(&spec.lane));
        self.maybe("session", spec.session.as_ref());
        self.add("priority", format!("{}, rank {}", spec.priority, spec.rank));
        self.add("timeout", short(spec.timeout_ms));
        let retry = &spec.retry;
        let on = retry.on.iter().map(|class| class.as_str()).collect::<Vec<_>>().join(", ");
        self.add("retry", format!("{} times, first after {}, on {on}", retry.max_retries, short(retry.backoff_ms)));
        self.list("after", spec.depends_on.iter().map(ToString::to_string));
        self.list("gates", spec.gates.iter().cloned());
        self.list("tags", spec.tags.iter().cloned());
        self.maybe("metadata", spec.metadata.as_ref().map(|map| serde_json::Value::Object(map.clone())));
        self.maybe("key", spec.idempotency_key.as_ref());
    }

    fn list(&mut self, name: &'static str, items: impl Iterator<Item = String>) {
        let text = items.collect::<Vec<_>>().join(", ");
        self.maybe(name, Some(text).filter(|text| !text.is_empty()));
    }

    fn times(&mut self, TaskView { spec, status }: &TaskView) {
        let moment = |at: Timestamp| format!("{at} ({})", from_now(at));
        self.maybe("sent", spec.sent_at.map(moment));
        self.add("created", moment(status.created_at));
        self.maybe("run at", spec.run_at.map(moment));
        self.maybe("deadline", spec.deadline.map(moment));
        self.maybe("queued", status.queued_at.map(moment));
        self.maybe("started", status.started_at.map(moment));
        self.maybe("finished", status.finished_at.map(moment));
    }

    fn print(&self) -> Result<()> {
        for (name, value) in &self.0 {
            let mut lines = value.lines();
            out::line(format!("{name:<10}{}", lines.next().unwrap_or_default()))?;
            lines.try_for_each(|more| out::line(format!("{:<10}{more}", "")))?;
        }
        Ok(())
    }
}

fn attempts(n: u32, left: u32) -> String {
    format!("{n}, {left} {} left", if left == 1 { "retry" } else { "retries" })
}

fn merged(n: u32) -> String {
    format!("{n} further {}", if n == 1 { "message" } else { "messages" })
}

fn exit(exit: &ExitView) -> String {
    let how = match (exit.exit_code, &exit.signal) {
        (Some(code), _) => format!("code {code}"),
        (None, signal) => signal.clone().unwrap_or_default(),
    };
    let memory = if exit.out_of_memory { ", out of memory" } else { "" };
    let ExitView { attempt, wall_ms, .. } = exit;
    format!("{how} of attempt {attempt} after {}{memory}{}", short(*wall_ms), took(exit))
}

/// What a process took. Of a container nobody tells.
fn took(exit: &ExitView) -> String {
    if exit.peak_rss_bytes == 0 {
        return String::new();
    }
    let peak_mb = exit.peak_rss_bytes as f64 / (1024.0 * 1024.0);
    format!("; CPU {:.2}s, memory {peak_mb:.1} MB at most", exit.cpu_seconds)
}

fn usage(usage: &UsageView) -> String {
    let tokens = |n: Option<u64>, what: &str| n.map(|n| format!("{n} {what}"));
    let context = match (usage.context_tokens, usage.context_window) {
        (Some(tokens), Some(window)) => Some(format!("context {tokens} of {window}")),
        (tokens, window) => tokens.map(|n| format!("context {n}")).or(window.map(|n| format!("context window {n}"))),
    };
    let parts = [tokens(usage.input_tokens, "tokens in"), tokens(usage.output_tokens, "out"), context];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// What was merged into it, a line each: the message where there is one, else the whole payload.
fn print_messages(messages: &[MessageView]) -> Result<()> {
    out::line("messages")?;
    for message in messages {
        let payload = message.payload.as_ref().map(Json::as_str).unwrap_or_default();
        let value: serde_json::Value = serde_json::from_str(payload).unwrap_or_default();
        let text = value["message"].as_str().and_then(|text| text.lines().next()).unwrap_or(payload);
        out::line(format!("  {:<9} {text}", message.n))?;
    }
    Ok(())
}

fn print_steps(steps: &[StepView]) -> Result<()> {
    if steps.is_empty() {
        return Ok(());
    }
    out::line("history")?;
    let first = steps[0].at.0;
    for step in steps {
        let since = format!("+{}", short(step.at.0.saturating_sub(first)));
        let attempt = if step.attempt > 0 { format!(" attempt {}", step.attempt) } else { String::new() };
        let detail = step.detail.as_ref().map(|detail| format!(" ({detail})")).unwrap_or_default();
        out::line(format!("  {since:<9} {}{attempt}{detail}", step.step))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_says_what_is_known() {
        let all = UsageView {
            input_tokens: Some(800),
            output_tokens: Some(60),
            context_tokens: Some(6000),
            context_window: Some(8000),
        };
        assert_eq!(usage(&all), "800 tokens in, 60 out, context 6000 of 8000");
        assert_eq!(
            usage(&UsageView { output_tokens: None, context_window: None, ..all }),
            "800 tokens in, context 6000"
        );
    }

    #[test]
    fn an_exit_says_how_and_what_it_took() {
        let view = ExitView {
            attempt: 2,
            exit_code: Some(3),
            signal: None,
            out_of_memory: false,
            cpu_seconds: 0.256,
            peak_rss_bytes: 3 << 20,
            wall_ms: 1500,
            ended_at: Timestamp(0),
        };
        assert_eq!(exit(&view), "code 3 of attempt 2 after 1.5s; CPU 0.26s, memory 3.0 MB at most");
        let killed = ExitView { exit_code: None, signal: Some("SIGKILL".into()), ..view };
        assert!(exit(&killed).starts_with("SIGKILL of attempt 2"));
        let container = ExitView { exit_code: Some(137), out_of_memory: true, peak_rss_bytes: 0, ..killed };
        assert_eq!(exit(&container), "code 137 of attempt 2 after 1.5s, out of memory");
    }

    #[test]
    fn one_retry_is_not_many() {
        assert_eq!(attempts(3, 1), "3, 1 retry left");
        assert_eq!(attempts(1, 0), "1, 0 retries left");
        assert_eq!(attempts(1, 3), "1, 3 retries left");
    }
}
