//! What binds now, and what the next setting would change: a pure function of what was measured over the last seconds.
//!
//! Two sides are told apart, because they are bound by different things at the same time:
//!
//! - **acks**: how fast posts are acknowledged. A budget, if it delayed or refused any; else the log's syncs, or its thread, if they
//!   take nearly all of a log's time;
//! - **flush**: how fast rows reach Delta. With work waiting: `flush.memory`, if that is what kept it waiting; the encoding threads, if
//!   they are busy nearly all of the time; the uploads' latency, if all of `flush.parallelism` is in use; the commits' order, if more
//!   waits behind commits than is being uploaded.
//!
//! What is predicted is bounded by the next thing that would bind, from the same figures: twice the parallelism on threads that are
//! busy for two thirds of the time makes half as much again, not twice as much.

use serde::{Deserialize, Serialize};

/// What was measured over some seconds. Shares are of the time, 0 to 1, unless said otherwise.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measured {
    /// How long that was.
    pub seconds: f64,
    /// Records acknowledged a second.
    pub records_per_second: f64,
    /// Bytes of rows acknowledged a second.
    pub bytes_per_second: f64,
    /// Records that shared a sync.
    pub records_per_sync: f64,
    /// Milliseconds of a sync.
    pub sync_millis: f64,
    /// The share that the busiest log spent in syncs.
    pub sync_busy: f64,
    /// The share that it spent in everything else: writing, applying, answering.
    pub log_busy: f64,
    /// Number of logs.
    pub shards: u32,
    /// Posts that were held up.
    pub delayed: u64,
    /// Posts that were refused, by the budget's setting.
    pub refused: Vec<(String, u64)>,
    /// The budget that is fullest, and how full it is.
    pub fullest: (String, f64),
    /// Budgets as they are set, and twice as large.
    pub budgets: Vec<(String, String, String)>,

    /// Rows' bytes that reached Delta a second.
    pub drained_per_second: f64,
    /// Generations whose upload was done, a second.
    pub uploads_per_second: f64,
    /// Sealed generations that waited to be uploaded, on average.
    pub waiting: f64,
    /// Generations that were being encoded or uploaded.
    pub uploading: f64,
    /// Generations that were uploaded and waited for a commit, theirs or one before it.
    pub ready: f64,
    /// The share in which one more upload would have begun but for `flush.parallelism`.
    pub slots_full: f64,
    /// The same for `flush.memory`.
    pub memory_full: f64,
    /// The share of all encoding threads' time in which they encoded.
    pub encode_busy: f64,
    /// Milliseconds of an upload's requests.
    pub upload_millis: f64,
    /// Milliseconds of a thread that a generation's encoding took.
    pub encode_millis: f64,
    /// Milliseconds of a commit.
    pub commit_millis: f64,
    /// Commits a second.
    pub commits_per_second: f64,
    /// Bytes of rows of a generation.
    pub generation_bytes: f64,
    /// `flush.parallelism`.
    pub parallelism: u64,
    /// `flush.threads`.
    pub threads: u64,
    /// Processors of the machine.
    pub processors: u64,
    /// `flush.memory`, and what of it was in use at the end.
    pub memory: u64,
    pub memory_used: u64,
    /// `flush.seal_bytes`.
    pub seal_bytes: u64,
    /// `flush.commit_interval`, milliseconds.
    pub commit_interval_millis: u64,
}

/// What binds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bind {
    /// There is room.
    #[default]
    Nothing,
    /// A budget of what is let in, or of memory.
    Budget,
    /// The log's syncs.
    Sync,
    /// The log's thread.
    LogThread,
    /// The encoding threads.
    EncodeCpu,
    /// The time that the object store's calls take.
    UploadLatency,
    /// That a table's commits go one after the other.
    CommitOrder,
}

/// One side's answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Finding {
    pub binds: Bind,
    /// Why, with the figures.
    pub because: String,
    /// What would change it, if a setting would.
    pub next: Option<Next>,
}

/// A setting to change, and what that would do.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Next {
    pub key: String,
    pub from: String,
    pub to: String,
    /// Whether `penstock tune` can, without a restart.
    pub live: bool,
    /// How many times as much would go through, at most; none where that cannot be told.
    pub factor: Option<f64>,
    /// In words.
    pub effect: String,
}

/// Answer to `GET /v1/tuning/explain`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Explanation {
    /// How fast posts are acknowledged.
    pub acks: Finding,
    /// How fast rows reach Delta.
    pub flush: Finding,
    /// From what.
    pub measured: Measured,
}

