//! What a command can fail with, and what the person at the terminal reads then.

use std::io;
use std::process::ExitCode;

use super::{bench, child, client, demo, doctor, reshape, sql, wal};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call to the server failed or was refused.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// A server of our own did not start, or did not stop well.
    #[error(transparent)]
    Child(#[from] child::Error),
    /// A statement could not be read, or its result not shown.
    #[error(transparent)]
    Sql(#[from] sql::Error),
    /// The demonstration could not run, or its counts disagree.
    #[error(transparent)]
    Demo(#[from] demo::Error),
    /// The measurement could not run.
    #[error(transparent)]
    Bench(#[from] bench::Error),
    /// The layout was not changed, or not for certain.
    #[error(transparent)]
    Reshape(#[from] reshape::Error),
    /// A lake is not fit, or could not be examined.
    #[error(transparent)]
    Doctor(#[from] doctor::Error),
    /// A data directory could not be read or repaired, or is damaged.
    #[error(transparent)]
    Wal(#[from] wal::Error),
    /// Rows are not in their table in the time that was given.
    #[error("the rows are not in the table yet; they are on disk, and on their way")]
    NotCommitted,
    /// Standard output does not take what we print.
    #[error("could not write the output: {0}")]
    Output(#[from] io::Error),
    /// The operating system gives no threads or signals.
    #[error("could not start the runtime: {0}")]
    Runtime(#[source] io::Error),
    /// Ctrl-C or SIGTERM.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// What to do next, where we know.
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Client(error) => error.help(),
            Self::Child(error) => error.help(),
            Self::Sql(error) => error.help(),
            Self::Demo(error) => error.help(),
            Self::Bench(error) => error.help(),
            Self::Reshape(error) => error.help(),
            Self::Doctor(error) => error.help(),
            Self::Wal(error) => error.help(),
            Self::NotCommitted => {
                Some("ask again with a longer --timeout, or `penstock flush`; do not send them again".to_owned())
            }
            Self::Output(_) | Self::Runtime(_) | Self::Interrupted => None,
        }
    }

    /// Whether the reader of our output went away, as in `penstock sql ... | head`.
    fn is_closed_pipe(&self) -> bool {
        match self {
            Self::Output(error) | Self::Sql(sql::Error::Output(error)) => error.kind() == io::ErrorKind::BrokenPipe,
            _ => false,
        }
    }
}

/// Prints an error and its help, and says how to exit.
pub(super) fn report(error: &Error) -> ExitCode {
    if error.is_closed_pipe() {
        return ExitCode::SUCCESS;
    }
    print(error);
    ExitCode::FAILURE
}

/// Prints an error and its help to standard error.
pub(super) fn print(error: &Error) {
    // A closed standard error leaves nobody to tell.
    let _ = write(&mut io::stderr().lock(), error);
}

fn write(to: &mut impl io::Write, error: &Error) -> io::Result<()> {
    writeln!(to, "error: {error}")?;
    if let Some(help) = error.help() {
        writeln!(to, "help: {help}")?;
    }
    Ok(())
}

/// The innermost cause of an error: HTTP libraries wrap the useful sentence several times.
pub(super) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
