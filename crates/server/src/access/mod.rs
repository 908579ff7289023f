//! Who may do what. A job API without a key is remote code execution, so keys are on from the first start.
//!
//! [`KeyRing`] knows the keys (hashed) and their scopes, [`needed`] says what a route asks for, [`hosts`] keeps web pages
//! from reaching a loopback port by DNS rebinding.

pub mod hosts;
mod keys;
mod need;
mod scope;
mod used;

pub use keys::{ADMIN_KEY_FILE, Key, KeyError, KeyRing, NewKey, SETTING, write_key_file};
pub(crate) use keys::{hash, random_key};
pub use need::{Need, Reach, needed};
pub use scope::{Actor, Binding, Caller, KeyLabel, Scope, Scopes};
pub use used::{USED_SETTING, Used};
