//! What a checkpoint file says, read without the kernel that wrote it and without its file list in memory.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::error::ArrowError;
use arrow_json::LineDelimitedWriter;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::{AsyncFileReader, ParquetRecordBatchStreamBuilder};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

use crate::lake::Error;
use crate::lake::definition::{Metadata, Protocol};
use crate::lake::entry::{APP_PREFIX, Entry, Txn};

/// Where each of our application ids stands.
pub(super) type Txns = BTreeMap<String, i64>;

/// Bytes read from a file's end at first; most footers are shorter.
const FOOTER_BYTES: usize = 64 << 10;

/// Rows decoded at a time.
const BATCH_ROWS: usize = 8_192;

/// What is read besides the number of `add` actions.
const ACTIONS: [&str; 3] = ["protocol", "metaData", "txn"];

/// A checkpoint's actions, as far as they matter here.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) protocol: Protocol,
    pub(super) metadata: Metadata,
    pub(super) txns: Txns,
    /// `add` actions.
    pub(super) files: u64,
    /// Bytes of the file.
    pub(super) bytes: u64,
}

/// Why a checkpoint was not read.
#[derive(Debug)]
pub(super) enum Unread {
    /// The store did not answer; the checkpoint may be fine.
    Store(Error),
    /// It is damaged, or not all of a checkpoint.
    Damaged(String),
}

/// Reads a checkpoint, every row of the columns that matter.
pub(super) async fn read(store: &Arc<dyn ObjectStore>, path: &Path) -> Result<Contents, Unread> {
    let unanswered = |error| Unread::Store(Error::store("reading", path, error));
    let bytes = store.head(path).await.map_err(unanswered)?.size;
    let damaged = |error: ParquetError| unread(path, error);
    let reader = Reader { store: Arc::clone(store), path: path.clone(), bytes };
    let builder = ParquetRecordBatchStreamBuilder::new(reader).await.map_err(damaged)?;
    let wanted = ACTIONS.into_iter().chain(["add.path", "sidecar.path"]);
    let columns = ProjectionMask::columns(builder.parquet_schema(), wanted);
    let stream = builder.with_projection(columns).with_batch_size(BATCH_ROWS).build().map_err(damaged)?;

    let (mut files, mut lines) = (0, Vec::new());
    futures::pin_mut!(stream);
    while let Some(batch) = stream.try_next().await.map_err(damaged)? {
        if present(&batch, "sidecar") > 0 {
            return Err(Unread::Damaged("it refers to other files (sidecars), which are not read here".to_owned()));
        }
        files += present(&batch, "add");
        actions(&batch, &mut lines).map_err(|error| Unread::Damaged(error.to_string()))?;
    }
    let Entry { protocol: Some(protocol), metadata: Some(metadata), txns, .. } =
        Entry::parse(path.as_ref(), 0, &lines).map_err(|error| Unread::Damaged(error.to_string()))?
    else {
        return Err(Unread::Damaged("it has no protocol or no metaData action".to_owned()));
    };
    Ok(Contents { protocol, metadata, txns: ours(Txns::new(), txns), files, bytes })
}

/// A file in the store, of which ranges are fetched.
struct Reader {
    store: Arc<dyn ObjectStore>,
    path: Path,
    bytes: u64,
}

impl AsyncFileReader for Reader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ParquetError>> {
        async move { self.store.get_range(&self.path, range).await.map_err(external) }.boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>, ParquetError>> {
        async move { self.store.get_ranges(&self.path, &ranges).await.map_err(external) }.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>, ParquetError>> {
        async move {
            let bytes = self.bytes;
            let reader = ParquetMetaDataReader::new().with_arrow_reader_options(options);
            let reader = reader.with_prefetch_hint(Some(FOOTER_BYTES));
            Ok(Arc::new(reader.load_and_finish(self, bytes).await?))
        }
        .boxed()
    }
}

fn external(error: object_store::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

/// What is known of our application ids behind another entry.
pub(super) fn ours(mut known: Txns, entry: Vec<Txn>) -> Txns {
    let ours = entry.into_iter().filter(|txn| txn.app.starts_with(APP_PREFIX));
    known.extend(ours.map(|txn| (txn.app, txn.version)));
    known
}

/// A parquet reader that fails is one of two things; only the store's own errors say which.
fn unread(path: &Path, error: ParquetError) -> Unread {
    let store = match error {
        ParquetError::External(source) => match source.downcast::<object_store::Error>() {
            Ok(store) => Ok(*store),
            Err(other) => Err(ParquetError::External(other)),
        },
        other => Err(other),
    };
    match store {
        Ok(store) => Unread::Store(Error::store("reading", path, store)),
        Err(error) => {
            let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
            Unread::Damaged(format!("{error}{source}"))
        }
    }
}

/// Rows that have this action.
fn present(batch: &RecordBatch, action: &str) -> u64 {
    let column = batch.column_by_name(action);
    column.map_or(0, |column| u64::try_from(column.len() - column.null_count()).unwrap_or(u64::MAX))
}

/// The rows of the small actions as JSON, one a line: what a commit entry looks like.
fn actions(batch: &RecordBatch, lines: &mut Vec<u8>) -> Result<(), ArrowError> {
    let named: Vec<(&str, &ArrayRef)> =
        ACTIONS.iter().filter_map(|name| batch.column_by_name(name).map(|column| (*name, column))).collect();
    if named.is_empty() {
        return Ok(());
    }
    let any = |row: usize| named.iter().any(|(_, column)| column.is_valid(row));
    let rows: BooleanArray = (0..batch.num_rows()).map(|row| Some(any(row))).collect();
    if rows.true_count() == 0 {
        return Ok(());
    }
    let small =
        RecordBatch::try_from_iter_with_nullable(named.iter().map(|(name, column)| (*name, Arc::clone(column), true)))?;
    let mut writer = LineDelimitedWriter::new(lines);
    writer.write(&filter_record_batch(&small, &rows)?)?;
    writer.finish()
}
