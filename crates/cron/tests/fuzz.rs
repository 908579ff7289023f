//! Any text is taken or refused, and what is taken fires in order.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use proptest::prelude::*;
use runyard_cron::Expr;

proptest! {
    #[test]
    fn any_text_is_taken_or_refused_with_a_place_in_it(text in "[ -~]{0,40}|([0-9*/,LW#?-]{1,6} ){4,6}[0-9*A-Z#]{1,4}") {
        match text.parse::<Expr>() {
            Ok(expr) => prop_assert!(!expr.describe().is_empty()),
            Err(wrong) => prop_assert!(wrong.column >= 1 && wrong.column <= text.len() + 1, "{wrong}"),
        }
    }

    #[test]
    fn what_is_taken_fires_later_and_at_a_time_that_fits(
        (minute, hour, day, month) in (0u8..60, 0u8..24, 1u8..29, 1u8..13),
        after in 946_684_800i64..2_240_524_800,
        zone in prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]),
    ) {
        let zone = TimeZone::get(zone).expect("a zone");
        let after = Timestamp::from_second(after).expect("in range");
        let expr: Expr = format!("{minute} {hour} {day} {month} *").parse().expect("valid");
        let at = expr.next_after(&zone, after).expect("it comes every year");
        prop_assert!(at > after && at.duration_since(after).as_hours() <= 366 * 24 + 2);
        prop_assert_eq!(expr.next_after(&zone, at.checked_sub(jiff::SignedDuration::from_secs(1)).expect("in range")), Some(at));
    }
}
