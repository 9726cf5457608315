//! Chains on a file: what they tell, with everything going wrong that can (invariants 10 and 11).

use std::{collections::BTreeSet, future::Future, time::Duration};

use futures::executor::block_on;
use ringwise::{
    BackendChoice, BufResult, ErrorKind, Local, Opcode, OpenOptions, Ring,
    fs::{Chain, File, StepOutcome},
    sim::{Fault, Simulation, When},
};

fn options() -> OpenOptions {
    OpenOptions::new().read(true).write(true).create(true)
}

/// A file on a simulated machine, whose name is durable.
fn simulated(simulation: &Simulation) -> File {
    if !simulation.exists("/log") {
        simulation.write("/log", "").unwrap();
    }
    let ring = Local::builder().simulation(simulation).build_ring().unwrap();
    block_on(File::open(&ring, "/log", options())).unwrap()
}

/// The rings of this machine.
fn rings() -> Vec<Ring> {
    [BackendChoice::Uring, BackendChoice::Classic]
        .into_iter()
        .filter_map(|choice| match Local::builder().entries(8).backend(choice).build_ring() {
            Ok(ring) => Some(ring),
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "skipped in CI: {error}");
                println!("skipped: {error}");
                None
            }
        })
        .collect()
}

const LEN: usize = 1500;

/// Two writes, a sync, a third write, a sync and a read of it all.
fn program(file: &File) -> Chain {
    file.chain()
        .write_at(vec![1; LEN], 0)
        .write_at(vec![2; LEN], LEN as u64)
        .sync_data()
        .write_at(vec![3; LEN], 2 * LEN as u64)
        .sync_all()
        .read_at(vec![0; 3 * LEN], 0)
}

fn written() -> Vec<u8> {
    [1_u8, 2, 3].into_iter().flat_map(|byte| vec![byte; LEN]).collect()
}

fn kinds(steps: &[StepOutcome]) -> Vec<Option<ErrorKind>> {
    steps.iter().map(|step| step.result.as_ref().err().map(|error| error.kind())).collect()
}

#[test]
fn a_chain_does_its_steps_in_order() {
    let directory = tempfile::tempdir().unwrap();
    for ring in rings() {
        block_on(async {
            let path = directory.path().join("file");
            let file = File::open(&ring, &path, options()).await.unwrap();
            let mut steps = program(&file).run().await;
            let moved: Vec<usize> =
                steps.iter().map(|step| *step.result.as_ref().unwrap()).collect();
            assert_eq!(moved, [LEN, LEN, 0, LEN, 0, 3 * LEN]);
            assert_eq!(steps.pop().unwrap().into_buffer::<Vec<u8>>(), written());
            assert_eq!(std::fs::read(&path).unwrap(), written());
            // More steps than the ring takes at once.
            let long = (0..50_u64)
                .fold(file.chain(), |chain, at| chain.write_at(vec![at as u8; 8], 7 * at));
            let steps = long.run().await;
            assert!(steps.iter().all(|step| *step.result.as_ref().unwrap() == 8));
            let bytes = std::fs::read(&path).unwrap();
            assert!((0..50).all(|at| bytes[7 * at] == at as u8));
            assert_eq!(file.chain().run().await.len(), 0);
        });
    }
}

#[test]
fn a_read_at_the_end_ends_the_chain() {
    let directory = tempfile::tempdir().unwrap();
    for ring in rings() {
        block_on(async {
            let path = directory.path().join("ten");
            std::fs::write(&path, [5; 10]).unwrap();
            let file = File::open(&ring, &path, options()).await.unwrap();
            let chain = file.chain().read_at(vec![0; 8], 6).write_at(vec![9; 10], 0).sync_data();
            let steps = chain.run().await;
            let cancelled = Some(ErrorKind::Cancelled);
            assert_eq!(kinds(&steps), [None, cancelled, cancelled]);
            assert_eq!(*steps[0].result.as_ref().unwrap(), 4);
            let buffers: Vec<_> = steps.into_iter().filter_map(|step| step.buffer).collect();
            assert_eq!(buffers[0].as_slice(), [5, 5, 5, 5, 0, 0, 0, 0]);
            assert_eq!(buffers[1].as_slice(), [9; 10]);
            assert_eq!(std::fs::read(&path).unwrap(), [5; 10]);
            // Only what is wrong is told as wrong.
            let chain =
                file.chain().write_at(vec![1; 2], 0).write_at(vec![1], u64::MAX).sync_data();
            let steps = chain.run().await;
            assert_eq!(kinds(&steps), [None, Some(ErrorKind::InvalidInput), cancelled]);
        });
    }
}

