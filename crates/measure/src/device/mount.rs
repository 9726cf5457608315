//! The mount that holds a path, from /proc/self/mountinfo.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::fact::{self, Fact, Sources};

/// One line of proc_pid_mountinfo(5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// The directory of the file system that is mounted.
    #[serde(skip)]
    pub root: String,
    /// Where it is mounted.
    pub point: PathBuf,
    /// The file system's type, such as `ext4`.
    pub kind: String,
    /// The mounted device or host, or a word that the file system chose.
    pub source: String,
    /// The device number, `MAJOR:MINOR`. Major 0 means that there is no block device.
    pub device_number: String,
    /// The options of the mount and of the file system, separated by commas.
    pub options: String,
    /// Whether ext4 has a journal. `None` for other file systems, or if the kernel does not tell.
    pub has_journal: Option<bool>,
}

impl Mount {
    /// Finds the mount that holds an absolute path without symbolic links.
    pub fn of(sources: &Sources, path: &Path) -> Fact<Mount> {
        let table = sources.proc.join("self/mountinfo");
        Mount::all(sources).and_then(|mounts| {
            // A later mount covers an earlier one on the same point.
            let covering = mounts
                .into_iter()
                .filter(|mount| path.starts_with(&mount.point))
                .max_by_key(|mount| mount.point.components().count());
            let covering =
                covering.map(|mount| Mount { has_journal: has_journal(sources, &mount), ..mount });
            let reason = || format!("{}: no mount holds {}", table.display(), path.display());
            Fact::of(covering, reason)
        })
    }

    /// Lists all mounts, in order. It does not find out whether they have a journal.
    pub(crate) fn all(sources: &Sources) -> Fact<Vec<Mount>> {
        sources.proc_text("self/mountinfo").map(|text| text.lines().filter_map(parse).collect())
    }

    /// Returns whether the file system tells the device at once which blocks are free (the option `discard`). Without it
    /// the device learns of them only by fstrim(8).
    pub fn discards(&self) -> bool {
        // btrfs writes `discard=async`.
        self.options.split(',').any(|option| option == "discard" || option.starts_with("discard="))
    }

    /// Returns the file system's type, and mentions a missing journal.
    pub fn kind_text(&self) -> String {
        let without = if self.has_journal == Some(false) { " without a journal" } else { "" };
        format!("{}{without}", self.kind)
    }
}

/// The kernel names the thread that commits the journal (fs/ext4/sysfs.c, journal_task).
fn has_journal(sources: &Sources, mount: &Mount) -> Option<bool> {
    if mount.kind != "ext4" {
        return None;
    }
    let device = sources.sys.join("dev/block").join(&mount.device_number);
    let device = std::fs::canonicalize(device).ok()?;
    let task = sources.sys.join("fs/ext4").join(device.file_name()?).join("journal_task");
    fact::text(&task).known().map(|task| task != "<none>")
}

/// Parses a line such as `36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/sda1 rw,errors=continue`. Any number
/// of fields may precede the dash.
fn parse(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(2);
    let (device_number, root) = (before.next()?, before.next()?);
    let (point, mount_options) = (before.next()?, before.next()?);
    let mut after = after.split(' ');
    let (kind, source) = (after.next()?, after.next()?);
    let options = match after.next() {
        Some(own) if !own.is_empty() => format!("{mount_options},{own}"),
        _ => mount_options.to_owned(),
    };
    Some(Mount {
        root: root.to_owned(),
        point: PathBuf::from(unescape(point)),
        kind: kind.to_owned(),
        source: unescape(source).to_string_lossy().into_owned(),
        device_number: device_number.to_owned(),
        options,
        has_journal: None,
    })
}

/// Decodes `\040` and the like: space, tab, newline and backslash are written as three octal digits.
fn unescape(text: &str) -> OsString {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, behind)) = rest.split_first() {
        let escaped = (first == b'\\').then(|| octal(behind)).flatten();
        match escaped {
            Some(byte) => {
                plain.push(byte);
                rest = &behind[3..];
            }
            None => {
                plain.push(first);
                rest = behind;
            }
        }
    }
    OsString::from_vec(plain)
}

fn octal(digits: &[u8]) -> Option<u8> {
    let digits = digits.get(..3)?;
    let text = std::str::from_utf8(digits).ok()?;
    text.bytes().all(|digit| digit.is_ascii_digit()).then(|| u8::from_str_radix(text, 8).ok())?
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_line_with_optional_fields_and_escapes() {
        let line = r"36 35 259:1 / /mnt/my\040disk\134 rw,noatime shared:1 master:2 - ext4 /dev/nvme0n1p1 rw,errors=continue";
        let mount = parse(line).unwrap();
        assert_eq!(mount.point, Path::new("/mnt/my disk\\"));
        assert_eq!((mount.kind.as_str(), mount.device_number.as_str()), ("ext4", "259:1"));
        assert_eq!(mount.options, "rw,noatime,rw,errors=continue");
    }

    #[test]
    fn the_option_discard_is_found_by_its_whole_name() {
        let discards = |options: &str| {
            parse(&format!("36 35 8:1 / / rw - ext4 /dev/sda1 {options}")).unwrap().discards()
        };
        assert!(discards("rw,discard") && discards("rw,discard=async,ssd"));
        assert!(!discards("rw,nodiscard") && !discards("rw"));
    }

    #[test]
    fn garbled_lines_are_none() {
        for line in ["", " - ", "1 2 3 - ext4", "36 35 8:1 / /mnt rw", "a b c d e f - g"] {
            assert_eq!(parse(line), None, "{line}");
        }
        for (text, plain) in [(r"\", r"\"), (r"\04", r"\04"), (r"\999", r"\999"), (r"\040", " ")] {
            assert_eq!(unescape(text).as_bytes(), plain.as_bytes());
        }
    }
}
