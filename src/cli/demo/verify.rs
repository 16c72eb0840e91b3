//! The rows of each table, counted three times by three ways that share nothing: what the senders were acknowledged,
//! what the Parquet files that the Delta log names hold on disk, and what SQL counts.

use deltalake::DeltaTableError;
use object_store::ObjectStoreExt;
use parquet::file::reader::{FileReader, SerializedFileReader};
use url::Url;

use super::Error;
use super::load::Sent;
use super::telemetry::Source;
use crate::cli::client::Client;
use crate::cli::show;

/// One table's counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    pub table: String,
    /// URL of the Delta table.
    pub location: String,
    pub acked: u64,
    pub delta: u64,
    pub sql: u64,
    /// The Delta table's version, read from disk; none before the first commit.
    pub version: Option<u64>,
    /// Files the Delta log names.
    pub files: u64,
    /// What the server says about itself.
    pub server: ServerView,
}

/// What the server says of a Delta table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerView {
    pub version: Option<u64>,
    pub rows: u64,
    pub files: u64,
    pub unflushed: u64,
}

/// A Delta table as a reader finds it on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OnDisk {
    pub version: Option<u64>,
    pub files: u64,
    pub rows: u64,
}

/// Counts every table. To be called after a flush, when nobody sends.
pub async fn tally(client: &Client, sent: &Sent) -> Result<Vec<Tally>, crate::cli::Error> {
    let mut tallies = Vec::new();
    for source in Source::ALL {
        let table = source.table();
        let reply = client.table(&table).await?;
        let disk = read_delta(&reply.location).await?;
        tallies.push(Tally {
            table: table.to_string(),
            acked: sent.rows[source as usize],
            delta: disk.rows,
            sql: client.sql_count(&format!("SELECT count(*) FROM {table}")).await?,
            version: disk.version,
            files: disk.files,
            server: ServerView {
                version: reply.delta_version,
                rows: reply.delta_rows,
                files: reply.delta_files,
                unflushed: reply.unflushed_rows,
            },
            location: reply.location,
        });
    }
    Ok(tallies)
}

/// Reads a Delta table from its files: the log for the names of the data files, each file's own footer for its rows.
/// No table there is a table without rows.
pub async fn read_delta(location: &str) -> Result<OnDisk, Error> {
    let error = |reason: String| Error::Delta { location: location.to_owned(), reason };
    let url = Url::parse(location).map_err(|e| error(e.to_string()))?;
    if url.to_file_path().is_ok_and(|path| !path.join("_delta_log").exists()) {
        return Ok(OnDisk::default());
    }
    let table = match deltalake::open_table(url).await {
        Ok(table) => table,
        Err(DeltaTableError::NotATable(_)) => return Ok(OnDisk::default()),
        Err(e) => return Err(error(e.to_string())),
    };
    let store = table.object_store();
    let snapshot = table.snapshot().map_err(|e| error(e.to_string()))?;
    let mut disk = OnDisk { version: Some(snapshot.version() as u64), ..OnDisk::default() };
    for file in snapshot.log_data().iter() {
        let path = file.object_store_path();
        let file_error = |reason: String| error(format!("{path}: {reason}"));
        let found = store.get(&path).await.map_err(|e| file_error(e.to_string()))?;
        let bytes = found.bytes().await.map_err(|e| file_error(e.to_string()))?;
        let reader = SerializedFileReader::new(bytes).map_err(|e| file_error(e.to_string()))?;
        disk.files += 1;
        disk.rows += u64::try_from(reader.metadata().file_metadata().num_rows()).unwrap_or(0);
    }
    Ok(disk)
}

/// Everything that should be equal and is not, a line each.
pub fn disagreements(sent: &Sent, tallies: &[Tally]) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Some(glimpse) = sent.glimpse
        && glimpse.visible < glimpse.acked_before
    {
        wrong.push(format!(
            "while sending: {} rows were acknowledged before a query that saw only {}",
            show::count(glimpse.acked_before),
            show::count(glimpse.visible)
        ));
    }
    for tally in tallies {
        if tally.acked != tally.delta || tally.acked != tally.sql {
            wrong.push(format!(
                "{}: {} acknowledged, {} in Delta, {} by SQL",
                tally.table,
                show::count(tally.acked),
                show::count(tally.delta),
                show::count(tally.sql)
            ));
        }
        let (server, table) = (tally.server, &tally.table);
        if server.rows != tally.delta || server.files != tally.files || server.version != tally.version {
            wrong.push(format!(
                "{table}: the server speaks of {} rows in {} files at version {}, on disk are {} in {} at {}",
                show::count(server.rows),
                server.files,
                show::optional(server.version),
                show::count(tally.delta),
                tally.files,
                show::optional(tally.version)
            ));
        }
        if server.unflushed != 0 {
            wrong.push(format!("{table}: {} rows are still not flushed", show::count(server.unflushed)));
        }
    }
    wrong
}
