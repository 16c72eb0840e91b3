//! What the demo prints.

use std::fmt::Write as _;
use std::path::Path;

use url::Url;

use super::load::{Glimpse, Sent};
use super::telemetry::Source;
use super::verify::Tally;
use super::{DemoArgs, Place};
use crate::cli::child::Server;
use crate::cli::show;

/// Questions the demo asks at the end.
pub const QUERIES: [(&str, &str); 2] = [
    (
        "The busiest processes (percent of one core):",
        "  SELECT name, count(DISTINCT pid) AS processes,
         CAST(avg(cpu_percent) AS DECIMAL(10, 1)) AS avg_cpu,
         CAST(max(cpu_percent) AS DECIMAL(10, 1)) AS max_cpu,
         max(rss_bytes) / 1048576 AS max_rss_mib
  FROM demo.proc_processes
  GROUP BY name ORDER BY avg(cpu_percent) DESC NULLS LAST, name LIMIT 10",
    ),
    (
        "Memory, second by second:",
        "  SELECT date_trunc('second', ts) AS second, count(*) AS samples,
         CAST(avg(available_bytes) AS BIGINT) / 1048576 AS available_mib,
         CAST(avg(dirty_bytes) AS BIGINT) / 1024 AS dirty_kib
  FROM demo.proc_memory
  GROUP BY 1 ORDER BY 1 LIMIT 15",
    ),
];

/// Before anything is sent.
pub fn opening(args: &DemoArgs, server: &Server, data_dir: &Path) -> String {
    format!(
        "server: {} (pid {}), data in {}\n\
         sending this machine's processes, memory, disks and network: {} samples a second, {} senders, {} s \
         (Ctrl-C ends early)\n",
        server.url(),
        server.pid(),
        data_dir.display(),
        args.samples,
        args.senders,
        args.seconds
    )
}

/// While sending.
pub fn glimpse(glimpse: &Glimpse) -> String {
    format!(
        "while sending: SELECT count(*) FROM {} sees {} rows ({} were acknowledged before it was asked), {} of them not in Delta yet\n",
        Source::Processes.table(),
        show::count(glimpse.visible),
        show::count(glimpse.acked_before),
        show::count(glimpse.unflushed)
    )
}

/// After sending.
pub fn sending(sent: &Sent) -> String {
    let rows: u64 = sent.rows.iter().sum();
    let ack = sent.latencies.percentiles();
    let mut text = format!(
        "\n{} rows acknowledged in {} posts, {:.1} s\nack latency: p50 {}, p90 {}, p99 {}, max {}\n",
        show::count(rows),
        show::count(sent.posts),
        sent.elapsed.as_secs_f64(),
        show::micros(ack.p50_us),
        show::micros(ack.p90_us),
        show::micros(ack.p99_us),
        show::micros(ack.max_us)
    );
    if sent.refusals > 0 {
        let _ = writeln!(text, "{} posts were refused for a moment and sent again", show::count(sent.refusals));
    }
    text
}

/// After the flush.
pub fn counts(tallies: &[Tally]) -> String {
    let mut table =
        show::table(&["table", ">rows acked", ">rows in Delta", ">rows by SQL", "", ">Delta version", ">files"]);
    for tally in tallies {
        let agree = tally.acked == tally.delta && tally.acked == tally.sql;
        table.add_row([
            tally.table.clone(),
            show::count(tally.acked),
            show::count(tally.delta),
            show::count(tally.sql),
            if agree { "equal" } else { "DIFFERENT" }.to_owned(),
            show::optional(tally.version),
            show::count(tally.files),
        ]);
    }
    format!("\nFlushed. Rows in Delta are counted from the Parquet files on disk, not by the server.\n{table}\n")
}

/// How to read the same tables without us.
pub fn python(tallies: &[Tally]) -> String {
    let Some(tally) = tallies.iter().find(|tally| tally.version.is_some()) else { return String::new() };
    let path = Url::parse(&tally.location).ok().and_then(|url| url.to_file_path().ok());
    let path = path.map_or_else(|| tally.location.clone(), |path| path.display().to_string());
    format!(
        "\nThe same table from Python (pip install deltalake polars):\n\n\
         \x20 from deltalake import DeltaTable\n\
         \x20 import polars as pl\n\
         \x20 path = {path:?}\n\
         \x20 print(DeltaTable(path).version(), DeltaTable(path).file_uris())\n\
         \x20 print(pl.read_delta(path).group_by(\"name\").agg(pl.len(), pl.mean(\"cpu_percent\")).sort(\"cpu_percent\", descending=True))\n"
    )
}

/// At the very end, when everything agreed.
pub fn farewell(place: &Place) -> String {
    let mut text =
        "\nAll counts agree: every acknowledged row is in its Delta table, and SQL sees them all.\n".to_owned();
    if let Place::Kept(path) = place {
        let path = path.display();
        let _ =
            writeln!(text, "The data stays in {path}: go on with `penstock serve --data-dir {path}`, or remove it.");
    }
    text
}
