//! `penstock status`: how a server is doing.

use std::io::{self, Write};

use clap::Args;

use super::client::{Client, Recovery, ShardStatus, Status, Store, TableStatus};
use super::{Error, ServerArgs, show};

const AFTER_HELP: &str = "\
Examples:
  penstock status
  penstock status --json | jq .store
  penstock status --url http://10.0.0.7:8750";

/// What `penstock status` is told.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct StatusArgs {
    /// Print the server's answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Asks and prints.
pub async fn run(args: &StatusArgs) -> Result<(), Error> {
    let client = Client::new(&args.server.url)?;
    let mut out = io::stdout().lock();
    if args.json {
        let status = client.status_json().await?;
        writeln!(out, "{status:#}")?;
    } else {
        let status = client.status().await?;
        out.write_all(render(&status).as_bytes())?;
    }
    Ok(())
}

/// The state for people, some lines and two tables.
pub(super) fn render(status: &Status) -> String {
    let ready = match (&status.reason, status.ready) {
        (_, true) => "ready".to_owned(),
        (Some(reason), false) => format!("NOT READY: {reason}"),
        (None, false) => "NOT READY".to_owned(),
    };
    let mut text = format!(
        "{}\n\n{}\n",
        show::facts([
            (
                "server",
                format!("penstock {}, {ready}, up {}", status.version, show::uptime(status.uptime_seconds as u64))
            ),
            ("node", format!("{}, incarnation {}", status.node, status.incarnation)),
            ("lake", lake(status)),
            ("process", process(status)),
            ("unflushed", unflushed(status)),
            ("admission", admission(status)),
            ("log", log(status)),
            ("lanes", lanes(&status.store.shards)),
            ("restart", restart(&status.store)),
        ])
        .trim_fmt(),
        shards(&status.store.shards)
    );
    if status.tables.is_empty() {
        text.push_str("\nno tables yet: post rows to /v1/tables/NAME/rows, or run `penstock tables create`\n");
    } else {
        text.push_str(&format!("\n{}\n", tables(&status.tables)));
    }
    for shard in &status.store.shards {
        if let Some(reason) = &shard.postponed {
            let number = shard.shard;
            text.push_str(&format!("\nshard {number}: CHECKPOINT PUT OFF, its log grows: {}\n", show::plain(reason)));
        }
    }
    for table in &status.tables {
        if let Some(error) = &table.last_error {
            text.push_str(&format!("\n{}: {}\n", show::plain(&table.table), show::plain(error)));
        }
    }
    text
}

fn lake(status: &Status) -> String {
    match &status.lake_problem {
        None => status.lake_url.clone(),
        Some(problem) => format!("{}: NOTHING IS FLUSHED: {}", status.lake_url, show::plain(problem)),
    }
}

fn process(status: &Status) -> String {
    let process = &status.process;
    format!("{:.1} s of CPU, {} of memory", process.cpu_seconds, show::bytes(process.resident_bytes))
}

fn unflushed(status: &Status) -> String {
    let store = &status.store;
    format!("{} rows, {}", show::count(store.unflushed_rows), show::bytes(store.unflushed_bytes))
}

fn admission(status: &Status) -> String {
    let admission = &status.admission;
    format!(
        "{} of at most {} in use; {} posts refused",
        show::bytes(admission.in_flight_bytes),
        show::bytes(admission.limit_bytes),
        show::count(admission.refusals)
    )
}

fn log(status: &Status) -> String {
    let store = &status.store;
    format!(
        "{} records in {} groups, {} syncs; {} written for {} of payload",
        show::count(store.records),
        show::count(store.groups),
        show::count(store.syncs),
        show::bytes(store.written_bytes),
        show::bytes(store.payload_bytes)
    )
}

fn lanes(shards: &[ShardStatus]) -> String {
    let sum = |figure: fn(&ShardStatus) -> u64| shards.iter().map(figure).sum::<u64>();
    format!(
        "{} of rows in {} files of {}; {} checkpoints",
        show::bytes(sum(|s| s.lane_live_bytes)),
        show::count(sum(|s| s.lane_files)),
        show::bytes(sum(|s| s.lane_bytes)),
        show::count(sum(|s| s.checkpoints))
    )
}

fn restart(store: &Store) -> String {
    let about = store.replay_estimate_seconds.map_or_else(String::new, |s| format!(", about {s:.1} s"));
    let Recovery { records, log_bytes, millis, .. } = store.recovery;
    format!(
        "would read {} of log{about}; this start read {} with {} records in {:.1} s",
        show::bytes(store.replay_bytes),
        show::bytes(log_bytes),
        show::count(records),
        millis as f64 / 1e3
    )
}

fn shards(shards: &[ShardStatus]) -> comfy_table::Table {
    let mut table = show::table(&[">shard", ">durable LSN", ">checkpoint", ">to replay", ">log kept", "state"]);
    for shard in shards {
        let state = match (&shard.poisoned, &shard.postponed) {
            (Some(why), _) => format!("POISONED: {}", show::plain(why)),
            (None, Some(_)) => "CHECKPOINT PUT OFF, see below".to_owned(),
            (None, None) => "ok".to_owned(),
        };
        table.add_row([
            shard.shard.to_string(),
            shard.durable_lsn.to_string(),
            shard.checkpoint_lsn.to_string(),
            show::bytes(shard.replay_bytes),
            show::bytes(shard.retained_bytes),
            state,
        ]);
    }
    table
}

fn tables(tables: &[TableStatus]) -> comfy_table::Table {
    let mut table = show::table(&["table", ">open", ">sealed", ">unflushed rows", ">bytes", ">Delta version", "state"]);
    for row in tables {
        table.add_row([
            show::plain(&row.table),
            show::count(row.open_generations),
            show::count(row.sealed_generations),
            show::count(row.unflushed_rows),
            show::bytes(row.unflushed_bytes),
            show::optional(row.delta_version),
            if row.last_error.is_some() { "FAILING, see below" } else { "ok" }.to_owned(),
        ]);
    }
    table
}
