//! A buffer comes back as what it was, when the operation succeeds and when it fails.

use std::{fmt::Debug, sync::Arc};

use futures::{executor::block_on, future::join_all};
use ringwise::{
    AlignedBuf, BufResult, Buffer, Custom, OpenOptions, Operation, OwnedBuffer, OwnedBufferMut,
    StableBytes, StableBytesMut, fs::File,
};

use super::{
    only_read,
    rings::{Place, places, read_write},
};

/// A type of a user's own, with something beside its bytes.
#[derive(Debug)]
struct Page {
    number: u32,
    bytes: Box<[u8; 64]>,
}

// SAFETY: a box stays where it is when it is moved.
unsafe impl StableBytes for Page {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..]
    }
}

// SAFETY: the same, and nobody else has it.
unsafe impl StableBytesMut for Page {
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..]
    }
}

/// Sends 64 bytes in and out through a file: they come back at the same address, whatever happens.
async fn goes_in_and_out<B: OwnedBuffer + Debug>(
    place: &Place,
    file: &File,
    buffer: B,
    address: impl Fn(&B) -> *const u8,
) -> B {
    let at = address(&buffer);
    let BufResult(written, buffer) = file.write_at(buffer, 0).await;
    assert_eq!(written.unwrap(), 64, "{}", place.name);
    let BufResult(written, buffer) = file.write_all_at(buffer, 64).await;
    written.unwrap();
    // Refused by the loop, and by the kernel.
    let BufResult(written, buffer) = file.write_at(buffer, u64::MAX).await;
    assert_eq!(written.unwrap_err().errno(), libc::EINVAL);
    let readable = place.open("file", only_read()).await;
    let BufResult(written, buffer) = readable.write_all_at(buffer, 0).await;
    assert_eq!(written.unwrap_err().errno(), libc::EBADF, "{}", place.name);
    let BufResult(written, mut buffers) = readable.write_vectored_at(vec![buffer], 0).await;
    assert_eq!(written.unwrap_err().errno(), libc::EBADF);
    let buffer = buffers.pop().unwrap();
    assert_eq!(address(&buffer), at, "the same memory comes back");
    buffer
}

/// As above, and reads into it.
async fn is_read_and_written<B: OwnedBufferMut + Debug>(
    place: &Place,
    file: &File,
    buffer: B,
    bytes: impl Fn(&B) -> &[u8],
) -> B {
    let buffer = goes_in_and_out(place, file, buffer, |buffer| bytes(buffer).as_ptr()).await;
    place.write("source", &(0..64).collect::<Vec<u8>>());
    let source = place.open("source", only_read()).await;
    let at = bytes(&buffer).as_ptr();
    let BufResult(read, buffer) = source.read_exact_at(buffer, 0).await;
    read.unwrap();
    assert!(bytes(&buffer).iter().copied().eq(0..64), "{}", place.name);
    let BufResult(read, buffer) = source.read_at(buffer, 32).await;
    assert_eq!(read.unwrap(), 32);
    assert_eq!(bytes(&buffer)[..32], (32..64).collect::<Vec<u8>>());
    let BufResult(read, buffer) = source.read_exact_at(buffer, 1).await;
    assert_eq!(read.unwrap_err().errno(), libc::ENODATA);
    let BufResult(read, buffer) = source.read_at(buffer, u64::MAX).await;
    assert_eq!(read.unwrap_err().errno(), libc::EINVAL);
    let BufResult(read, mut buffers) = source.read_vectored_at(vec![buffer], 0).await;
    assert_eq!(read.unwrap(), 64);
    let buffer = buffers.pop().unwrap();
    assert_eq!(bytes(&buffer).as_ptr(), at, "the same memory comes back");
    buffer
}

#[test]
fn buffers_come_back_as_what_they_were() {
    for place in places() {
        block_on(async {
            let file = place.open("file", read_write().create(true)).await;
            is_read_and_written(&place, &file, vec![1; 64], |buffer: &Vec<u8>| buffer).await;
            let boxed: Box<[u8]> = vec![1; 64].into();
            is_read_and_written(&place, &file, boxed, |buffer| buffer).await;
            let aligned = AlignedBuf::zeroed(64, 4096);
            let aligned = is_read_and_written(&place, &file, aligned, |buffer| buffer).await;
            assert_eq!(aligned.alignment(), 4096);
            let page = Custom(Page { number: 42, bytes: Box::new([1; 64]) });
            let Custom(page) =
                is_read_and_written(&place, &file, page, |Custom(page)| page.bytes()).await;
            assert_eq!(page.number, 42);
            let pool = place.ring.register_pool(2, 64).await.unwrap();
            let lease = pool.take().unwrap();
            let lease = is_read_and_written(&place, &file, lease, |buffer| buffer).await;
            assert_eq!(pool.available(), 1);
            drop(lease);
            assert_eq!(pool.available(), 2, "{}: it went back once", place.name);
        });
    }
}

