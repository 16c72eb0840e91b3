//! What of a checkpoint concerns us: three columns out of it, as the lines that an entry would have.
//!
//! A checkpoint's bulk is its list of files. Parquet lets it lie: the three columns are a few kilobytes however many
//! files there are.

use std::error::Error as StdError;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::{filter_record_batch, is_not_null, or};
use arrow::error::ArrowError;
use arrow_json::LineDelimitedWriter;
use bytes::Bytes;
use futures::TryStreamExt;
use futures::future::{BoxFuture, FutureExt, TryFutureExt};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::arrow::{ParquetRecordBatchStreamBuilder, ProjectionMask};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

use crate::lake::Error;

const WANTED: [&str; 3] = ["txn", "protocol", "metaData"];
/// Bytes at the end of a file that are read first: most footers fit.
const FOOTER_BYTES: usize = 16 << 10;

/// Why a checkpoint could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failed {
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    #[error(transparent)]
    Arrow(#[from] ArrowError),
}

impl Failed {
    fn store_error(&self) -> Option<&object_store::Error> {
        let mut error: Option<&(dyn StdError + 'static)> = Some(self);
        while let Some(cause) = error {
            if let Some(found) = cause.downcast_ref() {
                return Some(found);
            }
            error = cause.source();
        }
        None
    }

    /// Whether the file is gone.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self.store_error(), Some(object_store::Error::NotFound { .. }))
    }

    pub(super) fn into_lake(self, path: &Path) -> Error {
        if self.store_error().is_some() {
            let source = object_store::Error::Generic { store: "checkpoint", source: Box::new(self) };
            return Error::store("reading", path, source);
        }
        Error::Corrupt { location: path.to_string(), reason: format!("the checkpoint: {self}") }
    }
}

/// The file's actions of the three kinds, a line each.
pub(super) async fn read(store: Arc<dyn ObjectStore>, file: &ObjectMeta) -> Result<Bytes, Failed> {
    let ranges = Ranges { store, path: file.location.clone(), size: file.size };
    let builder = ParquetRecordBatchStreamBuilder::new(ranges).await?;
    let mask = ProjectionMask::columns(builder.parquet_schema(), WANTED);
    let mut batches = builder.with_projection(mask).build()?;
    let mut lines = LineDelimitedWriter::new(Vec::new());
    while let Some(batch) = batches.try_next().await? {
        if let Some(batch) = actions(&batch)? {
            lines.write(&batch)?;
        }
    }
    lines.finish()?;
    Ok(lines.into_inner().into())
}

/// The rows that are one of the wanted actions: nearly all others are files.
fn actions(batch: &RecordBatch) -> Result<Option<RecordBatch>, ArrowError> {
    let mut wanted = None;
    for column in batch.columns() {
        let is = is_not_null(column)?;
        wanted = Some(match wanted {
            Some(others) => or(&others, &is)?,
            None => is,
        });
    }
    match wanted {
        Some(wanted) if wanted.true_count() > 0 => filter_record_batch(batch, &wanted).map(Some),
        _ => Ok(None),
    }
}

/// A file that is read by ranges.
struct Ranges {
    store: Arc<dyn ObjectStore>,
    path: Path,
    size: u64,
}

fn external(error: object_store::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

impl AsyncFileReader for Ranges {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ParquetError>> {
        self.store.get_range(&self.path, range).map_err(external).boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>, ParquetError>> {
        async move { self.store.get_ranges(&self.path, &ranges).await.map_err(external) }.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>, ParquetError>> {
        let options = options.map(|options| options.metadata_options().clone());
        let size = self.size;
        let hint = FOOTER_BYTES.min(usize::try_from(size).unwrap_or(FOOTER_BYTES));
        let reader = ParquetMetaDataReader::new().with_metadata_options(options).with_prefetch_hint(Some(hint));
        async move { Ok(Arc::new(reader.load_and_finish(self, size).await?)) }.boxed()
    }
}
