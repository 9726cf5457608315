//! Names: of files in open directories, of what a directory holds, and of copies that are not finished.

pub(crate) mod listing;
pub(crate) mod pair;
pub(crate) mod place;
pub(crate) mod temporary;
