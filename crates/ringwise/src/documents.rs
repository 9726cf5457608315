//! The programs in README.md and in docs/, run as doctests: `cargo test -p ringwise --all-features
//! --doc`. A document gets here by a line below.

macro_rules! documents {
    ($($name:ident $path:literal)*) => { $(#[doc = include_str!($path)] struct $name;)* };
}

documents! {
    Readme "../../../README.md"
    Library "../../../docs/tutorial/library.md"
    ReadAFileFast "../../../docs/how-to/read-a-file-fast.md"
    ChooseRingOrLocal "../../../docs/how-to/choose-ring-or-local.md"
    AppendDurably "../../../docs/how-to/append-durably.md"
    RunInAContainer "../../../docs/how-to/run-in-a-container.md"
    Restrictions "../../../docs/explanation/restrictions.md"
    Simulation "../../../docs/how-to/test-on-a-simulated-machine.md"
}
