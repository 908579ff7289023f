//! How a session is shown.

use runyard_core::session::{Context, Mode, Overflow, Rules, Session, SessionsConfig, Settings, Usage};
use runyard_wire::{
    SessionContext, SessionCounts, SessionDrop, SessionMode, SessionRules, SessionSettings, SessionView, Timestamp,
    UsageView,
};

pub fn session_view(session: &Session, config: &SessionsConfig) -> SessionView {
    SessionView {
        key: session.key.to_string(),
        settings: settings(&session.own),
        effective: rules(&session.rules(config)),
        counts: counts(session),
        lane: session.lane.to_string(),
        generation: session.generation,
        cutoff: session.cutoff.map(Timestamp),
        context: session.context.map(context),
        messages: session.n_messages,
        created_at: Timestamp(session.created_at),
        last_used_at: Timestamp(session.last_at),
    }
}

pub fn counts(session: &Session) -> SessionCounts {
    SessionCounts { running: session.n_held, waiting: session.n_waiting(), debouncing: session.n_debouncing }
}

pub fn usage_view(usage: &Usage) -> UsageView {
    UsageView {
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        context_tokens: usage.context_tokens,
        context_window: usage.context_window,
    }
}

fn settings(own: &Settings) -> SessionSettings {
    SessionSettings {
        mode: own.mode.map(mode),
        cap: own.cap,
        drop: own.overflow.map(drop),
        debounce_ms: own.debounce_ms,
        max_wait_ms: own.wait_ms_max,
        max_concurrent: own.max_concurrent,
    }
}

fn rules(rules: &Rules) -> SessionRules {
    SessionRules {
        mode: mode(rules.mode),
        cap: rules.cap,
        drop: drop(rules.overflow),
        debounce_ms: rules.debounce_ms,
        max_wait_ms: rules.wait_ms_max,
        max_concurrent: rules.max_concurrent,
    }
}

fn context(context: Context) -> SessionContext {
    SessionContext { context_tokens: context.tokens, context_window: context.window }
}

fn mode(mode: Mode) -> SessionMode {
    match mode {
        Mode::Queue => SessionMode::Queue,
        Mode::Followup => SessionMode::Followup,
        Mode::Collect => SessionMode::Collect,
        Mode::Steer => SessionMode::Steer,
        Mode::Interrupt => SessionMode::Interrupt,
        Mode::Reject => SessionMode::Reject,
    }
}

fn drop(overflow: Overflow) -> SessionDrop {
    match overflow {
        Overflow::Old => SessionDrop::Old,
        Overflow::New => SessionDrop::New,
        Overflow::Summarize => SessionDrop::Summarize,
    }
}

#[cfg(test)]
mod tests {
    use runyard_core::session::SessionId;

    use super::*;

    #[test]
    fn words_survive_the_way_in_and_out() {
        for one in Mode::ALL {
            assert_eq!((crate::config::mode(mode(one)), mode(one).as_str()), (one, one.as_str()));
        }
        for one in Overflow::ALL {
            assert_eq!((crate::config::overflow(drop(one)), drop(one).as_str()), (one, one.as_str()));
        }
    }

    #[test]
    fn own_settings_and_those_in_force_are_told_apart() {
        let mut session = Session::new(SessionId(1), "k".into(), "main".into(), 5);
        session.own.mode = Some(Mode::Collect);
        session.own.max_concurrent = Some(4);
        session.context = Some(Context { tokens: 6, window: 10 });
        (session.n_live, session.n_held, session.n_debouncing) = (7, 2, 1);
        let view = session_view(&session, &SessionsConfig::default());
        assert_eq!((view.settings.mode, view.settings.cap), (Some(SessionMode::Collect), None));
        assert_eq!((view.settings.max_concurrent, view.effective.max_concurrent), (Some(4), 1), "its context is full");
        assert_eq!((view.effective.cap, view.effective.drop), (10, SessionDrop::Old));
        assert_eq!(view.counts, SessionCounts { running: 2, waiting: 4, debouncing: 1 });
    }
}
