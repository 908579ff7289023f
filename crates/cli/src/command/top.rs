//! `runyard top`: who works on what, as it happens.

mod draw;
mod look;

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

use crate::cli::Shared;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out;
use crate::patience::Patience;
use draw::Screen;
use look::Look;

#[derive(clap::Args)]
#[command(after_help = "Keys: q ends, tab goes to the next table, arrows and page keys move in it.")]
pub struct Args {
    /// Print one picture as text, and end
    #[arg(long)]
    once: bool,
    /// Columns of that picture
    #[arg(long, default_value_t = 120, requires = "once", value_parser = clap::value_parser!(u16).range(40..=500))]
    width: u16,
    /// Lines of that picture
    #[arg(long, default_value_t = 50, requires = "once", value_parser = clap::value_parser!(u16).range(10..=500))]
    height: u16,
}

/// After something has happened the next picture comes this soon, and no sooner.
const REDRAW: Duration = Duration::from_millis(500);
/// Ages grow, and machines say how they are, without anything happening.
const REDRAW_IDLE: Duration = Duration::from_secs(2);

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let client = shared.client()?;
    let look = Look::at(&client).await?;
    match args.once || !out::stdout_is_terminal() {
        true => out::line(picture(&look, args.width, args.height)?)?,
        false => {
            let mut terminal = ratatui::try_init().map_err(Error::Output)?;
            let shown = show(&client, look, &mut terminal).await;
            ratatui::restore();
            shown?;
        }
    }
    Ok(Exit::Done)
}

/// As a terminal of this size would show it.
fn picture(look: &Look, width: u16, height: u16) -> Result<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory has room for a picture");
    let screen = &mut Screen::default();
    terminal.draw(|frame| screen.draw(frame, look)).expect("a picture in memory can be drawn");
    let buffer = terminal.backend().buffer();
    let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    let lines: Vec<String> = (0..height).map(line).collect();
    Ok(lines.join("\n").trim_end().to_owned())
}

async fn show(client: &Client, mut look: Look, terminal: &mut ratatui::DefaultTerminal) -> Result<()> {
    let (mut screen, mut keys, mut patience) = (Screen::default(), keys(), Patience::default());
    let mut happens = watch(client.clone());
    let mut idle = tokio::time::interval(REDRAW_IDLE);
    idle.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut fresh_from = Instant::now();
    loop {
        terminal.draw(|frame| screen.draw(frame, &look)).map_err(Error::Output)?;
        tokio::select! {
            key = keys.recv() => match key {
                None => return Ok(()),
                Some(key) if ends(key) => return Ok(()),
                Some(key) => screen.press(key.code),
            },
            _ = idle.tick() => look_again(client, &mut look, &mut patience).await?,
            Some(()) = happens.recv() => {
                tokio::time::sleep_until(fresh_from).await;
                look_again(client, &mut look, &mut patience).await?;
                fresh_from = Instant::now() + REDRAW;
            }
        }
    }
}

/// While the server is away the last picture stays.
async fn look_again(client: &Client, look: &mut Look, patience: &mut Patience) -> Result<()> {
    match Look::at(client).await {
        Ok(fresh) => {
            patience.relax();
            *look = fresh;
            Ok(())
        }
        Err(error) => patience.endure(error).await,
    }
}

fn ends(key: KeyEvent) -> bool {
    let is_interrupt = key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
    is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

/// From a thread of its own: the terminal is read with blocking calls.
fn keys() -> mpsc::Receiver<KeyEvent> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            let sent = match event {
                Event::Key(key) if key.kind != KeyEventKind::Release => sender.blocking_send(key),
                // Any other key draws anew, which is what a changed size needs.
                Event::Resize(..) => sender.blocking_send(KeyEvent::new(KeyCode::Null, KeyModifiers::NONE)),
                _ => Ok(()),
            };
            if sent.is_err() {
                return;
            }
        }
    });
    receiver
}

/// Tells that something has happened; many things at once are told once.
fn watch(client: Client) -> mpsc::Receiver<()> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            if let Ok(mut events) = client.event_stream(&[], None).await {
                while let Ok(Some(_)) = events.next().await {
                    if let Err(mpsc::error::TrySendError::Closed(())) = sender.try_send(()) {
                        return;
                    }
                }
            }
            tokio::time::sleep(REDRAW_IDLE).await;
        }
    });
    receiver
}
