//! The settings that may change while the server runs, under the names that they have in the file.
//!
//! A key knows what it holds, from where to where that may go, and its place in a [`Config`]. What is changed is checked as a whole:
//! each value by its own range, then the result for [`contradiction`]s, and a set with one bad value changes nothing. Values that were
//! set before are not judged: a file may hold what is beyond these ranges, for reasons of its own.

use std::fmt;
use std::time::Duration;

use bytesize::ByteSize;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::Config;

#[cfg(test)]
mod tests;

/// The value of a setting. As text it is exact, and reads back as the same value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Setting {
    /// A number of things.
    Count(u64),
    /// Bytes.
    Size(u64),
    /// A length of time.
    Time(Duration),
    /// A part of a whole.
    Part(f64),
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Size(bytes) => {
                let units = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
                let whole = units.into_iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit));
                let (name, unit) = whole.unwrap_or(("B", 1_u64));
                write!(f, "{}{name}", bytes / unit)
            }
            Self::Time(time) => write!(f, "{}", humantime::format_duration(time)),
            Self::Part(part) => write!(f, "{part}"),
        }
    }
}

impl Serialize for Setting {
    /// Numbers as such, everything else as in the file.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u64(*count),
            Self::Part(part) => serializer.serialize_f64(*part),
            Self::Size(_) | Self::Time(_) => serializer.collect_str(self),
        }
    }
}

impl Setting {
    /// What `value` says, where something of this kind is expected.
    fn read_like(self, value: &Value) -> Option<Self> {
        let text = value.as_str().map(str::trim);
        Some(match self {
            Self::Count(_) => Self::Count(value.as_u64().or_else(|| text?.parse().ok())?),
            Self::Size(_) => Self::Size(value.as_u64().or_else(|| Some(text?.parse::<ByteSize>().ok()?.as_u64()))?),
            Self::Time(_) => Self::Time(humantime::parse_duration(text?).ok()?),
            Self::Part(_) => Self::Part(value.as_f64().or_else(|| text?.parse().ok())?),
        })
    }

    fn is_within(self, least: Self, most: Self) -> bool {
        match (self, least, most) {
            (Self::Count(value), Self::Count(least), Self::Count(most))
            | (Self::Size(value), Self::Size(least), Self::Size(most)) => (least..=most).contains(&value),
            (Self::Time(value), Self::Time(least), Self::Time(most)) => (least..=most).contains(&value),
            // What is not a number is within nothing.
            (Self::Part(value), Self::Part(least), Self::Part(most)) => (least..=most).contains(&value),
            _ => false,
        }
    }
}

/// A setting that may change while the server runs.
#[derive(Debug)]
pub struct Key {
    /// As in the file: `section.key`.
    pub name: &'static str,
    /// What it is, in a line.
    pub what: &'static str,
    least: Setting,
    most: Setting,
    get: fn(&Config) -> Setting,
    put: fn(&mut Config, Setting),
}

/// Why a change cannot be made. Nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TuneError {
    #[error("there is no setting {0}")]
    Unknown(String),
    #[error("{0} does not change while the server runs: set it in the configuration file and restart")]
    Fixed(String),
    #[error("{key} = {value} cannot be: it is {allowed}")]
    Value { key: &'static str, value: String, allowed: String },
    #[error("{0}")]
    Contradiction(String),
    #[error("no setting is named")]
    Nothing,
}

const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);
const TIB: u64 = 1 << 40;

macro_rules! keys {
    ($($kind:ident $section:ident.$key:ident in $least:expr, $most:expr; $what:literal)*) => {
        /// All of them.
        pub const KEYS: &[Key] = &[$(Key {
            name: concat!(stringify!($section), ".", stringify!($key)),
            what: $what,
            least: Setting::$kind($least),
            most: Setting::$kind($most),
            get: |config| keys!(get $kind config.$section.$key),
            put: |config, value| {
                if let Setting::$kind(value) = value {
                    config.$section.$key = keys!(put $kind value);
                }
            },
        }),*];
    };
    (get Count $place:expr) => { Setting::Count($place as u64) };
    (get Size $place:expr) => { Setting::Size($place.as_u64()) };
    (get $kind:ident $place:expr) => { Setting::$kind($place) };
    (put Count $value:ident) => { usize::try_from($value).unwrap_or(usize::MAX) };
    (put Size $value:ident) => { ByteSize($value) };
    (put $kind:ident $value:ident) => { $value };
}