#[test]
fn a_static_buffer_is_written_and_not_read_into() {
    static BYTES: [u8; 64] = [7; 64];
    for place in places() {
        block_on(async {
            let file = place.open("file", read_write().create(true)).await;
            let back = goes_in_and_out(&place, &file, &BYTES[..], |buffer| buffer.as_ptr()).await;
            assert_eq!(back.as_ptr(), BYTES.as_ptr());
            assert_eq!(place.read("file"), [7; 128]);
            // The types do not stop a part of one.
            let part = Buffer::from(&BYTES[..]).slice(8..16);
            let BufResult(read, part) = file.read_at(part, 0).await;
            assert_eq!(read.unwrap_err().errno(), libc::EFAULT, "{}", place.name);
            assert_eq!(part.selected().as_ptr(), BYTES[8..].as_ptr());
        });
    }
}

#[test]
fn a_part_of_a_buffer_stays_a_part() {
    for place in places() {
        place.write("source", &(0..64).collect::<Vec<u8>>());
        block_on(async {
            let file = place.open("source", read_write()).await;
            let part = Buffer::from(vec![9; 32]).slice(8..16);
            let BufResult(read, part) = file.read_at(part, 16).await;
            assert_eq!(read.unwrap(), 8);
            assert_eq!(part.selected(), (16..24).collect::<Vec<u8>>());
            let BufResult(read, part) = file.read_exact_at(part, 0).await;
            read.unwrap();
            assert_eq!(part.selected(), (0..8).collect::<Vec<u8>>(), "the whole part is selected");
            let BufResult(read, part) = file.read_exact_at(part, 60).await;
            assert_eq!(read.unwrap_err().errno(), libc::ENODATA);
            assert_eq!(part.selected().len(), 8, "on failure too");
            let BufResult(written, part) = file.write_all_at(part, 100).await;
            written.unwrap();
            assert_eq!(part.selected().len(), 8);
            let bytes = part.into_vec().unwrap();
            let outside = bytes[..8].iter().chain(&bytes[16..]);
            assert!(outside.clone().all(|byte| *byte == 9), "{}: {bytes:?}", place.name);
            assert_eq!(place.read("source").len(), 108);
        });
    }
}

/// Everybody who comes from a library with buffers of that kind reads into an empty one first.
#[test]
fn empty_buffers_are_filled_within_their_capacity() {
    for place in places() {
        let bytes: Vec<u8> = (0..200).collect();
        place.write("file", &bytes);
        block_on(async {
            let file = place.open("file", read_write()).await;
            for _ in 0..2 {
                let BufResult(read, buffer) = file.read_at(Vec::with_capacity(64), 10).await;
                assert_eq!((read.unwrap(), &*buffer), (64, &bytes[10..74]), "{}", place.name);
                let BufResult(read, buffer) = file.read_at(Vec::with_capacity(64), 190).await;
                assert_eq!((read.unwrap(), &*buffer), (10, &bytes[190..]), "{}", place.name);
                let BufResult(read, buffer) = file.read_exact_at(Vec::with_capacity(32), 0).await;
                read.unwrap();
                assert_eq!(buffer, bytes[..32], "{}", place.name);
                let BufResult(read, buffer) = file.read_exact_at(Vec::with_capacity(32), 190).await;
                assert!(read.is_err() && *buffer == bytes[190..], "{}", place.name);
                let two = vec![Vec::with_capacity(150), Vec::with_capacity(150)];
                let BufResult(read, buffers) = file.read_vectored_at(two, 0).await;
                assert_eq!((read.unwrap(), buffers[1].len()), (200, 50), "{}", place.name);
                assert_eq!(buffers.concat(), bytes, "{}", place.name);
                let chain = file.chain().read_at(Vec::with_capacity(16), 8);
                let mut steps = chain.read_at(Vec::<u8>::with_capacity(64), 190).run().await;
                let last: Vec<u8> = steps.pop().unwrap().into_buffer();
                let first: Vec<u8> = steps.pop().unwrap().into_buffer();
                assert_eq!((&*first, &*last), (&bytes[8..24], &bytes[190..]), "{}", place.name);
            }
        });
    }
}

