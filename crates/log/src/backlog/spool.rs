//! Lines in files, so that they survive the end of the program.
//!
//! A directory has these files:
//!
//! - `N.spool` has lines from number N (20 digits) on. It begins with `RWSPOOL1`; each record is the length of the
//!   line (four bytes, little endian), a CRC-32, and the line without its line feed. The checksum covers the length,
//!   the line's number (eight bytes, little endian) and the line.
//! - `state` is text. It has the last line that was acknowledged, the client's name, by how much the daemon's numbers
//!   of this name are greater (`offset`), and the daemon's directory that counts so. The last line is its checksum. It
//!   is replaced as a whole and synced before a line is sent under a new offset or to another directory, so that a later
//!   program knows which line the daemon means.
//! - `lock` is locked while a client has the directory.
//!
//! A write that was cut short can only be the last one. A start cuts a torn record off the last file and counts its
//! bytes. What is damaged elsewhere is an error, because nobody knows which lines are missing.
//!
//! A line is in the file when `send` returns, so it survives the end of the program, however that ends. With
//! [`Spool::sync`] the file is synced before that, and the line survives a power cut too. Without it, a file is only
//! synced before the next one begins, so that a power cut takes the end of the last file.
//!
//! A file goes when all of its lines are acknowledged; until then they take room. A client without a name may after a
//! kill send the lines of the first file again.

use std::{
    collections::VecDeque,
    fs::{self, File, OpenOptions},
    io::{self, BufReader, ErrorKind, Read, Write},
    path::{Path, PathBuf},
};

use super::{
    numbering::Numbering,
    places::{Places, PushError},
};
use crate::error::SetupError;

mod lock;
mod state;
#[cfg(test)]
mod tests;

use state::State;

const MAGIC: &[u8; 8] = b"RWSPOOL1";
const HEAD_BYTES: usize = 8;
/// The longest file, unless a line is longer.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// A file that is shorter stays when all of its lines are acknowledged, so that not every line makes a file.
const FILE_BYTES_KEPT: u64 = 64 << 10;
/// The least limit beyond two of the longest lines.
pub(crate) const LIMIT_MIN: u64 = 256 << 10;

/// Where lines wait on disk, and how many bytes of them.
///
/// # Examples
///
/// ```no_run
/// use ringwise_log::{Client, Spool};
///
/// let spool = Spool::new("/var/spool/web").limit(64 << 20).sync(true);
/// let client = Client::builder("127.0.0.1:9000").name("web-1").spool(spool).start()?;
/// // This line survives the end of the program and a power cut, whether the daemon is there or not.
/// client.send(r#"{"level":"info","message":"hello"}"#)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Spool {
    pub(crate) directory: PathBuf,
    pub(crate) limit: u64,
    pub(crate) is_synced: bool,
}

impl Spool {
    /// Keeps lines in a directory, which is created if it is missing. Each client has one of its own.
    pub fn new(directory: impl Into<PathBuf>) -> Spool {
        Spool { directory: directory.into(), limit: 1 << 30, is_synced: false }
    }

    /// Takes at most so many bytes on disk; the default is 1 GiB.
    pub fn limit(mut self, bytes: u64) -> Spool {
        self.limit = bytes;
        self
    }

    /// Syncs each line before `send` returns, so that it survives a power cut. A sync takes milliseconds on most
    /// disks.
    pub fn sync(mut self, is_synced: bool) -> Spool {
        self.is_synced = is_synced;
        self
    }
}

/// The files of a directory.
#[derive(Debug)]
pub(crate) struct Files {
    directory: PathBuf,
    _lock: lock::Lock,
    limit: u64,
    is_synced: bool,
    segments: VecDeque<Segment>,
    /// The last segment, to append to.
    writer: Option<File>,
    /// A write failed, and what it left must be cut before the next.
    is_torn: bool,
    reader: Option<Reader>,
    places: Places,
    state: State,
    cut_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    first: u64,
    /// One before the first where it is empty.
    last: u64,
    bytes: u64,
}

/// A place in a segment.
#[derive(Debug)]
struct Reader {
    file: BufReader<File>,
    /// The first line of the segment.
    first: u64,
    /// The last line of the segment that was read.
    read: u64,
}

