//! `penstock checkpoint`: unflushed rows out of the log, now.

use std::io::{self, Write};

use clap::Args;

use super::client::{Checkpoint, Client};
use super::{Error, ServerArgs, show};

const AFTER_HELP: &str = "\
Examples:
  penstock checkpoint                               before a planned restart
  penstock checkpoint --url http://10.0.0.7:8750    of another server
  penstock status                                   what a restart would read

An ordinary stop (Ctrl-C, SIGTERM) checkpoints by itself. Nothing changes for readers: the rows stay visible to SQL, and
still reach Delta exactly once.";

/// What `penstock checkpoint` is told.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct CheckpointArgs {
    #[command(flatten)]
    server: ServerArgs,
}

/// Checkpoints and prints what came of it.
pub async fn run(args: &CheckpointArgs) -> Result<(), Error> {
    let shards = Client::new(&args.server.url)?.checkpoint().await?;
    writeln!(io::stdout().lock(), "{}", render(&shards))?;
    Ok(())
}

/// A line for each shard.
pub(super) fn render(shards: &[Checkpoint]) -> comfy_table::Table {
    let headings =
        [">shard", ">log needed from", ">rows moved", ">extents", ">segments freed", ">files dropped", ">time"];
    let mut table = show::table(&headings);
    for shard in shards {
        table.add_row([
            shard.shard.to_string(),
            shard.checkpoint_lsn.to_string(),
            show::bytes(shard.lane_bytes),
            show::count(shard.extents),
            show::count(shard.segments_freed),
            show::count(shard.files_dropped),
            format!("{} ms", show::count(shard.millis)),
        ]);
    }
    table
}
