//! Builds what a release ships: the static binary with its debug file, the archive and the Debian package.
//!
//! Cargo calls it: `cargo static`, `cargo release-archive`, `cargo debian-package`. It exists since an alias of
//! cargo runs one command, and these need several. It has no dependencies, so that it builds in a second.
//! It uploads nothing and tags nothing; .github/workflows/release.yml does.

#![forbid(unsafe_code)]

use std::{
    env, fmt, fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

const USAGE: &str = "\
Usage: cargo static [--target TRIPLE]            target/static/ringwise and ringwise.debug
       cargo release-archive [--target TRIPLE]   target/static/ringwise-VERSION-TRIPLE.tar.gz
       cargo debian-package                      target/debian/*.deb, by cargo-deb";

/// What released binaries have and everyday builds leave out, because it takes long to compile: the stores of clouds, and
/// Parquet files.
const RELEASED: &str = "cloud,parquet";

/// What the release ships beside the binary, with paths from the workspace's root.
const SHIPPED: [&str; 5] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE", "dist"];

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["static"] => build(None).map(|_| ()),
        ["static", "--target", target] => build(Some(target)).map(|_| ()),
        ["release-archive"] => archive(None),
        ["release-archive", "--target", target] => archive(Some(target)),
        ["debian-package"] => debian_package(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the static binary and moves its line tables into a file beside it, where debuggers and `perf` look
/// for them. Returns the binary's path.
fn build(target: Option<&str>) -> Result<PathBuf, Failure> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["rustc", "--release", "--package", "ringwise-cli", "--bin", "ringwise"]);
    cargo.args(["--features", RELEASED]);
    let mut built = target_directory();
    if let Some(target) = target {
        cargo.args(["--target", target]);
        built.push(target);
    }
    built.push("release/ringwise");
    run(cargo.args(["--", "-C", "target-feature=+crt-static"]))?;

    let directory = static_directory(target);
    fs::create_dir_all(&directory).map_err(|error| Failure::file(&directory, error))?;
    let (binary, debug) = (directory.join("ringwise"), directory.join("ringwise.debug"));
    let objcopy = env::var_os("OBJCOPY").unwrap_or_else(|| "objcopy".into());
    run(Command::new(&objcopy).arg("--only-keep-debug").arg(&built).arg(&debug))?;
    let link = format!("--add-gnu-debuglink={}", debug.display());
    run(Command::new(&objcopy).args(["--strip-all", &link]).arg(&built).arg(&binary))?;
    for path in [&binary, &debug] {
        let size = fs::metadata(path).map_err(|error| Failure::file(path, error))?.len();
        println!("{}: {:.1} MB", path.display(), size as f64 / 1e6);
    }
    Ok(binary)
}

/// Packs the binary, its debug file, man pages, completions and texts into one compressed archive.
fn archive(target: Option<&str>) -> Result<(), Failure> {
    let binary = build(target)?;
    let triple = target.map_or_else(host, |target| Ok(target.to_owned()))?;
    let name = format!("ringwise-{}-{triple}", env!("CARGO_PKG_VERSION"));
    let directory = static_directory(target);
    let staging = directory.join(&name);
    if staging.exists() {
        fs::remove_dir_all(&staging).map_err(|error| Failure::file(&staging, error))?;
    }
    fs::create_dir_all(&staging).map_err(|error| Failure::file(&staging, error))?;
    let debug = binary.with_extension("debug");
    run(Command::new("cp").arg("-r").args([&binary, &debug]).args(shipped()).arg(&staging))?;
    documents(&binary, &staging)?;
    let file = directory.join(format!("{name}.tar.gz"));
    run(Command::new("tar").arg("-C").arg(&directory).arg("-czf").arg(&file).arg(&name))?;
    println!("{}", file.display());
    Ok(())
}

/// Builds the Debian package from the same files as the archive. crates/cli/Cargo.toml says where each goes.
fn debian_package() -> Result<(), Failure> {
    let binary = build(None)?;
    documents(&binary, &static_directory(None))?;
    run(Command::new(env!("CARGO"))
        .args(["deb", "--no-build", "--no-strip", "--package", "ringwise-cli"])
        .current_dir(root()))
}

/// Lets the binary write its man pages and completions, laid out as below `/usr/share`.
fn documents(binary: &Path, directory: &Path) -> Result<(), Failure> {
    run(Command::new(binary).arg("generate").arg(directory.join("share")))
}

fn shipped() -> impl Iterator<Item = PathBuf> {
    SHIPPED.iter().map(|path| root().join(path))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_path_buf)
}

fn target_directory() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Where the static binary is: one directory for each target that was named.
fn static_directory(target: Option<&str>) -> PathBuf {
    let directory = target_directory().join("static");
    target.map_or(directory.clone(), |target| directory.join(target))
}

/// The triple of this machine, as the compiler names it.
fn host() -> Result<String, Failure> {
    let mut rustc = Command::new("rustc");
    rustc.arg("-vV");
    let output = rustc.output().map_err(|error| Failure::start(&rustc, error))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let triple = text.lines().find_map(|line| line.strip_prefix("host: "));
    triple.map(str::to_owned).ok_or_else(|| Failure(format!("rustc -vV names no host: {text}")))
}

fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command.status().map_err(|error| Failure::start(command, error))?;
    if status.success() { Ok(()) } else { Err(Failure(format!("{command:?}: {status}"))) }
}

/// What failed, on what, and why.
struct Failure(String);

impl Failure {
    fn file(path: &Path, error: io::Error) -> Self {
        Self(format!("{}: {error}", path.display()))
    }

    fn start(command: &Command, error: io::Error) -> Self {
        let program = command.get_program().to_string_lossy().into_owned();
        Self(format!("{program} does not start: {error}; install it"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
