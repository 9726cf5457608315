//! A keeper without its thread, for tests that decide when it looks.

use super::*;
use crate::live::Care;

pub(crate) struct Looks {
    work: Work,
    /// Without it the keeper would have to end.
    _tray: Tray,
}

impl Looks {
    pub(crate) fn new(directory: &Path, copies: Copies, care: Care) -> Looks {
        let local = || Local::builder().backend(BackendChoice::Classic).build().unwrap();
        let (tray, asked) = Tray::new();
        let (later, result, has_ended) = (Vec::new(), Ok(()), false);
        let mut live = crate::args::parse("").unwrap().decide(None).unwrap().live;
        live.care = care;
        live.segments.min_free = 0;
        let work = Work {
            seals: Seals { asked, local: local(), later, result, has_ended },
            local: local(),
            directory: directory.to_owned(),
            live: Arc::new(Mutex::new(live)),
            tenants: Arc::new(Tenants::new(&[])),
            names: Arc::default(),
            copies,
            must_end: Arc::default(),
            ends: HashMap::new(),
            resting: HashMap::new(),
            clock: Clock::new(now_ms()),
            begin: Instant::now(),
        };
        Looks { work, _tray: tray }
    }

    /// Looks for segments and changes none.
    pub(super) fn find(&self) -> BTreeMap<(Stream, u64), Files> {
        self.work.find().unwrap()
    }

    /// Looks once: removes what has expired, tells what is to be uploaded, and packs.
    pub(crate) fn look(&mut self) {
        for one in self.work.look().unwrap() {
            self.work.pack(&one);
        }
    }
}
