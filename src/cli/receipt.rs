//! `penstock receipt`: what became of acknowledged rows.

use std::io::{self, Write};
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::client::{Client, Standing};
use super::{Error, ServerArgs, show};

const AFTER_HELP: &str = "\
Examples:
  penstock receipt 0dbdfe03-…                             how far the rows of a post are
  penstock receipt 0dbdfe03-… --wait committed            until they are in the table
  penstock receipt 0dbdfe03-… --wait committed --timeout 5m

The receipt is the field `receipt` of the reply to a post. Exit code 1: they are not in the table in time, or the receipt is not
known here.";

/// What `penstock receipt` is told.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ReceiptArgs {
    /// The receipt
    #[arg(value_name = "RECEIPT")]
    receipt: String,
    /// Wait until the rows are that far
    #[arg(long, value_name = "STATE")]
    wait: Option<Until>,
    /// Longest wait
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// Print the server's answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// What may be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Until {
    /// In the Delta table
    Committed,
}

/// Asks and prints.
pub async fn run(args: &ReceiptArgs) -> Result<(), Error> {
    let wait = args.wait.map(|Until::Committed| args.timeout);
    let (standing, json) = Client::new(&args.server.url)?.receipt(&args.receipt, wait).await?;
    let text = if args.json { json.to_string() } else { render(&standing) };
    writeln!(io::stdout().lock(), "{}", text.trim_end())?;
    if wait.is_some() && !standing.committed {
        return Err(Error::NotCommitted);
    }
    Ok(())
}

fn render(standing: &Standing) -> String {
    let version = match (standing.committed, standing.delta_version) {
        (false, _) => "not in it yet".to_owned(),
        (true, Some(version)) => format!("in it from version {version} on"),
        (true, None) => "in it, from a version on that is no longer known".to_owned(),
    };
    let table = standing.table.as_deref().unwrap_or("not known");
    let mut facts =
        vec![("table", show::plain(table)), ("state", show::plain(&standing.state)), ("Delta table", version)];
    if let Some(message) = &standing.message {
        facts.push(("", show::plain(message)));
    }
    show::facts(facts).trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_says_how_far_the_rows_are() {
        let standing = |state: &str, committed, delta_version| Standing {
            table: Some("default.cpu".to_owned()),
            state: state.to_owned(),
            committed,
            delta_version,
            message: Some("and so on".to_owned()),
        };
        let said = |standing| render(&standing);
        assert!(said(standing("durable", false, None)).contains("not in it yet"));
        assert!(said(standing("committed", true, Some(12))).contains("from version 12 on"));
        assert!(said(standing("committed", true, None)).contains("no longer known"));
        assert!(said(standing("sealed", false, None)).contains("and so on"));
    }
}
