//! What clap finds wrong with options, in one line, for places that have no room for its paragraphs.

/// Says what is wrong and what to do.
pub(crate) fn in_a_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let wrong = text.lines().next().unwrap_or_default();
    let wrong = wrong.strip_prefix("error: ").unwrap_or(wrong);
    let tip = text.lines().find_map(|line| line.trim_start().strip_prefix("tip: "));
    match (tip, error.kind()) {
        (Some(tip), _) => format!("{wrong}: {tip}"),
        (None, clap::error::ErrorKind::UnknownArgument) => {
            format!("{wrong}: `ringwise logd --help` has those that there are")
        }
        (None, _) => wrong.to_owned(),
    }
}
