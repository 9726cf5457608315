//! Text in lines of a terminal's width, measured in characters.

/// How wide a terminal is at least.
pub const WIDTH: usize = 80;

/// What stands for words that have no room.
const CUT: char = '…';

fn width(text: &str) -> usize {
    text.chars().count()
}

/// The first characters of a text, with a mark if it has more than fit.
pub fn cut(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    kept.trim_end().to_owned() + &CUT.to_string()
}

/// A text in lines of at most [`WIDTH`] characters. Spaces that it begins with stay; lines after the
/// first begin with `indent`. A word that is longer than a line is broken.
pub fn wrapped(text: &str, indent: &str) -> Vec<String> {
    let spaces = text.chars().take_while(|&letter| letter == ' ').count();
    let mut lines = vec![" ".repeat(spaces)];
    let mut is_empty = true;
    for word in text.split_whitespace() {
        let mut rest = word;
        loop {
            let line = lines.last_mut().expect("one at least");
            let space = usize::from(!is_empty);
            if width(line) + space + width(rest) <= WIDTH {
                line.push_str(if is_empty { "" } else { " " });
                line.push_str(rest);
                is_empty = false;
                break;
            }
            if is_empty {
                // Not even a line of its own has room for it.
                let room = WIDTH - width(line);
                let at = rest.char_indices().nth(room).map_or(rest.len(), |(at, _)| at);
                line.push_str(&rest[..at]);
                rest = &rest[at..];
            }
            lines.push(indent.to_owned());
            is_empty = true;
        }
    }
    lines
}

/// The same in at most `most` lines, with a mark if it has more.
pub fn wrapped_within(text: &str, indent: &str, most: usize) -> Vec<String> {
    let mut lines = wrapped(text, indent);
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            *last = cut(last, WIDTH - 1);
            if !last.ends_with(CUT) {
                last.push(CUT);
            }
        }
    }
    lines
}

/// A text in at most `most` lines whose end stays: words before it are left out, with a mark.
pub fn cut_before(text: &str, end: &str, (indent, most): (&str, usize)) -> Vec<String> {
    let before = text.strip_suffix(end).filter(|_| !end.is_empty()).unwrap_or_default();
    let mut words: Vec<&str> = before.split_whitespace().collect();
    while words.pop().is_some() {
        let lines = wrapped(&format!("{}{CUT} {end}", words.join(" ")), indent);
        if lines.len() <= most {
            return lines;
        }
    }
    wrapped_within(text, indent, most)
}

/// Several lines, each wrapped by itself.
pub fn all_wrapped(text: &str, indent: &str) -> String {
    let lines = text.lines().flat_map(|line| match line.is_empty() {
        true => vec![String::new()],
        false => wrapped(line, indent),
    });
    lines.map(|line| line + "\n").collect()
}

/// `before` and a path and `after` in a line: of a path that is too long its end, which tells it
/// from others.
pub fn with_path(before: &str, path: &str, after: &str) -> String {
    let room = WIDTH.saturating_sub(width(before) + width(after));
    let path = match width(path).checked_sub(room) {
        None | Some(0) => path.to_owned(),
        Some(over) => {
            let end: String = path.chars().skip(over + 1).collect();
            format!("{CUT}{end}")
        }
    };
    format!("{before}{path}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_whole_and_lines_are_short() {
        let text = "one two three ".repeat(20);
        let lines = wrapped(&text, "  ");
        assert!(lines.len() > 3 && lines.iter().all(|line| width(line) <= WIDTH), "{lines:?}");
        assert!(lines[1..].iter().all(|line| line.starts_with("  ")), "{lines:?}");
        let again: Vec<&str> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
        assert_eq!(again.join(" "), text.trim_end());
    }

    #[test]
    fn a_word_without_end_is_broken_by_characters() {
        let lines = wrapped(&format!("a {}", "ä".repeat(200)), "  ");
        assert_eq!(lines.iter().map(|line| width(line)).collect::<Vec<_>>(), [1, 80, 80, 46]);
        assert_eq!(wrapped("", "  "), [""]);
    }

    #[test]
    fn the_end_of_a_text_stays() {
        let text = format!("{}Use this.", "word ".repeat(100));
        let lines = cut_before(&text, "Use this.", ("  ", 2));
        assert_eq!(lines.len(), 2);
        assert!(lines[1].ends_with("word… Use this.") && width(&lines[1]) <= WIDTH, "{lines:?}");
        for (text, end) in [(&text[..], ""), (&text, &text)] {
            assert_eq!(cut_before(text, end, ("", 1)), wrapped_within(text, "", 1));
        }
    }

    #[test]
    fn what_has_no_room_is_marked() {
        let text = "word ".repeat(100);
        let lines = wrapped_within(&text, "  ", 2);
        assert_eq!(lines.len(), 2);
        assert!(lines[1].ends_with("word…") && width(&lines[1]) <= WIDTH, "{lines:?}");
        assert_eq!(wrapped_within("short", "", 2), ["short"]);
        assert_eq!((cut("abcdef", 4), cut("abcd", 4)), ("abc…".to_owned(), "abcd".to_owned()));
    }

    #[test]
    fn of_a_long_path_the_end_is_kept() {
        let path = format!("/{}/results.json", "d".repeat(100));
        let line = with_path("results: ", &path, " (partial)");
        assert_eq!(width(&line), WIDTH);
        assert!(
            line.starts_with("results: …dd") && line.ends_with("/results.json (partial)"),
            "{line}"
        );
        assert_eq!(with_path("results: ", "r.json", ""), "results: r.json");
    }
}
