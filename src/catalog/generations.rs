//! Which Delta version has the rows of which records of the log.

use std::time::Duration;

use penstock_store::{Lsn, TableId};
use sqlx::{Row, SqliteTransaction};

use super::{Catalog, Error, Flush, now_micros, signed};

/// The records that a committed generation may have rows of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Seal sequence of the generation.
    pub sequence: u64,
    /// Its first record.
    pub first: Lsn,
    /// Its last record.
    pub last: Lsn,
}

/// Where the rows of a record went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The table has all of them from this version on.
    pub delta_version: u64,
    /// Some of them may be in the dead letters instead.
    pub dead: bool,
}

/// Notes the generations of a commit.
pub(super) async fn put(transaction: &mut SqliteTransaction<'_>, flush: &Flush) -> Result<(), Error> {
    for span in &flush.spans {
        sqlx::query(
            "INSERT INTO generations
             (table_id, incarnation, sequence, first_lsn, last_lsn, delta_version, dead, committed_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING",
        )
        .bind(flush.table.to_string())
        .bind(flush.incarnation.to_string())
        .bind(signed(span.sequence))
        .bind(signed(span.first.0))
        .bind(signed(span.last.0))
        .bind(signed(flush.delta_version))
        .bind(i64::from(flush.dead))
        .bind(now_micros())
        .execute(&mut **transaction)
        .await?;
    }
    Ok(())
}

impl Catalog {
    /// Where the rows of a table's record went, as far as it is remembered. Of generations that were open at the same time any may
    /// have had them: the latest counts.
    ///
    /// # Errors
    /// A database error.
    pub async fn held(&self, table: TableId, lsn: Lsn) -> Result<Option<Held>, Error> {
        let row = sqlx::query(
            "SELECT MAX(delta_version), MAX(dead) FROM generations WHERE table_id = $1 AND last_lsn >= $2 AND first_lsn <= $2",
        )
        .bind(table.to_string())
        .bind(signed(lsn.0))
        .fetch_one(&self.pool)
        .await?;
        let (version, dead): (Option<i64>, Option<i64>) = (row.try_get(0)?, row.try_get(1)?);
        Ok(version.map(|version| Held { delta_version: version.unsigned_abs(), dead: dead.unwrap_or(0) > 0 }))
    }

    /// Forgets the generations that were committed longer ago than that; answers how many there were.
    ///
    /// # Errors
    /// A database error.
    pub async fn forget_generations(&self, age: Duration) -> Result<u64, Error> {
        let age = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
        let gone = sqlx::query("DELETE FROM generations WHERE committed_at < $1")
            .bind(now_micros().saturating_sub(age))
            .execute(&self.pool)
            .await?;
        Ok(gone.rows_affected())
    }
}

#[cfg(test)]
mod tests {
    use penstock_store::Incarnation;
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn a_record_is_found_in_the_latest_generation_that_was_open_around_it() {
        let dir = tempfile::tempdir().expect("should make a directory");
        let catalog = Catalog::open(dir.path()).await.expect("should open");
        let (one, other) = (TableId(Uuid::from_u128(1)), TableId(Uuid::from_u128(2)));
        for table in [one, other] {
            let spec = super::super::tests::spec(&format!("t{}", table.0.as_u128()));
            catalog.create_table(table, &spec, super::super::Cause::Rows).await.expect("should create");
        }
        let span = |sequence, first, last| Span { sequence, first: Lsn(first), last: Lsn(last) };
        let flush = |table, sequence, delta_version, dead, spans| Flush {
            table,
            incarnation: Incarnation(7),
            sequence,
            delta_version,
            rows: 1,
            bytes: 1,
            spans,
            dead,
        };
        let flushes = [
            flush(one, 2, 10, false, vec![span(1, 100, 300), span(2, 200, 250)]),
            flush(one, 3, 11, true, vec![span(3, 240, 500)]),
            flush(other, 1, 99, false, vec![span(1, 0, 1_000)]),
        ];
        catalog.record_flushes(&flushes).await.expect("should note");
        catalog.record_flushes(&flushes).await.expect("should note again");
        let held =
            async |lsn| catalog.held(one, Lsn(lsn)).await.expect("should look").map(|h| (h.delta_version, h.dead));
        assert_eq!(held(99).await, None);
        assert_eq!(held(100).await, Some((10, false)));
        assert_eq!(held(239).await, Some((10, false)));
        assert_eq!(held(240).await, Some((11, true)));
        assert_eq!(held(500).await, Some((11, true)));
        assert_eq!(held(501).await, None);
        assert_eq!(catalog.forget_generations(Duration::from_secs(3_600)).await.expect("should look"), 0);
        assert_eq!(catalog.forget_generations(Duration::ZERO).await.expect("should forget"), 4);
        assert_eq!(held(240).await, None);
        assert_eq!(catalog.forget_generations(Duration::MAX).await.expect("should look"), 0);
    }
}
