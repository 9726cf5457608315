//! `ringwise logd fetch`: brings uploaded segments back into a directory, where the other tools read them.
//!
//! Lines are checked against the index while they are written, and a file gets its name only if they are right. The
//! index comes last, so an interrupted fetch goes on where it was. Nothing that is in the directory is changed.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use object_store::ObjectStore;
use tokio::runtime::Runtime;

use super::{
    copy::key,
    place::{Place, told},
    remote::{Bounds, Remote},
};
use crate::{
    daemon::lock,
    disk::{
        identity::is_identity,
        replacement,
        segment::{
            format::name::{Part, Stream, parse},
            scan::{Scan, State},
        },
    },
    error::LogdError,
    ship::destination::Trouble,
};

type Segment = (Stream, u64);
/// A store, and its segments with whether each has its index.
type Found = (Arc<dyn ObjectStore>, BTreeMap<Segment, bool>);

/// The outcome for a segment.
enum Fetched {
    /// It was written. The number is the size of its files, in bytes.
    New(u64),
    /// The directory has it.
    Known,
}

/// Fetches all segments of a place.
///
/// # Errors
///
/// The place or the directory cannot be used, or segments could not be fetched. The others are there.
pub(crate) fn fetch(
    place: &Place,
    directory: &Path,
    out: &mut impl Write,
) -> Result<(), LogdError> {
    let failed = |Trouble(why)| LogdError::Failed(format!("{place}: {why}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| LogdError::Failed(format!("the runtime: {error}")))?;
    let store = place.connect(None).and_then(|connect| connect()).map_err(failed)?;
    let (store, found) = runtime.block_on(find(place, store)).map_err(failed)?;
    let _lock = lock(directory)?;
    match bring(&runtime, (store, found), directory, out)? {
        0 => Ok(()),
        count => Err(LogdError::Failed(format!("{count} segments of {place} were not fetched"))),
    }
}

/// Fetches these segments. Returns how many could not be fetched.
pub(super) fn bring(
    runtime: &Runtime,
    (store, found): Found,
    directory: &Path,
    out: &mut impl Write,
) -> Result<usize, LogdError> {
    let remote = Remote { store, bounds: Bounds::default(), end: Arc::default() };
    let (mut problems, mut unfinished) = (0, 0);
    for (segment, has_index) in found {
        if !has_index {
            unfinished += 1;
            continue;
        }
        let name = segment.0.file(segment.1, Part::Packed);
        let name = name.display();
        let told = match runtime.block_on(fetch_one(&remote, directory, segment)) {
            Ok(Fetched::New(bytes)) => writeln!(out, "{name}: {bytes} bytes"),
            Ok(Fetched::Known) => writeln!(out, "{name}: already there"),
            Err(Trouble(why)) => {
                problems += 1;
                writeln!(io::stderr(), "ringwise: logd: {name}: {why}")
            }
        };
        told.and_then(|()| out.flush()).map_err(|error| LogdError::output(&error))?;
    }
    if unfinished > 0 {
        let text =
            "objects have no index, because their upload was not finished; logd skipped them";
        let _ = writeln!(io::stderr(), "ringwise: logd: {unfinished} {text}");
    }
    Ok(problems)
}

/// Lists the segments of a directory's objects, and whether each has its index. If the place is above the objects of
/// one directory, these are meant.
async fn find(place: &Place, store: Arc<dyn ObjectStore>) -> Result<Found, Trouble> {
    let found = segments(&store).await?;
    if !found.is_empty() {
        return Ok((store, found));
    }
    let level = store.list_with_delimiter(None).await.map_err(told)?;
    let names = level.common_prefixes.iter().filter_map(|prefix| prefix.filename());
    let names: Vec<&str> = names.filter(|name| is_identity(name)).collect();
    let [name] = names[..] else {
        return Err(Trouble(match names.len() {
            0 => "no segments there; name the URL that --upload names".to_owned(),
            count => {
                let some = names.iter().take(10).copied().collect::<Vec<_>>().join(", ");
                format!(
                    "{count} directories have segments there; add one of their names, as in {place}/{}: {some}",
                    names[0]
                )
            }
        }));
    };
    let store = place.connect(Some(name))?()?;
    let found = segments(&store).await?;
    match found.is_empty() {
        true => Err(Trouble("no segments there; name the URL that --upload names".to_owned())),
        false => Ok((store, found)),
    }
}

/// Lists segments, and whether each has its index.
pub(super) async fn segments(
    store: &Arc<dyn ObjectStore>,
) -> Result<BTreeMap<Segment, bool>, Trouble> {
    let level = store.list_with_delimiter(None).await.map_err(told)?;
    let mut found: BTreeMap<Segment, bool> = BTreeMap::new();
    for object in level.objects {
        if let Some((stream, serial, part @ (Part::Packed | Part::Index))) =
            object.location.filename().and_then(parse)
        {
            *found.entry((stream, serial)).or_default() |= part == Part::Index;
        }
    }
    Ok(found)
}

async fn fetch_one(
    remote: &Remote,
    directory: &Path,
    segment: Segment,
) -> Result<Fetched, Trouble> {
    let path = |part| directory.join(segment.0.file(segment.1, part));
    let index = remote.small(&key(segment, Part::Index)).await?;
    let index = index.ok_or_else(|| Trouble("its index is gone".to_owned()))?;
    let scan = Scan::promised(&index);
    if scan.state() != State::Sealed {
        return Err(Trouble("its index is damaged".to_owned()));
    }
    match fs::read(path(Part::Index)) {
        Ok(own) if own == index => return Ok(Fetched::Known),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(path(Part::Index), error)),
        Ok(_) => {
            let text = "the directory has another segment with this name; name an empty directory";
            return Err(Trouble(text.to_owned()));
        }
    }
    let part = path(Part::Packing);
    let size = match write_lines(remote, segment, &scan, &part).await {
        Ok(Some(size)) => size,
        other => {
            let _ = fs::remove_file(&part);
            return Err(match other {
                Err(trouble) => trouble,
                Ok(_) => Trouble("its lines are gone, or do not match its index".to_owned()),
            });
        }
    };
    let packed = path(Part::Packed);
    fs::rename(&part, &packed).map_err(|error| failed(packed, error))?;
    // This makes the name of the lines durable too.
    let name = segment.0.file(segment.1, Part::Index);
    let written = replacement::write(directory, &name.to_string_lossy(), &index);
    written.map_err(|error| Trouble(error.to_string()))?;
    Ok(Fetched::New(size + index.len() as u64))
}

/// Writes a frame to a new file. Returns its size, or nothing if it is not right.
async fn write_lines(
    remote: &Remote,
    segment: Segment,
    scan: &Scan,
    part: &Path,
) -> Result<Option<u64>, Trouble> {
    let of_part = |error| failed(part.to_owned(), error);
    let mut new = OpenOptions::new();
    let new = new.write(true).create(true).truncate(true).mode(0o640);
    let mut file = new.open(part).map_err(of_part)?;
    let key = key(segment, Part::Packed);
    let size = remote.check(&key, scan, |bytes| file.write_all(bytes).map_err(of_part)).await?;
    file.sync_all().map_err(of_part)?;
    Ok(size)
}

fn failed(path: PathBuf, error: io::Error) -> Trouble {
    Trouble(LogdError::on(&path, &error).to_string())
}
