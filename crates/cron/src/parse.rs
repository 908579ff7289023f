//! From text. An error says where.

use crate::Expr;
use crate::days::{Days, OfMonth, OfWeek};
use crate::field::Field;

/// What is wrong, and where: a column counted from 1.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("column {column}: {message}")]
pub struct Wrong {
    pub column: usize,
    pub message: String,
}

type Parsed<T> = Result<T, Wrong>;

/// Longer than anybody needs.
const BYTES_MAX: usize = 256;
const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
const MACROS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// A piece of the text that knows where it stands.
#[derive(Clone, Copy)]
struct Piece<'a> {
    text: &'a str,
    column: usize,
}

/// What a field may hold.
struct Kind {
    name: &'static str,
    min: u32,
    max: u32,
    names: &'static [&'static str],
    /// The number of the first name.
    names_from: u32,
}

const SECOND: Kind = Kind { name: "second", min: 0, max: 59, names: &[], names_from: 0 };
const MINUTE: Kind = Kind { name: "minute", min: 0, max: 59, names: &[], names_from: 0 };
const HOUR: Kind = Kind { name: "hour", min: 0, max: 23, names: &[], names_from: 0 };
const DAY: Kind = Kind { name: "day of month", min: 1, max: 31, names: &[], names_from: 0 };
const MONTH: Kind = Kind { name: "month", min: 1, max: 12, names: &MONTHS, names_from: 1 };
/// Sunday is 0 and 7.
const WEEKDAY: Kind = Kind { name: "day of week", min: 0, max: 7, names: &WEEKDAYS, names_from: 0 };

pub fn expr(text: &str) -> Parsed<Expr> {
    let whole = Piece { text, column: 1 };
    if text.len() > BYTES_MAX {
        return Err(whole.wrong(format!("longer than {BYTES_MAX} bytes")));
    }
    let spelled = spelled_out(whole)?;
    let pieces = spelled.split();
    let (second, rest) = match pieces.as_slice() {
        [second, rest @ ..] if rest.len() == 5 => (field(&SECOND, *second)?, rest),
        rest if rest.len() == 5 => (Field::of([0]), rest),
        other => {
            let message = format!("has {} fields; 5 are needed, or 6 with seconds first", other.len());
            return Err(whole.wrong(message));
        }
    };
    let (of_month, of_week) = (of_month(rest[2])?, of_week(rest[4])?);
    let month = field(&MONTH, rest[3])?;
    let expr = Expr {
        text: text.trim().to_owned(),
        second,
        minute: field(&MINUTE, rest[0])?,
        hour: field(&HOUR, rest[1])?,
        month,
        days: Days { of_month, of_week },
    };
    check_possible(&expr, rest[2])?;
    Ok(expr)
}

