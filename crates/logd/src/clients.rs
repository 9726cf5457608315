//! Clients: addresses, names, tokens and tenants.
//!
//! Nothing here reads from a socket.

pub(crate) mod addresses;
pub(crate) mod names;
pub(crate) mod refusal;
pub(crate) mod tenants;
pub(crate) mod tokens;
