//! Edge cases that neither random trees nor the little world of `scripts.rs` have: special file
//! systems and mounts, attributes that few have, very large sparse files, specials with content.
//! Each beside GNU cp, on every engine. What only root can make is skipped elsewhere.

use std::{
    fs,
    os::unix::fs::{FileExt, PermissionsExt},
    path::Path,
    process::Command,
    thread,
    time::{Duration, SystemTime},
};

use rustix::fs::{XattrFlags, lsetxattr};

use crate::oracle::{
    self, Outcome,
    machine::{self, Setting, Which},
    scene, snapshot,
};

/// What is mounted, for as long as this lives.
pub struct Mounted<'a>(&'a Path);

impl Mounted<'_> {
    /// Unmounts it, which fails if anything in it is still open. The child of another test has every open file of this
    /// process until it runs its own program.
    pub fn unmount(self) {
        let unmounted = || Command::new("umount").arg(self.0).status().unwrap().success();
        let is_done = (0..50).any(|_| {
            unmounted() || {
                thread::sleep(Duration::from_millis(100));
                false
            }
        });
        assert!(is_done, "{}: something is still open", self.0.display());
        std::mem::forget(self);
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// Mounts at a new directory, or says why not.
pub fn mount<'a>(arguments: &[&str], at: &'a Path) -> Option<Mounted<'a>> {
    if !machine::is_root() {
        machine::skip("only root can mount");
        return None;
    }
    fs::create_dir_all(at).unwrap();
    let output = Command::new("mount").args(arguments).arg(at).output().unwrap();
    if !output.status.success() {
        machine::skip(&format!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr)));
        return None;
    }
    Some(Mounted(at))
}

pub const SMALL_EXT4: &str = "truncate -s 24M image && mkfs.ext4 -q -F image";

/// Makes a file system in the file `image` by a script, and mounts it.
pub fn mount_made<'a>(at: &Path, script: &str, mounted: &'a Path) -> Option<Mounted<'a>> {
    if !machine::is_root() || !shell(at, script) {
        machine::skip(&format!("{script}: only root can, where that is installed"));
        return None;
    }
    mount(&["-o", "loop", at.join("image").to_str().unwrap()], mounted)
}

pub fn shell(at: &Path, script: &str) -> bool {
    Command::new("sh").args(["-c", script]).current_dir(at).status().unwrap().success()
}

/// Runs a command line by both, in the same place, `prepare` before each; `seen` is compared.
fn same(at: &Path, line: &str, setting: &Setting, seen: &str, prepare: &dyn Fn()) {
    let words: Vec<&str> = line.split(' ').collect();
    // What is prepared is new in all runs, and what was there before is as old in all, however long they take.
    let since = SystemTime::now();
    let run = |which| {
        prepare();
        let ran = machine::run(which, &words, at, setting);
        let seen = at.join(seen);
        let files = if seen.exists() { snapshot::take(&seen, since) } else { Default::default() };
        Outcome { ran, files }
    };
    let gnu = run(Which::Gnu);
    for engine in machine::engines() {
        oracle::same(&format!("{engine} {line}"), &gnu, &run(Which::Ours(engine)));
    }
}

fn same_each(at: &Path, lines: &[&str], prepare: &dyn Fn()) {
    for line in lines {
        same(at, line, &Setting::default(), "d", prepare);
    }
}

/// Makes `d` anew, as an empty directory.
fn empty_d(at: &Path) {
    assert!(shell(at, "rm -rf d && mkdir d"));
}

/// The first directory that a run made is known to GNU cp, and no other: this one goes on until a path
/// is too long, which here none is.
#[test]
fn a_link_into_what_is_being_made_is_an_end() {
    let scene = scene();
    let at = scene.path();
    for engine in machine::engines() {
        let links = "rm -rf s t && mkdir -p s/0/x t && ln -s ../../../t/0/x s/0/x/up";
        assert!(shell(at, links));
        let words = ["-rL", "s/.", "t"];
        let ran = machine::run(Which::Ours(engine), &words, at, &Setting::default());
        let said = "cp: cannot copy a directory, 's/.', into itself, 't/.'\n";
        assert_eq!((ran.status, &*ran.err), (Some(1), said), "{engine}");
    }
}

