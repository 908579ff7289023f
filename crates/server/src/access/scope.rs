//! What a key may do.

use std::net::IpAddr;
use std::sync::Arc;

use runyard_core::ids::WorkerId;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// See tasks, events, statistics, configuration.
    Read,
    /// Submit, change, cancel and retry tasks; set and stop sessions; make and change schedules.
    Submit,
    /// Submit tasks that run a program on this machine (kinds `process` and `docker`). Includes submit.
    Exec,
    /// Register workers, and nothing else: a join token.
    Worker,
    /// Everything, keys and configuration too.
    Admin,
}

impl Scope {
    pub const ALL: [Scope; 5] = [Scope::Read, Scope::Submit, Scope::Exec, Scope::Worker, Scope::Admin];

    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Submit => "submit",
            Scope::Exec => "exec",
            Scope::Worker => "worker",
            Scope::Admin => "admin",
        }
    }

    pub fn parse(text: &str) -> Option<Scope> {
        Scope::ALL.into_iter().find(|scope| scope.as_str() == text)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scopes(u8);

impl Scopes {
    pub fn all() -> Scopes {
        Scopes::from_iter([Scope::Admin])
    }

    pub fn allow(self, scope: Scope) -> bool {
        let has = |scope: Scope| self.0 & (1 << scope as u8) != 0;
        has(scope) || has(Scope::Admin) || (scope == Scope::Submit && has(Scope::Exec))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Scopes {
        Scopes(scopes.into_iter().fold(0, |bits, scope| bits | 1 << scope as u8))
    }
}

/// Whoever sent a request, once its key was found.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    pub scopes: Scopes,
    /// Whose work it may see and touch.
    pub agents: Binding,
    pub actor: Actor,
    /// Set for the key of a worker, which has no scopes: it opens what is this worker's.
    pub worker: Option<WorkerId>,
    /// Set for a node that introduces its own worker.
    pub joins_as: Option<WorkerId>,
}

impl Caller {
    /// Nobody asked for a key: everything is allowed.
    pub fn unchecked() -> Caller {
        Caller { scopes: Scopes::all(), ..Caller::default() }
    }

    pub fn may_act_for(&self, agent: &str) -> bool {
        self.agents.allows_agent(agent)
    }
}

/// Who it was, for the audit log.
#[derive(Clone, Debug, Default)]
pub struct Actor {
    /// None where no key is asked for.
    pub key: Option<Arc<KeyLabel>>,
    pub address: Option<IpAddr>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyLabel {
    pub id: String,
    pub name: String,
}

/// The agents a key is bound to, or all of them.
#[derive(Clone, Debug, Default)]
pub struct Binding(Option<Arc<[String]>>);

impl Binding {
    pub fn to(agents: Option<&[String]>) -> Binding {
        Binding(agents.map(Into::into))
    }

    pub fn is_bound(&self) -> bool {
        self.0.is_some()
    }

    /// The agent, where it is bound to a single one.
    pub fn only(&self) -> Option<&str> {
        match self.0.as_deref() {
            Some([agent]) => Some(agent),
            _ => None,
        }
    }

    pub fn names(&self) -> &[String] {
        self.0.as_deref().unwrap_or_default()
    }

    pub fn allows_agent(&self, agent: &str) -> bool {
        self.0.as_ref().is_none_or(|agents| agents.iter().any(|own| own == agent))
    }

    /// A message may interrupt, steer or drop whatever its session holds, so a bound key is kept to sessions that are named
    /// after its agents: `bot`, `bot/…`. The slash is in no agent's name, so no name is the beginning of another's.
    pub fn allows_session(&self, key: &str) -> bool {
        let is_of =
            |own: &String| key.strip_prefix(own.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        self.0.as_ref().is_none_or(|agents| agents.iter().any(is_of))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_is_everything_and_exec_is_submit() {
        assert!(Scope::ALL.into_iter().all(|scope| Scopes::all().allow(scope)));
        let exec = Scopes::from_iter([Scope::Exec]);
        assert!(exec.allow(Scope::Submit) && exec.allow(Scope::Exec));
        assert!(!exec.allow(Scope::Read) && !exec.allow(Scope::Admin) && !exec.allow(Scope::Worker));
        let join = Scopes::from_iter([Scope::Worker]);
        assert_eq!(Scope::ALL.into_iter().filter(|scope| join.allow(*scope)).collect::<Vec<_>>(), [Scope::Worker]);
        let submit = Scopes::from_iter([Scope::Submit]);
        assert!(!submit.allow(Scope::Exec));
    }

    #[test]
    fn a_bound_key_has_the_sessions_that_are_named_after_its_agents() {
        let bound = Binding::to(Some(&["bot".to_owned(), "a.b".to_owned()]));
        for (key, allowed) in [
            ("bot", true),
            ("bot/telegram/7", true),
            ("a.b/x", true),
            ("bot2/x", false),
            ("bot:7", false),
            ("agent:bot:7", false),
            ("a", false),
            ("/bot", false),
            ("", false),
        ] {
            assert_eq!(bound.allows_session(key), allowed, "{key}");
            assert!(Binding::default().allows_session(key));
        }
        assert!(bound.allows_agent("bot") && !bound.allows_agent("bot/x") && bound.only().is_none());
        assert_eq!(Binding::to(Some(&["bot".to_owned()])).only(), Some("bot"));
    }
}
