//! Who closes what, and when; the table of registered files.

use std::{fs::File, io::Write, os::fd::OwnedFd, path::Path};

use ringwise::{Descriptor, ErrorKind, Opcode, OpenOptions, Operation, PushRefusal};

use crate::loops::{Loop, counted, next, run};

pub fn the_wrong_direction_is_a_bad_descriptor(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let path = directory.counted_file(10);
    let reader = directory.open(&path);
    let writer = directory.open_with(&path, OpenOptions::new().write(true));
    let written = run(&mut local, Operation::write_at(&reader, vec![1], 0)).result();
    assert_eq!(written.unwrap_err().kind(), ErrorKind::BadDescriptor);
    let read = run(&mut local, Operation::read_at(&writer, vec![1], 0)).result();
    assert_eq!(read.unwrap_err().kind(), ErrorKind::BadDescriptor);
}

pub fn a_descriptor_closes_after_its_last_operation(way: Loop) {
    let mut local = way.build();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let reader = Descriptor::from(OwnedFd::from(reader));
    local.push(Operation::read_at(reader, vec![0; 8], 0), 0).unwrap();
    local.submit().unwrap();
    // The user's last handle went into the operation. Were the pipe's end closed with it, this
    // write would find no reader.
    writer.write_all(b"still").unwrap();
    let read = next(&mut local);
    assert_eq!(read.result().unwrap(), 5);
    drop(read);
    assert_eq!(writer.write(b"x").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
}

pub fn a_descriptor_that_is_shared_is_not_closed(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let path = directory.counted_file(10);
    let file = directory.open(&path);
    let refused = local.push(Operation::close(&file), 0).unwrap_err();
    assert!(matches!(refused.reason, PushRefusal::Rejected(ref error)
        if error.kind() == ErrorKind::Busy));
    drop(refused.operation.into_descriptor().unwrap());
    assert!(file.into_file().is_ok(), "nobody else holds it");
}

pub fn a_close_closes(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let path = directory.counted_file(10);
    let file = directory.open(&path);
    assert_eq!(directory.descriptors_of(&path), 1);
    run(&mut local, Operation::close(file)).result().unwrap();
    assert_eq!(directory.descriptors_of(&path), 0);
}

pub fn an_open_that_nobody_takes_is_closed(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let path = directory.counted_file(10);
    let open = || Operation::open(&path, OpenOptions::new().read(true));
    drop(run(&mut local, open()));
    assert_eq!(directory.descriptors_of(&path), 0);
    local.push(open(), 0).unwrap();
    local.submit().unwrap();
    drop(local);
    assert_eq!(directory.descriptors_of(&path), 0);
}

pub fn a_file_goes_into_the_table_and_out(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let path = directory.counted_file(100);
    let file = directory.open(&path);
    let fixed = local.register_file(&file).unwrap();
    drop(file);
    let read = run(&mut local, Operation::read_at(fixed, vec![0; 100], 0));
    assert_eq!(read.into_buffer().unwrap().as_slice(), counted(100));
    local.unregister_file(fixed).unwrap();
    assert_eq!(directory.descriptors_of(&path), 0, "the table held the last reference");
    let stale = local.run(Operation::read_at(fixed, vec![0; 100], 0)).unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::BadDescriptor);
    assert_eq!(local.unregister_file(fixed).unwrap_err().kind(), ErrorKind::BadDescriptor);
}

pub fn a_table_entry_waits_for_its_operations(way: Loop) {
    let mut local = way.builder().registered_files(1).build().unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let reader = Descriptor::from(OwnedFd::from(reader));
    let fixed = local.register_file(&reader).unwrap();
    local.push(Operation::read_at(fixed, vec![0; 8], 0), 0).unwrap();
    local.unregister_file(fixed).unwrap();
    assert!(local.register_file(&reader).is_err(), "the read may not have found its file yet");
    local.submit().unwrap();
    writer.write_all(b"kept").unwrap();
    assert_eq!(next(&mut local).result().unwrap(), 4);
    local.register_file(&reader).unwrap();
}