/// From here on something takes nearly all of the time.
const BUSY: f64 = 0.75;
/// From here on something is what work waits for.
const OFTEN: f64 = 0.5;
/// Fewer generations that wait for commits than this are none.
const FEW: f64 = 2.0;

/// What binds now.
#[must_use]
pub fn explain(measured: Measured) -> Explanation {
    let flush = flush(&measured);
    Explanation { acks: acks(&measured, &flush), flush, measured }
}

fn finding(binds: Bind, because: String, next: Option<Next>) -> Finding {
    Finding { binds, because, next }
}

fn acks(m: &Measured, flush: &Finding) -> Finding {
    let refused = m.refused.iter().max_by_key(|(_, count)| *count).filter(|(_, count)| *count > 0);
    let budget = refused.map(|(key, _)| key.clone()).or_else(|| (m.delayed > 0).then(|| m.fullest.0.clone()));
    if let Some(key) = budget {
        let posts: u64 = m.refused.iter().map(|(_, count)| count).sum();
        let full =
            if m.fullest.0 == key { format!(", which is {:.0} % full", m.fullest.1 * 100.0) } else { String::new() };
        let because = format!(
            "{posts} posts were refused and {} delayed in {:.0} s for want of {key}{full}",
            m.delayed, m.seconds
        );
        return finding(Bind::Budget, because, Some(more_room(m, &key, flush)));
    }
    let log = format!(
        "syncs of {:.1} ms with {:.1} records each take {:.0} % of the busiest log's time, everything else {:.0} %",
        m.sync_millis,
        m.records_per_sync,
        m.sync_busy * 100.0,
        m.log_busy * 100.0
    );
    if m.sync_busy + m.log_busy < BUSY {
        return finding(Bind::Nothing, log, None);
    }
    let (from, to) = (m.shards, m.shards.saturating_mul(2));
    let factor = 2.0;
    let (binds, effect) = if m.sync_busy >= m.log_busy {
        let effect = "up to twice as many syncs a second, if the device does them at the same time (penstock reshape --shards, with \
                      the server stopped). More rows a post, or more posts at the same time, share a sync and need no setting";
        (Bind::Sync, effect)
    } else {
        let effect = "up to twice as many records a second, on another processor (penstock reshape --shards, with the server \
                      stopped). More rows a post cost less, too";
        (Bind::LogThread, effect)
    };
    let next = Next {
        key: "store.shards".to_owned(),
        from: from.to_string(),
        to: to.to_string(),
        live: false,
        factor: Some(factor),
        effect: effect.to_owned(),
    };
    finding(binds, log, Some(next))
}

/// More of a budget takes in more, and drains nothing.
fn more_room(m: &Measured, key: &str, flush: &Finding) -> Next {
    let slow = match flush.binds {
        Bind::Nothing => String::new(),
        binds => format!(", which is bound by {}", words(binds)),
    };
    let behind = m.bytes_per_second - m.drained_per_second;
    let effect = match key {
        "admission.replay_budget" => {
            "a restart may take so much longer; checkpoints that come sooner (store.checkpoint_log) shorten it as well"
                .to_owned()
        }
        "admission.max_in_flight" => "so many more bytes of posts at the same time, in as much more memory".to_owned(),
        _ if behind > 0.0 => format!(
            "it fills all the same, by {:.1} MiB/s more than reaches Delta{slow}: it lasts longer, and no more goes through",
            behind / f64::from(1 << 20)
        ),
        _ => format!("more is taken in before posts wait; as much as before reaches Delta{slow}"),
    };
    let set = m.budgets.iter().find(|(name, ..)| name == key).cloned();
    let (_, from, to) = set.unwrap_or_default();
    Next { key: key.to_owned(), from, to, live: true, factor: None, effect }
}

fn flush(m: &Measured) -> Finding {
    let figures = format!(
        "{:.1} generations wait, {:.1} are encoded or uploaded at parallelism {} ({:.0} ms of encoding, {:.0} ms of requests each), {:.1} \
         wait for commits of {:.0} ms; {} encoding threads are busy for {:.0} % of the time",
        m.waiting,
        m.uploading,
        m.parallelism,
        m.encode_millis,
        m.upload_millis,
        m.ready,
        m.commit_millis,
        m.threads,
        m.encode_busy * 100.0
    );
    if m.memory_full >= OFTEN {
        return finding(Bind::Budget, figures, Some(more_memory(m)));
    }
    if m.encode_busy >= BUSY {
        return finding(Bind::EncodeCpu, figures, more_threads(m));
    }
    if m.slots_full >= OFTEN {
        return finding(Bind::UploadLatency, figures, Some(more_parallelism(m)));
    }
    if m.ready >= FEW && m.ready >= m.uploading {
        return finding(Bind::CommitOrder, figures, Some(fewer_commits(m)));
    }
    finding(Bind::Nothing, figures, None)
}

