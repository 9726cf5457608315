//! What an acknowledgement stands for.

use clap::ValueEnum;

/// What is true of a line when its acknowledgement is sent. Each promises what those before it do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Guarantee {
    /// Nothing: no acknowledgement is sent
    None,
    /// The kernel has the line: it survives a crash of the daemon, not of the machine
    Written,
    /// The line is on stable storage: it survives a power failure
    Durable,
    /// The line is on stable storage and in Kafka: it survives the loss of this machine
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
