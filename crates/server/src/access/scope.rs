//! What a key may do.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// See tasks, events, statistics, configuration.
    Read,
    /// Submit, change, cancel and retry tasks; set and stop sessions.
    Submit,
    /// Submit tasks that run a program on this machine (kinds `process` and `docker`). Includes submit.
    Exec,
    /// Everything, keys and configuration too.
    Admin,
}

impl Scope {
    pub const ALL: [Scope; 4] = [Scope::Read, Scope::Submit, Scope::Exec, Scope::Admin];

    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Submit => "submit",
            Scope::Exec => "exec",
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
#[derive(Clone, Debug)]
pub struct Caller {
    pub scopes: Scopes,
    /// The only agents it may act for; `None` is all.
    pub agents: Option<Arc<[String]>>,
}

impl Caller {
    /// Nobody asked for a key: everything is allowed.
    pub fn unchecked() -> Caller {
        Caller { scopes: Scopes::all(), agents: None }
    }

    pub fn may_act_for(&self, agent: &str) -> bool {
        self.agents.as_ref().is_none_or(|agents| agents.iter().any(|own| own == agent))
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
        assert!(!exec.allow(Scope::Read) && !exec.allow(Scope::Admin));
        let submit = Scopes::from_iter([Scope::Submit]);
        assert!(!submit.allow(Scope::Exec));
    }
}
