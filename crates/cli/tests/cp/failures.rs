//! What a copy leaves if it fails, if it is killed, and if others change files meanwhile.

pub mod atomic;
pub mod faults;
pub mod kills;
pub mod meanwhile;
pub mod resumed;
pub mod swapped;
