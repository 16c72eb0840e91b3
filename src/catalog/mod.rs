//! Namespaces, tables, schema versions, the history of flushes and the journal of uploads, in SQLite inside the data directory.
//!
//! The log is the truth about the tables (Define records); the catalog is what people and later nodes ask. A table that only one
//! of the two knows is brought to the other at start.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use penstock_store::{Incarnation, TableId};
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteRow, SqliteSynchronous,
};
use sqlx::{Row, SqlStr, SqliteTransaction};
use uuid::Uuid;

use crate::schema::{TableName, TableSpec};

mod generations;
#[cfg(test)]
mod tests;
mod uploads;

pub use generations::{Held, Span};
pub use uploads::Upload;

/// The catalog's file in the data directory.
pub const FILE_NAME: &str = "catalog.db";

/// Number, name and SQL of each migration. By hand and not by the crate's macro: that compiles SQLite a second time, for the compiler.
const MIGRATIONS: [(i64, &str, &str); 5] = [
    (1, "catalog", include_str!("../../migrations/0001_catalog.sql")),
    (2, "schema causes", include_str!("../../migrations/0002_schema_causes.sql")),
    (3, "uploads", include_str!("../../migrations/0003_uploads.sql")),
    (4, "generations", include_str!("../../migrations/0004_generations.sql")),
    (5, "schema actors", include_str!("../../migrations/0005_schema_actors.sql")),
];

fn migrator() -> Migrator {
    let migration = |(number, name, sql)| {
        Migration::new(number, Cow::Borrowed(name), MigrationType::Simple, SqlStr::from_static(sql), false)
    };
    Migrator::with_migrations(MIGRATIONS.into_iter().map(migration).collect())
}

/// Why the catalog did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the catalog: {0}")]
    Database(#[from] sqlx::Error),
    #[error("the catalog {path} cannot be opened: {source}; it may be moved away, a new one is made from the log", path = .path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: sqlx::Error,
    },
    #[error("migrating the catalog: {0}")]
    Migration(#[from] sqlx::migrate::MigrateError),
    #[error("table {0} exists already")]
    Exists(TableName),
    #[error("the catalog holds a definition that cannot be read: {0}")]
    Definition(String),
    #[error("the catalog holds an upload that cannot be read: {0}")]
    Upload(String),
}

/// Whether the disk has no room for the catalog's change. Nothing of it was made.
pub fn is_full(error: &sqlx::Error) -> bool {
    const SQLITE_FULL: &str = "13";
    error.as_database_error().is_some_and(|error| error.code().as_deref() == Some(SQLITE_FULL))
}

/// What made a schema version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Somebody declared it.
    Declaration,
    /// It was inferred from the table's first rows.
    Rows,
    /// The first rejected row of its namespace asked for it.
    Letters,
    /// The log knew it, and the catalog did not.
    Log,
}

impl Cause {
    fn text(self) -> &'static str {
        match self {
            Self::Declaration => "declaration",
            Self::Rows => "rows",
            Self::Letters => "letters",
            Self::Log => "log",
        }
    }
}

/// What made a schema version, and who.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct By {
    pub cause: Cause,
    /// An address; none if it was the server itself.
    pub actor: Option<String>,
}

impl Cause {
    /// With who caused it.
    pub fn by(self, actor: impl std::fmt::Display) -> By {
        By { cause: self, actor: Some(actor.to_string()) }
    }
}

impl From<Cause> for By {
    fn from(cause: Cause) -> Self {
        Self { cause, actor: None }
    }
}

/// A schema version of a table, for the history.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SchemaVersion {
    pub version: u32,
    /// Columns that rows of it carry.
    pub columns: usize,
    /// `declaration`, `rows`, `letters` or `log`; none if it was not noted.
    pub cause: Option<String>,
    /// Who caused it: an address; none if it was the server itself, or was not noted.
    pub actor: Option<String>,
    /// Microseconds since the epoch.
    pub created_at: i64,
}

/// A commit, for the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flush {
    pub table: TableId,
    pub incarnation: Incarnation,
    /// Highest seal sequence in the commit.
    pub sequence: u64,
    pub delta_version: u64,
    pub rows: u64,
    /// Bytes of the data files.
    pub bytes: u64,
    /// The generations in it.
    pub spans: Vec<Span>,
    /// They went to the dead letters instead.
    pub dead: bool,
}

/// The open catalog.
#[derive(Debug, Clone)]
pub struct Catalog {
    pool: SqlitePool,
}

impl Catalog {
    /// Opens the catalog of a data directory, made or migrated as needed.
    ///
    /// # Errors
    /// If the file cannot be opened, is not a catalog, or was made by a newer version.
    pub async fn open(data_dir: &Path) -> Result<Self, Error> {
        let path = data_dir.join(FILE_NAME);
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(Duration::from_secs(10));
        let pool = SqlitePoolOptions::new().max_connections(2).connect_with(options).await;
        let pool = pool.map_err(|source| Error::Open { path, source })?;
        migrator().run(&pool).await?;
        Ok(Self { pool })
    }

    /// All tables with their newest definitions.
    ///
    /// # Errors
    /// A database error, or a definition that cannot be read.
    pub async fn tables(&self) -> Result<Vec<(TableId, TableSpec)>, Error> {
        let rows = sqlx::query(
            "SELECT s.table_id, s.spec FROM schema_versions s
             WHERE s.version = (SELECT MAX(version) FROM schema_versions WHERE table_id = s.table_id)",
        )
        .fetch_all(&self.pool)
        .await?;
        rows.iter().map(table).collect()
    }

