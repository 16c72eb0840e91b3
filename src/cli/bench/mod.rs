//! `penstock bench`: posts over HTTP, and what they cost.
//!
//! - `payload`: rows made once, with current times patched in for each post;
//! - `load`: the closed loop: connections that each send the next post when the last one is acknowledged;
//! - `open`: the open loop: posts that are due at fixed times;
//! - `report`: the figures of `append`, for people and as JSON;
//! - `latency`, `overload`: the other two measurements, with their figures.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::child::{Launch, Server};
use super::client::{Client, Status};
use super::signals::{FINISH, Interrupts};
use crate::schema::TableName;
use crate::schema::name::NameError;

mod latency;
mod load;
mod open;
mod overload;
mod payload;
mod report;
#[cfg(test)]
mod tests;

use load::{Load, Outcome};
use payload::Payload;
use report::Report;

/// Most bytes of one post.
const MAX_POST_BYTES: u64 = 64 << 20;

const AFTER_HELP: &str = "\
Examples:
  penstock bench append                                     16 connections, 100 rows a post, own server
  penstock bench append --connections 64 --rows 1000 --tables 8 --seconds 30
  penstock bench append --url http://10.0.0.7:8750 --json

Without --url a server is started on a fresh directory under --data-dir and removed afterwards. A directory in
memory (tmpfs) shows what everything but the disk costs.";

/// What `penstock bench` is told.
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Post rows as fast as they are acknowledged
    ///
    /// Posts rows over several connections, each sending the next post when the last one is acknowledged. Prints
    /// throughput, ack latency, CPU time per million rows and bytes written per byte of payload.
    Append(AppendArgs),
    /// Measure what flush, checkpoints and scraping cost the tail of the acks
    ///
    /// Finds the peak load, and sends half of it at fixed times, in turn to a server that flushes, checkpoints and is scraped, and to
    /// one that only writes its log. Latency counts from when a post was due. Prints both and the ratio of the p99s.
    Latency(OpenArgs),
    /// Send more than a server can take
    ///
    /// Finds the load that a small node sustains, and sends a multiple of it at fixed times. Prints what was acknowledged and refused,
    /// what the node held at most, and how soon it was well again.
    Overload(OpenArgs),
}

const OPEN_HELP: &str = "\
Examples:
  penstock bench latency                                    32 connections, 100 rows a post, three rounds of ten seconds
  penstock bench overload --factor 5 --seconds 60
  penstock bench overload --set admission.max_unflushed=1GiB --json

Servers are started for the purpose, on fresh directories under --data-dir, and removed afterwards.";

/// What `penstock bench latency` and `penstock bench overload` are told.
#[derive(Debug, Args)]
#[command(after_help = OPEN_HELP)]
pub struct OpenArgs {
    /// Connections
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    connections: u32,
    /// Rows a post
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rows: u32,
    /// Tables, taken in turn
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    tables: u32,
    /// Length of each measurement
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: u32,
    /// Measurements of each kind, in turn (latency)
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How many times the load that is sustained (overload)
    #[arg(long, default_value_t = 3.0)]
    factor: f64,
    /// Bytes of a row as JSON, about
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(160..=65_536))]
    row_bytes: u32,
    /// What the rows are sent as
    #[arg(long, value_enum, default_value_t = BodyFormat::Ndjson)]
    format: BodyFormat,
    /// Where the servers put their directories [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Sets one key of the servers' configuration (repeatable)
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = super::parse_setting)]
    settings: Vec<(String, String)>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

impl OpenArgs {
    fn time(&self) -> Duration {
        Duration::from_secs(u64::from(self.seconds))
    }
}

/// What `penstock bench append` is told.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct AppendArgs {
    /// Server to measure; without, one is started for the purpose
    #[arg(long, value_name = "URL", conflicts_with_all = ["data_dir", "settings"])]
    url: Option<String>,
    /// Connections, each with one post in flight
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    connections: u32,
    /// Rows a post
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rows: u32,
    /// Tables, taken in turn
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    tables: u32,
    /// Length of the measurement
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: u32,
    /// Seconds of the same load before it
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=60))]
    warm_up: u32,
    /// Posts after which the measurement ends early
    #[arg(long, value_name = "N")]
    max_posts: Option<u64>,
    /// Bytes of a row as JSON, about
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(160..=65_536))]
    row_bytes: u32,
    /// What the rows are sent as
    #[arg(long, value_enum, default_value_t = BodyFormat::Ndjson)]
    format: BodyFormat,
    /// Where the own server puts its directory [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Sets one key of the own server's configuration (repeatable)
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = super::parse_setting)]
    settings: Vec<(String, String)>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

/// What rows are sent as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BodyFormat {
    /// Newline-delimited JSON
    Ndjson,
    /// An Arrow IPC stream
    Arrow,
}

