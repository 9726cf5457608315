//! `scale`: random direct reads by more and more threads, each with its own ring, its own lane and its own files, which
//! may be on several devices. It shows up to how many threads a machine scales, what the lab itself costs there, and
//! which load keeps latency low.
//!
//! For each block and depth it has two sections: the reads (`reads`), and the same threads over memory (`own_cost`),
//! where only the lab is at work. For the deepest one it then offers load in an open loop (`knee`). A row's depth is its
//! number of threads, or the load that is offered to it. It is no part of the suite, because it takes minutes of its own.

mod facts;
mod ground;
mod knee;
mod neighbourhood;
mod own_cost;
mod plan;
mod reads;
mod scaling;
mod search;
mod shares;

use std::{path::PathBuf, time::Duration};

use ringwise_measure::{
    cpu::allowed_cpus,
    device::{Device, Storage},
    quantity::bytes_text,
};

pub use self::facts::FACTS;
use self::{
    ground::{Ground, Shape},
    plan::ScalePlan,
    search::RATES_MAX,
    shares::Place,
};
use super::{
    form::{Context, Entry, Keep, Workload},
    read::{self, page_cache},
};
use crate::{
    checks::gates,
    dataset::{Directory, Layout},
    error::LabError,
    plan::Defaults,
    sampling::{
        job::{Cache, Profile},
        sample::Instruments,
    },
    workload::form::cost::{Samples, writing},
};

/// Its line in the table.
pub static ENTRY: Entry = Entry {
    facts: &FACTS,
    suite_s: 0,
    has_files: true,
    flags: &["depth", "block", "size", "files", "threads", "keep", "reads"],
    defaults: Defaults::of,
    plan: |typed| Ok(Box::new(ScalePlan::new(typed)?)),
};

/// The name of the set of files.
const SET: &str = "scale";

impl Workload for ScalePlan {
    fn rows(&self) -> usize {
        let of_depth = |&depth: &usize| {
            reads::plans(&self.threads, depth).len() + own_cost::row_count(&self.null_threads())
        };
        let closed: usize = self.depths.iter().map(of_depth).sum();
        self.blocks_bytes.len() * (closed + knee::ENGINES.len() * RATES_MAX)
    }

    fn time(&self, samples: &Samples) -> Duration {
        let bytes = self.size.most * self.directories.len() as u64;
        writing(bytes) + samples.time() + samples.counting * samples.rows
    }

    fn directories(&self) -> &[PathBuf] {
        &self.directories
    }

    /// Those of one directory: each has as many.
    fn kept_bytes(&self, least: bool) -> u64 {
        self.size.of(least)
    }

    fn run(&self, context: &Context<'_>, keep: &mut Keep<'_>) -> Result<(), LabError> {
        let open = |path| Directory::open(path, context.plan.keep);
        // Held until the end: their files are removed when they are dropped.
        let others = self.directories.iter().skip(1).map(|path| open(path));
        let others = others.collect::<Result<Vec<Directory>, LabError>>()?;
        let directories: Vec<&Directory> =
            std::iter::once(context.directory()).chain(&others).collect();
        let storage = |path: &PathBuf| Storage::of(&context.instruments.sources, path);
        let storages: Vec<Storage> = self.directories.iter().map(storage).collect();
        let ground = ground(self, context, &directories, &storages)?;
        let instruments = instruments(context.instruments, &storages);
        let context = &Context { instruments: &instruments, ..*context };
        self.blocks_bytes
            .iter()
            .try_for_each(|&block| of_block(self, context, &ground, block, keep))
    }
}

/// Measures everything with blocks of one length.
fn of_block(
    plan: &ScalePlan,
    context: &Context<'_>,
    ground: &Ground,
    block_bytes: usize,
    keep: &mut Keep<'_>,
) -> Result<(), LabError> {
    let deepest = plan.depths.iter().copied().max();
    for &depth in &plan.depths {
        let shape = Shape { block_bytes, depth };
        let null = own_cost::run(context, &plan.null_threads(), shape, &ground.processors);
        if null.result.is_err() {
            return keep(null);
        }
        let costs = own_cost::Costs::of(&null.section.rows);
        let outcome = reads::run(context, &plan.threads, shape, ground, &costs);
        let best = knee::Best::of(&outcome.section.rows).filter(|_| Some(depth) == deepest);
        if outcome.result.is_err() {
            // What is measured is kept, and the run ends.
            keep(null)?;
            return keep(outcome);
        }
        keep(outcome)?;
        keep(null)?;
        // A check of the lab with itself is about rows of one engine.
        if let Some(best) = best.filter(|_| context.plan.self_check.is_none()) {
            keep(knee::run(context, shape, ground, &best))?;
        }
    }
    Ok(())
}

/// Lays files out in every directory, and looks whether they can be read past the page cache.
fn ground(
    plan: &ScalePlan,
    context: &Context<'_>,
    directories: &[&Directory],
    storages: &[Storage],
) -> Result<Ground, LabError> {
    let mut places = Vec::new();
    let mut laid = Vec::new();
    for (at, (directory, storage)) in directories.iter().zip(storages).enumerate() {
        if let Some(reason) = gates::storage(Profile::Direct, storage) {
            return Err(LabError::Failed(format!("{}: {reason}", plan.directories[at].display())));
        }
        // A file of one directory is to be none of another, though it has the same number.
        let seed = context.plan.seed.wrapping_add(at as u64);
        let layout = Layout { set: SET, files: plan.files, size: plan.size, seed };
        let inside = Context { directory: Some(*directory), ..*context };
        let files = read::lay(&inside, Cache::Bypassed, layout)?;
        read::check_direct(&files[0], &plan.blocks_bytes)?;
        // Pages in the cache would have to be looked for by every direct read.
        files.iter().try_for_each(page_cache::forget)?;
        let (count, bytes) = (files.len(), bytes_text(files[0].bytes));
        let noun = if count == 1 { "file" } else { "files" };
        laid.push(format!("{count} {noun} of {bytes} in {}", read::storage_note(storage)));
        places.push(Place { files, seed });
    }
    let all = allowed_cpus().unwrap_or_default();
    let most = plan.threads.last().copied().unwrap_or(1);
    let processors: Vec<usize> = all.iter().copied().take(most).collect();
    let known = |storage: &Storage| storage.device.known().cloned();
    let mut devices: Vec<Device> = storages.iter().filter_map(known).collect();
    devices.sort_by(|one, other| one.number.cmp(&other.number));
    devices.dedup();
    let mut notes = vec![laid.join("; ")];
    notes.extend(neighbourhood::note(&context.instruments.sources, &devices, &processors));
    notes.push("every block read is verified".to_owned());
    let filesystem = storages[0].mount.known().map(|mount| mount.kind.clone());
    Ok(Ground { places, processors: all, filesystem, notes })
}

/// Of several devices none is the one whose queue a table shows.
fn instruments(own: &Instruments, storages: &[Storage]) -> Instruments {
    let number = |storage: &Storage| storage.device.known().map(|device| device.number.clone());
    let is_one = storages.iter().all(|storage| number(storage) == number(&storages[0]));
    let device_number = own.device_number.clone().filter(|_| is_one);
    Instruments { device_number, ..own.clone() }
}
