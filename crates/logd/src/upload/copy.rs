//! Copies a sealed segment to a store, and proves that the copy is right.
//!
//! The store may be of any kind, so its entity tags and checksums prove nothing: they are not the same everywhere. What
//! was written is read back. The lines are unpacked and compared with the checksums of the local index, and the index
//! byte for byte. The index is written last, so a segment with an index in the store is whole there.
//!
//! Two directories can have one `directory.id`, and so one name for two segments. Before its lines, a segment writes a
//! claim, unless there is one. Only the segment in the claim may write objects of that name.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use object_store::path::Path as Key;

use super::{place::told, remote::Remote};
use crate::{
    disk::segment::{
        format::{
            entry::{ENTRY_BYTES, Entry, REMOVED},
            name::{Part, Stream},
        },
        frame::{Checker, Packer},
        reading::source::{InDirectory, Segments as _},
        scan::{Scan, State},
    },
    ship::destination::Trouble,
};

/// The level at which plain segments are packed on their way.
const LEVEL: i32 = 3;
/// Bytes of a file that are read at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// The outcome for a segment.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Copied {
    /// The store has it. The number is the size of the objects, in bytes.
    Done(u64),
    /// Nothing in it was ever acknowledged, so there is nothing to copy.
    Empty,
    /// Retention has removed it.
    Gone,
    /// It cannot be copied, for this reason. The store is not to blame.
    Refused(String),
}

/// The name of an object of a segment: that of the file.
pub(super) fn key((stream, serial): (Stream, u64), part: Part) -> Key {
    Key::from(stream.file(serial, part).to_string_lossy().as_ref())
}

/// Copies a segment, unless the store has it. It can be called again after an interruption.
///
/// # Errors
///
/// The store or a local file failed. It may be tried again.
pub(super) async fn copy(
    remote: &Remote,
    directory: &Path,
    segment: (Stream, u64),
) -> Result<Copied, Trouble> {
    let path = directory.join(segment.0.file(segment.1, Part::Index));
    let index = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Copied::Gone),
        read => read.map_err(|error| local(&path, &error))?,
    };
    let scan = Scan::promised(&index);
    if scan.head.is_some_and(|head| head.flags & REMOVED != 0) {
        return Ok(Copied::Gone);
    }
    let Some(own) = mark(&scan).filter(|_| scan.state() == State::Sealed) else {
        return unsealed(directory, segment);
    };
    let (lines_key, index_key) = (key(segment, Part::Packed), key(segment, Part::Index));
    let found = remote.small(&index_key).await?;
    if found.as_ref() == Some(&index)
        && let Some(size) = remote.check(&lines_key, &scan, |_| Ok(())).await?
    {
        return Ok(Copied::Done(size + index.len() as u64));
    }
    if found.is_some_and(|found| is_other(&Scan::promised(&found), &scan))
        || !claim(remote, segment, &own).await?
    {
        let text = "another segment has its name in the store, so this directory was emptied or copied; stop logd and \
                    remove directory.id, and ship.cursor if there is one, to upload under a new name";
        return Ok(Copied::Refused(text.to_owned()));
    }
    let Some(mut source) = Source::open(directory, segment, &scan)? else {
        return Ok(Copied::Gone);
    };
    let sent = remote.send(&lines_key, source.end, || source.next()).await;
    if source.is_damaged {
        return Ok(Copied::Refused("its lines do not match its index".to_owned()));
    }
    let sent = sent?;
    if remote.check(&lines_key, &scan, |_| Ok(())).await? != Some(sent) {
        return Err(Trouble(format!("{lines_key}: the object is not what was sent")));
    }
    remote.put(&index_key, index.clone()).await?;
    if remote.small(&index_key).await?.as_ref() != Some(&index) {
        return Err(Trouble(format!("{index_key}: the object is not what was sent")));
    }
    Ok(Copied::Done(sent + (index.len() + own.len()) as u64))
}

/// What becomes of a segment that ended without a seal.
fn unsealed(directory: &Path, (stream, serial): (Stream, u64)) -> Result<Copied, Trouble> {
    let segments = InDirectory::new(directory, stream, vec![serial]);
    let view = segments.open(0).and_then(|mut segment| segment.view(0, u64::MAX)).map_err(told)?;
    // A crash leaves a segment of which the first batch was never whole.
    if view.line_end().is_none() {
        return Ok(Copied::Empty);
    }
    let text = "it has no seal: the next start of logd seals it, unless it is damaged (`ringwise logd verify`)";
    Ok(Copied::Refused(text.to_owned()))
}

/// Whether an index is that of another segment. One without a whole head is of none.
fn is_other(found: &Scan, own: &Scan) -> bool {
    let head = |scan: &Scan| scan.head.map(|head| Entry { flags: 0, ..head });
    let marks = (mark(found), mark(own));
    head(found).is_some_and(|found| Some(found) != head(own))
        || matches!(marks, (Some(found), Some(own)) if found != own)
}

