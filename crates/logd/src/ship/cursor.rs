//! The file that says how far each stream is shipped, so that a restart goes on from there.
//!
//! `ship.cursor` is a text: what it is, the destination, a line for each stream (its number and the next line to ship),
//! and a checksum. It is written to another name, synced and renamed. So it is always whole, and never ahead of the
//! destination's acknowledgements. What was acknowledged and is not in the file yet is shipped again after a crash.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{disk::replacement, error::LogdError};

const NAME: &str = "ship.cursor";
const TITLE: &str = "ringwise-ship 1";

/// How far each stream is shipped, as on stable storage.
#[derive(Debug)]
pub(crate) struct Cursor {
    directory: PathBuf,
    destination: String,
    /// The lines that the file has.
    lines: BTreeMap<u32, u64>,
    /// Those that the file will have.
    noted: BTreeMap<u32, u64>,
    /// When the file was written last, or was to be.
    kept_at: Instant,
}

impl Cursor {
    /// Reads the file of a directory: that of a destination, or of the former one whose place it takes. Without a file
    /// everything is still to be shipped.
    ///
    /// # Errors
    ///
    /// The file is damaged, or of another destination.
    pub(crate) fn open(
        directory: &Path,
        (destination, former): (&str, &str),
    ) -> Result<Cursor, LogdError> {
        let path = directory.join(NAME);
        let lines = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(LogdError::on(&path, &error)),
            Ok(text) => {
                let (found, lines) = parse(&text).ok_or_else(|| refused(&path, "it is damaged"))?;
                if found != destination && found != former {
                    return Err(refused(&path, &format!("it is of {found}, not of {destination}")));
                }
                lines
            }
        };
        let (directory, destination) = (directory.to_owned(), destination.to_owned());
        let (noted, kept_at) = (lines.clone(), Instant::now());
        Ok(Cursor { directory, destination, lines, noted, kept_at })
    }

    /// Returns the next line of a stream to ship, as stored.
    pub(crate) fn line(&self, stream: u32) -> u64 {
        self.lines.get(&stream).copied().unwrap_or(0)
    }

    /// Returns the next line of each stream of which something is shipped.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (u32, u64)> {
        self.lines.iter().map(|(stream, line)| (*stream, *line))
    }

    /// Notes the next line of a stream. If the file is older than this, all lines that were noted are stored durably.
    ///
    /// # Errors
    ///
    /// They could not be stored. The file has what it had before, or the new lines. It is tried again after the same
    /// time.
    pub(crate) fn keep(&mut self, stream: u32, line: u64, age: Duration) -> Result<(), LogdError> {
        self.noted.insert(stream, line);
        if self.noted == self.lines || self.kept_at.elapsed() < age {
            return Ok(());
        }
        self.kept_at = Instant::now();
        let text = text(&self.destination, &self.noted);
        replacement::write(&self.directory, NAME, text.as_bytes())?;
        self.lines.clone_from(&self.noted);
        Ok(())
    }
}

fn refused(path: &Path, why: &str) -> LogdError {
    let path = path.display();
    LogdError::Failed(format!(
        "{path}: {why}; remove the file to ship all stored lines, from the oldest on"
    ))
}

fn text(destination: &str, lines: &BTreeMap<u32, u64>) -> String {
    let mut text = format!("{TITLE}\n{destination}\n");
    for (stream, line) in lines {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{stream} {line}");
    }
    let checksum = crc32fast::hash(text.as_bytes());
    text + &format!("crc32 {checksum:08x}\n")
}

