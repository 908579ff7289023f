//! `runyard cron next`: when an expression fires, without asking anybody.

use jiff::tz::TimeZone;
use runyard_cron::Calendar;
use runyard_wire::{PreviewView, Timestamp};

use crate::cli::Shared;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out;
use crate::span::{from_now, now};

#[derive(clap::Args)]
pub struct Args {
    /// The expression, such as '0 9 * * MON-FRI'
    #[arg(value_name = "EXPR")]
    expr: String,
    /// Its time zone
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    tz: String,
    /// How many moments
    #[arg(long, short = 'n', default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
}

pub fn run(shared: &Shared, args: &Args) -> Result<Exit> {
    let calendar = Calendar::new(&args.expr, &args.tz).map_err(Error::usage)?;
    let first = calendar.next_after_ms(now().0);
    let moments = std::iter::successors(first, |at| calendar.next_after_ms(*at)).take(args.count.into());
    let next_runs: Vec<Timestamp> = moments.map(Timestamp).collect();
    let description = calendar.expr().describe();
    if shared.json {
        out::json(&PreviewView { description, next_runs })?;
        return Ok(Exit::Done);
    }
    out::note(format!("{description}, in {}", args.tz));
    let zone = TimeZone::get(&args.tz).map_err(Error::usage)?;
    for at in next_runs {
        out::line(format!("{}  {}", shown_in(&zone, at), from_now(at)))?;
    }
    Ok(Exit::Done)
}

/// As the clock there shows it.
fn shown_in(zone: &TimeZone, at: Timestamp) -> String {
    let moment = i64::try_from(at.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    moment.map_or_else(
        || at.to_string(),
        |moment| moment.to_zoned(zone.clone()).strftime("%a %Y-%m-%d %H:%M:%S %:z").to_string(),
    )
}
