use std::time::Duration;

use serde_json::json;

use super::*;

fn loaded(assignments: &[&str]) -> Loaded {
    let split = |a: &&str| a.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()));
    let owned: Vec<(String, String)> = assignments.iter().filter_map(split).collect();
    Loaded::load(None, &owned).expect("should load")
}

fn layers(assignments: &[&str]) -> Layers {
    Layers::new(loaded(assignments), Kept::default())
}

fn patch(set: Value, persist: bool) -> Patch {
    let set = set.as_object().expect("should be an object").clone().into_iter().collect();
    Patch { set, persist }
}

fn shown(layers: &Layers, key: &str) -> (String, Source, Option<String>) {
    let shown = layers.shown().into_iter().find(|shown| shown.key.name == key).expect("should be a key");
    (shown.value.to_string(), shown.source, shown.kept.map(|kept| kept.to_string()))
}

#[test]
fn a_change_holds_until_the_next_start_or_for_later_ones_too() {
    let start = layers(&[]);
    assert_eq!(shown(&start, "flush.parallelism"), ("4".to_owned(), Source::Default, None));
    let running = start.with(&patch(json!({ "flush.parallelism": 16 }), false)).expect("should change");
    assert_eq!(shown(&running, "flush.parallelism"), ("16".to_owned(), Source::Running, None));
    assert_eq!((running.config().flush.parallelism, start.config().flush.parallelism), (16, 4));
    let kept = running.with(&patch(json!({ "flush.parallelism": 9 }), true)).expect("should change");
    assert_eq!(shown(&kept, "flush.parallelism"), ("9".to_owned(), Source::Kept, Some("9".to_owned())));
    let again = Layers::new(loaded(&[]), kept.kept().clone());
    assert_eq!(again.config().flush.parallelism, 9);
    // Taken back for now, and then for good.
    let over = again.with(&patch(json!({ "flush.parallelism": 2 }), false)).expect("should change");
    let back = over.with(&patch(json!({ "flush.parallelism": null }), false)).expect("should change");
    assert_eq!(shown(&back, "flush.parallelism"), ("9".to_owned(), Source::Kept, Some("9".to_owned())));
    let gone = over.with(&patch(json!({ "flush.parallelism": null }), true)).expect("should change");
    assert_eq!(shown(&gone, "flush.parallelism"), ("4".to_owned(), Source::Default, None));
}

#[test]
fn the_command_line_wins_over_what_is_kept_and_a_running_change_over_both() {
    let start = layers(&["flush.parallelism=8"]);
    assert_eq!(shown(&start, "flush.parallelism").1, Source::CommandLine);
    let kept = start.with(&patch(json!({ "flush.parallelism": "16", "flush.max_age": "30s" }), true));
    let kept = kept.expect("should change");
    assert_eq!(shown(&kept, "flush.parallelism"), ("16".to_owned(), Source::Running, Some("16".to_owned())));
    assert_eq!(kept.overruled(), [("flush.parallelism", Source::CommandLine)]);
    let again = Layers::new(loaded(&["flush.parallelism=8"]), kept.kept().clone());
    assert_eq!(again.config().flush.parallelism, 8);
    assert_eq!(again.config().flush.max_age, Duration::from_secs(30));
}

#[test]
fn what_is_shown_in_few_digits_is_not_rounded_on_the_way() {
    let mut config = Config::default();
    config.admission.max_unflushed = bytesize::ByteSize(1_234_567_891);
    let start = Layers::new(config.into(), Kept::default());
    let next = start.with(&patch(json!({ "flush.parallelism": 5 }), false)).expect("should change");
    assert_eq!(next.config().admission.max_unflushed.as_u64(), 1_234_567_891);
}

#[test]
fn a_set_with_one_bad_value_changes_nothing() {
    let start = layers(&[]);
    for bad in [
        json!({ "flush.parallelism": 16, "flush.memory": "1B" }),
        json!({ "flush.parallelism": 16, "flush.thread": 1 }),
        json!({ "flush.parallelism": 16, "flush.threads": 1 }),
        json!({ "flush.parallelism": 16, "flush.min_age": "2m" }),
        json!({}),
    ] {
        start.with(&patch(bad.clone(), true)).expect_err(&bad.to_string());
    }
    // Each alone would contradict the other one's default.
    let both = start.with(&patch(json!({ "flush.min_age": "2m", "flush.max_age": "3m" }), false)).expect("should do");
    let changes: Vec<_> =
        start.changes(&both).into_iter().map(|c| (c.key, c.old.to_string(), c.new.to_string())).collect();
    let wanted = [("flush.max_age", "1m", "3m"), ("flush.min_age", "5s", "2m")];
    assert_eq!(changes, wanted.map(|(key, old, new)| (key, old.to_owned(), new.to_owned())));
}

#[test]
fn what_the_file_has_beyond_a_range_stays_and_is_not_judged() {
    let mut config = Config::default();
    config.admission.max_unflushed = bytesize::ByteSize(1);
    config.flush.min_age = Duration::from_secs(1_000);
    let start = Layers::new(config.into(), Kept::default());
    let next = start.with(&patch(json!({ "flush.parallelism": 5 }), false)).expect("should change");
    assert_eq!(next.config().admission.max_unflushed.as_u64(), 1);
    assert!(start.with(&patch(json!({ "flush.max_age": "2m" }), false)).is_err(), "contradicts min_age");
}

#[test]
fn rereading_is_as_a_start_with_the_new_file() {
    let start = layers(&[]);
    let tuned = start.with(&patch(json!({ "flush.parallelism": 16, "flush.max_age": "30s" }), false));
    let tuned = tuned.expect("should change");
    let next = tuned.reread(loaded(&["flush.max_age=20s"]), Kept::default()).expect("should do");
    assert_eq!(shown(&next, "flush.parallelism"), ("4".to_owned(), Source::Default, None));
    assert_eq!(shown(&next, "flush.max_age"), ("20s".to_owned(), Source::CommandLine, None));
    assert_eq!(tuned.changes(&next).len(), 2);
    tuned.reread(loaded(&["flush.max_age=1ms"]), Kept::default()).expect_err("is out of its range");
    let differ = loaded(&[]).fixed_differences(&loaded(&[
        "flush.threads=3",
        "flush.max_age=1s",
        "lake.storage.secret_access_key=hush",
    ]));
    assert_eq!(differ, ["flush.threads", "lake.storage"]);
}
