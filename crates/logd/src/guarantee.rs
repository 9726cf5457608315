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
    /// It is on stable storage, and Kafka has it: it survives the loss of this machine
    Replicated,
}

impl Guarantee {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Guarantee::None => "none",
            Guarantee::Written => "written",
            Guarantee::Durable => "durable",
            Guarantee::Replicated => "replicated",
        }
    }
}
