//! The rules of sessions: their keys, and the settings a message or a request gives them.

use runyard_core::event::NewMember;
use runyard_core::name::Name;
use runyard_core::session::Settings;
use runyard_wire::{SessionRequest, SessionSettings, Timestamp};

use super::fields::{self, Checked};
use crate::config;
use crate::problem::Invalid;

pub const SESSION_KEY_BYTES_MAX: usize = 256;
const KEY_RULE: &str = "must be 1 to 256 bytes without control characters";

/// A key is the caller's own text: it may hold anything that can be shown.
pub fn session_key(field: &str, key: &str) -> Checked<Name> {
    if key.is_empty() || key.len() > SESSION_KEY_BYTES_MAX || key.chars().any(char::is_control) {
        return Err(Invalid::new(field, KEY_RULE));
    }
    Ok(Name::new(key))
}

pub fn session_settings(asked: &SessionSettings) -> Checked<Settings> {
    at_least_one("cap", asked.cap)?;
    at_least_one("maxConcurrent", asked.max_concurrent)?;
    fields::ms("debounceMs", 0, asked.debounce_ms)?;
    fields::ms("maxWaitMs", 0, asked.max_wait_ms)?;
    Ok(Settings {
        mode: asked.mode.map(config::mode),
        cap: asked.cap,
        overflow: asked.drop.map(config::overflow),
        debounce_ms: asked.debounce_ms,
        wait_ms_max: asked.max_wait_ms,
        max_concurrent: asked.max_concurrent,
    })
}

/// The place in its session that a task asks for.
pub fn member(asked: &SessionRequest, sent_at: Option<Timestamp>) -> Checked<NewMember> {
    let key = session_key("session", &asked.key)?;
    let settings = session_settings(&asked.settings).map_err(|invalid| invalid.inside("session"))?;
    Ok(NewMember { key, settings, as_mode: None, sent_at: sent_at.map(Timestamp::as_ms) })
}

fn at_least_one(field: &str, n: Option<u32>) -> Checked<()> {
    if n == Some(0) { Err(Invalid::new(field, "must be at least 1")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use runyard_core::session::{Mode, Overflow};

    use super::*;

    #[test]
    fn a_key_is_any_short_text_that_can_be_shown() {
        for key in ["k", "agent:bot:telegram:group:-100/7", "ключ 🙂", &"k".repeat(256)] {
            assert_eq!(session_key("key", key).as_deref(), Ok(key));
        }
        for key in ["", "a\nb", "\u{7f}", &"k".repeat(257)] {
            assert_eq!(session_key("key", key).map_err(|invalid| invalid.field), Err("key".to_owned()), "{key:?}");
        }
    }

    #[test]
    fn settings_are_checked_and_named_from_outside() {
        let asked = |settings| SessionRequest { settings, ..SessionRequest::new("s") };
        let none = SessionSettings::default();
        for (settings, field) in [
            (SessionSettings { cap: Some(0), ..none }, "session.cap"),
            (SessionSettings { max_concurrent: Some(0), ..none }, "session.maxConcurrent"),
            (SessionSettings { debounce_ms: Some(u64::MAX), ..none }, "session.debounceMs"),
            (SessionSettings { max_wait_ms: Some(u64::MAX), ..none }, "session.maxWaitMs"),
        ] {
            let refused = member(&asked(settings), None).map_err(|invalid| invalid.field);
            assert_eq!(refused, Err(field.to_owned()));
        }
        let mode = Some(runyard_wire::SessionMode::Interrupt);
        let drop = Some(runyard_wire::SessionDrop::New);
        let taken = member(&asked(SessionSettings { mode, drop, ..none }), Some(Timestamp(7))).expect("valid");
        assert_eq!((taken.settings.mode, taken.settings.overflow), (Some(Mode::Interrupt), Some(Overflow::New)));
        assert_eq!((taken.sent_at, taken.as_mode, &*taken.key), (Some(7), None, "s"));
    }
}
