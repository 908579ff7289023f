//! What is between the network and the routes: who may connect, how often they may ask, and how slow they may be.
//!
//! [`serve`] accepts; each connection passes the [`Doors`] (how many), optionally [`tls`], and is [`Paced`]: a client that
//! does not read is cut off. A request passes the [`rate`], its body the [`Bodies`], and where its answer does not end,
//! [`Streams`].

mod address;
mod bodies;
mod doors;
mod headers;
mod listen;
mod paced;
mod rate;
mod streams;
pub mod tls;
mod trace;

pub use address::{Peer, client_address, network};
pub use bodies::{Bodies, BodyPass};
pub use doors::Doors;
pub use headers::{request_id, secure};
pub use listen::{Front, accept, serve};
pub use rate::RateLimits;
pub use streams::{StreamPass, Streams};
pub use trace::traceparent;
