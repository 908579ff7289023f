//! What the drivers' migrations have in common. A step that was ever released is never changed: its checksum is kept beside
//! its number, and a database that was made by another text is refused.

use crate::store::{Error, Result};

/// Are the recorded steps the first ones of those this program knows?
pub fn verify(migrations: &[&str], recorded: &[i64]) -> Result<()> {
    let (found, known) = (recorded.len() as u32, migrations.len() as u32);
    if found > known {
        return Err(Error::TooNew { found, known });
    }
    for (index, (sql, recorded)) in migrations.iter().zip(recorded).enumerate() {
        if checksum(sql) != *recorded {
            let detail = format!("migration {} was made by another text than this program's", index + 1);
            return Err(Error::Damaged { what: "the database", detail });
        }
    }
    Ok(())
}

/// FNV-1a: it guards against mistakes, not against malice.
pub fn checksum(sql: &str) -> i64 {
    let start = 0xcbf2_9ce4_8422_2325_u64;
    sql.bytes().fold(start, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)) as i64
}
