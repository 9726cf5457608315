//! The workspace's rules, as tests: which way dependencies point, where unsafe code may be, and
//! what a source file has to say of itself. A rule that nobody checks is soon not one.
//!
//! It reads the sources as text. It knows nothing of Rust's grammar beyond comments, so it says
//! where to look rather than what is meant.

#[path = "layering/circles.rs"]
mod circles;
#[path = "layering/documents.rs"]
mod documents;

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
};

/// No source file is longer. A ratchet: lower it when the longest file was split, never raise it.
const LINES_MAX: usize = 700;

/// What each crate may depend on, of those in this workspace.
const DIRECTIONS: [(&str, &[&str]); 16] = [
    ("ringwise", &[]),
    ("ringwise-measure", &[]),
    ("ringwise-trace", &[]),
    ("ringwise-log", &[]),
    ("ringwise-doctor", &["ringwise", "ringwise-measure"]),
    ("ringwise-cp", &["ringwise", "ringwise-measure"]),
    ("ringwise-serve", &["ringwise", "ringwise-measure"]),
    ("ringwise-object-store", &["ringwise"]),
    ("ringwise-axum", &["ringwise"]),
    ("ringwise-parquet", &["ringwise"]),
    ("ringwise-vortex", &["ringwise"]),
    ("ringwise-echo", &["ringwise", "ringwise-measure", "ringwise-serve"]),
    // What it measures it must not be made of.
    ("ringwise-load", &["ringwise-measure"]),
    ("ringwise-logd", &["ringwise", "ringwise-measure", "ringwise-serve"]),
    (
        "ringwise-lab",
        &[
            "ringwise",
            "ringwise-measure",
            "ringwise-load",
            "ringwise-object-store",
            "ringwise-trace",
        ],
    ),
    (
        "ringwise-cli",
        &[
            "ringwise",
            "ringwise-measure",
            "ringwise-cp",
            "ringwise-doctor",
            "ringwise-echo",
            "ringwise-lab",
            "ringwise-load",
            "ringwise-logd",
            // Only in tests.
            "ringwise-log",
            "ringwise-trace",
        ],
    ),
];

/// Files outside the library that may have unsafe code, because what they call has no safe API: engines of the lab, and
/// requests to perf events and to ptrace(2).
const UNSAFE_FILES: [&str; 5] = [
    "crates/lab/src/engine/aio/context.rs",
    "crates/lab/src/engine/bare_ring.rs",
    "crates/lab/src/engine/mmap.rs",
    "crates/trace/src/recorder/perf/control.rs",
    "crates/trace/src/recorder/requests.rs",
];

/// Files whose contract is their parent module's header. Each new one is a look at two files to see
/// what one does, so there are no more of them.
const UNDER_PARENT: [&str; 1] = ["crates/ringwise/src/backend/uring/entry.rs"];

/// Words that do not belong in what is committed, and what to do instead. Taken apart here, since
/// this file is searched too.
const BANNED: [(&str, &str, &str); 5] = [
    ("todo", "!", "do it, or file an issue"),
    ("FIX", "ME", "mend it, or file an issue"),
    ("dbg", "!", "take it out"),
    ("/wo", "rk/", "no machine's paths: use a temporary directory"),
    ("/tmp/", "target", "no machine's paths: use CARGO_TARGET_DIR"),
];

#[test]
fn the_library_and_the_instruments_depend_on_no_other_crate_here() {
    let mut wrong = Vec::new();
    for (directory, name, dependencies) in manifests() {
        let Some((_, allowed)) = DIRECTIONS.iter().find(|(crate_name, _)| *crate_name == name)
        else {
            wrong.push(format!("{directory}: say in DIRECTIONS what {name} may depend on"));
            continue;
        };
        // Its own tests turn on a feature of it.
        let upward = dependencies
            .iter()
            .filter(|dependency| **dependency != name && !allowed.contains(&&***dependency));
        wrong.extend(upward.map(|dependency| format!("{name} depends on {dependency}")));
    }
    none(wrong);
}

#[test]
fn unsafe_code_stands_under_its_contract() {
    let is_free = |file: &Source| {
        !uses_unsafe(&file.text) || UNDER_PARENT.iter().any(|path| file.path == Path::new(path))
    };
    let has_contract = |file: &Source| {
        file.header().any(|line| line == "# Safety")
            && file.text.lines().any(|line| line == "#![allow(unsafe_code)]")
    };
    let wrong = sources("src").into_iter().filter(|file| !is_free(file) && !has_contract(file));
    none(wrong.map(|file| {
        format!("{file}: needs a `//! # Safety` header and `#![allow(unsafe_code)]`, or no unsafe")
    }));
}