impl Reader {
    fn open(path: &Path, first: u64) -> io::Result<Reader> {
        let mut file = BufReader::with_capacity(64 << 10, File::open(path)?);
        let mut magic = [0; MAGIC.len()];
        file.read_exact(&mut magic)?;
        // A power cut can leave a file of zeros. What begins otherwise is not ours to cut.
        match magic == [0; MAGIC.len()] {
            true => Err(damaged("it is empty")),
            false if &magic == MAGIC => Ok(Reader { file, first, read: first - 1 }),
            false => Err(io::Error::other(format!("{} is no file of a spool", path.display()))),
        }
    }

    /// Appends the next line to `out`, without a line feed. `bytes_max`: how long it can be.
    fn next(&mut self, out: &mut Vec<u8>, bytes_max: u64) -> io::Result<()> {
        let mut head = [0; HEAD_BYTES];
        self.file.read_exact(&mut head)?;
        let [length, sum] = [0, 4]
            .map(|at| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
        // A length that is wrong must not take memory.
        if u64::from(length) > bytes_max {
            return Err(damaged("a line is longer than the file"));
        }
        let begin = out.len();
        out.resize(begin + length as usize, 0);
        let result = self.file.read_exact(&mut out[begin..]);
        if result.is_ok() && checksum(self.read + 1, &out[begin..]) == sum {
            self.read += 1;
            return Ok(());
        }
        out.truncate(begin);
        result.and(Err(damaged("a checksum is wrong")))
    }
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

fn checksum(number: u64, line: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&(line.len() as u32).to_le_bytes());
    hasher.update(&number.to_le_bytes());
    hasher.update(line);
    hasher.finalize()
}

impl Files {
    /// Opens a directory for a client of that name.
    ///
    /// # Errors
    ///
    /// [`SetupError`]: another client has it, or it is damaged.
    pub(crate) fn open(spool: &Spool, name: &str) -> Result<Files, SetupError> {
        let directory = spool.directory.clone();
        let failed = |error| SetupError::Spool(directory.clone(), error);
        fs::create_dir_all(&directory).map_err(failed)?;
        let lock = lock::take(&directory.join("lock"))
            .map_err(failed)?
            .ok_or_else(|| SetupError::SpoolInUse(directory.clone()))?;
        let state = State::read(&directory)?.of(name);
        let acknowledged = state.acknowledged;
        let mut files = Files {
            directory: directory.clone(),
            _lock: lock,
            limit: spool.limit,
            is_synced: spool.is_synced,
            segments: VecDeque::new(),
            writer: None,
            is_torn: false,
            reader: None,
            places: Places { last: acknowledged, sent: acknowledged, acknowledged },
            state,
            cut_bytes: 0,
        };
        files.scan()?;
        Ok(files)
    }

    /// Knows what the directory has, and cuts a torn end.
    fn scan(&mut self) -> Result<(), SetupError> {
        let mut firsts = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(|error| self.failed(error))? {
            let name = entry.map_err(|error| self.failed(error))?.file_name();
            let digits = name.to_str().and_then(|name| name.strip_suffix(".spool"));
            firsts.extend(digits.and_then(|digits| digits.parse::<u64>().ok()).filter(|&n| n > 0));
        }
        firsts.sort_unstable();
        for (place, &first) in firsts.iter().enumerate() {
            let path = self.path(first);
            let is_last = place + 1 == firsts.len();
            let (segment, torn) = self.scan_segment(first).map_err(|error| self.failed(error))?;
            let is_next = self.segments.back().is_none_or(|before| before.last + 1 == first);
            if !is_next {
                let why = "the lines before it are missing".to_owned();
                return Err(SetupError::SpoolDamaged(path, why));
            }
            if torn > 0 && !is_last {
                let why = format!("it is damaged at byte {}", segment.bytes);
                return Err(SetupError::SpoolDamaged(path, why));
            }
            self.cut_bytes += torn;
            if segment.bytes <= MAGIC.len() as u64 {
                fs::remove_file(&path).map_err(|error| self.failed(error))?;
                continue;
            }
            if torn > 0 {
                let file = OpenOptions::new().write(true).open(&path);
                let cut = file.and_then(|file| {
                    file.set_len(segment.bytes)?;
                    file.sync_all()
                });
                cut.map_err(|error| self.failed(error))?;
            }
            self.segments.push_back(segment);
        }
        if let (Some(front), Some(back)) = (self.segments.front(), self.segments.back()) {
            self.places.acknowledged = self.places.acknowledged.max(front.first - 1);
            // A torn end may have had lines that are acknowledged.
            self.places.last = back.last.max(self.places.acknowledged);
        }
        self.rewind();
        self.remove_acknowledged().map_err(|error| self.failed(error))
    }

