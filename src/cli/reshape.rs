//! `penstock reshape`: another number of logs or lanes for a data directory whose server is stopped.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use penstock_store::OpenError;
use penstock_store::fs::{FileSystem, RealFileSystem};
use penstock_store::reshape::{ReshapeError, ReshapeReport, Step, reshape};

use super::show;
use crate::config::{self, Config};

const AFTER_HELP: &str = "\
Examples:
  penstock reshape --shards 4                                      four logs
  penstock reshape --lane /ssd0/penstock --lane /ssd1/penstock     two lanes; the present ones come first
  penstock reshape --shards 4 --data-dir /var/lib/penstock

Stop the server first, and give the settings that it ran with. Afterwards set store.shards and store.lanes to the new
values. All rows that are not in Delta yet are copied: their disks need room for them twice.";

/// What `penstock reshape` is told.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ReshapeArgs {
    /// New number of logs; as many as before without
    #[arg(long, value_name = "N", required_unless_present = "lanes")]
    shards: Option<u32>,
    /// Directory of a lane, all of them in their order; as before without (repeatable)
    #[arg(long = "lane", id = "lanes", value_name = "DIR")]
    lanes: Vec<PathBuf>,
    /// Configuration file (TOML) that the server ran with
    #[arg(long, env = "PENSTOCK_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of the log [default: ./data]
    #[arg(long, env = "PENSTOCK_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Sets one key of the configuration, as in the file: `section.key=value` (repeatable)
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = super::parse_setting)]
    settings: Vec<(String, String)>,
}

/// Why nothing was changed, or not for certain.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings cannot be used.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The store refused or failed.
    #[error(transparent)]
    Reshape(#[from] ReshapeError),
}

impl Error {
    /// What to do next, where we know.
    pub fn help(&self) -> Option<String> {
        let text = match self {
            Self::Config(_) => "config/penstock.toml in the source tree shows every key with its default",
            Self::Reshape(ReshapeError::Refused(_)) => "nothing was changed",
            Self::Reshape(ReshapeError::Open(OpenError::Locked { .. })) => "stop the server first",
            Self::Reshape(ReshapeError::Open(OpenError::CountChanged { .. })) => {
                "give the settings that the server ran with; store.shards and store.lanes are the present values"
            }
            Self::Reshape(ReshapeError::Open(_)) => "the data directory is as it was; the server starts as before",
            Self::Reshape(ReshapeError::InDoubt(_)) => {
                "start the server with the old settings, or if it refuses them, with the new ones"
            }
        };
        Some(text.to_owned())
    }
}

/// Changes the layout, and prints what came of it.
pub fn run(args: &ReshapeArgs) -> Result<(), super::Error> {
    let report = change(args)?;
    let change = |before: u32, now: u32| if before == now { now.to_string() } else { format!("{before} -> {now}") };
    let mut out = io::stdout().lock();
    let facts = show::facts([
        ("shards", change(report.shards_before, report.shards)),
        ("lanes", change(report.lanes_before, report.lanes)),
        ("tables", show::count(report.tables)),
        ("rows moved", show::count(report.rows)),
        ("bytes moved", show::bytes(report.bytes)),
    ]);
    writeln!(out, "{facts}")?;
    writeln!(out, "Set store.shards and store.lanes to the new values before the next start.")?;
    Ok(())
}

fn change(args: &ReshapeArgs) -> Result<ReshapeReport, Error> {
    let mut config = Config::load(args.config.as_deref(), &args.settings)?;
    if let Some(dir) = &args.data_dir {
        config.data_dir.clone_from(dir);
    }
    let present = config.store.options();
    let shards = args.shards.unwrap_or(present.shards);
    let lanes = if args.lanes.is_empty() { &present.lanes } else { &args.lanes };
    let fs: Arc<dyn FileSystem> = Arc::new(RealFileSystem);
    Ok(reshape(&fs, &config.data_dir, &present, shards, lanes, &mut tell)?)
}

/// Progress goes to standard error; that nobody reads it is no reason to stop.
fn tell(step: Step) {
    let text = match step {
        Step::Reading => "reading the data directory".to_owned(),
        Step::Writing { shard, shards } => format!("writing shard {} of {shards}", shard + 1),
        Step::Checking => "reading what was written".to_owned(),
        Step::Switching => "switching".to_owned(),
        Step::Removing => "removing what was there before".to_owned(),
    };
    let _ = writeln!(io::stderr().lock(), "{text}");
}
