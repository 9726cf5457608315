//! Random programs of many tasks over several lives of a simulated machine.
//!
//! Each life opens the journal, looks at what it has, and appends from several tasks, some of which give up.
//! Meanwhile the disk fails it and the power goes, as the seed says; or the program ends with commits under
//! way. What was acknowledged, or was found by an earlier life, has to be there, once and in order, and nothing
//! that was never appended.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex,
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

use fastrand::Rng;
use futures::{executor::block_on, future::join_all};
use ringwise::{
    ErrorKind, Local, Opcode, Ring,
    fs::{Journal, JournalOptions},
    sim::{Fault, Simulation, When},
};

use super::begin_and_drop;

const DIRECTORY: &str = "/journal";
const LIVES: usize = 5;
/// Longer than any program takes, on a busy machine too.
const PROGRAM_TIME_MAX: Duration = Duration::from_secs(60);

/// What a journal was given, and what it owes.
#[derive(Default)]
struct Ledger {
    given: BTreeSet<Vec<u8>>,
    /// What was acknowledged, or found when the journal was opened, by its number.
    owed: BTreeMap<u64, Vec<u8>>,
    /// Records before this one may be gone.
    removed_before: u64,
}

impl Ledger {
    /// A record that there was none like before.
    fn give(&mut self, random: &mut Rng) -> Vec<u8> {
        // Some within a sector of the disk, and some over several.
        let len = if random.bool() { random.usize(..60) } else { random.usize(..1500) };
        let record = format!("{}:{}", self.given.len(), "x".repeat(len)).into_bytes();
        self.given.insert(record.clone());
        record
    }

    fn acknowledge(&mut self, number: u64, record: Vec<u8>) -> Result<(), String> {
        match self.owed.insert(number, record) {
            None => Ok(()),
            Some(_) => Err(format!("number {number} was given twice")),
        }
    }

    /// Compares what a journal has with what it owes.
    fn check(&mut self, found: &[(u64, Vec<u8>)]) -> Result<(), String> {
        let stored: BTreeMap<u64, Vec<u8>> = found.iter().cloned().collect();
        if !found.is_sorted_by(|one, next| one.0 + 1 == next.0) {
            return Err(format!("the numbers have gaps: {:?}", stored.keys()));
        }
        for (number, record) in self.owed.range(self.removed_before..) {
            if stored.get(number) != Some(record) {
                return Err(format!("record {number} is lost"));
            }
        }
        let distinct: BTreeSet<&Vec<u8>> = stored.values().collect();
        if distinct.len() < stored.len() {
            return Err("a record is stored twice".to_owned());
        }
        if !stored.values().all(|record| self.given.contains(record)) {
            return Err("a record was never appended".to_owned());
        }
        self.owed.extend(stored);
        Ok(())
    }
}

/// The faults of one life.
fn inject(simulation: &Simulation, random: &mut Rng) {
    simulation.inject(Fault::Delay, When::rate(0.3));
    simulation.inject(Fault::ShortWrite, When::rate(0.1));
    simulation.inject(Fault::ShortRead, When::rate(0.1));
    match random.u8(..6) {
        0 | 1 => simulation.inject(Fault::PowerLoss, When::nth(random.u64(1..80))),
        2 => simulation.inject(Fault::Io, When::rate(0.03).of(Opcode::Sync)),
        3 => simulation.inject(Fault::Io, When::rate(0.02)),
        4 => simulation.inject(Fault::NoSpace, When::rate(0.02)),
        _ => simulation.inject(Fault::Interrupted, When::rate(0.01)),
    }
}

/// Appends from several tasks until all are through or the journal has failed.
async fn append(journal: &Journal, ledger: &Mutex<Ledger>, random: &mut Rng) -> Result<(), String> {
    let tasks = (0..random.usize(1..8)).map(|_| {
        let mut random = random.fork();
        async move {
            let mut last = None;
            for _ in 0..random.usize(1..12) {
                let record = ledger.lock().unwrap().give(&mut random);
                if random.u8(..6) == 0 {
                    begin_and_drop(journal.append(record));
                    continue;
                }
                let Ok(number) = journal.append(&record).await else { return Ok(()) };
                if last.replace(number) >= Some(number) {
                    return Err(format!("{number} is not after the task's last record"));
                }
                ledger.lock().unwrap().acknowledge(number, record)?;
            }
            Ok(())
        }
    });
    join_all(tasks).await.into_iter().collect()
}

