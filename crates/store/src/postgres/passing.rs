//! What waiting may mend, of all that can keep a node from its database. A node that starts waits for the one and ends at
//! the other: with a wrong password it would wait for ever, and nobody would look for the reason.

use std::error::Error as StdError;
use std::io;

use tokio_postgres::error::DbError;

use crate::store::Error;

/// Whether the same may go well later without anybody changing what this program was told.
pub fn is_passing(error: &Error) -> bool {
    match error {
        Error::Away { source, .. } => match source.downcast_ref::<tokio_postgres::Error>() {
            Some(error) => is_of_the_network(error),
            // Nobody answered, or the server said that it comes or goes.
            None => true,
        },
        Error::Driver { source, .. } => {
            source.downcast_ref::<DbError>().is_some_and(|told| code_is_passing(told.code().code()))
        }
        Error::Conflict { .. }
        | Error::Fenced { .. }
        | Error::TooNew { .. }
        | Error::Locked { .. }
        | Error::Damaged { .. } => false,
    }
}

/// A connection that was not made, or broke. The library names other causes (no TLS where it is asked for, no password
/// where one is) as texts, and a certificate that was refused as an error inside of one of the network.
fn is_of_the_network(error: &tokio_postgres::Error) -> bool {
    match error.source() {
        None => true,
        Some(cause) => cause.downcast_ref::<io::Error>().is_some_and(|cause| !is_of_tls(cause)),
    }
}

fn is_of_tls(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

/// What the database answers with when it could do it at another time.
fn code_is_passing(code: &str) -> bool {
    // In classes: connections, rolled back because of others, resources such as disk and memory, intervention (a statement
    // that took too long, a server that stops or starts). Then a write on a standby, a lock, and a disk that fails.
    ["08", "40", "53", "57"].into_iter().any(|class| code.starts_with(class))
        || matches!(code, "25006" | "55P03" | "58030")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_database_cannot_do_now_passes_and_what_it_never_will_does_not() {
        let table = [
            ("08006", true, "connection failure"),
            ("25006", true, "read only: a standby"),
            ("40001", true, "serialization failure"),
            ("40P01", true, "deadlock"),
            ("53100", true, "disk full"),
            ("53200", true, "out of memory"),
            ("53300", true, "too many connections"),
            ("55P03", true, "lock not available"),
            ("57014", true, "statement timeout"),
            ("57P01", true, "shutting down"),
            ("57P03", true, "starting up, or in recovery"),
            ("58030", true, "io error"),
            ("28000", false, "no such role, or no entry in pg_hba.conf"),
            ("28P01", false, "wrong password"),
            ("3D000", false, "no such database"),
            ("3F000", false, "no such schema"),
            ("42501", false, "no right to do this"),
            ("42P01", false, "no such table"),
            ("0A000", false, "not supported"),
            ("XX001", false, "data corrupted"),
        ];
        for (code, is_so, what) in table {
            assert_eq!(code_is_passing(code), is_so, "{code}: {what}");
        }
    }

    #[test]
    fn what_is_not_of_the_connection_does_not_pass() {
        let damaged = Error::Damaged { what: "the database", detail: "it belongs to another program".into() };
        let locked = Error::Locked { path: "/d/runyard.db".into(), holder: None };
        let driver = Error::Driver { doing: "reading the address of the database", source: "no sslmode".into() };
        for error in
            [damaged, locked, driver, Error::TooNew { found: 7, known: 2 }, Error::Fenced { ours: 1, theirs: 2 }]
        {
            assert!(!is_passing(&error), "{error}");
        }
        assert!(is_passing(&Error::Away { doing: "connecting to the database", source: "no answer".into() }));
    }
}
