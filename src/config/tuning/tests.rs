use serde_json::json;

use super::*;

#[test]
fn every_key_has_a_place_in_the_settings_and_a_default_within_its_range() {
    let defaults = Config::default();
    let names = super::super::loaded::names(&defaults);
    for key in KEYS {
        assert!(names.iter().any(|name| name == key.name), "{}", key.name);
        let value = key.get(&defaults);
        assert_eq!(key.check(value), Ok(value), "{}", key.name);
        // What is put is what is got, and nothing else changes.
        for end in [key.least, key.most] {
            let mut config = defaults.clone();
            key.put(&mut config, end);
            assert_eq!(key.get(&config), end, "{}", key.name);
            let others = KEYS.iter().filter(|other| other.name != key.name);
            others
                .for_each(|other| assert_eq!(other.get(&config), other.get(&defaults), "{} {}", key.name, other.name));
        }
    }
}

#[test]
fn text_reads_back_as_the_same_value() {
    let sizes = [1, 1_000, 1_023, 1_024, 1_536 << 20, (64 << 20) + 1, TIB, 64 * TIB].map(Setting::Size);
    let times = [0, 1, 999_999_999, 1_500_000_000, 86_400_000_000_000].map(|n| Setting::Time(Duration::from_nanos(n)));
    let others = [Setting::Count(16), Setting::Part(0.1), Setting::Part(1.0), Setting::Part(1.0 / 3.0)];
    for value in sizes.into_iter().chain(times).chain(others).chain([Setting::Time(MONTH)]) {
        let text = Value::String(value.to_string());
        assert_eq!(value.read_like(&text), Some(value), "{text}");
        let written = serde_json::to_value(value).expect("should be JSON");
        assert_eq!(value.read_like(&written), Some(value), "{written}");
    }
    assert_eq!(Setting::Size(1_536 << 20).to_string(), "1536MiB");
    assert_eq!(Setting::Time(Duration::from_secs(90)).to_string(), "1m 30s");
}

#[test]
fn a_value_that_cannot_be_is_refused_with_what_may_be() {
    let refused = |key: &str, value: Value| {
        let error = Key::named(key).expect("should be a key").read(&value).expect_err("should be refused");
        error.to_string()
    };
    let said = "flush.parallelism = 0 cannot be: it is a whole number from 1 to 1024";
    assert_eq!(refused("flush.parallelism", json!(0)), said);
    assert_eq!(refused("flush.parallelism", json!("0")), said);
    let many = refused("flush.parallelism", json!("many"));
    assert!(many.contains("flush.parallelism = many") && many.contains("from 1 to 1024"), "{many}");
    for value in [json!(-1), json!(1.5), json!([1]), json!({}), json!(true), json!("1e3"), json!(u64::MAX)] {
        refused("flush.parallelism", value);
    }
    for value in [json!("-1s"), json!("soon"), json!(5), json!("40days")] {
        assert!(refused("flush.max_age", value).contains("a time from 10ms to 30days"));
    }
    for value in [json!(0), json!(1.01), json!("NaN"), json!("inf"), json!(f64::NAN)] {
        assert!(refused("admission.table_share", value).contains("a part of 1 from 0.001 to 1"));
    }
    assert!(refused("store.checkpoint_log", json!("1KiB")).contains("a size from 64KiB to 1TiB"));
}

#[test]
fn what_is_no_key_is_told_from_what_takes_a_restart() {
    let error = |name: &str| Key::named(name).expect_err("should be refused").to_string();
    assert!(error("flush.threads").contains("does not change while the server runs"));
    assert!(error("server.listen").contains("restart"));
    assert_eq!(error("flush.paralelism"), "there is no setting flush.paralelism");
}

#[test]
fn contradictions_count_where_a_changed_setting_is_involved() {
    let mut config = Config::default();
    config.flush.min_age = Duration::from_secs(120);
    let said = contradiction(&config, &["flush.min_age"]).expect("should contradict");
    assert!(said.contains("flush.min_age = 2m") && said.contains("flush.max_age, which is 1m"), "{said}");
    assert!(contradiction(&config, &["flush.max_age"]).is_some());
    assert_eq!(contradiction(&config, &["flush.parallelism"]), None);
    config.flush.min_age = config.flush.max_age;
    config.admission.table_share = 0.9;
    assert_eq!(contradiction(&config, &["flush.min_age"]), None);
    let said = contradiction(&config, &["admission.namespace_share"]).expect("should contradict");
    assert!(said.contains("admission.table_share = 0.9") && said.contains("which is 0.8"), "{said}");
}
