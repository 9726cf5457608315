//! The two commands that are compared, and how they are run.

use std::{
    ffi::OsStr,
    fs,
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

pub const NOBODY: u32 = 65534;

/// What a run gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    pub status: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Which `cp` to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Gnu,
    Ours(&'static str),
}

pub const ENGINES: [&str; 3] = ["--engine=sync", "--engine=uring", "--engine=auto"];

/// How to run it.
#[derive(Clone, Debug)]
pub struct Setting {
    pub umask: u32,
    pub as_nobody: bool,
    pub input: String,
    pub environment: Vec<(&'static str, &'static str)>,
}

impl Default for Setting {
    fn default() -> Setting {
        Setting { umask: 0o022, as_nobody: false, input: String::new(), environment: Vec::new() }
    }
}

/// Whether there is a GNU cp whose behaviour this one follows.
pub fn has_oracle() -> bool {
    let version = Command::new("cp").arg("--version").output().map(|output| output.stdout);
    let is_gnu = version.is_ok_and(|text| text.starts_with(b"cp (GNU coreutils) 9."));
    if !is_gnu {
        skip("no GNU cp 9 to compare with");
    }
    is_gnu
}

/// Says why a test did not run. Where `CI` is set, nothing may be missing.
pub fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "skipped: {reason}");
    println!("skipped: {reason}");
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Engines that work here.
pub fn engines() -> Vec<&'static str> {
    let ring = ringwise::Local::builder().backend(ringwise::BackendChoice::Uring).build();
    if ring.is_err() {
        skip("no ring here");
    }
    ENGINES.into_iter().filter(|name| ring.is_ok() || *name != "--engine=uring").collect()
}

/// A link to the binary by the name `cp`, so that both are called alike.
pub fn ours() -> PathBuf {
    static LINK: OnceLock<PathBuf> = OnceLock::new();
    LINK.get_or_init(|| {
        let binary = Path::new(env!("CARGO_BIN_EXE_ringwise"));
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("named");
        let link = directory.join("cp");
        // One that is there may lead to what was built elsewhere.
        if fs::read_link(&link).ok().as_deref() != Some(binary) {
            fs::create_dir_all(&directory).unwrap();
            let new = directory.join(std::process::id().to_string());
            std::os::unix::fs::symlink(binary, &new).unwrap();
            fs::rename(&new, &link).unwrap();
        }
        link
    })
    .clone()
}

/// Runs it in a directory, for at most a minute.
pub fn run<S: AsRef<OsStr>>(which: Which, words: &[S], at: &Path, setting: &Setting) -> Ran {
    let mut command = Command::new("timeout");
    command.args(["60", "sh", "-c", "umask \"$1\"; shift; exec \"$@\"", "sh"]);
    command.arg(format!("{:o}", setting.umask));
    match which {
        Which::Gnu => command.arg("cp"),
        Which::Ours(engine) => command.arg(ours()).arg(engine),
    };
    for name in ["POSIXLY_CORRECT", "VERSION_CONTROL", "SIMPLE_BACKUP_SUFFIX"] {
        command.env_remove(name);
    }
    command.args(words).current_dir(at).env("LC_ALL", "C.UTF-8");
    command.envs(setting.environment.iter().copied());
    if setting.as_nobody {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It may end without having asked anything.
    let _ = child.stdin.take().unwrap().write_all(setting.input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Ran {
        status: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
