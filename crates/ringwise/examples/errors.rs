//! What bad input and reached limits are told: `cargo run --release --example errors [uring|classic]`.
//!
//! Each line is a request and what came back. A program decides by [`Error::kind`] and prints the
//! error itself, which names the operation, the file, the offset and the remedy. The buffer comes
//! back with each of them.

use std::{error::Error as StdError, fs::File as StdFile, time::Duration};

use ringwise::{
    BackendChoice, BufResult, Error, Local, OpenOptions, Operation, Registration, Ring, fs::File,
    sim::Simulation,
};
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::{CapabilitySet, capabilities, set_capabilities},
};

fn main() -> Result<(), Box<dyn StdError>> {
    let choice = match std::env::args().nth(1).as_deref() {
        None => BackendChoice::Auto,
        Some("uring") => BackendChoice::Uring,
        Some("classic") => BackendChoice::Classic,
        Some(other) => return Err(format!("{other}: neither uring nor classic").into()),
    };
    let ring = Local::builder().backend(choice).driver_thread(true).build_ring()?;
    println!("on {}:", ring.setup().backend());
    futures::executor::block_on(async {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("file");
        std::fs::write(&path, [7; 10_000])?;
        let options = OpenOptions::new().read(true).write(true);
        let file = File::open(&ring, &path, options).await?;
        requests(&ring, &file).await;
        tell("a NUL in a path", File::open(&ring, "/a\0b", options).await.map(drop));
        tell("no such file", File::open(&ring, "/no/such/file", options).await.map(drop));
        direct(&ring, directory.path()).await;
        descriptors(&ring, &path).await?;
        locked_memory(choice)?;
        limit_of_descriptors(&ring, &path, choice).await?;
        ring.shutdown(Duration::from_secs(5)).await?;
        tell("a ring that was shut down", file.read_at(vec![0; 8], 0).await.0);
        Ok(())
    })
}

/// Prints what a request came to.
fn tell<T: std::fmt::Debug>(what: &str, result: Result<T, Error>) {
    match result {
        Ok(value) => println!("{what}: {value:?}"),
        Err(error) => println!("{what}: {:?}: {error}", error.kind()),
    }
}

/// Offsets, lengths and times that no file can serve.
async fn requests(ring: &Ring, file: &File) {
    tell("a read past the end", file.read_at(vec![0; 8], 1 << 40).await.0);
    tell("a read that the end cuts", file.read_exact_at(vec![0; 100], 9_990).await.0);
    tell("an offset past i64", file.read_at(vec![0; 8], 1 << 63).await.0);
    tell("a write past i64", file.write_all_at(vec![0; 8], (1 << 63) - 4).await.0);
    tell("a longer file", file.set_len(3 << 30).await);
    let BufResult(read, bytes) = file.read_at(vec![1; (2 << 30) + 1], 0).await;
    tell("2 GiB and a byte of it at once", read);
    tell("the same to its end", file.read_exact_at(bytes, 0).await.0);
    let (silent, _writer) = std::io::pipe().expect("two descriptors");
    let pipe = File::from_std(ring, StdFile::from(std::os::fd::OwnedFd::from(silent)));
    let soon = pipe.with_deadline(Duration::from_millis(10));
    tell("a deadline that passes", soon.read_at(vec![0; 8], 0).await.0);
}

/// A direct file serves what is not aligned, and an operation on its descriptor does not.
async fn direct(ring: &Ring, directory: &std::path::Path) {
    let options = OpenOptions::new().read(true).write(true).direct(true);
    let file = match File::open(ring, directory.join("file"), options).await {
        Ok(file) => file,
        Err(error) => return tell::<()>("a direct file", Err(error)),
    };
    tell("an unaligned direct read", file.read_at(vec![0; 100], 77).await.0);
    let strict = Operation::read_at(file.descriptor(), vec![0; 100], 77);
    tell("the same where that is to be an error", ring.submit(strict).await.result());
    tell("an unaligned direct write", file.write_at(vec![0; 100], 77).await.0);
}

/// Descriptors of the other direction, of another ring, and of another machine.
async fn descriptors(ring: &Ring, path: &std::path::Path) -> Result<(), Box<dyn StdError>> {
    let only_read = File::open(ring, path, OpenOptions::new().read(true)).await?;
    tell("a write to what is open for reading", only_read.write_at(vec![0; 8], 0).await.0);
    let clone = only_read.clone();
    tell("a close of what a clone still holds", only_read.close().await);
    let other = Local::builder().driver_thread(true).build_ring()?;
    let entry = other.register_file(clone.descriptor()).await?;
    let foreign = ring.submit(Operation::read_at(entry, vec![0; 8], 0)).await;
    tell("a registered file of another ring", foreign.result());
    let simulation = Simulation::new(1);
    simulation.write("/file", "content")?;
    let elsewhere = simulation.open("/file", OpenOptions::new().read(true))?;
    let foreign = ring.submit(Operation::read_at(&elsewhere, vec![0; 8], 0)).await;
    tell("a file of a simulated machine", foreign.result());
    Ok(())
}

/// Whoever may lock memory without a limit (`CAP_IPC_LOCK`) meets none: it is given away.
fn locked_memory(choice: BackendChoice) -> Result<(), Box<dyn StdError>> {
    let mut sets = capabilities(None)?;
    sets.effective.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, sets)?;
    let Rlimit { maximum, .. } = getrlimit(Resource::Memlock);
    setrlimit(Resource::Memlock, Rlimit { current: Some(64 << 10), maximum })?;
    let pool = Local::builder().backend(choice).build()?.register_pool(64, 64 << 10)?;
    match pool.registration() {
        Registration::Unregistered(reason) => {
            println!("a pool beyond the limit of locked memory: serves unregistered: {reason}");
        }
        registration => println!("a pool beyond the limit of locked memory: {registration:?}"),
    }
    Ok(())
}

/// At the limit nothing new is opened, and what is open goes on.
async fn limit_of_descriptors(
    ring: &Ring,
    path: &std::path::Path,
    choice: BackendChoice,
) -> Result<(), Box<dyn StdError>> {
    let options = OpenOptions::new().read(true);
    let open = File::open(ring, path, options).await?;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // Descriptors that are open stay so.
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), maximum })?;
    tell("an open beyond the limit", File::open(ring, path, options).await.map(drop));
    match Local::builder().backend(choice).driver_thread(true).build_ring() {
        Ok(_) => println!("a ring beyond the limit: made all the same"),
        Err(error) => println!("a ring beyond the limit: {error}"),
    }
    tell("a read of what is open", open.read_at(vec![0; 8], 0).await.0);
    setrlimit(Resource::Nofile, Rlimit { current, maximum })?;
    Ok(())
}
