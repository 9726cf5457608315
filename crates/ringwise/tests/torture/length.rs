//! The length of a file that is cut and lengthened, also by futures that nobody waits for.

use std::collections::BTreeSet;

use ringwise::{AllocateMode, fs::File};

use crate::fate::Fate;

pub struct Length {
    file: File,
    /// What it may be while something is under way that nobody waits for.
    possible: BTreeSet<u64>,
}

impl Length {
    pub fn new(file: File) -> Length {
        Length { file, possible: BTreeSet::from([0]) }
    }

    pub async fn change(&mut self, random: &mut fastrand::Rng) {
        let (fate, len) = (Fate::draw_held(random), random.u64(..20_000));
        let file = &self.file;
        let (done, changed): (_, BTreeSet<u64>) = match random.u8(..3) {
            0 => (fate.befall(file.set_len(len)).await, BTreeSet::from([len])),
            1 => {
                let extend = file.allocate(AllocateMode::Extend, 0, len + 1);
                let extended = self.possible.iter().map(|before| (len + 1).max(*before));
                (fate.befall(extend).await, extended.collect())
            }
            _ => {
                let keep = file.allocate(AllocateMode::KeepSize, 0, len + 1);
                (fate.befall(keep).await, self.possible.clone())
            }
        };
        match done {
            Some(result) => {
                result.unwrap();
                self.possible = changed;
            }
            None => self.possible.extend(changed),
        }
    }

    /// Nothing is under way any more.
    pub async fn settle(&mut self) {
        self.file.settled().await.unwrap();
        let len = self.file.metadata().await.unwrap().len();
        assert!(self.possible.contains(&len), "{len} is not one of {:?}", self.possible);
        self.possible = BTreeSet::from([len]);
    }
}
