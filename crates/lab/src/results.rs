//! Results: rows in sections, verdicts, gains, reports, and saved results files.

pub mod gain;
pub mod offline;
pub mod report;
pub mod resumed;
pub mod row;
pub mod section;
pub mod verdict;
