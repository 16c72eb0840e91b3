//! `penstock demo`: this machine's own telemetry through the whole product, with counts that must agree.
//!
//! In the order of the show:
//!
//! - `telemetry`: the four tables and their rows;
//! - `sample`: what `/proc` says now, as rows;
//! - `load`: sampling and sending, several posts at a time, and a look at the rows while they arrive;
//! - `verify`: the rows of each table counted three times, once by reading the Delta table from disk;
//! - `report`: what is printed.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use tempfile::TempDir;

use super::child::{Launch, Server};
use super::client::Client;
use super::signals::{Interrupts, LEAVE};

mod load;
mod report;
mod sample;
mod telemetry;
#[cfg(test)]
mod tests;
mod verify;

use telemetry::Source;

/// Longest wait for the flush at the end.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(60);

const AFTER_HELP: &str = "\
Examples:
  penstock demo                                 ten seconds; the data stays in a temporary directory
  penstock demo --seconds 60 --senders 8
  penstock demo --data-dir ./penstock-demo      keep the data here
  penstock demo --discard                       remove it at the end

It samples processes, memory, disks and network of this machine from /proc, posts them over HTTP to a server of its
own, flushes, and counts every table three times: rows acknowledged, rows in the Delta table's Parquet files on disk,
and rows by SQL. Exit code 0 only if all counts agree. Nothing leaves this machine.";

/// What `penstock demo` is told.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct DemoArgs {
    /// How long to sample and send
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: u32,
    /// Posts in flight at a time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    senders: u32,
    /// Samples a second
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    samples: u32,
    /// Empty or new directory for the data [default: a new one in the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Remove the data at the end
    #[arg(long, conflicts_with = "data_dir")]
    discard: bool,
}

/// Why the show could not go on, or what it found wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no `/proc` to sample.
    #[error("the demo samples /proc, which this system does not have")]
    NoProc,
    /// Sampling failed.
    #[error("could not read this machine's state from /proc: {0}")]
    Sample(#[from] procfs::ProcError),
    /// Counts mean nothing if somebody else's rows are there too.
    #[error("{} is not empty", .0.display())]
    NotEmpty(PathBuf),
    /// The data directory.
    #[error("could not make a directory for the data: {0}")]
    Directory(#[source] io::Error),
    /// An acknowledgement that does not match the post.
    #[error("a post of {sent} rows to {table} was acknowledged with {acked}")]
    Acknowledged {
        /// Where to.
        table: String,
        /// Rows sent.
        sent: u64,
        /// Rows acknowledged.
        acked: u64,
    },
    /// A task ended by a panic.
    #[error("a task of the demo failed: {0}")]
    Task(String),
    /// The Delta table could not be read from disk.
    #[error("could not read the Delta table at {location}: {reason}")]
    Delta {
        /// Its URL.
        location: String,
        /// What the reader said.
        reason: String,
    },
    /// Ended before anything was sent.
    #[error("not a single row was acknowledged")]
    NothingSent,
    /// What must be equal is not.
    #[error("the counts do not agree:\n{0}")]
    Disagree(String),
    /// Standard output is gone.
    #[error("could not write the output: {0}")]
    Output(#[source] io::Error),
}

impl Error {
    /// What to do next.
    pub fn help(&self) -> Option<String> {
        match self {
            Self::NoProc => Some("run it on Linux; `penstock serve` and the HTTP API work without /proc".to_owned()),
            Self::NotEmpty(_) => Some("name a new directory with --data-dir, or leave it out".to_owned()),
            Self::Directory(_) => Some("name another place with --data-dir".to_owned()),
            Self::Disagree(_) => {
                Some("this is a defect of penstock: please report it and keep the data directory".to_owned())
            }
            _ => None,
        }
    }
}

/// The whole show.
pub async fn run(args: DemoArgs) -> Result<(), super::Error> {
    if !cfg!(target_os = "linux") || !Path::new("/proc/self/stat").exists() {
        return Err(Error::NoProc.into());
    }
    let interrupts = Interrupts::listen().map_err(super::Error::Runtime)?;
    // Declared before the server, so that the server is gone when the directory is removed.
    let place = Place::prepare(&args)?;
    let server = tokio::select! {
        server = start(place.path()) => server?,
        () = interrupts.reached(super::signals::FINISH) => return Err(super::Error::Interrupted),
    };
    let outcome = tokio::select! {
        outcome = show(&args, place.path(), &server, &interrupts) => outcome,
        () = interrupts.reached(LEAVE) => Err(super::Error::Interrupted),
    };
    if let (Err(_), Place::Kept(path)) = (&outcome, &place) {
        eprintln!("the data is in {}", path.display());
    }
    let stopped = tokio::select! {
        stopped = server.stop() => stopped,
        // Dropping it kills it, which loses nothing acknowledged.
        () = interrupts.reached(LEAVE) => return Err(super::Error::Interrupted),
    };
    outcome?;
    stopped?;
    print(&report::farewell(&place))?;
    Ok(())
}

async fn start(data_dir: &Path) -> Result<Server, super::Error> {
    Ok(Server::start(&Launch::own(data_dir, &[])?).await?)
}

async fn show(args: &DemoArgs, data_dir: &Path, server: &Server, interrupts: &Interrupts) -> Result<(), super::Error> {
    let client = Client::new(server.url())?;
    print(&report::opening(args, server, data_dir))?;
    for source in Source::ALL {
        client.create(&source.table(), &source.definition()).await?;
    }
    let plan = load::Plan {
        time: Duration::from_secs(u64::from(args.seconds)),
        senders: args.senders as usize,
        samples_per_second: args.samples,
    };
    let sent = load::run(&client, &plan, interrupts).await?;
    if sent.posts == 0 {
        return Err(Error::NothingSent.into());
    }
    print(&report::sending(&sent))?;

    client.flush(None, FLUSH_TIMEOUT).await?;
    let tallies = verify::tally(&client, &sent).await?;
    print(&report::counts(&tallies))?;
    for (title, statement) in report::QUERIES {
        print(&format!("\n{title}\n\n{statement}\n\n"))?;
        let mut result = Vec::new();
        super::sql::execute(&client, statement, super::sql::Format::Table, 50, &mut result).await?;
        io::stdout().lock().write_all(&result).map_err(Error::Output)?;
    }
    if !args.discard {
        print(&report::python(&tallies))?;
    }
    match verify::disagreements(&sent, &tallies) {
        wrong if wrong.is_empty() => Ok(()),
        wrong => Err(Error::Disagree(wrong.join("\n")).into()),
    }
}

fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::Output)
}

/// Where the data is, and whether it stays.
#[derive(Debug)]
enum Place {
    Kept(PathBuf),
    Discarded(TempDir),
}

impl Place {
    fn prepare(args: &DemoArgs) -> Result<Self, Error> {
        if let Some(path) = &args.data_dir {
            fs::create_dir_all(path).map_err(Error::Directory)?;
            if fs::read_dir(path).map_err(Error::Directory)?.next().is_some() {
                return Err(Error::NotEmpty(path.clone()));
            }
            // The hints at the end should work from any directory.
            return fs::canonicalize(path).map(Self::Kept).map_err(Error::Directory);
        }
        let temporary = tempfile::Builder::new().prefix("penstock-demo-").tempdir().map_err(Error::Directory)?;
        Ok(if args.discard { Self::Discarded(temporary) } else { Self::Kept(temporary.keep()) })
    }

    fn path(&self) -> &Path {
        match self {
            Self::Kept(path) => path,
            Self::Discarded(temporary) => temporary.path(),
        }
    }
}
