//! A transaction that stays open, in a session of its own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

pub struct Transaction {
    psql: Child,
}

impl Transaction {
    /// The statements begin it and print something; this comes back when they have.
    pub fn begin(url: &str, sql: &str) -> Transaction {
        let mut psql = Command::new("psql")
            .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", "--dbname", url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(psql.stdin.as_mut().unwrap(), "{sql}").unwrap();
        let mut line = String::new();
        BufReader::new(psql.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the transaction did not begin");
        Transaction { psql }
    }

    /// Rolls it back.
    pub fn end(mut self) {
        drop(self.psql.stdin.take());
        self.psql.wait().unwrap();
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let _ = self.psql.kill();
        let _ = self.psql.wait();
    }
}
