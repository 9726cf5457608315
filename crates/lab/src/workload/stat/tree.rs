//! Many small files in one directory, for their metadata. Their content is of no account: each has
//! a length of its own, without a block on the disk, by which it is known again.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use crate::{
    dataset::{DataFile, Directory},
    error::LabError,
};

/// The name of the directory within the lab's.
const NAME: &str = "stat";

/// The files, removed when this is dropped.
#[derive(Debug)]
pub struct Tree {
    path: PathBuf,
    /// The files, by number; each is one byte longer than the one before.
    pub files: Vec<DataFile>,
}

impl Tree {
    /// Makes `count` files. `progress` is told each; where it answers `false`, it ends with
    /// [`LabError::Interrupted`]. What an earlier run has left is removed first.
    ///
    /// # Errors
    ///
    /// What making a directory or a file reports; something there that is not the lab's.
    pub fn make(
        directory: &Directory,
        count: u64,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Tree, LabError> {
        let path = directory.path().join(NAME);
        sweep(&path)?;
        fs::create_dir(&path).map_err(|error| LabError::on("creating", &path, &error))?;
        let mut tree = Tree { path, files: Vec::new() };
        for number in 0..count {
            let file = DataFile { path: file_path(&tree.path, number), number, bytes: number + 1 };
            let made = File::create_new(&file.path).and_then(|made| made.set_len(file.bytes));
            let made = made.map_err(|error| LabError::on("creating", &file.path, &error));
            tree.files.push(file);
            made?;
            if !progress(1) {
                return Err(LabError::Interrupted);
            }
        }
        Ok(tree)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let files = self.files.iter().try_for_each(|file| match fs::remove_file(&file.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        });
        if let Err(error) = files.and_then(|()| fs::remove_dir(&self.path)) {
            crate::error::tell_left(&self.path, &error);
        }
    }
}

fn file_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:06}"))
}

/// Removes what a run that was killed has left: files with the name and the length of ours.
fn sweep(path: &Path) -> Result<(), LabError> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|error| LabError::on("reading", path, &error))?,
    };
    for entry in entries {
        let entry = entry.map_err(|error| LabError::on("reading", path, &error))?.path();
        let number = entry.file_name().and_then(|name| name.to_str()?.parse::<u64>().ok());
        let found = fs::symlink_metadata(&entry);
        let is_own = number.is_some_and(|number| {
            // One that was made and not yet given its length is ours too.
            let lengths = [0, number + 1];
            entry == file_path(path, number)
                && found.is_ok_and(|found| found.is_file() && lengths.contains(&found.len()))
        });
        if !is_own {
            let text = format!("{} is not the lab's: move it away", entry.display());
            return Err(LabError::Failed(text));
        }
        fs::remove_file(&entry).map_err(|error| LabError::on("removing", &entry, &error))?;
    }
    fs::remove_dir(path).map_err(|error| LabError::on("removing", path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_go_with_the_tree_and_what_a_kill_left_goes_with_the_next() {
        let parent = tempfile::tempdir().unwrap();
        let directory = Directory::open(parent.path(), false).unwrap();
        let tree = Tree::make(&directory, 5, &mut |_| true).unwrap();
        assert_eq!(fs::metadata(&tree.files[4].path).unwrap().len(), 5);
        let left = fs::read_dir(&tree.path).unwrap().count();
        assert_eq!(left, 5);
        std::mem::forget(tree);
        drop(Tree::make(&directory, 2, &mut |_| true).unwrap());
        assert!(!directory.path().join(NAME).exists());
    }

    #[test]
    fn a_file_of_the_user_is_left() {
        let parent = tempfile::tempdir().unwrap();
        let directory = Directory::open(parent.path(), false).unwrap();
        for name in ["thesis.txt", "000003"] {
            fs::create_dir(directory.path().join(NAME)).unwrap();
            let mine = directory.path().join(NAME).join(name);
            fs::write(&mine, "precious").unwrap();
            let error = Tree::make(&directory, 5, &mut |_| true).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("move it away"), "{error}");
            assert_eq!(fs::read(&mine).unwrap(), b"precious");
            fs::remove_dir_all(directory.path().join(NAME)).unwrap();
        }
    }

    #[test]
    fn an_interrupt_leaves_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let directory = Directory::open(parent.path(), false).unwrap();
        let mut left = 3;
        let made = Tree::make(&directory, 5, &mut |_| {
            left -= 1;
            left > 0
        });
        assert!(matches!(made, Err(LabError::Interrupted)));
        assert!(!directory.path().join(NAME).exists());
    }
}
