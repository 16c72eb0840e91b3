//! `penstock status`: how a server is doing.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;

use super::client::{Basis, Client, Flush, Recovery, ShardStatus, Status, Store, TableStatus, Usage};
use super::{Error, ServerArgs, show};

const AFTER_HELP: &str = "\
Examples:
  penstock status
  penstock status --watch
  penstock status --json | jq .store
  penstock status --url http://10.0.0.7:8750";

/// What `penstock status` is told.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct StatusArgs {
    /// Print the server's answer as JSON
    #[arg(long)]
    json: bool,
    /// Show it again and again, every 2 seconds unless said otherwise, until interrupted
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = clap::value_parser!(u64).range(1..=3_600))]
    watch: Option<u64>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Asks and prints.
pub async fn run(args: &StatusArgs) -> Result<(), Error> {
    let client = Client::new(&args.server.url)?;
    let Some(seconds) = args.watch else {
        let text = text(&client, args.json).await?;
        return Ok(io::stdout().lock().write_all(text.as_bytes())?);
    };
    loop {
        // A server that is away for a moment, as for a restart, is what one may well be watching for.
        let shown = text(&client, args.json).await.unwrap_or_else(|error| format!("{error}\n"));
        let mut out = io::stdout().lock();
        if out.is_terminal() && !args.json {
            write!(out, "{CLEAR}")?;
        }
        write!(out, "{shown}")?;
        out.flush()?;
        drop(out);
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }
}

/// Clears a terminal: cursor to the top left, then everything behind it.
const CLEAR: &str = "\x1b[H\x1b[2J";

async fn text(client: &Client, json: bool) -> Result<String, Error> {
    Ok(if json { format!("{:#}\n", client.status_json().await?) } else { render(&client.status().await?) })
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
            ("memory", memory(&status.usage)),
            ("disk", disks(&status.usage)),
            ("flush", flush(&status.flush)),
            ("log", log(status)),
            ("lanes", lanes(&status.store.shards)),
            ("restart", restart(status)),
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
    if let Some(reason) = &status.flush.infeasible {
        text.push_str(&format!("\nTHE WANTED LAG IS NOT FEASIBLE: {}\n", show::plain(reason)));
    }
    for table in &status.tables {
        if table.dead_generations > 0 {
            text.push_str(&format!(
                "\n{}: {} rows could not be written and are in its namespace's dead_generations table as they came\n",
                show::plain(&table.table),
                show::count(table.dead_rows)
            ));
        }
        if let Some(error) = &table.log_care.last_error {
            text.push_str(&format!(
                "\n{}: the care of its Delta log failed, commits go on: {}\n",
                show::plain(&table.table),
                show::plain(error)
            ));
        }
        if table.sequence_gaps > 0 {
            text.push_str(&format!(
                "\n{}: {} numbered posts never came, and are too far back to be taken any more\n",
                show::plain(&table.table),
                show::count(table.sequence_gaps)
            ));
        }
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
    let lag =
        status.usage.lag_seconds.map_or_else(String::new, |s| format!(", the oldest for {}", show::uptime(s as u64)));
    let drain = match status.usage.drain_rate {
        0 => String::new(),
        rate => format!("; {}/s reach Delta", show::bytes(rate)),
    };
    format!("{} rows, {}{lag}{drain}", show::count(store.unflushed_rows), show::bytes(store.unflushed_bytes))
}

fn memory(usage: &Usage) -> String {
    format!(
        "{} of at most {} of posts being decoded; {} of at most {} being encoded",
        show::bytes(usage.decode_bytes),
        show::bytes(usage.decode_limit_bytes),
        show::bytes(usage.encode_bytes),
        show::bytes(usage.encode_limit_bytes)
    )
}

fn disks(usage: &Usage) -> String {
    let free = |bytes: Option<u64>| bytes.map_or_else(|| "?".to_owned(), show::bytes);
    let disks: Vec<String> = usage.disks.iter().map(|d| format!("{}: {} free", d.of, free(d.free_bytes))).collect();
    format!(
        "{} of log, {} of lane files; {}",
        show::bytes(usage.retained_log_bytes),
        show::bytes(usage.lane_bytes),
        disks.join(", ")
    )
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

fn flush(flush: &Flush) -> String {
    let time = |millis: Option<f64>| millis.map_or_else(|| "-".to_owned(), |ms| show::micros((ms * 1e3) as u64));
    let mut text = format!(
        "parallelism {}; an upload takes {}, a commit {}; {} active tables",
        flush.parallelism,
        time(flush.upload_millis),
        time(flush.commit_millis),
        show::count(flush.active_tables as u64)
    );
    if flush.open_uploads + flush.orphans_removed > 0 {
        let (open, removed) = (show::count(flush.open_uploads), show::count(flush.orphans_removed));
        text.push_str(&format!("; {open} files in no commit yet, {removed} orphans removed"));
    }
    text
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

fn restart(status: &Status) -> String {
    let store: &Store = &status.store;
    let basis = match (store.replay_rate, store.replay_rate_basis) {
        (Some(rate), Basis::Measured) => format!(" at {}/s as measured", show::bytes(rate)),
        (Some(rate), Basis::SelfTest) => format!(" at {}/s by a self-test", show::bytes(rate)),
        _ => String::new(),
    };
    let about = store.replay_estimate_seconds.map_or_else(String::new, |s| format!(", about {s:.1} s{basis}"));
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
    let heads = [
        "table",
        ">open",
        ">sealed",
        ">unflushed rows",
        ">bytes",
        ">lag",
        ">Delta version",
        ">checkpoint",
        ">committed",
        "state",
    ];
    let mut table = show::table(&heads);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64);
    let ago = |at: u64| format!("{} ago", show::uptime(now.saturating_sub(at) / 1_000_000));
    for row in tables {
        table.add_row([
            show::plain(&row.table),
            show::count(row.open_generations),
            show::count(row.sealed_generations),
            show::count(row.unflushed_rows),
            show::bytes(row.unflushed_bytes),
            show::optional(row.lag_seconds.map(|lag| show::uptime(lag as u64))),
            show::optional(row.delta_version),
            show::optional(row.log_care.checkpoint),
            show::optional(row.committed_at.map(ago)),
            state(row),
        ]);
    }
    table
}

/// Where the table's sealed generations are.
fn state(row: &TableStatus) -> String {
    let stages =
        [("waiting", row.waiting), ("uploading", row.uploading), ("ready", row.ready), ("to be confirmed", row.landed)];
    let stages = stages.iter().filter(|(_, count)| *count > 0).map(|(stage, count)| format!("{count} {stage}"));
    let mut parts: Vec<String> = stages.collect();
    if row.committing {
        parts.push("committing".to_owned());
    }
    if row.last_error.is_some() {
        let pause = row.paused_seconds.map(|left| format!(", next try in {left:.0} s"));
        parts.insert(0, format!("FAILING, see below{}", pause.unwrap_or_default()));
    }
    if parts.is_empty() { "ok".to_owned() } else { parts.join(", ") }
}
