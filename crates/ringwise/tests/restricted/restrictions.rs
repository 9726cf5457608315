//! What a loop was built not to do fails, with every backend and every driver, and everything else works.
//!
//! What the kernel refuses by itself is tested beside the code that restricts a ring
//! (`src/backend/uring/restrict.rs`).

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read, Write},
    os::{fd::OwnedFd, unix::net::UnixStream as StandardStream},
    time::Duration,
};

use crate::rings::{in_child, skip};
use futures::{executor::block_on, future::poll_immediate};
use ringwise::{
    Backend, BackendChoice, BufferGroup, Builder, Descriptor, Error, ErrorKind, FallbackReason,
    Guard, Local, Opcode, OpenOptions, Operation, PushRefusal, Registration, Ring, SetupError,
    fs::File,
    net::{Buffered, UnixStream},
    sim::Simulation,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

/// `IORING_REGISTER_RESTRICTIONS`.
const RESTRICT: u64 = 11;
const SECOND: Duration = Duration::from_secs(1);

/// A file that a backend can read, and the builder of that backend.
struct Way {
    builder: Builder,
    file: Descriptor,
    guard: Guard,
}

/// All backends: the ring with deferred work and with a submission thread, classic, simulated.
fn ways() -> Vec<Way> {
    let real = || Descriptor::from(fs::File::open("/proc/self/exe").unwrap());
    let simulation = Simulation::new(1);
    simulation.write("/file", b"\x7fELF").unwrap();
    let simulated = Local::builder().simulation(&simulation);
    let opened = simulation.open("/file", OpenOptions::new().read(true)).unwrap();
    let uring = Local::builder().backend(BackendChoice::Uring);
    let sqpoll = uring.clone().sqpoll(Some(Duration::from_millis(20)));
    let classic = Local::builder().backend(BackendChoice::Classic);
    let mut ways = vec![
        Way { builder: classic, file: real(), guard: Guard::Library },
        Way { builder: simulated, file: opened, guard: Guard::Library },
    ];
    for builder in [uring, sqpoll] {
        match builder.clone().build() {
            Ok(_) => ways.push(Way { builder, file: real(), guard: Guard::Kernel }),
            Err(error) => skip(&error.to_string()),
        }
    }
    ways
}

/// The error of an operation that is not taken, which comes back.
fn refusal(local: &mut Local, operation: Operation) -> Error {
    let opcode = operation.opcode();
    let refused = local.push(operation, 0).unwrap_err();
    assert_eq!(refused.operation.opcode(), opcode);
    let PushRefusal::Rejected(error) = refused.reason else { panic!("{:?}", refused.reason) };
    assert_eq!(error.opcode(), opcode);
    error
}

fn assert_refused(error: &Error) {
    assert_eq!((error.kind(), error.errno()), (ErrorKind::PermissionDenied, libc::EACCES));
    assert!(error.to_string().contains("Builder::restrict"), "{error}");
}

#[test]
fn only_what_was_asked_for_is_made() {
    for Way { builder, file, guard } in ways() {
        let mut local = builder.restrict([Opcode::Read]).build().unwrap();
        let setup = local.setup();
        assert_eq!(setup.guard(), guard);
        assert!(setup.allows(Opcode::Read) && !setup.allows(Opcode::Write));
        assert!(setup.allows(Opcode::Nop) && setup.allows(Opcode::Timeout));

        let read = local.run(Operation::read_at(&file, vec![0; 4], 0)).unwrap();
        assert_eq!(read.into_buffer().unwrap().as_slice(), b"\x7fELF");
        local.run(Operation::nop()).unwrap().result().unwrap();
        local.run(Operation::timeout(Duration::from_millis(1))).unwrap().result().unwrap();
        let name = local.register_file(&file).unwrap();
        let pool = local.register_pool(2, 4096).unwrap();
        assert_eq!(pool.is_registered(), guard == Guard::Kernel, "{:?}", pool.registration());
        let read = Operation::read_at(name, pool.take().unwrap(), 0);
        assert!(local.run(read).unwrap().result().unwrap() >= 4);

        for operation in [
            Operation::write_at(&file, vec![1], 0),
            Operation::sync_all(&file),
            Operation::statx("/"),
            Operation::open("/", OpenOptions::new().read(true)),
            Operation::read_link("/proc/self/exe"),
            Operation::read_vectored_at(&file, vec![vec![0_u8; 4].into()], 0),
        ] {
            assert_refused(&refusal(&mut local, operation));
        }
        let chain =
            vec![(Operation::read_at(&file, vec![0; 4], 0), 0), (Operation::sync_all(&file), 1)];
        let refused = local.push_linked(chain).unwrap_err();
        let PushRefusal::Rejected(error) = &refused.reason else { panic!("{refused}") };
        assert_refused(error);
        assert_eq!((refused.place, refused.operations.len()), (1, 2));
        assert_eq!(local.in_flight(), 0);
    }
}

#[test]
fn a_data_only_loop_takes_registered_files_and_opens_none() {
    for Way { builder, file, guard } in ways() {
        let mut local = builder.data_only(true).build().unwrap();
        assert_eq!(local.setup().guard(), guard);
        for operation in [
            Operation::read_at(&file, vec![0; 4], 0),
            Operation::open("/", OpenOptions::new().read(true)),
            Operation::statx("/"),
            Operation::unlink("/nothing"),
        ] {
            assert_refused(&refusal(&mut local, operation));
        }
        let name = local.register_file(&file).unwrap();
        assert_refused(&refusal(&mut local, Operation::accept(name)));
        assert_refused(&refusal(&mut local, Operation::close(name)));
        let read = local.run(Operation::read_at(name, vec![0; 4], 0)).unwrap();
        assert_eq!(read.into_buffer().unwrap().as_slice(), b"\x7fELF");
        // What has no file, by itself and in a chain.
        local.run(Operation::nop()).unwrap().result().unwrap();
        local.run(Operation::timeout(Duration::from_millis(1))).unwrap().result().unwrap();
        let chain = vec![(Operation::read_at(name, vec![0; 4], 0), 0), (Operation::nop(), 1)];
        local.push_linked(chain).unwrap();
        local.submit_and_wait(2).unwrap();
        for _ in 0..2 {
            local.next_completion().unwrap().result().unwrap();
        }
    }
}

/// A thread of the loop wakes it by the ring, which takes only files of its table.
#[test]
fn a_data_only_loop_is_woken_and_cancels() {
    for choice in [BackendChoice::Uring, BackendChoice::Classic] {
        let (reader, mut writer) = io::pipe().unwrap();
        let pipe = Descriptor::from(OwnedFd::from(reader));
        let builder = Local::builder().backend(choice).data_only(true).files([pipe]);
        let mut local = match builder.avoid(&[Opcode::Read]).build() {
            Ok(local) => local,
            Err(error) => return skip(&error.to_string()),
        };
        let name = local.setup().files()[0];
        local.push(Operation::read_at(name, vec![0; 4], 0), 1).unwrap();
        local.submit().unwrap();
        let writes = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            writer.write_all(b"late").unwrap();
            writer
        });
        assert_eq!(local.submit_and_wait_timeout(1, 10 * SECOND).unwrap(), 1);
        assert_eq!(local.next_completion().unwrap().result().unwrap(), 4);
        let _writer = writes.join().unwrap();
        // A poll that the kernel refuses ends at once, again and again.
        let enters = local.stats().enters;
        assert!(enters < 20, "{enters} enters for one wait");

        let read = local.push(Operation::read_at(name, vec![0; 4], 0), 2).unwrap();
        let timeout = local.push(Operation::timeout(1000 * SECOND), 3).unwrap();
        for ticket in [read, timeout] {
            local.push(Operation::cancel(ticket), 4).unwrap();
        }
        assert_eq!(local.submit_and_wait_timeout(4, 10 * SECOND).unwrap(), 4);
        while let Some(done) = local.next_completion() {
            let kind = done.result().err().map(|error| error.kind());
            assert_eq!(kind, (done.tag() != 4).then_some(ErrorKind::Cancelled), "{done:?}");
        }
    }
}

