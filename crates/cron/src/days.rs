//! Which days fit.

use jiff::civil::{Date, Weekday};

use crate::field::Field;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Days {
    pub of_month: OfMonth,
    pub of_week: OfWeek,
}

/// The day-of-month field.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OfMonth {
    pub days: Field,
    /// `L-n`: so many before the last, 0 for the last itself.
    pub before_last: Field,
    /// `nW`: the weekday nearest to the nth, in the same month.
    pub nearest: Field,
    /// `LW`
    pub last_weekday: bool,
    pub is_star: bool,
}

/// The day-of-week field; Sunday is 0.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OfWeek {
    pub days: Field,
    /// `d#n` at d + 7 × n.
    pub nth: Field,
    /// `dL`: the last of the month.
    pub last: Field,
    pub is_star: bool,
}

impl Days {
    pub fn fit(&self, date: Date) -> bool {
        let (month, week) = (self.of_month.fits(date), self.of_week.fits(date));
        if self.is_either() { month || week } else { month && week }
    }

    /// Both are restricted, and one of them is enough.
    pub fn is_either(&self) -> bool {
        !self.of_month.is_star && !self.of_week.is_star
    }
}

impl OfMonth {
    fn fits(&self, date: Date) -> bool {
        let (day, last) = (number(date.day()), number(date.days_in_month()));
        self.days.has(day)
            || self.before_last.has(last - day)
            || self.last_weekday && nearest_weekday(date, last) == day
            || self.nearest.numbers().any(|n| n <= last && nearest_weekday(date, n) == day)
    }

    /// Whether any day can fit in a month of so many days.
    pub fn can_fit(&self, n_days: u32) -> bool {
        let reaches = |field: Field| field.numbers().any(|n| n <= n_days);
        reaches(self.days)
            || reaches(self.nearest)
            || self.last_weekday
            || self.before_last.numbers().any(|n| n < n_days)
    }
}

impl OfWeek {
    fn fits(&self, date: Date) -> bool {
        let (day, last) = (number(date.day()), number(date.days_in_month()));
        let weekday = number(date.weekday().to_sunday_zero_offset());
        let nth = (day - 1) / 7 + 1;
        self.days.has(weekday) || self.nth.has(weekday + 7 * nth) || self.last.has(weekday) && day + 7 > last
    }
}

/// The weekday nearest to this day of the date's month, without leaving the month.
fn nearest_weekday(date: Date, day: u32) -> u32 {
    let last = number(date.days_in_month());
    let target = date.first_of_month().saturating_add(jiff::Span::new().days(day - 1));
    match target.weekday() {
        Weekday::Saturday if day == 1 => 3,
        Weekday::Saturday => day - 1,
        Weekday::Sunday if day == last => day - 2,
        Weekday::Sunday => day + 1,
        _ => day,
    }
}

/// Days and their counts are small and never negative.
fn number(n: i8) -> u32 {
    n.unsigned_abs().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitting(expr: &str, year: i16, month: i8) -> Vec<i8> {
        let expr: crate::Expr = expr.parse().expect("valid");
        let first = Date::constant(year, month, 1);
        first
            .series(jiff::Span::new().days(1))
            .take_while(|day| day.month() == month)
            .filter(|d| expr.days.fit(*d))
            .map(|d| d.day())
            .collect()
    }

    #[test]
    fn days_of_the_month() {
        for (expr, expected) in [
            ("0 0 L * *", vec![28]),
            ("0 0 L-3 * *", vec![25]),
            ("0 0 1W * *", vec![2]),   // 1 February 2026 is a Sunday
            ("0 0 28W * *", vec![27]), // the last day, a Saturday
            ("0 0 14W * *", vec![13]),
            ("0 0 15W * *", vec![16]),
            ("0 0 LW * *", vec![27]),
            ("0 0 31W * *", vec![]),
            ("0 0 1,15,L * *", vec![1, 15, 28]),
        ] {
            assert_eq!(fitting(expr, 2026, 2), expected, "{expr}");
        }
        // 1 August 2026 is a Saturday, 31 May 2026 a Sunday.
        assert_eq!(fitting("0 0 1W * *", 2026, 8), [3]);
        assert_eq!(fitting("0 0 31W * *", 2026, 5), [29]);
        assert_eq!(fitting("0 0 LW * *", 2026, 5), [29]);
    }

    #[test]
    fn days_of_the_week() {
        for (expr, expected) in [
            ("0 0 * * MON#2", vec![9]),
            ("0 0 * * 5L", vec![27]),
            ("0 0 * * SUN#5", vec![]),
            ("0 0 * * FRI-SUN", vec![1, 6, 7, 8, 13, 14, 15, 20, 21, 22, 27, 28]),
            ("0 0 * * 0,7", vec![1, 8, 15, 22]),
            ("0 0 13 * FRI", vec![6, 13, 20, 27]),
            ("0 0 */2 * MON", vec![9, 23]),
            ("0 0 13 * ?", vec![13]),
        ] {
            assert_eq!(fitting(expr, 2026, 2), expected, "{expr}");
        }
    }
}
