//! How much may still be staged, and what keeps an attempt from being staged.

use std::io;

use super::rules::WorkspaceRules;
use crate::outcome::{Class, Failure};

/// Why an attempt does not start.
#[derive(Debug)]
pub(crate) enum Hindrance {
    Failed(Failure),
    /// It is not wanted any more.
    Halted,
}

impl From<Failure> for Hindrance {
    fn from(failure: Failure) -> Hindrance {
        Hindrance::Failed(failure)
    }
}

/// A disk that is full, a directory that cannot be entered: this machine's fault.
impl From<io::Error> for Hindrance {
    fn from(error: io::Error) -> Hindrance {
        Failure::worker(format!("cannot be stored: {error}")).into()
    }
}

impl Hindrance {
    /// The next attempt would meet the same.
    pub(crate) fn for_good(message: impl Into<String>) -> Hindrance {
        Failure::work(Class::Permanent, message).into()
    }

    /// Says of what it speaks.
    pub(crate) fn of(self, subject: &str) -> Hindrance {
        match self {
            Hindrance::Failed(failure) => {
                Hindrance::Failed(Failure { message: format!("{subject}: {}", failure.message), ..failure })
            }
            Hindrance::Halted => Hindrance::Halted,
        }
    }
}

/// Counts what is really written; what a header promises counts for nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    bytes_max: u64,
    bytes_left: u64,
    entries_max: u64,
    entries_left: u64,
}

impl Budget {
    pub(crate) fn new(rules: &WorkspaceRules) -> Budget {
        Budget {
            bytes_max: rules.files_bytes_max,
            bytes_left: rules.files_bytes_max,
            entries_max: rules.files_max,
            entries_left: rules.files_max,
        }
    }

    pub(crate) fn take_bytes(&mut self, n_bytes: usize) -> Result<(), Hindrance> {
        let left = self.bytes_left.checked_sub(n_bytes as u64);
        self.bytes_left = left.ok_or_else(|| {
            let max = self.bytes_max;
            Hindrance::for_good(format!(
                "the files of one attempt may have {max} bytes (process.filesBytesMax), and these are more"
            ))
        })?;
        Ok(())
    }

    /// Files and directories alike.
    pub(crate) fn take_entries(&mut self, n_entries: u64) -> Result<(), Hindrance> {
        let left = self.entries_left.checked_sub(n_entries);
        self.entries_left = left.ok_or_else(|| {
            let max = self.entries_max;
            Hindrance::for_good(format!(
                "one attempt may have {max} files and directories (process.filesMax), and these are more"
            ))
        })?;
        Ok(())
    }

    /// Would so many still fit?
    pub(crate) fn check_entries(mut self, n_entries: u64) -> Result<(), Hindrance> {
        self.take_entries(n_entries)
    }
}
