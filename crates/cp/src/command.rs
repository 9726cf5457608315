//! The command: what was typed, what it comes to, and the help. It copies nothing.

pub(crate) mod command_line;
pub(crate) mod help;
pub(crate) mod options;
