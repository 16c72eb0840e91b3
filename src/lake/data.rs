//! Data files: sorted batches in, uploaded and synced Parquet out, as `add` actions that a commit may carry.
//!
//! Encoding runs on the polling task, so callers have a runtime of their own for it. File names are unique to one call:
//! what a failed call leaves behind is never referred to.

use std::num::NonZeroU64;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use deltalake::datafile::writer::{DeltaWriter, WriterConfig};
use deltalake::kernel::Add;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use super::{Error, LakeTable};
use crate::failpoint;
use crate::schema::TableSpec;
use crate::schema::arrow::table_arrow_schema;

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
}

impl Default for FileSettings {
    fn default() -> Self {
        Self {
            zstd_level: 1,
            target_file_bytes: const { NonZeroU64::new(256 << 20).expect("should not be 0") },
            row_group_rows: 1 << 20,
        }
    }
}

impl FileSettings {
    fn properties(&self) -> Result<WriterProperties, Error> {
        let level = ZstdLevel::try_new(self.zstd_level).map_err(Error::FileSettings)?;
        Ok(WriterProperties::builder()
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
}

impl LakeTable {
    /// Writes the batches, which are in the order that the files shall have and carry the partition column last where
    /// the table has one, to as many files as partitions and the target size ask for.
    ///
    /// # Errors
    /// The store failed, or a batch does not have the table's columns. Parts of the upload are removed.
    pub async fn write_data(
        &self,
        spec: &TableSpec,
        batches: Vec<RecordBatch>,
        settings: &FileSettings,
    ) -> Result<DataFiles, Error> {
        let schema = table_arrow_schema(spec);
        let config = WriterConfig::new(
            Arc::clone(&schema),
            spec.partition.iter().cloned().collect(),
            Some(settings.properties()?),
            Some(settings.target_file_bytes),
            Some(WRITE_BATCH_ROWS),
            // The first 32 columns, as the Delta protocol's default has it.
            Default::default(),
            None,
        );
        let mut upload = Upload(Some(DeltaWriter::new(Arc::clone(&self.parts.store), config)));
        let mut rows = 0;
        for batch in batches {
            rows += u64::try_from(batch.num_rows()).unwrap_or(u64::MAX);
            let batch = self.fit(&schema, batch)?;
            upload.write(&batch).await.map_err(|error| self.failed(error))?;
            failpoint::reach("lake::write_data::part");
        }
        let adds = upload.close().await.map_err(|error| self.failed(error))?;
        let bytes = adds.iter().map(|add| u64::try_from(add.size).unwrap_or(0)).sum();
        Ok(DataFiles { adds, rows, bytes })
    }

    /// The writer compares schemas to the letter; ours may differ in metadata.
    fn fit(&self, schema: &SchemaRef, batch: RecordBatch) -> Result<RecordBatch, Error> {
        if batch.schema_ref() == schema {
            return Ok(batch);
        }
        RecordBatch::try_new(Arc::clone(schema), batch.columns().to_vec())
            .map_err(|source| Error::Rows { table: self.url().to_string(), source })
    }

    fn failed(&self, error: deltalake::DeltaTableError) -> Error {
        Error::delta("writing data files of", self.url(), error)
    }
}

/// A writer that is aborted however its owner ends: dropped as it is, it would leave parts of uploads in the store,
/// which nothing lists and nothing sweeps.
struct Upload(Option<DeltaWriter>);

impl Upload {
    async fn write(&mut self, batch: &RecordBatch) -> Result<(), deltalake::DeltaTableError> {
        match &mut self.0 {
            Some(writer) => writer.write(batch).await,
            None => Ok(()),
        }
    }

    async fn close(mut self) -> Result<Vec<Add>, deltalake::DeltaTableError> {
        match self.0.take() {
            Some(writer) => writer.close().await,
            None => Ok(Vec::new()),
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(writer) = self.0.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = writer.abort().await {
                    tracing::warn!(%error, "parts of an upload could not be removed");
                }
            });
        }
    }
}
