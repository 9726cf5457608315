//! Writes the lines of a query to a Parquet file (`--output parquet FILE`), for programs that read columns.
//!
//! Lines are gathered up to a row group, which bounds the memory. They go to a temporary file beside the one that was
//! asked for. It gets its name when it is whole and synced, so an interrupted query leaves nothing under that name.
//!
//! The file is written without Arrow: there are six columns, whose types are known.

use std::{
    fs::Permissions,
    io::{self, BufWriter, Write},
    ops::{ControlFlow, Range},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use parquet::{
    basic::{Compression, ZstdLevel},
    data_type::{ByteArray, ByteArrayType, DataType, Int64Type},
    errors::ParquetError,
    file::{
        properties::WriterProperties,
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::{parser::parse_message_type, types::ColumnPath},
};
use tempfile::NamedTempFile;

use crate::{
    disk::segment::{format::name::Stream, reading::cursor::Piece},
    error::LogdError,
    tool::printer::Printer,
};

/// The columns, in the order in which they are written.
const SCHEMA: &str = "message lines {
    required binary stream (string);
    required int64 number;
    required int64 time (timestamp(millis,true));
    optional binary peer (string);
    optional binary tenant (string);
    required binary line (string);
}";

/// A row group has so many rows, or so many bytes of lines and a line.
const ROWS_MAX: usize = 128 << 10;
const BYTES_MAX: usize = 32 << 20;

/// A file that is being written.
pub(super) struct Table {
    path: PathBuf,
    writer: SerializedFileWriter<BufWriter<NamedTempFile>>,
    rows: Rows,
    /// How many lines may still be written.
    left: u64,
    pub(super) count: u64,
    /// What went wrong. The query ends then.
    failure: Option<LogdError>,
}

impl Table {
    /// Begins a file, to which at most so many lines are written.
    pub(super) fn new(path: &Path, lines_max: u64) -> Result<Table, LogdError> {
        let failed = |error: io::Error| LogdError::on(path, &error).of("--output parquet");
        let target = target(path).map_err(failed)?;
        if target.exists() && !target.is_file() {
            let text = "it is not a regular file; name a file";
            let path = path.display();
            return Err(LogdError::Usage(format!("--output parquet {path}: {text}")));
        }
        let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty());
        let made = tempfile::Builder::new()
            .prefix(".ringwise-")
            // Those of any other new file.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(directory.unwrap_or(Path::new(".")));
        let file = BufWriter::new(made.map_err(failed)?);
        let (path, rows) = (target, Rows::default());
        let writer = open(file).map_err(|error| wrong(&path, &error))?;
        Ok(Table { path, writer, rows, left: lines_max, count: 0, failure: None })
    }

    /// Gives the whole file its name.
    pub(super) fn finish(mut self) -> Result<(), LogdError> {
        self.write_rows();
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let Table { path, writer, .. } = self;
        let failed = |error: io::Error| LogdError::on(&path, &error).of("--output parquet");
        let file = writer.into_inner().map_err(|error| wrong(&path, &error))?;
        let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
        file.as_file().sync_all().map_err(failed)?;
        file.persist(&path).map_err(|error| failed(error.error))?;
        Ok(())
    }

    fn write_rows(&mut self) {
        let rows = std::mem::take(&mut self.rows);
        if self.failure.is_none() && rows.len() > 0 {
            let written = rows.write(&mut self.writer);
            self.failure = written.err().map(|error| wrong(&self.path, &error));
        }
    }
}

/// Returns the name that the file gets: that of what a symbolic link points to, which would be replaced itself.
fn target(path: &Path) -> io::Result<PathBuf> {
    let found = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(path.to_owned()),
        found => found?,
    };
    let target = if found.is_symlink() { path.canonicalize()? } else { path.to_owned() };
    match target.is_dir() {
        true => Err(io::ErrorKind::IsADirectory.into()),
        false => Ok(target),
    }
}

