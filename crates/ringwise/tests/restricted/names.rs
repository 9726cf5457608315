//! A loop that may not work with names refuses every operation that takes one, and everything on the disk
//! stays as it was. A seal alone refuses none of them.
//!
//! The public API cannot reach the kernel's refusal, because the library refuses the same operations before.
//! The tests in `src/backend/uring/restrict.rs` pass them to the kernel.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::Permissions,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use crate::rings::skip;
use futures::executor::block_on;
use ringwise::{
    BackendChoice, Builder, Descriptor, Error, ErrorKind, Local, Opcode, OpenOptions, Operation,
    PushRefusal, Ring, fs,
};
use tempfile::TempDir;

/// Restricts a loop that is built.
type Restricting = fn(Builder) -> Builder;

/// The restrictions that refuse names, with a name each.
const REFUSING: [(&str, Restricting); 4] = [
    ("data-only", |builder| builder.data_only(true)),
    ("a list", |builder| builder.restrict(DATA)),
    ("data-only and sealed", |builder| builder.data_only(true).seal(true)),
    ("a list and sealed", |builder| builder.restrict(DATA).seal(true)),
];
const DATA: [Opcode; 3] = [Opcode::Read, Opcode::Write, Opcode::Sync];

/// A file with two names, a link to it, an empty directory and a full one.
fn tree() -> TempDir {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = directory.path();
    std::fs::write(at.join("file"), "content").unwrap();
    std::fs::hard_link(at.join("file"), at.join("again")).unwrap();
    symlink("file", at.join("link")).unwrap();
    std::fs::create_dir(at.join("empty")).unwrap();
    std::fs::create_dir(at.join("full")).unwrap();
    std::fs::write(at.join("full/inner"), "inner").unwrap();
    directory
}

/// Every name below a directory, with the mode, the number of links and the content of what it names.
fn snapshot(at: &Path) -> BTreeMap<PathBuf, (u32, u64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut directories = vec![at.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let about = path.symlink_metadata().unwrap();
            let content = match about.file_type() {
                kind if kind.is_dir() => {
                    directories.push(path.clone());
                    Vec::new()
                }
                kind if kind.is_symlink() => {
                    std::fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
                }
                _ => std::fs::read(&path).unwrap(),
            };
            found.insert(path, (about.mode(), about.nlink(), content));
        }
    }
    found
}

