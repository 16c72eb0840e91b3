//! Data files: sorted batches in, uploaded and synced Parquet out, as `add` actions that a commit may carry.
//!
//! - [`dates`]: a file for each date of the partition column;
//! - [`sink`]: the store as the file writer sees it. Files are collected there, announced, and then uploaded: most of them with one
//!   request, because parts of an upload that is not completed lie in the store where nothing lists them.
//!
//! Encoding runs on the polling task, so callers have a runtime of their own for it; the uploads may be given to another one.
//! File names are delta-rs': they carry a random id, are unique to one call, and cannot be guessed. What a failed call leaves
//! behind is never referred to; who announced it knows its name.
//!
//! Compression and row groups by measurement (`cargo bench --bench flush -- codecs`; 196,000 sorted log rows with a map of attributes, two
//! million sorted metric rows; bytes and microseconds of processor time a row):
//!
//! | | logs, 131,072 rows a group | logs, 1,048,576 | metrics, 131,072 | metrics, 1,048,576 |
//! |---|---|---|---|---|
//! | zstd 1 | 43.4, 1.48 | **41.6, 1.28** | 6.8, 0.18 | **4.7, 0.11** |
//! | zstd 3 | 43.1, 1.58 | 41.9, 1.43 | 6.7, 0.20 | 4.6, 0.15 |
//! | snappy | 64.2, 1.28 | 62.9, 1.33 | 9.6, 0.20 | 7.5, 0.13 |

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use async_trait::async_trait;
use deltalake::datafile::writer::WriterConfig;
use deltalake::kernel::Add;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use tokio::runtime::Handle;

use super::{Error, LakeTable};
use crate::failpoint;
use crate::schema::TableSpec;
use crate::schema::arrow::{arrow_schema, table_arrow_schema};

mod dates;
mod sink;

use dates::Writers;
use sink::Sink;

/// Rows per call of the Parquet writer; between calls the file's size is compared with the target.
const WRITE_BATCH_ROWS: usize = 8_192;

/// How data files are written.
#[derive(Debug, Clone)]
pub struct FileSettings {
    /// zstd level, 1 to 22; default 1. Higher levels cost encoding time for a few percent of size.
    pub zstd_level: i32,
    /// A file that reaches this many bytes is closed and the next one begun; default 256 MiB.
    pub target_file_bytes: NonZeroU64,
    /// Rows of a row group; default 1,048,576.
    pub row_group_rows: usize,
    /// The first so many columns have their least and largest value and their number of nulls in the log, where the table's own
    /// `delta.dataSkippingNumIndexedCols` does not say another number. Default 32, as readers expect.
    pub stats_columns: u32,
}

impl Default for FileSettings {
    fn default() -> Self {
        Self {
            zstd_level: 1,
            target_file_bytes: const { NonZeroU64::new(256 << 20).expect("should not be 0") },
            row_group_rows: 1 << 20,
            stats_columns: 32,
        }
    }
}

impl FileSettings {
    fn properties(&self, spec: &TableSpec) -> Result<WriterProperties, Error> {
        let level = ZstdLevel::try_new(self.zstd_level).map_err(Error::FileSettings)?;
        let builder = WriterProperties::builder();
        // An older schema version may not have the column yet.
        let bloom = spec.bloom.iter().filter(|name| spec.column_index(name).is_some());
        let builder = bloom.fold(builder, |builder, name| {
            builder.set_column_bloom_filter_enabled(ColumnPath::new(vec![name.clone()]), true)
        });
        Ok(builder
            .set_compression(Compression::ZSTD(level))
            .set_dictionary_enabled(true)
            .set_statistics_enabled(EnabledStatistics::Page)
            .set_max_row_group_row_count(Some(self.row_group_rows.max(1)))
            .set_created_by(concat!("penstock ", env!("CARGO_PKG_VERSION")).to_owned())
            .build())
    }
}

/// Files that are in the store, durably, and in no commit yet.
#[derive(Debug, Clone, Default)]
pub struct DataFiles {
    /// One action per file.
    pub adds: Vec<Add>,
    /// Rows in all of them.
    pub rows: u64,
    /// Bytes of all of them, as stored.
    pub bytes: u64,
    /// The newest schema version that one of them was written with.
    pub schema_version: u32,
}

