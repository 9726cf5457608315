//! Appends its input to a file and makes it durable: `cargo run -p ringwise --example append FILE < TEXT`.
//!
//! The write and the sync are one chain. For a new file the directory is synced as well: until then
//! its name may be gone after a loss of power, and the bytes with it.

use std::{
    error::Error,
    io::Read,
    path::{Path, PathBuf},
    process::ExitCode,
};

use ringwise::{BufResult, OpenOptions, Ring, fs::File};

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: append FILE");
        return ExitCode::from(2);
    };
    match futures::executor::block_on(append(&path)) {
        Ok(count) => {
            println!("{count} bytes are durable in {}", path.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("append: {}: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}

async fn append(path: &Path) -> Result<usize, Box<dyn Error>> {
    let mut record = Vec::new();
    std::io::stdin().read_to_end(&mut record)?;
    let ring = Ring::new()?;
    let is_new = !path.try_exists()?;
    let file = File::open(&ring, path, OpenOptions::new().write(true).create(true)).await?;
    let end = file.metadata().await?.len();
    let BufResult(result, record) = file.write_durable_at(record, end).await;
    result?;
    if is_new {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        let directory = File::open(&ring, directory, OpenOptions::new().read(true)).await?;
        directory.sync_all().await?;
    }
    Ok(record.len())
}
