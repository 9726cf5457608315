//! How much a loop holds, and what its counts say.

use ringwise::Operation;

use crate::loops::{Loop, counted, next};

pub fn a_full_loop_gives_the_operation_back(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let file = directory.open(directory.counted_file(8));
    for tag in 0..local.capacity() as u64 {
        local.push(Operation::nop(), tag).unwrap();
    }
    let refused = local.push(Operation::read_at(&file, vec![8; 8], 0), 0).unwrap_err();
    assert!(refused.is_full());
    assert_eq!(refused.operation.into_buffer().unwrap().into_vec().unwrap(), [8; 8]);
    assert!(local.run(Operation::nop()).is_err(), "no room for a single one either");
    drop(next(&mut local));
    local.push(Operation::nop(), 0).unwrap();
    while local.in_flight() > 0 {
        drop(next(&mut local));
    }
}

pub fn sixty_four_thousand_operations_through_eight_entries(way: Loop) {
    const OPERATIONS: u64 = 65_536;
    let directory = way.disk();
    let path = directory.counted_file(4096);
    let file = directory.open(&path);
    let mut local = way.builder().entries(8).build().unwrap();
    let expected = counted(4096);
    let (mut pushed, mut taken, mut sum) = (0, 0, 0_u64);
    while taken < OPERATIONS {
        while pushed < OPERATIONS {
            // Every sixteenth is a read, so that the memory of thousands passes through.
            let operation = match pushed % 16 {
                0 => Operation::read_at(&file, vec![0; 64], pushed / 16 % 4000),
                _ => Operation::nop(),
            };
            match local.push(operation, pushed) {
                Ok(_) => pushed += 1,
                Err(refused) if refused.is_full() => break,
                Err(refused) => panic!("{refused}"),
            }
        }
        local.submit_and_wait(1).unwrap();
        while let Some(done) = local.next_completion() {
            let (tag, count) = (done.tag(), done.result().unwrap());
            if let Some(buffer) = done.into_buffer() {
                let at = (tag / 16 % 4000) as usize;
                assert_eq!(buffer.as_slice()[..count], expected[at..at + count]);
            }
            sum += tag;
            taken += 1;
        }
    }
    assert_eq!((pushed, sum), (OPERATIONS, OPERATIONS * (OPERATIONS - 1) / 2), "each came once");
    let stats = local.stats();
    assert_eq!((stats.overflows, stats.stale_completions, stats.in_flight), (0, 0, 0));
}

pub fn the_counts_agree(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let path = directory.counted_file(4096);
    let file = directory.open(&path);
    let before = local.stats();
    for offset in 0..8 {
        local.push(Operation::read_at(&file, vec![0; 16], offset), offset).unwrap();
    }
    assert_eq!(local.stats().in_flight, 8);
    assert_eq!(local.submit_and_wait(8).unwrap(), 8);
    let after = local.stats();
    assert_eq!((after.submitted - before.submitted, after.completed - before.completed), (8, 0));
    while let Some(done) = local.next_completion() {
        assert_eq!(done.result().unwrap(), 16);
    }
    let after = local.stats();
    assert_eq!((after.completed - before.completed, after.in_flight), (8, 0));
    match way {
        Loop::Uring | Loop::UringPlain => {
            assert_eq!(after.enters - before.enters, 1, "eight reads, one system call");
            assert_eq!(after.fallback_operations, 0);
        }
        Loop::UringSqpoll | Loop::Simulated | Loop::SimulatedReordered => {
            assert_eq!(after.fallback_operations, 0);
        }
        Loop::UringByThreads | Loop::Classic => {
            assert_eq!(after.fallback_operations - before.fallback_operations, 8);
        }
    }
}

pub fn waiting_for_more_than_is_in_flight_ends(way: Loop) {
    let mut local = way.build();
    assert_eq!(local.submit_and_wait(5).unwrap(), 0);
    local.push(Operation::nop(), 0).unwrap();
    assert_eq!(local.submit_and_wait(usize::MAX).unwrap(), 1);
}