#[test]
fn unsafe_code_is_in_the_library_or_in_few_other_files() {
    let is_allowed = |file: &Source| {
        file.path.starts_with("crates/ringwise/src/")
            || UNSAFE_FILES.iter().any(|allowed| file.path == Path::new(allowed))
    };
    let wrong = sources("src").into_iter().filter(|file| {
        let opts_in = file.text.contains("#![allow(unsafe_code)]");
        (opts_in || uses_unsafe(&file.text)) && !is_allowed(file)
    });
    none(wrong.map(|file| format!("{file}: what needs unsafe code belongs in the library")));
}

#[test]
fn every_crate_says_whether_it_has_unsafe_code() {
    let mut wrong = Vec::new();
    for (directory, name, _) in manifests() {
        let level = if matches!(&*name, "ringwise" | "ringwise-lab" | "ringwise-trace") {
            "deny"
        } else {
            "forbid"
        };
        let attribute = format!("#![{level}(unsafe_code)]");
        let root =
            ["src/lib.rs", "src/main.rs"].map(|root| root_directory().join(&directory).join(root));
        for root in root.into_iter().filter(|root| root.exists()) {
            if !fs::read_to_string(&root).unwrap().lines().any(|line| line == attribute) {
                wrong.push(format!("{}: needs `{attribute}`", root.display()));
            }
        }
    }
    none(wrong);
}

#[test]
fn every_file_says_what_it_is() {
    let silent = all_sources().into_iter().filter(|file| !file.text.starts_with("//!"));
    none(silent.map(|file| format!("{file}: begin with `//!`: what it is and why it exists")));
}

#[test]
fn no_file_is_too_long() {
    let long = sources("src").into_iter().filter(|file| file.text.lines().count() > LINES_MAX);
    none(
        long.map(|file| {
            format!("{file}: {} lines, {LINES_MAX} at most", file.text.lines().count())
        }),
    );
}

#[test]
fn modules_are_named_for_what_they_hold() {
    let nameless = all_sources().into_iter().filter(|file| {
        let name = file.path.file_name().unwrap_or_default();
        name == "mod.rs" || name == "utils.rs" || name == "util.rs" || name == "helpers.rs"
    });
    none(nameless.map(|file| format!("{file}: name it for its idea (`foo.rs` beside `foo/`)")));
}

#[test]
fn nothing_unfinished_and_no_machines_paths() {
    let mut wrong = Vec::new();
    for file in all_sources().into_iter().chain(texts()) {
        for (start, end, instead) in BANNED {
            let word = format!("{start}{end}");
            let lines = file.text.lines().enumerate().filter(|(_, line)| line.contains(&word));
            wrong.extend(lines.map(|(at, _)| format!("{file}:{}: {word}: {instead}", at + 1)));
        }
    }
    none(wrong);
}

#[test]
fn the_documents_name_files_and_tests_that_exist() {
    let mut wrong = Vec::new();
    let mut named = 0;
    for document in texts().iter().filter(|file| file.path.extension().is_some_and(|e| e == "md")) {
        for reference in references(&document.text) {
            named += 1;
            if !exists(reference) {
                wrong.push(format!("{document}: `{reference}` is not there"));
            }
        }
    }
    none(wrong);
    assert!(named > 50, "only {named} references found: does the search still work?");
}

#[test]
fn the_search_for_unsafe_code_sees_code_and_not_words() {
    assert!(uses_unsafe("let x = unsafe { y() };"));
    assert!(uses_unsafe("unsafe impl Send for X {}"));
    assert!(uses_unsafe("/// text\npub(crate) unsafe fn x() {}"));
    assert!(!uses_unsafe("//! unsafe { }\n// unsafe {}\n#![deny(unsafe_code)]"));
    assert!(!uses_unsafe("let x = 1; // SAFETY: not unsafe"));
    assert!(!uses_unsafe("#![deny(unsafe_op_in_unsafe_fn)]"));
}

#[test]
fn the_search_for_references_sees_paths_and_tests() {
    let text = "see `docs/reference/kernels.md`, `cargo test`, `a/b.rs::c`, ```\n`x` and `.ci/run`";
    assert_eq!(
        references(text).collect::<Vec<_>>(),
        ["docs/reference/kernels.md", "a/b.rs::c", ".ci/run"]
    );
    assert!(exists("crates/ringwise/tests/layering.rs::no_file_is_too_long"));
    assert!(exists("tests/layering.rs"), "relative to the library too");
    assert!(!exists("crates/ringwise/tests/layering.rs::no_such_test"));
    assert!(!exists("crates/ringwise/tests/layering.rs::no_file"), "only the start of a name");
    assert!(!exists("docs/no_such_document.md"));
}

