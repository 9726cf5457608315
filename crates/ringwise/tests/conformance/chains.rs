//! Chains: order, what ends one, and what becomes of the rest.

use std::{io::Write, os::fd::OwnedFd, path::PathBuf, time::Duration};

use ringwise::{Completion, Descriptor, ErrorKind, Local, OpenOptions, Operation};

use crate::{
    disk::Disk,
    loops::{Loop, counted, next, run},
};

fn pipe() -> (Descriptor, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    (Descriptor::from(OwnedFd::from(reader)), writer)
}

fn file(disk: &Disk, path: PathBuf) -> Descriptor {
    disk.open_with(path, OpenOptions::new().read(true).write(true))
}

/// Pushes a chain with its places as tags.
fn push(local: &mut Local, operations: Vec<Operation>) {
    let count = operations.len();
    let tagged = operations.into_iter().zip(0..).collect();
    assert_eq!(local.push_linked(tagged).unwrap().len(), count);
}

/// Takes all that is in flight, in the order of the tags.
fn take_all(local: &mut Local) -> Vec<Completion> {
    let mut taken = Vec::new();
    while local.in_flight() > 0 {
        taken.push(next(local));
    }
    taken.sort_by_key(Completion::tag);
    taken
}

fn kinds(taken: &[Completion]) -> Vec<Option<ErrorKind>> {
    taken.iter().map(|done| done.result().err().map(|error| error.kind())).collect()
}

const CANCELLED: Option<ErrorKind> = Some(ErrorKind::Cancelled);

pub fn members_run_in_their_order(way: Loop) {
    let (mut local, disk) = (way.build(), way.disk());
    let file = file(&disk, disk.counted_file(4096));
    for round in 0..40_u8 {
        let write = |byte| Operation::write_at(&file, vec![byte; 4096], 0);
        let read = || Operation::read_at(&file, vec![0; 4096], 0);
        let chain = vec![
            write(round),
            read(),
            write(round.wrapping_add(100)),
            Operation::nop(),
            Operation::sync_data(&file),
            read(),
        ];
        push(&mut local, chain);
        let taken = take_all(&mut local);
        let results: Vec<usize> = taken.iter().map(|done| done.result().unwrap()).collect();
        assert_eq!(results, [4096, 4096, 4096, 0, 0, 4096]);
        let mut buffers = taken.into_iter().filter_map(Completion::into_buffer);
        let first_read = buffers.nth(1).unwrap().into_vec().unwrap();
        assert_eq!(first_read, [round; 4096], "after the first write, before the second");
        let last_read = buffers.nth(1).unwrap().into_vec().unwrap();
        assert_eq!(last_read, [round.wrapping_add(100); 4096]);
    }
}

pub fn one_wait_is_enough_for_a_chain(way: Loop) {
    let (mut local, disk) = (way.build(), way.disk());
    let file = file(&disk, disk.counted_file(100));
    let enters = local.stats().enters;
    let reads = (0..8).map(|at| Operation::read_at(&file, vec![0; 10], at));
    push(&mut local, reads.collect());
    assert_eq!(local.submit_and_wait(8).unwrap(), 8);
    if matches!(way, Loop::Uring | Loop::UringPlain) {
        assert_eq!(local.stats().enters - enters, 1, "the kernel makes the chain");
    }
    let taken: Vec<_> = std::iter::from_fn(|| local.next_completion()).collect();
    assert_eq!(taken.len(), 8);
    assert!(taken.iter().all(|done| done.result().unwrap() == 10));
}

pub fn a_failing_member_cancels_the_rest(way: Loop) {
    let (mut local, disk) = (way.build(), way.disk());
    let file = file(&disk, disk.counted_file(8));
    let (wrong, _writer) = pipe();
    let chain = vec![
        Operation::write_at(&file, b"first".to_vec(), 0),
        Operation::write_at(&wrong, b"x".to_vec(), 0),
        Operation::write_at(&file, b"second".to_vec(), 0),
        Operation::sync_all(&file),
    ];
    push(&mut local, chain);
    let taken = take_all(&mut local);
    let bad = Some(ErrorKind::BadDescriptor);
    assert_eq!(kinds(&taken), [None, bad, CANCELLED, CANCELLED]);
    let buffers: Vec<_> = taken.into_iter().filter_map(Completion::into_buffer).collect();
    assert_eq!(buffers[2].as_slice(), b"second", "it comes back");
    let read = run(&mut local, Operation::read_at(&file, vec![0; 5], 0));
    assert_eq!(read.into_buffer().unwrap().as_slice(), b"first");
}

