//! What a thread counts of lines beyond what all generators count.

/// What a thread counts.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Lines that the target rejected, and the first of them, in words.
    pub rejected: u64,
    pub rejection: Option<String>,
    /// Calls that send.
    pub writes: u64,
    /// What the target promised.
    pub promise: Option<String>,
    /// Connections by number, and how many lines each sent.
    pub sent_by: Vec<(u64, u64)>,
    /// When the last connection was over.
    pub over_ns: u64,
}
