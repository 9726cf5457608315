//! Circles of files that import each other. A reader can enter a circle of three nowhere.
//!
//! It reads `use` declarations and paths in code as text, and follows `pub use` to the file that has the
//! item. It sees neither macros nor methods, so two files may know each other in ways that it does not find.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// The most files that may import each other.
const FILES_MAX: usize = 2;

#[test]
fn few_files_import_each_other() {
    let mut found = Vec::new();
    for directory in super::crates() {
        let name = directory.file_name().unwrap().to_string_lossy().into_owned();
        for circle in Modules::read(&directory.join("src")).circles() {
            if circle.len() > FILES_MAX {
                found.push(format!(
                    "{name}: {} files import each other: {}",
                    circle.len(),
                    circle.join(", ")
                ));
            }
        }
    }
    super::none(found);
}

#[test]
fn the_search_for_circles_follows_imports_and_what_is_published_elsewhere() {
    let files = [
        ("", "pub use b::{Item as Thing, other};\nmod a;\nmod b;\nmod c;"),
        ("a", "use crate::{Thing, c::{self, Third}};"),
        ("b", "// use crate::a::Nothing;\npub struct Item; fn f() { super::c::call() }"),
        ("c", "fn call() { crate::a::call() }\n#[cfg(test)]\nmod tests { use crate::b::Item; }"),
    ];
    let modules = Modules::new(files.map(|(name, text)| (module(name), text.to_owned())));
    assert_eq!(modules.circles(), [["a", "b", "c"]]);
}

/// A path of names: a module's, or an item's.
type Names = Vec<String>;

