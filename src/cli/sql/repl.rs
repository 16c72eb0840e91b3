//! The interactive session.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{Config, Editor};
use tokio::runtime::Runtime;

use super::meta::{HELP, Meta};
use super::output::Format;
use super::{Error, SqlArgs, execute, split};
use crate::cli::client::Client;
use crate::cli::error::{self, Error as CliError};

const PROMPT: &str = "penstock=> ";
const CONTINUED: &str = "penstock-> ";
/// Statements the history keeps.
const MAX_HISTORY: usize = 1_000;

struct Session<'a> {
    runtime: &'a Runtime,
    client: &'a Client,
    format: Format,
    max_rows: usize,
    timing: bool,
}

/// Reads lines until Ctrl-D or `\q`. A failing statement is reported and the session goes on.
pub fn run(runtime: &Runtime, client: &Client, args: &SqlArgs) -> Result<(), CliError> {
    // A wrong address should fail now, and not at the end of the first long statement.
    runtime.block_on(client.tables())?;
    let mut session = Session { runtime, client, format: args.format, max_rows: args.max_rows, timing: true };
    let mut editor = LineEditor::new()?;
    eprintln!("penstock {} at {}; \\? for help", env!("CARGO_PKG_VERSION"), client.url());
    let mut pending = String::new();
    loop {
        let prompt = if pending.is_empty() { PROMPT } else { CONTINUED };
        let line = match editor.lines.readline(prompt) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => {
                pending.clear();
                continue;
            }
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(Error::Terminal(error).into()),
        };
        if pending.is_empty() && line.trim_start().starts_with('\\') {
            editor.remember(line.trim());
            if session.command(&line) { continue } else { break }
        }
        pending.push_str(&line);
        pending.push('\n');
        let (statements, rest) = split::split(&pending);
        for statement in &statements {
            editor.remember(&format!("{statement};"));
            session.query(statement);
        }
        pending = if split::is_blank(rest) { String::new() } else { rest.trim_start().to_owned() };
    }
    Ok(())
}

impl Session<'_> {
    /// Runs a backslash command; false ends the session.
    fn command(&mut self, line: &str) -> bool {
        match Meta::parse(line) {
            Ok(Meta::Quit) => return false,
            Ok(Meta::Tables) => self.query("show tables"),
            Ok(Meta::Describe(table)) => self.query(&format!("describe {table}")),
            Ok(Meta::Timing) => {
                self.timing = !self.timing;
                eprintln!("row counts and times are {}", if self.timing { "on" } else { "off" });
            }
            Ok(Meta::Format(format)) => {
                self.format = format;
                eprintln!("results are written as {format}");
            }
            Ok(Meta::Help) => eprintln!("{HELP}"),
            Err(error) => eprintln!("error: {error}"),
        }
        true
    }

    fn query(&self, statement: &str) {
        let mut out = io::BufWriter::new(io::stdout().lock());
        let outcome = self.runtime.block_on(async {
            tokio::select! {
                outcome = execute(self.client, statement, self.format, self.max_rows, &mut out) => outcome,
                // Dropping the request closes its connection, which ends the query on the server.
                Ok(()) = tokio::signal::ctrl_c() => Err(CliError::Interrupted),
            }
        });
        // What was printed before a failure comes before the message about it.
        let _ = out.flush();
        match outcome {
            Ok(summary) if self.timing => eprintln!("{summary}"),
            Ok(_) => {}
            Err(failure) => error::print(&failure),
        }
    }
}

/// The line editor and its history.
struct LineEditor {
    lines: Editor<(), DefaultHistory>,
    /// None where there is no place for one.
    history: Option<PathBuf>,
}

impl LineEditor {
    fn new() -> Result<Self, Error> {
        let config = Config::builder().max_history_size(MAX_HISTORY)?.history_ignore_space(true).build();
        let mut lines = Editor::with_config(config)?;
        let path = history_path(|name| std::env::var_os(name).map(PathBuf::from));
        let history = path.filter(|path| prepare(path).is_ok());
        if let Some(path) = &history {
            // Absent or damaged, it starts anew.
            let _ = lines.load_history(path);
        }
        Ok(Self { lines, history })
    }

    /// Saves at once: a session may end with its terminal. Neither a repetition that is not taken nor a history that
    /// cannot be written is a reason to disturb the session.
    fn remember(&mut self, text: &str) {
        let _ = self.lines.add_history_entry(text);
        if let Some(path) = &self.history {
            let _ = self.lines.append_history(path);
        }
    }
}

/// `$XDG_STATE_HOME/penstock/history`, else `~/.local/state/penstock/history`. The XDG rule ignores relative paths.
pub(super) fn history_path(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |name| variable(name).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("penstock").join("history"))
}

/// Makes the directory and the file, readable by their owner only: statements may hold what is nobody else's business.
pub(super) fn prepare(path: &Path) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path).map(drop)
}