#[test]
fn offsets_beyond_four_gibibytes_are_offsets() {
    let scene = scene();
    let at = scene.path();
    let file = fs::File::create(at.join("s")).unwrap();
    const TIB: u64 = 1 << 40;
    let places = [0, (2 << 30) - 1000, (4 << 30) - 5000, 5 << 30, TIB + 4096];
    for (number, place) in (1..).zip(places) {
        file.write_all_at(&[number; 10_000], place).unwrap();
    }
    file.set_len(2 * TIB + 1).unwrap();
    for engine in machine::engines() {
        for flags in ["--sparse=auto", "--reflink=never"] {
            let words = [flags, "s", "d"];
            let ran = machine::run(Which::Ours(engine), &words, at, &Setting::default());
            assert_eq!((ran.status, ran.err.as_str()), (Some(0), ""), "{engine} {flags}");
            let copy = fs::File::open(at.join("d")).unwrap();
            assert_eq!(copy.metadata().unwrap().len(), 2 * TIB + 1);
            for (number, place) in (1..).zip(places) {
                let mut bytes = [0; 10_000];
                copy.read_exact_at(&mut bytes, place).unwrap();
                assert_eq!(bytes, [number; 10_000], "{engine} {flags} at {place}");
            }
            fs::remove_file(at.join("d")).unwrap();
        }
    }
}

#[test]
fn names_may_be_as_long_as_names_can_be() {
    let scene = scene();
    let name = "n".repeat(255);
    fs::create_dir(scene.path().join("s")).unwrap();
    fs::write(scene.path().join("s").join(&name), "new").unwrap();
    for engine in machine::engines() {
        for flags in ["-r", "-r --atomic", "-r --resume"] {
            fs::create_dir_all(scene.path().join("d/s")).unwrap();
            fs::write(scene.path().join("d/s").join(&name), "old").unwrap();
            let words: Vec<&str> = flags.split(' ').chain(["s", "d"]).collect();
            let ran = machine::run(Which::Ours(engine), &words, scene.path(), &Setting::default());
            assert_eq!((ran.status, ran.err.as_str()), (Some(0), ""), "{engine} {flags}");
            let names = fs::read_dir(scene.path().join("d/s")).unwrap();
            let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(names, [name.as_str()], "{engine} {flags}");
            let copied = fs::read(scene.path().join("d/s").join(&name)).unwrap();
            assert_eq!(copied, b"new", "{engine} {flags}");
        }
    }
}

#[test]
fn what_a_fifo_gives_is_copied_where_that_is_asked_for() {
    let scene = scene();
    assert!(shell(scene.path(), "mkdir s && mkfifo s/pipe"));
    for engine in machine::engines() {
        let cp = machine::ours().display().to_string();
        // In two parts, so that reads are short.
        let script = format!(
            "(printf one; sleep 0.05; printf two) > s/pipe & timeout 20 {cp} {engine} -R \
             --copy-contents s d && wait && test -f d/pipe && test \"$(cat d/pipe)\" = onetwo \
             && rm -r d"
        );
        assert!(shell(scene.path(), &script), "{engine}");
    }
}

#[test]
fn other_file_systems_are_crossed_or_not() {
    let scene = scene();
    let at = scene.path();
    assert!(machine::has_oracle() && shell(at, "mkdir -p s/inner && echo out > s/f"));
    let inner = at.join("s/inner");
    let Some(_mounted) = mount(&["-t", "tmpfs", "tmpfs"], &inner) else { return };
    assert!(shell(at, "mkdir s/inner/deep && echo in > s/inner/deep/f && ln s/f s/g"));
    same_each(at, &["-Rx s d", "-ax s d", "-a s d", "-Rx s/inner d", "-axu s d"], &|| empty_d(at));
}