#[test]
fn a_part_of_a_buffer_is_written_and_the_whole_comes_back() {
    for ring in rings() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        block_on(async {
            let file = File::open(&ring, &path, options()).await.unwrap();
            let part = ringwise::Buffer::from(b"a durable part".to_vec()).slice(2..9);
            let BufResult(result, buffer) = file.write_durable_at(part, 0).await;
            result.unwrap();
            assert_eq!(buffer.selected(), b"durable");
            assert_eq!(buffer.as_slice(), b"a durable part");
            assert_eq!(std::fs::read(&path).unwrap(), b"durable");
        });
    }
}

/// Each write in turn is short, and so is each write of the repair.
#[test]
fn a_short_write_is_repaired_wherever_it_happens() {
    for n in 1..=8 {
        let simulation = Simulation::builder(n).fault(Fault::ShortWrite, When::nth(n)).build();
        let file = simulated(&simulation);
        let mut steps = block_on(program(&file).run());
        assert_eq!(kinds(&steps), [None; 6], "at write {n}\n{}", simulation.trace());
        assert_eq!(steps.pop().unwrap().into_buffer::<Vec<u8>>(), written());
        simulation.crash();
        assert_eq!(simulation.read("/log").unwrap(), written(), "{}", simulation.trace());
    }
    let simulation = Simulation::builder(1).fault(Fault::ShortWrite, When::always()).build();
    let file = simulated(&simulation);
    assert_eq!(kinds(&block_on(program(&file).run())), [None; 6]);
    simulation.crash();
    assert_eq!(simulation.read("/log").unwrap(), written());
}

#[test]
fn a_short_read_is_read_on() {
    for n in 1..=3 {
        let simulation = Simulation::builder(n).fault(Fault::ShortRead, When::nth(n)).build();
        simulation.write("/log", written()).unwrap();
        let file = simulated(&simulation);
        let chain = file.chain().read_at(vec![0; LEN], 0).read_at(vec![0; LEN], LEN as u64);
        let steps = block_on(chain.sync_data().run());
        assert_eq!(kinds(&steps), [None; 3]);
        let read: Vec<u8> =
            steps.into_iter().take(2).flat_map(StepOutcome::into_buffer::<Vec<u8>>).collect();
        assert_eq!(read, written()[..2 * LEN]);
    }
}

#[test]
fn an_error_ends_the_chain_wherever_it_happens() {
    for n in 1..=6_usize {
        let simulation = Simulation::new(n as u64);
        let file = simulated(&simulation);
        simulation.inject(Fault::Io, When::nth(n as u64));
        let steps = block_on(program(&file).run());
        let expected = (1..=6).map(|step| match step {
            _ if step < n => None,
            _ if step == n => Some(ErrorKind::Io),
            _ => Some(ErrorKind::Cancelled),
        });
        assert_eq!(kinds(&steps), expected.collect::<Vec<_>>(), "at step {n}");
        let has_buffer: Vec<bool> = steps.iter().map(|step| step.buffer.is_some()).collect();
        assert_eq!(has_buffer, [true, true, false, true, false, true], "they come back");
        // A sync that failed poisons the file; a write that failed does not.
        let again = block_on(file.write_durable_at(vec![1; 4], 0)).0;
        let is_sync = matches!(n, 3 | 5);
        assert_eq!(again.is_err(), is_sync, "after an error of step {n}");
        if is_sync {
            assert!(block_on(file.sync_data()).is_err(), "never retried into success");
        }
    }
}

/// A poisoned file can still be read, up to the first step that would write.
#[test]
fn a_poisoned_file_is_read_and_not_written() {
    let simulation = Simulation::new(3);
    let file = simulated(&simulation);
    block_on(file.write_all_at(vec![4; 10], 0)).0.unwrap();
    simulation.inject(Fault::Io, When::nth(1).of(Opcode::Sync));
    block_on(file.sync_data()).unwrap_err();
    let chain = file.chain().read_at(vec![0; 10], 0).write_at(vec![5; 10], 0).sync_data();
    let steps = block_on(chain.run());
    assert_eq!(kinds(&steps), [None, Some(ErrorKind::Io), Some(ErrorKind::Cancelled)]);
    assert_eq!(simulation.read("/log").unwrap(), [4; 10]);
}

