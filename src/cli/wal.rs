//! `penstock wal`: the log and the checkpoints of a server that is stopped. The one command that reads them itself.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use penstock_store::OpenError;
use penstock_store::fs::{FileSystem, RealFileSystem};
use penstock_store::tools::{self, RepairError};

use super::{Error as CliError, show};
use crate::config::{self, Config};

mod json;

const AFTER_HELP: &str = "\
Examples:
  penstock wal inspect --data-dir /var/lib/penstock
  penstock wal verify --config penstock.toml
  penstock wal repair --data-dir /var/lib/penstock          says what it would do
  penstock wal repair --data-dir /var/lib/penstock --yes    does it

The server has to be stopped; a directory in use is refused.";

const INSPECT_HELP: &str = "\
Examples:
  penstock wal inspect
  penstock wal inspect --data-dir /var/lib/penstock --json | jq '.shards[].generations'
  penstock wal inspect --records

A generation is what one seal closes: rows of one table and bucket that go to Delta together. Open ones still grow;
sealed ones wait for their commit. Rows lie in the log or, moved there by a checkpoint, in a lane file.";

const VERIFY_HELP: &str = "\
Examples:
  penstock wal verify
  penstock wal verify --data-dir /var/lib/penstock --lane /mnt/a/lane --lane /mnt/b/lane
  penstock wal verify --json | jq '.findings[] | select(.severity == \"error\")'

An error is what a start or a query would refuse, or rows that cannot be read. A note is what nobody needs: leftovers
of a crash, damage below the checkpoint. Exits with 1 if there is an error.";

const REPAIR_HELP: &str = "\
Examples:
  penstock wal repair          says what it would do and what would be lost
  penstock wal repair --yes    does it

First choice is always to restore the damaged file from a copy of this very node. A repair keeps every row that is
intact, exactly once, with its seal. What is damaged is given up, copied to DATA_DIR/quarantine first and listed in a
report there. It refuses where it could not tell which rows Delta has already.";

/// What `penstock wal` is told.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct WalArgs {
    #[command(subcommand)]
    command: WalCommand,
}

