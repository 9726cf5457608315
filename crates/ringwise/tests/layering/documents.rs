//! The documents as one book: every page is in the table of contents, and every link leads somewhere.
//!
//! `mdbook build` makes the site from the same files; it does not check links. Links to other sites are
//! not followed here.

use std::{collections::BTreeSet, fs, path::Path};

use super::{Source, all_sources, none, read, root_directory, texts};

/// More than this is a document, and belongs in docs/.
const FIRST_PAGE_LINES_MAX: usize = 150;

#[test]
fn every_page_is_in_the_table_of_contents() {
    let root = root_directory();
    let summary = read(root.join("docs/SUMMARY.md"));
    let listed: BTreeSet<String> =
        links(&summary.text).map(|link| format!("docs/{link}")).collect();
    let pages = documents().into_iter().map(|page| page.path.display().to_string());
    let pages = pages.filter(|path| path.starts_with("docs/") && !path.ends_with("/SUMMARY.md"));
    let pages: BTreeSet<String> = pages.collect();
    let missing = pages.difference(&listed).map(|page| format!("{page} is not in SUMMARY.md"));
    none(missing.chain(listed.difference(&pages).map(|page| format!("{page} is no page"))));
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut wrong = Vec::new();
    let mut followed = 0;
    for document in documents() {
        let places = links(&document.text).filter(|link| !link.starts_with("http"));
        for link in places {
            followed += 1;
            if let Some(reason) = broken(&document, link) {
                wrong.push(format!("{document}: {link}: {reason}"));
            }
        }
    }
    none(wrong);
    assert!(followed > 50, "only {followed} links found: does the search still work?");
}

#[test]
fn the_tests_that_a_document_names_exist() {
    let page = read(root_directory().join("docs/explanation/measurement.md"));
    let sources: Vec<Source> = all_sources();
    let is_there = |name: &str| {
        let definition = format!("fn {name}(");
        sources.iter().any(|file| file.text.contains(&definition))
    };
    let quoted = page.text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let names: Vec<&str> = quoted.filter(|word| word.matches('_').count() > 2).collect();
    assert!(names.len() > 20, "only {} tests found: does the search still work?", names.len());
    none(names.into_iter().filter(|name| !is_there(name)).map(|name| format!("no test {name}")));
}

#[test]
fn the_pages_that_people_read_first_are_short() {
    for page in ["README.md", "ARCHITECTURE.md"] {
        let lines = read(root_directory().join(page)).text.lines().count();
        assert!(
            lines <= FIRST_PAGE_LINES_MAX,
            "{page} has {lines} lines, {FIRST_PAGE_LINES_MAX} at most"
        );
    }
}

#[test]
fn the_search_for_links_sees_links_and_not_code() {
    let text = "[a](b.md) `[c](d.md)` [`e`](f.md#g)\n```text\n[h](i.md)\n```\n![j](k.svg)";
    assert_eq!(links(text).collect::<Vec<_>>(), ["b.md", "f.md#g", "k.svg"]);
    assert_eq!(anchor("## What `Ring` costs, and why: 2 ways"), "what-ring-costs-and-why-2-ways");
    let document = read(root_directory().join("docs/SUMMARY.md"));
    assert_eq!(broken(&document, "explanation/ownership.md#terms"), None);
    assert!(broken(&document, "explanation/ownership.md#no-such-heading").is_some());
    assert!(broken(&document, "no-such-page.md").is_some());
    assert!(broken(&document, "../README.md").is_some(), "the book has no such page");
}

fn documents() -> Vec<Source> {
    let is_page = |file: &Source| file.path.extension().is_some_and(|own| own == "md");
    let mut found = texts();
    found.push(read(root_directory().join("peers/README.md")));
    found.retain(is_page);
    found
}

/// Returns the lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Returns the targets of links and pictures.
fn links(text: &str) -> impl Iterator<Item = &str> {
    prose(text).flat_map(|line| {
        let ends = line.match_indices("](").filter(|(at, _)| {
            // Within a pair of backticks it is code, unless the link's own text has them.
            line[..*at].matches('`').count() % 2 == 0
        });
        ends.filter_map(|(at, _)| line[at + 2..].split(')').next())
    })
}

/// Returns what a site's generator makes of a heading.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns why a link leads nowhere, if it does.
fn broken(document: &Source, link: &str) -> Option<String> {
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let root = root_directory();
    let from = root.join(&document.path);
    let target = if path.is_empty() { from } else { from.parent()?.join(path) };
    let Ok(target) = target.canonicalize() else { return Some("no such file".to_owned()) };
    if document.path.starts_with("docs") && !target.starts_with(root.join("docs")) {
        return Some("it is outside of the book: name the file instead".to_owned());
    }
    let is_there = heading.is_empty() || has_heading(&target, heading);
    (!is_there).then(|| format!("no heading #{heading}"))
}

fn has_heading(page: &Path, wanted: &str) -> bool {
    let text = fs::read_to_string(page).unwrap_or_default();
    prose(&text).any(|line| line.starts_with('#') && anchor(line) == wanted)
}
