//! `penstock tables`: list, show, create and alter tables.

use std::io::{self, Write};
use std::time::Duration;

use clap::{Args, Subcommand};

use super::client::{Client, CreateTable, TableReply};
use super::{Error, ServerArgs, show};
use crate::schema::spec::{Action, RulesPatch, SchemaMode};
use crate::schema::{EventTime, TableName, TableSpec, TimeUnit};

mod column;
#[cfg(test)]
mod tests;

use column::ColumnFlag;

const AFTER_HELP: &str = "\
Examples:
  penstock tables list
  penstock tables show demo.cpu
  penstock tables create cpu --column ts:timestamp! --column host:string --column load:double \\
      --event-time ts --event-time-unit ms --sort host
  penstock tables alter cpu --add-column region:string
  penstock tables alter cpu --late dead-letter --late-after 30d";

const CREATE_HELP: &str = "\
Examples:
  penstock tables create cpu --column ts:timestamp! --column load:double --event-time ts
  penstock tables create logs.web --column at:timestamp! --column 'tags:map<string,string>' \\
      --event-time at --event-time-unit ms --bucket 15m --sort host --column host:string

Types: boolean, int, long, float, double, string, binary, date, timestamp, decimal(p,s), list<t>, map<string,t>,
struct<name:t,...>. A `!` behind the type means not null; the event-time column needs it.
Without --event-time rows are bucketed by the time of their receipt.
A table also comes into being with the first rows posted to it; its columns are inferred then.";

/// What `penstock tables` is told.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct TablesArgs {
    #[command(subcommand)]
    command: TablesCommand,
}

#[derive(Debug, Subcommand)]
enum TablesCommand {
    /// List all tables
    #[command(after_help = "Example:\n  penstock tables list")]
    List {
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Show one table: columns, place, what is in Delta and what is not yet
    #[command(after_help = "Example:\n  penstock tables show demo.cpu")]
    Show {
        /// `name` or `namespace.name`
        #[arg(value_name = "NAME")]
        table: TableName,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Create a table
    ///
    /// Creating it again with the same definition is fine; with more columns that may be null it gets them; with anything else is
    /// an error.
    Create(CreateArgs),
    /// Add columns to a table, or change what it takes
    ///
    /// The rows that are there have nulls in them. Columns cannot be dropped; int may become long, and float double, by adding the
    /// column again with that type. Adding a column that is there is fine.
    Alter(AlterArgs),
}

/// What `penstock tables alter` is told.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  penstock tables alter demo.cpu --add-column region:string --add-column 'tags:map<string,string>'"
)]
struct AlterArgs {
    /// `name` or `namespace.name`
    #[arg(value_name = "NAME")]
    table: TableName,
    /// A column; it may be null in rows (repeatable)
    #[arg(long = "add-column", value_name = "NAME:TYPE", required_unless_present_any = RulesFlags::NAMES)]
    columns: Vec<ColumnFlag>,
    #[command(flatten)]
    rules: RulesFlags,
    #[command(flatten)]
    server: ServerArgs,
}

/// What `penstock tables create` is told.
#[derive(Debug, Args)]
#[command(after_help = CREATE_HELP)]
struct CreateArgs {
    /// `name` or `namespace.name`
    #[arg(value_name = "NAME")]
    table: TableName,
    /// A column; `!` behind the type means not null (repeatable)
    #[arg(long = "column", value_name = "NAME:TYPE[!]", required = true)]
    columns: Vec<ColumnFlag>,
    /// The timestamp column that rows are bucketed by
    #[arg(long, value_name = "COLUMN")]
    event_time: Option<String>,
    /// What epoch numbers in the event time count: s, ms, us or ns
    #[arg(long, value_name = "UNIT", requires = "event_time")]
    event_time_unit: Option<TimeUnit>,
    /// Width of a bucket; must divide a day [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = parse_width)]
    bucket: Option<String>,
    /// Do not partition the files by date
    #[arg(long)]
    no_partition: bool,
    /// Sort the rows of a file by this column, then by time (repeatable)
    #[arg(long = "sort", value_name = "COLUMN")]
    sort: Vec<String>,
    /// Give data files a Bloom filter for this column, by which readers that look for one id skip most of a file (repeatable)
    #[arg(long = "bloom", value_name = "COLUMN")]
    bloom: Vec<String>,
    #[command(flatten)]
    rules: RulesFlags,
    #[command(flatten)]
    server: ServerArgs,
}

/// What a table takes.
#[derive(Debug, Args)]
struct RulesFlags {
    /// Rows older than --late-after when they arrive: accept, dead-letter or reject [default: accept]
    #[arg(long, value_name = "ACTION")]
    late: Option<Action>,
    /// How old a row may be [default: 7d]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    late_after: Option<Duration>,
    /// Rows further in the future than --early-after: accept, dead-letter or reject [default: dead-letter]
    #[arg(long, value_name = "ACTION")]
    early: Option<Action>,
    /// How far ahead a row may be [default: 48h]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    early_after: Option<Duration>,
    /// Rows whose time lies in 1970, and near to now in another unit: accept, dead-letter or reject [default: dead-letter]
    #[arg(long, value_name = "ACTION")]
    wrong_unit: Option<Action>,
    /// Columns that rows have and the table does not: strict (their rows are rejected) or evolve (the table gets them)
    /// [default: strict; evolve for a table that is made from rows]
    #[arg(long, value_name = "MODE")]
    schema: Option<SchemaMode>,
}

