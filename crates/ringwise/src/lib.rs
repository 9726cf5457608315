//! Completion-based I/O.
