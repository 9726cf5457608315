//! Whether what was sent is stored: every line once, and none of another content.
//!
//! It reads the target's files as any tool would, so it sees what is there and not what the target
//! says is there. Lines of other runs and of other senders are passed over.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use super::lines::Lines;
use crate::error::{LoadError, plain};

/// How long the files may stay as they are before what is missing is lost.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long to wait at most where they never stand still.
const PATIENCE_IN_ALL: Duration = Duration::from_secs(60);
/// How often it is looked whether they grow.
const LOOK_TIME: Duration = Duration::from_millis(100);
const BUFFER_BYTES: usize = 1 << 20;

/// What of the lines that were sent is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Stored {
    /// Lines that are there, each counted once.
    pub lines: u64,
    /// Lines that are not.
    pub lost: u64,
    /// Copies beyond the first.
    pub twice: u64,
    /// Lines that bear the run's name and are not what was sent.
    pub altered: u64,
}

/// Looks for what each connection, by its number, sent, until all is there or nothing comes any
/// more.
pub(super) fn look(path: &Path, lines: &Lines, sent: &[(u64, u64)]) -> Result<Stored, LoadError> {
    let size = || size(path).map_err(|error| failed(path, &error));
    let began = Instant::now();
    loop {
        let bytes = size()?;
        let found = count(path, lines, sent)?;
        // A segment that is just being packed is there twice for a moment.
        if found.lost + found.twice == 0 || began.elapsed() > PATIENCE_IN_ALL {
            return Ok(found);
        }
        let counted = Instant::now();
        while size()? == bytes {
            if counted.elapsed() > PATIENCE {
                return Ok(found);
            }
            thread::sleep(LOOK_TIME);
        }
        // It grows: worth another look when it stands still again.
        loop {
            let bytes = size()?;
            thread::sleep(3 * LOOK_TIME);
            if size()? == bytes || began.elapsed() > PATIENCE_IN_ALL {
                break;
            }
        }
    }
}

fn failed(path: &Path, error: &io::Error) -> LoadError {
    LoadError::Failed(format!("--stored {}: {}", path.display(), plain(error)))
}

fn size(path: &Path) -> io::Result<u64> {
    let of = |file: &PathBuf| fs::metadata(file).map(|about| about.len());
    files(path)?.iter().filter_map(|file| unless_gone(path, of(file)).transpose()).sum()
}

/// What was found of a file in a directory. None: it has been packed or removed since the directory was read, so that
/// another look finds something else.
fn unless_gone<T>(path: &Path, found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_dir() => Ok(None),
        found => found.map(Some),
    }
}

/// The files that hold lines: not the dead letters and indices of `ringwise logd`.
fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(path)? {
        let (entry, path) = entry.map(|entry| (entry.file_name(), entry.path()))?;
        let name = entry.to_string_lossy();
        let is_other = name.starts_with("dead-")
            || [".index", ".torn", ".part"].iter().any(|ending| name.ends_with(ending));
        if path.is_file() && !is_other {
            found.push(path);
        }
    }
    Ok(found)
}

/// What is counted of one run.
trait Account {
    fn line(&mut self, line: &[u8]);
    fn found(&self) -> Stored;
}

/// Made lines: a bit for each.
struct Named<'a> {
    lines: &'a Lines,
    seen: HashMap<u64, (u64, Vec<u64>)>,
    found: Stored,
}

/// A file's lines: how often each is to come, and how often it did.
struct Counted<'a> {
    each: HashMap<&'a [u8], (u64, u64)>,
}

fn count(path: &Path, lines: &Lines, sent: &[(u64, u64)]) -> Result<Stored, LoadError> {
    let counts: Vec<u64> = sent.iter().map(|(_, count)| *count).collect();
    let mut account: Box<dyn Account> = match lines.sent_of_each(&counts) {
        Some(all) => {
            let mut each = HashMap::new();
            for (line, count) in all {
                each.entry(line).or_insert((0, 0)).0 += count;
            }
            Box::new(Counted { each })
        }
        None => {
            let bits = |count: u64| vec![0; count.div_ceil(64) as usize];
            let seen = sent.iter().map(|&(number, count)| (number, (count, bits(count)))).collect();
            Box::new(Named { lines, seen, found: Stored::default() })
        }
    };
    for file in files(path).map_err(|error| failed(path, &error))? {
        unless_gone(path, read(&file, &mut *account)).map_err(|error| failed(&file, &error))?;
    }
    Ok(account.found())
}

fn read(path: &Path, account: &mut dyn Account) -> io::Result<()> {
    let file = File::open(path)?;
    // Sealed segments may be packed.
    let bytes: Box<dyn Read> = match path.extension().is_some_and(|ending| ending == "zst") {
        true => Box::new(zstd::Decoder::new(file)?),
        false => Box::new(file),
    };
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, bytes);
    let mut rest = Vec::new();
    loop {
        let bytes = reader.fill_buf()?;
        let length = bytes.len();
        if length == 0 {
            // A line without its end is not stored.
            return Ok(());
        }
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', bytes) {
            if rest.is_empty() {
                account.line(&bytes[start..end]);
            } else {
                rest.extend_from_slice(&bytes[start..end]);
                account.line(&rest);
                rest.clear();
            }
            start = end + 1;
        }
        rest.extend_from_slice(&bytes[start..]);
        reader.consume(length);
    }
}