/// What was told durable is there after a crash, whatever went wrong before.
#[test]
fn what_was_told_durable_survives_every_crash() {
    let mut durable = BTreeSet::new();
    for seed in 0..400 {
        let simulation = Simulation::new(seed);
        let file = simulated(&simulation);
        for (fault, rate) in [
            (Fault::Delay, 0.5),
            (Fault::ShortWrite, 0.5),
            (Fault::Io, 0.03),
            (Fault::NoSpace, 0.03),
            (Fault::PartialSubmit, 0.2),
            (Fault::SubmitRefused, 0.1),
        ] {
            simulation.inject(fault, When::rate(rate));
        }
        let chain = file.chain().write_at(vec![1; LEN], 0).write_at(vec![2; LEN], LEN as u64);
        let steps = block_on(chain.sync_data().write_at(vec![3; LEN], 2 * LEN as u64).run());
        let is_durable = steps[2].result.is_ok();
        durable.insert(is_durable);
        simulation.crash();
        if is_durable {
            let bytes = simulation.read("/log").unwrap();
            assert!(
                bytes.len() >= 2 * LEN && bytes[..2 * LEN] == written()[..2 * LEN],
                "seed {seed}\n{}",
                simulation.trace()
            );
        }
    }
    assert_eq!(durable.len(), 2, "some failed and some did not");
}

/// The power fails at every operation in turn.
#[test]
fn what_was_told_durable_survives_a_loss_of_power_in_the_chain() {
    for n in 1..=12 {
        for seed in 0..20 {
            let simulation = Simulation::new(seed);
            let file = simulated(&simulation);
            simulation.inject(Fault::ShortWrite, When::rate(0.5));
            simulation.inject(Fault::PowerLoss, When::nth(n));
            let steps = block_on(program(&file).run());
            simulation.crash();
            let bytes = simulation.read("/log").unwrap();
            for (sync, len) in [(2, 2 * LEN), (4, 3 * LEN)] {
                if steps[sync].result.is_ok() {
                    assert!(bytes.len() >= len && bytes[..len] == written()[..len]);
                }
            }
        }
    }
}

#[test]
fn a_chain_that_is_dropped_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    for ring in rings() {
        let path = directory.path().join("dropped");
        let file = block_on(File::open(&ring, &path, options())).unwrap();
        let waker = std::task::Waker::noop();
        for _ in 0..50 {
            let mut run = Box::pin(program(&file).run());
            let polled = run.as_mut().poll(&mut std::task::Context::from_waker(waker));
            drop(polled);
        }
        block_on(ring.shutdown(Duration::from_secs(10))).unwrap();
        let stats = ring.stats();
        assert_eq!(stats.delivered + stats.reclaimed, stats.submitted);
        assert_eq!(std::fs::read(&path).unwrap(), written(), "writes go on to their end");
    }
}

/// What fails unseen is not forgotten: the kernel tells of it once.
#[test]
fn a_sync_that_fails_in_a_dropped_chain_poisons_the_file() {
    for seed in 0..20 {
        let simulation =
            Simulation::builder(seed).fault(Fault::Io, When::nth(1).of(Opcode::Sync)).build();
        let file = simulated(&simulation);
        let mut run = Box::pin(file.chain().write_at(vec![1; 10], 0).sync_data().run());
        let polled =
            run.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
        // Looked at or not, it may have ended by now.
        drop((polled, run));
        // It ends, and nobody looks.
        let later = ringwise::Operation::timeout(Duration::from_millis(20));
        block_on(file.ring().submit(later)).result().unwrap();
        let error = block_on(file.sync_data()).expect_err("what was written may be lost");
        assert!(error.to_string().contains("an earlier sync"), "seed {seed}: {error}");
        let steps = block_on(file.chain().write_at(vec![1; 4], 0).sync_data().run());
        assert_eq!(kinds(&steps), [Some(ErrorKind::Io), Some(ErrorKind::Cancelled)]);
    }
}

/// Two chains and a sync at a time: one of the syncs fails, and what the others cover may be lost.
#[test]
fn of_several_chains_none_is_durable_where_a_sync_failed() {
    for seed in 0..12 {
        let simulation = Simulation::builder(seed)
            .fault(Fault::Delay, When::always().of(Opcode::Sync))
            .fault(Fault::Io, When::nth(seed % 3 + 1).of(Opcode::Sync))
            .latency(Duration::from_millis(20))
            .build();
        let file = simulated(&simulation);
        block_on(file.write_all_at(vec![0; 20], 0)).0.unwrap();
        let chain = |at| file.chain().sync_data().write_at(vec![1; 10], at).run();
        let all = futures::future::join3(chain(0), chain(10), file.sync_all());
        let (first, second, alone) = block_on(all);
        let results = [&first[0].result, &second[0].result, &alone.map(|()| 0)].map(Result::is_err);
        assert_eq!(results, [true; 3], "seed {seed}\n{}", simulation.trace());
    }
}