impl RulesFlags {
    const NAMES: [&str; 6] = ["late", "late_after", "early", "early_after", "wrong_unit", "schema"];

    fn patch(&self) -> RulesPatch {
        let Self { late, late_after, early, early_after, wrong_unit, schema } = *self;
        RulesPatch { late, late_after, early, early_after, wrong_unit, schema }
    }
}

/// Checks the width here, and sends it as it was written.
fn parse_width(text: &str) -> Result<String, humantime::DurationError> {
    humantime::parse_duration(text).map(|_| text.to_owned())
}

/// Runs the command under `tables`.
pub async fn run(args: &TablesArgs) -> Result<(), Error> {
    let text = match &args.command {
        TablesCommand::List { server } => list(&Client::new(&server.url)?.tables().await?),
        TablesCommand::Show { table, server } => show_table(&Client::new(&server.url)?.table(table).await?),
        TablesCommand::Create(args) => create(args).await?,
        TablesCommand::Alter(args) => alter(args).await?,
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

async fn create(args: &CreateArgs) -> Result<String, Error> {
    let client = Client::new(&args.server.url)?;
    let (spec, created) = client.create(&args.table, &args.definition()).await?;
    let verb = if created { "created" } else { "is already there as" };
    Ok(format!("{verb} {}\n{}\n", spec.name, columns(&spec)))
}

async fn alter(args: &AlterArgs) -> Result<String, Error> {
    let client = Client::new(&args.server.url)?;
    let before = client.table(&args.table).await?.table;
    let mut wanted = CreateTable { rules: args.rules.patch(), ..CreateTable::of(&before) };
    for ColumnFlag(column) in &args.columns {
        match wanted.columns.iter_mut().find(|there| there.name == column.name) {
            // With another type: the server says why not.
            Some(there) => there.kind = column.kind.clone(),
            None => wanted.columns.push(column.clone()),
        }
    }
    let (spec, _) = client.create(&args.table, &wanted).await?;
    let verb = if spec.schema_version > before.schema_version { "has changed:" } else { "was like this already:" };
    Ok(format!("{} {verb} schema version {}\n{}\n", spec.name, spec.schema_version, columns(&spec)))
}

impl CreateArgs {
    fn definition(&self) -> CreateTable {
        CreateTable {
            columns: self.columns.iter().map(|flag| flag.0.clone()).collect(),
            event_time: self.event_time.clone(),
            event_time_unit: self.event_time_unit,
            bucket: self.bucket.clone(),
            partition: !self.no_partition,
            sort: self.sort.clone(),
            bloom: self.bloom.clone(),
            rules: self.rules.patch(),
        }
    }
}

fn list(tables: &[TableSpec]) -> String {
    if tables.is_empty() {
        return "no tables yet: post rows to /v1/tables/NAME/rows, or run `penstock tables create`\n".to_owned();
    }
    let mut table = show::table(&["table", ">columns", "event time", ">bucket", "partition", "sort"]);
    for spec in tables {
        table.add_row([
            spec.name.to_string(),
            spec.columns.len().to_string(),
            event_time(&spec.event_time),
            show::uptime(u64::from(spec.bucket_seconds)),
            show::optional(spec.partition.as_ref()),
            spec.sort.join(", "),
        ]);
    }
    format!("{table}\n")
}

fn show_table(reply: &TableReply) -> String {
    let spec = &reply.table;
    let facts = show::facts([
        ("table", spec.name.to_string()),
        ("id", reply.id.clone()),
        ("location", reply.location.clone()),
        ("event time", event_time(&spec.event_time)),
        ("bucket", show::uptime(u64::from(spec.bucket_seconds))),
        ("partition", show::optional(spec.partition.as_ref())),
        ("sort", spec.sort.join(", ")),
        ("bloom filters", spec.bloom.join(", ")),
        ("schema version", spec.schema_version.to_string()),
        ("Delta version", show::optional(reply.delta_version)),
        ("in Delta", format!("{} rows in {} files", show::count(reply.delta_rows), show::count(reply.delta_files))),
        ("new columns", if spec.rules.schema == SchemaMode::Evolve { "evolve" } else { "strict" }.to_owned()),
        ("late rows", taken(spec.rules.late, "older than", spec.rules.late_after)),
        ("early rows", taken(spec.rules.early, "ahead by more than", spec.rules.early_after)),
        ("not flushed", format!("{} rows", show::count(reply.unflushed_rows))),
    ]);
    format!("{}\n\n{}\n", facts.trim_fmt(), columns(spec))
}

fn columns(spec: &TableSpec) -> comfy_table::Table {
    let mut table = show::table(&["column", "type", "null"]);
    for column in &spec.columns {
        let null = if column.nullable { "yes" } else { "no" };
        table.add_row([show::plain(&column.name), show::plain(&column.kind.to_string()), null.to_owned()]);
    }
    table
}

fn taken(action: Action, what: &str, after: Duration) -> String {
    if action == Action::Accept {
        "accept".to_owned()
    } else {
        format!("{action}, if {what} {}", humantime::format_duration(after))
    }
}

fn event_time(source: &EventTime) -> String {
    match source {
        EventTime::Column { name, unit: Some(unit) } => format!("{} (numbers count {unit})", show::plain(name)),
        EventTime::Column { name, unit: None } => show::plain(name),
        EventTime::Receipt { .. } => "time of receipt".to_owned(),
    }
}
