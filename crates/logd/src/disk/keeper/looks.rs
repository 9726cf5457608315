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

    /// Looks once: removes what has expired, tells what is to be uploaded, and packs.
    pub(crate) fn look(&mut self) {
        for one in self.work.look().unwrap() {
            self.work.pack(&one);
        }
    }
}

/// A crash between removing the lines and the record left it for ever, if the index stayed.
#[test]
fn a_record_without_lines_goes() {
    let directory = tempfile::tempdir().unwrap();
    let stream = Stream { content: Content::Lines, number: 0 };
    let path = |serial, part| directory.path().join(stream.file(serial, part));
    for (serial, part) in [(0, Part::Index), (1, Part::Data), (2, Part::Packed)] {
        File::create(path(serial, part)).unwrap();
        File::create(path(serial, Part::Uploaded)).unwrap();
    }
    let looks = Looks::new(directory.path(), Copies::default(), Care::default());
    let found = looks.work.find().unwrap();
    let is_uploaded: Vec<_> = found.values().map(|files| files.is_uploaded).collect();
    assert_eq!(is_uploaded, [false, true, true]);
    let records = [0, 1, 2].map(|serial| path(serial, Part::Uploaded).exists());
    assert_eq!(records, [false, true, true]);
}
