//! Compresses the records of a batch, if that was asked for.
//!
//! By zstd alone, which the daemon has for segments anyway; lz4 would be one more crate. docs/notes/logd/kafka.md has
//! what it costs.

use clap::ValueEnum;
use zstd::{bulk::Compressor, zstd_safe::compress_bound};

use super::wire::Put;

/// The level that takes the least time.
const LEVEL: i32 = 1;
/// The compression of a batch, in its attributes.
const ZSTD: i16 = 4;

/// How batches are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Compression {
    /// No compression
    #[default]
    None,
    /// zstd at level 1
    Zstd,
}

/// Compresses records, with memory that is used again.
pub(super) struct Packer {
    compressor: Option<Compressor<'static>>,
    plain: Vec<u8>,
    packed: Vec<u8>,
}

impl Packer {
    pub(super) fn new(compression: Compression) -> Packer {
        let compressor = match compression {
            Compression::None => None,
            // It fails for want of memory alone; batches go as they are then.
            Compression::Zstd => Compressor::new(LEVEL).ok(),
        };
        Packer { compressor, plain: Vec::new(), packed: Vec::new() }
    }

    /// Adds records, and says in the batch's attributes how they are compressed. They stay plain if that is shorter.
    pub(super) fn pack(
        &mut self,
        out: &mut Vec<u8>,
        attributes_at: usize,
        records: impl FnOnce(&mut Vec<u8>),
    ) {
        let Some(compressor) = &mut self.compressor else { return records(out) };
        self.plain.clear();
        records(&mut self.plain);
        self.packed.clear();
        self.packed.reserve(compress_bound(self.plain.len()));
        let packed = compressor.compress_to_buffer(&self.plain, &mut self.packed);
        if packed.is_err() || self.packed.len() >= self.plain.len() {
            return out.put(&self.plain);
        }
        out[attributes_at + 1] |= ZSTD as u8;
        out.put(&self.packed);
    }
}
