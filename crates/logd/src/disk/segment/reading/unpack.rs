//! Reads a packed segment as if it were plain. It reads forwards. To go back, it starts again from the beginning.

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek},
};

use crate::disk::segment::reading::window::ReadAt;

type Decoder = zstd::stream::read::Decoder<'static, BufReader<File>>;

/// A packed file.
pub(crate) struct Unpacker {
    file: File,
    len: u64,
    /// The decoder and its position.
    place: Option<(Decoder, u64)>,
    /// An offset from which on nothing can be unpacked, because the file is damaged before it.
    fails_from: u64,
    /// Bytes that were unpacked only to reach those behind them.
    pub(crate) passed_bytes: u64,
}

impl Unpacker {
    pub(crate) fn new(file: File) -> io::Result<Unpacker> {
        /// The longest header of a zstd frame.
        const HEADER_BYTES: u64 = 18;
        let mut header = Vec::new();
        (&file).take(HEADER_BYTES).read_to_end(&mut header)?;
        // Without a valid header the file has no lines.
        let len = zstd::zstd_safe::get_frame_content_size(&header).ok().flatten().unwrap_or(0);
        Ok(Unpacker { file, len, place: None, fails_from: u64::MAX, passed_bytes: 0 })
    }

    /// Returns the unpacked length, as the header of the file gives it.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    fn begin(&self) -> io::Result<Decoder> {
        let mut file = self.file.try_clone()?;
        file.rewind()?;
        Decoder::new(file)
    }

    /// Reads at an offset, from where the decoder is or else from the beginning.
    fn read_from(&mut self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let (mut decoder, at) = match self.place.take() {
            Some((decoder, at)) if at <= offset => (decoder, at),
            _ => (self.begin()?, 0),
        };
        let passed = io::copy(&mut (&mut decoder).take(offset - at), &mut io::sink())?;
        self.passed_bytes += passed;
        if passed < offset - at {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let count = decoder.read(bytes)?;
        self.place = Some((decoder, offset + count as u64));
        Ok(count)
    }
}

impl ReadAt for Unpacker {
    /// Fails without an errno if the file is damaged.
    fn read_at(&mut self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        if offset >= self.fails_from {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let read = self.read_from(bytes, offset);
        if read.as_ref().is_err_and(|error| error.raw_os_error().is_none()) {
            self.fails_from = offset;
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ringwise::{BackendChoice, Local};

    use crate::{
        disk::segment::{
            format::name::{Content, Part, Stream},
            pack::{Outcome, pack},
            reading::{reader::Reader, source::InDirectory},
            recovery::recover,
        },
        fuzzing::index_of,
    };

    const STREAM: Stream = Stream { content: Content::Lines, number: 0 };

    /// Makes a sealed segment of two batches on a real disk, and packs it.
    fn packed(directory: &Path) -> Vec<u8> {
        let batches =
            [&b"{\"a\":1}\n{\"a\":2}\n"[..], b"{\"a\":3}\n{\"a\":44}\n"].map(<[u8]>::to_vec);
        let (index, data) = (index_of(&batches, true, true), batches.concat());
        let path = |part| directory.join(STREAM.file(0, part));
        std::fs::write(path(Part::Data), &data).unwrap();
        std::fs::write(path(Part::Index), &index).unwrap();
        let mut local = Local::builder().backend(BackendChoice::Classic).build().unwrap();
        let outcome = pack(&mut local, directory, (STREAM, 0), 3, &mut || false).unwrap();
        assert!(matches!(outcome, Outcome::Packed { from, .. } if from == data.len() as u64));
        assert!(!path(Part::Data).exists() && !path(Part::Packing).exists());
        let packed = std::fs::read(path(Part::Packed)).unwrap();
        assert_eq!(zstd::decode_all(&packed[..]).unwrap(), data, "as zstdcat reads it");
        packed
    }

    fn read(directory: &Path, from: u64) -> (Vec<u8>, Vec<String>) {
        let segments = InDirectory::new(directory, STREAM, vec![0]);
        let mut reader = Reader::new(segments, 0, from);
        let mut out = Vec::new();
        while let Some(piece) = reader.next().unwrap() {
            out.extend_from_slice(piece.lines());
        }
        (out, reader.problems().to_vec())
    }

    #[test]
    fn a_packed_segment_is_read_as_the_plain_one_was() {
        let directory = tempfile::tempdir().unwrap();
        packed(directory.path());
        let whole = b"{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n{\"a\":44}\n".to_vec();
        assert_eq!(read(directory.path(), 0), (whole, vec![]));
        assert_eq!(read(directory.path(), 3), (b"{\"a\":44}\n".to_vec(), vec![]));
        let mut local = Local::builder().backend(BackendChoice::Classic).build().unwrap();
        let names = [Part::Packed, Part::Index].map(|part| STREAM.file(0, part));
        let names = names.map(|name| name.into_os_string().into_string().unwrap());
        let recovered = recover(&mut local, directory.path(), &names, STREAM).unwrap();
        assert_eq!((recovered.next_serial, recovered.next_line), (1, 4));
    }

    /// A file that is cut or corrupted at any byte never yields invented lines, and the loss is reported.
    #[test]
    fn a_corrupted_packed_segment_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let packed = packed(directory.path());
        let path = directory.path().join(STREAM.file(0, Part::Packed));
        let (whole, _) = read(directory.path(), 0);
        let check = |bytes: &[u8], what: &str| {
            std::fs::write(&path, bytes).unwrap();
            let (lines, problems) = read(directory.path(), 0);
            // Either batch can be lost without the other.
            let halves = [&whole[..16], &whole[16..], &whole[..], &[]];
            assert!(halves.contains(&&lines[..]), "{what}: {lines:?}");
            assert_eq!(lines.len() == whole.len(), problems.is_empty(), "{what}: {problems:?}");
        };
        for place in 0..packed.len() {
            check(&packed[..place], &format!("cut at {place}"));
            let mut spoilt = packed.clone();
            spoilt[place] ^= 0x10;
            check(&spoilt, &format!("spoilt at {place}"));
        }
        check(&packed, "unchanged");
    }

    #[test]
    fn only_whole_sealed_segments_are_packed() {
        let directory = tempfile::tempdir().unwrap();
        packed(directory.path());
        let path = |part| directory.path().join(STREAM.file(0, part));
        let mut data = zstd::decode_all(&std::fs::read(path(Part::Packed)).unwrap()[..]).unwrap();
        std::fs::remove_file(path(Part::Packed)).unwrap();
        let mut local = Local::builder().backend(BackendChoice::Classic).build().unwrap();
        let mut pack =
            || pack(&mut local, directory.path(), (STREAM, 0), 3, &mut || false).unwrap();
        data[3] ^= 1;
        std::fs::write(path(Part::Data), &data).unwrap();
        assert_eq!(pack(), Outcome::Refused, "a batch has another checksum");
        data[3] ^= 1;
        std::fs::write(path(Part::Data), &data).unwrap();
        let index = std::fs::read(path(Part::Index)).unwrap();
        std::fs::write(path(Part::Index), &index[..index.len() - 64]).unwrap();
        assert_eq!(pack(), Outcome::Refused, "it has no seal");
        assert!(path(Part::Data).exists() && !path(Part::Packing).exists());
    }
}
