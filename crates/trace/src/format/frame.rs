//! What a frame is: its limits, its kinds and its checksum. It knows nothing of records.

/// The version that `Writer` writes, and the latest that `Reader` reads.
pub const VERSION: u16 = 3;

/// The first bytes of every trace.
pub const MAGIC: [u8; 8] = *b"RWTRACE\n";

/// The most bytes that a frame's payload has. A reader needs no more memory than this.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// The length and the checksum before each payload.
pub(crate) const FRAME_HEAD_BYTES: usize = 8;

/// What a payload begins with.
pub(crate) mod kind {
    pub(crate) const HEADER: u8 = 0;
    pub(crate) const RECORDS: u8 = 1;
    pub(crate) const END: u8 = 2;
}

/// The checksum of a frame: CRC-32 of the four bytes of its length and of its payload.
pub(crate) fn checksum(len: [u8; 4], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&len);
    hasher.update(payload);
    hasher.finalize()
}
