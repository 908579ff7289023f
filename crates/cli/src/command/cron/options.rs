//! When a schedule runs and by which rules, as options.

use std::str::FromStr;

use clap::ValueEnum;
use runyard_wire::{CatchUp, Overlap, ScheduleKind, ScheduleRequest, ScheduleTiming};
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::span::{Moment, Span};

#[derive(clap::Args, Default)]
#[group(skip)]
pub struct TimingOptions {
    /// Five fields (minute, hour, day of month, month, day of week), six with the second first, or @hourly and its like
    #[arg(long, value_name = "EXPR", conflicts_with_all = ["every", "at"], help_heading = "When")]
    cron: Option<String>,
    /// The time zone of the expression, such as Europe/Berlin [default: the server's]
    #[arg(long, value_name = "ZONE", conflicts_with_all = ["every", "at"], help_heading = "When")]
    tz: Option<String>,
    /// Each so long
    #[arg(long, value_name = "SPAN", conflicts_with = "at", help_heading = "When")]
    every: Option<Span>,
    /// Runs of --every are counted from this moment [default: now]
    #[arg(long, value_name = "TIME", conflicts_with_all = ["cron", "at"], help_heading = "When")]
    anchor: Option<Moment>,
    /// Once, at this moment (RFC 3339, or a span from now)
    #[arg(long, value_name = "TIME", help_heading = "When")]
    at: Option<Moment>,
}

impl TimingOptions {
    fn kind(&self) -> Option<ScheduleKind> {
        let kinds = [
            (self.cron.is_some(), ScheduleKind::Cron),
            (self.every.is_some(), ScheduleKind::Every),
            (self.at.is_some(), ScheduleKind::At),
        ];
        kinds.into_iter().find(|(is_given, _)| *is_given).map(|(_, kind)| kind)
    }

    /// None when nothing says when.
    pub fn into_timing(self) -> Result<Option<ScheduleTiming>> {
        let Some(kind) = self.kind() else {
            let is_alone = self.tz.is_some() || self.anchor.is_some();
            return if is_alone {
                Err(Error::usage("--tz needs --cron, and --anchor needs --every"))
            } else {
                Ok(None)
            };
        };
        Ok(Some(ScheduleTiming {
            kind,
            expr: self.cron,
            tz: self.tz,
            every_ms: self.every.map(Span::as_ms),
            anchor: self.anchor.map(|moment| moment.0),
            at: self.at.map(|moment| moment.0),
        }))
    }

    /// A zone or an anchor alone changes just that.
    pub fn into_patch(self) -> Result<Option<Value>> {
        match (self.kind(), &self.tz, &self.anchor) {
            (None, Some(tz), None) => Ok(Some(json!({ "tz": tz }))),
            (None, None, Some(anchor)) => Ok(Some(json!({ "anchor": anchor.0 }))),
            _ => Ok(self.into_timing()?.map(|timing| json!(timing))),
        }
    }
}

#[derive(clap::Args, Default)]
#[group(skip)]
pub struct RuleOptions {
    /// While an earlier run is at work: skip, queue, replace or allow [default: skip]
    #[arg(long, value_name = "WHAT", help_heading = "Rules")]
    overlap: Option<Overlap>,
    /// Runs missed while the server was down: skip, one, or N/SPAN: the latest N that are not older [default: skip]
    #[arg(long, value_name = "WHAT", help_heading = "Rules")]
    catch_up: Option<CatchUpText>,
    /// Each run comes up to so much later
    #[arg(long, value_name = "SPAN", help_heading = "Rules")]
    spread: Option<Span>,
    /// To the second, also what fires on the hour
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", help_heading = "Rules")]
    exact: Option<bool>,
    /// No run before (RFC 3339, or a span from now)
    #[arg(long, value_name = "TIME", help_heading = "Rules")]
    start_at: Option<Moment>,
    /// No run at or after
    #[arg(long, value_name = "TIME", help_heading = "Rules")]
    end_at: Option<Moment>,
    /// Done after so many runs
    #[arg(long, value_name = "N", help_heading = "Rules")]
    max_runs: Option<u64>,
    /// Deleted after its last run [default: true for --at]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", help_heading = "Rules")]
    delete_after_run: Option<bool>,
    /// Tell (schedule.failing) after so many failed runs in a row
    #[arg(long, value_name = "N", help_heading = "Rules")]
    alert_after: Option<u32>,
    /// Pause it after so many failed runs in a row
    #[arg(long, value_name = "N", help_heading = "Rules")]
    disable_after: Option<u32>,
    /// Paused from the beginning
    #[arg(long, help_heading = "Rules")]
    paused: bool,
}

