//! The doctor.
