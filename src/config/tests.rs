use figment::Figment;
use figment::providers::{Format, Toml};

use super::*;

fn config(assignments: &[&str]) -> Result<Config, Error> {
    let split = |a: &&str| a.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()));
    let owned: Vec<(String, String)> = assignments.iter().filter_map(split).collect();
    Config::load(None, &owned)
}

fn as_json(config: &Config) -> serde_json::Value {
    serde_json::to_value(config).expect("should serialise")
}

#[test]
fn the_shipped_file_shows_every_key_with_its_default() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/penstock.toml");
    let shipped: serde_json::Value = Figment::from(Toml::file_exact(&path)).extract().expect("should be TOML");
    let keys = |value: &serde_json::Value| {
        let mut keys: Vec<String> = Vec::new();
        for (section, inner) in value.as_object().expect("should be a table") {
            match inner.as_object() {
                Some(inner) => keys.extend(inner.keys().map(|k| format!("{section}.{k}"))),
                None => keys.push(section.clone()),
            }
        }
        keys.sort();
        keys
    };
    let mut wanted = keys(&as_json(&Config::default()));
    // Has no default: it is the data directory's `lake` unless set. The file shows it as a comment.
    wanted.retain(|k| k != "lake.url");
    assert_eq!(keys(&shipped), wanted);
    let loaded = Config::load(Some(&path), &[]).expect("should load");
    assert_eq!(as_json(&loaded), as_json(&Config::default()));
}

#[test]
fn assignments_override_and_are_checked() {
    let set = config(&["flush.parallelism=9", "server.listen=127.0.0.1:0", "store.segment=1MiB", "flush.max_age=2s"]);
    let set = set.expect("should load");
    assert_eq!(set.flush.parallelism, 9);
    assert_eq!(set.server.listen.port(), 0);
    assert_eq!(set.store.segment.as_u64(), 1 << 20);
    assert_eq!(set.flush.max_age.as_secs(), 2);
    let unknown = config(&["flush.paralelism=9"]).expect_err("should be refused").to_string();
    assert!(unknown.contains("paralelism"), "{unknown}");
    assert!(config(&["flush.parallelism=many"]).is_err());
}

#[test]
fn an_interval_of_zero_means_no_checkpoints_by_time() {
    let interval = |text: &str| {
        let set = config(&[&format!("store.checkpoint_interval={text}")]).expect("should load");
        set.store.options().checkpoint_interval
    };
    assert_eq!(interval("50ms"), Some(std::time::Duration::from_millis(50)));
    assert_eq!(interval("0s"), None);
    assert!(interval("500000years") < Some(std::time::Duration::from_secs(1 << 30)));
}

#[test]
fn secrets_are_not_shown() {
    let set = config(&["lake.storage.secret_access_key=hush"]).expect("should load");
    assert_eq!(set.lake.storage["secret_access_key"], "hush");
    assert!(!format!("{set:?}").contains("hush"));
}

#[test]
fn object_store_settings_are_text_as_they_stand() {
    let set = config(&[
        "lake.storage.access_key_id=0042",
        "lake.storage.secret_access_key=1e5",
        "lake.storage.allow_http=true",
    ]);
    let storage = set.expect("should load").lake.storage;
    assert_eq!(storage["access_key_id"], "0042");
    assert_eq!(storage["secret_access_key"], "1e5");
    assert_eq!(storage["allow_http"], "true");
}