pub fn a_short_read_cancels_the_rest(way: Loop) {
    let (mut local, disk) = (way.build(), way.disk());
    let file = file(&disk, disk.counted_file(10));
    for chain in [
        vec![Operation::read_at(&file, vec![0; 20], 0)],
        vec![Operation::read_vectored_at(&file, vec![vec![0; 6].into(), vec![0; 14].into()], 0)],
    ] {
        let mut chain = chain;
        chain.insert(0, Operation::nop());
        chain.push(Operation::write_at(&file, vec![9; 10], 0));
        chain.push(Operation::sync_data(&file));
        push(&mut local, chain);
        let taken = take_all(&mut local);
        assert_eq!(kinds(&taken), [None, None, CANCELLED, CANCELLED]);
        assert_eq!(taken[1].result().unwrap(), 10);
    }
    let read = run(&mut local, Operation::read_at(&file, vec![0; 10], 0));
    assert_eq!(read.into_buffer().unwrap().as_slice(), counted(10), "nothing was written");
}

pub fn a_chain_over_several_files(way: Loop) {
    let (mut local, disk) = (way.build(), way.disk());
    let first = file(&disk, disk.counted_file(10));
    let path = disk.path().join("second");
    disk.write(&path, [0; 20]);
    let second = file(&disk, path);
    let chain = vec![
        Operation::write_at(&first, b"data".to_vec(), 0),
        Operation::sync_data(&first),
        Operation::write_at(&second, b"pointer".to_vec(), 0),
        Operation::read_at(&first, vec![0; 11], 0),
        Operation::write_at(&second, b"dangles".to_vec(), 0),
    ];
    push(&mut local, chain);
    let taken = take_all(&mut local);
    assert_eq!(kinds(&taken), [None, None, None, None, CANCELLED]);
    let read = run(&mut local, Operation::read_at(&second, vec![0; 7], 0));
    assert_eq!(read.into_buffer().unwrap().as_slice(), b"pointer");
}

pub fn a_member_that_runs_is_cancelled(way: Loop) {
    let mut local = way.build();
    let (reader, _writer) = pipe();
    let read = Operation::read_at(&reader, vec![5; 8], 0);
    let chain = vec![(Operation::nop(), 0), (read, 1), (Operation::nop(), 2)];
    let tickets = local.push_linked(chain).unwrap();
    assert_eq!(next(&mut local).tag(), 0);
    local.push(Operation::cancel(tickets[1]), 3).unwrap();
    let taken = take_all(&mut local);
    assert_eq!(kinds(&taken), [CANCELLED, CANCELLED, None]);
}

pub fn a_member_that_waits_is_cancelled_in_its_turn(way: Loop) {
    let mut local = way.build();
    let (first, mut writer) = pipe();
    let (second, _writer) = pipe();
    let chain = vec![
        (Operation::read_at(&first, vec![0; 4], 0), 0),
        (Operation::read_at(&second, vec![7; 4], 0), 1),
        (Operation::nop(), 2),
    ];
    let tickets = local.push_linked(chain).unwrap();
    local.submit().unwrap();
    let late = run(&mut local, Operation::cancel(tickets[1])).result().unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TooLateToCancel);
    assert_eq!(local.in_flight(), 3, "all wait");
    writer.write_all(b"goes").unwrap();
    local.submit_and_wait(3).unwrap();
    let taken = take_all(&mut local);
    assert_eq!(kinds(&taken), [None, CANCELLED, CANCELLED]);
}

pub fn a_time_between_two_members(way: Loop) {
    let mut local = way.build();
    let start = way.now();
    push(&mut local, vec![Operation::timeout(Duration::from_millis(30)), Operation::nop()]);
    local.submit_and_wait(2).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(30));
    assert_eq!(kinds(&take_all(&mut local)), [None, None]);
}

pub fn a_dropped_loop_finishes_a_chain(way: Loop) {
    let (mut local, disk) = (way.build(), way.disk());
    let file = file(&disk, disk.counted_file(10));
    let writes = (0..6_u8).map(|at| Operation::write_at(&file, vec![100 + at; 5], u64::from(at)));
    push(&mut local, writes.collect());
    local.submit().unwrap();
    drop(local);
    let mut local = way.build();
    let read = run(&mut local, Operation::read_at(&file, vec![0; 10], 0));
    let expected = [100, 101, 102, 103, 104, 105, 105, 105, 105, 105];
    assert_eq!(read.into_buffer().unwrap().as_slice(), expected);
}

