//! A lake examined without an engine, a log or a catalog: what `penstock doctor` shows.

use std::path::Path;
use std::time::Duration;

use crate::lake::examine::{advice, examine};
use crate::lake::{Kind, Options};

/// One step of an examination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was tried.
    pub step: &'static str,
    /// How long it took.
    pub took: Duration,
    /// What was found, or what went wrong.
    pub text: String,
    /// None if the step succeeded.
    pub failure: Option<Failure>,
}

/// Why a step failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Whether it may succeed without anybody's doing.
    pub may_pass: bool,
    /// What to do about it.
    pub advice: &'static str,
}

/// Examines a lake, telling each step as it ends. Writes below the lake's directory, and removes what it wrote.
pub async fn examine_lake(options: &Options, data_dir: &Path, tell: &mut (dyn FnMut(Finding) + Send)) {
    examine(options, data_dir, &mut |step| {
        let failure = step.outcome.as_ref().err();
        let failure = failure.map(|e| Failure { may_pass: e.kind() == Kind::Unavailable, advice: advice(e) });
        let text = step.outcome.unwrap_or_else(|error| error.to_string());
        tell(Finding { step: step.name, took: step.took, text, failure });
    })
    .await;
}
