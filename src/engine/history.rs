//! Notes commits in the catalog, for people. It may lag, and loses what a crash cuts off: the tables' own logs are the truth.

use tokio::sync::mpsc;

use crate::catalog::{Catalog, Flush};
use crate::flush::Flushed;

/// Most commits of one transaction.
const BATCH: usize = 256;

/// Notes what it hears until nobody is left to tell.
pub async fn keep(catalog: Catalog, mut heard: mpsc::UnboundedReceiver<Flushed>) {
    let mut batch = Vec::with_capacity(BATCH);
    while heard.recv_many(&mut batch, BATCH).await > 0 {
        let flushes: Vec<Flush> = batch.drain(..).map(flush).collect();
        if let Err(error) = catalog.record_flushes(&flushes).await {
            tracing::warn!(%error, commits = flushes.len(), "commits are missing from the history");
        }
    }
}

fn flush(flushed: Flushed) -> Flush {
    Flush {
        table: flushed.table,
        incarnation: flushed.incarnation,
        sequence: flushed.sequence,
        delta_version: flushed.version,
        rows: flushed.rows,
        bytes: flushed.bytes,
    }
}
