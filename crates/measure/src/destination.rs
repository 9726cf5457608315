//! Files and directories that results go to: checked before a measurement, and written after it.
//!
//! A check neither makes nor changes anything. Its error says why on one line, and what to do after `;`. A caller puts
//! the option and the path before it.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use rustix::fs::{Access, access};

use crate::fact::plain;

/// Checks that a file can be written: a new one, one that is replaced, or a stream.
///
/// # Errors
///
/// Returns why not, and what to do.
pub fn check_file(path: &Path) -> Result<(), String> {
    if path.is_dir() {
        return Err("is a directory; name a file".to_owned());
    }
    if is_stream(path) {
        return may_write(path).map_err(|why| format!("{why}; name another file"));
    }
    check_parent(path, "name a file in an existing directory")
}

/// Checks that files can be written to a directory, which exists or can be made.
///
/// # Errors
///
/// Returns why not, and what to do.
pub fn check_new_directory(path: &Path) -> Result<(), String> {
    match path.exists() {
        true => check_directory(path),
        false => check_parent(path, "name a directory in an existing one"),
    }
}

/// Checks that files can be written to an existing directory.
///
/// # Errors
///
/// Returns why not, and what to do.
pub fn check_directory(path: &Path) -> Result<(), String> {
    if !path.is_dir() {
        let why = if path.exists() { "is not a directory" } else { "does not exist" };
        return Err(format!("{why}; name an existing directory"));
    }
    may_write(path).map_err(|why| format!("{why}; name a directory that you may write to"))
}

fn check_parent(path: &Path, advice: &str) -> Result<(), String> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let name = parent.display();
    if !parent.exists() {
        return Err(format!("the directory {name} does not exist; {advice}"));
    }
    if !parent.is_dir() {
        return Err(format!("{name} is not a directory; {advice}"));
    }
    may_write(parent)
        .map_err(|why| format!("the directory {name}: {why}; name one that you may write to"))
}

fn may_write(path: &Path) -> Result<(), String> {
    access(path, Access::WRITE_OK).map_err(|errno| plain(&errno.into()))
}

/// Returns whether a path is a stream, such as /dev/stdout, /dev/null or a FIFO. A stream is not replaced, and what
/// was written to it cannot be read again.
pub fn is_stream(path: &Path) -> bool {
    // Names of descriptors that are open, which may be of files.
    const DESCRIPTORS: [&str; 4] = ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc"];
    let is_descriptor = || DESCRIPTORS.iter().any(|name| path.starts_with(name));
    path.metadata().is_ok_and(|found| !found.is_dir() && (!found.is_file() || is_descriptor()))
}

/// Writes a file so that it is there whole or not at all. A stream gets the text.
///
/// # Errors
///
/// Returns the error of the operating system. Nothing of a file stays behind.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    if is_stream(path) {
        // Behind /dev/stdout may be a file, which has other output already.
        return fs::OpenOptions::new().append(true).open(path)?.write_all(text.as_bytes());
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&part)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        // It may not have been made.
        let _ = fs::remove_file(&part);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_is_told_with_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let below = |name: &str| directory.path().join(name);
        fs::write(below("file"), "old").unwrap();
        let top = directory.path().display();
        assert_eq!(check_file(&below("new")), Ok(()));
        assert_eq!(check_file(&below("file")), Ok(()));
        assert_eq!(check_file(Path::new("a-name-alone")), Ok(()));
        assert_eq!(check_file(directory.path()), Err("is a directory; name a file".to_owned()));
        let advice = "name a file in an existing directory";
        assert_eq!(
            check_file(&below("nope/x")),
            Err(format!("the directory {top}/nope does not exist; {advice}"))
        );
        assert_eq!(
            check_file(&below("file/x")),
            Err(format!("{top}/file is not a directory; {advice}"))
        );
        assert_eq!(fs::read_to_string(below("file")).unwrap(), "old");
        assert!(!below("new").exists());
    }

    #[test]
    fn a_directory_exists_or_can_be_made() {
        let directory = tempfile::tempdir().unwrap();
        let below = |name: &str| directory.path().join(name);
        fs::write(below("file"), "").unwrap();
        assert_eq!(check_directory(directory.path()), Ok(()));
        assert_eq!(check_new_directory(directory.path()), Ok(()));
        assert_eq!(check_new_directory(&below("new")), Ok(()));
        let existing = |why: &str| Err(format!("{why}; name an existing directory"));
        assert_eq!(check_directory(&below("new")), existing("does not exist"));
        assert_eq!(check_directory(&below("file")), existing("is not a directory"));
        assert_eq!(check_new_directory(&below("file")), existing("is not a directory"));
        let nope = below("nope");
        assert_eq!(
            check_new_directory(&nope.join("x")),
            Err(format!(
                "the directory {} does not exist; name a directory in an existing one",
                nope.display()
            ))
        );
    }

    #[test]
    fn a_stream_is_written_to_and_stays() {
        for path in ["/dev/null", "/dev/stderr"].map(Path::new) {
            assert!(is_stream(path));
            let kind = || path.symlink_metadata().unwrap().file_type();
            let before = kind();
            assert_eq!(check_file(path), Ok(()));
            write(path, "").unwrap();
            assert_eq!(kind(), before);
        }
    }

    #[test]
    fn a_file_that_cannot_be_replaced_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let taken = directory.path().join("taken");
        fs::create_dir(&taken).unwrap();
        fs::write(taken.join("x"), "").unwrap();
        write(&taken, "{}").unwrap_err();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        let good = directory.path().join("good.json");
        write(&good, "{}").unwrap();
        write(&good, "{}\n").unwrap();
        assert_eq!(fs::read_to_string(good).unwrap(), "{}\n");
    }
}
