//! How many clients read lines on the status page at a time, and the figures of them. It reads nothing.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use super::access::Denied;

/// Live views at a time.
pub(super) const LIVE_MAX: u64 = 8;
/// Searches at a time.
pub(super) const SEARCHES_MAX: u64 = 2;

/// The clients that read lines.
#[derive(Debug, Default)]
pub(super) struct Readers {
    pub(super) live: Kind,
    pub(super) searches: Kind,
    /// Lines that live views left out.
    pub(super) left_out_lines: AtomicU64,
    /// Searches that ended at a limit.
    pub(super) cut_searches: AtomicU64,
    /// Clients that may not read, by the reason.
    denied: [AtomicU64; Denied::ALL.len()],
}

/// The clients that read in one way.
#[derive(Debug, Default)]
pub(super) struct Kind {
    now: Arc<AtomicU64>,
    all: AtomicU64,
    refused: AtomicU64,
}

/// A client's place among them, until it is dropped.
pub(super) struct Place(Arc<AtomicU64>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Kind {
    /// Takes a place, if there is one.
    pub(super) fn enter(&self, places_max: u64) -> Option<Place> {
        let before = self.now.fetch_add(1, Relaxed);
        let place = Place(self.now.clone());
        let has_place = before < places_max;
        if has_place { &self.all } else { &self.refused }.fetch_add(1, Relaxed);
        has_place.then_some(place)
    }
}

impl Readers {
    pub(super) fn deny(&self, denied: Denied) {
        self.denied[denied as usize].fetch_add(1, Relaxed);
    }

    /// The figures: the name, the kind, the help text and the value of each.
    pub(super) fn figures(&self) -> [(&'static str, &'static str, &'static str, u64); 8] {
        let Readers { live, searches, left_out_lines, cut_searches, .. } = self;
        let figures = [
            ("live_clients", "gauge", "Clients that follow lines on the status page", &*live.now),
            ("live_clients_total", "counter", "Clients that began to follow lines", &live.all),
            ("live_refused_total", "counter", "Clients that found no place there", &live.refused),
            ("live_left_out_lines_total", "counter", "Lines left out for them", left_out_lines),
            ("searches", "gauge", "Searches of the status page that run", &*searches.now),
            ("searches_total", "counter", "Searches that began", &searches.all),
            (
                "searches_refused_total",
                "counter",
                "Searches that found no place",
                &searches.refused,
            ),
            ("searches_cut_total", "counter", "Searches that ended at a limit", cut_searches),
        ];
        figures.map(|(name, kind, help, value)| (name, kind, help, value.load(Relaxed)))
    }

    /// How many requests were denied, by the reason.
    pub(super) fn denials(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.denied.iter().map(|count| count.load(Relaxed));
        Denied::ALL.into_iter().map(Denied::word).zip(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_when_its_client_has_gone() {
        let kind = Kind::default();
        let places: Vec<_> = (0..3).map(|_| kind.enter(2)).collect();
        assert_eq!(places.iter().flatten().count(), 2);
        drop(places);
        assert!(kind.enter(2).is_some());
        let counts = [&kind.now, &kind.all, &kind.refused].map(|count| count.load(Relaxed));
        assert_eq!(counts, [0, 3, 1]);
    }

    #[test]
    fn each_reason_has_its_own_count() {
        for (place, denied) in Denied::ALL.into_iter().enumerate() {
            assert_eq!(denied as usize, place);
        }
    }
}
