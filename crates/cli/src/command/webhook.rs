//! `runyard webhook`: what was sent, what is to be, and what it is signed with.

use clap::{Subcommand, ValueEnum};
use runyard_wire::{DeliveryState, DeliveryView, Id, WebhookSecrets};

use crate::cli::Shared;
use crate::client::{Answer, Client};
use crate::error::Result;
use crate::exit::Exit;
use crate::out;
use crate::pages::{Pages, Query};
use crate::span::{from_now, now, short};

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List deliveries, the latest first
    List(ListArgs),
    /// Show one delivery with its latest tries
    Show(One),
    /// Send a message again that was delivered or given up
    Replay(One),
    /// Print what webhooks are signed with
    Secret {
        /// Make a new one; the one before signs for another day
        #[arg(long)]
        rotate: bool,
    },
}

#[derive(clap::Args)]
struct One {
    /// The delivery's number
    #[arg(value_name = "ID")]
    id: u64,
}

#[derive(clap::Args)]
struct ListArgs {
    /// Only those that are so far
    #[arg(long)]
    state: Option<State>,
    /// Only those of this subscription
    #[arg(long, value_name = "NAME")]
    webhook: Option<String>,
    /// Only those of this event, such as task.completed
    #[arg(long, value_name = "EVENT")]
    event: Option<String>,
    /// Only those about this task
    #[arg(long, value_name = "ID", conflicts_with = "batch")]
    task: Option<Id>,
    /// Only those about this batch
    #[arg(long, value_name = "ID")]
    batch: Option<Id>,
    #[command(flatten)]
    pages: Pages,
}

#[derive(Clone, Copy, ValueEnum)]
enum State {
    Pending,
    Delivered,
    GivenUp,
}

impl State {
    fn as_str(self) -> &'static str {
        match self {
            State::Pending => DeliveryState::Pending.as_str(),
            State::Delivered => DeliveryState::Delivered.as_str(),
            State::GivenUp => DeliveryState::GivenUp.as_str(),
        }
    }
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let client = shared.client()?;
    match args.command {
        Command::List(args) => list(&client, shared, &args).await?,
        Command::Show(One { id }) => print_one(shared, client.delivery(id).await?)?,
        Command::Replay(One { id }) => print_one(shared, client.delivery_replay(id).await?)?,
        Command::Secret { rotate: false } => print_secrets(shared, client.webhook_secret().await?)?,
        Command::Secret { rotate: true } => print_secrets(shared, client.webhook_secret_rotate().await?)?,
    }
    Ok(Exit::Done)
}

async fn list(client: &Client, shared: &Shared, args: &ListArgs) -> Result<()> {
    let read = async |query: Query| client.delivery_list(&query).await;
    args.pages.list((shared, client), args.query(), read, print).await
}

impl ListArgs {
    fn query(&self) -> Query {
        let fields = [
            ("state", self.state.map(|state| state.as_str().to_owned())),
            ("webhook", self.webhook.clone()),
            ("event", self.event.clone()),
            ("task", self.task.map(|id| id.to_string())),
            ("batch", self.batch.map(|id| id.to_string())),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

fn print(deliveries: &[DeliveryView]) -> Result<()> {
    if deliveries.is_empty() {
        out::note("no deliveries: submit with --callback-url, or configure [webhooks.NAME]");
        return Ok(());
    }
    let mut table = out::table(&["ID", "EVENT", "ABOUT", "FOR", "STATE", "TRIES", "AGE", "NEXT", "LAST ERROR"]);
    let now_ms = now().0;
    for delivery in deliveries {
        let next = delivery.next_at.map_or(String::new(), |at| short(at.0.saturating_sub(now_ms)));
        table.add_row(vec![
            out::number(delivery.id),
            delivery.event.as_str().into(),
            about(delivery).into(),
            delivery.webhook.as_deref().unwrap_or("callback").into(),
            delivery.state.as_str().into(),
            out::number(delivery.tries),
            out::number(short(now_ms.saturating_sub(delivery.at.0))),
            out::number(next),
            last_error(delivery).into(),
        ]);
    }
    out::print(&table)
}

fn about(delivery: &DeliveryView) -> String {
    delivery.task.or(delivery.batch).map_or(String::new(), |id| id.to_string())
}

fn last_error(delivery: &DeliveryView) -> String {
    delivery.log.last().and_then(|tried| tried.error.clone()).unwrap_or_default()
}

fn print_one(shared: &Shared, answer: Answer<DeliveryView>) -> Result<()> {
    if shared.json {
        return out::line(&answer.text);
    }
    let delivery = answer.read()?;
    let mut table = out::table(&["DELIVERY", &delivery.id.to_string()]);
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            table.add_row([name, &value]);
        }
    };
    row("event", delivery.event.clone());
    row("happened", delivery.at.to_string());
    row("about", about(&delivery));
    row("for", delivery.webhook.clone().unwrap_or_else(|| "callbackUrl".to_owned()));
    row("merged message", delivery.merged_message.map_or(String::new(), |n| n.to_string()));
    row("target", delivery.target.clone().unwrap_or_default());
    row("state", delivery.state.as_str().to_owned());
    row("next try", delivery.next_at.map_or(String::new(), |at| format!("{at} ({})", from_now(at))));
    row("tries", delivery.tries.to_string());
    row("webhook-id", delivery.message_id.clone());
    out::print(&table)?;
    if delivery.log.is_empty() {
        return Ok(());
    }
    let mut tries = out::table(&["TRIED", "STATUS", "TOOK", "ERROR"]);
    for tried in &delivery.log {
        let status = tried.status.map_or("none".to_owned(), |status| status.to_string());
        tries.add_row([tried.at.to_string(), status, short(tried.ms), tried.error.clone().unwrap_or_default()]);
    }
    out::line("")?;
    out::print(&tries)
}

fn print_secrets(shared: &Shared, answer: Answer<WebhookSecrets>) -> Result<()> {
    if shared.json {
        return out::line(&answer.text);
    }
    for own in answer.read()?.secrets {
        match own.until {
            None => out::note("signs every webhook without a secret of its own:"),
            Some(until) => out::note(format!("signs too, until {until}:")),
        }
        out::line(&own.secret)?;
    }
    Ok(())
}
