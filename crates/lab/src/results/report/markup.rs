//! What every text with tags in it needs: escaped words, short numbers, and the shapes of SVG.
//!
//! Whose style a shape has, a class of the page's or colours of its own, is said by whoever draws.

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

/// A line of SVG. `style` is further attributes.
pub fn line(from: (f64, f64), to: (f64, f64), style: &str) -> String {
    let (x1, y1, x2, y2) = (number(from.0), number(from.1), number(to.0), number(to.1));
    format!("<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" {style}/>\n")
}

/// Words in SVG, at a place that is their start, middle or end. `style` as above.
pub fn text(x: f64, y: f64, anchor: &str, style: &str, words: &str) -> String {
    let (x, y, words) = (number(x), number(y), escaped(words));
    format!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" {style}>{words}</text>\n")
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
