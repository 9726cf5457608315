//! Opening, metadata, renaming, linking, removing.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use ringwise::{ErrorKind, OpenOptions, Operation};

use crate::{
    disk::Told,
    loops::{Loop, run},
};

pub fn a_name_lives_and_dies(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let (first, second) = (directory.path().join("first"), directory.path().join("second"));
    let options = OpenOptions::new().write(true).create_new(true).mode(0o600);
    drop(run(&mut local, Operation::open(&first, options)).into_descriptor().unwrap());
    let again = run(&mut local, Operation::open(&first, options)).into_descriptor();
    assert_eq!(again.unwrap_err().kind(), ErrorKind::AlreadyExists);

    run(&mut local, Operation::link(&first, &second)).result().unwrap();
    let metadata = run(&mut local, Operation::statx(&second)).metadata().unwrap();
    assert_eq!((metadata.links(), metadata.mode() & 0o777), (2, 0o600));
    run(&mut local, Operation::unlink(&first)).result().unwrap();
    run(&mut local, Operation::rename(&second, &first)).result().unwrap();
    assert!(directory.exists(&first) && !directory.exists(&second));
    let gone = run(&mut local, Operation::unlink(&second)).result().unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
}

pub fn a_directory_is_made_and_removed(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let path = directory.path().join("made");
    run(&mut local, Operation::create_dir(&path, 0o755)).result().unwrap();
    let metadata = run(&mut local, Operation::statx(&path)).metadata().unwrap();
    assert!(metadata.is_dir() && !metadata.is_file());
    let again = run(&mut local, Operation::create_dir(&path, 0o755)).result().unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    directory.write(path.join("inside"), "x");
    let full = run(&mut local, Operation::remove_dir(&path)).result().unwrap_err();
    assert_eq!(full.kind(), ErrorKind::AlreadyExists, "not empty");
    let wrong = run(&mut local, Operation::unlink(&path)).result().unwrap_err();
    assert_eq!(wrong.errno(), 21, "EISDIR");
    run(&mut local, Operation::unlink(path.join("inside"))).result().unwrap();
    run(&mut local, Operation::remove_dir(&path)).result().unwrap();
    assert!(!directory.exists(&path));
}

pub fn a_directory_has_no_bytes(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let held = directory.open(directory.path());
    let refused = run(&mut local, Operation::read_at(&held, vec![0; 8], 0)).result().unwrap_err();
    assert_eq!(refused.errno(), 21, "EISDIR");
    // pread(2) would refuse this too, a ring's read and preadv(2) do not.
    let nothing = run(&mut local, Operation::read_at(&held, Vec::new(), 0));
    assert_eq!(nothing.result().unwrap(), 0);
    let nothing = run(&mut local, Operation::read_vectored_at(&held, vec![Vec::new().into()], 0));
    assert_eq!(nothing.result().unwrap(), 0);
}

pub fn names_relative_to_a_directory(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let held = directory.open(directory.path());
    run(&mut local, Operation::create_dir_at(&held, "sub", 0o755)).result().unwrap();
    let sub = OpenOptions::new().read(true);
    let sub = run(&mut local, Operation::open_at(&held, "sub", sub)).into_descriptor().unwrap();
    let options = OpenOptions::new().write(true).create(true);
    let file = run(&mut local, Operation::open_at(&sub, "a", options)).into_descriptor().unwrap();
    run(&mut local, Operation::write_at(file, b"abc".to_vec(), 0)).result().unwrap();
    run(&mut local, Operation::link_at((&sub, "a"), (&held, "b"))).result().unwrap();
    let metadata = run(&mut local, Operation::statx_at(&held, "b")).metadata().unwrap();
    assert_eq!((metadata.len(), metadata.links()), (3, 2));
    let kept = run(&mut local, Operation::rename_at((&sub, "a"), (&held, "b"), false));
    assert_eq!(kept.result().unwrap_err().kind(), ErrorKind::AlreadyExists);
    directory.write(directory.path().join("c"), "c");
    run(&mut local, Operation::rename_at((&held, "c"), (&held, "b"), true)).result().unwrap();
    assert_eq!(directory.read(directory.path().join("b")).unwrap(), b"c");
    run(&mut local, Operation::unlink_at(&sub, "a")).result().unwrap();
    run(&mut local, Operation::remove_dir_at(&held, "sub")).result().unwrap();
}

pub fn hostile_names(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let longest = [b'n'; 255];
    let names: [&[u8]; 5] = [b"new\nline", b"not utf-8 \xff\xfe", b" ", b"-rf", &longest];
    for name in names {
        let path = directory.path().join(OsStr::from_bytes(name));
        let options = OpenOptions::new().write(true).create_new(true);
        run(&mut local, Operation::open(&path, options)).into_descriptor().unwrap();
        assert!(directory.exists(&path));
        run(&mut local, Operation::unlink(&path)).result().unwrap();
        assert!(!directory.exists(&path));
    }
    let too_long = directory.path().join(OsStr::from_bytes(&[b'n'; 256]));
    let options = OpenOptions::new().write(true).create_new(true);
    let error = run(&mut local, Operation::open(&too_long, options)).into_descriptor().unwrap_err();
    assert_eq!(error.errno(), 36, "ENAMETOOLONG");
    let empty = run(&mut local, Operation::unlink("")).result().unwrap_err();
    assert_eq!(empty.kind(), ErrorKind::NotFound);
}

pub fn a_nul_byte_is_refused(way: Loop) {
    let mut local = way.build();
    let path = OsStr::from_bytes(b"before\0after");
    for operation in [
        Operation::open(path, OpenOptions::new().read(true)),
        Operation::unlink(path),
        Operation::rename("fine", path),
    ] {
        let error = local.run(operation).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("NUL"), "{error}");
    }
}

pub fn a_missing_file_is_named_in_the_error(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let path = directory.path().join("missing");
    let open = Operation::open(&path, OpenOptions::new().read(true));
    let error = run(&mut local, open).into_descriptor().unwrap_err();
    assert_eq!(error.path(), Some(path.as_path()));
    let standard = std::io::Error::from(error.clone());
    assert_eq!(standard.kind(), std::io::ErrorKind::NotFound);
    assert_eq!(standard.raw_os_error(), Some(libc::ENOENT));
    let text = error.to_string();
    assert!(text.starts_with(&format!("open {}: No such file", path.display())), "{text}");
}

pub fn metadata_is_that_of_the_standard_library(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let path = directory.counted_file(12_345);
    let link = directory.path().join("link");
    directory.symlink(&path, &link);
    let expected = directory.metadata(&path);
    let file = directory.open(&path);
    for operation in
        [Operation::statx(&path), Operation::statx(&link), Operation::statx_descriptor(&file)]
    {
        let told = run(&mut local, operation).metadata().unwrap();
        assert_eq!(Told::from(&told), expected);
    }
    assert!(run(&mut local, Operation::statx_link(&link)).metadata().unwrap().is_symlink());
}
