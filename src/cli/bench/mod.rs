//! `penstock bench append`: a closed loop of posts over HTTP, and what they cost.
//!
//! - `payload`: rows made once, with current times patched in for each post;
//! - `load`: the connections, each sending its next post when the last one is acknowledged;
//! - `report`: the figures, for people and as JSON.

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

mod load;
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
    let What::Append(args) = &args.what;
    if u64::from(args.rows) * u64::from(args.row_bytes) > MAX_POST_BYTES {
        return Err(Error::PostTooLarge { rows: args.rows, row_bytes: args.row_bytes }.into());
    }
    let report = match &args.url {
        Some(url) => append(args, &Client::new(url)?).await?,
        None => append_to_own_server(args).await?,
    };
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{:#}", report.json())?;
    } else {
        out.write_all(report.text().as_bytes())?;
    }
    Ok(())
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
    let tables = (0..args.tables)
        .map(|i| TableName::new("bench", &format!("append_{i}")))
        .collect::<Result<Vec<_>, _>>()
        .map_err(Error::Name)?;
    for table in &tables {
        client.create(table, &payload::definition()).await?;
    }
    let interrupts = Interrupts::listen().map_err(super::Error::Runtime)?;
    let load = Load {
        client: client.clone(),
        payload: Arc::new(Payload::new(args.format, args.rows, args.row_bytes).map_err(Error::Encode)?),
        tables: tables.into(),
        connections: args.connections,
    };
    let seconds = |n: u32| Duration::from_secs(u64::from(n));
    let measure = async {
        if args.warm_up > 0 {
            load.run(seconds(args.warm_up), u64::MAX).await?;
        }
        let before = client.status().await?;
        let outcome = load.run(seconds(args.seconds), args.max_posts.unwrap_or(u64::MAX)).await?;
        let after = client.status().await?;
        Ok::<_, super::Error>((before, outcome, after))
    };
    let (before, outcome, after): (Status, Outcome, Status) = tokio::select! {
        outcome = measure => outcome?,
        () = interrupts.reached(FINISH) => return Err(super::Error::Interrupted),
    };
    if outcome.posts == 0 {
        return Err(Error::Nothing(args.seconds).into());
    }
    Ok(Report::new(args, &outcome, &before, &after))
}
