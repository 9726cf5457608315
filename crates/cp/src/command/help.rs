//! What `--help` and `--version` print.

/// The help: what people do most, then GNU cp's options, then the others. A description begins in
/// column 32, and no line is longer than 80 columns.
pub const HELP: &str = "\
Usage: cp SOURCE DEST             copy a file
  or:  cp -a SOURCE DEST          copy a tree with its attributes
  or:  cp -r SOURCE... DIRECTORY  copy files and trees into DIRECTORY
Options may come anywhere: cp [OPTION]... [-T] SOURCE DEST,
cp [OPTION]... SOURCE... DIRECTORY, cp [OPTION]... -t DIRECTORY SOURCE...

GNU cp's options, with GNU cp's meaning:
  -a, --archive                 as -dR --preserve=all
      --attributes-only         copy attributes and no data
      --backup[=CONTROL]        rename each destination before it is replaced
  -b                            as --backup, without a value
      --copy-contents           with -R, read fifos and devices instead of
                                making them
  -d                            as --no-dereference --preserve=links
      --debug                   print which way each file's data goes, and why
  -f, --force                   remove a destination that cannot be opened, and
                                try again
  -i, --interactive             ask before overwriting (a later -n wins)
  -H                            follow symbolic links among the SOURCEs
  -l, --link                    make hard links
  -L, --dereference             follow all symbolic links
  -n, --no-clobber              keep what exists (a later -i wins)
  -P, --no-dereference          follow no symbolic links
  -p                            as --preserve=mode,ownership,timestamps
      --preserve[=LIST]         keep attributes: mode, ownership, timestamps,
                                context, links, xattr, all
      --no-preserve=LIST        do not keep them
      --parents                 make the directories of SOURCE's path in
                                DIRECTORY
  -R, -r, --recursive           copy directories with what is in them
      --reflink[=WHEN]          share blocks with the source: auto (the
                                default), always (the default for --reflink),
                                never
      --remove-destination      remove what exists before copying
      --sparse=WHEN             make holes: auto (as the source has them),
                                always (for zeros), never
      --strip-trailing-slashes  remove slashes at the end of each SOURCE
  -s, --symbolic-link           make symbolic links
  -S, --suffix=SUFFIX           end the names of backups with SUFFIX
  -t, --target-directory=DIR    copy into DIR
  -T, --no-target-directory     do not copy into DEST if it is a directory
  -u, --update[=WHEN]           replace what exists: all, none, none-fail (an
                                error), older (the default for --update)
  -v, --verbose                 print each name that is copied
  -x, --one-file-system         stay on the file systems of the SOURCEs
  -Z, --context[=CTX]           accept and ignore: for SELinux
      --help                    print this
      --version                 print the version

Beyond GNU cp:
      --atomic                  give each regular file its name when it is
                                whole: if the run ends early, the name leads to
                                the old file or to the new one. Other hard links
                                to a replaced file keep the old content
      --durable                 return when all is on stable storage, or with an
                                error
      --verify                  read each copy back and compare it with what was
                                read from its source
      --resume                  leave files that are there with the same
                                content, set their attributes, and copy the
                                others
      --progress[=WHEN]         show files, bytes, rate and time left: auto (on
                                a terminal; the default for --progress), always,
                                never
      --json                    print events as JSON, an object a line
                                (docs/reference/schema/cp-1.json)
      --jobs=N                  copy with at most N threads (1 to 256; without
                                it the processors, at most 4, and up to 6 that
                                wait for a device)
      --engine=ENGINE           auto, uring (an error if there is no ring), sync
      --depth=N                 blocks in flight on the ring (1 to 4096; 64)
      --block=SIZE              bytes of a block (1k to 32m, powers of 1024;
                                256k)
      --plan                    another name of --debug

CONTROL is none (off), numbered (t), existing (nil): numbered if there are
numbered ones, or simple (never). Without it VERSION_CONTROL decides, or it is
existing. SUFFIX is that of SIMPLE_BACKUP_SUFFIX, or ~. The exit status is 1 if
something could not be copied.
";

/// The name and version.
pub(crate) fn version() -> String {
    format!("cp (ringwise) {}\n", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_help_fits_a_terminal() {
        let long: Vec<&str> =
            super::HELP.lines().filter(|line| line.chars().count() > 80).collect();
        assert_eq!(long, [""; 0]);
    }
}
