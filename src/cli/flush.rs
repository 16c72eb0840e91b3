//! `penstock flush`: acknowledged rows into their Delta tables, now.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;

use super::client::Client;
use super::{Error, ServerArgs, show};
use crate::engine::Decision;
use crate::schema::TableName;

const AFTER_HELP: &str = "\
Examples:
  penstock flush                     all tables
  penstock flush cpu demo.memory     these two
  penstock flush --timeout 5m        wait longer
  penstock flush --doubt keep cpu    flush rows of a restored data directory

Rows are safe and visible to SQL without a flush; other Delta readers see them after it.";

/// What `penstock flush` is told.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct FlushArgs {
    /// Tables to flush, `name` or `namespace.name`; all without
    #[arg(value_name = "TABLE")]
    tables: Vec<TableName>,
    /// Longest wait for the commits
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// For tables that are refused because the data directory is an older copy of what has written to them: `keep` flushes all
    /// unflushed rows, and doubles those that the original has flushed; `drop` lets them go, and loses those that it has not
    #[arg(long, value_name = "WHAT", requires = "tables")]
    doubt: Option<Decision>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Flushes and prints what came of it.
pub async fn run(args: &FlushArgs) -> Result<(), Error> {
    let client = Client::new(&args.server.url)?;
    let wanted = (!args.tables.is_empty()).then_some(args.tables.as_slice());
    let flushed = client.flush_deciding(wanted, args.timeout, args.doubt).await?;
    let mut out = io::stdout().lock();
    if flushed.is_empty() {
        writeln!(out, "no tables")?;
        return Ok(());
    }
    let mut table = show::table(&["table", ">rows flushed", ">Delta version"]);
    for row in &flushed {
        table.add_row([show::plain(&row.table), show::count(row.rows_flushed), show::optional(row.delta_version)]);
    }
    writeln!(out, "{table}")?;
    Ok(())
}
