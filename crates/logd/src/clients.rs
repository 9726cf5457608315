//! Who clients are: their addresses, the names and tokens that they show, and the tenant that each belongs to.
//!
//! Nothing here reads from a socket.

pub(crate) mod addresses;
pub(crate) mod names;
pub(crate) mod refusal;
pub(crate) mod tenants;
pub(crate) mod tokens;
