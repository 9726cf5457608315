//! `objects`: many ranges of large objects at once, as a reader of Parquet files asks a store for them:
//! through the store of the `object_store` crate, through one blocking call for each range, and through
//! `ringwise-object-store`. An operation is one request for [`RANGES`] ranges.
//!
//! It measures reads only. Puts, lists and stores in a cloud are not its business.

mod geometry;
mod plan;
mod stores;

use std::{sync::Arc, time::Duration};

use ringwise_measure::{
    device::Storage,
    quantity::{bytes_text, size_text},
};

pub use self::{geometry::RANGES, stores::Store};
use self::{
    geometry::{OBJECT_PARTS, read_part},
    plan::ObjectsPlan,
};
use super::{
    form::{
        COUNTING, Context, Entry, Keep, Outcome, SAMPLE_OVERHEAD, Workload, remark, with_control,
    },
    read::{self, page_cache},
};
use crate::{
    dataset::{DataFile, Layout},
    error::LabError,
    plan::Defaults,
    results::{
        row::{Row, RowKind},
        section::{Place, Section},
        verdict::{self, Detour},
    },
    sampling::{
        job::{Cache, Extent, Job, Pattern, Profile, Timing},
        schedule::Schedule,
    },
    workload::form::{
        columns,
        cost::{Samples, writing},
        facts::{Facts, Question, Target, start},
    },
};

/// What the rest of the lab knows of this workload.
pub static FACTS: Facts =
    Facts { name: "objects", depth_is: "depth", columns: columns::FILES, question: &QUESTION };

/// What programs that read objects from files do today.
static QUESTION: Question = Question {
    operations: "requests",
    alone: "one request at a time",
    in_flight: "in flight",
    starts: &[
        start("local", "use LocalFileSystem", "LocalFileSystem", ""),
        start("pool", "use spawn_blocking for each range", "spawn_blocking", ""),
    ],
    targets: &[
        Target { engine: "ringwise", name: "io_uring", remedy: "Use ringwise-object-store." },
        Target {
            engine: "ringwise-direct",
            name: "io_uring with direct reads",
            remedy: "Use ringwise-object-store with direct reads, if the objects do not fit into memory.",
        },
    ],
};

/// Its line in the table.
pub static ENTRY: Entry = Entry {
    facts: &FACTS,
    suite_s: 7,
    has_files: true,
    flags: &["depth", "block", "cache", "size", "files", "keep", "reads"],
    defaults: Defaults::of,
    plan: |typed| Ok(Box::new(ObjectsPlan::new(typed)?)),
};

/// The name of the set of files.
const SET: &str = "objects";
/// The stores that are compared, each with the role that it has.
const STORES: [(Store, RowKind); 4] = [
    (Store::Local, RowKind::Rival),
    (Store::Pool, RowKind::Rival),
    (Store::Ring, RowKind::Subject),
    (Store::Direct, RowKind::Variant),
];

/// Those that take part. Direct reads do not use the page cache, so they do so only if it is cold.
fn stores(cache: Cache) -> impl Iterator<Item = (Store, RowKind)> + Clone {
    STORES.into_iter().filter(move |(store, _)| *store != Store::Direct || cache == Cache::Cold)
}

impl Workload for ObjectsPlan {
    fn rows(&self) -> usize {
        let of_depth = |&cache: &Cache| stores(cache).count() + 1;
        let rows: usize = self.caches.iter().map(of_depth).sum();
        rows * self.ranges_bytes.len() * self.depths.len()
    }

    fn time(&self, samples: &Samples) -> Duration {
        // Only the rows with a warm cache are counted in a pass of their own.
        let warm = self.caches.iter().filter(|&&cache| cache == Cache::Warm).count();
        let counted = samples.rows as usize * warm / self.caches.len().max(1);
        let counted = u32::try_from(counted).unwrap_or(u32::MAX);
        // They also warm up for as long as they measure.
        let warming = samples.each.saturating_sub(SAMPLE_OVERHEAD) * samples.per_row * counted;
        writing(self.kept_bytes(false)) + samples.time() + warming + samples.counting * counted
    }

    fn kept_bytes(&self, least: bool) -> u64 {
        self.size.of(least)
    }

