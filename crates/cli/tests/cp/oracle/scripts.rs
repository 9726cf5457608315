//! Cases that random trees seldom meet: the same file by many names, loops, odd destinations,
//! backups, prompts, and what is wrong with a command line. Each on every engine.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use crate::oracle::{
    machine::{self, Setting, Which},
    outcome, same, scene,
};

/// A little world with one of each.
fn build(at: &Path) {
    let write = |name: &str, text: &str| fs::write(at.join(name), text).unwrap();
    write("a", "content of a\n");
    write("b", "b\n");
    write("it's", "");
    write("a~", "an older a\n");
    fs::hard_link(at.join("a"), at.join("hard")).unwrap();
    for (to, name) in [
        ("a", "link"),
        ("nowhere", "dangling"),
        ("loop", "loop"),
        ("dir", "dirlink"),
        ("a", "link2"),
    ] {
        symlink(to, at.join(name)).unwrap();
    }
    fs::create_dir_all(at.join("dir/sub/deep")).unwrap();
    write("dir/a", "another a\n");
    write("dir/sub/f", "f\n");
    symlink("../..", at.join("dir/sub/up")).unwrap();
    symlink("f", at.join("dir/sub/l")).unwrap();
    fs::create_dir(at.join("dir/closed")).unwrap();
    write("dir/closed/f", "f\n");
    fs::set_permissions(at.join("dir/closed"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::hard_link(at.join("dir/sub/f"), at.join("dir/sub/g")).unwrap();
    fs::create_dir(at.join("odd")).unwrap();
    symlink("f", at.join("odd/l")).unwrap();
    fs::create_dir_all(at.join("other/odd")).unwrap();
    write("other/odd/l", "no link\n");
    fs::create_dir(at.join("round")).unwrap();
    symlink(".", at.join("round/self")).unwrap();
    write("round/f", "f\n");
    if machine::is_root() {
        std::os::unix::fs::lchown(at.join("it's"), Some(1), Some(1)).unwrap();
    }
    fs::create_dir(at.join("empty")).unwrap();
    fs::create_dir_all(at.join("other")).unwrap();
    fs::create_dir(at.join("other/a")).unwrap();
    write("other/dir", "no directory\n");
    write("readonly", "keep\n");
    fs::set_permissions(at.join("readonly"), fs::Permissions::from_mode(0o444)).unwrap();
    write("numbered", "3\n");
    write("numbered.~1~", "1\n");
    write("numbered.~12~", "2\n");
    for name in ["a", "b", "a~", "numbered", "readonly", "dir/a"] {
        let file = fs::File::options().read(true).open(at.join(name)).unwrap();
        let age = if name == "b" { 1_200_000_000 } else { 1_300_000_000 };
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(age);
        file.set_modified(time).unwrap();
    }
}

/// Command lines, a line each; words are separated by blanks and `''` is an empty one.
const COMMANDS: &str = "
a a
a ./a
a hard
-f a hard
-f a a
--remove-destination a a
--remove-destination a hard
a link
link a
-P link a
-P a link
-P link link2
-Pf link link2
-d link link
-a link new
-L link new
-l a hard
-l a new
-l a b
-lf a b
-li a b
-l link new
-lP link new
-l dangling new
-s a new
-s a b
-sf a b
-s a empty/new
-s a link
-rs dir new
-ps it's new
-as it's new
-s nowhere new
-b a a
-bf a a
-b a b
-vb a b
-vb --backup=numbered a numbered
-vb --backup=existing a numbered
-vb --backup=simple a numbered
-b a~ a
-b a a~
-vb -S .old a b
-vb -S / a b
-b link a
-b a link
-bP link a
-n a b
-vn a b
-i a b
-vi a b dir/sub/f empty/
-if a readonly
-i a readonly
-i --remove-destination a readonly
-u a b
-uv b a
-au dir/a dir/. empty
-aLu b link dir/. round
-u a new
-uv -p a b
dangling new
-P dangling new
a dangling
-f a dangling
--remove-destination a dangling
-b a dangling
a loop
-f a loop
loop new
-P loop new
-R dir new
-R dir empty
-R dir/ empty
-R dir/. empty
-RT dir empty
-RT dir new
-RT dir a
-R dir other
-R other/a a
-R a b dir other
a b empty
a dir/a empty
-v a a empty
-v a ./a empty
-b a dir/a empty/
a b new
a b nowhere/
a new/
a dir/
-T a dir
-rT a dir
dir new
-R dir dir
-R dir dir/sub
-R dir dir/new
-R . dir/sub
-R . new
-R .. empty
-R dir dir empty
-R dir dir/ ./dir empty
-R dir/sub dir empty
-RL round round/ empty
-RL round round/self empty
-a dir empty
-a dir new
-a dirlink new
-a dirlink/ new
-RH dirlink new
-RHv dirlink dir/sub/l new
-RHv dirlink dir/sub/l empty
-dR link dangling dirlink empty
-a dir/sub/f dir/sub/g empty
-a a hard empty
-p a hard empty
-d a hard empty
-rlP dir new
-al dir new
--parents dir/sub/f empty
-v --parents dir/sub/f dir/a empty
-vp --parents dir/sub/f empty
-va --parents dir/sub empty
--parents -R dir/sub/ empty
--parents a new
--parents ./dir//sub/f empty
--parents dirlink/a empty
--parents a/x empty
--parents dir/a other
-R --parents dir/../dir empty/.
-a --parents dir/a .
--no-preserve=mode --parents dir/closed/f empty
--parents dir/closed/f empty
-ps it's nowhere/new
-R a round dir/. empty
-R dir/a dir/. empty
-RH round other
-RH odd other
-R --parents dir/../dir/sub empty
-t empty a b
-t empty
-t a b
-t new a
-t empty -T a
-t empty -t dir a
-T a b it's
-T a
--strip-trailing-slashes -P dirlink/ empty
--strip-trailing-slashes a/ new
a/ new
''
'' new
a ''
-R '' new
missing new
missing a empty
--attributes-only a new
--attributes-only a b
--attributes-only -p b a
-v readonly b
-p readonly new
--no-preserve=mode readonly new
--no-preserve=mode -R dir new
--preserve=mode readonly b
--preserve=timestamps b new
--preserve=all b new
--preserve=foo b new
--preserve=mode,xx b new
--preserve= b new
--preserve=context b new
--context=x b new
-Z b new
--sparse=x a new
--sparse=al a new
--sparse a
--reflink=always --sparse=never a new
--reflink=xx a new
--backup=x a b
--backup=no -v a b
--backup=t -v a b
-bn a b
-ls a b
-y a b
--nothing a b
--re a b
--no a b
--archive=x a b
-S
a
-x -R dir new
-R --copy-contents dir new
-v it's new
-vf readonly a/new
a other
-R dir/sub other/dir
a b other/dir
-r a dir/sub/deep empty --verb
/dev/null new
-r /dev/null new
";

/// On the engine of this place in the list, where it can run.
fn commands_do_what_gnus_do(place: usize) {
    let engine = machine::ENGINES[place];
    if !machine::has_oracle() || !machine::engines().contains(&engine) {
        return;
    }
    for line in COMMANDS.lines().filter(|line| !line.is_empty()) {
        let words = words(line);
        // /dev/null comes from a file system that only root can make devices on.
        if line.starts_with("-r /dev/null") && !machine::is_root() {
            continue;
        }
        let setting = Setting { input: "y\nn\ny\n".into(), ..Setting::default() };
        compare(engine, &words, &setting, &build);
    }
}

#[test]
fn commands_do_what_gnus_do_on_the_first_engine() {
    commands_do_what_gnus_do(0);
}

#[test]
fn commands_do_what_gnus_do_on_the_second_engine() {
    commands_do_what_gnus_do(1);
}

#[test]
fn commands_do_what_gnus_do_on_the_third_engine() {
    commands_do_what_gnus_do(2);
    assert_eq!(machine::ENGINES.len(), 3, "a test for each engine");
}

#[test]
fn the_environment_has_its_say() {
    if !machine::has_oracle() {
        return;
    }
    for (environment, line) in [
        (("VERSION_CONTROL", "numbered"), "-vb a b"),
        (("VERSION_CONTROL", "x"), "-vb a b"),
        (("SIMPLE_BACKUP_SUFFIX", ".env"), "-vb a b"),
        (("POSIXLY_CORRECT", "1"), "a dangling"),
        (("POSIXLY_CORRECT", "1"), "a -v"),
    ] {
        let setting = Setting { environment: vec![environment], ..Setting::default() };
        compare("--engine=auto", &words(line), &setting, &build);
    }
}

/// Where a directory cannot be read, searched or written.
#[test]
fn what_is_not_permitted_is_said_and_the_rest_is_copied() {
    if !machine::has_oracle() {
        return;
    }
    if !machine::is_root() {
        return machine::skip("only root can make files that another cannot read");
    }
    let build = |at: &Path| {
        let mode = |name: &str, mode| {
            fs::set_permissions(at.join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        for name in ["s", "s/closed", "s/blind", "s/open", "d", "d/s", "d/s/open"] {
            fs::create_dir(at.join(name)).unwrap();
        }
        for name in ["s/closed/f", "s/blind/f", "s/open/f", "s/secret", "d/s/open/f"] {
            fs::write(at.join(name), name).unwrap();
        }
        mode("d", 0o777);
        mode("d/s", 0o777);
        mode("d/s/open", 0o777);
        mode("d/s/open/f", 0o600);
        mode("s/secret", 0o600);
        mode("s/closed", 0o700);
        mode("s/blind", 0o744);
    };
    for engine in machine::engines() {
        for line in
            ["-r s d", "-rf s d", "-a s d", "-rl s d", "-r s new", "-ri s d", "-p s/secret d"]
        {
            let input = "y\n".repeat(5);
            let setting = Setting { as_nobody: true, input, ..Setting::default() };
            compare(engine, &words(line), &setting, &build);
        }
    }
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(|word| if word == "''" { String::new() } else { word.to_owned() }).collect()
}

fn compare(engine: &'static str, words: &[String], setting: &Setting, build: &dyn Fn(&Path)) {
    let (one, other) = (scene(), scene());
    // A directory above that has nothing else in it, for `..`.
    let (one, other) = (one.path().join("world"), other.path().join("world"));
    for world in [&one, &other] {
        fs::create_dir(world).unwrap();
        fs::set_permissions(world, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let mut gnu = outcome(Which::Gnu, &one, words, setting, build);
    let mut ours = outcome(Which::Ours(engine), &other, words, setting, build);
    // The two worlds have inodes, and so an order, of their own.
    for text in [&mut gnu.ran.out, &mut gnu.ran.err, &mut ours.ran.out, &mut ours.ran.err] {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        *text = lines.join("\n");
    }
    if gnu.ran.err.contains("into itself") {
        // How much was copied by then, and what was said of it, depends on where the new inode lies
        // among the others.
        for outcome in [&mut gnu, &mut ours] {
            outcome.files.clear();
            let lines = outcome.ran.err.lines().filter(|line| line.contains("into itself"));
            outcome.ran.err = lines.collect::<Vec<_>>().join("\n");
        }
    }
    same(&format!("{engine} {words:?} {setting:?}"), &gnu, &ours);
}
