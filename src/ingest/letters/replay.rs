//! Letters back into the tables they were sent to, once something was corrected: each at most once, whatever happens in between.
//!
//! For the letters of one table that it can hold now:
//!
//! 1. `replaying` rows name them, and the replay; durable.
//! 2. The rows are appended as one record, stamped with the replay as its producer; durable.
//! 3. `replayed` rows name them; durable.
//!
//! A crash between 1 and 3 leaves a replay that was begun. [`Ingest::replay_again`] does 2 and 3 once more under the same stamp: what was
//! durable already is known as a repeat, and nothing is appended. MUST BEFORE any other replay: its letters look like pending ones.
//!
//! That holds for as long as the store remembers the producer (`ProducerLimits`): a replay that was cut short has to be taken up before
//! 20,000 other producers have come since.

use std::sync::Arc;

use arrow::compute::concat_batches;
use bytes::Bytes;
use penstock_store::{ProducerId, SliceInput, Stamp};
use uuid::Uuid;

use super::{Step, mark};
use crate::failpoint;
use crate::ingest::decode::{Decoded, decode_one};
use crate::ingest::post::{Ingest, PostError, now_micros};
use crate::ingest::rejected::Rejected;
use crate::ingest::slices::OLD;
use crate::ingest::{Reject, RejectKind, slices};
use crate::schema::arrow::arrow_schema;
use crate::schema::registry::Table;
use crate::schema::{Rules, TableName, TableSpec, letters};

/// Most letters that one replay takes up: its rows are one record.
pub const MAX_LETTERS: usize = 1_000;

/// Most bytes of them.
pub const MAX_BYTES: usize = 32 << 20;

/// A letter, as far as a replay needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    pub id: String,
    pub table: TableName,
    /// When it was received, microseconds.
    pub received_at: i64,
    pub original: Bytes,
}

/// What came of letters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Their rows are in the tables' log.
    pub done: Vec<String>,
    /// Their tables still cannot hold them, and why.
    pub still: Vec<(String, Reject)>,
}

impl Ingest {
    /// Appends what the letters' table can hold now. All have to be of `name`, and at most [`MAX_LETTERS`].
    ///
    /// # Errors
    /// The log's. What was appended then is found out by [`Self::replay_again`].
    pub async fn replay(&self, name: &TableName, of: &[Letter]) -> Result<Replayed, PostError> {
        let Some(table) = self.registry.by_name(name) else {
            let help = "create the table, then replay its letters";
            let gone =
                Reject::new(RejectKind::Unprocessable, "unknown_table", format!("table {name} does not exist"), help);
            return Ok(Replayed {
                still: of.iter().map(|l| (l.id.clone(), gone.clone())).collect(),
                ..Replayed::default()
            });
        };
        let (ready, replayed) = self.read(&table, of, false).await?;
        if let Some(ready) = ready {
            self.append_replay(Uuid::new_v4(), &table, ready, &replayed.done).await?;
        }
        Ok(replayed)
    }

    /// Takes up a replay that was begun and perhaps not ended, with its letters.
    ///
    /// # Errors
    /// The log's.
    pub async fn replay_again(&self, replay: Uuid, name: &TableName, of: &[Letter]) -> Result<Replayed, PostError> {
        let Some(table) = self.registry.by_name(name) else { return Ok(Replayed::default()) };
        let (ready, replayed) = self.read(&table, of, true).await?;
        if let Some(ready) = ready {
            self.finish_replay(replay, &table, ready, &replayed.done).await?;
        }
        Ok(replayed)
    }

    /// The letters that the table can hold, as slices.
    async fn read(
        &self,
        table: &Arc<Table>,
        of: &[Letter],
        again: bool,
    ) -> Result<(Option<Vec<SliceInput>>, Replayed), PostError> {
        let (table, of, limits) = (Arc::clone(table), of.to_vec(), self.options().limits());
        let reading = tokio::task::spawn_blocking(move || {
            let mut replayed = Replayed::default();
            // What was begun is ended, whatever the table takes by now.
            let spec =
                if again { TableSpec { rules: Rules::any_time(), ..table.spec.clone() } } else { table.spec.clone() };
            let (mut batches, mut times) = (Vec::new(), Vec::new());
            for letter in of {
                let decoded = decode_one(&spec, &letter.original, letter.received_at, &limits);
                let bad = |decoded: &Decoded| decoded.rejected.rows().first().map(|row| row.reason.clone());
                match decoded.and_then(|decoded| bad(&decoded).map_or(Ok(decoded), Err)) {
                    Ok(decoded) => {
                        batches.push(decoded.batch);
                        times.extend(decoded.times);
                        replayed.done.push(letter.id);
                    }
                    Err(reason) => replayed.still.push((letter.id, reason)),
                }
            }
            if times.is_empty() {
                return Ok((None, replayed));
            }
            let batch = concat_batches(&arrow_schema(&table.spec), &batches).expect("rows of one table should join");
            let rows = Decoded { batch, times, rejected: Rejected::default() };
            Ok((Some(slices(table.id, &table.spec, rows, now_micros().saturating_sub(OLD))?), replayed))
        });
        reading.await.map_err(|e| PostError::Decoder(e.to_string()))?
    }

    async fn append_replay(
        &self,
        replay: Uuid,
        table: &Table,
        ready: Vec<SliceInput>,
        ids: &[String],
    ) -> Result<(), PostError> {
        // MUST BEFORE the rows: a replay that nobody knows of would be done again under another stamp, and its rows doubled.
        self.mark(table.spec.name.namespace(), ids, Step::Replaying, replay).await?;
        failpoint::reach("ingest::replay::named");
        self.finish_replay(replay, table, ready, ids).await
    }

    async fn finish_replay(
        &self,
        replay: Uuid,
        table: &Table,
        ready: Vec<SliceInput>,
        ids: &[String],
    ) -> Result<(), PostError> {
        let stamp = Stamp { producer: ProducerId(replay.as_u128()), epoch: 0, sequence: 0 };
        self.store.append_stamped(stamp, ready)?.wait().await?;
        failpoint::reach("ingest::replay::appended");
        // MUST AFTER the rows: a letter that says it was replayed is never looked at again.
        self.mark(table.spec.name.namespace(), ids, Step::Replayed, replay).await
    }

    async fn mark(&self, namespace: &str, ids: &[String], step: Step, replay: Uuid) -> Result<(), PostError> {
        let name = letters::table_name(namespace);
        let table = self.registry.by_name(&name).ok_or(PostError::UnknownTable(name))?;
        let marks = mark(&table, ids, step, replay, self.store.node(), now_micros())?;
        self.store.append(marks)?.wait().await?;
        Ok(())
    }
}
