//! Connections to brokers: plain or by TLS, and logged in if brokers want that.
//!
//! Reading order: `security` (the options), `socket` (deadlines), `transport` (bytes), `connection` (requests and
//! answers), `login` and `scram`.

mod connection;
mod login;
mod scram;
mod security;
mod socket;
mod transport;

pub(super) use connection::{ANSWER_TIME, CLOSED, Connection, trouble};
pub(super) use login::connect;
#[cfg(test)]
pub(super) use scram::Hash;
pub(super) use scram::try_login;
pub(crate) use security::{Login, Mechanism, Security, Tls};
