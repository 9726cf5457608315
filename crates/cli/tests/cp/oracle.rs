//! Runs both on the same world and compares all that can be seen afterwards.

pub mod machine;
pub mod random;
pub mod scripts;
pub mod snapshot;
pub mod world;

use std::{
    collections::BTreeMap,
    fs,
    iter::repeat,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use self::machine::{Ran, Setting, Which};

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

/// GNU cp 9.1 says three things otherwise now and then. A name in its first buffer for quoted names,
/// while that is too small, begins with an empty string, which a shell takes away. Where an
/// attribute could not be read or set, the attribute's name can stand in place of the file's. And of names
/// with an apostrophe see [`as_scanned_once`].
fn without_quirks(gnu: &Ran, ours: &Ran) -> Ran {
    let each = |gnu: &str, ours: &str| -> String {
        let lines = gnu.split('\n').zip(ours.split('\n').chain(repeat("")));
        lines.map(|(gnu, ours)| as_scanned_once(gnu, ours)).collect::<Vec<_>>().join("\n")
    };
    let (out, err) = (each(&gnu.out, &ours.out), each(&gnu.err, &ours.err));
    let out: Vec<&str> = (out.split('\n').zip(ours.out.split('\n').chain(repeat(""))))
        .map(|(gnu, ours)| match gnu.strip_prefix("''") {
            Some(rest) if rest == ours => rest,
            _ => gnu,
        })
        .collect();
    let err: Vec<&str> = (err.split('\n').zip(ours.err.split('\n').chain(repeat(""))))
        .map(|(gnu, ours)| {
            let attribute = |line: &str| {
                let (rest, of) = match line.strip_prefix("cp: setting attribute ") {
                    Some(rest) => (rest, " for "),
                    None => (line.strip_prefix("cp: getting attribute ")?, " of "),
                };
                rest.split_once(of).map(|(name, rest)| (name.to_owned(), rest.to_owned()))
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

/// A line of GNU cp's as it would be without a fault of 9.1 (gnulib, lib/quotearg.c). A name with an
/// apostrophe is scanned first, to see whether double quotes do, and then written, and where its end
/// is escaped the writing begins in the state that the scan ended in, behind an escape: `'''a'\''b'$'\t'`
/// instead of `'a'\''b'$'\t'`. If its buffer was made just now, that is as long as the name would be
/// without this, and the last quote finds no room: `'''a'\''b'$'\t`. That and nothing else is put right.
fn as_scanned_once(gnu: &str, ours: &str) -> String {
    let (mut line, ours) = (gnu.as_bytes().to_vec(), ours.as_bytes());
    let mut word = None;
    loop {
        let differ = line.iter().zip(ours).position(|(gnu, ours)| gnu != ours);
        let at = differ.unwrap_or_else(|| line.len().min(ours.len()));
        let has_empty = at > 0 && line[at - 1..].starts_with(b"'''");
        if has_empty && (at == 1 || line[at - 2] == b' ') {
            line.drain(at..at + 2);
            word = Some(at);
            continue;
        }
        let name = word.take().and_then(|start| ours.get(start..at)).unwrap_or_default();
        if ours.get(at) != Some(&b'\'') || !has_apostrophe_and_escaped_end(name) {
            return String::from_utf8(line).unwrap_or_else(|_| gnu.to_owned());
        }
        line.insert(at, b'\'');
    }
}

/// Of a quoted name without its quotes.
fn has_apostrophe_and_escaped_end(name: &[u8]) -> bool {
    let has = |part: &[u8]| name.windows(part.len()).any(|window| window == part);
    let escapes = name.windows(3).rposition(|window| window == b"'$'");
    let is_escape = |byte: &u8| *byte == b'\\' || byte.is_ascii_alphanumeric();
    let ends = escapes.is_some_and(|at| name[at + 3..].iter().all(is_escape));
    // Behind this another name may have begun.
    ends && has(b"'\\''") && !has(b"' ")
}

#[test]
fn of_gnu_cps_quoting_only_its_fault_is_overlooked() {
    let ours = r"cannot link 'd/it'\''s/'$'\t' to 's/it'\''s/'$'\377\t': No";
    for gnu in [
        ours,
        r"cannot link '''d/it'\''s/'$'\t' to '''s/it'\''s/'$'\377\t': No",
        r"cannot link 'd/it'\''s/'$'\t' to '''s/it'\''s/'$'\377\t: No",
    ] {
        assert_eq!(as_scanned_once(gnu, ours), ours);
    }
    for gnu in [
        r"cannot link 'd/it'\''s/'$'\t' to 's/it'\''s/'$'\377\t: No",
        r"cannot link '''d/it'\''s/'$'\t' to 's/it'\''s/'$'\377\t: No",
        r"cannot link 'd/it'\''s/'$'\t' to '''s/it'\''s/'$'\377: No",
        r"cannot link 'd/it'\''s/'$'\t' to '''s/it'\''s/'$'\377\t: no",
        r"cannot link ''d/it'\''s/'$'\t' to 's/it'\''s/'$'\377\t': No",
    ] {
        assert_ne!(as_scanned_once(gnu, ours), ours, "{gnu}");
    }
    let (gnu, ours) = (r"'''s/a'$'\t -> x", r"'s/a'$'\t' -> x");
    assert_ne!(as_scanned_once(gnu, ours), ours, "it has no apostrophe");
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
