//! Which files each thread reads, and on which processor: threads take the directories in turn, and those of a
//! directory share its files.

use std::sync::Arc;

use crate::{dataset::DataFile, engine::crew::Share};

/// The files of a directory.
#[derive(Clone, Debug)]
pub struct Place {
    /// The files, all of one length.
    pub files: Vec<DataFile>,
    /// The seed of their content, another one in each directory.
    pub seed: u64,
}

/// The shares of `threads` threads. Thread i reads in directory i modulo their number, and runs on processor i modulo
/// theirs.
pub fn shares(places: &[Place], threads: usize, processors: &[usize]) -> Vec<Share> {
    let of_thread = |thread: usize| {
        let at = thread % places.len();
        let place = &places[at];
        let (rank, count) = (thread / places.len(), (threads - at).div_ceil(places.len()));
        Share {
            files: files(&place.files, rank, count),
            seed: place.seed,
            processor: processors.get(thread % processors.len().max(1)).copied(),
        }
    };
    (0..threads).map(of_thread).collect()
}

/// Every `count`th file, from `rank` on. Threads share files only if there are too few.
fn files(all: &[DataFile], rank: usize, count: usize) -> Arc<[DataFile]> {
    match all.len() < count {
        true => [all[rank % all.len()].clone()].into(),
        false => all.iter().skip(rank).step_by(count).cloned().collect(),
    }
}

/// All files of which one is in a share.
pub fn used(shares: &[Share]) -> Arc<[DataFile]> {
    let mut all: Vec<DataFile> = Vec::new();
    for file in shares.iter().flat_map(|share| share.files.iter()) {
        if !all.contains(file) {
            all.push(file.clone());
        }
    }
    all.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(counts: &[u64]) -> Vec<Place> {
        let place = |(at, &count): (usize, &u64)| {
            let path = format!("/{at}");
            let file = |number| DataFile { path: path.clone().into(), number, bytes: 4096 };
            Place { files: (0..count).map(file).collect(), seed: 10 + at as u64 }
        };
        counts.iter().enumerate().map(place).collect()
    }

    /// Each thread's directory with the numbers of its files.
    fn spread(counts: &[u64], threads: usize) -> Vec<String> {
        let shares = shares(&places(counts), threads, &[0, 1]);
        let text = |share: &Share| {
            let numbers: Vec<u64> = share.files.iter().map(|file| file.number).collect();
            assert_eq!(share.files[0].path, std::path::Path::new(&format!("/{}", share.seed - 10)));
            format!("{} {numbers:?}", share.seed - 10)
        };
        shares.iter().map(text).collect()
    }

    #[test]
    fn threads_take_the_directories_in_turn_and_share_their_files() {
        assert_eq!(spread(&[4], 1), ["0 [0, 1, 2, 3]"]);
        assert_eq!(spread(&[4], 3), ["0 [0, 3]", "0 [1]", "0 [2]"]);
        assert_eq!(spread(&[2, 2, 2], 1), ["0 [0, 1]"]);
        assert_eq!(spread(&[2, 2, 2], 4), ["0 [0]", "1 [0, 1]", "2 [0, 1]", "0 [1]"]);
        assert_eq!(spread(&[1, 2], 4), ["0 [0]", "1 [0]", "0 [0]", "1 [1]"], "too few files");
    }

    #[test]
    fn all_files_of_a_directory_are_read_by_any_number_of_its_threads() {
        for threads in 1..=8 {
            let shares = shares(&places(&[8]), threads, &[]);
            let read: usize = shares.iter().map(|share| share.files.len()).sum();
            assert_eq!((read, used(&shares).len()), (8, 8), "{threads} threads");
            assert!(shares.iter().all(|share| share.processor.is_none()));
        }
    }

    #[test]
    fn processors_are_taken_in_turn() {
        let shares = shares(&places(&[4]), 5, &[3, 7]);
        let processors: Vec<usize> = shares.iter().filter_map(|share| share.processor).collect();
        assert_eq!(processors, [3, 7, 3, 7, 3]);
    }
}