/// A file of the workspace, by its path from the root.
struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    /// The lines of the `//!` header.
    fn header(&self) -> impl Iterator<Item = &str> {
        self.text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

fn root_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn crates() -> Vec<PathBuf> {
    let entries = fs::read_dir(root_directory().join("crates")).unwrap();
    let mut crates: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    crates.retain(|directory| directory.join("Cargo.toml").exists());
    crates.sort();
    assert!(crates.len() >= DIRECTIONS.len(), "the crates are not where they were");
    crates
}

/// The Rust files of each crate's directory `kind`.
fn sources(kind: &str) -> Vec<Source> {
    let mut found = Vec::new();
    for directory in crates() {
        collect(&directory.join(kind), "rs", &mut found);
    }
    assert!(kind != "src" || found.len() > 50, "the sources are not where they were");
    found
}

fn all_sources() -> Vec<Source> {
    ["src", "tests", "examples", "benches"].iter().flat_map(|kind| sources(kind)).collect()
}

/// Everything else that is written: documents, manifests, the checks' script.
fn texts() -> Vec<Source> {
    let root = root_directory();
    let mut found = Vec::new();
    collect(&root.join("docs"), "md", &mut found);
    let entries = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path());
    let manifests = crates().into_iter().map(|directory| directory.join("Cargo.toml"));
    let script = root.join(".ci/run");
    for path in entries.chain(manifests).chain([script]) {
        let extension = path.extension().unwrap_or_default();
        if extension == "md" || extension == "toml" || path.ends_with("run") {
            found.push(read(path));
        }
    }
    found
}

fn collect(directory: &Path, extension: &str, found: &mut Vec<Source>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            collect(&path, extension, found);
        } else if path.extension().is_some_and(|own| own == extension) {
            found.push(read(path));
        }
    }
}

fn read(path: PathBuf) -> Source {
    let text = fs::read_to_string(&path).unwrap();
    let path = path.strip_prefix(root_directory()).unwrap().to_owned();
    Source { path, text }
}

/// Each crate's directory, name, and those of its dependencies that are in this workspace. Those
/// for tests count too: a circle through tests is a circle.
fn manifests() -> Vec<(String, String, Vec<String>)> {
    let mut found = Vec::new();
    for directory in crates() {
        let manifest = read(directory.join("Cargo.toml"));
        let mut tables: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut table = "";
        for line in manifest.text.lines() {
            match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                Some(name) => table = name,
                None => tables.entry(table).or_default().push(line),
            }
        }
        let package = &tables["package"];
        let name = package.iter().find_map(|line| line.strip_prefix("name = \"")).unwrap();
        let dependencies = tables.iter().filter(|(table, _)| table.ends_with("dependencies"));
        let names = dependencies.flat_map(|(_, lines)| lines).filter_map(|line| {
            let name = line.split(['.', ' ', '=']).next()?;
            name.starts_with("ringwise").then(|| name.to_owned())
        });
        let path = directory.strip_prefix(root_directory()).unwrap().display().to_string();
        found.push((path, name.trim_end_matches('"').to_owned(), names.collect()));
    }
    found
}

/// Whether the keyword stands outside of a line's comment.
fn uses_unsafe(text: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.lines().any(|line| {
        let code = line.split("//").next().unwrap_or_default();
        code.split(|c| !is_word(c)).any(|word| word == "unsafe")
    })
}

/// What a document puts between backticks that is the path of a file here, or of an item in one.
fn references(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    quoted.filter(|word| {
        let path = word.split("::").next().unwrap_or_default();
        let is_file = path.ends_with(".rs") || path.ends_with(".md") || path == ".ci/run";
        is_file && !path.contains([' ', '*', '<', '{'])
    })
}

/// Whether a file, and the item after `::`, is there: from the root, the library or its source.
fn exists(reference: &str) -> bool {
    let (path, item) = match reference.split_once("::") {
        Some((path, item)) => (path, Some(item)),
        None => (reference, None),
    };
    let root = root_directory();
    let library = root.join("crates/ringwise");
    let tools = ["lab", "logd"].map(|tool| root.join("crates").join(tool).join("src"));
    let mut bases = vec![root, library.clone(), library.join("src")];
    bases.extend(tools);
    let texts = bases.iter().filter_map(|base| fs::read_to_string(base.join(path)).ok());
    texts.into_iter().any(|text| item.is_none_or(|item| defines(&text, item)))
}

/// Whether a file defines an item of this name.
fn defines(text: &str, item: &str) -> bool {
    ["fn", "struct", "enum", "trait", "const"].iter().any(|keyword| {
        let definition = format!("{keyword} {item}");
        text.match_indices(&definition).any(|(at, _)| {
            let next = text[at + definition.len()..].chars().next().unwrap_or(' ');
            !next.is_alphanumeric() && next != '_'
        })
    })
}

#[track_caller]
fn none(wrong: impl IntoIterator<Item = String>) {
    let wrong: Vec<String> = wrong.into_iter().collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