#[test]
fn a_sealed_loop_registers_nothing() {
    for Way { builder, file, guard } in ways() {
        let mut local = builder.seal(true).files([file.clone()]).build().unwrap();
        assert!(local.setup().is_sealed());
        assert_eq!(local.setup().guard(), guard);
        let name = local.setup().files()[0];
        let read = local.run(Operation::read_at(name, vec![0; 4], 0)).unwrap();
        assert_eq!(read.into_buffer().unwrap().as_slice(), b"\x7fELF");

        let registered = local.register_file(&file).map(drop);
        for refused in [registered, local.unregister_file(name)] {
            let error = refused.unwrap_err();
            assert_eq!((error.errno(), error.opcode()), (libc::EACCES, Opcode::Register));
            assert!(error.to_string().contains("Builder::seal"), "{error}");
        }
        assert_refused(&refusal(&mut local, Operation::close(name)));
        let into_table = Operation::open_registered("/", OpenOptions::new().read(true));
        assert_refused(&refusal(&mut local, into_table));
        local.run(Operation::read_at(name, vec![0; 4], 0)).unwrap().result().unwrap();

        let pool = local.register_pool(1, 4096).unwrap();
        let Registration::Unregistered(reason) = pool.registration() else { panic!("registered") };
        assert!(reason.contains("sealed"), "{reason}");
        let read = Operation::read_at(&file, pool.take().unwrap(), 0);
        assert!(local.run(read).unwrap().result().unwrap() >= 4);
        let group = BufferGroup::new(&mut local, 4, 64).unwrap();
        assert!(group.refusal().unwrap().contains("sealed"));
    }
}