    /// A segment as far as it is whole, and how many bytes after that are not.
    fn scan_segment(&self, first: u64) -> io::Result<(Segment, u64)> {
        let path = self.path(first);
        let length = fs::metadata(&path)?.len();
        let mut segment = Segment { first, last: first - 1, bytes: 0 };
        let mut line = Vec::new();
        let end = match Reader::open(&path, first) {
            Err(error) => error,
            Ok(mut reader) => {
                segment.bytes = MAGIC.len() as u64;
                loop {
                    line.clear();
                    if let Err(error) = reader.next(&mut line, length) {
                        break error;
                    }
                    segment.last = reader.read;
                    segment.bytes += (HEAD_BYTES + line.len()) as u64;
                }
            }
        };
        if is_no_record(&end) { Ok((segment, length - segment.bytes)) } else { Err(end) }
    }

    fn failed(&self, error: io::Error) -> SetupError {
        SetupError::Spool(self.directory.clone(), error)
    }

    fn path(&self, first: u64) -> PathBuf {
        self.directory.join(format!("{first:0>20}.spool"))
    }

    pub(super) fn push(&mut self, line: &[u8]) -> Result<(), PushError> {
        let length = (HEAD_BYTES + line.len()) as u64;
        if self.is_full(length) {
            if self.places.waiting() > 0 {
                return Err(PushError::Full);
            }
            self.remove_all().map_err(PushError::Spool)?;
            if self.is_full(length) {
                return Err(PushError::Full);
            }
        }
        self.write(line).map_err(PushError::Spool)
    }

    fn is_full(&self, length: u64) -> bool {
        self.bytes() + length + MAGIC.len() as u64 > self.limit
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let number = self.places.last + 1;
        self.mend()?;
        let file_bytes = FILE_BYTES_MAX.min(self.limit / 8);
        if self.writer.is_none()
            || self.segments.back().is_none_or(|segment| segment.bytes >= file_bytes)
        {
            self.begin(number)?;
        }
        let (Some(writer), Some(segment)) = (&mut self.writer, self.segments.back_mut()) else {
            return Err(damaged("no file to write to"));
        };
        let mut record = Vec::with_capacity(HEAD_BYTES + line.len());
        record.extend_from_slice(&(line.len() as u32).to_le_bytes());
        record.extend_from_slice(&checksum(number, line).to_le_bytes());
        record.extend_from_slice(line);
        let written = writer.write_all(&record).and_then(|()| match self.is_synced {
            true => writer.sync_data(),
            false => Ok(()),
        });
        if written.is_err() {
            self.is_torn = true;
            return written;
        }
        segment.bytes += record.len() as u64;
        segment.last = number;
        self.places.last = number;
        Ok(())
    }

    /// Cuts what a failed write left.
    fn mend(&mut self) -> io::Result<()> {
        if self.is_torn
            && let (Some(writer), Some(segment)) = (&self.writer, self.segments.back())
        {
            writer.set_len(segment.bytes)?;
            // It may have read ahead what is gone.
            self.reader = None;
        }
        self.is_torn = false;
        Ok(())
    }