/// Its entry would be another file's while the read still goes by it.
pub fn a_registered_file_is_not_closed_under_an_operation(way: Loop) {
    let mut local = way.builder().registered_files(1).build().unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let reader = Descriptor::from(OwnedFd::from(reader));
    let fixed = local.register_file(&reader).unwrap();
    local.push(Operation::read_at(fixed, vec![0; 8], 0), 0).unwrap();
    for _ in 0..2 {
        let refused = local.push(Operation::close(fixed), 1).unwrap_err();
        assert!(matches!(refused.reason, PushRefusal::Rejected(ref error)
            if error.kind() == ErrorKind::Busy));
        assert!(local.register_file(&reader).is_err(), "its entry is not free");
        // Once more, when the read was handed over.
        local.submit().unwrap();
    }
    writer.write_all(b"kept").unwrap();
    assert_eq!(next(&mut local).result().unwrap(), 4);
    run(&mut local, Operation::close(fixed)).result().unwrap();
    let stale = local.run(Operation::read_at(fixed, vec![0; 8], 0)).unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::BadDescriptor);
    local.register_file(&reader).unwrap();
}

pub fn a_file_is_opened_into_the_table_and_closed_in_it(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let path = directory.counted_file(100);
    let open = Operation::open_registered(&path, OpenOptions::new().read(true));
    let fixed = run(&mut local, open).into_registered().unwrap();
    let read = run(&mut local, Operation::read_at(fixed, vec![0; 100], 0));
    if way == Loop::UringByThreads {
        assert_eq!(read.result().unwrap(), 100, "a thread opened it, so a thread can read it");
    }
    assert_eq!(read.into_buffer().unwrap().as_slice(), counted(100));
    run(&mut local, Operation::close(fixed)).result().unwrap();
    assert_eq!(directory.descriptors_of(&path), 0);
    let stale = local.run(Operation::sync_all(fixed)).unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::BadDescriptor);
    let missing = directory.path().join("missing");
    for _ in 0..40 {
        let open = Operation::open_registered(&missing, OpenOptions::new().read(true));
        let error = run(&mut local, open).into_registered().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "and the entry is free again");
    }
}

pub fn another_loops_entry_is_refused(way: Loop) {
    let (mut local, mut other, directory) = (way.build(), way.build(), way.disk());
    let path = directory.counted_file(10);
    let file = directory.open(&path);
    let fixed = other.register_file(&file).unwrap();
    local.register_file(&file).unwrap();
    let refused = local.run(Operation::read_at(fixed, vec![0], 0)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::BadDescriptor);
}

pub fn a_full_table_is_an_error(way: Loop) {
    let mut local = way.builder().registered_files(2).build().unwrap();
    let file = Descriptor::from(File::open("/dev/null").unwrap());
    local.register_file(&file).unwrap();
    let second = local.register_file(&file).unwrap();
    let full = local.register_file(&file).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::TooManyDescriptors);
    let open = Operation::open_registered("/dev/null", OpenOptions::new().read(true));
    let full = local.run(open).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::TooManyDescriptors);
    local.unregister_file(second).unwrap();
    local.register_file(&file).unwrap();
    assert!(
        Loop::Uring
            .builder()
            .registered_files(0)
            .build()
            .is_ok_and(|mut local| { local.register_file(&file).is_err() })
    );
}

pub fn a_file_that_a_thread_opened_into_the_table_is_not_inherited(way: Loop) {
    let mut local = way.build();
    let directory = way.disk();
    let path = directory.counted_file(10);
    let open = Operation::open_registered(&path, OpenOptions::new().read(true));
    let _file = run(&mut local, open).into_registered().unwrap();
    let is_ours =
        |entry: &std::fs::DirEntry| std::fs::read_link(entry.path()).is_ok_and(|to| to == path);
    let numbers = std::fs::read_dir("/proc/self/fd").unwrap().flatten().filter(is_ours);
    // A ring has it in its table only.
    for number in numbers {
        let about = Path::new("/proc/self/fdinfo").join(number.file_name());
        let about = std::fs::read_to_string(about).unwrap();
        let flags = about.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
        let flags = i32::from_str_radix(flags.trim(), 8).unwrap();
        assert_ne!(flags & libc::O_CLOEXEC, 0, "a child would inherit it");
    }
}

/// The thread was told to close -1.
pub fn a_file_in_the_table_is_closed_where_close_is_avoided(way: Loop) {
    let mut local = way.builder().avoid(&[Opcode::Close]).build().unwrap();
    let directory = way.disk();
    let path = directory.counted_file(10);
    for _ in 0..40 {
        let open = Operation::open_registered(&path, OpenOptions::new().read(true));
        let file = run(&mut local, open).into_registered().unwrap();
        run(&mut local, Operation::close(file)).result().unwrap();
        let error = local.push(Operation::read_at(file, vec![0; 8], 0), 0).unwrap_err();
        assert!(!error.is_full(), "{error}");
    }
}