/// How much more encoding the threads could do.
fn encode_room(m: &Measured) -> f64 {
    if m.encode_busy > 0.0 { 1.0 / m.encode_busy } else { f64::INFINITY }
}

fn more_memory(m: &Measured) -> Next {
    let slots = if m.uploading > 0.0 { m.parallelism as f64 / m.uploading } else { f64::INFINITY };
    let factor = 2.0_f64.min(slots).min(encode_room(m)).max(1.0);
    let then = if factor < 2.0 { ", then the next limit holds" } else { "" };
    Next {
        key: "flush.memory".to_owned(),
        from: format!("{} MiB", m.memory >> 20),
        to: format!("{} MiB", m.memory.saturating_mul(2) >> 20),
        live: true,
        factor: Some(factor),
        effect: format!(
            "about {factor:.1} times as much reaches Delta{then}; encoding takes up to three times of it in memory"
        ),
    }
}

fn more_threads(m: &Measured) -> Option<Next> {
    let to = m.threads.saturating_mul(2).min(m.processors);
    if to <= m.threads {
        // All processors encode already: no setting makes more of them.
        return None;
    }
    let factor = to as f64 / m.threads.max(1) as f64;
    Some(Next {
        key: "flush.threads".to_owned(),
        from: m.threads.to_string(),
        to: to.to_string(),
        live: false,
        factor: Some(factor),
        effect: format!(
            "up to {factor:.1} times as much is encoded, after a restart, on processors that acks and queries use as well"
        ),
    })
}

fn more_parallelism(m: &Measured) -> Next {
    let to = m.parallelism.saturating_mul(2).clamp(1, 1_024);
    let wanted = to as f64 / m.parallelism.max(1) as f64;
    let memory = if m.memory_used > 0 { m.memory as f64 / m.memory_used as f64 } else { f64::INFINITY };
    // No more is uploaded at the same time than there is.
    let work = if m.uploading > 0.0 { (m.waiting + m.uploading) / m.uploading } else { f64::INFINITY };
    let factor = wanted.min(memory).min(encode_room(m)).min(work).max(1.0);
    let bound = [(encode_room(m), "flush.threads"), (memory, "flush.memory"), (work, "what there is to upload")];
    let first = bound.into_iter().filter(|(room, _)| *room < wanted).min_by(|a, b| a.0.total_cmp(&b.0));
    let then = first.map_or_else(String::new, |(_, what)| format!(", then {what} binds"));
    Next {
        key: "flush.parallelism".to_owned(),
        from: m.parallelism.to_string(),
        to: to.to_string(),
        live: true,
        factor: Some(factor),
        effect: format!("about {factor:.1} times as many generations a second{then}"),
    }
}

fn fewer_commits(m: &Measured) -> Next {
    let full = m.seal_bytes > 0 && m.generation_bytes >= 0.7 * m.seal_bytes as f64;
    let (key, from, to) = if full {
        let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
        ("flush.seal_bytes", mib(m.seal_bytes), mib(m.seal_bytes.saturating_mul(2)))
    } else {
        let millis = m.commit_interval_millis;
        ("flush.commit_interval", format!("{millis} ms"), format!("{} ms", millis.saturating_mul(2).max(1_000)))
    };
    Next {
        key: key.to_owned(),
        from,
        to,
        live: true,
        factor: Some(2.0),
        effect: "generations twice as large, so up to twice as many rows a commit, which takes as long whatever is in it; rows reach \
                 Delta later"
            .to_owned(),
    }
}

/// What binds, in words.
#[must_use]
pub fn words(binds: Bind) -> &'static str {
    match binds {
        Bind::Nothing => "nothing",
        Bind::Budget => "a budget",
        Bind::Sync => "the log's syncs",
        Bind::LogThread => "the log's thread",
        Bind::EncodeCpu => "the processor time of encoding",
        Bind::UploadLatency => "the latency of uploads",
        Bind::CommitOrder => "the order of commits",
    }
}

#[cfg(test)]
mod tests;
