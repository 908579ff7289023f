//! What an expression says, in English.

use crate::Expr;
use crate::field::Field;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
/// More times than that are told as hours and minutes.
const TIMES_MAX: u32 = 6;

impl Expr {
    /// A sentence without its full stop.
    pub fn describe(&self) -> String {
        let mut said = self.times();
        if let Some(days) = self.which_days() {
            said += &format!(", {days}");
        }
        if self.month.count() < 12 {
            said += &format!(", in {}", list(&runs(self.month, 1, &|n| MONTHS[n as usize - 1].to_owned()), "and"));
        }
        said
    }

    fn times(&self) -> String {
        let n_times = self.hour.count() * self.minute.count() * self.second.count();
        if n_times <= TIMES_MAX && !self.hour.is_star() {
            return format!("at {}", list(&self.clock_times(), "and"));
        }
        let mut parts = Vec::new();
        if self.second != Field::of([0]) {
            parts.push(paced(self.second, 60, "second"));
        }
        if !(parts.is_empty() && self.minute.count() == 60 && self.hour.count() == 24) {
            let is_all = self.minute.count() == 60 && !parts.is_empty();
            if !is_all {
                parts.push(paced(self.minute, 60, "minute"));
            }
        } else {
            parts.push("every minute".to_owned());
        }
        if self.hour.count() < 24 {
            parts.push(hours(self.hour));
        }
        parts.join(", ")
    }

    fn clock_times(&self) -> Vec<String> {
        let has_seconds = self.second != Field::of([0]);
        let mut all = Vec::new();
        for hour in self.hour.numbers() {
            for minute in self.minute.numbers() {
                for second in self.second.numbers() {
                    all.push(if has_seconds {
                        format!("{hour:02}:{minute:02}:{second:02}")
                    } else {
                        format!("{hour:02}:{minute:02}")
                    });
                }
            }
        }
        all
    }

    fn which_days(&self) -> Option<String> {
        let month = (self.days.of_month.days.count() < 31).then(|| self.days_of_month());
        let week = (self.days.of_week.days.count() < 7).then(|| self.days_of_week());
        match (month, week) {
            (Some(month), Some(week)) if self.days.is_either() => Some(format!("{month}, and {week}")),
            (Some(month), Some(week)) => Some(format!("{week} if it is {month}")),
            (month, week) => month.or(week),
        }
    }

    fn days_of_month(&self) -> String {
        let field = &self.days.of_month;
        let mut parts = Vec::new();
        if !field.days.is_empty() {
            parts.push(format!("day {}", list(&runs(field.days, 1, &|n| n.to_string()), "and")));
        }
        parts.extend(field.nearest.numbers().map(|n| format!("the weekday nearest to the {}", nth(n))));
        parts.extend(field.before_last.numbers().map(|n| match n {
            0 => "the last day".to_owned(),
            1 => "the last day but one".to_owned(),
            n => format!("{n} days before the last day"),
        }));
        parts.extend(field.last_weekday.then(|| "the last weekday".to_owned()));
        format!("on {} of the month", list(&parts, "and"))
    }

    fn days_of_week(&self) -> String {
        let field = &self.days.of_week;
        let name = |n: u32| WEEKDAYS[n as usize % 7].to_owned();
        let mut parts = runs(field.days, 0, &name);
        parts.extend(field.nth.numbers().map(|n| format!("the {} {}", nth((n - n % 7) / 7), name(n))));
        parts.extend(field.last.numbers().map(|n| format!("the last {}", name(n))));
        format!("on {}", list(&parts, "and"))
    }
}

fn hours(hour: Field) -> String {
    match step(hour, 24) {
        Some(step) => format!("every {step} hours"),
        None => format!("in the hours {}", list(&runs(hour, 0, &|n| format!("{n:02}")), "and")),
    }
}

/// `every 5 minutes`, or at which of them.
fn paced(field: Field, n_all: u32, unit: &str) -> String {
    if field.count() == n_all {
        return format!("every {unit}");
    }
    match step(field, n_all) {
        Some(step) => format!("every {step} {unit}s"),
        None => format!("at {unit} {}", list(&runs(field, 0, &|n| n.to_string()), "and")),
    }
}

/// The step of a field that goes evenly through all of its range.
fn step(field: Field, n_all: u32) -> Option<u32> {
    let step = field.from(1)?;
    let is_even =
        step > 1 && n_all.is_multiple_of(step) && field == Field::of((0..n_all).step_by(step as usize)).star();
    is_even.then_some(step)
}

/// Neighbours as ranges.
fn runs(field: Field, min: u32, name: &dyn Fn(u32) -> String) -> Vec<String> {
    let mut parts = Vec::new();
    let mut next = field.from(min);
    while let Some(first) = next {
        let last = (first..).take_while(|n| *n < 64 && field.has(*n)).last().unwrap_or(first);
        match last - first {
            0 => parts.push(name(first)),
            1 => parts.extend([name(first), name(last)]),
            _ => parts.push(format!("{} to {}", name(first), name(last))),
        }
        next = field.from(last + 1);
    }
    parts
}

fn list(parts: &[String], last: &str) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., end] => format!("{} {last} {end}", first.join(", ")),
    }
}

fn nth(n: u32) -> String {
    let ending = match (n % 10, n % 100) {
        (1, 1 | 21 | 31) => "st",
        (2, 2 | 22) => "nd",
        (3, 3 | 23) => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_told_in_english() {
        for (expr, expected) in [
            ("* * * * *", "every minute"),
            ("* * * * * *", "every second"),
            ("*/10 * * * * *", "every 10 seconds"),
            ("*/5 * * * *", "every 5 minutes"),
            ("@hourly", "at minute 0"),
            ("0 */2 * * *", "at minute 0, every 2 hours"),
            ("0 9 * * *", "at 09:00"),
            ("30 0 9 * * *", "at 09:00:30"),
            ("0 9,17 * * MON-FRI", "at 09:00 and 17:00, on Monday to Friday"),
            ("*/15 9-17 * * 1-5", "every 15 minutes, in the hours 09 to 17, on Monday to Friday"),
            ("0 0 1 1 *", "at 00:00, on day 1 of the month, in January"),
            ("0 0 L * *", "at 00:00, on the last day of the month"),
            ("0 0 1,15,L * *", "at 00:00, on day 1 and 15 and the last day of the month"),
            ("0 0 13 * FRI", "at 00:00, on day 13 of the month, and on Friday"),
            ("0 0 */2 * MON", "at 00:00, on Monday if it is on day 1, 3"),
            ("0 0 * * MON#2", "at 00:00, on the 2nd Monday"),
            ("0 0 * * 5L", "at 00:00, on the last Friday"),
            ("0 0 * 6-8 *", "at 00:00, in June to August"),
        ] {
            let said = expr.parse::<Expr>().expect("valid").describe();
            assert!(said == expected || expr.contains("*/2 * MON") && said.starts_with(expected), "{expr}: {said}");
        }
    }
}
