//! Finds lines by their content.
//!
//! It searches whole batches for bytes that a wanted line has to have, and looks only at the lines with a hit. A line
//! without such bytes is never looked at, so these have to be necessary:
//!
//! - A text of `--match` is in the line as it is.
//! - A field of `--where` is in the line as its name in quotes, a colon and the value, or the name is written with an
//!   escape. JSON has one escape for any character (`\u`), one more for a slash (`\/`), and a name with other
//!   characters that need one (quotes, backslashes, control characters) is not searched for.

use std::ops::Range;

use memchr::memmem::Finder;

use super::condition::Condition;

/// Conditions on the content of lines.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Sought {
    /// Print only lines that contain this text, byte for byte; if given several times, lines with all of
    /// the texts
    #[arg(long = "match", value_name = "TEXT", value_parser = text, allow_hyphen_values = true)]
    texts: Vec<String>,
    /// Print only lines with this field, such as level=error or http.status=500; if given several times, lines
    /// with all of the fields
    #[arg(long = "where", value_name = "NAME=VALUE", allow_hyphen_values = true)]
    conditions: Vec<Condition>,
}

fn text(text: &str) -> Result<String, &'static str> {
    match text.contains('\n') {
        true => Err("expected a text without a line end, because no line contains one"),
        false => Ok(text.to_owned()),
    }
}

/// Conditions, ready to search.
#[derive(Default)]
pub(super) struct Filter {
    texts: Vec<Finder<'static>>,
    conditions: Vec<Condition>,
    /// Finds the name of the first condition, if a text has not to be searched for and the name can be.
    name: Option<NameFinder>,
}

impl Filter {
    pub(super) fn new(sought: &Sought) -> Filter {
        let mut texts: Vec<&String> = sought.texts.iter().collect();
        // The longest is the rarest, as a rule. It is searched for in whole batches.
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        texts.retain(|text| !text.is_empty());
        let mut conditions = sought.conditions.clone();
        conditions.sort_by_key(|condition| !can_be_searched(condition.name()));
        let name = conditions.first().filter(|first| can_be_searched(first.name()));
        let name = name.filter(|_| texts.is_empty()).map(|first| NameFinder::new(first.name()));
        let texts = texts.iter().map(|text| Finder::new(text.as_bytes()).into_owned()).collect();
        Filter { texts, conditions, name }
    }

    /// Whether every line is wanted.
    pub(super) fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.conditions.is_empty()
    }

    /// Calls `found` with the place of each line that fulfils all conditions, with its line end. Returns how many lines it
    /// looked at.
    pub(super) fn find(&self, lines: &[u8], mut found: impl FnMut(Range<usize>)) -> u64 {
        let mut places = Places::default();
        let (mut at, mut looked_at) = (0, 0);
        while let Some(hit) = self.next_hit(lines, at, &mut places) {
            let start = memchr::memrchr(b'\n', &lines[at..hit]).map_or(at, |end| at + end + 1);
            let end = memchr::memchr(b'\n', &lines[hit..]).map_or(lines.len(), |end| hit + end + 1);
            looked_at += 1;
            let line = &lines[start..end];
            if self.holds(line.strip_suffix(b"\n").unwrap_or(line)) {
                found(start..end);
            }
            at = end;
        }
        looked_at
    }

    fn holds(&self, line: &[u8]) -> bool {
        // The first text was found by the search.
        self.texts.iter().skip(1).all(|text| text.find(line).is_some())
            && self.conditions.iter().all(|condition| condition.holds(line))
    }

    /// Finds a byte of the next line that may be wanted, from the line at `at` on.
    fn next_hit(&self, lines: &[u8], at: usize, places: &mut Places) -> Option<usize> {
        if at == lines.len() {
            return None;
        }
        match (self.texts.first(), &self.name, self.conditions.first()) {
            (Some(text), ..) => text.find(&lines[at..]).map(|hit| at + hit),
            (None, Some(name), Some(condition)) => name.next(condition, lines, at, places),
            _ => Some(at),
        }
    }
}

/// Whether a name is in a line as it is, unless one of the escapes that are searched for is.
fn can_be_searched(name: &str) -> bool {
    !name.contains(|letter: char| letter < ' ' || letter == '"' || letter == '\\')
}

/// Finds lines that may have a field.
struct NameFinder {
    /// The name in quotes.
    quoted: Finder<'static>,
    /// What a line has if it may write the name in another way.
    escapes: Vec<Finder<'static>>,
}

/// What was found last. Places before the next line are of no use.
#[derive(Default)]
struct Places {
    name: Place,
    escapes: [Place; 2],
}

#[derive(Clone, Copy, Default)]
enum Place {
    #[default]
    Unknown,
    At(usize),
    Nowhere,
}

impl Place {
    /// Returns the place, or searches for the next one.
    fn from(&mut self, at: usize, search: impl FnOnce() -> Option<usize>) -> Option<usize> {
        if !matches!(self, Place::Nowhere) && !matches!(self, Place::At(known) if *known >= at) {
            *self = search().map_or(Place::Nowhere, Place::At);
        }
        match *self {
            Place::At(place) => Some(place),
            _ => None,
        }
    }
}

impl NameFinder {
    fn new(name: &str) -> NameFinder {
        let escapes: &[&str] = if name.contains('/') { &["\\u", "\\/"] } else { &["\\u"] };
        let finder = |text: &str| Finder::new(text.as_bytes()).into_owned();
        NameFinder {
            quoted: finder(&format!("\"{name}\"")),
            escapes: escapes.iter().map(|escape| finder(escape)).collect(),
        }
    }

    fn next(
        &self,
        condition: &Condition,
        lines: &[u8],
        at: usize,
        places: &mut Places,
    ) -> Option<usize> {
        let find =
            |finder: &Finder<'_>, from: usize| finder.find(&lines[from..]).map(|hit| from + hit);
        let name = places.name.from(at, || {
            let mut from = at;
            loop {
                let hit = find(&self.quoted, from)?;
                if condition.may_follow(&lines[hit + self.quoted.needle().len()..]) {
                    return Some(hit);
                }
                // The quote at its end may begin the name.
                from = hit + 1;
            }
        });
        let escapes = self.escapes.iter().zip(&mut places.escapes);
        let escapes = escapes.filter_map(|(escape, place)| place.from(at, || find(escape, at)));
        escapes.chain(name).min()
    }
}

#[cfg(test)]
mod tests;