fn parse(text: &str) -> Option<(String, BTreeMap<u32, u64>)> {
    let (before, checksum) = text.split_at_checked(text.rfind("crc32 ")?)?;
    let checksum = checksum.strip_prefix("crc32 ")?.strip_suffix('\n')?;
    if u32::from_str_radix(checksum, 16).ok()? != crc32fast::hash(before.as_bytes()) {
        return None;
    }
    let mut all = before.lines();
    let destination = all.next().filter(|title| *title == TITLE).and_then(|_| all.next())?;
    let lines = all.map(|line| {
        let (stream, line) = line.split_once(' ')?;
        Some((stream.parse().ok()?, line.parse().ok()?))
    });
    Some((destination.to_owned(), lines.collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: (&str, &str) = ("kafka logs", "kafka logs exactly-once");

    fn open(directory: &Path) -> Result<Cursor, LogdError> {
        Cursor::open(directory, NAMES)
    }

    #[test]
    fn a_cursor_is_read_as_it_was_kept() {
        let directory = tempfile::tempdir().unwrap();
        let mut cursor = open(directory.path()).unwrap();
        assert_eq!((cursor.line(0), cursor.line(7)), (0, 0));
        let mut keep = |stream, line| cursor.keep(stream, line, Duration::ZERO).unwrap();
        keep(7, u64::MAX);
        keep(0, 5);
        keep(0, 6);
        let cursor = open(directory.path()).unwrap();
        assert_eq!((cursor.line(0), cursor.line(7), cursor.line(1)), (6, u64::MAX, 0));
        let error = Cursor::open(directory.path(), ("kafka others", "kafka others exactly-once"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("of kafka logs, not of kafka others; remove"), "{error}");
    }

    #[test]
    fn a_damaged_cursor_is_never_believed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(NAME);
        open(directory.path()).unwrap().keep(3, 12_345, Duration::ZERO).unwrap();
        let whole = fs::read(&path).unwrap();
        let reopen = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            open(directory.path())
        };
        assert_eq!(reopen(&whole).unwrap().line(3), 12_345);
        for cut in 0..whole.len() {
            assert!(reopen(&whole[..cut]).is_err(), "cut at {cut}");
            let mut spoilt = whole.clone();
            spoilt[cut] ^= 1;
            assert!(reopen(&spoilt).is_err(), "flipped at {cut}");
        }
    }

    /// Where one way to ship ends, the other goes on.
    #[test]
    fn a_cursor_of_the_former_destination_is_taken_over() {
        let directory = tempfile::tempdir().unwrap();
        let mut cursor = open(directory.path()).unwrap();
        cursor.keep(0, 5, Duration::ZERO).unwrap();
        let other = || Cursor::open(directory.path(), (NAMES.1, NAMES.0)).unwrap();
        assert_eq!(other().line(0), 5);
        other().keep(0, 6, Duration::ZERO).unwrap();
        assert_eq!((other().line(0), open(directory.path()).unwrap().line(0)), (6, 6));
    }

    #[test]
    fn a_line_that_could_not_be_kept_is_not_in_the_cursor() {
        let directory = tempfile::tempdir().unwrap();
        let mut cursor = open(directory.path()).unwrap();
        cursor.keep(0, 5, Duration::ZERO).unwrap();
        fs::create_dir(directory.path().join("ship.cursor.part")).unwrap();
        assert!(cursor.keep(0, 9, Duration::ZERO).is_err());
        assert!(cursor.keep(1, 9, Duration::ZERO).is_err());
        assert_eq!((cursor.line(0), cursor.line(1)), (5, 0));
        assert_eq!(open(directory.path()).unwrap().line(0), 5);
    }

    /// Each stream's thread used to write and sync the file for itself.
    #[test]
    fn one_write_has_the_lines_of_all_streams() {
        let directory = tempfile::tempdir().unwrap();
        let mut cursor = open(directory.path()).unwrap();
        let hour = Duration::from_secs(3600);
        for stream in 0..3 {
            cursor.keep(stream, 5, hour).unwrap();
            assert_eq!(cursor.line(stream), 0);
        }
        assert!(!directory.path().join(NAME).exists());
        cursor.keep(3, 6, Duration::ZERO).unwrap();
        let stored = open(directory.path()).unwrap();
        for cursor in [&cursor, &stored] {
            assert_eq!([0, 1, 2, 3].map(|stream| cursor.line(stream)), [5, 5, 5, 6]);
        }
    }
}