/// Why a measurement could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The options make posts that no server takes.
    #[error("{rows} rows of {row_bytes} bytes are more than {MAX_POST_BYTES} bytes a post")]
    PostTooLarge {
        /// Rows a post.
        rows: u32,
        /// Bytes of a row.
        row_bytes: u32,
    },
    /// The directory for the own server.
    #[error("could not make a directory for the server: {0}")]
    Directory(#[source] io::Error),
    /// An acknowledgement that does not match the post.
    #[error("a post of {sent} rows was acknowledged with {acked}")]
    Acknowledged {
        /// Rows sent.
        sent: u64,
        /// Rows acknowledged.
        acked: u64,
    },
    /// A connection's task ended by a panic.
    #[error("a connection's task failed: {0}")]
    Task(String),
    /// Rows could not be encoded.
    #[error("could not encode rows: {0}")]
    Encode(#[from] arrow::error::ArrowError),
    /// Not a single post went through.
    #[error("no post was acknowledged within {0} s")]
    Nothing(u32),
    /// The names of the tables are ours.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl Error {
    /// What to do next.
    pub fn help(&self) -> Option<String> {
        match self {
            Self::PostTooLarge { .. } => Some("lower --rows or --row-bytes".to_owned()),
            Self::Directory(_) => Some("name another place with --data-dir".to_owned()),
            Self::Nothing(_) => Some("`penstock status` says whether the server refuses rows, and why".to_owned()),
            _ => None,
        }
    }
}

/// Runs the measurement asked for.
pub async fn run(args: &BenchArgs) -> Result<(), super::Error> {
    let interrupts = Interrupts::listen().map_err(super::Error::Runtime)?;
    let measure = async {
        match &args.what {
            What::Append(args) => append_report(args).await,
            What::Latency(args) => {
                check_size(args.rows, args.row_bytes)?;
                latency::run(args).await.and_then(|report| print(args.json, &report, || report.text()))
            }
            What::Overload(args) => {
                check_size(args.rows, args.row_bytes)?;
                overload::run(args).await.and_then(|report| print(args.json, &report, || report.text()))
            }
        }
    };
    tokio::select! {
        outcome = measure => outcome,
        () = interrupts.reached(FINISH) => Err(super::Error::Interrupted),
    }
}

fn check_size(rows: u32, row_bytes: u32) -> Result<(), Error> {
    let fits = u64::from(rows) * u64::from(row_bytes) <= MAX_POST_BYTES;
    if fits { Ok(()) } else { Err(Error::PostTooLarge { rows, row_bytes }) }
}

fn print(json: bool, report: &impl serde::Serialize, text: impl Fn() -> String) -> Result<(), super::Error> {
    let mut out = io::stdout().lock();
    if json {
        let value = serde_json::to_value(report).expect("should serialise: string keys only");
        writeln!(out, "{value:#}")?;
    } else {
        out.write_all(text().as_bytes())?;
    }
    Ok(())
}

/// A server of our own, on a directory that is removed with it.
struct OwnServer {
    // Declared before the directory, so that it is gone when that is removed.
    server: Server,
    _directory: tempfile::TempDir,
}

impl OwnServer {
    async fn start(args: &OpenArgs, settings: &[(&str, &str)]) -> Result<Self, super::Error> {
        let place = args.data_dir.clone().unwrap_or_else(std::env::temp_dir);
        let made = tempfile::Builder::new().prefix("penstock-bench-").tempdir_in(place);
        let directory = made.map_err(Error::Directory)?;
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        // Those of the command line last, which wins.
        let settings: Vec<_> = settings.iter().map(owned).chain(args.settings.iter().cloned()).collect();
        let server = Server::start(&Launch::own(directory.path(), &settings)?).await?;
        Ok(Self { server, _directory: directory })
    }

    /// The load, with its tables made.
    async fn load(&self, args: &OpenArgs) -> Result<Load, super::Error> {
        let client = Client::new(self.server.url())?;
        let tables = make_tables(&client, args.tables).await?;
        let payload = Payload::new(args.format, args.rows, args.row_bytes).map_err(Error::Encode)?;
        Ok(Load { client, payload: Arc::new(payload), tables: tables.into(), connections: args.connections })
    }

    async fn stop(self) -> Result<(), super::Error> {
        Ok(self.server.stop().await?)
    }
}

async fn make_tables(client: &Client, count: u32) -> Result<Vec<TableName>, super::Error> {
    let names = (0..count).map(|i| TableName::new("bench", &format!("append_{i}")));
    let tables = names.collect::<Result<Vec<_>, _>>().map_err(Error::Name)?;
    for table in &tables {
        client.create(table, &payload::definition()).await?;
    }
    Ok(tables)
}

async fn append_report(args: &AppendArgs) -> Result<(), super::Error> {
    check_size(args.rows, args.row_bytes)?;
    let report = match &args.url {
        Some(url) => append(args, &Client::new(url)?).await?,
        None => append_to_own_server(args).await?,
    };
    print(args.json, &report, || report.text())
}

async fn append_to_own_server(args: &AppendArgs) -> Result<Report, super::Error> {
    let place = args.data_dir.clone().unwrap_or_else(std::env::temp_dir);
    // Declared before the server, so that the server is gone when the directory is removed.
    let directory = tempfile::Builder::new().prefix("penstock-bench-").tempdir_in(place).map_err(Error::Directory)?;
    let server = Server::start(&Launch::own(directory.path(), &args.settings)?).await?;
    let report = append(args, &Client::new(server.url())?).await?;
    server.stop().await?;
    Ok(report)
}

async fn append(args: &AppendArgs, client: &Client) -> Result<Report, super::Error> {
    let tables = make_tables(client, args.tables).await?;
    let load = Load {
        client: client.clone(),
        payload: Arc::new(Payload::new(args.format, args.rows, args.row_bytes).map_err(Error::Encode)?),
        tables: tables.into(),
        connections: args.connections,
    };
    let seconds = |n: u32| Duration::from_secs(u64::from(n));
    if args.warm_up > 0 {
        load.run(seconds(args.warm_up), u64::MAX).await?;
    }
    let before: Status = client.status().await?;
    let outcome: Outcome = load.run(seconds(args.seconds), args.max_posts.unwrap_or(u64::MAX)).await?;
    let after: Status = client.status().await?;
    if outcome.posts == 0 {
        return Err(Error::Nothing(args.seconds).into());
    }
    Ok(Report::new(args, &outcome, &before, &after))
}