    /// Appends to the last file, or begins one from this line on.
    fn begin(&mut self, number: u64) -> io::Result<()> {
        let file_bytes = FILE_BYTES_MAX.min(self.limit / 8);
        let mut options = OpenOptions::new();
        options.append(true);
        if self.writer.is_none()
            && let Some(segment) = self.segments.back()
            && segment.bytes < file_bytes
            && segment.last + 1 == number
        {
            self.writer = Some(options.open(self.path(segment.first))?);
            return Ok(());
        }
        if let Some(before) = self.writer.take() {
            before.sync_data()?;
        }
        // A file of this number can only be what a failed begin left.
        let path = self.path(number);
        let _ = fs::remove_file(&path);
        let mut file = options.create_new(true).open(&path)?;
        file.write_all(MAGIC)?;
        lock::sync_directory(&self.directory)?;
        self.writer = Some(file);
        let bytes = MAGIC.len() as u64;
        self.segments.push_back(Segment { first: number, last: number - 1, bytes });
        Ok(())
    }

    pub(super) fn places(&self) -> Places {
        self.places
    }

    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    pub(super) fn cut_bytes(&self) -> u64 {
        self.cut_bytes
    }

    pub(super) fn read(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> io::Result<()> {
        let begin = out.len();
        while self.places.sent < self.places.last && out.len() < begin + bytes_max {
            let line = self.places.sent + 1;
            let place = self.segments.partition_point(|segment| segment.last < line);
            let Some(segment) = self.segments.get(place).copied() else {
                return Err(damaged("a line is missing"));
            };
            let path = self.path(segment.first);
            let is_at = |reader: &Reader| reader.first == segment.first && reader.read < line;
            let reader = match self.reader.take().filter(is_at) {
                Some(reader) => self.reader.insert(reader),
                None => self.reader.insert(Reader::open(&path, segment.first)?),
            };
            let from = out.len();
            while reader.read < line {
                out.truncate(from);
                reader.next(out, segment.bytes)?;
            }
            out.push(b'\n');
            self.places.sent = line;
        }
        Ok(())
    }

    pub(super) fn rewind(&mut self) {
        self.places.sent = self.places.acknowledged;
        self.reader = None;
    }

    pub(super) fn acknowledge(&mut self, line: u64) -> io::Result<()> {
        self.places.acknowledged = line.min(self.places.last).max(self.places.acknowledged);
        self.places.sent = self.places.sent.max(self.places.acknowledged);
        self.remove_acknowledged()
    }

    /// Removes files whose lines are all acknowledged; a short last one stays.
    fn remove_acknowledged(&mut self) -> io::Result<()> {
        while let Some(front) = self.segments.front().copied()
            && front.last <= self.places.acknowledged
        {
            if self.segments.len() == 1 {
                let is_short = front.bytes < FILE_BYTES_KEPT;
                let is_at_end = front.last == self.places.last;
                return if is_short && is_at_end { Ok(()) } else { self.remove_all() };
            }
            fs::remove_file(self.path(front.first))?;
            self.segments.pop_front();
        }
        Ok(())
    }

    /// Removes all files, of which no line waits. The state then knows the number of the next line.
    fn remove_all(&mut self) -> io::Result<()> {
        self.state.acknowledged = self.places.acknowledged;
        self.state.write(&self.directory)?;
        (self.writer, self.reader, self.is_torn) = (None, None, false);
        while let Some(segment) = self.segments.pop_front() {
            if let Err(error) = fs::remove_file(self.path(segment.first)) {
                self.segments.push_front(segment);
                return Err(error);
            }
        }
        Ok(())
    }

    pub(super) fn numbering(&self) -> Option<Numbering> {
        self.state.numbering.clone()
    }

    pub(super) fn keep_numbering(&mut self, numbering: &Numbering) -> io::Result<()> {
        if self.state.numbering.as_ref() == Some(numbering) {
            return Ok(());
        }
        let before = self.state.clone();
        self.state.numbering = Some(numbering.clone());
        self.state.acknowledged = self.places.acknowledged;
        self.state.write(&self.directory).inspect_err(|_| self.state = before)
    }
}

impl Drop for Files {
    /// Later programs need not read lines that are acknowledged. If this fails, they do.
    fn drop(&mut self) {
        if self.places.waiting() == 0 {
            let _ = self.remove_all();
        } else if self.state.acknowledged != self.places.acknowledged {
            self.state.acknowledged = self.places.acknowledged;
            let _ = self.state.write(&self.directory);
        }
    }
}

/// Whether what was read is no record, rather than that reading failed.
fn is_no_record(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidData)
}