keys! {
    Count flush.parallelism in 1, 1_024; "generations that are encoded and uploaded at the same time"
    Size flush.memory in 1 << 20, TIB; "payload bytes of those"
    Time flush.grace in Duration::ZERO, MONTH; "time past a bucket's window before it is sealed"
    Time flush.max_age in Duration::from_millis(10), MONTH; "a bucket is sealed after this long"
    Time flush.min_age in Duration::ZERO, MONTH; "and not sooner than this"
    Time flush.commit_interval in Duration::ZERO, MONTH; "least time between two seals of a table"
    Size flush.seal_bytes in 64 << 10, 16 << 30; "a bucket is sealed at this many payload bytes"
    Size admission.max_unflushed in 64 << 10, 64 * TIB; "most bytes that are acknowledged and not in Delta"
    Size admission.max_in_flight in 64 << 10, 64 * TIB; "most bytes of posts that are not acknowledged yet"
    Part admission.table_share in 0.001, 1.0; "the part of max_unflushed that one table may have"
    Part admission.namespace_share in 0.001, 1.0; "the part of it that one namespace may have"
    Time admission.replay_budget in Duration::from_millis(100), MONTH; "how long a restart may read the log"
    Time admission.max_cursor_lag in Duration::ZERO, MONTH; "how long a table's rows may wait for Delta; 0s: for ever"
    Time store.checkpoint_interval in Duration::ZERO, MONTH; "longest time between two checkpoints; 0s: none by time"
    Size store.checkpoint_log in 64 << 10, TIB; "log bytes of a shard at which a checkpoint is due"
}

impl Key {
    /// The key of this name.
    ///
    /// # Errors
    /// [`TuneError::Fixed`] for a setting that takes a restart, [`TuneError::Unknown`] for what is none.
    pub fn named(name: &str) -> Result<&'static Self, TuneError> {
        let known = KEYS.iter().find(|key| key.name == name);
        known.ok_or_else(|| {
            let is_setting = super::loaded::names(&Config::default()).iter().any(|known| known == name);
            if is_setting { TuneError::Fixed(name.to_owned()) } else { TuneError::Unknown(name.to_owned()) }
        })
    }

    /// Its value.
    #[must_use]
    pub fn get(&self, config: &Config) -> Setting {
        (self.get)(config)
    }

    /// Gives it a value, whatever that is.
    pub fn put(&self, config: &mut Config, value: Setting) {
        (self.put)(config, value);
    }

    /// What a value may be.
    #[must_use]
    pub fn allowed(&self) -> String {
        let what = match self.least {
            Setting::Count(_) => "a whole number",
            Setting::Size(_) => "a size",
            Setting::Time(_) => "a time",
            Setting::Part(_) => "a part of 1",
        };
        format!("{what} from {} to {}", self.least, self.most)
    }

    /// The value that is meant: text as in the file, or a number.
    ///
    /// # Errors
    /// [`TuneError::Value`] with what is allowed.
    pub fn read(&self, value: &Value) -> Result<Setting, TuneError> {
        let shown = || value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        self.least.read_like(value).ok_or_else(|| self.refuse(shown())).and_then(|setting| self.check(setting))
    }

    /// The value, if it is within the range.
    ///
    /// # Errors
    /// [`TuneError::Value`] with what is allowed.
    pub fn check(&self, value: Setting) -> Result<Setting, TuneError> {
        if value.is_within(self.least, self.most) { Ok(value) } else { Err(self.refuse(value)) }
    }

    fn refuse(&self, value: impl fmt::Display) -> TuneError {
        TuneError::Value { key: self.name, value: value.to_string(), allowed: self.allowed() }
    }
}

/// Why settings that are each in their range make no sense together. Only what involves a changed key counts.
pub(super) fn contradiction(config: &Config, changed: &[&str]) -> Option<String> {
    let (flush, admission) = (&config.flush, &config.admission);
    let involved = |keys: [&str; 2]| keys.iter().any(|key| changed.contains(key));
    if flush.min_age > flush.max_age && involved(["flush.min_age", "flush.max_age"]) {
        let [least, most] = [flush.min_age, flush.max_age].map(humantime::format_duration);
        return Some(format!(
            "flush.min_age = {least} cannot be: it is a time from 0s to flush.max_age, which is {most}"
        ));
    }
    let (table, namespace) = (admission.table_share, admission.namespace_share);
    if table > namespace && involved(["admission.table_share", "admission.namespace_share"]) {
        return Some(format!(
            "admission.table_share = {table} cannot be: it is a part from 0.001 to admission.namespace_share, which is {namespace}"
        ));
    }
    None
}
