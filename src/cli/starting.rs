//! Tells how far a start is: as a bar at a terminal, as log lines elsewhere. A start that is short says nothing.

use std::convert::Infallible;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use penstock_store::Progress;
use penstock_store::progress::Reading;

use super::show;

/// A start that takes no longer is not worth a bar.
const SHORT: Duration = Duration::from_millis(500);
/// Between two looks while there is a bar.
const REDRAW: Duration = Duration::from_millis(100);
/// Between two log lines.
const LOG_EVERY: Duration = Duration::from_secs(3);

/// Tells until it is dropped.
pub async fn tell(progress: Arc<Progress>) -> Infallible {
    if std::io::stderr().is_terminal() { draw(&progress).await } else { log(&progress).await }
}

async fn draw(progress: &Progress) -> Infallible {
    let begun = Instant::now();
    tokio::time::sleep(SHORT).await;
    let style = ProgressStyle::with_template("  [{bar:32}] {msg}").expect("should be a valid template");
    let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr());
    let bar = Clears(bar.with_style(style.progress_chars("=> ")));
    let mut redraw = tokio::time::interval(REDRAW);
    loop {
        redraw.tick().await;
        let reading = progress.reading();
        bar.0.set_length(reading.total);
        bar.0.set_position(reading.done);
        bar.0.set_message(line(reading, begun.elapsed()).unwrap_or_default());
    }
}

/// A bar that leaves the terminal when it is dropped.
struct Clears(ProgressBar);

impl Drop for Clears {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

async fn log(progress: &Progress) -> Infallible {
    let begun = Instant::now();
    loop {
        tokio::time::sleep(LOG_EVERY).await;
        if let Some(text) = line(progress.reading(), begun.elapsed()) {
            tracing::info!("{text}");
        }
    }
}

/// What is said `elapsed` after the beginning; none when there is nothing to read.
fn line(Reading { total, done }: Reading, elapsed: Duration) -> Option<String> {
    if total == 0 {
        return None;
    }
    let percent = u128::from(done) * 100 / u128::from(total);
    let rate = (done as f64 / elapsed.as_secs_f64().max(1e-3)) as u64;
    let (done, total, rate) = (show::bytes(done), show::bytes(total), show::bytes(rate));
    Some(format!("reading the log: {done} of {total} ({percent} %), {rate}/s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_has_percent_and_rate() {
        let said = |total, done| line(Reading { total, done }, Duration::from_secs(3));
        assert_eq!(said(0, 0), None);
        let wanted = "reading the log: 120.0 MiB of 512.0 MiB (23 %), 40.0 MiB/s";
        assert_eq!(said(512 << 20, 120 << 20).as_deref(), Some(wanted));
    }
}
