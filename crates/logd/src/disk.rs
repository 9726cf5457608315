//! Segments on the disk: the code that writes, seals and removes them, the floor of free space, and small files beside
//! them.

pub(crate) mod identity;
pub(crate) mod keeper;
pub(crate) mod replacement;
pub(crate) mod segment;
pub(crate) mod space;
pub(crate) mod storage;
pub(crate) mod submission;
