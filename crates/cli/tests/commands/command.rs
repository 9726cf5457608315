//! The command itself: its help, what it says of mistakes, and the files that it generates.
//!
//! What the tools do is tested in the other files of this directory.

use std::process::{Command, Output};

/// Tools with clap's options. `cp` has GNU cp's.
const TOOLS: [&[&str]; 16] = [
    &[],
    &["doctor"],
    &["lab"],
    &["lab", "report"],
    &["lab", "compare"],
    &["logd"],
    &["logd", "cat"],
    &["logd", "tail"],
    &["logd", "query"],
    &["logd", "verify"],
    &["echo"],
    &["load", "echo"],
    &["load", "log"],
    &["lab", "record"],
    &["lab", "explain"],
    &["lab", "replay"],
];

fn ringwise(words: &[&str]) -> Output {
    // A wide terminal must not widen the help.
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
    command.args(words).env("COLUMNS", "200").output().unwrap()
}

fn help(tool: &[&str]) -> String {
    let output = ringwise(&[tool, &["--help"]].concat());
    assert_eq!(output.status.code(), Some(0), "{tool:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn help_fits_80_columns() {
    for tool in TOOLS {
        for line in help(tool).lines() {
            assert!(line.chars().count() <= 80, "{tool:?}: {line}");
        }
    }
}

#[test]
fn help_begins_with_what_people_do() {
    for tool in [
        "",
        "doctor",
        "lab",
        "lab record",
        "logd",
        "logd query",
        "echo",
        "load",
        "load echo",
        "load log",
    ] {
        let words: Vec<&str> = tool.split_whitespace().collect();
        let text = help(&words);
        let examples: Vec<&str> = text.split("\n\n").nth(1).unwrap().lines().collect();
        assert_eq!(examples.len(), 3, "{text}");
        assert!(examples.iter().all(|line| line.starts_with("  ringwise ")), "{text}");
    }
}

#[test]
fn the_command_alone_prints_its_tools() {
    let output = ringwise(&[]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    for tool in ["doctor", "lab", "cp", "logd", "echo", "load", "generate"] {
        assert!(text.contains(&format!("\n  {tool} ")), "{tool}: {text}");
    }
}

#[test]
fn a_mistake_is_one_line_and_status_2() {
    let output = ringwise(&["doctor", "--jsno"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text, "ringwise: doctor: unknown option '--jsno': did you mean '--json'?\n");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_word_that_is_no_text_is_a_mistake_like_others() {
    use std::os::unix::ffi::OsStrExt as _;
    let word = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    for tool in [&[][..], &["doctor", "--jsn"], &["lab"], &["logd"], &["load"], &["echo"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
        let output = command.args(tool).arg(word).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{tool:?}: {text}");
        assert!(text.starts_with("ringwise: ") && text.lines().count() == 1, "{tool:?}: {text}");
    }
}

#[test]
fn a_help_that_cannot_be_written_is_a_failure() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
    let output = command.args(["logd", "--help"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text, "ringwise: standard output: No space left on device\n");
}

#[test]
fn the_help_of_cp_is_its_own() {
    let [helped, own] = [&["help", "cp"], &["cp", "--help"]].map(|words| ringwise(words));
    assert!(own.status.success() && own.stdout.starts_with(b"Usage: "), "{own:?}");
    assert_eq!(helped, own);
}

#[test]
fn cp_tells_where_its_own_help_is() {
    let output = ringwise(&["cp", "--nope", "a", "b"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        text,
        "cp: unrecognized option '--nope'\nTry 'ringwise cp --help' for more information.\n"
    );
}

#[test]
fn man_pages_and_completions_are_laid_out_as_below_usr_share() {
    let directory = tempfile::tempdir().unwrap();
    let output = ringwise(&["generate", directory.path().to_str().unwrap()]);
    assert!(
        output.status.success() && output.stderr.is_empty() && output.stdout.is_empty(),
        "{output:?}"
    );
    for file in [
        "man/man1/ringwise.1",
        "man/man1/ringwise-load-log.1",
        "bash-completion/completions/ringwise",
        "zsh/site-functions/_ringwise",
        "fish/vendor_completions.d/ringwise.fish",
    ] {
        assert!(directory.path().join(file).metadata().unwrap().len() > 0, "{file}");
    }
}