#[cfg(feature = "bytes")]
#[test]
fn an_empty_bytes_mut_is_filled_within_its_capacity() {
    for place in places() {
        place.write("file", b"contents");
        block_on(async {
            let file = place.open("file", read_write()).await;
            let BufResult(read, buffer) = file.read_at(bytes::BytesMut::with_capacity(64), 3).await;
            assert_eq!((read.unwrap(), &*buffer), (5, &b"tents"[..]), "{}", place.name);
        });
    }
}

#[test]
fn spare_capacity_is_filled_behind_the_bytes() {
    for place in places() {
        let bytes: Vec<u8> = (0..200).collect();
        place.write("file", &bytes);
        block_on(async {
            let file = place.open("file", read_write()).await;
            for len in [0, 1, 40, 64] {
                let mut buffer = Vec::with_capacity(64);
                buffer.resize(len, 7);
                let (count, spare) = file.read_at(buffer.spare(), 20).await.unwrap();
                assert_eq!(count, 64 - len, "{}", place.name);
                assert!(spare.0[..len].iter().all(|byte| *byte == 7), "{}", place.name);
                assert_eq!(spare.0[len..], bytes[20..20 + count], "{}", place.name);
                // What a file has less of than the capacity.
                let mut buffer = spare.0;
                buffer.truncate(len);
                let BufResult(read, spare) = file.read_exact_at(buffer.spare(), 190).await;
                let part = (64 - len).min(10);
                assert_eq!((read.is_ok(), spare.0.len()), (part == 64 - len, len + part));
                assert_eq!(spare.0[len..], bytes[190..190 + part], "{}", place.name);
            }
            // Nothing is written of it, and a part of it is empty.
            let spare = Vec::with_capacity(64).spare();
            assert_eq!(file.write_at(spare, 0).await.unwrap().0, 0, "{}", place.name);
            let part = Vec::with_capacity(64).spare().part(..);
            assert_eq!(file.read_at(part, 0).await.unwrap().0, 0, "{}", place.name);
            // An operation that comes to nothing leaves it as it was.
            let writable = place.open("file", OpenOptions::new().write(true)).await;
            let BufResult(read, spare) = writable.read_at(vec![7; 3].spare(), 0).await;
            assert!(read.is_err() || spare.0 == [7; 3], "{}", place.name);
        });
    }
}

/// Writes a buffer, and the range 1..3 of another like it.
async fn is_a_source<B: OwnedBuffer + Clone + PartialEq + Debug>(
    place: &Place,
    file: &File,
    buffer: B,
) {
    let bytes = buffer.as_ref().to_vec();
    let ((), back) = file.write_all_at(buffer.clone(), 0).await.unwrap();
    assert_eq!(back, buffer, "{}", place.name);
    assert_eq!(place.read("file")[..bytes.len()], bytes, "{}", place.name);
    let ((), part) = file.write_all_at(buffer.clone().part(1..=2), 100).await.unwrap();
    assert_eq!(part.as_ref(), &bytes[1..3], "{}", place.name);
    assert_eq!((part.range(), part.into_inner()), (1..3, buffer.clone()), "{}", place.name);
    assert_eq!(place.read("file")[100..], bytes[1..3], "{}", place.name);
    // Past the page cache, durably, several at once, and refused.
    file.write_durable_at(buffer.clone(), 0).await.unwrap();
    let (count, backs) = file.write_vectored_at(vec![buffer.clone(); 2], 0).await.unwrap();
    assert_eq!((count, backs), (2 * bytes.len(), vec![buffer.clone(); 2]), "{}", place.name);
    let BufResult(written, back) = file.write_at(buffer.clone().part(1..), u64::MAX).await;
    assert_eq!((written.is_err(), back.into_inner()), (true, buffer), "{}", place.name);
}

#[test]
fn what_is_only_written_comes_back_as_what_it_was() {
    for place in places() {
        block_on(async {
            let file = place.open("file", read_write().create(true)).await;
            is_a_source(&place, &file, "constant").await;
            is_a_source(&place, &file, b"an array").await;
            is_a_source(&place, &file, &b"a slice"[..]).await;
            is_a_source(&place, &file, String::from("a string")).await;
            is_a_source(&place, &file, [1, 2, 3, 4_u8]).await;
            is_a_source(&place, &file, Arc::<[u8]>::from(*b"shared")).await;
            is_a_source(&place, &file, vec![5; 9]).await;
            #[cfg(feature = "bytes")]
            {
                is_a_source(&place, &file, bytes::Bytes::from(vec![6; 9])).await;
                is_a_source(&place, &file, bytes::BytesMut::from(&b"mutable"[..])).await;
            }
        });
    }
}