/// Hears of each file before any of it is in the store, so that a file that no commit will refer to can be found again.
#[async_trait]
pub trait Announce: fmt::Debug + Send + Sync {
    /// A file will be uploaded to `path`, from the table's root. The upload begins once this has returned.
    async fn announce(&self, path: &str);
}

/// How files get into the store.
#[derive(Debug, Clone, Default)]
pub struct Uploading {
    /// Who hears of each file beforehand.
    pub announce: Option<Arc<dyn Announce>>,
    /// Where requests run; the polling task if not given, where they wait while it encodes.
    pub requests: Option<Handle>,
}

impl LakeTable {
    /// [`write_batches`](Self::write_batches) of batches that are in memory, announced to nobody.
    ///
    /// # Errors
    /// The same.
    pub async fn write_data(
        &self,
        spec: &TableSpec,
        batches: Vec<RecordBatch>,
        settings: &FileSettings,
    ) -> Result<DataFiles, Error> {
        self.write_batches(spec, batches.into_iter().map(Ok), settings, Uploading::default()).await
    }

    /// Writes the batches, which are in the order that the files shall have and carry the partition column last where
    /// the table has one, to as many files as partitions and the target size ask for. Batches are taken one at a time.
    ///
    /// # Errors
    /// By [`kind`](Error::kind): `Unavailable`, the store failed; `Rows`, these rows cannot be
    /// written, whatever the store does.
    pub async fn write_batches(
        &self,
        spec: &TableSpec,
        batches: impl Iterator<Item = Result<RecordBatch, ArrowError>> + Send,
        settings: &FileSettings,
        uploading: Uploading,
    ) -> Result<DataFiles, Error> {
        let schema = table_arrow_schema(spec);
        let files = arrow_schema(spec);
        let of_table = self.stats_columns.lock().clone();
        let stats_columns = of_table.unwrap_or_else(|| settings.stats_columns.to_string());
        let config = WriterConfig::new(
            Arc::clone(&files),
            Vec::new(),
            Some(settings.properties(spec)?),
            Some(settings.target_file_bytes),
            Some(WRITE_BATCH_ROWS),
            // Its type has no name that can be written here. What a table says and is no number was not kept.
            stats_columns.as_str().try_into().unwrap_or_default(),
            None,
        );
        let sink = Sink::new(&self.parts, uploading);
        // Dropped as it is, at any moment, it leaves nothing half uploaded: that is the sink's.
        let mut writers = Writers::new(sink.clone(), config, files, spec.partition.clone());
        let mut rows = 0;
        for batch in batches {
            let batch = self.fit(&schema, batch.map_err(|source| self.misfit(source))?)?;
            rows += u64::try_from(batch.num_rows()).unwrap_or(u64::MAX);
            writers.write(batch).await.map_err(|error| self.unencoded(error))?;
            self.uploaded(&sink)?;
            failpoint::reach("lake::write_data::part");
            // Others that encode on this thread have a turn.
            tokio::task::yield_now().await;
        }
        let adds = writers.close().await.map_err(|error| self.unencoded(error))?;
        // MUST BEFORE the files are told of: the writer does not hear of failures, and a commit may follow at once.
        self.uploaded(&sink)?;
        let bytes = adds.iter().map(|add| u64::try_from(add.size).unwrap_or(0)).sum();
        Ok(DataFiles { adds, rows, bytes, schema_version: spec.schema_version })
    }

    /// The writer compares schemas to the letter; ours may differ in metadata.
    fn fit(&self, schema: &SchemaRef, batch: RecordBatch) -> Result<RecordBatch, Error> {
        if batch.schema_ref() == schema {
            return Ok(batch);
        }
        RecordBatch::try_new(Arc::clone(schema), batch.columns().to_vec()).map_err(|source| self.misfit(source))
    }

    fn misfit(&self, source: ArrowError) -> Error {
        Error::Rows { table: self.url().to_string(), source }
    }

    fn uploaded(&self, sink: &Sink) -> Result<(), Error> {
        let failure = sink.failure();
        failure.map_or(Ok(()), |error| Err(Error::store("uploading data files of", self.url(), error)))
    }

    fn unencoded(&self, error: deltalake::DeltaTableError) -> Error {
        Error::Encode { table: self.url().to_string(), source: Box::new(error) }
    }
}