/// Once it is built, a sealed ring needs one syscall of io_uring's.
#[test]
fn a_sealed_ring_works_without_setup_and_register() {
    in_child("restrictions::a_sealed_ring_works_without_setup_and_register", || {
        let file = Descriptor::from(fs::File::open("/proc/self/exe").unwrap());
        let builder = Local::builder().backend(BackendChoice::Uring).restrict([Opcode::Read]);
        let mut local = match builder.data_only(true).seal(true).files([file]).build() {
            Ok(local) => local,
            Err(error) => return skip(&error.to_string()),
        };
        forbid(&[(libc::SYS_io_uring_setup, None), (libc::SYS_io_uring_register, None)]);
        assert_eq!(Local::new().unwrap().setup().backend(), Backend::Classic);
        let name = local.setup().files()[0];
        for _ in 0..100 {
            local.run(Operation::read_at(name, vec![0; 4], 0)).unwrap().result().unwrap();
        }
        assert!(local.supports(Opcode::Read));
        assert_eq!(local.stats().fallback_operations, 0);
    });
}

/// An unrestricted ring in place of a restricted one would be worse than none.
#[test]
fn a_ring_that_cannot_be_restricted_is_not_used() {
    in_child("restrictions::a_ring_that_cannot_be_restricted_is_not_used", || {
        if let Err(error) = Local::builder().backend(BackendChoice::Uring).build() {
            return skip(&error.to_string());
        }
        forbid(&[(libc::SYS_io_uring_register, Some(RESTRICT))]);
        let builder = Local::builder().restrict([Opcode::Read]);
        let local = builder.clone().build().unwrap();
        assert_eq!(local.setup().backend(), Backend::Classic);
        assert_eq!(local.setup().guard(), Guard::Library);
        let demanded = builder.backend(BackendChoice::Uring).build().unwrap_err();
        let SetupError::NoRing(FallbackReason::Unrestricted(errno)) = &demanded else {
            panic!("{demanded}")
        };
        assert_eq!(errno.raw(), libc::EPERM);
        assert!(demanded.to_string().contains("IORING_REGISTER_RESTRICTIONS"), "{demanded}");
        let unrestricted = Local::new().unwrap();
        assert_eq!(unrestricted.setup().backend(), Backend::Uring);
        assert_eq!(unrestricted.setup().guard(), Guard::Nobody);
    });
}

