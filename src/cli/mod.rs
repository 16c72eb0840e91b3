//! The command line: everything a person does with a Penstock, from the first look to a measurement.
//!
//! - [`serve`]: runs the server in this process;
//! - `client`: the HTTP API as typed calls, with errors a person can act on;
//! - `starting`: how far its start is;
//! - `sql`, `tables`, `letters`, `status`, `flush`, `checkpoint`, `receipt`, `tune`: one call each, shown for people or for programs;
//! - `reshape`: another number of logs or lanes, of a server that is stopped;
//! - `child`: a server of our own for the length of a command (`demo`, `bench`);
//! - `demo`: this machine's telemetry through the whole product, with counts that must agree;
//! - `bench`: a closed loop of posts against a server, and what they cost;
//! - `doctor`: whether an object store is fit to be a lake;
//! - `wal`: the log and the checkpoints of a stopped server: look, check, repair;
//! - `latency`, `show`, `signals`: percentiles, figures for people, Ctrl-C.
//!
//! Absent here: reading catalogs directly. Every command but `serve`, `reshape`, `doctor` and `wal` speaks HTTP, so that what it shows is
//! what any client sees. The one exception is `demo`'s check, which reads the Delta tables itself to be independent.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

mod bench;
mod checkpoint;
mod child;
mod client;
mod demo;
mod doctor;
mod error;
mod flush;
mod latency;
mod letters;
mod receipt;
mod reshape;
pub mod serve;
mod show;
mod signals;
mod sql;
mod starting;
mod status;
mod tables;
mod tune;
mod wal;

#[cfg(test)]
mod stub;
#[cfg(test)]
mod tests;

pub use error::Error;

/// The address of a server that was started without options.
pub const DEFAULT_URL: &str = "http://127.0.0.1:8750";

const AFTER_HELP: &str = "\
Examples:
  penstock demo                                   see it work on this machine's own telemetry
  penstock serve --data-dir ./data                run a server
  penstock sql -c 'select count(*) from cpu'      ask it

Exit codes: 0 done, 1 failed, 2 the command line was wrong.";

/// The durable inlet of a Delta lakehouse: acknowledged on disk, in the table exactly once, readable at once.
#[derive(Debug, Parser)]
#[command(name = "penstock", version, about, after_help = AFTER_HELP, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the server
    ///
    /// It accepts rows over HTTP, acknowledges them once they are on disk, flushes them to Delta tables and answers
    /// SQL over both.
    Serve(ServeArgs),
    /// Ask questions in SQL, interactively or one by one
    ///
    /// Runs SQL on a server: from -c, from standard input, or interactively. Statements end with `;`; the first one
    /// that fails ends the run.
    Sql(sql::SqlArgs),
    /// List, show or create tables
    ///
    /// Each table is one Delta table, with a schema, an event time and a sort order.
    Tables(tables::TablesArgs),
    /// List, show or replay rows that their tables could not hold
    ///
    /// Rejected rows are kept as they were sent, with the reason. Once the table can hold them, a replay appends them.
    DeadLetters(letters::LettersArgs),
    /// Show how a server is doing
    ///
    /// Shows whether a server is ready, what its log holds, and for each table how much is acknowledged but not in
    /// Delta yet.
    Status(status::StatusArgs),
    /// Bring acknowledged rows into their Delta tables now
    ///
    /// Seals what is open and waits until it is committed to the Delta tables. The server also does this by itself, by
    /// time and by size.
    Flush(flush::FlushArgs),
    /// Ask what became of acknowledged rows
    ///
    /// Says whether the rows of a receipt are on disk, on their way, or in the Delta table, and since which version; and waits for it.
    Receipt(receipt::ReceiptArgs),
    /// Make the next start of a server short
    ///
    /// Moves the rows that are not in Delta yet out of the log into lane files, so that a restart, or a start after a crash,
    /// reads next to nothing of the log. The server also does this by itself, by time and by length of the log.
    Checkpoint(checkpoint::CheckpointArgs),
    /// Show or change settings of a running server
    ///
    /// Changes hold at once, without a restart: how much is flushed at the same time, when buckets are sealed and logs
    /// checkpointed, and how much is let in.
    Tune(tune::TuneArgs),
    /// Change the number of logs or lanes of a stopped server
    ///
    /// Moves all rows that are not in Delta yet into a new layout beside the present one, and switches to it at once.
    /// Cut short, the data directory is as before, or changed as a whole.
    Reshape(reshape::ReshapeArgs),
    /// See the whole product work on this machine's own telemetry
    ///
    /// Shows the whole product on this machine's own telemetry: acknowledged on disk, visible to SQL at once, in Delta
    /// exactly once, readable from Python.
    Demo(demo::DemoArgs),
    /// Measure a server
    ///
    /// From outside, over HTTP, as any client sees it.
    Bench(bench::BenchArgs),
    /// Examine an object store: is it fit to be a lake?
    ///
    /// Proves that the store honours create-only PUTs, on which every commit relies, then writes, commits and reads back a
    /// small table as the server does, and removes it.
    Doctor(doctor::DoctorArgs),
    /// Look into, check or repair the data of a stopped server
    ///
    /// Reads the log, the checkpoints and their manifests themselves; the server has to be stopped.
    Wal(wal::WalArgs),
}