fn open<W: Write + Send>(file: W) -> Result<SerializedFileWriter<W>, ParquetError> {
    let level = Compression::ZSTD(ZstdLevel::try_new(3)?);
    // Hardly any line comes twice.
    let properties = WriterProperties::builder()
        .set_created_by(concat!("ringwise ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(level)
        .set_column_dictionary_enabled(ColumnPath::from("line"), false)
        .set_column_dictionary_enabled(ColumnPath::from("number"), false)
        .build();
    SerializedFileWriter::new(file, Arc::new(parse_message_type(SCHEMA)?), Arc::new(properties))
}

fn wrong(path: &Path, error: &ParquetError) -> LogdError {
    LogdError::Failed(format!("--output parquet {}: {error}", path.display()))
}

impl Printer for Table {
    fn print(&mut self, stream: Stream, piece: &Piece<'_>) -> io::Result<ControlFlow<()>> {
        let stream = ByteArray::from(&*stream.to_string());
        let mut numbers = piece.numbers();
        for (part, lines, _) in piece.parts() {
            let origin = part.origin.as_ref();
            let peer = origin.and_then(|origin| origin.peer).map(|peer| peer.to_string());
            let tenant = origin.and_then(|origin| origin.tenant.as_deref());
            let (peer, tenant) =
                (peer.as_deref().map(ByteArray::from), tenant.map(ByteArray::from));
            for (line, number) in lines.split_inclusive(|byte| *byte == b'\n').zip(&mut numbers) {
                if self.left == 0 || self.failure.is_some() {
                    break;
                }
                self.left -= 1;
                self.count += 1;
                self.rows.streams.push(stream.clone());
                self.rows.numbers.push(number as i64);
                self.rows.times_ms.push(part.time_ms as i64);
                self.rows.peers.push(peer.clone());
                self.rows.tenants.push(tenant.clone());
                self.rows.push_line(line.strip_suffix(b"\n").unwrap_or(line));
                if self.rows.len() >= ROWS_MAX || self.rows.text.len() >= BYTES_MAX {
                    self.write_rows();
                }
            }
        }
        let goes_on = self.left > 0 && self.failure.is_none();
        Ok(if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    }

    /// The problems of the segments say which lines are missing.
    fn skip(&mut self, _stream: Stream, _lines: &Range<u64>) {}

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Somebody waits for the whole file.
    fn wait(&mut self, time: Duration) -> bool {
        std::thread::sleep(time);
        true
    }
}

/// The rows of a group, column by column.
#[derive(Default)]
struct Rows {
    streams: Vec<ByteArray>,
    numbers: Vec<i64>,
    times_ms: Vec<i64>,
    peers: Vec<Option<ByteArray>>,
    tenants: Vec<Option<ByteArray>>,
    /// The lines one after another, and where each ends.
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Rows {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn push_line(&mut self, line: &[u8]) {
        self.text.extend_from_slice(line);
        self.ends.push(self.text.len());
    }

    fn write<W: Write + Send>(
        self,
        writer: &mut SerializedFileWriter<W>,
    ) -> Result<(), ParquetError> {
        let text = Bytes::from(self.text);
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let lines = starts.zip(&self.ends).map(|(start, end)| text.slice(start..*end).into());
        let lines: Vec<ByteArray> = lines.collect();
        let mut group = writer.next_row_group()?;
        column::<ByteArrayType, _>(&mut group, &self.streams, None)?;
        column::<Int64Type, _>(&mut group, &self.numbers, None)?;
        column::<Int64Type, _>(&mut group, &self.times_ms, None)?;
        optional(&mut group, self.peers)?;
        optional(&mut group, self.tenants)?;
        column::<ByteArrayType, _>(&mut group, &lines, None)?;
        group.close().map(|_| ())
    }
}

/// Writes the next column of a group. The levels say which rows have a value, if not all have.
fn column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let none = || ParquetError::General("there is no such column".to_owned());
    let mut column = group.next_column()?.ok_or_else(none)?;
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

fn optional<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: Vec<Option<ByteArray>>,
) -> Result<(), ParquetError> {
    let levels: Vec<i16> = rows.iter().map(|row| i16::from(row.is_some())).collect();
    let values: Vec<ByteArray> = rows.into_iter().flatten().collect();
    column::<ByteArrayType, _>(group, &values, Some(&levels))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use parquet::{
        file::reader::{FileReader, SerializedFileReader},
        record::RowAccessor,
    };

    use super::*;
    use crate::disk::segment::format::{
        name::Content,
        record::{Origin, StoredPart},
    };

    const STREAM: Stream = Stream { content: Content::Lines, number: 3 };

    fn part(lines: u64, bytes: u64, time_ms: u64, origin: Option<Origin>) -> StoredPart {
        StoredPart { lines, bytes, time_ms, origin }
    }

    #[test]
    fn rows_are_read_back_as_they_were_written_group_by_group() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines.parquet");
        std::fs::write(&path, "from before").unwrap();
        let batches = ROWS_MAX as u64 / 2 + 1;
        let mut table = Table::new(&path, 3 * batches - 1).unwrap();
        let origin = Origin { peer: "10.0.0.1:5".parse().ok(), tenant: Some("web".into()) };
        for batch in 0..batches {
            let parts = vec![part(2, 4, 7, Some(origin.clone())), part(1, 4, 8, None)];
            let numbers = vec![3 * batch, 3 * batch + 1, 3 * batch + 2];
            let piece = Piece::selected(0, (3, numbers), parts, b"1\n2\n\"3\n".to_vec());
            let flow = table.print(STREAM, &piece).unwrap();
            assert_eq!(flow.is_break(), batch + 1 == batches, "{batch}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"from before", "not before it is whole");
        let count = table.count;
        table.finish().unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left over");
        let file = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        assert!(file.num_row_groups() > 1);
        let rows: Vec<_> = file.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!((rows.len() as u64, count), (3 * batches - 1, 3 * batches - 1));
        for (number, row) in rows.iter().enumerate() {
            let (line, time_ms) = [("1", 7), ("2", 7), ("\"3", 8)][number % 3];
            assert_eq!(row.get_string(0).unwrap(), "lines-003");
            assert_eq!(row.get_long(1).unwrap(), number as i64);
            assert_eq!(row.get_timestamp_millis(2).unwrap(), time_ms);
            assert_eq!(row.get_string(3).ok().is_some(), time_ms == 7);
            assert_eq!(
                row.get_string(4).ok().map(|tenant| &**tenant),
                (time_ms == 7).then_some("web")
            );
            assert_eq!(row.get_string(5).unwrap(), line);
        }
    }

    #[test]
    fn a_batch_of_many_lines_is_more_than_a_group() {
        let directory = tempfile::tempdir().unwrap();
        let mut table = Table::new(&directory.path().join("lines.parquet"), u64::MAX).unwrap();
        let count = 3 * ROWS_MAX as u64 + 1;
        let parts = vec![part(count, 2 * count, 7, None)];
        let numbers = (0..count).collect();
        let piece = Piece::selected(0, (count, numbers), parts, b"1\n".repeat(count as usize));
        assert!(table.print(STREAM, &piece).unwrap().is_continue());
        assert_eq!((table.rows.len(), table.count), (1, count));
    }

    #[test]
    fn only_a_regular_file_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("file"), "from before").unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        Table::new(&path("link"), 9).unwrap().finish().unwrap();
        assert!(path("link").symlink_metadata().unwrap().is_symlink());
        assert!(std::fs::read(path("file")).unwrap().starts_with(b"PAR1"));
        std::os::unix::fs::symlink("/dev/null", path("device")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        for name in ["device", "socket"] {
            let error = Table::new(&path(name), 9).err().unwrap();
            assert!(matches!(error, LogdError::Usage(_)), "{error}");
            let error = error.to_string();
            assert!(
                error.contains("not a regular file; name a file") && error.lines().count() == 1,
                "{error}"
            );
        }
    }

    #[test]
    fn a_table_that_is_not_finished_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines.parquet");
        let mut table = Table::new(&path, 9).unwrap();
        let piece = Piece::selected(0, (1, vec![0]), vec![part(1, 2, 7, None)], b"1\n".to_vec());
        let _ = table.print(STREAM, &piece).unwrap();
        drop(table);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        for path in [directory.path().to_owned(), directory.path().join("none/lines.parquet")] {
            let error = Table::new(&path, 9).err().unwrap().to_string();
            assert!(error.starts_with("--output parquet "), "{error}");
        }
    }
}