#[test]
fn parts_and_arrays_are_read_into() {
    for place in places() {
        let bytes: Vec<u8> = (0..100).collect();
        place.write("file", &bytes);
        block_on(async {
            let file = place.open("file", read_write()).await;
            let array = file.read_exact_at([0; 4], 3).await.into_buffer().unwrap();
            assert_eq!(array, [3, 4, 5, 6], "{}", place.name);
            let (count, part) = file.read_at(vec![255; 8].part(2..5), 98).await.unwrap();
            assert_eq!((count, part.range()), (2, 2..5), "{}", place.name);
            let inner = part.into_inner();
            assert_eq!(inner, [255, 255, 98, 99, 255, 255, 255, 255], "{}", place.name);
            // Counted from where the outer part begins.
            let nested = vec![255; 8].part(2..6).part(1..3);
            let (_, nested) = file.read_at(nested, 50).await.unwrap();
            assert_eq!(nested.as_ref(), [50, 51], "{}", place.name);
            let bytes = nested.into_inner().into_inner();
            assert_eq!(bytes, [255, 255, 255, 50, 51, 255, 255, 255], "{}", place.name);
        });
    }
}

#[cfg(feature = "bytes")]
#[test]
fn what_is_leased_or_aligned_is_shared_without_a_copy() {
    let place = &places()[0];
    block_on(async {
        let pool = place.ring.register_pool(1, 64).await.unwrap();
        let lease = pool.take().unwrap();
        let at = lease.as_ptr();
        let shared = bytes::Bytes::from(lease);
        let second = shared.clone();
        assert_eq!((shared.as_ptr(), shared.len()), (at, 64));
        drop(shared);
        assert_eq!(pool.available(), 0);
        drop(second);
        assert_eq!(pool.available(), 1, "it went back with the last of them");
        let aligned = AlignedBuf::zeroed(4096, 4096);
        let at = aligned.as_ptr();
        assert_eq!(bytes::Bytes::from(aligned).as_ptr(), at);
    });
}

/// A buffer that may be asked for its bytes by the thread that made it only.
struct Shy {
    owner: std::thread::ThreadId,
    bytes: Box<[u8; 64]>,
}

impl Shy {
    fn new() -> Custom<Shy> {
        Custom(Shy { owner: std::thread::current().id(), bytes: Box::new([0; 64]) })
    }

    fn look(&self) {
        assert_eq!(std::thread::current().id(), self.owner, "asked by another thread");
    }
}

// SAFETY: a box stays where it is when it is moved.
unsafe impl StableBytes for Shy {
    fn bytes(&self) -> &[u8] {
        self.look();
        &self.bytes[..]
    }
}

// SAFETY: the same, and nobody else has it.
unsafe impl StableBytesMut for Shy {
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.look();
        &mut self.bytes[..]
    }
}

/// A panic of a user's code in the driver took its neighbours with it.
#[test]
fn a_driver_runs_nothing_of_a_users_buffer() {
    for place in places() {
        place.write("file", &[5; 100]);
        block_on(async {
            let file = place.open("file", read_write()).await;
            let read = || Operation::read_at(file.descriptor(), Shy::new().into_buffer_mut(), 10);
            let write = Operation::write_at(file.descriptor(), Shy::new().into_buffer(), 36);
            let linked = [read(), write, Operation::sync_data(file.descriptor())];
            for done in join_all(place.ring.submit_linked(linked)).await {
                assert!(done.result().is_ok(), "{}", place.name);
            }
            let neighbour = || Operation::read_at(file.descriptor(), vec![0; 10], 0);
            let done = join_all(place.ring.submit_all([neighbour(), read(), neighbour()])).await;
            let moved: Vec<_> = done.iter().map(|done| done.result().unwrap()).collect();
            assert_eq!(moved, [10, 64, 10], "{}", place.name);
        });
    }
}

/// What can be written from only was not refused as a read past the cache into it.
#[test]
fn a_static_buffer_is_refused_by_every_kind_of_read() {
    for place in places() {
        place.write("file", &[5; 8192]);
        block_on(async {
            for direct in [false, true] {
                let options = only_read().direct(direct && !place.is_simulated());
                let file = place.open("file", options).await;
                let buffer = || Buffer::from(&b"these are constant"[..]);
                let refused = [
                    file.read_at(buffer(), 7).await.0.unwrap_err(),
                    file.read_exact_at(buffer(), 0).await.0.unwrap_err(),
                    file.read_vectored_at(vec![buffer()], 0).await.0.unwrap_err(),
                ];
                assert!(refused.iter().all(|error| error.errno() == libc::EFAULT), "{refused:?}");
            }
        });
    }
}