fn spelled_out(whole: Piece<'_>) -> Parsed<Piece<'_>> {
    let text = whole.text.trim();
    if !text.starts_with('@') {
        return Ok(whole);
    }
    let known = MACROS.iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
    let Some((_, spelled)) = known else {
        let names = MACROS.map(|(name, _)| name).join(" ");
        return Err(whole.wrong(format!("`{text}` is not known; there are {names}")));
    };
    Ok(Piece { text: spelled, column: whole.column })
}

/// A day that no month has can never come.
fn check_possible(expr: &Expr, at: Piece<'_>) -> Parsed<()> {
    let longest = |month: u32| match month {
        2 => 29,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let days = &expr.days;
    let by_month = expr.month.numbers().any(|month| days.of_month.can_fit(longest(month)));
    // A day of the week comes in every month, unless it has to be the given day of the month too.
    if by_month || days.is_either() { Ok(()) } else { Err(at.wrong("no such day in any of these months".to_owned())) }
}

fn field(kind: &Kind, piece: Piece<'_>) -> Parsed<Field> {
    piece.items().try_fold(Field::default(), |field, item| Ok(field.with(plain(kind, item)?)))
}

fn of_month(piece: Piece<'_>) -> Parsed<OfMonth> {
    let mut field = OfMonth { is_star: piece.is_star(), ..OfMonth::default() };
    for item in piece.items() {
        let upper = item.text.to_ascii_uppercase();
        match upper.as_str() {
            "?" => field.days = field.days.with(all(&DAY)),
            "L" => field.before_last = field.before_last.with(Field::of([0])),
            "LW" | "WL" => field.last_weekday = true,
            other => {
                if let Some(n) = other.strip_prefix("L-") {
                    let n = item.number(n, 1, 30)?;
                    field.before_last = field.before_last.with(Field::of([n]));
                } else if let Some(n) = other.strip_suffix('W') {
                    let n = item.number(n, 1, 31)?;
                    field.nearest = field.nearest.with(Field::of([n]));
                } else {
                    field.days = field.days.with(plain(&DAY, item)?);
                }
            }
        }
    }
    Ok(field)
}

fn of_week(piece: Piece<'_>) -> Parsed<OfWeek> {
    let mut field = OfWeek { is_star: piece.is_star(), ..OfWeek::default() };
    for item in piece.items() {
        if item.text == "?" {
            field.days = field.days.with(all(&WEEKDAY));
        } else if let Some((day, nth)) = item.text.split_once('#') {
            let (day, nth) = (weekday(item, day)?, item.number(nth, 1, 5)?);
            field.nth = field.nth.with(Field::of([day + 7 * nth]));
        } else if let Some(day) = item.text.strip_suffix(['L', 'l']).filter(|day| !day.is_empty()) {
            field.last = field.last.with(Field::of([weekday(item, day)?]));
        } else if item.text.eq_ignore_ascii_case("L") {
            return Err(item.wrong("which day of the week is to be the last? 5L is the last Friday".to_owned()));
        } else {
            field.days = field.days.with(plain(&WEEKDAY, item)?);
        }
    }
    // Both numbers of Sunday are the same day.
    if field.days.has(7) {
        field.days = Field::of(field.days.numbers().map(|day| day % 7));
    }
    Ok(field)
}

fn weekday(item: Piece<'_>, text: &str) -> Parsed<u32> {
    value(&WEEKDAY, item, text).map(|day| day % 7)
}

fn all(kind: &Kind) -> Field {
    Field::of(kind.min..=kind.max).star()
}

/// `*`, `a`, `a-b`, each with `/step`.
fn plain(kind: &Kind, item: Piece<'_>) -> Parsed<Field> {
    let (range, step) = match item.text.split_once('/') {
        Some((range, step)) => (range, Some(item.number(step, 1, u32::MAX)?)),
        None => (item.text, None),
    };
    let (from, to) = match range.split_once('-') {
        _ if range == "*" => (kind.min, kind.max),
        Some((from, to)) => (value(kind, item, from)?, end_of_range(kind, item, to)?),
        None => {
            let from = value(kind, item, range)?;
            (from, if step.is_some() { kind.max } else { from })
        }
    };
    if from > to {
        return Err(item.wrong(format!("the range {range} runs backwards; write two ranges")));
    }
    let step = step.unwrap_or(1);
    if step > to - from && step > 1 {
        return Err(item.wrong(format!("a step of {step} leaves the range of {} at once", kind.name)));
    }
    let field = Field::of((from..=to).step_by(step as usize));
    Ok(if range == "*" { field.star() } else { field })
}

/// A week may end on a Sunday.
fn end_of_range(kind: &Kind, item: Piece<'_>, text: &str) -> Parsed<u32> {
    match value(kind, item, text)? {
        0 if kind.max == 7 => Ok(7),
        to => Ok(to),
    }
}

fn value(kind: &Kind, item: Piece<'_>, text: &str) -> Parsed<u32> {
    if let Some(at) = kind.names.iter().position(|name| text.eq_ignore_ascii_case(name)) {
        return Ok(kind.names_from + at as u32);
    }
    let is_number = !text.is_empty() && text.len() <= 3 && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = if is_number { text.parse().ok() } else { None };
    match number {
        Some(n) if (kind.min..=kind.max).contains(&n) => Ok(n),
        Some(n) => Err(item.wrong(format!("{n} is no {}: {} to {}", kind.name, kind.min, kind.max))),
        None if text.is_empty() => Err(item.wrong(format!("a {} is missing", kind.name))),
        None => Err(item.wrong(format!("`{text}` is no {}", kind.name))),
    }
}

impl<'a> Piece<'a> {
    fn wrong(self, message: String) -> Wrong {
        Wrong { column: self.column, message }
    }

    fn split(self) -> Vec<Piece<'a>> {
        let start = self.text.as_ptr() as usize;
        let at = |text: &'a str| Piece { text, column: self.column + (text.as_ptr() as usize - start) };
        self.text.split_ascii_whitespace().map(at).collect()
    }

    fn items(self) -> impl Iterator<Item = Piece<'a>> {
        let mut column = self.column;
        self.text.split(',').map(move |text| {
            let item = Piece { text, column };
            column += text.len() + 1;
            item
        })
    }

    fn is_star(self) -> bool {
        self.text.starts_with(['*', '?'])
    }

    fn number(self, text: &str, min: u32, max: u32) -> Parsed<u32> {
        let is_number = !text.is_empty() && text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = if is_number { text.parse().ok() } else { None };
        let reach = || if max == u32::MAX { format!("from {min}") } else { format!("{min} to {max}") };
        let wrong = || self.wrong(format!("`{text}` must be a number, {}", reach()));
        number.filter(|n| (min..=max).contains(n)).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, column, message) in [
            ("", 1, "has 0 fields"),
            ("* * * *", 1, "has 4 fields"),
            ("* * * * * * *", 1, "has 7 fields"),
            ("60 * * * *", 1, "60 is no minute: 0 to 59"),
            ("0 24 * * *", 3, "24 is no hour: 0 to 23"),
            ("0 0 0 * *", 5, "0 is no day of month: 1 to 31"),
            ("0 0 32 * *", 5, "32 is no day of month"),
            ("0 0 * 13 *", 7, "13 is no month"),
            ("0 0 * * 8", 9, "8 is no day of week"),
            ("*/0 * * * *", 1, "must be a number, from 1"),
            ("*/90 * * * *", 1, "a step of 90 leaves the range of minute at once"),
            ("0 22-2 * * *", 3, "the range 22-2 runs backwards"),
            ("0 0,1,x * * *", 7, "`x` is no hour"),
            ("0 0,,1 * * *", 5, "a hour is missing"),
            ("0 0 31 2 *", 5, "no such day in any of these months"),
            ("0 0 31 4,6 *", 5, "no such day in any of these months"),
            ("0 0 L-29 2 *", 5, "no such day in any of these months"),
            ("0 0 31W FEB *", 5, "no such day in any of these months"),
            ("0 0 * * L", 9, "which day of the week"),
            ("0 0 * * 1#6", 9, "`6` must be a number, 1 to 5"),
            ("@reboot", 1, "`@reboot` is not known"),
            ("@every 5m", 1, "`@every 5m` is not known"),
            ("TZ=UTC 0 0 * * *", 1, "`TZ=UTC` is no second"),
            ("  0 0 * * MOO", 11, "`MOO` is no day of week"),
        ] {
            let wrong = expr(text).expect_err(text);
            assert_eq!(wrong.column, column, "{text}: {wrong}");
            assert!(wrong.message.contains(message), "{text}: {wrong}");
        }
        assert!(expr(&"1,".repeat(200)).is_err());
    }

    #[test]
    fn what_is_right_is_taken() {
        for text in [
            "* * * * *",
            "*/5 * * * *",
            "5/15 * * * *",
            "0 9-17 * * MON-FRI",
            "30 0 9 * * 1-5",
            "0 0 29 2 *",
            "0 0 1,15 * 5",
            "0 0 31 2 MON",
            "0 12 ? * 6#3",
            "0 0 LW * ?",
            "0 0 * jan-mar,DEC sun",
            " @Daily ",
            "0 0 * * 7",
        ] {
            expr(text).unwrap_or_else(|wrong| panic!("{text}: {wrong}"));
        }
    }
}
