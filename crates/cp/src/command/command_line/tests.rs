//! Tests of the command line: what GNU cp's users type, and what is refused how.

use super::*;

fn typed(words: &[&str]) -> Result<Typed, Misuse> {
    read(words.iter().map(OsString::from).collect(), Locale::from_environment())
}

fn options(words: &[&str]) -> Options {
    match typed(words) {
        Ok(Typed::Copy(options, _)) => *options,
        other => panic!("{words:?}: {other:?}"),
    }
}

fn refused(words: &[&str]) -> String {
    String::from_utf8(typed(words).unwrap_err().text).unwrap()
}

#[test]
fn flags_come_in_groups_between_operands_and_abbreviated() {
    let options = options(&["-rfv", "a", "--preserve=mode,timestamps", "--rec", "b", "--", "-c"]);
    assert!(options.recursive && options.remove_after_failure && options.verbose);
    assert!(options.preserve.mode && options.preserve.timestamps && !options.preserve.ownership);
    assert_eq!(options.sources, ["a", "b"]);
    assert!(matches!(options.target, Target::Last(name) if name == "-c"));
}

#[test]
fn an_abbreviation_of_gnu_means_what_it_does_there() {
    assert_eq!(options(&["--de", "a", "b"]).dereference, Dereference::Always);
    assert!(options(&["--pre", "a", "b"]).preserve.ownership);
    assert!(refused(&["--no", "a", "b"]).starts_with("option '--no' is ambiguous"));
    assert!(options(&["--dur", "a", "b"]).durable);
}

#[test]
fn archive_is_what_it_stands_for_and_later_flags_change_it() {
    let archive = options(&["-a", "--no-preserve=ownership", "-L", "a", "b"]);
    assert!(archive.recursive && archive.preserve.links && !archive.preserve.ownership);
    assert_eq!(archive.dereference, Dereference::Always);
    assert!(!archive.special_as_regular);
    assert_eq!(options(&["-r", "a", "b"]).dereference, Dereference::Never);
    assert_eq!(options(&["-rl", "a", "b"]).dereference, Dereference::Always);
}

#[test]
fn what_is_refused_is_named() {
    for (words, part) in [
        (&["--resumed", "a", "b"][..], "unrecognized option '--resumed'"),
        (&["--engine=fast", "a", "b"], "sync"),
        (&["--jobs=0", "a", "b"], "1 to 256"),
        (&["--depth=x", "a", "b"], "1 to 4096"),
        (&["--block=1", "a", "b"], "1k to 32m"),
        (&["--block=q", "a", "b"], "k, m, g or t"),
        (&["-ln", "-s", "a", "b"], "cannot make both"),
    ] {
        let text = refused(words);
        assert!(text.contains(part), "{words:?}: {text}");
    }
}
