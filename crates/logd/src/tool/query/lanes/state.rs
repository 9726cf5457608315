//! Which lane a thread takes next, and which lines are printed next. It does no I/O.

use std::{collections::VecDeque, mem};

use crate::{
    disk::segment::reading::{
        cursor::{Cursor, Piece},
        view::Report,
    },
    error::LogdError,
};

/// While so many bytes of a lane are found and not printed, no thread takes it.
pub(super) const BACKLOG_BYTES: usize = 1 << 20;

/// What a query did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) read_segments: u64,
    /// Segments of which no line was read.
    pub(crate) passed_segments: u64,
    /// Bytes of lines, after unpacking.
    pub(crate) read_bytes: u64,
    /// Lines that were compared with all conditions.
    pub(crate) looked_at: u64,
}

/// A segment between two steps.
pub(super) struct Reading {
    pub(super) cursor: Box<Cursor>,
    /// What the check of it found, after the check.
    pub(super) report: Report,
}

/// A segment that was read or passed over.
pub(super) struct End {
    pub(super) report: Report,
    pub(super) is_absent: bool,
    /// The number of the line after its last one.
    pub(super) next: u64,
}

/// The state of a lane.
pub(super) enum LaneState {
    /// A thread has it.
    Taken,
    Ready(Reading),
    Ended(Result<End, LogdError>),
}

/// What a thread has to do: go on with a lane, or begin with the segment.
pub(super) struct Task {
    pub(super) row: usize,
    pub(super) place: usize,
    pub(super) reading: Option<Reading>,
}

/// The lanes of all streams.
#[derive(Default)]
pub(super) struct State {
    /// One for each stream.
    rows: Vec<Row>,
    pub(super) counts: Counts,
    pub(super) is_stopped: bool,
}

/// The lanes of a stream.
#[derive(Default)]
struct Row {
    lanes: VecDeque<Lane>,
    /// The place of the first lane's segment.
    first: usize,
    /// How many segments there are.
    count: usize,
}

/// A segment that is being read.
struct Lane {
    state: LaneState,
    found: VecDeque<Piece<'static>>,
    backlog: usize,
    was_read: bool,
}

impl Row {
    fn is_done(&self) -> bool {
        self.lanes.is_empty() && self.first == self.count
    }

    /// Returns the time of the next piece to print.
    fn next_time(&self) -> Option<u64> {
        Some(self.lanes.front()?.found.front()?.time_ms)
    }

    fn pop_piece(&mut self) -> Option<Piece<'static>> {
        let lane = self.lanes.front_mut()?;
        let piece = lane.found.pop_front()?;
        lane.backlog -= piece.memory_bytes();
        Some(piece)
    }

    /// Removes the first lane if it has ended and all of it is printed.
    fn pop_ended(&mut self) -> Option<(usize, Lane)> {
        let front = self.lanes.front()?;
        if !front.found.is_empty() || !matches!(front.state, LaneState::Ended(_)) {
            return None;
        }
        self.first += 1;
        Some((self.first - 1, self.lanes.pop_front()?))
    }
}

impl State {
    /// Begins with streams of so many segments.
    pub(super) fn new(counts: impl Iterator<Item = usize>) -> State {
        let rows = counts.map(|count| Row { count, ..Row::default() }).collect();
        State { rows, ..State::default() }
    }

    /// Whether everything was read and printed.
    pub(super) fn is_done(&self) -> bool {
        self.rows.iter().all(Row::is_done)
    }

    /// Chooses what a thread does next: the lane that is nearest to being printed, unless its lines wait already.
    /// Opens a lane only if there are fewer than `lanes_max`, or if it is the first one of its stream.
    pub(super) fn take(&mut self, lanes_max: usize) -> Option<Task> {
        let open: usize = self.rows.iter().map(|row| row.lanes.len()).sum();
        let mut choices = Vec::new();
        for (number, row) in self.rows.iter().enumerate() {
            for (depth, lane) in row.lanes.iter().enumerate() {
                if matches!(lane.state, LaneState::Ready(_)) && lane.backlog < BACKLOG_BYTES {
                    choices.push((depth, lane.backlog, number));
                }
            }
            let depth = row.lanes.len();
            if row.first + depth < row.count && (depth == 0 || open < lanes_max) {
                choices.push((depth, 0, number));
            }
        }
        let (depth, _, number) = choices.into_iter().min()?;
        let row = &mut self.rows[number];
        if depth == row.lanes.len() {
            let (state, found) = (LaneState::Taken, VecDeque::new());
            row.lanes.push_back(Lane { state, found, backlog: 0, was_read: false });
        }
        let taken = mem::replace(&mut row.lanes[depth].state, LaneState::Taken);
        let reading = match taken {
            LaneState::Ready(reading) => Some(reading),
            _ => None,
        };
        Some(Task { row: number, place: row.first + depth, reading })
    }

