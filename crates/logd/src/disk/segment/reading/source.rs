//! Where the segments of a stream are: in the files of a directory, or in memory.
//!
//! It finds segments and opens them. `reader` decides in which order, and what becomes of one that is gone.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use crate::{
    disk::segment::{
        format::{
            entry::{ENTRY_BYTES, Ends, Entry, Kind},
            name::{Part, Stream, parse},
        },
        reading::{
            unpack::Unpacker,
            view::{Lines, Segment},
        },
    },
    error::LogdError,
};

/// The segments of a stream, in order.
pub(crate) trait Segments {
    fn count(&self) -> usize;

    /// Whether a segment has any file by now.
    fn exists(&self, place: usize) -> bool;

    /// Opens a segment.
    fn open(&self, place: usize) -> Result<Segment, LogdError>;

    /// Reads the first entry of a segment, if it exists and is whole.
    fn head(&self, place: usize) -> Result<Option<Entry>, LogdError>;

    /// Reads the first and the last entry of a segment.
    fn ends(&self, place: usize) -> Result<Ends, LogdError>;

    /// Returns the name of a segment's plain file.
    fn name(&self, place: usize) -> PathBuf;
}

/// Lists the streams of a directory, and the numbers of their segments.
pub(crate) fn streams(directory: &Path) -> Result<BTreeMap<Stream, Vec<u64>>, LogdError> {
    let entries = std::fs::read_dir(directory).map_err(|error| LogdError::on(directory, &error))?;
    let mut streams: BTreeMap<Stream, Vec<u64>> = BTreeMap::new();
    for entry in entries {
        let entry = entry.map_err(|error| LogdError::on(directory, &error))?;
        let name = entry.file_name();
        if let Some((stream, serial, Part::Data | Part::Index | Part::Packed)) =
            name.to_str().and_then(parse)
        {
            streams.entry(stream).or_default().push(serial);
        }
    }
    for (stream, serials) in &mut streams {
        serials.sort_unstable();
        serials.dedup();
        add_unlisted(directory, *stream, serials);
    }
    Ok(streams)
}

/// Adds segments that a listing missed. A listing takes time and may miss names that are created meanwhile
/// (readdir(3)).
fn add_unlisted(directory: &Path, stream: Stream, serials: &mut Vec<u64>) {
    /// Far more segments than are created during a listing. A foreign file can make a gap of any width.
    const GAP_MAX: u64 = 4096;
    let is_there = |serial: &u64| has_files(directory, stream, *serial);
    let gaps = serials.windows(2).flat_map(|pair| {
        let first = (pair[0] + 1).max(pair[1].saturating_sub(GAP_MAX));
        first..pair[1]
    });
    let unlisted: Vec<u64> = gaps.filter(is_there).collect();
    serials.extend(unlisted);
    serials.sort_unstable();
}

fn has_files(directory: &Path, stream: Stream, serial: u64) -> bool {
    let parts = [Part::Index, Part::Data, Part::Packed];
    parts.iter().any(|part| directory.join(stream.file(serial, *part)).exists())
}

/// The segments of a stream in a directory.
pub(crate) struct InDirectory<'a> {
    directory: &'a Path,
    stream: Stream,
    serials: Vec<u64>,
}

impl<'a> InDirectory<'a> {
    pub(crate) fn new(directory: &'a Path, stream: Stream, serials: Vec<u64>) -> InDirectory<'a> {
        InDirectory { directory, stream, serials }
    }

    /// Lists all streams of a directory.
    pub(crate) fn all(
        directory: &'a Path,
    ) -> Result<impl Iterator<Item = InDirectory<'a>>, LogdError> {
        let new = move |(stream, serials)| InDirectory { directory, stream, serials };
        Ok(streams(directory)?.into_iter().map(new))
    }

    pub(crate) fn stream(&self) -> Stream {
        self.stream
    }

    /// Returns the number of a segment. Without any segments it is 0.
    pub(crate) fn serial(&self, place: usize) -> u64 {
        self.serials.get(place).copied().unwrap_or(0)
    }

    fn path(&self, place: usize, part: Part) -> PathBuf {
        self.directory.join(self.stream.file(self.serials[place], part))
    }

    fn failed(&self, place: usize, part: Part, error: &io::Error) -> LogdError {
        LogdError::on(&self.path(place, part), error)
    }

    /// Opens a file of a segment, if it exists.
    fn open_part(&self, place: usize, part: Part) -> Result<Option<File>, LogdError> {
        match File::open(self.path(place, part)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some).map_err(|error| self.failed(place, part, &error)),
        }
    }

    /// Reads the index of a segment. It is empty if it does not exist.
    fn index(&self, place: usize) -> Result<Vec<u8>, LogdError> {
        let mut index = Vec::new();
        if let Some(mut file) = self.open_part(place, Part::Index)? {
            let read = io::Read::read_to_end(&mut file, &mut index);
            read.map_err(|error| self.failed(place, Part::Index, &error))?;
        }
        Ok(index)
    }
}