/// What a segment is, whenever it was sealed: its head, and its seal with the checksum of its batches in place of the
/// time. Nothing means that it has not both.
fn mark(scan: &Scan) -> Option<Vec<u8>> {
    let mut checksum = crc32fast::Hasher::new();
    scan.batches.iter().for_each(|batch| checksum.update(&batch.encode()));
    let head = Entry { flags: 0, ..scan.head? };
    let seal = Entry { time_ms: 0, checksum: checksum.finalize(), ..scan.seal? };
    Some([head.encode(), seal.encode()].concat())
}

/// Claims the name of a segment in the store. Returns whether the segment has it; otherwise another one has.
///
/// # Errors
///
/// The store failed, or the claim was not read as it was written. It may be tried again.
async fn claim(remote: &Remote, segment: (Stream, u64), own: &[u8]) -> Result<bool, Trouble> {
    // No file has such a name.
    let name = segment.0.file(segment.1, Part::Index).with_extension("claim");
    let key = Key::from(name.to_string_lossy().as_ref());
    let strange = || Trouble(format!("{key}: it is not what was written"));
    remote.create(&key, own.to_vec()).await?;
    let found = remote.small(&key).await?.ok_or_else(strange)?;
    let is_whole = found.chunks(ENTRY_BYTES).all(|entry| Entry::decode(entry).is_some());
    if found.len() == own.len() && is_whole {
        return Ok(found == own);
    }
    // Whose it was cannot be told any more, if it is not only read wrongly.
    if remote.small(&key).await?.as_ref() != Some(&found) {
        return Err(strange());
    }
    remote.put(&key, own.to_vec()).await?;
    match remote.small(&key).await?.as_deref() == Some(own) {
        true => Ok(true),
        false => Err(strange()),
    }
}

fn local(path: &Path, error: &io::Error) -> Trouble {
    Trouble(format!("{}: {error}", path.display()))
}

/// The frame of a segment, from its packed file or made of its plain one.
struct Source<'a> {
    file: File,
    path: PathBuf,
    at: u64,
    end: u64,
    form: Option<Form<'a>>,
    /// The file does not match the index.
    is_damaged: bool,
}

enum Form<'a> {
    Plain(Packer<'a>),
    Packed(Checker<'a>),
}

impl<'a> Source<'a> {
    /// Opens a segment. Nothing means that it has no lines any more.
    fn open(
        directory: &Path,
        (stream, serial): (Stream, u64),
        scan: &'a Scan,
    ) -> Result<Option<Source<'a>>, Trouble> {
        // It may be packed between the first two: the plain file is removed after the packed one has its name.
        for part in [Part::Packed, Part::Data, Part::Packed] {
            let path = directory.join(stream.file(serial, part));
            let file = match File::open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened.map_err(|error| local(&path, &error))?,
            };
            let (end, form) = match part {
                Part::Packed => {
                    let metadata = file.metadata().map_err(|error| local(&path, &error))?;
                    (metadata.len(), Form::Packed(Checker::new(scan).map_err(told)?))
                }
                _ => (scan.end(), Form::Plain(Packer::new(scan, LEVEL).map_err(told)?)),
            };
            let (at, form, is_damaged) = (0, Some(form), false);
            return Ok(Some(Source { file, path, at, end, form, is_damaged }));
        }
        Ok(None)
    }

    /// Returns the next bytes of the frame, and nothing at its end.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or does not match the index. What was sent must not become an object.
    fn next(&mut self) -> Result<Option<Vec<u8>>, Trouble> {
        if self.at == self.end {
            return self.finish();
        }
        let len = usize::try_from((self.end - self.at).min(CHUNK_BYTES)).map_err(told)?;
        let mut bytes = vec![0; len];
        match self.file.read_exact_at(&mut bytes, self.at) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(self.damaged());
            }
            read => read.map_err(|error| local(&self.path, &error))?,
        }
        self.at += len as u64;
        match &mut self.form {
            Some(Form::Plain(packer)) => packer.take(&bytes).map(Some).map_err(told),
            Some(Form::Packed(checker)) => {
                checker.take(&bytes);
                Ok(Some(bytes))
            }
            None => Ok(None),
        }
    }

    fn finish(&mut self) -> Result<Option<Vec<u8>>, Trouble> {
        match self.form.take() {
            Some(Form::Plain(packer)) => match packer.finish().map_err(told)? {
                None => Err(self.damaged()),
                rest => Ok(rest),
            },
            Some(Form::Packed(checker)) if !checker.is_right() => Err(self.damaged()),
            Some(Form::Packed(_)) | None => Ok(None),
        }
    }

    fn damaged(&mut self) -> Trouble {
        self.is_damaged = true;
        Trouble(format!("{}: it does not match its index", self.path.display()))
    }
}
