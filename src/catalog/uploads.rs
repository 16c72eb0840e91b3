//! The journal of uploads: data files that have a name and are in no commit yet.
//!
//! MUST be durable before an upload begins; the catalog's connections sync each transaction.

use std::str::FromStr;

use penstock_store::{Incarnation, NodeId, TableId};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::{Catalog, Error, signed};
use crate::schema::TableName;

#[cfg(test)]
mod tests;

/// A data file's upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    pub table: TableId,
    pub name: TableName,
    /// Writer of the commit that will refer to the file.
    pub writer: NodeId,
    pub incarnation: Incarnation,
    /// Seal sequence of its rows.
    pub sequence: u64,
    /// From the table's root.
    pub path: String,
    /// Microseconds since the epoch.
    pub began: i64,
}

impl Catalog {
    /// Notes uploads, all or none; durable when this returns. Noting one again changes nothing.
    ///
    /// # Errors
    /// A database error.
    pub async fn begin_uploads(&self, uploads: &[Upload]) -> Result<(), Error> {
        let mut transaction = self.pool.begin().await?;
        for upload in uploads {
            sqlx::query(
                "INSERT INTO uploads (table_id, path, table_name, writer, incarnation, sequence, began_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
            )
            .bind(upload.table.to_string())
            .bind(upload.path.as_str())
            .bind(upload.name.to_string())
            .bind(upload.writer.to_string())
            .bind(upload.incarnation.to_string())
            .bind(signed(upload.sequence))
            .bind(upload.began)
            .execute(&mut *transaction)
            .await?;
        }
        Ok(transaction.commit().await?)
    }

    /// Forgets uploads, all or none; what is not there is no error.
    ///
    /// # Errors
    /// A database error.
    pub async fn end_uploads(&self, uploads: &[(TableId, &str)]) -> Result<(), Error> {
        let mut transaction = self.pool.begin().await?;
        for (table, path) in uploads {
            sqlx::query("DELETE FROM uploads WHERE table_id = $1 AND path = $2")
                .bind(table.to_string())
                .bind(*path)
                .execute(&mut *transaction)
                .await?;
        }
        Ok(transaction.commit().await?)
    }

    /// All uploads that have begun and not ended, oldest first.
    ///
    /// # Errors
    /// A database error, or a row that cannot be read.
    pub async fn open_uploads(&self) -> Result<Vec<Upload>, Error> {
        let rows = sqlx::query(
            "SELECT table_id, path, table_name, writer, incarnation, sequence, began_at FROM uploads ORDER BY began_at",
        )
        .fetch_all(&self.pool)
        .await?;
        rows.iter().map(upload).collect()
    }
}

fn upload(row: &SqliteRow) -> Result<Upload, Error> {
    let unreadable = |error: &dyn std::error::Error| Error::Upload(error.to_string());
    let uuid = |text: String| Uuid::from_str(&text).map_err(|e| unreadable(&e));
    let incarnation: String = row.try_get(4)?;
    let sequence: i64 = row.try_get(5)?;
    Ok(Upload {
        table: TableId(uuid(row.try_get(0)?)?),
        path: row.try_get(1)?,
        name: row.try_get::<String, _>(2)?.parse().map_err(|e| unreadable(&e))?,
        writer: NodeId(uuid(row.try_get(3)?)?),
        incarnation: Incarnation(u64::from_str_radix(&incarnation, 16).map_err(|e| unreadable(&e))?),
        sequence: u64::try_from(sequence).map_err(|e| unreadable(&e))?,
        began: row.try_get(6)?,
    })
}
