//! Runs both on the same world and compares all that can be seen afterwards.

use std::{
    collections::BTreeMap,
    fs,
    iter::repeat,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::{
    machine::{self, Ran, Setting, Which},
    snapshot, world,
};

/// What one run left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub ran: Ran,
    pub files: BTreeMap<PathBuf, String>,
}

/// A directory for a case, that others may walk into, and that goes away.
pub fn scene() -> tempfile::TempDir {
    let scene = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::set_permissions(scene.path(), fs::Permissions::from_mode(0o777)).unwrap();
    scene
}

/// Runs a case: `build` makes the world, in an empty directory, the same each time. Sources that
/// are to keep their inodes, and so their order, are made by `sources` once.
pub fn outcome(
    which: Which,
    at: &Path,
    words: &[String],
    setting: &Setting,
    build: &dyn Fn(&Path),
) -> Outcome {
    build(at);
    // On a busy machine it may be made long before, or just now.
    world::age(at);
    let since = SystemTime::now();
    let ran = machine::run(which, words, at, setting);
    if !machine::is_root() {
        world::open_up(at);
    }
    Outcome { ran, files: snapshot::take(at, since) }
}

/// Fails where the two are not the same.
#[track_caller]
pub fn same(case: &str, gnu: &Outcome, ours: &Outcome) {
    if let Some(differences) = differences(case, gnu, ours) {
        panic!("{differences}");
    }
}

/// GNU cp 9.1 says two things otherwise now and then. A name in its first buffer for quoted names,
/// while that is too small, begins with an empty string, which a shell takes away. And where an
/// attribute could not be set, the attribute's name can stand in place of the file's.
fn without_quirks(gnu: &Ran, ours: &Ran) -> Ran {
    let out: Vec<&str> = (gnu.out.split('\n').zip(ours.out.split('\n').chain(repeat(""))))
        .map(|(gnu, ours)| match gnu.strip_prefix("''") {
            Some(rest) if rest == ours => rest,
            _ => gnu,
        })
        .collect();
    let err: Vec<&str> = (gnu.err.split('\n').zip(ours.err.split('\n').chain(repeat(""))))
        .map(|(gnu, ours)| {
            let attribute = |line: &str| {
                let rest = line.strip_prefix("cp: setting attribute ")?;
                rest.split_once(" for ").map(|(name, rest)| (name.to_owned(), rest.to_owned()))
            };
            match (attribute(gnu), attribute(ours)) {
                (Some((name, rest)), Some((own, _)))
                    if name == own && rest.starts_with(&format!("{name}: ")) =>
                {
                    ours
                }
                _ => gnu,
            }
        })
        .collect();
    Ran { status: gnu.status, out: out.join("\n"), err: err.join("\n") }
}

/// What the two do not have in common.
pub fn differences(case: &str, gnu: &Outcome, ours: &Outcome) -> Option<String> {
    let mut differences = String::new();
    if without_quirks(&gnu.ran, &ours.ran) != ours.ran {
        differences += &format!("GNU: {:#?}\nours: {:#?}\n", gnu.ran, ours.ran);
    }
    let paths: std::collections::BTreeSet<&PathBuf> =
        gnu.files.keys().chain(ours.files.keys()).collect();
    for path in paths {
        let (one, other) = (gnu.files.get(path), ours.files.get(path));
        if one != other {
            differences += &format!("{}\n  GNU:  {one:?}\n  ours: {other:?}\n", path.display());
        }
    }
    (!differences.is_empty()).then(|| format!("{case}\n{differences}"))
}
