//! Reads the closing line of a test binary.

use crate::step::Outcome;

/// `test result: ok. 12 passed; 0 failed; 0 ignored; …`
pub fn test_result(line: &str) -> Option<Outcome> {
    let rest = line.trim().strip_prefix("test result: ")?;
    let number = |word: &str| {
        let before = rest.split(word).next()?;
        before.split_whitespace().last()?.parse().ok()
    };
    Some(Outcome { n_passed: number(" passed")?, n_failed: number(" failed")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_is_counted() {
        let outcome = test_result("test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; finished in 0.1s");
        let outcome = outcome.expect("it is a closing line");
        assert_eq!((outcome.n_passed, outcome.n_failed), (12, 3));
        assert!(test_result("running 3 tests").is_none());
    }
}