    /// Puts a lane back that was taken, with what was found.
    pub(super) fn put_back(
        &mut self,
        Task { row, place, .. }: &Task,
        state: LaneState,
        found: Vec<Piece<'static>>,
        was_read: bool,
    ) {
        let row = &mut self.rows[*row];
        // Only lanes that have ended are removed, so it is still there.
        let lane = &mut row.lanes[place - row.first];
        lane.backlog += found.iter().map(Piece::memory_bytes).sum::<usize>();
        lane.was_read |= was_read;
        lane.found.extend(found);
        lane.state = state;
    }

    /// Removes the first lanes that have ended. Returns each with the numbers of its stream and its segment.
    pub(super) fn pop_ended(&mut self) -> Vec<(usize, usize, Result<End, LogdError>)> {
        let mut all = Vec::new();
        for (number, row) in self.rows.iter_mut().enumerate() {
            while let Some((place, lane)) = row.pop_ended() {
                match lane.was_read {
                    true => self.counts.read_segments += 1,
                    false => self.counts.passed_segments += 1,
                }
                if let LaneState::Ended(end) = lane.state {
                    all.push((number, place, end));
                }
            }
        }
        all
    }

    /// Takes the pieces that are printed next, and the number of their stream. Returns nothing if those of a stream are not
    /// known yet.
    pub(super) fn take_oldest(&mut self) -> Option<(usize, Vec<Piece<'static>>)> {
        let mut times = Vec::new();
        for (number, row) in self.rows.iter().enumerate().filter(|(_, row)| !row.is_done()) {
            times.push((row.next_time()?, number));
        }
        times.sort_unstable();
        let &(_, oldest) = times.first()?;
        // Those of the same time go by the number of their stream.
        let next = times.get(1).copied();
        let row = &mut self.rows[oldest];
        let mut pieces = Vec::new();
        while let Some(time) = row.next_time()
            && next.is_none_or(|next| (time, oldest) < next)
        {
            pieces.extend(row.pop_piece());
        }
        Some((oldest, pieces))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(time_ms: u64, bytes: usize) -> Piece<'static> {
        Piece::selected(time_ms, (1, Vec::new()), Vec::new(), vec![b'x'; bytes])
    }

    fn end(state: &mut State, task: &Task, times: &[u64]) {
        let end = End { report: Report::default(), is_absent: false, next: 0 };
        let found = times.iter().map(|time| piece(*time, 1)).collect();
        state.put_back(task, LaneState::Ended(Ok(end)), found, true);
    }

    fn take(state: &mut State, lanes_max: usize) -> Option<(usize, usize)> {
        state.take(lanes_max).map(|task| (task.row, task.place))
    }

    fn printed(state: &mut State) -> Option<Vec<u64>> {
        state.take_oldest().map(|(_, pieces)| pieces.iter().map(|piece| piece.time_ms).collect())
    }

    #[test]
    fn the_first_segment_of_each_stream_is_opened_and_a_bounded_number_of_others() {
        let mut state = State::new([3, 1, 9].into_iter());
        let opened: Vec<_> = std::iter::from_fn(|| take(&mut state, 4)).collect();
        assert_eq!(opened, [(0, 0), (1, 0), (2, 0), (0, 1)]);
        // The first ones are opened, whatever the limit is.
        let mut state = State::new([3, 1, 9].into_iter());
        assert_eq!(std::iter::from_fn(|| take(&mut state, 1)).count(), 3);
    }

    #[test]
    fn pieces_come_in_the_order_of_their_times_once_each_stream_has_one() {
        let mut state = State::new([2, 1].into_iter());
        let tasks = [(); 3].map(|()| state.take(9).unwrap());
        let [first, other, second] = &tasks;
        end(&mut state, second, &[7, 8]);
        end(&mut state, first, &[1, 3, 6]);
        assert_eq!(printed(&mut state), None, "the other stream may have an older one");
        end(&mut state, other, &[3, 5]);
        assert_eq!(printed(&mut state), Some(vec![1, 3]));
        assert_eq!(printed(&mut state), Some(vec![3, 5]));
        assert_eq!(printed(&mut state), None);
        assert_eq!(state.pop_ended().len(), 1);
        assert_eq!(printed(&mut state), Some(vec![6]));
        assert!(!state.is_done());
        state.pop_ended();
        assert_eq!(printed(&mut state), Some(vec![7, 8]));
        state.pop_ended();
        assert!(state.is_done());
        assert_eq!(state.counts.read_segments, 3);
    }

    #[test]
    fn what_is_printed_leaves_the_backlog() {
        let mut state = State::new([1].into_iter());
        let task = state.take(9).unwrap();
        let found = (0..4).map(|time| piece(time, BACKLOG_BYTES / 3)).collect();
        state.put_back(&task, LaneState::Taken, found, true);
        assert!(state.rows[0].lanes[0].backlog > BACKLOG_BYTES);
        assert_eq!(printed(&mut state), Some(vec![0, 1, 2, 3]));
        assert_eq!(state.rows[0].lanes[0].backlog, 0);
    }
}
