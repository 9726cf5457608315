//! Sums a file's bytes with many reads in flight: `cargo run --release --example checksum FILE`.
//!
//! The shape of every program over a [`Local`]: keep the loop full, submit what was pushed and
//! wait with one call, take what came, use each buffer again.

use std::{error::Error, fs::File, process::ExitCode};

use ringwise::{Descriptor, Local, Operation};

const DEPTH: u64 = 32;
const BLOCK_BYTES: u64 = 128 << 10;

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: checksum FILE");
        return ExitCode::from(2);
    };
    match checksum(&path) {
        Ok(sum) => {
            println!("{sum:016x}  {}", path.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("checksum: {}: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}

fn checksum(path: &std::ffi::OsStr) -> Result<u64, Box<dyn Error>> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let file = Descriptor::from(file);
    let mut local = Local::builder().entries(DEPTH as u32).build()?;
    let pool = local.register_pool(DEPTH as usize, BLOCK_BYTES as usize)?;

    let (mut offset, mut sum) = (0, 0_u64);
    loop {
        while offset < len {
            let Some(buffer) = pool.take() else { break };
            local.push(Operation::read_at(&file, buffer, offset), offset)?;
            offset += BLOCK_BYTES;
        }
        if local.in_flight() == 0 {
            return Ok(sum);
        }
        local.submit_and_wait(1)?;
        while let Some(done) = local.next_completion() {
            let (at, count) = (done.tag(), done.result()?);
            let expected = BLOCK_BYTES.min(len - at) as usize;
            if count != expected {
                return Err(format!("{count} bytes at {at} instead of {expected}").into());
            }
            let buffer = done.into_buffer().expect("a read has a buffer");
            let bytes = buffer.as_slice()[..count].iter();
            sum = sum.wrapping_add(bytes.map(|&byte| u64::from(byte)).sum());
        }
    }
}
