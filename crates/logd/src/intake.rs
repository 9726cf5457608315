//! `--http-intake`, `--relp-intake` and `--fluent-intake`: lines by the protocols of other programs, answered when they
//! are stored.
//!
//! Few programs speak the daemon's own protocol. A tokio runtime (`server`) accepts connections (`listener`) and serves
//! them by what is spoken on their port (`http`; `relp` and `fluent` over `stream`). The depot, a thread, validates and
//! stores the lines, by the rules and the storage of all other connections, on a `ringwise::Ring` that the runtime
//! drives. It has a stream of its own, after those of the daemon's threads.
//!
//! It does not number lines: a client that got no answer sends them again, and its lines may then be stored twice, unless
//! its protocol lets that be recognised (`recent`).

mod depot;
mod flights;
mod fluent;
pub(crate) mod http;
mod listener;
mod recent;
mod relp;
mod server;
mod shared;
mod stream;
mod trial;

pub(crate) use depot::Parts;
pub(crate) use recent::{Lately, Recent};
pub(crate) use server::{Intake, Order, Protocol};
pub(crate) use trial::Trial;

use crate::session::connection::Limits;

/// What a session of RELP makes of bytes in pieces, for fuzzers.
pub(crate) fn try_relp<'a>(pieces: impl Iterator<Item = &'a [u8]>, limits: &Limits) -> Trial {
    trial::talk::<relp::Session>(pieces, limits.of_each(), limits.line_max)
}

/// What a connection of Fluent Forward makes of them.
pub(crate) fn try_fluent<'a>(pieces: impl Iterator<Item = &'a [u8]>, limits: &Limits) -> Trial {
    trial::talk::<fluent::Session>(pieces, limits.of_each(), limits.line_max)
}
