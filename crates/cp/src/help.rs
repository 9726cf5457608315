//! What `--help` and `--version` print.

/// The help: GNU cp's flags in our words, then what is ours.
pub(crate) const HELP: &str = "\
Usage: cp [OPTION]... [-T] SOURCE DEST
  or:  cp [OPTION]... SOURCE... DIRECTORY
  or:  cp [OPTION]... -t DIRECTORY SOURCE...
Copies SOURCE to DEST, or each SOURCE into DIRECTORY, with many files in flight.

GNU cp's options, with GNU cp's meaning:
  -a, --archive                 as -dR --preserve=all
      --attributes-only         copy attributes and no data
      --backup[=CONTROL]        keep each destination that is replaced under another name
  -b                            as --backup, without a value
      --copy-contents           with -R, read fifos and devices instead of making them
  -d                            as --no-dereference --preserve=links
      --debug                   print for each file which way its data went and why
  -f, --force                   remove a destination that cannot be opened, and try again
  -i, --interactive             ask before overwriting (a later -n wins)
  -H                            follow symbolic links among the SOURCEs
  -l, --link                    make hard links
  -L, --dereference             follow all symbolic links
  -n, --no-clobber              keep what exists (a later -i wins)
  -P, --no-dereference          follow no symbolic links
  -p                            as --preserve=mode,ownership,timestamps
      --preserve[=LIST]         keep attributes: mode, ownership, timestamps, context, links,
                                xattr, all
      --no-preserve=LIST        do not keep them
      --parents                 make the directories of SOURCE's path in DIRECTORY
  -R, -r, --recursive           copy directories with what is in them
      --reflink[=WHEN]          share blocks with the source: auto (if not given), always (if
                                given without WHEN), never
      --remove-destination      remove what exists before copying
      --sparse=WHEN             make holes: auto (as the source has them), always (for zeros),
                                never
      --strip-trailing-slashes  remove slashes at the end of each SOURCE
  -s, --symbolic-link           make symbolic links
  -S, --suffix=SUFFIX           the end of a backup's name
  -t, --target-directory=DIR    copy into DIR
  -T, --no-target-directory     DEST is no directory to copy into
  -u, --update[=WHEN]           replace what exists: all, none, none-fail (an error), older (if
                                given without WHEN)
  -v, --verbose                 print what is done
  -x, --one-file-system         stay on the file systems of the SOURCEs
  -Z, --context[=CTX]           taken and without effect: for SELinux
      --help                    print this
      --version                 print the version

Beyond GNU cp:
      --engine=ENGINE           auto, uring (an error where there is no ring), sync
      --jobs=N                  threads that copy what goes by system calls
      --depth=N                 blocks in flight on the ring
      --block=SIZE              bytes of a block (k and m are powers of 1024)
      --plan                    another name of --debug
      --atomic                  give each regular file its name when it is whole: whatever ends the
                                run, the name leads to the old file or to the new one. Other
                                hard links to a replaced file keep the old content
      --json                    print what happens as JSON, an object a line (docs/schema/cp-1.json)
      --progress[=WHEN]         show files, bytes, rate and time left: auto (on a terminal; if given
                                without WHEN), always, never
      --resume                  leave files that are there with the same content as they are, but for
                                their attributes, and copy the others
      --durable                 end when all is on stable storage, or with an error
      --verify                  read each copy back and compare it with what was read from its
                                source

CONTROL is none (off), numbered (t), existing (nil): numbered where there are numbered ones, or
simple (never); without it VERSION_CONTROL says, or it is existing. SUFFIX is that of
SIMPLE_BACKUP_SUFFIX, or ~. Exit status 1: something could not be copied.
";

/// The name and version.
pub(crate) fn version() -> String {
    format!("cp (ringwise) {}\n", env!("CARGO_PKG_VERSION"))
}