/// A directory in itself by way of a mount, which has another name and the same inode.
#[test]
fn a_directory_in_itself_by_a_bind_mount_is_seen() {
    let scene = scene();
    let at = scene.path();
    assert!(machine::has_oracle() && shell(at, "mkdir -p s/sub other && echo f > s/sub/f"));
    let other = at.join("other");
    let source = at.join("s");
    let Some(_mounted) = mount(&["--bind", source.to_str().unwrap()], &other) else { return };
    let setting = Setting::default();
    for line in ["-R s other/sub/new", "-R s other", "other/sub/f s/sub/f", "-R other s"] {
        let prepare = || assert!(shell(at, "rm -rf s/sub/new s/s s/other"));
        let words: Vec<&str> = line.split(' ').collect();
        prepare();
        let gnu = machine::run(Which::Gnu, &words, at, &setting);
        for engine in machine::engines() {
            prepare();
            let ours = machine::run(Which::Ours(engine), &words, at, &setting);
            assert_eq!(ours.status, gnu.status, "{engine} {line}: {ours:?} {gnu:?}");
            let says = |text: &str| (text.contains("into itself"), text.contains("same file"));
            assert_eq!(says(&ours.err), says(&gnu.err), "{engine} {line}: {ours:?} {gnu:?}");
        }
        prepare();
    }
}

#[test]
fn a_read_only_destination_is_an_error_of_each_file() {
    let scene = scene();
    let at = scene.path();
    assert!(machine::has_oracle() && shell(at, "mkdir s && echo f > s/f && echo g > s/g"));
    let target = at.join("d");
    let Some(_mounted) = mount(&["-t", "tmpfs", "tmpfs"], &target) else { return };
    assert!(shell(at, "mkdir d/s && echo old > d/s/f && mount -o remount,ro d"));
    same_each(at, &["-r s d", "s/f s/g d/s", "-rf s d", "--remove-destination -r s d"], &|| ());
}

/// ramfs has no attributes of users: with `-a` that is no news, demanded it is an error.
#[test]
fn attributes_that_the_destination_cannot_have_are_told_where_they_were_demanded() {
    let scene = scene();
    let at = scene.path();
    assert!(machine::has_oracle() && shell(at, "mkdir s && echo f > s/f"));
    if lsetxattr(at.join("s/f"), "user.note", b"n", XattrFlags::empty()).is_err() {
        return machine::skip("no attributes here");
    }
    let target = at.join("d");
    let Some(_mounted) = mount(&["-t", "ramfs", "ramfs"], &target) else { return };
    let lines = ["-a s d", "-r --preserve=xattr s d", "-r --preserve=all s d", "-p s/f d"];
    same_each(at, &lines, &|| assert!(shell(at, "rm -rf d/*")));
}

/// A directory of an overlay has entries of two file systems and devices of neither.
#[test]
fn overlays_are_copied_from_and_to() {
    let scene = scene();
    let at = scene.path();
    let made = "mkdir -p low/sub up work && echo low > low/sub/f && ln low/sub/f low/g && echo x > \
                low/gone && head -c 3000000 /dev/urandom > low/big && ln -s f low/sub/l";
    assert!(machine::has_oracle() && shell(at, made));
    assert!(shell(at, "find low -exec touch -hd 2001-01-01 {} +"));
    let path = at.to_str().unwrap();
    let layers = format!("lowerdir={path}/low,upperdir={path}/up,workdir={path}/work");
    let both = at.join("both");
    let options = ["-t", "overlay", "-o", &layers, "overlay"];
    let Some(_mounted) = mount(&options, &both) else { return };
    // Nothing is of this second: what is, is told otherwise in the next.
    let changed = "rm both/gone && echo up > both/sub/new && ln both/sub/new both/h && \
                   touch -d 2001-01-01 both/sub/new both/sub both";
    assert!(shell(at, changed));
    same_each(at, &["-a both d", "-r both d", "-ax both/sub both/big d"], &|| empty_d(at));
    let lines = ["-a low both/d", "-rl both/sub both/d"];
    for line in lines {
        let clear = || assert!(shell(at, "rm -rf both/d"));
        same(at, line, &Setting::default(), "both/d", &clear);
    }
}

