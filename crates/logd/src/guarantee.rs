//! What an acknowledgement stands for.

use clap::ValueEnum;

/// What is true of a line when its acknowledgement is sent. Each promises what those before it do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Guarantee {
    /// Nothing, and none is sent
    None,
    /// The kernel has it: it survives the daemon's end, not the machine's
    Written,
    /// It is on stable storage: it survives a loss of power
    Durable,
}

impl Guarantee {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Guarantee::None => "none",
            Guarantee::Written => "written",
            Guarantee::Durable => "durable",
        }
    }
}
