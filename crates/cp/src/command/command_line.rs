//! The command line as GNU cp reads it: which flags there are, and what they come to.
//!
//! `command_line/scan.rs` takes words apart as getopt_long does; this file knows what each flag
//! means and which go together. Errors are worded as GNU's, and end with status 1 as GNU's do.
//! What is GNU's may be abbreviated before what is ours, so that no script changes its meaning.

mod choice;
mod scan;

use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use crate::{
    command::options::{
        Backup, Dereference, EngineChoice, Existing, Making, Options, Preserve, Reflink, Sparse,
        Target, Update,
    },
    messages::{progress::When, quoting::Locale},
};
use choice::Choice;
use scan::{Flag, Scanner, Takes};

/// What was typed.
#[derive(Debug)]
pub(crate) enum Typed {
    /// Something to copy, with what is to be warned of first.
    Copy(Box<Options>, Vec<&'static str>),
    Help,
    Version,
}

/// Why it cannot be run, without `cp: `.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Misuse {
    pub(crate) text: Vec<u8>,
    /// Whether to point to the help.
    pub(crate) hint: bool,
}

impl Misuse {
    fn usage(text: impl Into<Vec<u8>>) -> Misuse {
        Misuse { text: text.into(), hint: true }
    }

    fn plain(text: impl Into<Vec<u8>>) -> Misuse {
        Misuse { text: text.into(), hint: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Id {
    Archive,
    Atomic,
    AttributesOnly,
    Backup,
    BackupShort,
    Block,
    Context,
    CopyContents,
    Debug,
    Depth,
    Dereference,
    DereferenceCommandLine,
    Durable,
    Engine,
    Force,
    Help,
    Interactive,
    Jobs,
    Json,
    Link,
    NoClobber,
    NoDereference,
    NoDereferenceLinks,
    NoPreserve,
    NoTargetDirectory,
    OneFileSystem,
    Parents,
    Preserve,
    PreserveShort,
    Progress,
    Recursive,
    Reflink,
    RemoveDestination,
    Resume,
    SecurityContext,
    Sparse,
    StripTrailingSlashes,
    Suffix,
    SymbolicLink,
    TargetDirectory,
    Update,
    UpdateShort,
    Verbose,
    Verify,
    Version,
}

/// In GNU's order, in which an ambiguous abbreviation lists them; ours last.
pub(crate) const FLAGS: [Flag<Id>; 48] = [
    Flag::gnu("archive", Some('a'), Takes::Nothing, Id::Archive),
    Flag::gnu("attributes-only", None, Takes::Nothing, Id::AttributesOnly),
    Flag::gnu("backup", None, Takes::Maybe, Id::Backup),
    Flag::gnu("copy-contents", None, Takes::Nothing, Id::CopyContents),
    Flag::own("debug", Takes::Nothing, Id::Debug),
    Flag::gnu("dereference", Some('L'), Takes::Nothing, Id::Dereference),
    Flag::gnu("force", Some('f'), Takes::Nothing, Id::Force),
    Flag::gnu("interactive", Some('i'), Takes::Nothing, Id::Interactive),
    Flag::gnu("link", Some('l'), Takes::Nothing, Id::Link),
    Flag::gnu("no-clobber", Some('n'), Takes::Nothing, Id::NoClobber),
    Flag::gnu("no-dereference", Some('P'), Takes::Nothing, Id::NoDereference),
    Flag::gnu("no-preserve", None, Takes::Value, Id::NoPreserve),
    Flag::gnu("no-target-directory", Some('T'), Takes::Nothing, Id::NoTargetDirectory),
    Flag::gnu("one-file-system", Some('x'), Takes::Nothing, Id::OneFileSystem),
    Flag::gnu("parents", None, Takes::Nothing, Id::Parents),
    // GNU's own old name for it.
    Flag::gnu("path", None, Takes::Nothing, Id::Parents),
    Flag::gnu("preserve", None, Takes::Maybe, Id::Preserve),
    Flag::gnu("recursive", Some('R'), Takes::Nothing, Id::Recursive),
    Flag::gnu("remove-destination", None, Takes::Nothing, Id::RemoveDestination),
    Flag::gnu("sparse", None, Takes::Value, Id::Sparse),
    Flag::gnu("reflink", None, Takes::Maybe, Id::Reflink),
    Flag::gnu("strip-trailing-slashes", None, Takes::Nothing, Id::StripTrailingSlashes),
    Flag::gnu("suffix", Some('S'), Takes::Value, Id::Suffix),
    Flag::gnu("symbolic-link", Some('s'), Takes::Nothing, Id::SymbolicLink),
    Flag::gnu("target-directory", Some('t'), Takes::Value, Id::TargetDirectory),
    Flag::gnu("update", None, Takes::Maybe, Id::Update),
    Flag::gnu("verbose", Some('v'), Takes::Nothing, Id::Verbose),
    Flag::gnu("context", None, Takes::Maybe, Id::Context),
    Flag::gnu("help", None, Takes::Nothing, Id::Help),
    Flag::gnu("version", None, Takes::Nothing, Id::Version),
    Flag::short('b', Takes::Nothing, Id::BackupShort),
    Flag::short('d', Takes::Nothing, Id::NoDereferenceLinks),
    Flag::short('H', Takes::Nothing, Id::DereferenceCommandLine),
    Flag::short('p', Takes::Nothing, Id::PreserveShort),
    Flag::short('r', Takes::Nothing, Id::Recursive),
    Flag::short('u', Takes::Nothing, Id::UpdateShort),
    Flag::short('Z', Takes::Nothing, Id::SecurityContext),
    Flag::own("atomic", Takes::Nothing, Id::Atomic),
    Flag::own("block", Takes::Value, Id::Block),
    Flag::own("depth", Takes::Value, Id::Depth),
    Flag::own("durable", Takes::Nothing, Id::Durable),
    Flag::own("engine", Takes::Value, Id::Engine),
    Flag::own("jobs", Takes::Value, Id::Jobs),
    Flag::own("json", Takes::Nothing, Id::Json),
    Flag::own("progress", Takes::Maybe, Id::Progress),
    Flag::own("resume", Takes::Nothing, Id::Resume),
    Flag::own("verify", Takes::Nothing, Id::Verify),
    Flag::own("plan", Takes::Nothing, Id::Debug),
];

const BACKUPS: [Choice<Backup>; 4] = [
    Choice(&["none", "off"], Backup::None),
    Choice(&["simple", "never"], Backup::Simple),
    Choice(&["existing", "nil"], Backup::Existing),
    Choice(&["numbered", "t"], Backup::Numbered),
];

const SPARSE: [Choice<Sparse>; 3] = [
    Choice(&["never"], Sparse::Never),
    Choice(&["auto"], Sparse::Auto),
    Choice(&["always"], Sparse::Always),
];

const REFLINK: [Choice<Reflink>; 3] = [
    Choice(&["auto"], Reflink::Auto),
    Choice(&["always"], Reflink::Always),
    Choice(&["never"], Reflink::Never),
];

const ENGINES: [Choice<EngineChoice>; 3] = [
    Choice(&["auto"], EngineChoice::Auto),
    Choice(&["uring"], EngineChoice::Uring),
    Choice(&["sync"], EngineChoice::Sync),
];

const PROGRESS: [Choice<When>; 3] = [
    Choice(&["auto"], When::Auto),
    Choice(&["always"], When::Always),
    Choice(&["never"], When::Never),
];

const UPDATES: [Choice<(Update, Option<Existing>)>; 4] = [
    Choice(&["all"], (Update::All, None)),
    Choice(&["none"], (Update::All, Some(Existing::Keep))),
    Choice(&["none-fail"], (Update::All, Some(Existing::Refuse))),
    Choice(&["older"], (Update::Older, None)),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attribute {
    Mode,
    Timestamps,
    Ownership,
    Links,
    Context,
    Xattr,
    All,
}

const ATTRIBUTES: [Choice<Attribute>; 7] = [
    Choice(&["mode"], Attribute::Mode),
    Choice(&["timestamps"], Attribute::Timestamps),
    Choice(&["ownership"], Attribute::Ownership),
    Choice(&["links"], Attribute::Links),
    Choice(&["context"], Attribute::Context),
    Choice(&["xattr"], Attribute::Xattr),
    Choice(&["all"], Attribute::All),
];

/// Reads the words after the command's name.
pub(crate) fn read(words: Vec<OsString>, locale: Locale) -> Result<Typed, Misuse> {
    let mut reader = Reader::new(locale);
    let mut scanner = Scanner::new(&FLAGS, words, env::var_os("POSIXLY_CORRECT").is_some());
    while let Some((id, value)) = scanner.next_flag().map_err(Misuse::usage)? {
        match id {
            Id::Help => return Ok(Typed::Help),
            Id::Version => return Ok(Typed::Version),
            _ => reader.take(id, value.as_deref())?,
        }
    }
    reader.finish(scanner.into_operands())
}

struct Reader {
    locale: Locale,
    options: Options,
    dereference: Option<Dereference>,
    hard: bool,
    symbolic: bool,
    no_target_directory: bool,
    target_directory: Option<OsString>,
    copy_contents: bool,
    wants_backup: bool,
    backup_control: Option<OsString>,
    suffix: Option<OsString>,
    warnings: Vec<&'static str>,
}

impl Reader {
    fn new(locale: Locale) -> Reader {
        let options = Options {
            suffix: b"~".to_vec(),
            data: true,
            special_as_regular: true,
            ..Options::default()
        };
        Reader {
            locale,
            options,
            dereference: None,
            hard: false,
            symbolic: false,
            no_target_directory: false,
            target_directory: None,
            copy_contents: false,
            wants_backup: false,
            backup_control: None,
            suffix: None,
            warnings: Vec::new(),
        }
    }

    /// Applies a flag: a table with an arm for each.
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn take(&mut self, id: Id, value: Option<&OsStr>) -> Result<(), Misuse> {
        let options = &mut self.options;
        let locale = self.locale;
        match id {
            Id::Archive => self.archive(),
            Id::Atomic => options.atomic = true,
            Id::AttributesOnly => options.data = false,
            Id::Backup => {
                self.wants_backup = true;
                self.backup_control = value.map(OsStr::to_owned).or(self.backup_control.take());
            }
            Id::BackupShort => self.wants_backup = true,
            Id::Block => options.block_bytes = Some(block_bytes(value)?),
            Id::Context if value.is_some() => self
                .warnings
                .push("warning: ignoring --context; it requires an SELinux-enabled kernel"),
            // As GNU cp on a kernel without SELinux: nothing to set, and nothing said.
            Id::Context | Id::SecurityContext => {}
            Id::CopyContents => self.copy_contents = true,
            Id::Debug => options.debug = true,
            Id::Depth => options.depth = Some(count("--depth", value, 4096)?),
            Id::Dereference => self.dereference = Some(Dereference::Always),
            Id::DereferenceCommandLine => self.dereference = Some(Dereference::CommandLine),
            Id::Durable => options.durable = true,
            Id::Engine => options.engine = choice::read(&ENGINES, value, "--engine", locale)?,
            Id::Force => options.remove_after_failure = true,
            Id::Interactive => options.existing = Existing::Ask,
            Id::Jobs => options.jobs = Some(count("--jobs", value, 256)?),
            Id::Link => self.hard = true,
            Id::NoClobber => options.existing = Existing::Keep,
            Id::NoDereference => self.dereference = Some(Dereference::Never),
            Id::NoDereferenceLinks => {
                options.preserve.links = true;
                self.dereference = Some(Dereference::Never);
            }
            Id::NoPreserve => self.attributes(value, "--no-preserve", false)?,
            Id::NoTargetDirectory => self.no_target_directory = true,
            Id::OneFileSystem => options.one_file_system = true,
            Id::Parents => options.parents = true,
            Id::Preserve if value.is_some() => {
                self.attributes(value, "--preserve", true)?;
                self.options.preserve.required = true;
            }
            Id::Json => options.json = true,
            Id::Progress if value.is_some() => {
                options.progress = choice::read(&PROGRESS, value, "--progress", locale)?;
            }
            Id::Progress => options.progress = When::Auto,
            Id::Resume => options.resume = true,
            Id::Preserve | Id::PreserveShort => {
                let preserve = &mut options.preserve;
                (preserve.ownership, preserve.timestamps, preserve.mode) = (true, true, true);
                preserve.required = true;
            }
            Id::Recursive => options.recursive = true,
            Id::Reflink if value.is_some() => {
                options.reflink = choice::read(&REFLINK, value, "--reflink", locale)?;
            }
            Id::Reflink => options.reflink = Reflink::Always,
            Id::RemoveDestination => options.remove_before = true,
            Id::Sparse => options.sparse = choice::read(&SPARSE, value, "--sparse", locale)?,
            Id::StripTrailingSlashes => options.strip_trailing_slashes = true,
            Id::Suffix => {
                self.wants_backup = true;
                self.suffix = value.map(OsStr::to_owned);
            }
            Id::SymbolicLink => self.symbolic = true,
            Id::TargetDirectory => self.target_directory(value)?,
            Id::Update if value.is_some() => {
                let (update, existing) = choice::read(&UPDATES, value, "--update", locale)?;
                options.update = update;
                options.existing = existing.unwrap_or(options.existing);
            }
            Id::Update | Id::UpdateShort => options.update = Update::Older,
            Id::Verbose => options.verbose = true,
            Id::Verify => options.verify = true,
            Id::Help | Id::Version => unreachable!("answered where they are read"),
        }
        Ok(())
    }

    fn archive(&mut self) {
        self.dereference = Some(Dereference::Never);
        self.options.recursive = true;
        self.options.preserve = Preserve {
            mode: true,
            ownership: true,
            timestamps: true,
            links: true,
            xattr: true,
            required: true,
            quiet: true,
            ..self.options.preserve
        };
    }

    fn attributes(&mut self, list: Option<&OsStr>, flag: &str, on: bool) -> Result<(), Misuse> {
        let preserve = &mut self.options.preserve;
        for word in list.unwrap_or_default().as_bytes().split(|byte| *byte == b',') {
            let word = Some(OsStr::from_bytes(word));
            match choice::read(&ATTRIBUTES, word, flag, self.locale)? {
                Attribute::Mode => (preserve.mode, preserve.fresh_mode) = (on, !on),
                Attribute::Timestamps => preserve.timestamps = on,
                Attribute::Ownership => preserve.ownership = on,
                Attribute::Links => preserve.links = on,
                Attribute::Context if on => {
                    return Err(Misuse::plain(
                        "cannot preserve security context without an SELinux-enabled kernel",
                    ));
                }
                Attribute::Context => {}
                Attribute::Xattr => (preserve.xattr, preserve.xattr_required) = (on, on),
                Attribute::All => {
                    (preserve.mode, preserve.fresh_mode) = (on, !on);
                    preserve.timestamps = on;
                    preserve.ownership = on;
                    preserve.links = on;
                    preserve.xattr = on;
                }
            }
        }
        Ok(())
    }

    fn target_directory(&mut self, value: Option<&OsStr>) -> Result<(), Misuse> {
        if self.target_directory.is_some() {
            return Err(Misuse::plain("multiple target directories specified"));
        }
        self.target_directory = value.map(OsStr::to_owned);
        Ok(())
    }

    fn finish(mut self, operands: Vec<OsString>) -> Result<Typed, Misuse> {
        if self.hard && self.symbolic {
            return Err(Misuse::usage("cannot make both hard and symbolic links"));
        }
        if self.options.existing == Existing::Keep {
            self.options.update = Update::All;
        }
        if self.wants_backup && self.options.existing == Existing::Keep {
            return Err(Misuse::usage("options --backup and --no-clobber are mutually exclusive"));
        }
        if self.options.reflink == Reflink::Always && self.options.sparse != Sparse::Auto {
            return Err(Misuse::usage("--reflink can be used only with --sparse=auto"));
        }
        self.backups()?;
        self.links();
        if self.options.verify && !self.options.data {
            return Err(Misuse::usage("--verify has no data to verify with --attributes-only"));
        }
        if self.options.atomic && self.options.backup != Backup::None {
            return Err(Misuse::usage("options --atomic and --backup are mutually exclusive"));
        }
        let options = &self.options;
        let remakes = options.remove_before || options.backup != Backup::None;
        if options.resume && (remakes || options.making != Making::Copy || !options.data) {
            return Err(Misuse::usage(
                "--resume takes up a copy of files: not with --link, --symbolic-link, \
                 --attributes-only, --backup or --remove-destination",
            ));
        }
        self.operands(operands)?;
        Ok(Typed::Copy(Box::new(self.options), self.warnings))
    }

    fn backups(&mut self) -> Result<(), Misuse> {
        if let Some(suffix) = self.suffix.take().or_else(|| env::var_os("SIMPLE_BACKUP_SUFFIX")) {
            // A suffix that leads elsewhere or is none would be no backup.
            if !suffix.is_empty() && !suffix.as_bytes().contains(&b'/') {
                self.options.suffix = suffix.into_vec();
            }
        }
        if !self.wants_backup {
            return Ok(());
        }
        let (control, context) = match self.backup_control.take().filter(|word| !word.is_empty()) {
            Some(control) => (Some(control), "backup type"),
            None => (env::var_os("VERSION_CONTROL"), "$VERSION_CONTROL"),
        };
        self.options.backup = match control.filter(|word| !word.is_empty()) {
            Some(word) => choice::read(&BACKUPS, Some(&word), context, self.locale)?,
            None => Backup::Existing,
        };
        Ok(())
    }

    /// What the flags for links come to together.
    fn links(&mut self) {
        let options = &mut self.options;
        options.dereference = self.dereference.unwrap_or({
            match options.recursive && !self.hard {
                true => Dereference::Never,
                false => Dereference::Always,
            }
        });
        if options.recursive {
            options.special_as_regular = self.copy_contents;
        }
        options.making = match (self.hard, self.symbolic) {
            (true, _) => Making::HardLink,
            (_, true) => Making::SymbolicLink,
            _ => Making::Copy,
        };
    }

    fn operands(&mut self, mut operands: Vec<OsString>) -> Result<(), Misuse> {
        let locale = self.locale;
        let quoted = |name: &OsStr| locale.shell(name.as_bytes());
        let needed = if self.target_directory.is_some() { 1 } else { 2 };
        if operands.len() < needed {
            return Err(Misuse::usage(match operands.first() {
                None => b"missing file operand".to_vec(),
                Some(only) => {
                    [&b"missing destination file operand after "[..], &quoted(only)].concat()
                }
            }));
        }
        if self.no_target_directory {
            if self.target_directory.is_some() {
                return Err(Misuse::plain(
                    "cannot combine --target-directory (-t) and --no-target-directory (-T)",
                ));
            }
            if let Some(extra) = operands.get(2) {
                return Err(Misuse::usage([&b"extra operand "[..], &quoted(extra)].concat()));
            }
        }
        self.options.target = match self.target_directory.take() {
            Some(directory) => Target::Directory(directory),
            None => {
                let last = operands.pop().expect("two at least");
                if self.no_target_directory { Target::Exactly(last) } else { Target::Last(last) }
            }
        };
        self.options.sources = operands;
        Ok(())
    }
}

fn count(flag: &str, value: Option<&OsStr>, most: usize) -> Result<usize, Misuse> {
    let text = value.unwrap_or_default().to_string_lossy();
    match text.parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(Misuse::usage(format!("{flag} {text:?}: expected a number from 1 to {most}"))),
    }
}

fn block_bytes(value: Option<&OsStr>) -> Result<usize, Misuse> {
    let text = value.unwrap_or_default().to_string_lossy();
    match ringwise_measure::quantity::parse_size(&text) {
        Ok(bytes @ 1024..=33_554_432) => Ok(bytes as usize),
        Ok(_) => Err(Misuse::usage(format!("--block {text:?}: expected 1k to 32m"))),
        Err(error) => Err(Misuse::usage(format!("--block {text:?}: {error}"))),
    }
}

#[cfg(test)]
mod tests;