    fn run(&self, context: &Context<'_>, keep: &mut Keep<'_>) -> Result<(), LabError> {
        self.caches.iter().try_for_each(|&cache| {
            let of_range = |&range_bytes| keep(run(context, self, cache, range_bytes));
            self.ranges_bytes.iter().try_for_each(of_range)
        })
    }
}

/// Every store at every depth, and the library's once more.
fn rows(plan: &ObjectsPlan, cache: Cache) -> Vec<Row> {
    let of_depth = |&depth: &usize| {
        let contestants = stores(cache).map(|(store, _)| store);
        let kind = |store: Store| STORES.iter().find(|(own, _)| *own == store).expect("listed").1;
        with_control(contestants, kind).into_iter().map(move |(store, kind)| {
            Row::new(store.name().to_owned(), kind, depth, Box::new(store))
        })
    };
    plan.depths.iter().flat_map(of_depth).collect()
}

/// Measures all rows with ranges of one length, in one state of the page cache.
fn run(context: &Context<'_>, plan: &ObjectsPlan, cache: Cache, range_bytes: usize) -> Outcome {
    let range = size_text(range_bytes as u64);
    let title = format!("objects, {RANGES} ranges of {range} a request, {cache}");
    let mut section = Section::new(&FACTS, title, rows(plan, cache));
    section.place = Place {
        profile: Some(Profile::Buffered),
        pattern: Some(Pattern::Random),
        cache: Some(cache),
        block_bytes: RANGES * range_bytes,
        ..Place::default()
    };
    section.short = format!("{}, {range}", cache.short());
    section.detour = Detour {
        what: "reads through the page cache",
        remedy: "use a store that reads with threads",
    };
    let result = measure(context, plan, cache, &mut section);
    let seed = context.plan.seed;
    section.rows.iter_mut().filter(|row| row.is_valid()).for_each(remark);
    for &depth in &plan.depths {
        section.verdicts.push(verdict::at_connections(&section.rows, depth, "request", None, seed));
        section.pairings.extend(verdict::pairings(&section.rows, depth, seed));
    }
    section.summarise();
    Outcome { section, result }
}

fn measure(
    context: &Context<'_>,
    plan: &ObjectsPlan,
    cache: Cache,
    section: &mut Section,
) -> Result<(), LabError> {
    let storage = Storage::of(&context.instruments.sources, context.directory().path());
    section.filesystem = storage.mount.known().map(|mount| mount.kind.clone());
    let seed = context.plan.seed;
    let layout = Layout { set: SET, files: plan.files, size: plan.size, seed };
    let objects = read::lay(context, cache, layout)?;
    section.notes.push(note(&objects));
    let read: Arc<[DataFile]> = objects.iter().map(read_part).collect();
    let request_bytes = section.place.block_bytes;
    let job = |row: &Row, order_seed| Job {
        files: read.clone(),
        block_bytes: request_bytes,
        pattern: Pattern::Random,
        cache,
        ..context.job(row.depth, order_seed)
    };
    let whole = Job { files: objects.into(), cache, ..context.job(1, seed) };
    let schedule = Schedule {
        timing: timing(cache, context.timing),
        // What nobody reads is in the page cache or not, as the rest is.
        prepare: &|_| page_cache::prepare(&whole),
        ..context.schedule(&job)
    };
    let title = section.title.clone();
    let tell = |row: &Row| format!("{title}: {} at depth {}", row.label(), row.depth);
    context.take(&schedule, section, &tell)?;
    // Counting would be another pass over objects that must be cold again.
    match cache {
        Cache::Warm => schedule.count(&mut section.rows, COUNTING, false),
        _ => Ok(()),
    }
}

/// A cold cache has no warm-up, because it would fill the cache. A warm one warms up for as long as it measures: a new
/// process first has to get memory for its answers, some MiB for each request.
fn timing(cache: Cache, timing: Timing) -> Timing {
    let warm_up = match (cache, timing.extent) {
        (Cache::Cold, _) => Duration::ZERO,
        (_, Extent::Time(time)) => time,
        (_, Extent::Operations(_)) => timing.warm_up,
    };
    Timing { warm_up, ..timing }
}

fn note(objects: &[DataFile]) -> String {
    format!(
        "objects: {} of {}; a request has one range in each {RANGES}th of an object, one byte in \
         {OBJECT_PARTS} is asked for, and each of these is verified",
        objects.len(),
        bytes_text(objects[0].bytes)
    )
}