/// Where the server is.
#[derive(Debug, Clone, Args)]
pub struct ServerArgs {
    /// URL of the server
    #[arg(long, env = "PENSTOCK_URL", default_value = DEFAULT_URL, value_name = "URL")]
    pub url: String,
}

const SERVE_HELP: &str = "\
Examples:
  penstock serve
  penstock serve --data-dir /var/lib/penstock --listen 0.0.0.0:8750
  penstock serve --config penstock.toml --set admission.max_unflushed=2GiB

The port is open at once: until the log is read, requests get 503 with Retry-After, and GET /readyz says how far it is.
Ctrl-C or SIGTERM drains: no new requests, the running ones finish, the log is left clean. During the start it ends it.
SIGHUP reads the configuration file again; what takes a restart is said in the log. See also `penstock tune`.";

/// What `penstock serve` is told. Options here win over the environment, which wins over the configuration file.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = SERVE_HELP)]
pub struct ServeArgs {
    /// Configuration file (TOML); without one the defaults hold
    #[arg(long, env = "PENSTOCK_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory of the log, the catalog and, by default, the tables [default: ./data]
    #[arg(long, env = "PENSTOCK_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Address to listen on; port 0 takes a free one [default: 127.0.0.1:8750]
    #[arg(long, env = "PENSTOCK_LISTEN", value_name = "ADDR")]
    pub listen: Option<String>,
    /// File that receives the bound address once the server is ready
    #[arg(long, value_name = "FILE")]
    pub port_file: Option<PathBuf>,
    /// Sets one key of the configuration, as in the file: `section.key=value` (repeatable)
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = parse_setting)]
    pub settings: Vec<(String, String)>,
}

/// Reads `KEY=VALUE`.
fn parse_setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE, for example flush.parallelism=4".to_owned()),
    }
}

/// Reads the command line of this process and runs it.
pub fn main() -> ExitCode {
    run(Cli::parse())
}

/// Runs a command; failures are printed to standard error with what to do next.
pub fn run(cli: Cli) -> ExitCode {
    let outcome = match cli.command {
        Command::Serve(args) => return serve::run(args),
        Command::Sql(args) => sql::run(&args),
        Command::Tables(args) => block_on(tables::run(&args)),
        Command::DeadLetters(args) => block_on(letters::run(&args)),
        Command::Status(args) => block_on(status::run(&args)),
        Command::Flush(args) => block_on(flush::run(&args)),
        Command::Receipt(args) => block_on(receipt::run(&args)),
        Command::Checkpoint(args) => block_on(checkpoint::run(&args)),
        Command::Tune(args) => block_on(tune::run(&args)),
        Command::Reshape(args) => reshape::run(&args),
        Command::Demo(args) => block_on(demo::run(args)),
        Command::Bench(args) => block_on(bench::run(&args)),
        Command::Doctor(args) => block_on(doctor::run(&args)),
        Command::Wal(args) => wal::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error::report(&error),
    }
}

/// The runtime of the commands that are clients.
fn runtime() -> Result<tokio::runtime::Runtime, Error> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::Runtime)
}

fn block_on(command: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    let runtime = runtime()?;
    let outcome = runtime.block_on(command);
    // A thread that still samples or reads a terminal must not hold the process.
    runtime.shutdown_background();
    outcome
}
