//! Reads several streams and merges them by the times of their batches.

use std::{collections::BTreeMap, ops::ControlFlow};

use crate::{
    disk::segment::{
        format::name::{Content, Stream},
        reading::{cursor::Piece, reader::Reader, source::InDirectory},
    },
    error::LogdError,
    tool::{printer::Printer, selection::Selection, shown::Shown},
};

/// The streams and lines that the user asked for.
pub(super) struct Wanted<'a> {
    content: Content,
    number: Option<u32>,
    pub(super) selection: Selection<'a>,
}

impl<'a> Wanted<'a> {
    pub(super) fn new(number: Option<u32>, dead: bool, shown: &'a Shown) -> Wanted<'a> {
        let content = if dead { Content::DeadLetters } else { Content::Lines };
        Wanted { content, number, selection: Selection::shown(shown) }
    }

    /// Selects lines of all streams.
    pub(super) fn selected(selection: Selection<'a>) -> Wanted<'a> {
        Wanted { content: Content::Lines, number: None, selection }
    }

    /// Begins to read a stream.
    pub(super) fn source<'b>(
        &'b self,
        stream: Stream,
        segments: InDirectory<'b>,
        place: usize,
        from: u64,
    ) -> Result<Source<'b>, LogdError> {
        let choice = self.selection.choice();
        let mut reader = Reader::new(segments, place, from).with_choice(choice);
        let piece = reader.next()?;
        Ok(Source { stream, reader, piece })
    }

    pub(super) fn among(
        &self,
        all: BTreeMap<Stream, Vec<u64>>,
    ) -> impl Iterator<Item = (Stream, Vec<u64>)> + use<> {
        let Wanted { content, number, .. } = *self;
        all.into_iter().filter(move |(stream, _)| {
            stream.content == content && number.is_none_or(|number| stream.number == number)
        })
    }
}

/// A stream that is read.
pub(super) struct Source<'a> {
    pub(super) stream: Stream,
    pub(super) reader: Reader<'a, InDirectory<'a>>,
    /// The next piece of this stream; nothing at its end.
    piece: Option<Piece<'static>>,
}

/// Prints the selected lines of several streams, batch by batch in the order of their times, until the printer wants no
/// more.
pub(super) fn write_merged(
    sources: &mut [Source<'_>],
    selection: &Selection<'_>,
    printer: &mut dyn Printer,
) -> Result<ControlFlow<()>, LogdError> {
    loop {
        let oldest = sources.iter_mut().filter(|source| source.piece.is_some());
        let oldest = oldest.min_by_key(|source| source.piece.as_ref().map(|it| it.time_ms));
        let Some(source) = oldest else { return Ok(ControlFlow::Continue(())) };
        let Some(piece) = source.piece.take() else { continue };
        if !piece.missing.is_empty() {
            printer.skip(source.stream, &piece.missing);
        }
        let printed = if selection.is_everything() {
            printer.print(source.stream, &piece)
        } else {
            printer.print(source.stream, &selection.select(&piece).piece)
        };
        if printed.map_err(|error| LogdError::output(&error))?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        source.reader.recycle(piece);
        source.piece = source.reader.next()?;
    }
}
