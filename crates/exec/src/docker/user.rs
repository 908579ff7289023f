//! Who runs in a container, so that it can write to its working directory and the worker can remove what it leaves there.
//!
//! An ordinary user who runs a worker gives the container its own number. Root does not: the container gets the number of
//! nobody, and the directory is given to it before the start; root can take everything away again. An engine without root
//! shows its own user as root inside.

use std::fs;
use std::io;
use std::os::unix::fs::lchown;
use std::path::Path;

use rustix::process::{getegid, geteuid};

use super::engine::EngineFacts;
use crate::outcome::{Class, Failure};
use crate::payload::User;

/// Of nobody, on every Linux.
const NOBODY: User = User { uid: 65534, gid: 65534 };
const ROOT: User = User { uid: 0, gid: 0 };

/// Whom a container runs as, seen from inside.
pub(super) fn choose(asked: Option<User>, engine: &EngineFacts) -> Result<User, Failure> {
    let own = User { uid: geteuid().as_raw(), gid: getegid().as_raw() };
    choose_for(own, asked, engine.is_rootless)
}

fn choose_for(own: User, asked: Option<User>, is_rootless: bool) -> Result<User, Failure> {
    let usual = match (is_rootless, own.uid) {
        (true, _) => ROOT,
        (false, 0) => NOBODY,
        (false, _) => own,
    };
    match asked {
        None => Ok(usual),
        Some(asked) if own.uid == 0 && !is_rootless => Ok(asked),
        Some(asked) if asked.uid == usual.uid => Ok(asked),
        Some(asked) => {
            let (uid, usual) = (asked.uid, usual.uid);
            let message = format!(
                "payload.user: {uid} would leave files that this worker cannot remove; only {usual}, or a worker that runs \
                 as root, will do"
            );
            Err(Failure::work(Class::Permanent, message))
        }
    }
}

/// Makes the working directory the user's, where that is possible and needed. Nothing has run in it yet.
pub(super) fn hand_over(work_dir: &Path, user: User, engine: &EngineFacts) -> io::Result<()> {
    if !geteuid().is_root() || engine.is_rootless || user == ROOT {
        return Ok(());
    }
    let mut folders = vec![work_dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                lchown(entry.path(), Some(user.uid), Some(user.gid))?;
            }
        }
        lchown(&folder, Some(user.uid), Some(user.gid))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_runs_in_a_container_leaves_what_the_worker_can_remove() {
        let user = |uid| User { uid, gid: uid };
        let chosen = |own, asked: Option<u32>, rootless| choose_for(user(own), asked.map(user), rootless).ok();
        assert_eq!(chosen(1000, None, false), Some(user(1000)));
        assert_eq!(chosen(1000, Some(1000), false), Some(user(1000)));
        assert_eq!(chosen(1000, Some(0), false), None);
        assert_eq!(chosen(0, None, false), Some(NOBODY));
        assert_eq!(chosen(0, Some(7), false), Some(user(7)));
        assert_eq!(chosen(0, Some(0), false), Some(ROOT));
        assert_eq!(chosen(1000, None, true), Some(ROOT));
        assert_eq!(chosen(1000, Some(1000), true), None);
    }
}