#[derive(Debug, Subcommand)]
enum WalCommand {
    /// Show what the log and the checkpoints hold
    ///
    /// Shows shards, log files, generations, lane files and how far the commits are. Changes nothing.
    #[command(after_help = INSPECT_HELP)]
    Inspect {
        /// Print every record of the retained log instead, one a line
        #[arg(long)]
        records: bool,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Check every checksum and every invariant
    ///
    /// Reads everything and goes on after a finding. Changes nothing.
    #[command(after_help = VERIFY_HELP)]
    Verify {
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Get a damaged directory to start again
    ///
    /// Without --yes it says what it would do, and changes nothing.
    #[command(after_help = REPAIR_HELP)]
    Repair {
        /// Do it
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        place: PlaceArgs,
    },
}

/// Where the data lie, and how the answer is written.
#[derive(Debug, Clone, Args)]
struct PlaceArgs {
    /// Configuration file (TOML) that the server is started with: for its data directory and its lanes
    #[arg(long, env = "PENSTOCK_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The server's data directory [default: ./data]
    #[arg(long, env = "PENSTOCK_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// A lane, in the order of the configuration's `store.lanes` (repeatable) [default: lanes/0 in the data directory]
    #[arg(long = "lane", value_name = "DIR")]
    lanes: Vec<PathBuf>,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

/// Why there is no answer, or not the one that was hoped for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration file.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The directory cannot be opened or read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Not repaired.
    #[error(transparent)]
    Repair(RepairError),
    /// The check found errors.
    #[error("{0} errors; the directory is damaged")]
    Damaged(usize),
    /// A repair would be refused.
    #[error("a repair would be refused")]
    WouldRefuse,
}

impl Error {
    /// What to do next.
    pub fn help(&self) -> Option<String> {
        let text = match self {
            Self::Config(_) => "config/penstock.toml in the source tree shows every key with its default",
            Self::Open(OpenError::Locked { .. }) | Self::Repair(RepairError::Open(OpenError::Locked { .. })) => {
                "stop the server first"
            }
            Self::Open(OpenError::CountChanged { .. })
            | Self::Repair(RepairError::Open(OpenError::CountChanged { .. })) => {
                "name the lanes with --lane, or the server's configuration with --config"
            }
            Self::Damaged(_) => "restore the file from a copy of this very node, or see `penstock wal repair`",
            Self::Repair(RepairError::Refused(_)) | Self::WouldRefuse => {
                "restore the file from a copy of this very node, or keep the directory for examination"
            }
            Self::Open(_) | Self::Repair(_) => return None,
        };
        Some(text.to_owned())
    }
}

impl From<RepairError> for Error {
    fn from(error: RepairError) -> Self {
        match error {
            RepairError::Open(error) => Self::Open(error),
            refused @ RepairError::Refused(_) => Self::Repair(refused),
        }
    }
}

struct Place {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    lanes: Vec<PathBuf>,
    json: bool,
}

impl PlaceArgs {
    fn place(&self) -> Result<Place, Error> {
        let config = Config::load(self.config.as_deref(), &[])?;
        Ok(Place {
            fs: Arc::new(RealFileSystem),
            dir: self.data_dir.clone().unwrap_or(config.data_dir),
            lanes: if self.lanes.is_empty() { config.store.lanes } else { self.lanes.clone() },
            json: self.json,
        })
    }
}

/// Runs one of the tools.
pub fn run(args: &WalArgs) -> Result<(), CliError> {
    match &args.command {
        WalCommand::Inspect { records: true, place } => records(&place.place()?),
        WalCommand::Inspect { records: false, place } => inspect(&place.place()?),
        WalCommand::Verify { place } => verify(&place.place()?),
        WalCommand::Repair { yes, place } => repair(&place.place()?, *yes),
    }
}

fn inspect(place: &Place) -> Result<(), CliError> {
    let found = tools::inspect(&place.fs, &place.dir, &place.lanes).map_err(Error::from)?;
    let mut out = io::stdout().lock();
    if place.json {
        writeln!(out, "{:#}", json::inspection(&found))?;
        return Ok(());
    }
    let rates: Vec<String> = found.replay_rates.iter().map(|rate| format!("{}/s", show::bytes(*rate))).collect();
    let facts = show::facts([
        ("directory", place.dir.display().to_string()),
        ("node", format!("{}, format version {}", found.node, found.format_version)),
        ("starts", format!("{}; the newest is incarnation {}", show::count(found.starts), found.incarnation)),
        ("replay", if rates.is_empty() { "not measured".to_owned() } else { rates.join(", ") }),
    ]);
    writeln!(out, "{}", facts.trim_fmt())?;
    for shard in &found.shards {
        let facts = show::facts([
            ("log", format!("needed from LSN {}, ends at {}", shard.checkpoint, shard.end)),
            ("manifest", format!("file {}, edit {}", shard.manifest_file, shard.edits)),
            ("producers", show::count(shard.producers)),
            ("keys", show::count(shard.keys)),
            ("state", state(shard)),
        ]);
        writeln!(out, "\nshard {}\n{}", shard.shard, facts.trim_fmt())?;
        let mut table =
            show::table(&["log file", ">used", ">groups", ">slices", ">seals", ">commits", ">defines", "state"]);
        for s in &shard.segments {
            let r = s.records;
            let counts = [s.groups, r.slices, r.seals, r.commits, r.defines].map(show::count);
            let state = s.damage.clone().unwrap_or_else(|| "ok".to_owned());
            table.add_row([vec![s.file.clone(), show::bytes(s.used)], counts.to_vec(), vec![state]].concat());
        }
        writeln!(out, "{table}")?;
        let mut table =
            show::table(&["table", "bucket", "seal", ">rows", ">bytes", ">slices", ">in lane files", ">in the log"]);
        for g in &shard.generations {
            let seal = g.seal.map_or_else(|| "open".to_owned(), |(_, sequence, _)| sequence.to_string());
            table.add_row([
                g.table.to_string(),
                g.bucket.start.to_string(),
                seal,
                show::count(g.rows),
                show::bytes(g.bytes),
                show::count(g.slices),
                format!("{} extents", g.extents),
                format!("{} slices", g.log_slices),
            ]);
        }
        writeln!(out, "{table}")?;
        let mut table = show::table(&["lane file", ">bytes", ">live", ">extents", ">live", "state"]);
        for f in &shard.lane_files {
            table.add_row([
                show::plain(&f.path.display().to_string()),
                show::bytes(f.bytes),
                show::bytes(f.live_bytes),
                show::count(f.extents),
                show::count(f.live_extents),
                if f.damaged { "DAMAGED" } else { "ok" }.to_owned(),
            ]);
        }
        writeln!(out, "{table}")?;
        let mut table = show::table(&["table", "incarnation", ">sealed", ">committed"]);
        for w in &shard.watermarks {
            table.add_row([
                w.table.to_string(),
                w.incarnation.to_string(),
                show::count(w.sealed),
                show::count(w.committed),
            ]);
        }
        writeln!(out, "{table}")?;
    }
    Ok(())
}

fn state(shard: &tools::inspect::ShardInspection) -> String {
    match (shard.damaged, shard.torn) {
        (0, false) => "ok".to_owned(),
        (0, true) => "ok; a torn group at the end, which the next start leaves out".to_owned(),
        (places, _) => format!("DAMAGED in {places} places; `penstock wal verify` says more"),
    }
}

fn records(place: &Place) -> Result<(), CliError> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut failed = None;
    let told = tools::records(&place.fs, &place.dir, &place.lanes, |record| {
        if failed.is_some() {
            return;
        }
        let tables: Vec<String> = record.tables.iter().map(ToString::to_string).collect();
        let (shard, lsn, kind) = (record.shard, record.lsn, record.kind);
        let written = if place.json {
            writeln!(out, "{}", json::record(&record))
        } else {
            let (rows, bytes) = (record.rows, record.bytes);
            writeln!(out, "{shard} {lsn:>12} {kind:<7} {rows:>8} rows {bytes:>10} bytes  {}", tables.join(" "))
        };
        failed = written.err();
    });
    told.map_err(Error::from)?;
    failed.map_or(Ok(()), Err)?;
    out.flush()?;
    Ok(())
}

fn verify(place: &Place) -> Result<(), CliError> {
    let report = tools::verify(&place.fs, &place.dir, &place.lanes).map_err(Error::from)?;
    let errors = report.errors().count();
    let mut out = io::stdout().lock();
    if place.json {
        writeln!(out, "{:#}", json::verified(&report))?;
    } else {
        let c = report.checked;
        let [files, groups, records, extents] = [c.files, c.groups, c.records, c.extents].map(show::count);
        let read = show::bytes(c.bytes);
        writeln!(out, "checked {files} files, {read}: {groups} groups, {records} records, {extents} extents")?;
        for finding in &report.findings {
            let severity = if finding.severity == tools::Severity::Error { "ERROR" } else { "note" };
            let at = finding.offset.map_or_else(String::new, |offset| format!(" at byte {offset}"));
            let lsns = finding.lsns.map_or_else(String::new, |(from, to)| format!(" (LSN {from} to {to})"));
            let path = show::plain(&finding.path.display().to_string());
            writeln!(out, "{severity}: {path}{at}{lsns}: {}", show::plain(&finding.what))?;
            for rows in &finding.rows {
                let guess = if rows.is_guess { ", as the damaged bytes read" } else { "" };
                writeln!(out, "  {} rows of table {}, bucket {}{guess}", rows.rows, rows.table, rows.bucket.start)?;
            }
        }
        if errors == 0 {
            writeln!(out, "no errors")?;
        }
    }
    if errors > 0 { Err(Error::Damaged(errors).into()) } else { Ok(()) }
}

fn repair(place: &Place, yes: bool) -> Result<(), CliError> {
    let report = tools::repair(&place.fs, &place.dir, &place.lanes, !yes).map_err(Error::from)?;
    let mut out = io::stdout().lock();
    if place.json {
        writeln!(out, "{:#}", json::repaired(&report))?;
    } else if report.is_sound() {
        writeln!(out, "nothing to repair")?;
    } else {
        let tense = if yes { "done" } else { "would be done; add --yes to do it" };
        writeln!(out, "{tense}\n\n{}", report.text().lines().map(show::plain).collect::<Vec<_>>().join("\n"))?;
        for refusal in &report.refusals {
            writeln!(out, "REFUSED: {}", show::plain(refusal))?;
        }
        for path in &report.quarantined {
            writeln!(out, "kept: {}", show::plain(&path.display().to_string()))?;
        }
    }
    if report.refusals.is_empty() { Ok(()) } else { Err(Error::WouldRefuse.into()) }
}
