//! How the bytes of a file are copied: from the page cache or past it, and until they are durable.

pub mod cold;
pub mod direct;
pub mod durable;
pub mod piped;
pub mod shared;
pub mod to_device;
pub mod trees_to_device;
