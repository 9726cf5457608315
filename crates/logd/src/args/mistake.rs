//! What clap finds wrong with options, in one line, for places that have no room for its paragraphs.

/// Says what is wrong and what to do.
pub(crate) fn in_a_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    // What follows is the usage and where the help is.
    let ends = ["\n\nUsage:", "\n\nFor more information"];
    let text = ends.iter().fold(text, |text, end| text.split(end).next().unwrap_or(text));
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let (tips, wrong): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with("tip: "));
    let wrong = wrong.join("; ");
    match (tips.first().and_then(|tip| tip.strip_prefix("tip: ")), error.kind()) {
        (Some(tip), _) => format!("{wrong}: {tip}"),
        (None, clap::error::ErrorKind::UnknownArgument) => {
            format!("{wrong}: `ringwise logd --help` has those that there are")
        }
        (None, _) => wrong,
    }
}
