//! What is kept on the disk: segments, who writes, seals and removes them, and how much room there is.

pub(crate) mod keeper;
pub(crate) mod segment;
pub(crate) mod space;
pub(crate) mod storage;