pub fn a_dropped_loop_cancels_what_waits_in_a_chain(way: Loop) {
    let (mut local, disk) = (way.build(), way.disk());
    let file = file(&disk, disk.counted_file(10));
    let (empty, writer) = pipe();
    let read = || Operation::read_at(&empty, vec![0; 4], 0);
    let write = || Operation::write_at(&file, vec![1; 10], 0);
    // One whose read is under way, one whose read waits for a write.
    push(&mut local, vec![read(), write()]);
    push(&mut local, vec![Operation::sync_data(&file), Operation::nop(), read(), write()]);
    local.submit().unwrap();
    let start = way.now();
    local.shutdown(Duration::from_secs(20)).unwrap();
    assert!(start.elapsed() < Duration::from_secs(10), "they were cancelled, not waited for");
    drop(writer);
    let mut local = way.build();
    let read = run(&mut local, Operation::read_at(&file, vec![0; 10], 0));
    assert_eq!(read.into_buffer().unwrap().as_slice(), counted(10));
}

pub fn chains_among_other_operations(way: Loop) {
    const CHAINS: u64 = 300;
    let (mut local, disk) = (way.build(), way.disk());
    let file = file(&disk, disk.counted_file(4096));
    let (mut pushed, mut done) = (0, 0);
    let mut last_of_chain = vec![0; CHAINS as usize];
    while done < 5 * CHAINS {
        while pushed < CHAINS {
            let read = |at| Operation::read_at(&file, vec![0; 64], at);
            let tag = |place| pushed * 10 + place;
            let chain = vec![
                (read(pushed), tag(1)),
                (Operation::nop(), tag(2)),
                (read(0), tag(3)),
                (read(7), tag(4)),
            ];
            if local.capacity() - local.in_flight() < chain.len() + 1 {
                break;
            }
            local.push(read(1), tag(0)).unwrap();
            local.push_linked(chain).unwrap();
            pushed += 1;
        }
        local.submit_and_wait(1).unwrap();
        while let Some(completion) = local.next_completion() {
            completion.result().unwrap();
            let (chain, place) = (completion.tag() / 10, completion.tag() % 10);
            done += 1;
            if place > 0 {
                let last = &mut last_of_chain[chain as usize];
                assert_eq!(std::mem::replace(last, place), place - 1, "each once, in order");
            }
        }
    }
    assert_eq!((pushed, local.in_flight()), (CHAINS, 0));
}

pub fn a_chain_beside_a_single_operation(way: Loop) {
    let (mut local, disk) = (way.build(), way.disk());
    let file = file(&disk, disk.counted_file(10));
    let (reader, mut writer) = pipe();
    let chain = vec![
        Operation::nop(),
        Operation::read_at(&file, vec![0; 4], 0),
        Operation::read_at(&reader, vec![0; 4], 0),
        Operation::sync_data(&file),
    ];
    push(&mut local, chain);
    let single = run(&mut local, Operation::read_at(&file, vec![0; 8], 2));
    assert_eq!(single.result().unwrap(), 8);
    writer.write_all(b"goes").unwrap();
    assert_eq!(kinds(&take_all(&mut local)), [None; 4]);
}

pub fn a_full_loop_gives_a_chain_back(way: Loop) {
    let mut local = way.build();
    let nops = |count| (0..count).map(|at| (Operation::nop(), at)).collect::<Vec<_>>();
    let capacity = local.capacity() as u64;
    for tag in 0..capacity {
        local.push(Operation::nop(), tag).unwrap();
    }
    let refused = local.push_linked(nops(4)).unwrap_err();
    assert!(refused.is_full() && refused.operations.len() == 4);
    assert_eq!(local.in_flight() as u64, capacity, "none was taken");
    assert_eq!(local.submit_and_wait(capacity as usize).unwrap() as u64, capacity);
    assert_eq!(take_all(&mut local).len() as u64, capacity);
    // One at a time finds room for a chain that is longer than all there is.
    for _ in 0..capacity - 1 {
        local.push(Operation::nop(), 0).unwrap();
    }
    local.push_linked(nops(3 * capacity)).unwrap();
    local.submit_and_wait(4 * capacity as usize - 1).unwrap();
    assert_eq!(kinds(&take_all(&mut local)).len() as u64, 4 * capacity - 1);
    assert!(local.push_linked(Vec::new()).unwrap().is_empty());
    push(&mut local, (0..16).map(|_| Operation::nop()).collect());
    assert_eq!(kinds(&take_all(&mut local)), [None; 16]);
}

pub fn what_cannot_be_linked_comes_back(way: Loop) {
    let mut local = way.build();
    let (reader, _writer) = pipe();
    let chain = vec![(Operation::nop(), 1), (Operation::close(reader), 2)];
    let refused = local.push_linked(chain).unwrap_err();
    assert!(refused.to_string().contains("close"), "{refused}");
    assert_eq!(local.in_flight(), 0);
    let (close, _) = refused.operations.into_iter().next_back().unwrap();
    assert_eq!(run(&mut local, close).result().unwrap(), 0, "unharmed");
}
