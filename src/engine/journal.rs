//! The journal of uploads, kept in the catalog.

use std::sync::Arc;

use async_trait::async_trait;

use crate::catalog::{self, Catalog};
use crate::flush::journal::{Journal, JournalError, Upload};

/// See the module.
#[derive(Debug)]
pub struct UploadJournal {
    catalog: Catalog,
}

impl UploadJournal {
    pub fn new(catalog: Catalog) -> Self {
        Self { catalog }
    }
}

fn failed(error: catalog::Error) -> JournalError {
    Arc::new(error)
}

#[async_trait]
impl Journal for UploadJournal {
    async fn begin(&self, uploads: &[Upload]) -> Result<(), JournalError> {
        let rows: Vec<catalog::Upload> = uploads.iter().map(row).collect();
        self.catalog.begin_uploads(&rows).await.map_err(failed)
    }

    async fn end(&self, uploads: &[Upload]) -> Result<(), JournalError> {
        let paths: Vec<_> = uploads.iter().map(|upload| (upload.table, upload.path.as_str())).collect();
        self.catalog.end_uploads(&paths).await.map_err(failed)
    }

    async fn open(&self) -> Result<Vec<Upload>, JournalError> {
        let rows = self.catalog.open_uploads().await.map_err(failed)?;
        Ok(rows.into_iter().map(upload).collect())
    }
}

fn row(upload: &Upload) -> catalog::Upload {
    let Upload { table, name, writer, incarnation, sequence, path, began } = upload.clone();
    catalog::Upload { table, name, writer, incarnation, sequence, path, began }
}

fn upload(row: catalog::Upload) -> Upload {
    let catalog::Upload { table, name, writer, incarnation, sequence, path, began } = row;
    Upload { table, name, writer, incarnation, sequence, path, began }
}