impl Segments for InDirectory<'_> {
    fn count(&self) -> usize {
        self.serials.len()
    }

    fn exists(&self, place: usize) -> bool {
        has_files(self.directory, self.stream, self.serials[place])
    }

    fn open(&self, place: usize) -> Result<Segment, LogdError> {
        // The index is read first: the data of its batches was written before, or the batch was never whole.
        let mut index = self.index(place)?;
        let (mut part, mut data) =
            (Part::Data, self.open_part(place, Part::Data)?.map(Lines::Plain));
        // The packed file is opened second, because the plain one is removed only after the packed one has its name.
        if data.is_none()
            && let Some(file) = self.open_part(place, Part::Packed)?
        {
            let unpacker = Unpacker::new(file);
            let unpacker = unpacker.map_err(|error| self.failed(place, Part::Packed, &error))?;
            (part, data) = (Part::Packed, Some(Lines::Packed(unpacker)));
        }
        if data.is_none() {
            // Retention may have removed the lines meanwhile. It says so in the index before.
            index = self.index(place)?;
        }
        let name = self.stream.file(self.serials[place], part);
        Ok(Segment::new((self.directory.to_owned(), name), index, data))
    }

    fn head(&self, place: usize) -> Result<Option<Entry>, LogdError> {
        let path = self.path(place, Part::Index);
        let mut head = [0; ENTRY_BYTES];
        match File::open(&path).and_then(|file| file.read_exact_at(&mut head, 0)) {
            Ok(()) => Ok(Entry::decode(&head).filter(|entry| entry.kind == Kind::Head)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(LogdError::on(&path, &error)),
        }
    }

    fn ends(&self, place: usize) -> Result<Ends, LogdError> {
        let Some(file) = self.open_part(place, Part::Index)? else { return Ok(Ends::default()) };
        let len = file.metadata().map(|metadata| metadata.len());
        let ends = len.and_then(|len| {
            Ends::read(len, |offset| {
                let mut entry = vec![0; ENTRY_BYTES];
                file.read_exact_at(&mut entry, offset).map(|()| entry)
            })
        });
        ends.map_err(|error| self.failed(place, Part::Index, &error))
    }

    fn name(&self, place: usize) -> PathBuf {
        self.stream.file(self.serials[place], Part::Data)
    }
}

/// Whether an index does not exist or is shorter than an entry.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof)
}

/// Segments whose files are in memory: the index, and the lines if their file exists.
#[derive(Default)]
pub(crate) struct InMemory(pub(crate) BTreeMap<u64, (Vec<u8>, Option<Vec<u8>>)>);

impl InMemory {
    fn nth(&self, place: usize) -> (&u64, &(Vec<u8>, Option<Vec<u8>>)) {
        self.0.iter().nth(place).expect("the caller passes a place below the count")
    }
}

impl Segments for InMemory {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn exists(&self, _place: usize) -> bool {
        true
    }

    fn open(&self, place: usize) -> Result<Segment, LogdError> {
        let (serial, (index, data)) = self.nth(place);
        let name = PathBuf::from(serial.to_string());
        Ok(Segment::new((PathBuf::new(), name), index.clone(), data.clone().map(Lines::Memory)))
    }

    fn head(&self, place: usize) -> Result<Option<Entry>, LogdError> {
        let (_, (index, _)) = self.nth(place);
        let head = index.get(..ENTRY_BYTES).and_then(Entry::decode);
        Ok(head.filter(|entry| entry.kind == Kind::Head))
    }

    fn ends(&self, place: usize) -> Result<Ends, LogdError> {
        let (_, (index, _)) = self.nth(place);
        Ends::read(
            index.len() as u64,
            |offset| Ok(index[offset as usize..][..ENTRY_BYTES].to_vec()),
        )
    }

    fn name(&self, place: usize) -> PathBuf {
        self.nth(place).0.to_string().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::segment::format::name::Content;

    #[test]
    fn a_segment_that_was_not_listed_is_found_between_others() {
        let directory = tempfile::tempdir().unwrap();
        let stream = Stream { content: Content::Lines, number: 3 };
        for (serial, part) in [(2, Part::Index), (5, Part::Data), (6, Part::Torn)] {
            File::create(directory.path().join(stream.file(serial, part))).unwrap();
        }
        let mut serials = vec![1, 4, 7, u64::MAX];
        add_unlisted(directory.path(), stream, &mut serials);
        assert_eq!(serials, [1, 2, 4, 5, 7, u64::MAX]);
    }
}
