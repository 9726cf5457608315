//! A write-ahead log, and a simulated machine that finds the sync it forgot:
//! `cargo run -p ringwise --example write_ahead_log`. The story is told in docs/how-to/test-on-a-simulated-machine.md.
//!
//! The log promises one thing: a record that was acknowledged is there after a loss of power. It
//! keeps the promise with [`Care::Full`] and breaks it with each of the others.

use std::{error::Error, fmt, process::ExitCode};

use ringwise::{
    Descriptor, ErrorKind, Local, Opcode, OpenOptions, Operation,
    sim::{Fault, Simulation, When},
};

/// Which syncs the log makes before it acknowledges a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Care {
    /// Both that it needs.
    Full,
    /// All but that of the file: the record may be in a cache.
    NoFileSync,
    /// All but that of the directory: the log's own name may be in a cache.
    NoDirectorySync,
}

const DIRECTORY: &str = "/";
const PATH: &str = "/log";
/// A record begins with its length and its checksum.
const HEADER_BYTES: usize = 8;

/// An open log.
pub struct Log {
    file: Descriptor,
    end: u64,
    care: Care,
}

type Failure = Box<dyn Error>;

impl Log {
    /// Opens the log and makes it where there is none. Gives the records that are in it.
    pub fn open(local: &mut Local, care: Care) -> Result<(Log, Vec<Vec<u8>>), Failure> {
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = local.run(Operation::open(PATH, options))?.into_descriptor()?;
        if care != Care::NoDirectorySync {
            // Whether this open or one before it made the file: nobody can tell whether the name
            // was made durable.
            let directory = Operation::open(DIRECTORY, OpenOptions::new().read(true));
            let directory = local.run(directory)?.into_descriptor()?;
            local.run(Operation::sync_all(&directory))?.result()?;
        }
        let bytes = read_all(local, &file)?;
        let (records, end) = parse(&bytes);
        // What follows is half a record: the next one starts on clean ground.
        local.run(Operation::set_len(&file, end))?.result()?;
        Ok((Log { file, end, care }, records))
    }

    /// Appends a record. Once this has returned without an error the record is acknowledged.
    pub fn append(&mut self, local: &mut Local, payload: &[u8]) -> Result<(), Failure> {
        let mut record = Vec::with_capacity(HEADER_BYTES + payload.len());
        record.extend((payload.len() as u32).to_le_bytes());
        record.extend(checksum(payload).to_le_bytes());
        record.extend(payload);
        let len = record.len() as u64;
        write_all(local, &self.file, record, self.end)?;
        if self.care != Care::NoFileSync {
            // When this fails the file may have lost the record for good: no second try.
            local.run(Operation::sync_data(&self.file))?.result()?;
        }
        self.end += len;
        Ok(())
    }
}

/// Writes until everything is written: a write may take a part, or be interrupted.
fn write_all(
    local: &mut Local,
    file: &Descriptor,
    bytes: Vec<u8>,
    offset: u64,
) -> Result<(), Failure> {
    let mut written = 0;
    while written < bytes.len() {
        let rest = bytes[written..].to_vec();
        let write = Operation::write_at(file, rest, offset + written as u64);
        match local.run(write)?.result() {
            Ok(count) => written += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Reads until there is no more: a read may give a part.
fn read_all(local: &mut Local, file: &Descriptor) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    loop {
        let read = Operation::read_at(file, vec![0; 4096], bytes.len() as u64);
        let done = local.run(read)?;
        match done.result() {
            Ok(0) => return Ok(bytes),
            Ok(count) => {
                let buffer = done.into_buffer().expect("a read has a buffer");
                bytes.extend(&buffer.as_slice()[..count]);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The whole records at the start of the log, and where they end.
fn parse(mut bytes: &[u8]) -> (Vec<Vec<u8>>, u64) {
    let (mut records, mut end) = (Vec::new(), 0);
    while let Some((header, rest)) = bytes.split_at_checked(HEADER_BYTES) {
        let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four"));
        let Some((payload, rest)) = rest.split_at_checked(number(0) as usize) else { break };
        if payload.is_empty() || checksum(payload) != number(4) {
            break;
        }
        records.push(payload.to_vec());
        end += (HEADER_BYTES + payload.len()) as u64;
        bytes = rest;
    }
    (records, end)
}

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811C_9DC5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// A promise that the log broke.
#[derive(Debug)]
pub struct Broken {
    /// What the machine was made from: the same seed shows the same again.
    pub seed: u64,
    /// How many records were acknowledged before the power failed.
    pub acknowledged: usize,
    /// How many records the log had afterwards.
    pub found: usize,
    /// What happened until then, a line for each event.
    pub trace: String,
}

impl Broken {
    /// The end of the story.
    fn last_events(&self, most: usize) -> String {
        let lines: Vec<&str> = self.trace.lines().collect();
        lines[lines.len().saturating_sub(most)..].join("\n")
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Broken { seed, acknowledged, found, .. } = self;
        write!(f, "seed {seed}: of {acknowledged} acknowledged records {found} are left")
    }
}

/// Lives through a few losses of power, and looks after each for what was acknowledged before.
pub fn check(seed: u64, care: Care) -> Result<(), Box<Broken>> {
    const LIVES: usize = 4;
    let simulation = Simulation::builder(seed)
        .fault(Fault::PowerLoss, When::rate(0.02))
        .fault(Fault::ShortWrite, When::rate(0.2))
        .fault(Fault::ShortRead, When::rate(0.2))
        .fault(Fault::Interrupted, When::rate(0.05).of(Opcode::Write))
        .build();
    let mut acknowledged = Vec::new();
    for _ in 0..LIVES {
        live(&simulation, care, &mut acknowledged)?;
        simulation.crash();
    }
    Ok(())
}

/// From power to power: opens the log, and appends until something fails. That the power fails is
/// no fault of the log's; that a record is gone afterwards is.
fn live(
    simulation: &Simulation,
    care: Care,
    acknowledged: &mut Vec<Vec<u8>>,
) -> Result<(), Box<Broken>> {
    let builder = Local::builder().simulation(simulation);
    let mut local = builder.build().expect("a simulation needs two descriptors and some memory");
    let Ok((mut log, records)) = Log::open(&mut local, care) else { return Ok(()) };
    if !records.starts_with(acknowledged) {
        return Err(Box::new(Broken {
            seed: simulation.seed(),
            acknowledged: acknowledged.len(),
            found: records.len(),
            trace: simulation.trace(),
        }));
    }
    // One that was under way when the power failed may be there: then it is there to stay.
    *acknowledged = records;
    for number in 0..100 {
        let payload = format!("record {number} ").repeat(1 + number % 60).into_bytes();
        if log.append(&mut local, &payload).is_err() {
            break;
        }
        acknowledged.push(payload);
    }
    Ok(())
}

fn main() -> ExitCode {
    for care in [Care::NoFileSync, Care::NoDirectorySync] {
        match (0..100).find_map(|seed| check(seed, care).err()) {
            Some(broken) => println!("{care:?}: {broken}\n{}", broken.last_events(12)),
            None => return ExitCode::FAILURE,
        }
    }
    match (0..1000).find_map(|seed| check(seed, Care::Full).err()) {
        Some(broken) => {
            println!("{:?}: {broken}\n{}", Care::Full, broken.trace);
            ExitCode::FAILURE
        }
        None => {
            println!("{:?}: nothing was lost in 1000 seeds", Care::Full);
            ExitCode::SUCCESS
        }
    }
}
