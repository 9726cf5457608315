//! `ringwise generate DIR`: man pages and shell completions, from the same definitions as `--help`.
//!
//! DIR gets the layout of `/usr/share`, so that a package can ship it as it is. This file decides where
//! each file goes; clap_mangen and clap_complete write them. `cp` has GNU cp's command line instead of
//! clap's: `generate/cp.rs` describes that to clap.

mod cp;

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use clap::CommandFactory;
use clap_complete::{Generator, Shell};
use ringwise_measure::plain;

use crate::Command;

/// Each shell, with its directory below `/usr/share`.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/site-functions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];

/// Writes all files below `directory`, and makes the directories that are missing.
pub(crate) fn write(directory: &Path) -> Result<(), Failure> {
    let mut command = Command::command().mut_subcommand("cp", |_| cp::definition());
    command.build();
    let pages = make(directory, "man/man1")?;
    clap_mangen::generate_to(command.clone(), &pages)
        .map_err(|error| Failure::new(&pages, error))?;
    for (shell, place) in SHELLS {
        let file = make(directory, place)?.join(file_name(shell));
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command, "ringwise", &mut text);
        fs::write(&file, text).map_err(|error| Failure::new(&file, error))?;
    }
    Ok(())
}

/// bash-completion loads a file that is named as the command.
fn file_name(shell: Shell) -> String {
    match shell {
        Shell::Bash => "ringwise".to_owned(),
        _ => shell.file_name("ringwise"),
    }
}

fn make(directory: &Path, place: &str) -> Result<PathBuf, Failure> {
    if directory.exists() && !directory.is_dir() {
        fs::read_dir(directory).map_err(|error| Failure::new(directory, error))?;
    }
    let path = directory.join(place);
    fs::create_dir_all(&path).map_err(|error| Failure::new(&path, error))?;
    Ok(path)
}

/// A file or directory that could not be written.
#[derive(Debug)]
pub(crate) struct Failure {
    path: PathBuf,
    error: io::Error,
}

impl Failure {
    fn new(path: &Path, error: io::Error) -> Failure {
        Failure { path: path.to_path_buf(), error }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = match self.error.kind() {
            io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => "name a directory",
            io::ErrorKind::StorageFull => "free some space, or name another directory",
            _ => "name a directory that you may write to",
        };
        write!(formatter, "{}: {}; {advice}", self.path.display(), plain(&self.error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_has_a_page_and_each_shell_its_completions() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path()).unwrap();
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).expect(name);
        for tool in ["doctor", "lab", "cp", "logd", "echo", "load"] {
            let page = read(&format!("man/man1/ringwise-{tool}.1"));
            assert!(page.contains(".SH NAME") && page.contains(tool), "{tool}: {page}");
        }
        assert!(read("man/man1/ringwise-cp.1").contains("no\\-clobber"));
        for file in ["bash-completion/completions/ringwise", "zsh/site-functions/_ringwise"] {
            let text = read(file);
            assert!(text.contains("--no-clobber") && text.contains("--min-free"), "{file}");
        }
        assert!(read("fish/vendor_completions.d/ringwise.fish").contains("-l no-clobber"));
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let failure = write(&file).unwrap_err().to_string();
        assert_eq!(failure, format!("{}: Not a directory; name a directory", file.display()));
    }
}
