//! What the samples of rows say: rows in sections, verdicts, gains, reports, and results that were saved.

pub mod gain;
pub mod offline;
pub mod report;
pub mod resumed;
pub mod row;
pub mod section;
pub mod verdict;
