//! Segments on the disk: the code that writes, seals and removes them, and the floor of free space.

pub(crate) mod keeper;
pub(crate) mod segment;
pub(crate) mod space;
pub(crate) mod storage;
pub(crate) mod submission;