/// The time ends a chain wherever it is, and every buffer comes back in its place.
#[test]
fn a_deadline_ends_a_chain() {
    let mut places = BTreeSet::new();
    for seed in 0..12 {
        let simulation = Simulation::builder(seed)
            .fault(Fault::Delay, When::always())
            .latency(Duration::from_millis(30))
            .build();
        simulation.write("/log", written()).unwrap();
        let file = simulated(&simulation);
        let steps = block_on(program(&file).deadline(Duration::from_millis(30)).run());
        let kinds = kinds(&steps);
        // What cannot be stopped may have been the last.
        let Some(ended) = kinds.iter().position(Option::is_some) else { continue };
        places.insert(ended);
        assert_eq!(kinds[ended], Some(ErrorKind::TimedOut), "{kinds:?}\n{}", simulation.trace());
        assert!(kinds[ended + 1..].iter().all(|kind| *kind == Some(ErrorKind::Cancelled)));
        let len = |step: StepOutcome| step.buffer.map(|buffer| buffer.as_slice().len());
        let lens: Vec<_> = steps.into_iter().map(len).collect();
        assert_eq!(lens, [Some(LEN), Some(LEN), None, Some(LEN), None, Some(3 * LEN)]);
    }
    assert!(places.len() > 1, "{places:?}");
    let simulation = Simulation::new(1);
    let file = simulated(&simulation);
    let steps = block_on(program(&file).deadline(Duration::from_secs(3600)).run());
    assert_eq!(kinds(&steps), [None; 6], "in time");
}

/// On the kernel's files too: a read of a pipe that nobody writes to.
#[test]
fn a_deadline_ends_a_chain_that_waits() {
    for ring in rings() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let file = File::from_std(&ring, std::os::fd::OwnedFd::from(reader).into());
        let chain = file.chain().read_at(vec![7; 4], 0).read_at(vec![8; 4], 0).sync_data();
        let steps = block_on(chain.deadline(Duration::from_millis(20)).run());
        let cancelled = Some(ErrorKind::Cancelled);
        assert_eq!(kinds(&steps), [Some(ErrorKind::TimedOut), cancelled, cancelled]);
        let buffers: Vec<_> = steps.into_iter().filter_map(|step| step.buffer).collect();
        assert_eq!((buffers[0].as_slice(), buffers[1].as_slice()), (&[7; 4][..], &[8; 4][..]));
    }
}

/// A ring that closes ends the timer of a chain, which is not the end of its time: what may go on to its
/// end does.
#[test]
fn a_ring_that_closes_does_not_end_a_chains_writes() {
    for ring in rings() {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut writer, &vec![0; 64 << 10]).unwrap();
        let file = File::from_std(&ring, std::os::fd::OwnedFd::from(writer).into());
        let chain = file.chain().write_at(vec![7; 4], 0).deadline(Duration::from_secs(60));
        let reads = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            std::io::Read::read_exact(&mut reader, &mut vec![0; (64 << 10) + 4])
        });
        // The chain is polled first.
        let end = ring.shutdown(Duration::from_secs(20));
        let (steps, ended) = block_on(futures::future::join(chain.run(), end));
        assert_eq!(steps[0].result.as_ref().unwrap(), &4);
        ended.unwrap();
        reads.join().unwrap().unwrap();
    }
}

/// Reads that are made by a copy, one after the other, and each done at once.
#[test]
fn a_deadline_ends_a_chain_of_unaligned_direct_reads() {
    for ring in rings() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![3; 1 << 20]).unwrap();
        let options = OpenOptions::new().read(true).direct(true);
        let file = match block_on(File::open(&ring, &path, options)) {
            Ok(file) => file,
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "skipped in CI: {error}");
                return println!("skipped: {error}");
            }
        };
        let mut chain = file.chain().deadline(Duration::from_nanos(1));
        for number in 0..500 {
            chain = chain.read_at(vec![0; 100], number * 1000 + 1);
        }
        let steps = block_on(chain.run());
        let ended = kinds(&steps).iter().position(Option::is_some).expect("the time was over");
        assert_eq!(steps[ended].result.as_ref().unwrap_err().kind(), ErrorKind::TimedOut);
    }
}