    /// The table of this name with its newest definition.
    ///
    /// # Errors
    /// As for [`tables`](Self::tables).
    pub async fn table(&self, name: &TableName) -> Result<Option<(TableId, TableSpec)>, Error> {
        let row = sqlx::query(
            "SELECT s.table_id, s.spec FROM schema_versions s JOIN tables t ON t.id = s.table_id
             WHERE t.namespace = $1 AND t.name = $2 ORDER BY s.version DESC LIMIT 1",
        )
        .bind(name.namespace())
        .bind(name.name())
        .fetch_optional(&self.pool)
        .await?;
        row.as_ref().map(table).transpose()
    }

    /// Adds a table; durable when this returns.
    ///
    /// # Errors
    /// [`Error::Exists`] if the name is taken.
    pub async fn create_table(&self, id: TableId, spec: &TableSpec, by: impl Into<By>) -> Result<(), Error> {
        let now = now_micros();
        let mut transaction = self.pool.begin().await?;
        sqlx::query("INSERT INTO namespaces (name, created_at) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING")
            .bind(spec.name.namespace())
            .bind(now)
            .execute(&mut *transaction)
            .await?;
        sqlx::query("INSERT INTO tables (id, namespace, name, created_at) VALUES ($1, $2, $3, $4)")
            .bind(id.to_string())
            .bind(spec.name.namespace())
            .bind(spec.name.name())
            .bind(now)
            .execute(&mut *transaction)
            .await
            .map_err(|e| match e.as_database_error() {
                Some(d) if d.is_unique_violation() => Error::Exists(spec.name.clone()),
                _ => Error::Database(e),
            })?;
        put_versions(&mut transaction, id, spec, &by.into()).await?;
        Ok(transaction.commit().await?)
    }

    /// Notes a table's newest definition and what it says of the versions before; durable when this returns. Versions that are
    /// noted already keep their time and cause; what the definition does not bear out is corrected.
    ///
    /// # Errors
    /// A database error, also if the table is not there.
    pub async fn put_definition(&self, id: TableId, spec: &TableSpec, by: impl Into<By>) -> Result<(), Error> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query("DELETE FROM schema_versions WHERE table_id = $1 AND version > $2")
            .bind(id.to_string())
            .bind(i64::from(spec.schema_version))
            .execute(&mut *transaction)
            .await?;
        put_versions(&mut transaction, id, spec, &by.into()).await?;
        Ok(transaction.commit().await?)
    }

    /// The schema versions of a table, the first one first.
    ///
    /// # Errors
    /// As for [`tables`](Self::tables).
    pub async fn schema_versions(&self, id: TableId) -> Result<Vec<SchemaVersion>, Error> {
        let rows = sqlx::query(
            "SELECT table_id, spec, cause, created_at, actor FROM schema_versions WHERE table_id = $1 ORDER BY version",
        )
        .bind(id.to_string())
        .fetch_all(&self.pool)
        .await?;
        let version = |row: &SqliteRow| {
            let (_, spec) = table(row)?;
            let (version, columns) = (spec.schema_version, spec.columns.len());
            Ok(SchemaVersion {
                version,
                columns,
                cause: row.try_get(2)?,
                actor: row.try_get(4)?,
                created_at: row.try_get(3)?,
            })
        };
        rows.iter().map(version).collect()
    }

    /// Notes commits, all or none. Noting one again changes nothing.
    ///
    /// # Errors
    /// A database error.
    pub async fn record_flushes(&self, flushes: &[Flush]) -> Result<(), Error> {
        let mut transaction = self.pool.begin().await?;
        for flush in flushes {
            sqlx::query(
                "INSERT INTO flushes (table_id, incarnation, sequence, delta_version, row_count, byte_count, committed_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
            )
            .bind(flush.table.to_string())
            .bind(flush.incarnation.to_string())
            .bind(signed(flush.sequence))
            .bind(signed(flush.delta_version))
            .bind(signed(flush.rows))
            .bind(signed(flush.bytes))
            .bind(now_micros())
            .execute(&mut *transaction)
            .await?;
            generations::put(&mut transaction, flush).await?;
        }
        Ok(transaction.commit().await?)
    }

    /// Closes the connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

async fn put_versions(
    transaction: &mut SqliteTransaction<'_>,
    id: TableId,
    spec: &TableSpec,
    by: &By,
) -> Result<(), Error> {
    for version in 1..=spec.schema_version {
        let Some(spec) = spec.at(version) else { continue };
        let text = serde_json::to_string(&spec).map_err(|e| Error::Definition(e.to_string()))?;
        sqlx::query(
            "INSERT INTO schema_versions (table_id, version, spec, created_at, cause, actor) VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (table_id, version) DO UPDATE SET spec = excluded.spec",
        )
        .bind(id.to_string())
        .bind(i64::from(version))
        .bind(text)
        .bind(now_micros())
        .bind(by.cause.text())
        .bind(by.actor.as_deref())
        .execute(&mut **transaction)
        .await?;
    }
    Ok(())
}

fn table(row: &SqliteRow) -> Result<(TableId, TableSpec), Error> {
    let unreadable = |error: &dyn std::error::Error| Error::Definition(error.to_string());
    let id: String = row.try_get(0)?;
    let id = Uuid::from_str(&id).map_err(|e| unreadable(&e))?;
    let spec: String = row.try_get(1)?;
    let spec = serde_json::from_str(&spec).map_err(|e| unreadable(&e))?;
    Ok((TableId(id), spec))
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn now_micros() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_micros()).unwrap_or(i64::MAX))
}
