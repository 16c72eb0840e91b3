//! `penstock sql`: questions, interactively or one by one.
//!
//! - `split`: where one statement ends and the next begins;
//! - `output`: a result as a table, CSV or JSON;
//! - `repl`: the interactive session, with `meta` for its commands that start with a backslash;
//! - this file: statements from `-c` or standard input, and the running of one statement.
//!
//! Results go to standard output, row counts and times to standard error.

use std::io::{self, IsTerminal, Read, Write};
use std::time::Instant;

use clap::Args;

use super::client::{self, Client};
use super::{ServerArgs, runtime, show};

mod meta;
mod output;
mod repl;
mod split;
#[cfg(test)]
mod tests;

pub use output::Format;
use output::Printer;

/// Most bytes of statements read from standard input.
const MAX_INPUT_BYTES: u64 = 16 << 20;

const AFTER_HELP: &str = "\
Examples:
  penstock sql                                               interactive; \\? lists its commands
  penstock sql -c 'show tables'
  penstock sql -c 'select host, avg(load) from cpu group by host' --format csv > load.csv
  penstock sql < report.sql

A query sees every acknowledged row, flushed or not, in one consistent view. SQL here is read only.";

/// What `penstock sql` is told.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct SqlArgs {
    /// Run this and exit (repeatable)
    #[arg(short = 'c', long = "command", value_name = "SQL")]
    commands: Vec<String>,
    /// How results are written
    #[arg(long, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    format: Format,
    /// Most rows of a result that the table format shows
    #[arg(long, default_value_t = 1_000, value_name = "ROWS")]
    max_rows: usize,
    #[command(flatten)]
    server: ServerArgs,
}

/// Why statements could not be read or results not be shown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Standard input failed or was not UTF-8.
    #[error("could not read statements from standard input: {0}")]
    Input(#[source] io::Error),
    /// Standard input is larger than any script we read.
    #[error("standard input has more than {MAX_INPUT_BYTES} bytes of SQL")]
    InputTooLong,
    /// The terminal failed.
    #[error("the terminal failed: {0}")]
    Terminal(#[from] rustyline::error::ReadlineError),
    /// A value cannot be written in this format.
    #[error("this result cannot be written as {format}: {reason}")]
    Render {
        /// The format asked for.
        format: Format,
        /// What does not fit.
        reason: String,
    },
    /// Standard output does not take the result.
    #[error("could not write the result: {0}")]
    Output(#[source] io::Error),
}

impl Error {
    /// What to do next.
    pub fn help(&self) -> Option<String> {
        match self {
            Self::InputTooLong => Some("split it, or run the statements with -c".to_owned()),
            Self::Render { .. } => Some("try --format ndjson".to_owned()),
            Self::Input(_) | Self::Terminal(_) | Self::Output(_) => None,
        }
    }
}

/// Runs what was given, or a session.
pub fn run(args: &SqlArgs) -> Result<(), super::Error> {
    let runtime = runtime()?;
    let client = Client::new(&args.server.url)?;
    if args.commands.is_empty() && io::stdin().is_terminal() {
        return repl::run(&runtime, &client, args);
    }
    let text = if args.commands.is_empty() { read_stdin()? } else { args.commands.join(";\n") };
    let (mut statements, rest) = split::split(&text);
    statements.extend(Some(rest).filter(|rest| !split::is_blank(rest)));
    let mut out = io::BufWriter::new(io::stdout().lock());
    runtime.block_on(async {
        for statement in statements {
            let summary = execute(&client, statement, args.format, args.max_rows, &mut out).await?;
            eprintln!("{summary}");
        }
        Ok(())
    })
}

fn read_stdin() -> Result<String, Error> {
    let mut text = String::new();
    let read = io::stdin().lock().take(MAX_INPUT_BYTES + 1).read_to_string(&mut text).map_err(Error::Input)?;
    if read as u64 > MAX_INPUT_BYTES { Err(Error::InputTooLong) } else { Ok(text) }
}

/// Runs one statement, prints its result and says how many rows it had and how long it took.
pub async fn execute(
    client: &Client,
    statement: &str,
    format: Format,
    max_rows: usize,
    out: &mut impl Write,
) -> Result<String, super::Error> {
    let started = Instant::now();
    let mut stream = client.sql(statement).await?;
    let mut printer = Printer::new(format, max_rows);
    while let Some(batch) = stream.next().await? {
        printer.batch(&batch, out)?;
    }
    let schema = stream.schema().ok_or_else(|| client::Error::Reply {
        url: client.url().clone(),
        reason: "a result without columns".to_owned(),
    })?;
    let rows = printer.finish(&schema, out)?;
    out.flush().map_err(Error::Output)?;
    let plural = if rows.total == 1 { "" } else { "s" };
    let cut = match rows.total - rows.shown {
        0 => String::new(),
        hidden => format!(", {} of them not shown (--max-rows, or another --format)", show::count(hidden)),
    };
    Ok(format!("{} row{plural}{cut} ({})", show::count(rows.total), show::elapsed(started.elapsed())))
}