fn module(name: &str) -> Names {
    name.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// A crate's files as text.
struct Modules {
    files: BTreeMap<Names, String>,
    /// What a file publishes of others: the name it has there, and where it is.
    published: BTreeMap<(Names, String), Names>,
}

impl Modules {
    fn read(directory: &Path) -> Modules {
        let mut sources = Vec::new();
        super::collect(directory, "rs", &mut sources);
        let relative = directory.strip_prefix(super::root_directory()).unwrap();
        Modules::new(sources.into_iter().filter_map(|source| {
            let name = source.path.strip_prefix(relative).unwrap().with_extension("");
            let mut module = module(&name.to_string_lossy());
            if module.iter().any(|part| part == "tests") {
                return None;
            }
            if module == ["lib"] || module == ["main"] {
                module.clear();
            }
            Some((module, source.text))
        }))
    }

    fn new(files: impl IntoIterator<Item = (Names, String)>) -> Modules {
        let files =
            files.into_iter().map(|(module, text)| (module, without_tests(&text))).collect();
        let mut modules = Modules { files, published: BTreeMap::new() };
        // An item may be published by a file which has it from another that publishes it.
        for _ in 0..3 {
            modules.published = modules.publications();
        }
        modules
    }

    fn publications(&self) -> BTreeMap<(Names, String), Names> {
        let mut found = BTreeMap::new();
        for (module, text) in &self.files {
            for (path, name) in imports(text)
                .filter(|(is_public, ..)| *is_public)
                .map(|(_, path, name)| (path, name))
            {
                let place = &path[..path.len() - 1];
                if let Some(owner) = self.owner(module, place) {
                    found.insert((module.clone(), name), owner);
                }
            }
        }
        found
    }

    /// The file that has what a path in `module` leads to.
    fn owner(&self, module: &Names, path: &[String]) -> Option<Names> {
        let mut rest = path;
        let mut at = match rest.first()?.as_str() {
            "crate" => Names::new(),
            "self" | "super" => module.clone(),
            first if self.files.contains_key(&child(module, first)) => module.clone(),
            _ => return None,
        };
        while let Some((first, others)) = rest.split_first() {
            if first == "super" {
                at.pop();
            } else if first != "crate" && first != "self" {
                let inner = child(&at, first);
                at = match self.published.get(&(at.clone(), first.clone())) {
                    _ if self.files.contains_key(&inner) => inner,
                    Some(owner) => return Some(owner.clone()),
                    None => break,
                };
            }
            rest = others;
        }
        Some(at)
    }

    /// Each group of files that can be reached from each other, if it has at least two.
    fn circles(&self) -> Vec<Vec<String>> {
        let names: Vec<&Names> = self.files.keys().collect();
        let place: BTreeMap<&Names, usize> =
            names.iter().enumerate().map(|(at, name)| (*name, at)).collect();
        let mut reached = vec![vec![false; names.len()]; names.len()];
        for (module, text) in &self.files {
            let imported = imports(text).map(|(_, path, _)| path).chain(paths(text));
            for path in imported {
                if let Some(owner) = self.owner(module, &path).filter(|owner| owner != module)
                    && let Some(to) = place.get(&owner)
                    && !owner.is_empty()
                {
                    reached[place[module]][*to] = true;
                }
            }
        }
        for by in 0..names.len() {
            for from in 0..names.len() {
                if reached[from][by] {
                    let onward = reached[by].clone();
                    reached[from].iter_mut().zip(onward).for_each(|(known, also)| *known |= also);
                }
            }
        }
        let mutual = |one: usize| {
            (0..names.len()).filter(move |other| *other == one).collect::<BTreeSet<_>>()
        };
        let groups: BTreeSet<BTreeSet<usize>> = (0..names.len())
            .map(|one| {
                let others =
                    (0..names.len()).filter(|other| reached[one][*other] && reached[*other][one]);
                mutual(one).into_iter().chain(others).collect()
            })
            .collect();
        let named =
            |group: BTreeSet<usize>| group.into_iter().map(|at| names[at].join("/")).collect();
        groups.into_iter().filter(|group| group.len() > 1).map(named).collect()
    }
}

fn child(module: &Names, name: &str) -> Names {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

/// The text without comments, and without the tests at its end.
fn without_tests(text: &str) -> String {
    let code = text.split("\nmod tests {").next().unwrap_or(text);
    code.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

/// What `use` brings: whether it is published, its path, and the name that it gets.
fn imports(text: &str) -> impl Iterator<Item = (bool, Names, String)> {
    let declarations = text.match_indices("use ").filter_map(|(at, _)| {
        let before = text[..at].trim_end_matches(' ');
        let starts =
            before.is_empty() || before.ends_with(['\n', ')', '{', ';']) || before.ends_with("pub");
        let tree = text[at + 4..].split(';').next()?;
        let is_public = before.ends_with("pub") || before.ends_with(')');
        starts.then(|| (is_public, expanded(tree)))
    });
    declarations.flat_map(|(is_public, leaves)| {
        leaves.into_iter().map(move |(path, name)| (is_public, path, name))
    })
}

/// The paths of a tree such as `a::{b, c::{self, d as e}}`, each with the name that it gets.
fn expanded(tree: &str) -> Vec<(Names, String)> {
    let tree = tree.trim();
    let Some((head, body)) = tree.split_once('{') else {
        let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
        let mut path: Names = path.split("::").map(|part| part.trim().to_owned()).collect();
        if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
            path.pop();
        }
        let name = if alias.is_empty() {
            path.last().cloned().unwrap_or_default()
        } else {
            alias.trim().to_owned()
        };
        return vec![(path, name)];
    };
    let body = body.trim_end().strip_suffix('}').unwrap_or(body);
    let mut depth = 0;
    let branches = body.split(|mark: char| {
        depth += i32::from(mark == '{') - i32::from(mark == '}');
        mark == ',' && depth == 0
    });
    let branches = branches.filter(|branch| !branch.trim().is_empty());
    branches.flat_map(|branch| expanded(&format!("{}{}", head.trim(), branch.trim()))).collect()
}

/// The paths in code, such as `super::call` and `crate::op::Opcode`.
fn paths(text: &str) -> impl Iterator<Item = Names> {
    text.split(|mark: char| !(mark.is_alphanumeric() || mark == '_' || mark == ':'))
        .filter(|word| word.contains("::") && !word.starts_with("::") && !word.ends_with("::"))
        .map(|word| word.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect())
}
