//! Licence expressions: `(MIT OR Apache-2.0) AND Unicode-3.0`.

use std::collections::BTreeSet;

/// May it be used with these licences alone?
pub fn is_allowed(expression: &str, allow: &BTreeSet<&str>) -> bool {
    // Older crates write `MIT/Apache-2.0` for OR.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = Words { words: spaced.split_whitespace().collect(), at: 0 };
    let verdict = words.any(allow);
    verdict == Some(true) && words.at == words.words.len()
}

struct Words<'a> {
    words: Vec<&'a str>,
    at: usize,
}

impl Words<'_> {
    fn takes(&mut self, word: &str) -> bool {
        let is_next = self.words.get(self.at) == Some(&word);
        self.at += usize::from(is_next);
        is_next
    }

    fn any(&mut self, allow: &BTreeSet<&str>) -> Option<bool> {
        let mut is_allowed = self.all(allow)?;
        while self.takes("OR") {
            is_allowed |= self.all(allow)?;
        }
        Some(is_allowed)
    }

    fn all(&mut self, allow: &BTreeSet<&str>) -> Option<bool> {
        let mut is_allowed = self.one(allow)?;
        while self.takes("AND") {
            is_allowed &= self.one(allow)?;
        }
        Some(is_allowed)
    }

    /// A licence, one with an exception, or an expression in parentheses; none where there should be one.
    fn one(&mut self, allow: &BTreeSet<&str>) -> Option<bool> {
        if self.takes("(") {
            let inner = self.any(allow)?;
            return self.takes(")").then_some(inner);
        }
        let licence = *self.words.get(self.at)?;
        self.at += 1;
        if !self.takes("WITH") {
            return Some(allow.contains(licence));
        }
        let exception = *self.words.get(self.at)?;
        self.at += 1;
        Some(allow.contains(format!("{licence} WITH {exception}").as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_read_as_it_is_meant() {
        let allow = BTreeSet::from(["MIT", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"]);
        for yes in
            ["MIT", "GPL-3.0 OR MIT", "GPL-3.0/MIT", "(MIT OR Zlib) AND Unicode-3.0", "Apache-2.0 WITH LLVM-exception"]
        {
            assert!(is_allowed(yes, &allow), "{yes}");
        }
        for no in
            ["", "GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0", "(MIT", "MIT MIT", "OR", "MIT OR Zlib AND", "Zlib WITH x"]
        {
            assert!(!is_allowed(no, &allow), "{no}");
        }
    }
}
