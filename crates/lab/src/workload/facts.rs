//! What the rest of the lab knows of a workload: its name, and the words and columns of its tables.

use super::columns::Column;

/// What the rest of the lab knows of a workload.
#[derive(Debug)]
pub struct Facts {
    /// The name, as it is typed and in results files.
    pub name: &'static str,
    /// What the depth of a row is called: depth, batch, connections, files.
    pub depth_is: &'static str,
    /// The columns of its tables.
    pub columns: &'static [Column],
    /// Whether its verdicts are about rings, and so count in the verdict on the machine. A workload
    /// that compares the library with a bare ring is about the library.
    pub is_about_rings: bool,
}
