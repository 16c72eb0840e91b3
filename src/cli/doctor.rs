//! `penstock doctor`: is this object store fit to be a lake?

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::{Error as CliError, parse_setting, show};
use crate::config::{self, Config};
use crate::engine::doctor::{Finding, examine_lake};

const AFTER_HELP: &str = "\
Examples:
  penstock doctor --config penstock.toml
  penstock doctor --lake s3://telemetry/lake --set lake.storage.region=eu-central-1
  penstock doctor --lake az://telemetry/lake --json | jq '.steps[] | select(.ok | not)'

Settings of the store come from the configuration, --set and the AWS_*, AZURE_* or GOOGLE_* environment, as for the server.
Everything is written below a directory of its own, penstock-doctor-ID in the lake's, and removed in the end.";

/// What `penstock doctor` is told.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct DoctorArgs {
    /// The lake to examine [default: the configuration's lake.url]
    #[arg(long, value_name = "URL")]
    lake: Option<String>,
    /// Configuration file (TOML) that the server is started with
    #[arg(long, env = "PENSTOCK_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The server's data directory, where a lake without a URL is [default: ./data]
    #[arg(long, env = "PENSTOCK_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Sets one key of the configuration: `lake.storage.endpoint=http://127.0.0.1:9000` (repeatable)
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = parse_setting)]
    settings: Vec<(String, String)>,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

/// Why the lake was not found fit.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// A step failed.
    #[error("the lake is not fit to be flushed to: {step}: {text}")]
    Unfit {
        /// The step.
        step: &'static str,
        /// What went wrong.
        text: String,
        /// What to do about it.
        advice: &'static str,
    },
}

impl Error {
    /// What to do next.
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Config(_) => {
                Some("config/penstock.toml in the source tree shows every key with its default".to_owned())
            }
            Self::Unfit { advice, .. } => Some((*advice).to_owned()),
        }
    }
}

/// Examines and prints each step; fails if one does.
pub async fn run(args: &DoctorArgs) -> Result<(), CliError> {
    let mut config = Config::load(args.config.as_deref(), &args.settings).map_err(Error::from)?;
    if let Some(url) = &args.lake {
        config.lake.url = Some(url.clone());
    }
    if let Some(dir) = &args.data_dir {
        config.data_dir.clone_from(dir);
    }
    let (mut findings, mut shown) = (Vec::new(), Ok(()));
    let mut tell = |finding: Finding| {
        if !args.json && shown.is_ok() {
            shown = writeln!(io::stdout().lock(), "{}", line(&finding));
        }
        findings.push(finding);
    };
    examine_lake(&config.lake, &config.data_dir, &mut tell).await;
    shown?;
    if args.json {
        writeln!(io::stdout().lock(), "{:#}", report(&findings))?;
    }
    verdict(findings)?;
    if !args.json {
        writeln!(io::stdout().lock(), "\nthe lake is fit to be flushed to")?;
    }
    Ok(())
}

fn line(finding: &Finding) -> String {
    let mark = if finding.failure.is_none() { "ok" } else { "FAILED" };
    format!("{mark:<7}{:<18}{:>10}  {}", finding.step, show::elapsed(finding.took), show::plain(&finding.text))
}

fn report(findings: &[Finding]) -> Value {
    let steps: Vec<Value> = findings
        .iter()
        .map(|finding| {
            let failure = finding.failure.as_ref();
            json!({
                "step": finding.step,
                "ok": failure.is_none(),
                "millis": finding.took.as_secs_f64() * 1e3,
                "text": finding.text,
                "may_pass": failure.map(|f| f.may_pass),
                "advice": failure.map(|f| f.advice),
            })
        })
        .collect();
    json!({ "ok": findings.iter().all(|finding| finding.failure.is_none()), "steps": steps })
}

fn verdict(findings: Vec<Finding>) -> Result<(), Error> {
    let failed = findings.into_iter().find_map(|Finding { step, text, failure, .. }| {
        failure.map(|failure| Error::Unfit { step, text, advice: failure.advice })
    });
    failed.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::doctor::Failure;

    fn finding(step: &'static str, advice: Option<&'static str>) -> Finding {
        let failure = advice.map(|advice| Failure { may_pass: true, advice });
        Finding { step, took: Duration::from_micros(1_500), text: format!("{step} it\u{1b}[2J"), failure }
    }

    #[test]
    fn the_first_failure_is_the_verdict() {
        let good = || vec![finding("read", None), finding("list", None)];
        assert!(verdict(good()).is_ok());
        let bad = [good(), vec![finding("race", Some("use another")), finding("clean up", Some("remove"))]].concat();
        assert_eq!(report(&good())["ok"], true);
        assert_eq!(report(&bad)["ok"], false);
        assert_eq!(report(&bad)["steps"][2]["advice"], "use another");
        let error = verdict(bad).expect_err("should fail");
        assert_eq!(error.help().as_deref(), Some("use another"));
    }

    #[test]
    fn a_line_shows_what_how_long_and_nothing_that_moves_the_cursor() {
        let said = line(&finding("race", Some("x")));
        assert!(said.starts_with("FAILED race") && said.contains("1.50 ms") && !said.contains('\u{1b}'), "{said}");
    }
}
