//! `penstock dead-letters`: rows that their tables could not hold: list, show, replay.

use std::io::{self, Write};

use clap::{Args, Subcommand};

use super::client::{Client, LettersQuery};
use super::{Error, ServerArgs, show};
use crate::engine::letters::{Letter, Outcome};

const AFTER_HELP: &str = "\
Examples:
  penstock dead-letters list --table cpu            what was rejected, and why
  penstock dead-letters show 4f0c….3                one row, as it was sent
  penstock dead-letters replay --table cpu          append what the table can hold now

Rejected rows are also the table `dead_letters` of their namespace, for SQL and for any Delta reader.";

/// What `penstock dead-letters` is told.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct LettersArgs {
    #[command(subcommand)]
    command: LettersCommand,
}

#[derive(Debug, Subcommand)]
enum LettersCommand {
    /// List dead letters, the oldest first
    #[command(after_help = "Example:\n  penstock dead-letters list --table ops.requests --code type_mismatch")]
    List {
        #[command(flatten)]
        which: Which,
        /// Those that were replayed, too
        #[arg(long)]
        all: bool,
        /// Most letters that are shown
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Show one: where it came from, what is wrong with it, and the row itself
    #[command(after_help = "Example:\n  penstock dead-letters show 4f0c3d9e-6a55-4d7e-9c0a-0d6f7f1d2a11.3")]
    Show {
        /// As listed
        #[arg(value_name = "ID")]
        id: String,
        /// Where it is
        #[arg(long, value_name = "NAMESPACE", default_value = crate::schema::name::DEFAULT_NAMESPACE)]
        namespace: String,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Append the rows that their tables can hold now
    ///
    /// After the table was given the column or the wider type that was missing. Each row is appended once, however often this is
    /// run and wherever it is cut short. What still does not fit stays, with its reason.
    #[command(after_help = "Example:\n  penstock dead-letters replay --table ops.requests")]
    Replay {
        #[command(flatten)]
        which: Which,
        /// These letters
        #[arg(value_name = "ID")]
        ids: Vec<String>,
        #[command(flatten)]
        server: ServerArgs,
    },
}

/// Which letters.
#[derive(Debug, Args)]
struct Which {
    /// Of this namespace [default: the table's, or `default`]
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// For this table
    #[arg(long, value_name = "TABLE")]
    table: Option<String>,
    /// With this reason
    #[arg(long, value_name = "CODE")]
    code: Option<String>,
}

impl Which {
    fn query(&self) -> LettersQuery<'_> {
        LettersQuery {
            namespace: self.namespace.as_deref(),
            table: self.table.as_deref(),
            code: self.code.as_deref(),
            ..LettersQuery::default()
        }
    }
}

/// Runs the command under `dead-letters`.
pub async fn run(args: &LettersArgs) -> Result<(), Error> {
    let text = match &args.command {
        LettersCommand::List { which, all, limit, server } => {
            let query = LettersQuery { state: all.then_some("all"), limit: Some(*limit), ..which.query() };
            list(&Client::new(&server.url)?.letters(&query).await?)
        }
        LettersCommand::Show { id, namespace, server } => one(&Client::new(&server.url)?.letter(namespace, id).await?),
        LettersCommand::Replay { which, ids, server } => {
            outcome(&Client::new(&server.url)?.replay_letters(&which.query(), ids).await?)
        }
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

fn list(letters: &[Letter]) -> String {
    if letters.is_empty() {
        return "no dead letters\n".to_owned();
    }
    let mut table = show::table(&["id", "state", "table", "received", "sender", "reason"]);
    for letter in letters {
        table.add_row([
            show::plain(&letter.id),
            show::plain(&letter.state),
            show::plain(&letter.table),
            time(letter.received_at),
            show::plain(&letter.sender),
            show::plain(&letter.reason),
        ]);
    }
    format!("{table}\n")
}

fn one(letter: &Letter) -> String {
    let mut text = String::new();
    let place = format!("row {} of a post in {} from {}", letter.row, letter.source, letter.sender);
    for (name, value) in [
        ("id", letter.id.as_str()),
        ("state", &letter.state),
        ("table", &letter.table),
        ("received", &time(letter.received_at)),
        ("node", &letter.node),
        ("from", &place),
        ("code", &letter.code),
        ("column", letter.column.as_deref().unwrap_or("-")),
        ("value", letter.value.as_deref().unwrap_or("-")),
        ("reason", &letter.reason),
        ("remedy", &letter.help),
    ] {
        text += &format!("{name:9} {}\n", show::plain(value));
    }
    text + "\n" + &show::plain(&letter.original) + "\n"
}

fn outcome(outcome: &Outcome) -> String {
    let mut text = format!("replayed {} dead letters", show::count(outcome.replayed));
    if outcome.resumed > 0 {
        text += &format!(" ({} of a replay that had been cut short)", show::count(outcome.resumed));
    }
    text.push('\n');
    if outcome.still_rejected > 0 {
        text += &format!("{} still do not fit:\n", show::count(outcome.still_rejected));
        for still in &outcome.errors {
            text += &format!(
                "  {}: {}; {}\n",
                show::plain(&still.id),
                show::plain(&still.message),
                show::plain(&still.help)
            );
        }
    }
    if outcome.elsewhere > 0 {
        text += &format!("{} are another node's: replay them there\n", show::count(outcome.elsewhere));
    }
    text
}

fn time(micros: i64) -> String {
    u64::try_from(micros).map_or_else(
        |_| micros.to_string(),
        |micros| {
            let at = std::time::UNIX_EPOCH + std::time::Duration::from_micros(micros);
            humantime::format_rfc3339_seconds(at).to_string()
        },
    )
}
