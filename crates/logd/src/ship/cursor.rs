//! The file that says how far each stream is shipped, so that a restart goes on from there.
//!
//! `ship.cursor` is a text: what it is, the destination, a line for each stream (its number and the next line to ship),
//! and a checksum. It is written to another name, synced and renamed. So it is always whole, and never ahead of the
//! destination's acknowledgements. What was acknowledged and is not in the file yet is shipped again after a crash.
//!
//! `ship.id` has a random name of the directory. With the stream and the line it names each line, and it stays when
//! the cursor is removed.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, File},
    io::{self, Read, Write as _},
    path::{Path, PathBuf},
};

use crate::error::LogdError;

const NAME: &str = "ship.cursor";
const ID_NAME: &str = "ship.id";
const TITLE: &str = "ringwise-ship 1";

/// How far each stream is shipped, as on stable storage.
#[derive(Debug)]
pub(crate) struct Cursor {
    directory: PathBuf,
    destination: String,
    lines: BTreeMap<u32, u64>,
}

impl Cursor {
    /// Reads the file of a directory. Without one everything is still to be shipped.
    ///
    /// # Errors
    ///
    /// The file is damaged, or of another destination.
    pub(crate) fn open(directory: &Path, destination: &str) -> Result<Cursor, LogdError> {
        let path = directory.join(NAME);
        let lines = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(LogdError::on(&path, &error)),
            Ok(text) => {
                let (found, lines) = parse(&text).ok_or_else(|| refused(&path, "it is damaged"))?;
                if found != destination {
                    return Err(refused(&path, &format!("it is of {found}, not of {destination}")));
                }
                lines
            }
        };
        let (directory, destination) = (directory.to_owned(), destination.to_owned());
        Ok(Cursor { directory, destination, lines })
    }

    /// Returns the next line of a stream to ship.
    pub(crate) fn line(&self, stream: u32) -> u64 {
        self.lines.get(&stream).copied().unwrap_or(0)
    }

    /// Returns the next line of each stream of which something is shipped.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (u32, u64)> {
        self.lines.iter().map(|(stream, line)| (*stream, *line))
    }

    /// Stores the next line of a stream durably.
    ///
    /// # Errors
    ///
    /// It could not be stored. The file has what it had before, or the new line.
    pub(crate) fn keep(&mut self, stream: u32, line: u64) -> Result<(), LogdError> {
        let before = self.lines.insert(stream, line);
        let text = text(&self.destination, &self.lines);
        let written = write(&self.directory, NAME, &text);
        if written.is_err() {
            match before {
                Some(before) => self.lines.insert(stream, before),
                None => self.lines.remove(&stream),
            };
        }
        written
    }
}

fn refused(path: &Path, why: &str) -> LogdError {
    let path = path.display();
    LogdError::Failed(format!(
        "{path}: {why}; remove the file to ship all stored lines, from the oldest on"
    ))
}

/// Returns the random name of a directory, which is made if there is none.
///
/// # Errors
///
/// The file cannot be read or written, or has no name.
pub(crate) fn id(directory: &Path) -> Result<String, LogdError> {
    const BYTES: usize = 8;
    let path = directory.join(ID_NAME);
    match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut bytes = [0; BYTES];
            let source = Path::new("/dev/urandom");
            let read = File::open(source).and_then(|mut file| file.read_exact(&mut bytes));
            read.map_err(|error| LogdError::on(source, &error))?;
            let id = format!("{:016x}", u64::from_be_bytes(bytes));
            write(directory, ID_NAME, &format!("{id}\n"))?;
            Ok(id)
        }
        Err(error) => Err(LogdError::on(&path, &error)),
        Ok(text) => {
            let id = text.trim_end();
            let is_id = id.len() == 2 * BYTES && id.bytes().all(|byte| byte.is_ascii_hexdigit());
            let wrong = "it has no name of 16 hexadecimal digits; restore it, or remove it and ship.cursor to ship all \
                         stored lines under a new name";
            is_id
                .then(|| id.to_owned())
                .ok_or_else(|| LogdError::Failed(format!("{}: {wrong}", path.display())))
        }
    }
}

/// Writes a file durably, as a whole or not at all.
fn write(directory: &Path, name: &str, text: &str) -> Result<(), LogdError> {
    let part = directory.join(format!("{name}.part"));
    let path = directory.join(name);
    let written = File::create(&part).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| LogdError::on(&part, &error))?;
    fs::rename(&part, &path).map_err(|error| LogdError::on(&path, &error))?;
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|error| LogdError::on(directory, &error))
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

    #[test]
    fn a_cursor_is_read_as_it_was_kept() {
        let directory = tempfile::tempdir().unwrap();
        let mut cursor = Cursor::open(directory.path(), "kafka logs").unwrap();
        assert_eq!((cursor.line(0), cursor.line(7)), (0, 0));
        cursor.keep(7, u64::MAX).unwrap();
        cursor.keep(0, 5).unwrap();
        cursor.keep(0, 6).unwrap();
        let cursor = Cursor::open(directory.path(), "kafka logs").unwrap();
        assert_eq!((cursor.line(0), cursor.line(7), cursor.line(1)), (6, u64::MAX, 0));
        let error = Cursor::open(directory.path(), "kafka others").unwrap_err().to_string();
        assert!(error.contains("of kafka logs, not of kafka others; remove"), "{error}");
    }

    #[test]
    fn a_damaged_cursor_is_never_believed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(NAME);
        Cursor::open(directory.path(), "kafka logs").unwrap().keep(3, 12_345).unwrap();
        let whole = fs::read(&path).unwrap();
        let open = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            Cursor::open(directory.path(), "kafka logs")
        };
        assert_eq!(open(&whole).unwrap().line(3), 12_345);
        for cut in 0..whole.len() {
            assert!(open(&whole[..cut]).is_err(), "cut at {cut}");
            let mut spoilt = whole.clone();
            spoilt[cut] ^= 1;
            assert!(open(&spoilt).is_err(), "flipped at {cut}");
        }
    }

    #[test]
    fn a_line_that_could_not_be_kept_is_not_in_the_cursor() {
        let directory = tempfile::tempdir().unwrap();
        let mut cursor = Cursor::open(directory.path(), "kafka logs").unwrap();
        cursor.keep(0, 5).unwrap();
        fs::create_dir(directory.path().join("ship.cursor.part")).unwrap();
        assert!(cursor.keep(0, 9).is_err() && cursor.keep(1, 9).is_err());
        assert_eq!((cursor.line(0), cursor.line(1)), (5, 0));
        assert_eq!(Cursor::open(directory.path(), "kafka logs").unwrap().line(0), 5);
    }

    #[test]
    fn a_directory_keeps_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let name = id(directory.path()).unwrap();
        assert_eq!(id(directory.path()).unwrap(), name);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(id(other.path()).unwrap(), name);
        for text in ["", "123", "0123456789abcdeg\n"] {
            fs::write(directory.path().join(ID_NAME), text).unwrap();
            let error = id(directory.path()).unwrap_err().to_string();
            assert!(error.contains("16 hexadecimal digits"), "{error}");
        }
    }
}
