//! Notes commits in the catalog: which Delta version has which rows. It may lag, and loses what a crash cuts off: the tables' own logs
//! are the truth.

use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};

use crate::catalog::{self, Catalog, Flush};
use crate::flush::Flushed;

/// Most commits of one transaction.
const BATCH: usize = 256;
/// How often what is too old is forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(600);

/// Notes what it hears until nobody is left to tell, and tells how many commits it has dealt with. Which rows a version has is kept
/// for `age`.
pub async fn keep(
    catalog: Catalog,
    mut heard: mpsc::UnboundedReceiver<Flushed>,
    noted: watch::Sender<u64>,
    age: Duration,
) {
    let mut batch = Vec::with_capacity(BATCH);
    let mut forgot: Option<Instant> = None;
    while heard.recv_many(&mut batch, BATCH).await > 0 {
        let flushes: Vec<Flush> = batch.drain(..).map(flush).collect();
        if let Err(error) = catalog.record_flushes(&flushes).await {
            tracing::warn!(%error, commits = flushes.len(), "commits are missing from the history");
        }
        noted.send_modify(|noted| *noted += flushes.len() as u64);
        if forgot.is_none_or(|at| at.elapsed() >= FORGET_EVERY) {
            forgot = Some(Instant::now());
            if let Err(error) = catalog.forget_generations(age).await {
                tracing::warn!(%error, "old commits stay in the history");
            }
        }
    }
}

fn flush(flushed: Flushed) -> Flush {
    let span = |s: crate::flush::Span| catalog::Span { sequence: s.sequence, first: s.first, last: s.last };
    Flush {
        table: flushed.table,
        incarnation: flushed.incarnation,
        sequence: flushed.sequence,
        delta_version: flushed.version,
        rows: flushed.rows,
        bytes: flushed.bytes,
        spans: flushed.spans.into_iter().map(span).collect(),
        dead: flushed.dead,
    }
}