/// Answers `EPERM` to these syscalls from now on, or to those of one second argument.
fn forbid(calls: &[(i64, Option<u64>)]) {
    let rule = |value| {
        let equal = SeccompCmpOp::Eq;
        let condition = SeccompCondition::new(1, SeccompCmpArgLen::Dword, equal, value).unwrap();
        SeccompRule::new(vec![condition]).unwrap()
    };
    let rules: BTreeMap<i64, Vec<SeccompRule>> =
        calls.iter().map(|(call, value)| (*call, value.map(rule).into_iter().collect())).collect();
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).unwrap();
    apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

/// Rings of both backends with a thread each, and with the runtime around.
fn restricted_rings(restrict: impl Fn(Builder) -> Builder) -> Vec<Ring> {
    let mut rings = Vec::new();
    for choice in [BackendChoice::Uring, BackendChoice::Classic] {
        for has_thread in [true, false] {
            let builder = restrict(Local::builder().backend(choice)).driver_thread(has_thread);
            match builder.build_ring() {
                Ok(ring) => rings.push(ring),
                Err(error) => skip(&error.to_string()),
            }
        }
    }
    rings
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A file of 100 bytes, and the directory that holds it.
fn file_of_sevens() -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("file");
    fs::write(&path, vec![7; 100]).unwrap();
    (directory, path)
}

/// Rings of a runtime that may open files and do one thing more.
fn rings_that_open_and(runtime: &tokio::runtime::Runtime, opcode: Opcode) -> Vec<Ring> {
    let _context = runtime.enter();
    restricted_rings(|builder| builder.restrict([Opcode::Open, opcode]))
}

#[test]
fn the_functions_of_files_are_restricted() {
    let (_directory, path) = file_of_sevens();
    let runtime = runtime();
    let rings = rings_that_open_and(&runtime, Opcode::Read);
    for ring in rings {
        runtime.block_on(async {
            let options = OpenOptions::new().read(true).write(true);
            let file = File::open(&ring, &path, options).await.unwrap();
            let (count, bytes) = file.read_at(vec![0; 200], 0).await.into_result().unwrap();
            assert_eq!((count, bytes[0]), (100, 7));

            // The caller's thread would write it into the page cache.
            let (written, _) = file.write_at(vec![1; 10], 0).await.into_parts();
            assert_refused(&written.unwrap_err());
            assert_refused(&file.sync_all().await.unwrap_err());
            assert_refused(&file.metadata().await.unwrap_err());
            let (durable, _) = file.write_durable_at(vec![1; 10], 0).await.into_parts();
            assert_refused(&durable.unwrap_err());
            assert_refused(&ringwise::fs::remove_file(&ring, &path).await.unwrap_err());
        });
        assert_eq!(fs::read(&path).unwrap(), vec![7; 100]);
    }
}

/// A cached read is made without the ring.
#[test]
fn a_ring_without_reads_reads_nothing_from_the_cache() {
    let (_directory, path) = file_of_sevens();
    let runtime = runtime();
    let rings = rings_that_open_and(&runtime, Opcode::Write);
    for ring in rings {
        runtime.block_on(async {
            let options = OpenOptions::new().read(true).write(true);
            let file = File::open(&ring, &path, options).await.unwrap();
            let (read, _) = file.read_at(vec![0; 10], 0).await.into_parts();
            assert_refused(&read.unwrap_err());
            file.write_all_at(vec![8; 10], 0).await.into_result().unwrap();
        });
        // Without reads the driver's own bell still wakes it, from outside the runtime, again and again.
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(2));
            block_on(ring.submit(Operation::nop())).result().unwrap();
        }
        block_on(ring.shutdown(SECOND)).unwrap();
    }
}

