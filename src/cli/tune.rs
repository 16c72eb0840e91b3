//! `penstock tune`: settings of a running server, shown and changed.

use std::io::{self, Write};

use clap::Args;
use serde_json::Value;

use super::client::{Bind, Client, Explanation, Finding, Patch, Source, Tuned, Tuning, words};
use super::{Error, ServerArgs, show};

const AFTER_HELP: &str = "\
Examples:
  penstock tune                                                     what may be changed, and what it is now
  penstock tune flush.parallelism=16 admission.replay_budget=20s    change two settings at once
  penstock tune --persist flush.max_age=30s                         and have them at later starts, too
  penstock tune --persist --reset flush.max_age                     as the configuration file has it again
  penstock tune --explain                                           what binds now, and which setting would help

A set is checked as a whole: with one value that cannot be, nothing changes. Without --persist a change is forgotten by
the next start, and by SIGHUP, which has the server read its configuration file again.";

/// What `penstock tune` is told.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct TuneArgs {
    /// Settings and their new values, as in the configuration file: `section.key=value`
    #[arg(value_name = "KEY=VALUE", value_parser = super::parse_setting)]
    settings: Vec<(String, String)>,
    /// Have the change at later starts, too: it is kept in the data directory
    #[arg(long)]
    persist: bool,
    /// Takes changes of this setting back (repeatable)
    #[arg(long, value_name = "KEY")]
    reset: Vec<String>,
    /// Say what binds now, from what was measured in the last seconds, and what the next setting would change
    #[arg(long, conflicts_with_all = ["settings", "reset", "persist"])]
    explain: bool,
    /// Print the server's answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Shows or changes, and prints what came of it.
pub async fn run(args: &TuneArgs) -> Result<(), Error> {
    let client = Client::new(&args.server.url)?;
    let values = args.settings.iter().map(|(key, value)| (key.clone(), Value::String(value.clone())));
    let patch = Patch {
        set: values.chain(args.reset.iter().map(|key| (key.trim().to_owned(), Value::Null))).collect(),
        persist: args.persist,
    };
    let text = if args.explain {
        let explanation = client.explain().await?;
        if args.json { json(&explanation) } else { render_explanation(&explanation) }
    } else if patch.set.is_empty() {
        let tuning = client.tuning().await?;
        if args.json { json(&tuning) } else { render(&tuning) }
    } else {
        let tuned = client.tune(&patch).await?;
        if args.json { json(&tuned) } else { render_change(&tuned) }
    };
    Ok(io::stdout().lock().write_all(text.as_bytes())?)
}

fn json(answer: &impl serde::Serialize) -> String {
    format!("{:#}\n", serde_json::to_value(answer).unwrap_or_default())
}

/// The settings for people.
pub(super) fn render(tuning: &Tuning) -> String {
    let mut table = show::table(&["setting", ">value", "set by", "kept", "what it is", "may be"]);
    for row in &tuning.settings {
        table.add_row([
            show::plain(&row.key),
            value(&row.value),
            by(row.source).to_owned(),
            row.kept.as_ref().map_or_else(String::new, value),
            show::plain(&row.what),
            show::plain(&row.allowed),
        ]);
    }
    format!("{table}\n\nkept for later starts in {}\n", show::plain(&tuning.file))
}

/// What a change did.
pub(super) fn render_change(tuned: &Tuned) -> String {
    let mut text = String::new();
    for change in &tuned.changed {
        let (old, new) = (value(&change.old), value(&change.new));
        text.push_str(&format!("{}: {old} -> {new}\n", show::plain(&change.key)));
    }
    if tuned.changed.is_empty() {
        text.push_str("no setting has another value\n");
    }
    text.push_str(if tuned.kept { "kept for later starts\n" } else { "until the next start; --persist keeps it\n" });
    for note in &tuned.notes {
        text.push_str(&format!("note: {}\n", show::plain(note)));
    }
    text
}

/// What binds, for people.
pub(super) fn render_explanation(explanation: &Explanation) -> String {
    let side = |what: &str, finding: &Finding| {
        let mut text = format!("{what} {}\n  {}\n", show::plain(words(finding.binds)), show::plain(&finding.because));
        if let Some(next) = &finding.next {
            let how = if next.live { "penstock tune" } else { "takes a restart" };
            let (key, from, to) = (show::plain(&next.key), show::plain(&next.from), show::plain(&next.to));
            text.push_str(&format!("  next: {key} from {from} to {to} ({how}): {}\n", show::plain(&next.effect)));
        } else if finding.binds != Bind::Nothing {
            text.push_str("  no setting changes that\n");
        }
        text
    };
    let m = &explanation.measured;
    format!(
        "{}\n{}\nmeasured over {:.0} s: {} records/s and {}/s acknowledged, {}/s into Delta\n",
        side("acks are bound by", &explanation.acks),
        side("the flush is bound by", &explanation.flush),
        m.seconds,
        show::rate(m.records_per_second),
        show::bytes(m.bytes_per_second as u64),
        show::bytes(m.drained_per_second as u64)
    )
}

fn value(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), show::plain)
}

fn by(source: Source) -> &'static str {
    match source {
        Source::Default => "default",
        Source::File => "file",
        Source::Kept => "kept change",
        Source::Environment => "environment",
        Source::CommandLine => "command line",
        Source::Running => "change",
    }
}

#[cfg(test)]
mod tests;
