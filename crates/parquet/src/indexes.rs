//! What a request for metadata wants to have of it.

use parquet::{
    arrow::arrow_reader::ArrowReaderOptions,
    file::metadata::{PageIndexPolicy, ParquetMetaDataOptions},
};

/// The indexes of pages that metadata has, and nothing else that options can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Indexes {
    column: PageIndexPolicy,
    offset: PageIndexPolicy,
}

impl Indexes {
    /// Returns the indexes that options ask for. Returns nothing if the options change the metadata in another
    /// way, so that it is for this request only.
    pub(crate) fn of(options: Option<&ArrowReaderOptions>) -> Option<Indexes> {
        let Some(options) = options else {
            return Some(Indexes { column: PageIndexPolicy::Skip, offset: PageIndexPolicy::Skip });
        };
        let has_all_columns =
            options.column_index_mask().is_all() && options.offset_index_mask().is_all();
        let is_usual =
            has_all_columns && keeps_all(options.metadata_options()) && !has_key(options);
        is_usual.then(|| Indexes {
            column: options.column_index_policy(),
            offset: options.offset_index_policy(),
        })
    }
}

fn keeps_all(options: &ParquetMetaDataOptions) -> bool {
    // A policy that skips some columns or all skips this one, which no file has.
    let column = usize::MAX;
    options.schema().is_none()
        && options.encoding_stats_as_mask()
        && !options.skip_encoding_stats(column)
        && !options.skip_column_stats(column)
        && !options.skip_size_stats(column)
}

#[cfg(feature = "encryption")]
fn has_key(options: &ArrowReaderOptions) -> bool {
    options.file_decryption_properties().is_some()
}

#[cfg(not(feature = "encryption"))]
fn has_key(_: &ArrowReaderOptions) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use parquet::file::metadata::{ColumnChunkMask, ParquetStatisticsPolicy};

    use super::*;

    #[test]
    fn only_indexes_are_told_apart() {
        let new = ArrowReaderOptions::new;
        let of = |options: ArrowReaderOptions| Indexes::of(Some(&options));
        assert_eq!(of(new()), Indexes::of(None));
        assert_eq!(of(new().with_skip_arrow_metadata(true)), Indexes::of(None));
        let all = of(new().with_page_index_policy(PageIndexPolicy::Required));
        let some = of(new().with_offset_index_policy(PageIndexPolicy::Required));
        assert!(all.is_some() && some.is_some());
        assert!(all != some && some != Indexes::of(None));
    }

    #[test]
    fn other_changes_of_the_metadata_are_for_one_request() {
        let new = ArrowReaderOptions::new;
        let some = || ParquetStatisticsPolicy::skip_except(&[0]);
        let unusual = [
            new().with_page_index_mask(ColumnChunkMask::columns([0])),
            new().with_column_index_mask(ColumnChunkMask::none()),
            new().with_encoding_stats_as_mask(false),
            new().with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll),
            new().with_column_stats_policy(some()),
            new().with_size_stats_policy(some()),
        ];
        for options in unusual {
            assert_eq!(Indexes::of(Some(&options)), None, "{options:?}");
        }
    }
}