#[test]
fn a_sealed_data_only_ring_is_shared() {
    let runtime = runtime();
    let file = || Descriptor::from(fs::File::open("/proc/self/exe").unwrap());
    let rings = {
        let _context = runtime.enter();
        restricted_rings(|builder| {
            builder.restrict([Opcode::Read]).data_only(true).seal(true).files([file()])
        })
    };
    // The driver loses its runtime on the way, and goes on with a thread.
    for ring in &rings {
        let name = ring.setup().files()[0];
        let read = runtime.block_on(ring.submit(Operation::read_at(name, vec![0; 4], 0)));
        assert_eq!(read.into_buffer().unwrap().as_slice(), b"\x7fELF");
    }
    runtime.shutdown_timeout(SECOND);
    for ring in rings {
        let name = ring.setup().files()[0];
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(2));
            let read = block_on(ring.submit(Operation::read_at(name, vec![0; 4], 0)));
            assert_eq!(read.result().unwrap(), 4);
        }
        let by_descriptor = block_on(ring.submit(Operation::read_at(file(), vec![0; 4], 0)));
        assert_refused(&by_descriptor.result().unwrap_err());
        let error = block_on(ring.register_file(&file())).unwrap_err();
        assert_eq!(error.errno(), libc::EACCES);
        block_on(ring.shutdown(SECOND)).unwrap();
    }
}

/// Its own read of what wakes it was refused like a user's, so that it had nothing to sleep on.
#[test]
fn a_driver_without_reads_sleeps() {
    in_child("restrictions::a_driver_without_reads_sleeps", || {
        for ring in restricted_rings(|builder| builder.restrict([Opcode::Write])) {
            block_on(ring.submit(Operation::nop())).result().unwrap();
            let before = processor_time();
            std::thread::sleep(Duration::from_millis(300));
            let used = processor_time() - before;
            assert!(used < Duration::from_millis(75), "{used:?} of the processor for a sleep");
        }
    });
}

/// A part of a dropped send was sent by sendmsg(2), and so were the parts of a buffered write.
#[test]
fn what_a_send_leaves_is_sent_as_it_was_allowed() {
    use tokio::io::AsyncWriteExt;
    // More than a socket takes before it is read.
    const MUCH: usize = 4 << 20;
    let runtime = runtime();
    for opcode in [Opcode::Send, Opcode::SendMessage] {
        let rings = {
            let _context = runtime.enter();
            restricted_rings(|builder| builder.restrict([opcode]))
        };
        for ring in rings {
            runtime.block_on(async {
                let (ours, mut theirs) = StandardStream::pair().unwrap();
                let stream = UnixStream::from_std(&ring, ours).unwrap();
                let much = vec![7; MUCH];
                let begun = match opcode {
                    Opcode::Send => poll_immediate(Box::pin(stream.send(much))).await.is_none(),
                    _ => poll_immediate(Box::pin(stream.send_vectored(vec![much]))).await.is_none(),
                };
                assert!(begun);
                let reader = std::thread::spawn(move || {
                    theirs.read_exact(&mut vec![0; MUCH]).unwrap();
                    theirs
                });
                stream.flush().await.unwrap();
                let mut theirs = reader.join().unwrap();

                let mut writer = Buffered::new(stream);
                let parts = [b"".as_slice(), b"one", b"two"].map(io::IoSlice::new);
                let before = ring.stats();
                if opcode == Opcode::SendMessage {
                    assert_eq!(writer.write_vectored(&parts).await.unwrap(), 6);
                    let refused = writer.flush().await.unwrap_err();
                    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
                    assert_eq!(ring.stats().inline_hits, before.inline_hits);
                    return;
                }
                // One part by send(2), without a copy, and the rest through the ring.
                assert_eq!(writer.write_vectored(&parts).await.unwrap(), 6);
                let after = ring.stats();
                assert_eq!(after.inline_hits, before.inline_hits + 1);
                assert_eq!(after.submitted, before.submitted + 1);
                let mut received = [0; 6];
                theirs.read_exact(&mut received).unwrap();
                assert_eq!(&received, b"onetwo");
            });
        }
    }
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
