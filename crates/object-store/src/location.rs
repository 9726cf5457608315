//! Locations of objects as names of files.
//!
//! The segments of a location are the names on disk, byte for byte: `%2F` in a location stays these three
//! characters. A location has no segment `..`, because [`Path`] cannot have one.

use object_store::{
    Error, Result,
    path::{self, Path},
};

/// A location that may be the name of an object, in two parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name<'a> {
    /// The directory, relative to the store's; empty for the store's own.
    pub(crate) parent: &'a str,
    /// The file in it.
    pub(crate) file: &'a str,
}

/// Splits a location.
///
/// # Errors
///
/// [`InvalidPath`](Error::InvalidPath) for the root and for names of staged files.
pub(crate) fn name(location: &Path) -> Result<Name<'_>> {
    let (parent, file) = location.as_ref().rsplit_once('/').unwrap_or(("", location.as_ref()));
    if file.is_empty() || is_staged(file) {
        let path = location.as_ref().into();
        return Err(Error::InvalidPath { source: path::Error::InvalidPath { path } });
    }
    Ok(Name { parent, file })
}

/// Whether a file's name is one of those that uploads have before they are complete: `#` and digits at
/// the end, as in `LocalFileSystem`.
pub(crate) fn is_staged(file: &str) -> bool {
    file.split_once('#').is_some_and(|(_, suffix)| {
        !suffix.is_empty() && suffix.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_staged_files_are_no_objects() {
        for staged in ["#1", "a#1", "a#0099"] {
            assert!(is_staged(staged));
            assert!(name(&Path::parse(format!("x/{staged}")).unwrap()).is_err());
        }
        for own in ["a", "a#", "#", "a#1b", "a#1#2"] {
            assert!(!is_staged(own), "{own}");
        }
        assert!(name(&Path::ROOT).is_err());
    }
}