/// What `--unset` knows.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Unset {
    Overlap,
    CatchUp,
    Spread,
    Exact,
    StartAt,
    EndAt,
    MaxRuns,
    DeleteAfterRun,
    AlertAfter,
    DisableAfter,
}

impl Unset {
    fn field(self) -> &'static str {
        match self {
            Unset::Overlap => "overlap",
            Unset::CatchUp => "catchUp",
            Unset::Spread => "jitterMs",
            Unset::Exact => "exact",
            Unset::StartAt => "startAt",
            Unset::EndAt => "endAt",
            Unset::MaxRuns => "maxRuns",
            Unset::DeleteAfterRun => "deleteAfterRun",
            Unset::AlertAfter => "alertAfter",
            Unset::DisableAfter => "disableAfter",
        }
    }
}

impl RuleOptions {
    /// Without name, times and task.
    pub fn into_request(self) -> ScheduleRequest {
        ScheduleRequest {
            overlap: self.overlap,
            catch_up: self.catch_up.map(|catch_up| catch_up.0),
            jitter_ms: self.spread.map(Span::as_ms),
            exact: self.exact,
            start_at: self.start_at.map(|moment| moment.0),
            end_at: self.end_at.map(|moment| moment.0),
            max_runs: self.max_runs,
            delete_after_run: self.delete_after_run,
            alert_after: self.alert_after,
            disable_after: self.disable_after,
            enabled: self.paused.then_some(false),
            ..ScheduleRequest::default()
        }
    }

    /// What is named, and null for what goes back to its default.
    pub fn into_patch(self, unset: &[Unset]) -> Result<Map<String, Value>> {
        let Value::Object(mut patch) = json!(self.into_request()) else { unreachable!("a schedule is an object") };
        // They have no default, so they are always written.
        ["name", "schedule", "task"].into_iter().for_each(|field| drop(patch.remove(field)));
        for field in unset.iter().map(|unset| unset.field()) {
            if patch.insert(field.to_owned(), Value::Null).is_some() {
                return Err(Error::usage(format!("{field} is set and unset at once")));
            }
        }
        Ok(patch)
    }
}

#[derive(Clone, Copy)]
pub struct CatchUpText(CatchUp);

impl FromStr for CatchUpText {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<CatchUpText, String> {
        let all = || {
            let (limit, age) = text.split_once('/')?;
            Some(CatchUp::All { limit: limit.parse().ok()?, expiry_ms: age.parse::<Span>().ok()?.as_ms() })
        };
        match text {
            "skip" => Ok(CatchUpText(CatchUp::Skip)),
            "one" => Ok(CatchUpText(CatchUp::One)),
            _ => {
                all().map(CatchUpText).ok_or_else(|| format!("`{text}` is none of skip, one, or N/SPAN such as 10/1h"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_runs_are_caught_up_with_by_a_word_or_a_bound() {
        let read = |text: &str| text.parse::<CatchUpText>().map(|catch_up| catch_up.0);
        assert_eq!(read("one"), Ok(CatchUp::One));
        assert_eq!(read("10/1h"), Ok(CatchUp::All { limit: 10, expiry_ms: 3_600_000 }));
        assert!(["all", "10", "/1h", "10/", "x/1h"].into_iter().all(|text| read(text).is_err()));
    }

    #[test]
    fn a_change_names_only_what_changes() {
        let rules = RuleOptions { max_runs: Some(3), ..RuleOptions::default() };
        let patch = rules.into_patch(&[Unset::EndAt]).unwrap();
        assert_eq!(Value::Object(patch), json!({ "maxRuns": 3, "endAt": null }));
        let both = RuleOptions { max_runs: Some(3), ..RuleOptions::default() };
        assert!(both.into_patch(&[Unset::MaxRuns]).is_err());
        let zone = TimingOptions { tz: Some("UTC".into()), ..TimingOptions::default() };
        assert_eq!(zone.into_patch().unwrap(), Some(json!({ "tz": "UTC" })));
        assert_eq!(TimingOptions::default().into_patch().unwrap(), None);
    }
}