#[test]
fn destinations_that_may_not_be_changed_are_left_and_told() {
    let scene = scene();
    let at = scene.path();
    assert!(machine::has_oracle() && shell(at, "mkdir s && echo new > s/f && echo new > s/g"));
    let made = "mkdir -p d/s && echo old > d/s/f && echo old > d/s/g";
    let lock = "chattr +i d/s/f && chattr +a d/s/g";
    if !machine::is_root() || !shell(at, &format!("{made} && {lock}")) {
        return machine::skip("no files that may not be changed here");
    }
    let open = || shell(at, "chattr -i d/s/f; chattr -a d/s/g");
    for line in ["-r s d", "-rf s d", "-a --remove-destination s d", "-rb s d"] {
        let prepare = || {
            open();
            assert!(shell(at, &format!("rm -rf d && {made} && {lock}")));
        };
        same(at, line, &Setting::default(), "d", &prepare);
    }
    open();
}

/// What a file may do beside its owner's rights goes when its owner is set: first one, then other.
#[test]
fn capabilities_come_through_the_change_of_owner() {
    let scene = scene();
    let at = scene.path();
    assert!(machine::has_oracle() && shell(at, "echo f > s"));
    // VFS_CAP_REVISION_2, effective: CAP_NET_RAW (linux/capability.h).
    let mut capability = 0x0200_0001_u32.to_le_bytes().to_vec();
    capability.extend([0x2000_u32, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()));
    let is_root = machine::is_root();
    let owned = is_root && std::os::unix::fs::chown(at.join("s"), Some(1), Some(1)).is_ok();
    fs::set_permissions(at.join("s"), fs::Permissions::from_mode(0o755)).unwrap();
    let set = lsetxattr(at.join("s"), "security.capability", &capability, XattrFlags::empty());
    if !owned || set.is_err() {
        return machine::skip("only root can give capabilities");
    }
    let lines = ["-a s d", "-p s d", "--preserve=all s d", "--preserve=ownership,xattr s d"];
    same_each(at, &lines, &|| assert!(shell(at, "rm -rf d")));
    let mut there = [0; 64];
    let ran =
        machine::run(Which::Ours("--engine=auto"), &["-a", "s", "d"], at, &Setting::default());
    assert_eq!(ran.status, Some(0));
    let found = rustix::fs::lgetxattr(at.join("d"), "security.capability", &mut there[..]);
    assert!(found.is_ok_and(|len| len >= capability.len()), "{found:?}");
}

/// In a user namespace where owners of files have no name of their own: chown(2) gives EINVAL.
#[test]
fn owners_that_cannot_be_given_are_told_as_gnu_cp_tells_it() {
    let scene = scene();
    let at = scene.path();
    assert!(machine::has_oracle() && shell(at, "mkdir s && echo f > s/f && chmod 4755 s/f"));
    let owner = Some(4321);
    if !machine::is_root() || std::os::unix::fs::chown(at.join("s/f"), owner, owner).is_err() {
        return machine::skip("only root can give files away");
    }
    if !shell(at, "unshare --user --map-root-user true") {
        return machine::skip("no user namespaces here");
    }
    let run = |command: &str| {
        empty_d(at);
        let mut unshared = Command::new("unshare");
        unshared.args(["--user", "--map-root-user", "sh", "-c", command]).current_dir(at);
        let output = unshared.env("LC_ALL", "C.UTF-8").output().unwrap();
        let files = snapshot::take(&at.join("d"), SystemTime::now());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // When it was made is of no account.
        let modes: Vec<String> =
            files.values().map(|text| text.split(' ').take(2).collect::<String>()).collect();
        (output.status.code(), said, modes)
    };
    for flags in ["-a", "-rp", "-r --preserve=ownership"] {
        let gnu = run(&format!("exec cp {flags} s d"));
        for engine in machine::engines() {
            let ours = run(&format!("exec {} {engine} {flags} s d", machine::ours().display()));
            assert_eq!(ours, gnu, "{engine} {flags}");
        }
    }
}

