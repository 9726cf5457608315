//! What every text with tags in it needs: escaped words and short numbers.

/// Words that stand for themselves between tags and in attributes.
pub fn escaped(words: &str) -> String {
    let mut text = String::with_capacity(words.len());
    for character in words.chars() {
        match character {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&quot;"),
            '\'' => text.push_str("&#39;"),
            // XML has no way to write them.
            control if control.is_control() && !matches!(control, '\n' | '\t') => text.push(' '),
            other => text.push(other),
        }
    }
    text
}

/// At most two places after the point, and no more than are needed.
pub fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [(0.0, "0"), (62.0, "62"), (1.5, "1.5"), (4.285_714, "4.29")] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn words_cannot_become_tags() {
        let text = escaped("<a href=\"x\" b='y'>&\u{1}");
        assert_eq!(text, "&lt;a href=&quot;x&quot; b=&#39;y&#39;&gt;&amp; ");
    }
}
