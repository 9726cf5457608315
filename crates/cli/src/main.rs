//! The `ringwise` command.
fn main() {}