#[test]
fn a_backup_of_a_long_name_is_shortened_and_replaces_no_numbered_one() {
    let scene = scene();
    let at = scene.path();
    let names = [255, 254, 253, 251, 250].map(|len| "n".repeat(len));
    let full = &names[0];
    let again = || {
        empty_d(at);
        for name in &names {
            assert!(machine::has_oracle() && shell(at, &format!("echo old > d/{name}")));
        }
        assert!(shell(at, "echo new > s"));
    };
    for flags in ["-b", "--backup=simple", "--backup=numbered", "-b -S.backup", "-v -b"] {
        for name in &names {
            let line = format!("{flags} s d/{name}");
            same(at, &line, &Setting::default(), "d", &again);
        }
    }
    let with_another = || {
        again();
        fs::write(at.join("d").join(format!("{}~", &full[2..])), "another's").unwrap();
    };
    for flags in ["-b", "--backup=numbered"] {
        let line = format!("{flags} s d/{full}");
        same(at, &line, &Setting::default(), "d", &with_another);
    }
}

/// Whoever may not give them away keeps them with the permissions of their sources, all bits.
#[test]
fn directories_on_the_way_keep_their_special_bits() {
    let scene = scene();
    let at = scene.path();
    if !machine::is_root() {
        return machine::skip("only root can become another");
    }
    let made = "mkdir -p s/open && echo f > s/open/f && chmod 2775 s && chmod 7755 s/open && \
                touch -d 2001-01-01 s/open/f s/open s";
    assert!(machine::has_oracle() && shell(at, made));
    let setting = Setting { as_nobody: true, ..Setting::default() };
    for line in ["-p --parents s/open/f d", "-R --preserve --parents s/missing s/open d"] {
        let prepare = || {
            empty_d(at);
            assert!(shell(at, "chmod 777 d"));
        };
        same(at, line, &setting, "d", &prepare);
    }
}

#[test]
fn names_of_one_file_that_are_up_to_date_are_linked_as_gnu_cp_links_them() {
    let scene = scene();
    let at = scene.path();
    let made = "mkdir s && echo f > s/f && ln s/f s/g && echo h > s/h && touch -d 2001-01-01 s/* s";
    assert!(machine::has_oracle() && shell(at, made));
    // Nothing is of this second: what is, is told otherwise in the next.
    let newer = "mkdir d/s && echo own > d/s/f && echo other > d/s/g && touch -d 2002-01-01 d/s/*";
    let both = format!("{newer} d/s d");
    let one = format!("{newer} && touch -d 2000-01-01 d/s/g && touch -d 2002-01-01 d/s d");
    for there in [&both, &one] {
        for line in ["-ru s d", "-vru s d", "-au s d", "-Lru s d", "-u s/f s/g s/f d/s"] {
            let prepare = || {
                empty_d(at);
                assert!(shell(at, there));
            };
            same(at, line, &Setting::default(), "d", &prepare);
        }
    }
}

/// A run of zeros at the end that is shorter than a block took a block, where GNU cp makes a hole.
#[test]
fn a_short_tail_of_zeros_is_a_hole() {
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| directory.path().join(name);
    for (at, (data, zeros)) in
        [(0, 1), (0, 100), (4096, 10), (10, 5000), (8192, 4095), (100, 0)].into_iter().enumerate()
    {
        let source = path(&format!("source-{at}"));
        let mut bytes = vec![7; data];
        bytes.resize(data + zeros, 0);
        fs::write(&source, &bytes).unwrap();
        let copies =
            [("cp".to_owned(), vec![]), (env!("CARGO_BIN_EXE_ringwise").into(), vec!["cp"])].map(
                |(program, tool)| {
                    let copy = path(&format!("copy-{at}-{}", tool.len()));
                    let mut command = Command::new(program);
                    command.args(tool).arg("--sparse=always").arg(&source).arg(&copy);
                    assert!(command.status().unwrap().success());
                    assert_eq!(fs::read(&copy).unwrap(), bytes);
                    copy.metadata().unwrap().blocks()
                },
            );
        assert_eq!(copies[0], copies[1], "{data} bytes, {zeros} zeros: blocks of GNU cp and ours");
    }
}
