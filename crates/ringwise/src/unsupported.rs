//! The crate on targets that are not a 64-bit Linux, so that a portable program can name its types.
//!
//! A constructor answers `Unsupported`. The types that it would make have no values, so their methods
//! have no code. Whatever is made without the kernel (a builder, options, an operation) exists and
//! holds nothing. The simulated machine, mappings, journals, `parts` and the page cache's state are left out.

/// Types without a value. Each method is its signature; `self` stands before it for hygiene.
macro_rules! absent {
    ($($name:ident $([$derive:ident])? { $($me:ident [$($signature:tt)*])* })*) => { $(
        #[doc = concat!("See `", stringify!($name), "` on Linux. This target has no value of it.")]
        #[derive(Debug $(, $derive)?)]
        pub struct $name(#[allow(dead_code)] pub(crate) crate::error::Never);

        #[allow(missing_docs, unused_variables, clippy::len_without_is_empty)]
        impl $name {
            $(pub $($signature)* { match $me.0 {} })*
        }
    )* };
}

#[path = "unsupported/buf.rs"]
pub(crate) mod buf;
#[path = "unsupported/descriptor.rs"]
pub(crate) mod descriptor;
#[path = "unsupported/error.rs"]
pub(crate) mod error;
#[path = "unsupported/fs.rs"]
pub mod fs;
#[path = "unsupported/local.rs"]
pub(crate) mod local;
#[path = "unsupported/net.rs"]
pub mod net;
#[path = "unsupported/op.rs"]
pub(crate) mod op;
#[path = "unsupported/ring.rs"]
pub(crate) mod ring;
#[path = "flight/slot/ticket.rs"]
#[allow(dead_code)]
pub(crate) mod slot;

pub(crate) mod sim {
    //! The simulated machine, which cannot be made.

    /// There is none.
    #[derive(Clone, Debug)]
    pub struct Simulation(());
}