impl Account for Named<'_> {
    fn line(&mut self, line: &[u8]) {
        let name = match self.lines.name(line) {
            None => return,
            Some(Err(())) => None,
            Some(Ok(name)) => Some(name),
        };
        let seen = name.and_then(|name| {
            let (count, bits) = self.seen.get_mut(&name.connection)?;
            (name.number < *count).then(|| (&mut bits[name.number as usize / 64], name.number % 64))
        });
        match seen {
            // A name that nothing was sent under.
            None => self.found.altered += 1,
            Some((bits, bit)) if *bits >> bit & 1 == 1 => self.found.twice += 1,
            Some((bits, bit)) => {
                *bits |= 1 << bit;
                self.found.lines += 1;
            }
        }
    }

    fn found(&self) -> Stored {
        let sent: u64 = self.seen.values().map(|(count, _)| count).sum();
        Stored { lost: sent - self.found.lines, ..self.found }
    }
}

impl Account for Counted<'_> {
    fn line(&mut self, line: &[u8]) {
        if let Some((_, came)) = self.each.get_mut(line) {
            *came += 1;
        }
    }

    fn found(&self) -> Stored {
        self.each.values().fold(Stored::default(), |sum, &(sent, came)| Stored {
            lines: sum.lines + sent.min(came),
            lost: sum.lost + sent.saturating_sub(came),
            twice: sum.twice + came.saturating_sub(sent),
            altered: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::log::{args::Protocol, lines::Name};

    #[test]
    fn a_file_that_is_packed_while_it_is_looked_at_is_no_failure() {
        let directory = tempfile::tempdir().unwrap();
        let lines = Lines::made(Protocol::Lines, 60, 5);
        let [one, other] = ["lines-0.ndjson", "lines-1.ndjson"].map(|n| directory.path().join(n));
        fs::write(&one, "{}\n").unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    fs::rename(&one, &other).unwrap();
                    fs::rename(&other, &one).unwrap();
                }
            });
            let look = || {
                size(directory.path())?;
                count(directory.path(), &lines, &[(3, 1)]).map_err(io::Error::other)
            };
            let looks: Vec<_> = (0..3000).map(|_| look()).collect();
            is_over.store(true, Ordering::Relaxed);
            assert!(looks.iter().all(Result::is_ok), "{looks:?}");
        });
        // A file that was named has to be there.
        assert_eq!(size(&other).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_is_lost_doubled_or_altered_is_counted() {
        let directory = tempfile::tempdir().unwrap();
        let lines = Lines::made(Protocol::Lines, 60, 5);
        let mut bytes = Vec::new();
        lines.fill(Name { connection: 3, number: 0 }, 100, usize::MAX, &mut bytes);
        let text = String::from_utf8(bytes).unwrap();
        let each: Vec<&str> = text.split_inclusive('\n').collect();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        write("lines-0.ndjson", &each[..50].concat());
        write("lines-1.ndjson", &format!("{{\"other\":1}}\n{}", each[50..].concat()));
        // What is no segment does not count.
        write("dead-0.ndjson", each[0]);
        write("lines-0.torn", each[1]);
        let look = || count(directory.path(), &lines, &[(3, 100)]).unwrap();
        assert_eq!(look(), Stored { lines: 100, ..Stored::default() });
        write("lines-1.ndjson", &format!("{}{}", each[51..].concat(), each[7]));
        assert_eq!(look(), Stored { lines: 99, lost: 1, twice: 1, altered: 0 });
        write("lines-1.ndjson", &each[50..].concat().replace(".0000000070\"", ".0000000700\""));
        assert_eq!(look(), Stored { lines: 99, lost: 1, twice: 0, altered: 1 });
        // Packed is as good.
        let packed = zstd::encode_all(each[50..].concat().as_bytes(), 1).unwrap();
        fs::write(directory.path().join("lines-1.ndjson.zst"), packed).unwrap();
        fs::remove_file(directory.path().join("lines-1.ndjson")).unwrap();
        assert_eq!(look(), Stored { lines: 100, ..Stored::default() });
        fs::remove_file(directory.path().join("lines-1.ndjson.zst")).unwrap();
        // The last line's end is missing.
        write("lines-1.ndjson", each[50..].concat().trim_end());
        assert_eq!(look(), Stored { lines: 99, lost: 1, ..Stored::default() });
    }

    #[test]
    fn a_files_lines_are_compared_by_how_often_they_come() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lines = Lines::given(Protocol::Lines, b"a\nb\na\n").unwrap();
        for (text, expected) in [
            ("a\na\nb\na\nx\n", Stored { lines: 4, ..Stored::default() }),
            ("a\nb\na\n", Stored { lines: 3, lost: 1, ..Stored::default() }),
            ("b\nb\na\na\na\n", Stored { lines: 4, twice: 1, ..Stored::default() }),
        ] {
            fs::write(file.path(), text).unwrap();
            assert_eq!(count(file.path(), &lines, &[(0, 3), (1, 1)]).unwrap(), expected, "{text}");
        }
    }
}