/// Reads the journal, and compares. False if it cannot be read, which a fault may cause.
async fn look(journal: &Journal, ledger: &Mutex<Ledger>) -> Result<bool, String> {
    let start = ledger.lock().unwrap().removed_before;
    let mut records = journal.records(start);
    let mut found = Vec::new();
    loop {
        match records.next_record().await {
            Ok(Some(record)) => found.push((record.number, record.bytes)),
            Ok(None) => break,
            Err(error) if error.kind() == ErrorKind::Corrupt => return Err(error.to_string()),
            Err(_) => return Ok(false),
        }
    }
    ledger.lock().unwrap().check(&found).map(|()| true)
}

/// From an opening to the end of the program, or of the power.
async fn live(ring: &Ring, ledger: &Mutex<Ledger>, random: &mut Rng) -> Result<(), String> {
    let options = JournalOptions::default()
        .segment_bytes(random.u64(100..8000))
        .gathered_bytes(random.usize(100..4000));
    let journal = match Journal::open(ring, DIRECTORY, options).await {
        Ok((journal, _)) => journal,
        Err(error) if error.kind() == ErrorKind::Corrupt => return Err(error.to_string()),
        Err(_) => return Ok(()),
    };
    if !look(&journal, ledger).await? {
        return Ok(());
    }
    append(&journal, ledger, random).await?;
    if random.u8(..4) == 0 {
        let number = {
            let mut ledger = ledger.lock().unwrap();
            let end = ledger.owed.last_key_value().map_or(0, |(number, _)| number + 1);
            ledger.removed_before = random.u64(ledger.removed_before..=end);
            ledger.removed_before
        };
        let _ = journal.remove_before(number).await;
        look(&journal, ledger).await?;
        append(&journal, ledger, random).await?;
    }
    if random.bool() {
        let _ = journal.close().await;
    }
    Ok(())
}

fn ring(simulation: &Simulation) -> Ring {
    Local::builder().entries(8).simulation(simulation).build_ring().unwrap()
}

/// One program, and the trace of the machine if a promise was broken.
fn run(seed: u64) -> Result<(), String> {
    let mut random = Rng::with_seed(seed);
    let simulation = Simulation::builder(seed).latency(Duration::from_micros(200)).build();
    simulation.create_dir_all(DIRECTORY).unwrap();
    let ledger = Mutex::default();
    for life in 0..LIVES {
        if life + 1 < LIVES {
            inject(&simulation, &mut random);
        }
        let ring = ring(&simulation);
        let lived = block_on(live(&ring, &ledger, &mut random));
        lived.map_err(|broken| format!("life {life}: {broken}\n{}", simulation.trace()))?;
        // The program ends. What is in flight ends before another one begins.
        block_on(ring.shutdown(PROGRAM_TIME_MAX)).unwrap();
        simulation.heal();
        if !simulation.has_power() || random.bool() {
            simulation.crash();
        }
    }
    let ring = ring(&simulation);
    let found = block_on(async {
        let opened = Journal::open(&ring, DIRECTORY, JournalOptions::default()).await;
        let (journal, _) = opened.map_err(|error| error.to_string())?;
        look(&journal, &ledger).await
    });
    match found {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("it cannot be read\n{}", simulation.trace())),
        Err(broken) => Err(format!("{broken}\n{}", simulation.trace())),
    }
}

/// Runs a program, and tells which one it was that broke a promise or did not end.
fn run_in_time(seed: u64) {
    let (tell, told) = channel();
    let thread = thread::spawn(move || {
        run(seed).unwrap_or_else(|broken| panic!("{broken}"));
        let _ = tell.send(());
    });
    let ended = told.recv_timeout(PROGRAM_TIME_MAX);
    let repeat = format!("RINGWISE_SEED={seed} RINGWISE_SEEDS=1");
    assert!(ended != Err(RecvTimeoutError::Timeout), "{repeat}: it did not end");
    assert!(thread.join().is_ok(), "{repeat}");
}

#[test]
fn what_was_acknowledged_survives_every_crash() {
    let asked = |variable, otherwise| {
        std::env::var(variable).map_or(otherwise, |text: String| text.parse::<u64>().unwrap())
    };
    let first = asked("RINGWISE_SEED", 1);
    let seeds = Mutex::new(first..first + asked("RINGWISE_SEEDS", 200));
    let next_seed = || seeds.lock().unwrap().next();
    // A program waits for about half of its time.
    let threads = 2 * thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| std::iter::from_fn(next_seed).for_each(run_in_time));
        }
    });
}
