//! A ring that is built in a runtime without I/O has a thread of its own.
//!
//! Tokio panics where I/O is asked of such a runtime. The library catches that panic and prints nothing;
//! in a program that is compiled with `panic = "abort"` it does not ask:
//!
//!     cargo run --features tokio --example runtime_without_io --config 'profile.dev.panic="abort"'

use std::error::Error;

use ringwise::{Operation, Ring};

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
    runtime.block_on(async {
        let ring = Ring::new()?;
        let length = ring.submit(Operation::statx("/proc/self/exe")).await.metadata()?.len();
        println!("on {}: this program has {length} bytes", ring.setup().backend());
        Ok(())
    })
}