/// A function of `fs`: its name, the operation that is refused, and a call on the tree.
type Function = (&'static str, Opcode, fn(&Ring, &Path) -> Result<(), Error>);

/// All functions of `fs` that take a path.
const FUNCTIONS: [Function; 22] = [
    ("canonicalize", Opcode::Statx, |ring, at| {
        block_on(fs::canonicalize(ring, at.join("link"))).map(drop)
    }),
    ("copy", Opcode::Open, |ring, at| {
        block_on(fs::copy(ring, at.join("file"), at.join("new"))).map(drop)
    }),
    ("create_dir", Opcode::CreateDirectory, |ring, at| {
        block_on(fs::create_dir(ring, at.join("new")))
    }),
    ("create_dir_all", Opcode::CreateDirectory, |ring, at| {
        block_on(fs::create_dir_all(ring, at.join("new/below")))
    }),
    ("hard_link", Opcode::Link, |ring, at| {
        block_on(fs::hard_link(ring, at.join("file"), at.join("new")))
    }),
    ("metadata", Opcode::Statx, |ring, at| block_on(fs::metadata(ring, at.join("file"))).map(drop)),
    ("read", Opcode::Open, |ring, at| block_on(fs::read(ring, at.join("file"))).map(drop)),
    ("read_dir", Opcode::Open, |ring, at| block_on(fs::read_dir(ring, at)).map(drop)),
    ("read_link", Opcode::ReadLink, |ring, at| {
        block_on(fs::read_link(ring, at.join("link"))).map(drop)
    }),
    ("read_to_string", Opcode::Open, |ring, at| {
        block_on(fs::read_to_string(ring, at.join("file"))).map(drop)
    }),
    ("remove_dir", Opcode::Unlink, |ring, at| block_on(fs::remove_dir(ring, at.join("empty")))),
    ("remove_dir_all", Opcode::Statx, |ring, at| {
        block_on(fs::remove_dir_all(ring, at.join("full")))
    }),
    ("remove_file", Opcode::Unlink, |ring, at| block_on(fs::remove_file(ring, at.join("file")))),
    ("rename", Opcode::Rename, |ring, at| {
        block_on(fs::rename(ring, at.join("file"), at.join("new")))
    }),
    ("set_permissions", Opcode::SetMode, |ring, at| {
        block_on(fs::set_permissions(ring, at.join("file"), Permissions::from_mode(0o600)))
    }),
    ("symlink", Opcode::Symlink, |ring, at| block_on(fs::symlink(ring, "file", at.join("new")))),
    ("symlink_metadata", Opcode::Statx, |ring, at| {
        block_on(fs::symlink_metadata(ring, at.join("link"))).map(drop)
    }),
    ("try_exists", Opcode::Statx, |ring, at| {
        block_on(fs::try_exists(ring, at.join("file"))).map(drop)
    }),
    ("write", Opcode::Open, |ring, at| {
        block_on(fs::write(ring, at.join("file"), b"new".to_vec())).into_parts().0
    }),
    ("File::open", Opcode::Open, |ring, at| {
        let options = OpenOptions::new().write(true).create_new(true);
        block_on(fs::File::open(ring, at.join("new"), options)).map(drop)
    }),
    ("File::open_regular", Opcode::Open, |ring, at| {
        let options = OpenOptions::new().read(true).write(true).truncate(true);
        block_on(fs::File::open_regular(ring, at.join("file"), options)).map(drop)
    }),
    ("Journal::open", Opcode::Open, |ring, at| {
        block_on(fs::Journal::open(ring, at.join("empty"), Default::default())).map(drop)
    }),
];

/// Every operation that takes a path, and those that open or close something without one.
fn operations(at: &Path, directory: &Descriptor) -> Vec<Operation> {
    let [file, link, new, empty] = ["file", "link", "new", "empty"].map(|name| at.join(name));
    let create = OpenOptions::new().write(true).create(true).truncate(true);
    vec![
        Operation::open(&file, create),
        Operation::open_at(directory, "new", create),
        Operation::open_registered(&new, create),
        Operation::statx(&file),
        Operation::statx_link(&link),
        Operation::statx_at(directory, "file"),
        Operation::statx_link_at(directory, "link"),
        Operation::statx_descriptor(directory),
        Operation::unlink(&file),
        Operation::unlink_at(directory, "file"),
        Operation::remove_dir(&empty),
        Operation::remove_dir_at(directory, "empty"),
        Operation::create_dir(&new, 0o777),
        Operation::create_dir_at(directory, "new", 0o777),
        Operation::rename(&file, &new),
        Operation::rename_at((directory, "file"), (directory, "new"), true),
        Operation::link(&file, &new),
        Operation::link_at((directory, "file"), (directory, "new")),
        Operation::symlink("file", &new),
        Operation::read_link(&link),
        Operation::set_mode(&file, 0o600),
        Operation::set_mode_descriptor(directory, 0o700),
        Operation::read_directory(directory, vec![0_u8; 4096]),
        Operation::accept(directory),
        Operation::accept_multi(directory),
        Operation::close(directory),
    ]
}

/// A builder of each backend that is there.
fn builders() -> Vec<Builder> {
    let all = [BackendChoice::Uring, BackendChoice::Classic];
    let all = all.map(|choice| Local::builder().backend(choice).driver_thread(true));
    let is_there = |builder: &Builder| match builder.clone().build() {
        Ok(_) => true,
        Err(error) => {
            skip(&error.to_string());
            false
        }
    };
    all.into_iter().filter(is_there).collect()
}

#[track_caller]
fn assert_refused(error: &Error, opcode: Opcode, what: &str) {
    assert_eq!(
        (error.kind(), error.errno()),
        (ErrorKind::PermissionDenied, libc::EACCES),
        "{what}"
    );
    assert_eq!(error.opcode(), opcode, "{what}: {error}");
    assert!(error.to_string().contains("Builder::restrict"), "{what}: {error}");
}

#[test]
fn a_shared_ring_refuses_every_function_on_paths() {
    let tree = tree();
    let before = snapshot(tree.path());
    for builder in builders() {
        for (restriction, restricted) in REFUSING {
            let ring = restricted(builder.clone()).build_ring().unwrap();
            for (name, opcode, call) in FUNCTIONS {
                let what = format!("{name}, {restriction}, {}", ring.setup().backend());
                match call(&ring, tree.path()) {
                    Ok(()) => panic!("{what}: it was made"),
                    Err(error) => assert_refused(&error, opcode, &what),
                }
                assert_eq!(snapshot(tree.path()), before, "{what}");
            }
        }
    }
}

#[test]
fn a_loop_and_a_shared_ring_refuse_every_operation_on_names() {
    let tree = tree();
    let before = snapshot(tree.path());
    let directory = Descriptor::from(std::fs::File::open(tree.path()).unwrap());
    for builder in builders() {
        for (restriction, restricted) in REFUSING {
            let mut local = restricted(builder.clone()).build().unwrap();
            let ring = restricted(builder.clone()).build_ring().unwrap();
            for operation in operations(tree.path(), &directory) {
                let opcode = operation.opcode();
                let what = format!("{opcode}, {restriction}, {}", ring.setup().backend());
                let refused = local.push(operation, 0).expect_err(&what);
                let PushRefusal::Rejected(error) = refused.reason else { panic!("{what}") };
                assert_refused(&error, opcode, &what);
                // A shared ring has no way to give many results, so it has no form of this one.
                if opcode == Opcode::AcceptMulti {
                    continue;
                }
                // The operation comes back whole, and the ring refuses it too.
                let error = block_on(ring.submit(refused.operation)).result().expect_err(&what);
                assert_refused(&error, opcode, &what);
                assert_eq!(snapshot(tree.path()), before, "{what}");
            }
            assert_eq!((local.in_flight(), local.stats().submitted), (0, 0), "{restriction}");
        }
    }
}

/// The list above leaves out no operation that a data-only loop refuses.
#[test]
fn every_operation_that_moves_no_data_is_in_the_table() {
    let tree = tree();
    let directory = Descriptor::from(std::fs::File::open(tree.path()).unwrap());
    let data_only =
        Local::builder().backend(BackendChoice::Classic).data_only(true).build().unwrap();
    let names = |opcodes: Vec<Opcode>| -> BTreeSet<String> {
        opcodes.iter().map(|opcode| format!("{opcode:?}")).collect()
    };
    let refused = Opcode::ALL.into_iter().filter(|opcode| !data_only.setup().allows(*opcode));
    let listed = operations(tree.path(), &directory);
    assert_eq!(names(refused.collect()), names(listed.iter().map(Operation::opcode).collect()));
}

/// The calls of the table are valid, so that nothing but the restriction refuses them.
#[test]
fn a_seal_alone_refuses_no_function_on_paths() {
    for builder in builders() {
        let ring = builder.seal(true).build_ring().unwrap();
        let mut only_look = BTreeSet::new();
        for (name, _, call) in FUNCTIONS {
            let tree = tree();
            let before = snapshot(tree.path());
            call(&ring, tree.path()).unwrap_or_else(|error| panic!("{name}: {error}"));
            if snapshot(tree.path()) == before {
                only_look.insert(name);
            }
        }
        let expected = [
            ["canonicalize", "metadata", "read", "read_dir", "read_link"].as_slice(),
            &["read_to_string", "symlink_metadata", "try_exists", "Journal::open"],
        ];
        assert_eq!(only_look, expected.concat().into_iter().collect());
    }
}
