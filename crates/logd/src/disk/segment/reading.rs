//! Reads streams, plain and packed, for `cat`, `tail` and `verify`.

pub(crate) mod reader;
pub(crate) mod source;
pub(crate) mod unpack;
pub(crate) mod view;
