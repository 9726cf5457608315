//! Which block comes next, for one lane.

use fastrand::Rng;

use crate::sampling::job::{Cache, Job, Pattern, Request};

/// The order in which one lane reads blocks.
#[derive(Debug)]
pub struct Accesses {
    order: Order,
    blocks_per_file: u64,
    block_bytes: u64,
}

#[derive(Debug)]
enum Order {
    /// Round and round from where the lane begins, for all time or once through its share.
    Sequential { next: u64, blocks: u64, left: Option<u64> },
    /// Any block, with replacement.
    Random { random: Rng, blocks: u64 },
    /// Each block of the lane's share once, in random order.
    Shuffled { blocks: Vec<u64> },
}

impl Accesses {
    /// The share of one of `lanes` lanes. Sequential lanes begin at equal distances.
    pub fn new(job: &Job, lane: usize, lanes: usize) -> Accesses {
        let blocks = job.blocks();
        let share = |lane: usize| (blocks as u128 * lane as u128 / lanes as u128) as u64;
        let (first, end) = (share(lane), share(lane + 1));
        let once = job.cache == Cache::Cold;
        let mut random = Rng::with_seed(job.order_seed ^ (lane as u64).wrapping_mul(0x9e37_79b9));
        let order = match job.pattern {
            Pattern::Sequential => {
                Order::Sequential { next: first, blocks, left: once.then_some(end - first) }
            }
            Pattern::Random if once => {
                let mut blocks: Vec<u64> = (first..end).collect();
                random.shuffle(&mut blocks);
                Order::Shuffled { blocks }
            }
            Pattern::Random => Order::Random { random, blocks },
        };
        Accesses {
            order,
            blocks_per_file: job.blocks_per_file(),
            block_bytes: job.block_bytes as u64,
        }
    }

    /// The next block; none where each was to be read once and has been.
    #[inline]
    pub fn next(&mut self) -> Option<Request> {
        let block = match &mut self.order {
            Order::Sequential { next, blocks, left } => {
                if let Some(left) = left {
                    *left = left.checked_sub(1)?;
                }
                let block = *next;
                *next = if block + 1 == *blocks { 0 } else { block + 1 };
                block
            }
            Order::Random { random, blocks } => random.u64(..*blocks),
            Order::Shuffled { blocks } => blocks.pop()?,
        };
        // One file is the usual case, and a division is not free at a million a second.
        let (file, within) = if block < self.blocks_per_file {
            (0, block)
        } else {
            ((block / self.blocks_per_file) as usize, block % self.blocks_per_file)
        };
        Some(Request { file, offset: within * self.block_bytes })
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, sync::Arc};

    use super::*;
    use crate::{dataset::DataFile, sampling::lane::Record};

    fn job(pattern: Pattern, cache: Cache) -> Job {
        let file = |number| DataFile { path: "f".into(), number, bytes: 40960 };
        Job {
            files: (0..3).map(file).collect(),
            seed: 1,
            block_bytes: 4096,
            depth: 1,
            pattern,
            cache,
            order_seed: 1,
            heatmap: false,
            interrupt: Arc::default(),
            failed: false.into(),
            latency: Record::default(),
        }
    }

    #[test]
    fn sequential_goes_round() {
        let mut accesses = Accesses::new(&job(Pattern::Sequential, Cache::Warm), 1, 2);
        let requests: Vec<Request> = (0..30).map(|_| accesses.next().unwrap()).collect();
        assert_eq!(requests[0], Request { file: 1, offset: 5 * 4096 });
        assert_eq!(requests[14], Request { file: 2, offset: 9 * 4096 });
        assert_eq!(requests[15], Request { file: 0, offset: 0 });
        let different: HashSet<_> = requests.iter().map(|r| (r.file, r.offset)).collect();
        assert_eq!(different.len(), 30);
    }

    #[test]
    fn cold_reads_each_block_once_over_all_lanes() {
        for pattern in [Pattern::Sequential, Pattern::Random] {
            let job = job(pattern, Cache::Cold);
            let mut seen = Vec::new();
            for lane in 0..4 {
                let mut accesses = Accesses::new(&job, lane, 4);
                while let Some(request) = accesses.next() {
                    seen.push((request.file, request.offset));
                }
            }
            assert_eq!(seen.len(), 30);
            assert_eq!(seen.into_iter().collect::<HashSet<_>>().len(), 30);
        }
    }

    #[test]
    fn random_reaches_all_and_lanes_differ() {
        let job = job(Pattern::Random, Cache::Bypassed);
        let take = |lane| {
            let mut accesses = Accesses::new(&job, lane, 2);
            (0..500).map(|_| accesses.next().unwrap()).collect::<Vec<_>>()
        };
        let first = take(0);
        assert_eq!(first.iter().map(|r| (r.file, r.offset)).collect::<HashSet<_>>().len(), 30);
        assert_ne!(first, take(1));
        assert_eq!(first, take(0));
    }
}
