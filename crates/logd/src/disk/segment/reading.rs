//! Reads streams, plain and packed, for `cat`, `tail`, `query`, `verify` and the status page.

pub(crate) mod cursor;
pub(crate) mod newest;
pub(crate) mod reader;
pub(crate) mod source;
pub(crate) mod unpack;
pub(crate) mod view;
pub(crate) mod window;
